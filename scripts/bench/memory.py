"""Anonymous memory of a server and all the processes that it started, sampled from /proc."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

MB = 1e6


def status_bytes(text: str, field: str) -> int:
    """A field of /proc/PID/status, which counts in kB of 1024 bytes. 0 where it is absent, as for a process that is ending."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def parent_of(stat: str) -> int:
    """The parent in /proc/PID/stat. The command before it stands in parentheses and may hold any character."""
    return int(stat.rpartition(")")[2].split()[1])


def process_tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                children.setdefault(parent_of((folder / "stat").read_text()), []).append(int(folder.name))
            except OSError:
                continue  # it has just ended
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def anonymous_bytes(pids: list[int], proc: Path = Path("/proc")) -> int:
    total = 0
    for pid in pids:
        try:
            total += status_bytes((proc / str(pid) / "status").read_text(), "RssAnon")
        except OSError:
            continue
    return total


def shared_bytes(prefix: str, folder: Path = Path("/dev/shm")) -> int:
    """Memory in use by the shared-memory regions whose names start with prefix: those of the Python backend."""
    total = 0
    for region in folder.glob(f"{prefix}*"):
        try:
            total += region.stat().st_blocks * 512
        except OSError:
            continue
    return total


class Sampler:
    """Watches in a thread. `with Sampler(pid, prefix) as watched: ...; watched.peak_mb`"""

    def __init__(self, pid: int, shm_prefix: str, interval_s: float = 0.02):
        self.pid, self.shm_prefix, self.interval_s = pid, shm_prefix, interval_s
        self.peak = self.shared_peak = 0
        self.pids: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def sample(self) -> int:
        now = anonymous_bytes(self.pids)
        self.peak = max(self.peak, now)
        self.shared_peak = max(self.shared_peak, shared_bytes(self.shm_prefix))
        return now

    def _watch(self) -> None:
        next_scan = 0.0
        while not self._ended.wait(self.interval_s):
            if time.monotonic() > next_scan:
                self.pids = process_tree(self.pid)
                next_scan = time.monotonic() + 0.5
            self.sample()

    def __enter__(self) -> Sampler:
        self.pids = process_tree(self.pid)
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._ended.set()
        self._thread.join()
        self.sample()

    @property
    def peak_mb(self) -> float:
        return self.peak / MB

    @property
    def shared_peak_mb(self) -> float:
        return self.shared_peak / MB
