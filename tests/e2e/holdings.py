"""What a server process holds of the machine, from /proc: memory, threads, file descriptors, mappings."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

# Threads that gRPC starts and ends as it sees fit.
GRPC = re.compile(r"grpc|event_engine|resolver|timer|default-executo")


@dataclass(frozen=True)
class Holdings:
    anonymous_bytes: int
    threads: dict[str, int]
    descriptors: dict[str, int]
    # Segments of libtriton_spleenseg.so, and regions of shared memory, that are mapped.
    library_mappings: int
    shared_memory: tuple[str, ...]

    def but_memory(self) -> dict:
        """All that has to be again what it was; memory has a measure of its own."""
        return {key: value for key, value in asdict(self).items() if key != "anonymous_bytes"}


def anonymous_bytes(pid: int) -> int:
    """RssAnon: memory that is the process's own, without mapped files and shared memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE).group(1)) * 1024


def names(paths, read) -> dict[str, int]:
    """How often each name occurs; what ends while it is looked at is left out."""
    found: Counter[str] = Counter()
    for path in paths:
        try:
            found[read(path)] += 1
        except OSError:
            continue
    return dict(sorted(found.items()))


def holdings(pid: int) -> Holdings:
    process = Path(f"/proc/{pid}")
    mapped = [fields[5] for line in (process / "maps").read_text().splitlines() if len(fields := line.split(maxsplit=5)) == 6]
    return Holdings(
        anonymous_bytes=anonymous_bytes(pid),
        threads={name: n for name, n in names(process.glob("task/*/comm"), lambda path: path.read_text().strip()).items() if not GRPC.search(name)},
        # Numbers in names tell one socket or stub's region from the next.
        descriptors=names(process.glob("fd/*"), lambda path: re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+", "N", os.readlink(path))),
        library_mappings=sum("libtriton_spleenseg.so" in path for path in mapped),
        shared_memory=tuple(sorted({path for path in mapped if path.startswith("/dev/shm/")})),
    )
