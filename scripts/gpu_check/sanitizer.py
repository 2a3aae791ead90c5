"""A few of the kernels' cases under NVIDIA's compute-sanitizer, where there is one."""

from __future__ import annotations

import glob
import os
import shutil

from .check import Check
from .executable import kernel_check
from .report import Skip

TOOLS = ("memcheck", "racecheck", "synccheck")
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*", "/opt/nvidia/*/bin", "/opt/nvidia/*/compute-sanitizer")
FOUND_SOMETHING = 9
# Of each tool, and what it may spend on volumes that are only like real ones.
SECONDS, LIKE_REAL = 32, 8


def run(check: Check) -> None:
    program = find()
    if not program:
        raise Skip("compute-sanitizer")
    wrong, ran = [], []
    for tool in TOOLS:
        check.say(f"{tool}:")
        # A case that gives something else is the first part's to tell, but may come of what the tool finds.
        command = [program, "--tool", tool, "--error-exitcode", str(FOUND_SOMETHING)]
        code, lines = kernel_check(check, "--small", "--seconds", str(LIKE_REAL), under=command, seconds=SECONDS)
        if not any("SUMMARY" in line for line in lines):
            check.say(f"{tool} was not done within {SECONDS} s, or did not run: code {code}")
            continue
        ran.append(tool)
        if code:
            wrong.append(f"{tool}: code {code}: {next(line for line in reversed(lines) if 'SUMMARY' in line)}")
    check.fail_if(wrong, "sanitizer")
    if not ran:
        raise Skip(f"a compute-sanitizer that runs with this driver and GPU ({program} does not)")


def find() -> str | None:
    folders = [folder for pattern in PLACES for folder in sorted(glob.glob(pattern), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
    return shutil.which("compute-sanitizer", path=path)
