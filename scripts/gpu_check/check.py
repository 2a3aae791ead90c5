"""What every part gets."""

from __future__ import annotations

import ctypes
import signal
from dataclasses import dataclass
from pathlib import Path

from .report import Report

# threshold_backend, which needs nothing; and Triton's Python backend on this machine's PyTorch.
BUILT_IN, PYTHON = "threshold", "python"
SERVES_NONE = "a Python backend of Triton that serves a network of three lines (here: {})"
TITLES = {BUILT_IN: "built in", PYTHON: "in the Python backend"}

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For a child process: it ends with the check, even where the check is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Check:
    bundle: Path
    work: Path
    """An empty folder that goes afterwards."""
    backends: Path
    report: Report
    gpu: bool
    """Whether the GPU is what is checked; otherwise the check itself is, on the CPU."""
    networks: tuple[str, ...] = (BUILT_IN,)
    """The backends that segmentation_3d can be in here: `BUILT_IN`, and `PYTHON` where that works."""
    no_python: str = ""
    """Why it cannot be in the Python backend."""

    def say(self, text: str) -> None:
        self.report.say(text)

    def fail_if(self, wrong: list[str], name: str) -> None:
        """The first few in the report, all of them in a file."""
        if wrong:
            (self.report.folder / f"{name}.wrong.txt").write_text("\n".join(wrong) + "\n")
            raise AssertionError("; ".join(wrong[:5]) + (f"; {len(wrong) - 5} more in {name}.wrong.txt" if len(wrong) > 5 else ""))

    def log(self, name: str) -> Path:
        return self.report.folder / f"{name}.log"
