"""What was measured on, and with what."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from .repositories import ROOT


def first_match(pattern: str, text: str, default: str = "unknown") -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else default


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT).stdout.strip()
    except OSError:
        return ""


def describe() -> dict[str, str]:
    cpu = Path("/proc/cpuinfo").read_text()
    flags = set(first_match(r"^flags\s*:(.*)", cpu, "").split())
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "processor": first_match(r"^model name\s*:(.*)", cpu),
        "cores": str(len(os.sched_getaffinity(0))),
        "vector instructions": ", ".join(f for f in ("avx2", "avx512f", "avx512bw", "avx512vbmi") if f in flags) or "none of AVX2",
        "memory": f"{meminfo_mb('MemTotal') / 1024:.0f} GiB",
        "kernel": platform.release(),
        "this project": output_of("git", "rev-parse", "--short", "HEAD") + (", with local changes" if changed else ""),
        "rustc": first_match(r"rustc (\S+)", output_of("rustc", "--version")),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "monai", "numpy", "scikit-image", "tritonclient")},
    }


def load_average() -> float:
    return os.getloadavg()[0]


def meminfo_mb(field: str) -> float:
    return int(first_match(rf"^{field}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), "0")) / 1024


def available_mb() -> float:
    return meminfo_mb("MemAvailable")
