"""Recorded results as a run of the benchmark leaves them, made up from a few round numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

NETWORK_MS = 3000.0
# What each stack spends before and after the network, in ms.
BEFORE = {"rust": 20.0, "python": 1400.0, "python_whole": 1400.0}
AFTER = {"rust": 30.0, "python": 2600.0, "python_whole": 2600.0}


def phases(before: float, infer: float, after: float) -> dict[str, float]:
    total = before + infer + after
    return {"count": 2, "server_ms": total, "queue_ms": 0.0, "compute_input_ms": before, "compute_infer_ms": infer, "compute_output_ms": after}


def made_up_run(stack: str, turn: int, *, model: str = "spleen_seg", transport: str = "shm", factor: float = 1.0, **labels) -> dict:
    """A run whose steps around the network take `factor` times as long as usual."""
    before, after = BEFORE[stack] * factor, AFTER[stack] * factor
    network = NETWORK_MS * (1.5 if stack == "python_whole" else 1.0)
    latency = network if model == "segmentation_3d" else before + network + after
    spleen = phases(before, network, after) if stack == "rust" else phases(0.0, before + network + after, 0.0)
    client = {
        "latency_ms": latency,
        "p50_ms": latency,
        "p99_ms": latency,
        "throughput": 1000 / latency,
        "transfer_ms": 1.0,
        "wait_ms": latency - 1,
        **{key: value for key, value in spleen.items() if key.endswith("_ms") and key != "server_ms"},
    }
    return {
        "stack": stack,
        "round": turn,
        "model": model,
        "transport": transport,
        "requests": 2,
        "concurrency": 1,
        **labels,
        "client": client,
        "statistics": {"spleen_seg": spleen, "segmentation_3d": phases(0.0, network, 0.0)},
    }


@pytest.fixture
def results() -> dict:
    """Three rounds; in the second everything takes twice as long around the network."""
    runs = []
    for turn, factor in enumerate((1.0, 2.0, 1.0)):
        for stack in BEFORE:
            for transport in ("shm", "http", "grpc"):
                runs.append(made_up_run(stack, turn, transport=transport, factor=factor, section="headline", input="zero"))
        runs.append(made_up_run("rust", turn, model="segmentation_3d", section="alone", input="zero"))
    return {
        "made": {"date": "2025-01-01", "command": "scripts/bench.sh", "seconds": 1.0, "load_average": 0.0, "busy_above": 0.5},
        "machine": {"Triton": "2.0", "processor": "none", "cores": "2", "monai": "1.0"},
        "runs": runs,
        "yardstick": [{"round": turn, "ms": 20.0} for turn in range(3)],
        "ready": [{"stack": stack, "seconds": seconds} for stack, seconds in (("rust", 2.0), ("python", 16.0))],
        "memory": [
            {"stack": stack, "processes": 1, "idle_mb": 100.0, "peak_mb": peak, "python_backend_shm_mb": 0.0}
            for stack, peak in (("network", 1000.0), ("rust", 1100.0), ("python", 4000.0))
        ],
        "equality": [],
        "left_out": [],
        "failed": [],
    }


@pytest.fixture
def full_results(results) -> dict:
    """The same with every optional section."""
    runs = results["runs"]
    for turn in range(2):
        for stack in ("rust", "python"):
            runs += [made_up_run(stack, turn, section="inputs", input=name) for name in ("phantom", "noise")]
            for slices in (64, 114, 300, 600, 1000):
                if slices < 1000 or stack == "rust":
                    # Linear: twice the slices, twice the time.
                    runs.append(
                        {**made_up_run(stack, turn, factor=slices / 114, section="growth", slices=slices), "peak_mb": 500.0 + slices / 100}
                    )
        for instances in (1, 2):
            for model in ("spleen_seg", "segmentation_3d"):
                runs.append(made_up_run("rust", turn, model=model, section="concurrency", instances=instances))
    results["ready"] += [{"stack": stack, "model": "spleen_seg", "seconds": s} for stack, s in (("python", 9.0), ("rust", 0.2))]
    results["soak"] = [{"requests": 50 * n, "rest_mb": 500.0, "peak_mb": 600.0} for n in range(1, 11)]
    results["steps"] = {"rust": {"foreground": 3.0, "network": 3000.0}, "python": {"scale": 500.0, "network": 3000.0}}
    results["equality"] = [
        {"input": "zero", "stack": "python", "voxels": {"MASK": 5, "CONTOUR": 4}, "differing": {"MASK": 0, "CONTOUR": 1}}
    ]
    results["noise_components"], results["noise_voxels"] = 1000, 5000
    return results
