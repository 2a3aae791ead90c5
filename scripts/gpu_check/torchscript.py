"""segmentation_3d in this project's own pytorch backend, where this machine's PyTorch is the one that it was built for."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .check import Check
from .latency import Run, measure, memories, sizes, table, volume
from .needs import dotted, glibc
from .report import Skip
from .repositories import kind, network, parameter, spleen
from .server import Server

# Of the voxels of two masks from the same weights: convolutions are rounded in another order by another library's choice of kernel.
MOST_DIFFER = 1e-3


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
    network(other, check.gpu, module=model)
    runs = {
        "torchscript_backend": serve(check, own, "torchscript", libtorch),
        f"torchscript_backend, AUTOCAST {half}": serve(check, halved, "torchscript_autocast", libtorch),
        "Python backend": serve(check, other, "torchscript_python"),
    }
    masks = {title: np.frombuffer(found.masks, np.float32) for title, found in runs.items()}
    ours, _, reference = masks.values()
    rows = [[title, found.spread(), f"{int((masks[title] != reference).sum()):,}"] for title, found in runs.items()]
    way = next(iter(memories(check)))
    check.say(f"the demonstration network over {way}: {int(reference.sum()):,} of {reference.size:,} voxels in the mask")
    check.say(table(["segmentation_3d in", "ms a request", "voxels that differ"], rows))
    differ = int((ours != reference).sum())
    if differ > MOST_DIFFER * reference.size:
        raise AssertionError(f"the masks of the two backends differ in {differ:,} of {reference.size:,} voxels")


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


def serve(check: Check, repository: Path, name: str, *libraries: Path) -> Run:
    size = sizes(check)
    spleen(check.bundle, repository, check.gpu, size.grid)
    with Server(check, repository, name, libraries=libraries) as server:
        region = next(iter(memories(check).values()))
        return measure(server, "spleen_seg", volume(size.volume), size.grid_voxels * 4, region, 8 if check.gpu else 1)
