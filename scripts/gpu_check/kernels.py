"""How long each step takes on the GPU, beside its floor: the bytes that it has to move, at the bandwidth of a copy."""

from __future__ import annotations

import json
import re
import statistics

import numpy as np

from .check import Check
from .latency import Run, Sizes, measure, sizes, table, volume
from .regions import CudaRegion
from .repositories import network, spleen
from .server import Server


def run(check: Check) -> None:
    """INPUT0, scores and outputs lie on the GPU: nothing else than kernels is between a step's two events."""
    size = sizes(check)
    repository = check.work / "models"
    network(repository, gpu=True)
    spleen(check.bundle, repository, True, size.grid)
    with Server(check, repository, "kernels") as server:
        server.verbose()
        try:
            found = measure(server, "spleen_seg", volume(size.volume), size.grid_voxels * 4, CudaRegion, 15)
        except RuntimeError as error:
            # The kernels' times are worth having without.
            check.say(f"without CUDA shared memory ({error}): foreground has the copy of INPUT0 in it, write that of the output")
            found = measure(server, "spleen_seg", volume(size.volume), size.grid_voxels * 4, None, 15)
        steps = times(server.text(), len(found.milliseconds))
    bandwidth = copy_bandwidth()
    check.say(f"bandwidth of a copy on this GPU: {bandwidth / 1e9:,.0f} GB/s read and written together")
    least = {step: moved / bandwidth * 1e3 for step, moved in bytes_moved(size, found).items()}
    rows = []
    for step, milliseconds in steps.items():
        middle, floor = statistics.median(milliseconds), least.get(step)
        rows.append([step, f"{middle:.3f}", *([f"{floor:.3f}", f"{middle / floor:.1f}"] if floor else ["-", "-"])])
    shape = "x".join(map(str, size.volume[1:]))
    check.say(f"kernel times by events, {shape} FP32 on the GPU, medians of {len(found.milliseconds)} requests")
    check.say(table(["step", "ms", "floor, ms", "times the floor"], rows))
    check.say("foreground: with the wait for the box, which the host needs for the next launch; write: each of MASK and CONTOUR")


def times(log: str, requests: int) -> dict[str, list[float]]:
    """Milliseconds by step, of the last requests in the log; a step that runs twice a request is there twice."""
    lines = re.findall(r"on the GPU ((?:\w+=\S+ )+)ms", log)[-requests:]
    if len(lines) < requests:
        raise RuntimeError(f"the server's log has the times of {len(lines)} requests, not of {requests}")
    steps: dict[str, list[float]] = {}
    for line in lines:
        for step, milliseconds in re.findall(r"(\w+)=([\d.]+)", line):
            steps.setdefault(step, []).append(float(milliseconds))
    return steps


def bytes_moved(size: Sizes, run: Run) -> dict[str, int]:
    """What a step reads and writes at least: src/cuda/kernels/README.md. FP32 in and out, two classes."""
    start, end = (np.array(json.loads(run.parameters[key])[0]) for key in ("crop_start", "crop_end"))
    crop, grid = int(np.prod(end - start)), size.grid_voxels
    return {
        "foreground": 4 * size.voxels,
        "resize": 4 * crop + 4 * grid,
        "argmax": 2 * 4 * grid + grid,
        "components": grid,
        "contour": 2 * grid,
        "count": 2 * grid,
        "write": grid + 4 * grid,
    }


def copy_bandwidth() -> float:
    """Bytes per second that a copy on the device reads and writes, together."""
    import torch

    source = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return 2 * source.nbytes / statistics.median(seconds[2:])
