"""The driver's library, libcuda: where it is, what it counts, and its calls in the primary context of GPU 0."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from pathlib import Path

NAME = "libcuda.so.1"
# Where containers and WSL have it, in case the loader has not been told.
FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")


@functools.cache
def library() -> ctypes.CDLL:
    """OSError where there is none."""
    try:
        return ctypes.CDLL(NAME)
    except OSError:
        for folder in FOLDERS:
            if (path := Path(folder) / NAME).exists():
                return ctypes.CDLL(str(path))
        raise


class _Place(ctypes.Structure):
    """Dl_info."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def path() -> Path | None:
    """The file that the loader took."""
    place = _Place()
    if not ctypes.CDLL(None).dladdr(ctypes.cast(library().cuInit, ctypes.c_void_p), ctypes.byref(place)):
        return None
    return Path(os.fsdecode(place.file)).absolute()


def provide(folder: Path) -> None:
    """Lets every process that is started from now on find the driver: stock Triton looks for `libcuda.so`, which a machine without a
    CUDA toolkit often lacks, and other programs for `libcuda.so.1`."""
    file = path()
    if not file:
        return
    folder.mkdir()
    for name in ("libcuda.so", NAME):
        (folder / name).symlink_to(file)
    # Its own companions, such as the compiler of PTX, it finds by name.
    found = [str(folder), os.environ.get("LD_LIBRARY_PATH", ""), str(file.parent) if str(file.parent) in FOLDERS else ""]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, found))


@functools.cache
def gpus() -> tuple[int, str]:
    """How many the driver has, and why there is none."""
    try:
        driver = library()
    except OSError:
        return 0, f"an NVIDIA GPU ({NAME}, its driver, cannot be loaded)"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or not count.value:
        return 0, f"an NVIDIA GPU (the driver gives {f'CUDA error {code}' if code else 'none'})"
    return count.value, ""


def call(name: str, *arguments) -> None:
    """A call in the primary context, which torch uses too."""
    _enter()
    if not (function := getattr(library(), name, None)):
        raise RuntimeError(f"the driver has no {name}")
    check(name, function(*arguments))


def check(name: str, code: int) -> None:
    if code:
        raise RuntimeError(f"{name} failed with CUDA error {code}")


@functools.cache
def _enter() -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for name, *arguments in (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(device), 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxPushCurrent_v2", context),
    ):
        check(name, getattr(library(), name)(*arguments))


def memory_in_use() -> int:
    """Bytes of GPU 0, by whatever process."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


# What a server does with the handle of a client's memory.
OPEN = """
import ctypes, sys
from gpu_check import driver

class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]

handle, pointer = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), ctypes.c_uint64()
driver.library().cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
try:
    driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, 1)
except RuntimeError as error:
    sys.exit(str(error))
"""


@functools.cache
def sharing_refused() -> str:
    """Why no other process can open memory of GPU 0 here, as CUDA shared memory and the Python backend's tensors on a GPU need: some
    containers refuse it. Nothing of Triton takes part."""
    pointer, handle = ctypes.c_uint64(), (ctypes.c_char * 64)()
    try:
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(1 << 21))
        try:
            call("cuIpcGetMemHandle", handle, pointer)
            told = [sys.executable, "-c", OPEN, bytes(handle).hex()]
            done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
        finally:
            call("cuMemFree_v2", pointer)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"CUDA memory cannot be shared between processes here ({error})"
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return f"CUDA memory cannot be shared between processes here ({said}, in another process)"
    return ""
