"""segmentation_3d in this project's own pytorch backend, where this machine's PyTorch is the one that it was built for."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .benchmark import pool_options
from .check import PYTHON, Check
from .latency import Run, measure, memories, sizes, table, volume
from .needs import dotted, glibc
from .report import Skip
from .repositories import NETWORK, kind, network, parameter, spleen
from .server import Server

# In standard deviations of the scores: the same weights and the same PyTorch, but convolutions may be computed in another order, and
# on a GPU in TF32.
MOST_OFF = 2e-2


def run(check: Check) -> None:
    packed = check.bundle / "backends" / "pytorch"
    if not packed.exists():
        raise Skip("torchscript_backend (the bundle was made --without-pytorch)")
    built, found = (packed / "built_for").read_text().strip(), version("torch").split("+")[0]
    if minor(built) != minor(found):
        raise Skip(f"built for {minor(built)}, found {minor(found)}")
    needs = tuple(map(int, (packed / "needs_glibc").read_text().strip().split(".")))
    if glibc() < needs:
        raise Skip(f"glibc {dotted(needs)} or newer (found {dotted(glibc())})")
    shutil.copytree(packed, check.backends / "pytorch", dirs_exist_ok=True)
    libtorch = Path(importlib.util.find_spec("torch").origin).parent / "lib"

    # Half precision as torchscript_backend offers it: what it saves and what it changes is told, and is no failure.
    half = "float16" if check.gpu else "bfloat16"
    own, halved, other = (check.work / name for name in ("own", "autocast", "python"))
    torchscript(check, own)
    torchscript(check, halved, parameter("AUTOCAST", half))
    model = check.bundle / "models" / "segmentation_3d" / "1" / "model.pt"
    network(other, check.gpu, backend=PYTHON, module=model)
    runs = {
        "torchscript_backend": serve(check, own, "torchscript", libtorch),
        f"torchscript_backend, AUTOCAST {half}": serve(check, halved, "torchscript_autocast", libtorch),
        "Python backend": serve(check, other, "torchscript_python"),
    }
    reference, ours = runs["Python backend"].scores, runs["torchscript_backend"].scores
    deviation = float(reference.std())
    rows = [[title, found.latency.spread(), f"{furthest(found.scores, reference) / deviation:.1e}"] for title, found in runs.items()]
    check.say(f"the demonstration network; its scores have a standard deviation of {deviation:.2f}")
    check.say(table(["segmentation_3d in", "ms a request to spleen_seg", "furthest score off, in those"], rows))
    if not furthest(ours, reference) <= MOST_OFF * deviation:
        raise AssertionError(f"scores of the two backends differ by up to {furthest(ours, reference):.3g}")


def furthest(scores: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(scores - reference).max())


def torchscript(check: Check, root: Path, *entries: str) -> None:
    """The shipped segmentation_3d for this device."""
    model, folder = check.bundle / "models" / "segmentation_3d", root / "segmentation_3d"
    (folder / "1").mkdir(parents=True)
    shutil.copy(model / "1" / "model.pt", folder / "1")
    config = (model / "configs" / "gpu.pbtxt" if check.gpu else model / "config.pbtxt").read_text()
    for old, new in {
        "kind: KIND_GPU" if check.gpu else "kind: KIND_CPU": kind(check.gpu),
        "224, 224, 224": ", ".join(map(str, sizes(check).grid)),
    }.items():
        if old not in config:
            raise RuntimeError(f"the shipped configuration of segmentation_3d has no '{old}'")
        config = config.replace(old, new)
    (folder / "config.pbtxt").write_text("\n".join([config, *entries]))


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


class Served(NamedTuple):
    latency: Run
    scores: np.ndarray
    """Of the network, asked by itself."""


def serve(check: Check, repository: Path, name: str, *libraries: Path) -> Served:
    size = sizes(check)
    spleen(check.bundle, repository, check.gpu, size.grid)
    x = np.random.default_rng(5).random((1, 1, *size.grid), np.float32)
    with Server(check, repository, name, *pool_options(check), libraries=libraries) as server:
        arrays, _ = server.infer(NETWORK, x, {"OUTPUT__0": None}, tensor="INPUT__0")
        region = next(iter(memories(check).values()))
        run = measure(server, "spleen_seg", volume(size.volume), size.grid_voxels * 4, region, 8 if check.gpu else 1)
    return Served(run, arrays["OUTPUT__0"])
