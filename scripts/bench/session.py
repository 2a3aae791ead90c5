"""A run of the benchmark: its servers, its results, and what it tells while it works."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from . import perf, repositories, statistics
from .completions import AfterFirst, Completions
from .perf import Load
from .repositories import NETWORK, SPLEEN, Stack
from .server import Server, e2e
from .settings import Settings


class Session:
    """`with Session(...) as session:` stops every server at the end, whatever happened."""

    def __init__(self, settings: Settings, work: Path, network: Path):
        self.settings = settings
        self.work = work
        self.network = network
        self.began = time.monotonic()
        self.backends = e2e.backend_folder(work / "backends")
        self.servers: dict[str, Server] = {}
        self.results: dict = {"runs": [], "ready": [], "memory": [], "equality": [], "yardstick": []}
        self.results.update({"left_out": [], "failed": []})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exc) -> None:
        for server in self.servers.values():
            server.kill()

    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        print(f"[{self.elapsed_s():5.0f} s] {text}", file=sys.stderr, flush=True)

    def has_time(self, section: str, needed_s: float) -> bool:
        """Whether a section still fits. What does not is named in the results."""
        if self.elapsed_s() + needed_s < self.settings.deadline_s:
            return True
        self.say(f"left out, for it would take about {needed_s:.0f} s more: {section}")
        self.results["left_out"].append(section)
        return False

    def start(self, name: str, stack: Stack, network: Path | None = None, *, instances: int = 1, options: tuple[str, ...] = ()) -> Server:
        """Starts a server on a repository of its own and waits for it."""
        folder = self.work / name
        repository = repositories.write(
            folder / "models", stack, network or self.network, instances=instances, step_times=folder / "steps.jsonl"
        )
        server = self.servers[name] = Server(repository, self.backends, folder / "server.log", *options)
        server.start()
        return server

    def stop(self, *names: str) -> None:
        for name in names or tuple(self.servers):
            server = self.servers.pop(name)
            if server.alive():
                server.stop()
            else:
                server.kill()
                self.say(f"the server {name} had ended by itself; its last lines:\n{server.tail(20)}")

    def measure(self, server: Server, load: Load, **labels) -> dict:
        """One run of perf_analyzer with Triton's own statistics, which leave its first request out where there are others."""
        served = [m["name"] for m in server.index()]
        watched = [name for name in (SPLEEN, NETWORK) if name in served]

        def read() -> dict[str, dict]:
            return {name: server.statistics(name) for name in watched}

        before = read()
        try:
            with AfterFirst(lambda: completed(server, load.model), read) as first:
                client = self._run(server, load)
        except perf.PerfError as error:
            raise RuntimeError(f"{error}\n--- end of {server.log}:\n{server.tail()}") from None
        after = read()
        # Where the first was the only one, or so short that others had ended before it was seen, none is left out.
        if first.reading and statistics.difference(first.reading[load.model], after[load.model])["count"]:
            before = first.reading
        record = {
            "model": load.model,
            "transport": load.transport,
            "slices": load.shape[-1],
            "requests": load.requests,
            "concurrency": load.concurrency,
            **labels,
            "client": client,
            "statistics": {name: statistics.difference(before[name], after[name]) for name in watched},
        }
        self.results["runs"].append(record)
        what = ", ".join(f"{value}" for value in labels.values())
        self.say(f"{load.model} over {load.transport}, {what}: {client['latency_ms']:.0f} ms, {client['throughput']:.3f} /s")
        return record

    def _run(self, server: Server, load: Load) -> dict[str, float]:
        if load.concurrency == 1:
            client = perf.run(load, server.http_port, server.grpc_port, self.work)
            return {**client, "throughput": 1000 / client["latency_ms"]}
        with Completions(lambda: completed(server, load.model)) as watched:
            client = perf.run(load, server.http_port, server.grpc_port, self.work)
        rate = watched.throughput()
        if rate is None:
            raise RuntimeError(f"{load.model}: {load.requests} requests were too few to see their rate")
        return {**client, "throughput": rate}


def completed(server: Server, model: str) -> int:
    """How many requests of a model the server has answered."""
    return int(server.statistics(model)["inference_stats"]["success"]["count"])
