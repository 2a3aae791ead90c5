"""What a machine has to have, and what is missing on this one. Nothing but the standard library is needed to say so."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from .driver import gpus, sharing_refused

TRITON_NEEDS_GLIBC = (2, 35)
LOADER = "/lib64/ld-linux-x86-64.so.2"
# scripts/lib/release.sh builds kernel_check for it.
EXECUTABLE_NEEDS_GLIBC = (2, 31)
# Its first import reads gigabytes.
TORCH_S = 100
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if name == "glibc" and version else (0,)


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version)) if version != (0,) else "none"


def of_python() -> str:
    """The folder of this Python's library, where the loader has to be told. It is looked for where the build put it and beside the Python
    itself, since one can be moved: those of uv may name a folder of the machine that they were built on. A folder of the system's
    is not told, since then it would go before PyTorch's own libraries."""
    for folder in (sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")):
        if folder and not folder.startswith(("/usr/lib", "/lib")) and any(Path(folder).glob(f"libpython{PYTHON}.so.*")):
            return folder
    return ""


def library_path(bundle: Path, *more: Path) -> str:
    """Where stock Triton and its Python backend find their libraries: the stub of the latter embeds this Python."""
    found = [bundle / "triton" / "lib", *more, of_python(), os.environ.get("LD_LIBRARY_PATH", "")]
    return os.pathsep.join(filter(None, map(str, found)))


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
        # The loader itself says what it does not find.
        stub = stubs / PYTHON / "triton_python_backend_stub"
        environment = {**os.environ, "LD_LIBRARY_PATH": library_path(self.bundle)}
        loaded = subprocess.run([LOADER, "--list", str(stub)], env=environment, capture_output=True, text=True, timeout=30, check=False)
        absent = re.findall(r"(\S+): cannot open shared object file", loaded.stderr) + re.findall(r"(\S+) => not found", loaded.stdout)
        if absent and absent[0].startswith("libpython"):
            own = f"Debian, Ubuntu: apt-get install libpython{PYTHON}"
            other = f"the Python in {sys.base_prefix} was built without it; a system's serves too"
            return f"{absent[0]}, for Triton's Python backend ({own if sys.base_prefix == '/usr' else other})"
        if absent or loaded.returncode:
            return f"what Triton's Python backend loads: {', '.join(absent) or loaded.stderr.strip()}"
        return ""

    def _module(self, name: str) -> str:
        return "" if importlib.util.find_spec(name) else f"the Python module {name}"

    def _numpy(self) -> str:
        return self._module("numpy")

    def _torch(self) -> str:
        return self._module("torch")

    def _gpu(self) -> str:
        return gpus()[1]

    @functools.cache  # noqa: B019: there is one machine
    def _cuda_torch(self) -> str:
        """A PyTorch that uses the GPU, where there are both."""
        if self._torch() or self._gpu():
            return ""
        # In a process of its own, since there is no end to the ways in which loading it can go wrong.
        command = [sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, check=False)
        except subprocess.TimeoutExpired:
            return f"a PyTorch that looks for the GPU within {TORCH_S} s"
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
            return f"a PyTorch that can be imported (here: {said})"
        *_, version, sees_it = done.stdout.split()
        return "" if sees_it == "True" else f"a PyTorch with CUDA for this driver (PyTorch {version} sees no GPU)"

    def _shared_gpu_memory(self) -> str:
        return "" if self._gpu() else sharing_refused()
