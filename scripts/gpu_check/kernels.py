"""How long each step and each kernel takes on the GPU, beside the step's floor: the bytes that it has to move, at the bandwidth of a copy."""

from __future__ import annotations

from .check import Check
from .executable import run as run_executable


def run(check: Check) -> None:
    run_executable(check, "--times")
