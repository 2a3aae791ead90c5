"""One stock tritonserver: the class of the end-to-end tests, with what a benchmark asks of it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from .repositories import ROOT


def from_e2e(name: str):
    """A module of the end-to-end tests. Loaded by path: their folder on sys.path would hide torch's package `triton`."""
    spec = importlib.util.spec_from_file_location(f"e2e_{name}", ROOT / "tests" / "e2e" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


e2e = from_e2e("triton")

# Triton's documentation of the Python backend asks for a region that holds the tensors of the requests in flight: 350 MB
# for a usual volume with its scores and results. It grows by large steps where that is not enough.
PYTHON_BACKEND_OPTIONS = (
    f"--backend-config=python,shm-default-byte-size={1 << 29}",
    f"--backend-config=python,shm-growth-byte-size={1 << 28}",
    "--backend-config=python,stub-timeout-seconds=120",
)

_numbers = itertools.count()


class Server(e2e.Triton):
    """`start()` also measures the time to readiness, to a tenth of a second."""

    def __init__(self, repository: Path, backends: Path, log: Path, *arguments: str):
        # A name of its own for the Python backend's shared memory, so that it can be measured and removed.
        self.shm_prefix = f"spleenseg_bench_{os.getpid()}_{next(_numbers)}_"
        prefix = f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}"
        super().__init__(repository, backends, log, *PYTHON_BACKEND_OPTIONS, prefix, *arguments, start_s=240)
        self.ready_s = 0.0

    def environment(self) -> dict[str, str]:
        # As scripts/serve.sh has it: torch asks for huge pages, in the server and in the Python backend's processes.
        return {"THP_MEM_ALLOC_ENABLE": "1", **super().environment()}

    def start(self) -> Server:
        began = time.monotonic()
        super().start()
        self.ready_s = time.monotonic() - began
        return self

    def kill(self) -> None:
        super().kill()
        # A killed stub leaves its region behind.
        for region in Path("/dev/shm").glob(f"{self.shm_prefix}*"):
            region.unlink(missing_ok=True)

    def post(self, path: str, body: dict | None = None) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}", json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=240) as reply:
                return reply.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode(errors='replace')}\n{self.tail()}") from None

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=60) as reply:
            return json.load(reply)

    def load(self, model: str) -> float:
        """Loads a model and returns the seconds that took."""
        began = time.monotonic()
        self.post(f"/v2/repository/models/{model}/load")
        return time.monotonic() - began

    def unload(self, model: str) -> None:
        self.post(f"/v2/repository/models/{model}/unload")
        deadline = time.monotonic() + 60
        while any(m["name"] == model and m.get("state") == "READY" for m in self.index()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"model {model} was not unloaded within 60 s\n{self.tail()}")
            time.sleep(0.05)

    def index(self) -> list[dict]:
        return json.loads(self.post("/v2/repository/index"))

    def set_verbose(self, level: int) -> None:
        self.post("/v2/logging", {"log_verbose_level": level})

    def statistics(self, model: str) -> dict:
        return self.get(f"/v2/models/{model}/stats")["model_stats"][0]
