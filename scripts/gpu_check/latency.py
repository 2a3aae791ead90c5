"""Requests one after the other, and what they cost."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from .check import Check
from .driver import sharing_refused
from .regions import CudaRegion, Region, SystemRegion, room
from .repositories import NETWORK
from .server import Server

OUTPUTS = ("MASK", "CONTOUR")
WARM_UP = 3


@dataclass(frozen=True)
class Sizes:
    volume: tuple[int, ...]
    grid: tuple[int, ...]

    @property
    def voxels(self) -> int:
        return int(np.prod(self.volume))

    @property
    def grid_voxels(self) -> int:
        return int(np.prod(self.grid))


# The shape of the published figures; and one that the check itself can be tried with on the CPU.
FULL = Sizes((1, 512, 512, 114), (224, 224, 224))
SMALL = Sizes((1, 96, 80, 61), (64, 32, 64))


def sizes(check: Check) -> Sizes:
    return FULL if check.gpu else SMALL


def volume(shape: tuple[int, ...]) -> np.ndarray:
    """An ellipsoid of soft tissue with noise, and air around it."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in shape[1:]), indexing="ij", sparse=True)
    body = sum(axis**2 for axis in axes) < 0.9
    noise = np.random.default_rng(1).normal(0, 20, shape[1:]).astype(np.float32)
    return (np.where(body, np.float32(60), np.float32(-1000)) + noise)[None]


def memories(check: Check) -> dict[str, type[Region] | None]:
    """How requests and answers come."""
    found: dict[str, type[Region] | None] = {}
    size = sizes(check)
    # INPUT0, and MASK and CONTOUR in FP32.
    if room() > 4 * (size.voxels + 2 * size.grid_voxels):
        found["system shared memory"] = SystemRegion
    if check.gpu and not sharing_refused():
        found["CUDA shared memory"] = CudaRegion
    return {**found, "HTTP": None}


@dataclass
class Run:
    milliseconds: list[float]
    server: dict[str, float]
    """Milliseconds a request, as Triton counts them."""
    masks: bytes
    parameters: dict

    def median(self) -> float:
        return statistics.median(self.milliseconds)

    def spread(self) -> str:
        return f"{self.median():,.1f} ({min(self.milliseconds):,.1f}..{max(self.milliseconds):,.1f})"


def measure(server: Server, model: str, image: np.ndarray, byte_size: int, kind: type[Region] | None, seconds: float) -> Run:
    """Requests for so long, at least 5 and at most 200, after some that are not counted."""
    with ExitStack() as stack:
        given = stack.enter_context(server.region(kind, image.nbytes))
        if given:
            given.write(image)
        outputs = {name: stack.enter_context(server.region(kind, byte_size)) for name in OUTPUTS}
        for _ in range(WARM_UP):
            server.infer(model, image, outputs, given)
        before = counted(server, model)
        times, until = [], time.monotonic() + seconds
        while len(times) < 5 or (time.monotonic() < until and len(times) < 200):
            began = time.perf_counter()
            arrays, parameters = server.infer(model, image, outputs, given)
            times.append((time.perf_counter() - began) * 1e3)
        after = counted(server, model)
        mask = outputs["MASK"].read() if outputs["MASK"] else arrays["MASK"].tobytes()
    return Run(times, {name: (after[name] - before[name]) / len(times) for name in after}, mask, parameters)


def counted(server: Server, model: str) -> dict[str, float]:
    """Milliseconds so far."""
    own, network = server.statistics(model), server.statistics(NETWORK)
    found = {name.replace("_", " "): own[name][1] for name in ("queue", "compute_input", "compute_infer", "compute_output")}
    return {**found, f"{NETWORK}, whole request": network["success"][1]}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Columns under each other; the first is text."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: list[str]) -> str:
        first, *others = (cell.ljust(w) if not n else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths)))
        return "  ".join(["", first, *others])

    return "\n".join(map(line, [head, *rows]))
