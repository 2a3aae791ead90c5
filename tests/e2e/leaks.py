"""What a server holds: threads, file descriptors, processes, models, requests. Tests of faults compare it with what was held before."""

from __future__ import annotations

import gc
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

# Threads that gRPC starts and ends as it sees fit.
GRPC = re.compile(r"grpc|event_engine|resolver|timer|default-executo", re.IGNORECASE)


def wait_for(what: Callable[[], bool], within_s: float = 120, why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, f"it did not come to pass in {within_s} s. {why()}"
        time.sleep(0.02)


def threads(pid: int) -> Counter:
    """How many threads there are of each name, but for gRPC's; one that has just ended is not there."""
    names = Counter()
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names[path.read_text().strip()] += 1
        except (FileNotFoundError, ProcessLookupError):
            pass
    return Counter({name: count for name, count in names.items() if not GRPC.search(name)})


def at_rest(pid: int) -> bool:
    """Whether none of its threads runs or could."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = path.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state in "RD":
            return False
    return True


def descriptors(pid: int) -> Counter:
    """How many file descriptors there are of each kind: a path, socket, pipe or anonymous thing."""
    kinds = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            kinds[re.sub(r":\[\d+\]$", "", str(path.readlink()))] += 1
        except FileNotFoundError:
            pass
    return kinds


def children(pid: int) -> int:
    return sum(len(path.read_text().split()) for path in Path(f"/proc/{pid}/task").glob("*/children"))


def loaded(server) -> set[str]:
    """Models that are there, or on their way here or away."""
    with_states = server.http().get_model_repository_index()
    return {entry["name"] for entry in with_states if entry.get("state", "UNAVAILABLE") != "UNAVAILABLE" or entry.get("reason") == "unloading"}


def waiting(server) -> float:
    """Requests in the queues of all models."""
    return sum(float(value) for value in re.findall(r"^nv_inference_pending_request_count{.*} (\S+)", server.metrics(), re.MULTILINE))


class Held:
    """What a server holds now; `assert_back` says what has not been given back since."""

    def __init__(self, server):
        self.server, self.pid, self.clients = server, server.process.pid, len(server.clients)
        self.models = loaded(server)
        self.server.close_clients(self.clients)
        self.before = self.now()

    def now(self) -> dict[str, Counter]:
        return {"threads": threads(self.pid), "descriptors": descriptors(self.pid), "processes": Counter(stubs=children(self.pid))}

    def more(self) -> dict[str, Counter]:
        return {kind: more for kind, held in self.now().items() if (more := held - self.before[kind])}

    def assert_back(self) -> None:
        wait_for(lambda: loaded(self.server) <= self.models, why=lambda: f"still loaded: {loaded(self.server) - self.models}")
        wait_for(lambda: waiting(self.server) == 0, why=lambda: f"{waiting(self.server)} requests wait")
        self.server.close_clients(self.clients)
        gc.collect()  # a gRPC channel of asyncio keeps its connection until Python collects it
        wait_for(lambda: not self.more(), why=lambda: f"held since then: {self.more()}")
