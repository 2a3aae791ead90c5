"""The kernels against the steps on the CPU, of machine code and of PTX: no Triton, no PyTorch, no Python module."""

from __future__ import annotations

import time

from .check import Check
from .executable import run as run_executable

SECONDS = 40


def run(check: Check) -> None:
    run_executable(check, "--seed", str(int(time.time())), "--seconds", str(SECONDS))
