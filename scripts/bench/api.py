"""What triton_backend_api costs. scripts/bench_api.sh prepares everything that this needs."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import api_report, health, machine, perf, statistics
from .repositories import PYTHON_BACKEND, ROOT
from .server import Server, e2e

CONCURRENCY = (1, 16)
POINTS, LIMIT = 2048, 1000  # zeros never leave the circle: each point takes LIMIT steps

TENSORS = {
    "identity": (("IN", "FP32", "[ -1 ]"), ("OUT", "FP32", "[ -1 ]")),
    "threads": (("POINTS", "FP32", "[ -1, 2 ]"), ("ITERATIONS", "INT32", "[ -1 ]")),
}


def write_model(repository: Path, name: str, example: str, backend: str, **parameters: object) -> str:
    """The example, or the same in the Python backend; one instance on the CPU."""
    lines = [f'name: "{name}"', f'backend: "{backend}"', "instance_group [ { kind: KIND_CPU count: 1 } ]"]
    for kind, (tensor, data_type, dims) in zip(("input", "output"), TENSORS[example]):
        lines.append(f'{kind} [ {{ name: "{tensor}" data_type: TYPE_{data_type} dims: {dims} }} ]')
    for key, value in parameters.items():
        lines.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}')
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text("\n".join(lines) + "\n")
    if backend == "python":
        shutil.copy(PYTHON_BACKEND / example / "1" / "model.py", repository / name / "1")
    return name


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load(server: Server, work: Path, model: str, shape: str, requests: int, concurrency: int) -> dict[str, float]:
    """One run of perf_analyzer over HTTP: requests a second, and the server's own microseconds for each."""
    report = work / "perf.csv"
    report.unlink(missing_ok=True)
    command = [
        os.environ["SPLEENSEG_PERF_ANALYZER"],
        *("-m", model, "-u", f"127.0.0.1:{server.http_port}", "--input-data", "zero", "--shape", shape),
        *("--request-count", str(requests), "--concurrency-range", str(concurrency), "-f", str(report), "--verbose-csv"),
    ]
    before = server.statistics(model)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode or not report.exists():
        raise perf.PerfError(f"perf_analyzer failed ({done.returncode}): {done.stdout}{done.stderr}")
    found = statistics.difference(before, server.statistics(model))
    client = perf.parse_report(report.read_text())
    return {
        "per_second": concurrency * 1000 / client["latency_ms"],
        "latency_us": client["latency_ms"] * 1000,
        "compute_us": statistics.compute_ms(found) * 1000,
        "requests": found["count"],
    }


def measure(work: Path, quick: bool) -> dict:
    rounds, requests = (1, 500) if quick else (5, 3000)
    repository = work / "models"
    identities = {
        "rust": write_model(repository, "identity_rust", "identity", "identity"),
        "python": write_model(repository, "identity_python", "identity", "python"),
    }
    cores = len(os.sched_getaffinity(0))
    threads = {
        (backend, count): write_model(repository, f"threads_{backend}_{count}", "threads", name, limit=LIMIT, threads=count)
        for backend, name in (("rust", "threads"), ("python", "python"))
        for count in sorted({1, cores})
    }
    records: dict[str, list] = {"identity": [], "health": [], "threads": []}
    with Server(repository, e2e.backend_folder(work / "backends"), work / "server.log") as server:
        for model in identities.values():
            load(server, work, model, "IN:16", 200, 1)  # warm
        for turn in range(rounds):
            for concurrency in CONCURRENCY:
                order = list(identities.items())
                for stack, model in order if turn % 2 == 0 else reversed(order):
                    found = load(server, work, model, "IN:16", requests, concurrency)
                    records["identity"].append({"round": turn, "stack": stack, "concurrency": concurrency, **found})
                    say(f"identity, {stack}, {concurrency} at once: {found['compute_us']:.1f} us, {found['per_second']:.0f} /s")
                rate = health.rate(server.http_port, concurrency, seconds=1 if quick else 3)
                records["health"].append({"round": turn, "concurrency": concurrency, "per_second": rate})
                say(f"health, {concurrency} at once: {rate:.0f} /s")
            for (stack, count), model in threads.items():
                found = load(server, work, model, f"POINTS:{POINTS},2", 3 if quick else 8, 1)
                records["threads"].append({"round": turn, "stack": stack, "threads": count, **found})
                say(f"threads, {stack}, {count}: {found['compute_us'] / 1000:.1f} ms")
    return records


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench_api.sh")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    arguments = parser.parse_args()
    store = arguments.out / "api.json"
    if not arguments.report:
        work = ROOT / "build" / "bench_api" / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        busy = machine.load_average()
        results = {
            "made": {
                "date": datetime.date.today().isoformat(),
                "command": "scripts/bench_api.sh" + (" --quick" if arguments.quick else ""),
                "load_average": busy,
            },
            "machine": machine.describe(),
            "cost": json.loads(Path(os.environ["SPLEENSEG_COST"]).read_text()),
            **measure(work, arguments.quick),
        }
        arguments.out.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(results, indent=1) + "\n")
    text = api_report.write(json.loads(store.read_text()))
    (arguments.out / "api.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
