"""The tutorial's tables: this backend against the Python backend with MONAI, both with the same network on the same device."""

from __future__ import annotations

import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .check import BUILT_IN, PYTHON, Check
from .driver import memory_in_use
from .latency import FULL, Run, measure, memories, sizes, table, volume
from .regions import CudaRegion, room
from .report import Skip
from .repositories import network, spleen
from .server import Server

# As the Python backend's documentation asks for with large tensors.
SHM_DEFAULT, SHM_GROWTH = 1 << 29, 1 << 28
# Triton's own 64 MiB hold no scores of 90 MB: the Python backend would allocate, share and free them in each request.
GPU_POOL = 1 << 29
# Two models of the Python backend, and the client's regions.
NEEDS_SHM = 2 * SHM_DEFAULT + SHM_GROWTH
THEIRS, OURS = "Python backend, MONAI", "this backend"
STACKS = {THEIRS: "python", OURS: "spleenseg"}


def run(check: Check) -> None:
    lacking, ways = [check.no_python] if check.no_python else [], memories(check)
    if not has_room():
        # What lies on the GPU needs no room there.
        ways = {way: kind for way, kind in ways.items() if kind is CudaRegion}
        short = f"{NEEDS_SHM >> 20} MiB of /dev/shm, for the Python backend ({room() >> 20} MiB are free; in a container: --shm-size)"
        if ways:
            check.say(f"the Python backend over {', '.join(ways)} alone, for want of {short}")
        else:
            lacking.append(short)
    unet = None
    if check.no_python:
        check.say("the network is the built-in one, which computes on the host")
    else:
        try:
            unet = random_unet(check.work)
        except Exception as error:  # noqa: BLE001: the versions of MONAI, PyTorch and NumPy are whatever this machine has
            unet = check.bundle / "models" / "segmentation_3d" / "1" / "model.pt"
            check.say("the network is the demonstration's: the tutorial's UNet is MONAI's")
            lacking.append(f"a MONAI that works here ({error})")
    if not (find_spec("skimage") or (check.gpu and find_spec("cucim") and find_spec("cupy"))):
        lacking.append("the Python module skimage, or cucim and cupy, with which MONAI finds components")
    # This backend first: its figures are there whatever becomes of the other's.
    wrong: list[str] = []
    ours = stack(check, OURS, unet, memories(check), wrong)
    if not lacking:
        tell(check, stack(check, THEIRS, unet, ways, wrong), ours)
    check.fail_if(wrong, "benchmark")
    if lacking:
        raise Skip(f"{'; '.join(lacking)}. This backend was measured alone")


def tell(check: Check, theirs: dict[str, Run], ours: dict[str, Run]) -> None:
    """The tables, by how requests came."""
    ways = [way for way in ours if way in theirs]
    if not ways:
        return
    shape = "x".join(map(str, sizes(check).volume[1:]))
    check.say(f"latency of a request, {shape} FP32, the tutorial's UNet with random weights; ms: median (smallest..largest)")
    rows = [
        [way, other.spread(), mine.spread(), f"{other.median() / mine.median():.2f}", f"{len(mine.milliseconds)}"]
        for way, mine, other in ((way, ours[way], theirs[way]) for way in ways)
    ]
    check.say(table(["over", *STACKS, "times faster", "requests"], rows))
    for way in ways:
        check.say(f"\nwhere the time goes, {way}; ms a request, as Triton counts")
        parts = [[name, *(f"{runs[way].server[name]:,.1f}" for runs in (theirs, ours))] for name in ours[way].server]
        check.say(table(["", *STACKS], parts))
    for way in ways:
        mine, other = (np.frombuffer(runs[way].masks, np.float32) for runs in (ours, theirs))
        check.say(f"masks over {way}: {int((mine != other).sum()):,} of {mine.size:,} voxels differ, {int(mine.sum()):,} are set")
        # On the CPU the steps are equal to the bit. On a GPU MONAI's own rounding moves scores, and random weights have many near ties.
        if not check.gpu and (mine != other).any():
            raise AssertionError(f"over {way} the two backends give other masks")


def has_room() -> bool:
    return room() >= NEEDS_SHM


def pool_options(check: Check) -> list[str]:
    return [f"--cuda-memory-pool-byte-size=0:{GPU_POOL}"] if check.gpu else []


def python_options(unet: Path | None) -> list[str]:
    if not unet:
        return []
    shared = {"shm-default-byte-size": SHM_DEFAULT, "shm-growth-byte-size": SHM_GROWTH} if has_room() else {}
    return [f"--backend-config=python,{key}={value}" for key, value in {"stub-timeout-seconds": 120, **shared}.items()]


def random_unet(folder: Path) -> Path:
    """The tutorial's UNet with random weights, made here by this machine's MONAI and PyTorch."""
    import torch
    from monai.networks.nets import UNet

    torch.manual_seed(0)
    unet = UNet(
        spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64, 128, 256), strides=(2, 2, 2, 2), num_res_units=2, norm="batch"
    )
    path = folder / "unet.pt"
    with torch.inference_mode():
        torch.jit.trace(unet.eval(), torch.zeros(1, 1, 64, 64, 64), check_trace=False).save(str(path))
    return path


def stack(check: Check, title: str, unet: Path | None, ways: dict, wrong: list[str]) -> dict[str, Run]:
    """The figures by how requests came, with this network in the Python backend or, without one, the built-in one. A way that fails is added to `wrong`, and the others are measured."""
    size, backend = sizes(check), STACKS[title]
    repository = check.work / backend
    network(repository, check.gpu, backend=PYTHON if unet else BUILT_IN, module=unet)
    folder = spleen(check.bundle, repository, check.gpu, size.grid, {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"}, backend=backend)
    if backend == "python":
        shutil.copy(check.bundle / "benches" / "python_backend" / "spleen_seg" / "1" / "model.py", folder)
        monai = Path(find_spec("monai").origin).parent
        if monai.parent == check.bundle / "python":
            # The Python backend reads no PYTHONPATH, but finds what lies beside a model.
            (folder / "monai").symlink_to(monai)
    image, before = volume(size.volume), gpu_memory(check)
    seconds = 12 if size is FULL else 1
    with Server(check, repository, f"benchmark_{backend}", *pool_options(check), *python_options(unet)) as server:
        runs = {}
        for way, kind in ways.items():
            try:
                runs[way] = measure(server, "spleen_seg", image, size.grid_voxels * 4, kind, seconds)
            except RuntimeError as error:
                wrong.append(f"{title} over {way}: {error}")
                continue
            check.say(f"{title} over {way}: {runs[way].spread()} ms")
        used = f", {(gpu_memory(check) - before) >> 20:,} MiB of GPU memory, {GPU_POOL >> 20} of them the server's pool" if check.gpu else ""
        check.say(f"{title}: server and both models ready in {server.ready_s:.1f} s{used}")
    wait_until_free(check, before)
    return runs


def gpu_memory(check: Check) -> int:
    return memory_in_use() if check.gpu else 0


def wait_until_free(check: Check, before: int) -> None:
    """The memory of a server that has ended comes back a little later."""
    until = time.monotonic() + 5
    while gpu_memory(check) > before + (1 << 26) and time.monotonic() < until:
        time.sleep(0.2)
