"""segmentation_3d in this project's own pytorch backend, where this machine's PyTorch is the one that it was built for."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .check import Check
from .latency import Run, measure, memories, sizes, volume
from .needs import dotted, glibc
from .report import Skip
from .repositories import kind, network, spleen
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

    model = check.bundle / "models" / "segmentation_3d"
    own, other = check.work / "own", check.work / "other"
    (own / "segmentation_3d" / "1").mkdir(parents=True)
    shutil.copy(model / "1" / "model.pt", own / "segmentation_3d" / "1")
    config = (model / "config.pbtxt").read_text().replace("KIND_CPU", kind(check.gpu))
    size = sizes(check)
    config = config.replace("224, 224, 224", ", ".join(map(str, size.grid)))
    (own / "segmentation_3d" / "config.pbtxt").write_text(config)
    network(other, check.gpu, module=model / "1" / "model.pt")
    runs = {"torchscript_backend": serve(check, own, "torchscript", libtorch), "Python backend": serve(check, other, "torchscript_python")}
    for title, found_run in runs.items():
        check.say(f"segmentation_3d in the {title}: {found_run.spread()} ms a request over {next(iter(memories(check)))}")
    masks = [np.frombuffer(found_run.masks, np.float32) for found_run in runs.values()]
    differ = int((masks[0] != masks[1]).sum())
    check.say(f"masks: {differ:,} of {masks[0].size:,} voxels differ, {int(masks[0].sum()):,} are set")
    if differ > MOST_DIFFER * masks[0].size:
        raise AssertionError(f"the two backends' masks differ in {differ:,} of {masks[0].size:,} voxels")


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def serve(check: Check, repository: Path, name: str, *libraries: Path) -> Run:
    size = sizes(check)
    spleen(check.bundle, repository, check.gpu, size.grid)
    with Server(check, repository, name, libraries=libraries) as server:
        region = next(iter(memories(check).values()))
        return measure(server, "spleen_seg", volume(size.volume), size.grid_voxels * 4, region, 8 if check.gpu else 1)
