"""All parts, in the order of what matters most."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .check import BUILT_IN, PYTHON, SERVES_NONE, Check
from .driver import gpus, provide
from .needs import Machine
from .report import OutOfTime, Report, Skip

# Of the ten minutes; the rest is for stopping what runs, and for a machine that takes its time.
SECONDS = 520
# Of a part on a GPU, for whether the Python backend works here.
PYTHON_S = 60


class Part(NamedTuple):
    title: str
    needs: tuple[str, ...]
    needs_s: float
    most_s: float
    """It fails where it takes longer, so that one that hangs leaves time for the others."""
    of_gpu: bool = True
    """Whether it says something of the GPU."""
    python: bool = False
    """Whether it is nothing without a network in the Python backend."""


SERVER = ("triton", "numpy")
GPU = (*SERVER, "gpu")
ALONE = ("executable", "gpu")
# What a network in the Python backend needs; on a GPU its tensors are shared between Triton and the process that it runs in.
PYTHON_NEEDS = ("stub", "torch")
PYTHON_NEEDS_GPU = (*PYTHON_NEEDS, "cuda_torch", "shared_gpu_memory")
# By module: each has a function `run`.
PARTS = {
    "steps": Part("kernels against the steps on the CPU", ALONE, 60, 90),
    "kernels": Part("kernel times", ALONE, 15, 60),
    "parity": Part("parity with MONAI on the GPU", GPU, 60, 150),
    "placement": Part("placement matrix", GPU, 60, 120),
    "benchmark": Part("benchmark against the Python backend", GPU, 120, 200),
    "sanitizer": Part("kernels under compute-sanitizer", ALONE, 50, 110),
    "torchscript": Part("torchscript_backend", GPU, 60, 120, python=True),
    "parity_cpu": Part("parity with MONAI on the CPU", SERVER, 40, 100, of_gpu=False),
}
# The check itself can be tried without a GPU: the same parts, on the CPU. Those of the kernels need a driver, if only an emulated one.
ON_CPU = {
    "steps": Part("kernels against the steps on the CPU, few", ALONE, 0, SECONDS),
    "kernels": Part("kernel times, small volumes", ALONE, 0, SECONDS),
    "parity": Part("parity with MONAI on the CPU", SERVER, 0, SECONDS),
    "placement": Part("placement matrix, CPU alone", SERVER, 0, SECONDS),
    "benchmark": Part("benchmark against the Python backend, on the CPU", SERVER, 0, SECONDS),
    "sanitizer": Part("kernels under compute-sanitizer", ALONE, 0, SECONDS),
    "torchscript": Part("torchscript_backend on the CPU", SERVER, 0, SECONDS, python=True),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="gpu_check.sh")
    options.add_argument("--bundle", type=Path, required=True, help=argparse.SUPPRESS)
    options.add_argument("output_folder", type=Path, nargs="?", default=Path("gpu_check_results"))
    options.add_argument("--parts", help=f"some of: {','.join(PARTS)} (default: all)")
    options.add_argument("--cpu", action="store_true", help="try the check itself, on the CPU: no GPU is needed, and none checked")
    given = options.parse_args()
    every = ON_CPU if given.cpu else PARTS
    wanted = given.parts.split(",") if given.parts else list(every)
    if unknown := [name for name in wanted if name not in every]:
        options.error(f"no such part: {', '.join(unknown)}; there are: {', '.join(every)}")

    report = Report(given.output_folder.resolve(), SECONDS)
    watch(report)
    bundle = given.bundle.resolve()
    # Not in /tmp, from which a machine may load no libraries.
    work = Path(tempfile.mkdtemp(prefix="work_", dir=report.folder))
    # Otherwise Triton opens every GPU of the machine, at each start.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    try:
        run_parts({name: every[name] for name in wanted}, bundle, work, report, gpu=not given.cpu)
    except OutOfTime:
        for name in wanted:
            report.outcomes.setdefault(every[name].title, "skipped: time, the 10 minutes were over")
    finally:
        signal.alarm(0)
        shutil.rmtree(work, ignore_errors=True)
    return report.finish({every[name].title for name in wanted if every[name].of_gpu})


class TooLong(BaseException):
    """A part has had its time. No Exception, for the reason of OutOfTime."""


def watch(report: Report) -> None:
    """Interrupts what is done when the report's time is over, or the time of `within`."""

    def out_of_time(*_signal) -> None:
        raise OutOfTime

    def alarm(*_signal) -> None:
        raise TooLong if report.left() > 1 else OutOfTime

    signal.signal(signal.SIGTERM, out_of_time)
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, report.left())


@contextmanager
def within(seconds: float, report: Report):
    """Ends what is done in it with a TimeoutError after that long."""
    signal.setitimer(signal.ITIMER_REAL, max(min(seconds, report.left()), 0.01))
    try:
        yield
    except TooLong:
        raise TimeoutError(f"not done within {seconds:.0f} s") from None
    finally:
        # In the last second nothing more is interrupted: what follows is the end of the report.
        left = report.left()
        signal.setitimer(signal.ITIMER_REAL, left if left > 1 else 0)


def run_parts(parts: dict[str, Part], bundle: Path, work: Path, report: Report, gpu: bool) -> None:
    machine = Machine(bundle)
    own_monai = importlib.util.find_spec("monai")
    if not own_monai:
        # Last, so that nothing of the machine's is hidden.
        sys.path.append(str(bundle / "python"))
    describe(bundle, report)
    if not own_monai:
        report.say("monai is the bundle's")
    backends = work / "backends"
    for name in ("spleenseg", "threshold"):
        shutil.copytree(bundle / "backends" / name, backends / name)
    if gpus()[0]:
        provide(work / "driver")
    if not machine.missing("stub"):
        install_python_backend(bundle, backends)

    @functools.cache
    def no_python(gpu: bool) -> str:
        """Why no network in the Python backend works here."""
        if missing := machine.missing(*(PYTHON_NEEDS_GPU if gpu else PYTHON_NEEDS)):
            return missing
        folder = work / f"python_{'gpu' if gpu else 'cpu'}"
        folder.mkdir()
        try:
            with within(PYTHON_S if gpu else SECONDS, report):
                return importlib.import_module("gpu_check.python_network").refused(Check(bundle, folder, backends, report, gpu))
        except TimeoutError as error:
            return SERVES_NONE.format(error)

    def run(name: str, part: Part) -> str | None:
        if missing := machine.missing(*part.needs):
            raise Skip(missing)
        on_gpu, lacking = gpu and not name.endswith("_cpu"), ""
        if "triton" in part.needs and (lacking := no_python(on_gpu)):
            if part.python:
                raise Skip(lacking)
            report.say(f"network: built in alone. Missing for one in the Python backend: {lacking}")
        module = importlib.import_module(f"gpu_check.{name.removesuffix('_cpu')}")
        folder = work / name
        folder.mkdir()
        with within(part.most_s, report):
            networks = (BUILT_IN,) if lacking else (BUILT_IN, PYTHON)
            return module.run(Check(bundle, folder, backends, report, on_gpu, networks, lacking))

    for name, part in parts.items():
        report.part(part.title, lambda name=name, part=part: run(name, part), part.needs_s)


def install_python_backend(bundle: Path, backends: Path) -> None:
    """Triton's Python backend with the stub for this Python."""
    stubs = bundle / "triton" / "python_backend_stubs"
    target = backends / "python"
    shutil.copytree(bundle / "triton" / "backends" / "python", target)
    shutil.copy(stubs / f"{sys.version_info.major}.{sys.version_info.minor}" / "triton_python_backend_stub", target)
    (target / "triton_python_backend_stub").chmod(0o755)


def describe(bundle: Path, report: Report) -> None:
    report.say(f"bundle: {(bundle / 'MADE_FROM').read_text().strip()}")
    report.say(f"system: {platform.platform()}, Python {platform.python_version()} ({sys.executable})")
    for name in ("numpy", "torch", "monai", "cupy", "cucim"):
        report.say(f"{name}: {version_of(name)}")
    if not gpus()[0]:
        report.say("GPU: none")
        return
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        found = [f"{gpus()[0]}; nvidia-smi does not say which"]
    for line in found:
        report.say(f"GPU: {line}")


def version_of(name: str) -> str:
    """As pip has it; packages for one CUDA version have names of their own, such as cupy-cuda12x."""
    from importlib.metadata import distributions

    for distribution in distributions():
        found = (distribution.metadata["Name"] or "").lower()
        if found == name or found.startswith((f"{name}-cu", f"{name}_cu")):
            return distribution.version
    return "none"


if __name__ == "__main__":
    sys.exit(main())
