"""What a machine has to have, and what is missing on this one. Nothing but the standard library is needed to say so."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
import sys
import sysconfig
from pathlib import Path

TRITON_NEEDS_GLIBC = (2, 35)
# scripts/lib/release.sh builds kernel_check for it.
EXECUTABLE_NEEDS_GLIBC = (2, 31)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if name == "glibc" and version else (0,)


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version)) if version != (0,) else "none"


@functools.cache
def gpus() -> tuple[int, str]:
    """How many the driver has, and why there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "an NVIDIA GPU (libcuda.so.1, its driver, cannot be loaded)"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or not count.value:
        return 0, f"an NVIDIA GPU (the driver gives {f'CUDA error {code}' if code else 'none'})"
    return count.value, ""


class Machine:
    def __init__(self, bundle: Path):
        self.bundle = bundle

    def missing(self, *wanted: str) -> str:
        """All that is missing of what is wanted, or nothing."""
        return "; ".join(filter(None, (getattr(self, f"_{need}")() for need in wanted)))

    def _system(self, needed: tuple[int, ...], by: str) -> str:
        if platform.machine() != "x86_64" or glibc() < needed:
            found = f"{platform.machine()} with glibc {dotted(glibc())}"
            return f"x86-64 Linux with glibc {dotted(needed)} or newer, which {by} needs (found {found})"
        return ""

    def _triton(self) -> str:
        return self._system(TRITON_NEEDS_GLIBC, "stock Triton")

    def _executable(self) -> str:
        return self._system(EXECUTABLE_NEEDS_GLIBC, "kernel_check")

    def _stub(self) -> str:
        """Triton's Python backend embeds this Python: a stub for its version, and its library."""
        stubs = self.bundle / "triton" / "python_backend_stubs"
        if not (stubs / PYTHON / "triton_python_backend_stub").exists():
            have = sorted((path.name for path in stubs.iterdir()), key=lambda version: int(version.split(".")[1]))
            return f"a Python that Triton's Python backend has a stub for: {', '.join(have)} (found {PYTHON})"
        library = f"libpython{PYTHON}.so.1.0"
        folder = sysconfig.get_config_var("LIBDIR")
        if folder and (Path(folder) / library).exists():
            return ""
        try:
            ctypes.CDLL(library)
        except OSError:
            return f"{library} (Debian, Ubuntu: apt-get install libpython{PYTHON})"
        return ""

    def _module(self, name: str) -> str:
        return "" if importlib.util.find_spec(name) else f"the Python module {name}"

    def _numpy(self) -> str:
        return self._module("numpy")

    def _torch(self) -> str:
        return self._module("torch")

    def _monai(self) -> str:
        return self._module("monai")

    def _gpu(self) -> str:
        return gpus()[1]

    @functools.cache  # noqa: B019: there is one machine
    def _cuda_torch(self) -> str:
        """A PyTorch that uses the GPU, where there are both."""
        if self._torch() or self._gpu():
            return ""
        import torch

        return "" if torch.cuda.is_available() else f"a PyTorch with CUDA for this driver (PyTorch {torch.__version__} sees no GPU)"
