"""What a server holds beside what leaks.py looks at: mappings, and memory of its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from leaks import Held


def anonymous_bytes(pid: int) -> int:
    """RssAnon: memory that is the process's own, without mapped files and shared memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE).group(1)) * 1024


def mappings(pid: int) -> Counter:
    """The segments of libtriton_spleenseg.so, whichever file they are of, and of shared memory."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = [fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6]
    names = ("libtriton_spleenseg.so" if "libtriton_spleenseg.so" in path else path for path in paths)
    return Counter(name for name in names if name.startswith(("libtriton_spleenseg.so", "/dev/shm/")))


class HeldAndMapped(Held):
    def now(self) -> dict[str, Counter]:
        return {**super().now(), "mappings": mappings(self.pid)}
