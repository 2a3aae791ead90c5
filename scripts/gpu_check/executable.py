"""kernel_check, which needs the GPU's driver and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence

from .check import Check, die_with_parent


def kernel_check(check: Check, *options: str, under: Sequence[str] = (), seconds: float | None = None) -> tuple[int, list[str]]:
    """Its exit code and its lines, which the report has as they come. `under` is a command that it is started by; after `seconds` it
    is killed."""
    command = [*under, str(check.bundle / "kernel_check"), *options]
    # What the driver makes of the PTX is otherwise kept in the user's home.
    environment = {**os.environ, "CUDA_CACHE_DISABLE": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )

    def kill() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill) if seconds else None
    if timer:
        timer.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            check.say(lines[-1])
        return process.wait(), lines
    finally:
        if timer:
            timer.cancel()
        kill()
        process.wait()
        process.stdout.close()


def run(check: Check, *options: str) -> None:
    """Fails where it does, with its own words."""
    code, lines = kernel_check(check, *options, *([] if check.gpu else ["--small"]))
    if code:
        wrong = [line for line in lines if line.startswith("WRONG: ")]
        last = lines[-1] if lines else "it said nothing"
        raise AssertionError(f"kernel_check ended with code {code}: {last}" + (f". The first: {wrong[0]}" if wrong else ""))
