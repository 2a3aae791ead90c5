"""What a server process holds of the machine beside what its clients and models have: memory, threads, descriptors, mappings."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from leaks import GRPC, descriptors, threads


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


def holdings(pid: int) -> Holdings:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mapped = [fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6]
    return Holdings(
        anonymous_bytes=anonymous_bytes(pid),
        threads={name: count for name, count in threads(pid).items() if not GRPC.search(name)},
        descriptors=dict(descriptors(pid)),
        library_mappings=sum("libtriton_spleenseg.so" in path for path in mapped),
        shared_memory=tuple(sorted({path for path in mapped if path.startswith("/dev/shm/")})),
    )
