"""The soak: eight clients at a stock Triton for as long as is wanted, and a report of what came of it.

scripts/soak.sh runs it by hand; test_soak.py runs a short one."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from clients import Answer
from holdings import HeldAndMapped, anonymous_bytes
from leaks import loaded, wait_for
from models import Repository
from soak_cases import BAD_OF, MARKERS, Cases, Request, is_error_of, write_models
from soak_clients import CLIENTS, Http, Outcome
from triton import Triton, backend_folder

ROUND = 2000
WARM_UP = 500
CHECKED_WITH_MONAI = 10  # one marker in ten
DRIFT_PERCENT = 2.0
# The server takes some 80 MB with networks this small, and 2 % of that is less than what the arenas of malloc, one for each of
# some hundred threads, go up and down by. A lost tensor, or 2 kB of anything, in each request of a round is more than this.
DRIFT_FLOOR_BYTES = 4 << 20


@dataclass
class Soak:
    """One server under load: `with Soak(..) as soak: soak.prepare(); soak.round(); ..; soak.finish()`, then `soak.report()`."""

    repository: Path
    backends: Path
    scratch: Path
    counts: dict[str, Counter] = field(default_factory=lambda: {key: Counter() for key in ("protocol", "model", "bad")})
    wrong: list[str] = field(default_factory=list)
    wrong_count: int = 0
    sent: int = 0
    cancelled: int = 0
    bad_made: Counter = field(default_factory=Counter)
    answered: Counter = field(default_factory=Counter)
    samples: list[dict] = field(default_factory=list)
    held: HeldAndMapped | None = None
    server_exit: int | None = None

    def __enter__(self) -> Soak:
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.networks, self.served = write_models(Repository(self.repository), self.scratch)
        self.cases = Cases(self.served)
        self.serial: list[Answer] = []
        self.server = Triton(self.repository, self.backends, self.scratch / "server.log", "--model-control-mode=explicit")
        self.clients = [kind(self.server.http_port, self.server.grpc_port) for kind in CLIENTS]
        self.server.start()
        self.began = time.monotonic()
        self.busy_s = 0.0
        return self

    def __exit__(self, kind, *_rest) -> None:
        if kind is None:
            self.server_exit = self.server.stop()
        else:
            self.server_exit = self.server.process.poll()  # None: it lived
            self.server.kill()

    def load(self) -> None:
        for name in (*self.networks, *(model.name for model in self.served)):
            self.server.http().load_model(name)
        self.server.close_clients()

    def unload(self) -> None:
        for name in (*(model.name for model in self.served), *self.networks):
            self.server.http().unload_model(name)
        # Unloading goes on after the call has returned.
        wait_for(lambda: not loaded(self.server), 60)
        self.server.close_clients()

    def prepare(self) -> None:
        """What the server holds once everything was used and unloaded; then the serial answers, and the first sample when it is warm."""
        self.load()
        self.answer_serially()
        self.run(WARM_UP)
        self.unload()
        self.held = HeldAndMapped(self.server)
        self.load()
        self.answered.clear()
        self.run(WARM_UP)
        self.sample()

    def finish(self) -> None:
        self.count_at_the_server()
        self.unload()
        self.held.assert_back()

    def answer_serially(self) -> None:
        """One request at a time; a tenth of the answers are compared with MONAI's own."""
        client = Http(self.server.http_port, self.server.grpc_port)
        requests = map(self.cases.good, range(MARKERS))
        client.run((replace(request, outputs=request.model.outputs) for request in requests), self.keep)
        for marker in range(0, MARKERS, CHECKED_WITH_MONAI):
            for name, array in self.cases.monai(marker).items():
                np.testing.assert_array_equal(self.serial[marker].arrays[name], array, err_msg=f"{name} of marker {marker}")
        # A marker that another one could be taken for would hide what the soak looks for.
        seen = {(str(a.boxes()), a.arrays["MASK"].tobytes()) for a in self.serial}
        if len(seen) != MARKERS:
            raise RuntimeError(f"only {len(seen)} of {MARKERS} markers have an answer of their own")

    def keep(self, request: Request, outcome: Outcome) -> None:
        if not isinstance(outcome, tuple):
            raise RuntimeError(f"the serial request {request.id} failed: {outcome}")
        self.serial.append(outcome[1])

    def round(self, requests: int = ROUND) -> None:
        began = time.monotonic()
        self.run(requests, counted=True)
        self.busy_s += time.monotonic() - began
        self.sample()

    def run(self, requests: int, counted: bool = False) -> None:
        """So many requests, taken in turn by whichever client is free. Returns when all are answered."""
        numbers = itertools.islice(self.numbers, requests)

        def tell(client, request: Request, outcome: Outcome) -> None:
            mistake = self.mistake(request, outcome)
            with self.lock:
                self.cancelled += request.cancelled and not isinstance(outcome, tuple)
                if counted:
                    self.sent += 1
                    self.counts["protocol"][client.protocol] += 1
                    self.counts["model"][request.model.name] += 1
                    if request.bad:
                        self.counts["bad"][request.bad] += 1
                self.answered[request.model.name] += isinstance(outcome, tuple)
                if mistake:
                    self.lost(f"{client.protocol}, {request.id}, {request.bad or 'good'}: {mistake}")

        with ThreadPoolExecutor(len(self.clients)) as pool:
            running = [pool.submit(client.run, self.requests(client, numbers), partial(tell, client)) for client in self.clients]
            for client in running:
                client.result()

    def requests(self, client, numbers: Iterator[int]) -> Iterator[Request]:
        """One in ten is bad."""
        while True:
            with self.lock:
                number = next(numbers, None)
            if number is None:
                return
            yield self.bad(number, client) if number % BAD_OF == BAD_OF - 1 else self.cases.good(number)

    def bad(self, number: int, client) -> Request:
        """Of the kinds that the client's protocol has, that which was least often."""
        with self.lock:
            kind = min(client.kinds, key=self.bad_made.__getitem__)
            self.bad_made[kind] += 1
        return self.cases.bad(number, kind, client.kinds[kind])

    def mistake(self, request: Request, outcome: Outcome) -> str:
        """What is wrong with the outcome: nothing, if it is what the request must get."""
        if request.codes:
            if isinstance(outcome, tuple):
                return "was answered"
            code, text = outcome.status(), outcome.message()
            return "" if is_error_of(request, code, text) else f"failed with {code} {text!r}; accepted are {request.codes} and {request.words}"
        if request.cancelled and not isinstance(outcome, tuple):
            return "" if outcome is None or outcome.status() == "StatusCode.CANCELLED" else f"failed with {outcome.status()} {outcome}"
        if not isinstance(outcome, tuple):
            return f"failed with {outcome.status()} {outcome.message()!r}"
        returned, answer = outcome
        if returned != request.id:
            return f"has the answer of {returned!r}"
        return self.difference(request, answer)

    def difference(self, request: Request, answer: Answer) -> str:
        serial = self.serial[request.marker]
        nan = request.bad == "NaN network"
        if set(answer.arrays) != set(request.outputs):
            return f"has outputs {sorted(answer.arrays)}; asked for {sorted(request.outputs)}"
        for name, found in answer.arrays.items():
            # NaN in every class is the lowest one, the background: MONAI's argmax.
            wanted = np.zeros_like(serial.arrays[name]) if nan else serial.arrays[name]
            if found.dtype != wanted.dtype or found.shape != wanted.shape:
                return f"{name} is {found.dtype}{list(found.shape)}; accepted is {wanted.dtype}{list(wanted.shape)}"
            if found.tobytes() != wanted.tobytes():
                return f"{name} differs in {np.count_nonzero(found != wanted)} voxels{self.whose(name, found)}"
        theirs = {"voxels", "mask_voxels", "volume_ml"} if nan else set()
        for key in serial.parameters.keys() - theirs:
            if answer.parameters.get(key) != serial.parameters[key]:
                return f"{key} is {answer.parameters.get(key)}; accepted is {serial.parameters[key]}"
        return ""

    def whose(self, name: str, found: np.ndarray) -> str:
        for marker, other in enumerate(self.serial):
            if name in other.arrays and other.arrays[name].tobytes() == found.tobytes():
                return f": it is the answer of marker {marker}"
        return ""

    def lost(self, what: str) -> None:
        self.wrong_count += 1
        if len(self.wrong) < 20:
            self.wrong.append(what)

    def count_at_the_server(self) -> None:
        """What the server has counted as answered is what came back, but for cancelled requests that were answered all the same."""
        control = self.server.http()
        for model in self.served:
            (statistics,) = control.get_inference_statistics(model.name)["model_stats"]
            counted, came = statistics["inference_stats"]["success"]["count"], self.answered[model.name]
            if not came <= counted <= came + self.cancelled:
                self.lost(f"model {model.name} counts {counted} answers; {came} came back, {self.cancelled} requests were cancelled")
        self.server.close_clients()

    def sample(self) -> None:
        self.samples.append({"requests": self.sent, "after_s": round(time.monotonic() - self.began, 1), "anonymous_bytes": anonymous_bytes(self.server.process.pid)})

    def progress(self) -> str:
        return (
            f"{self.sent} requests, {self.counts['bad'].total()} of them bad, in {self.busy_s:.0f} s: {self.wrong_count} wrong or lost;"
            f" server {self.samples[-1]['anonymous_bytes'] / 1e6:.1f} MB"
        )

    def warm_bytes(self) -> int:
        """Before the only round, or after the first quarter of many: until then malloc's arenas still grow to their size."""
        return self.samples[len(self.samples) // 4]["anonymous_bytes"]

    def drift_bytes(self) -> int:
        return self.samples[-1]["anonymous_bytes"] - self.warm_bytes()

    def report(self) -> dict:
        return {
            "machine": f"{processor()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end",
            "build": self.serial[0].parameters["build_id"],
            "clients": len(self.clients),
            "requests": self.sent,
            "bad": self.counts["bad"].total(),
            "requests_per_second": round(self.sent / max(self.busy_s, 1e-9), 1),
            "wrong_or_lost": self.wrong_count,
            "examples": self.wrong,
            "counts": {key: dict(counter.most_common()) for key, counter in self.counts.items()},
            "samples": self.samples,
            "warm_bytes": self.warm_bytes(),
            "drift_bytes": self.drift_bytes(),
            "drift_percent": round(100 * self.drift_bytes() / self.warm_bytes(), 2),
            "held_before": self.held.before,
            "server_exit": self.server_exit,
        }


def verdict(report: dict) -> list[str]:
    """What is not as it must be; empty for a soak that passed."""
    found = list(report["examples"])
    allowed = max(DRIFT_PERCENT / 100 * report["warm_bytes"], DRIFT_FLOOR_BYTES)
    if report["drift_bytes"] > allowed:
        found.append(f"anonymous memory grew by {report['drift_bytes']} bytes; accepted are {allowed:.0f}")
    if report["server_exit"]:
        found.append(f"the server ended with code {report['server_exit']}")
    return found


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", description=__doc__)
    parser.add_argument("--long", type=float, metavar="HOURS", default=0.0, help=f"rounds of {ROUND} requests for so long; without it one round")
    parser.add_argument("--out", type=Path, required=True, help="the report, JSON")
    options = parser.parse_args()
    # The server is in a session of its own: this ends it too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="spleenseg_soak_") as folder:
        scratch = Path(folder)
        (scratch / "models").mkdir()
        soak = Soak(scratch / "models", backend_folder(scratch / "backends"), scratch)
        try:
            with soak:
                print(f"{len(soak.clients)} clients; warming up", flush=True)
                soak.prepare()
                ends = time.monotonic() + options.long * 3600
                while True:
                    soak.round()
                    print(soak.progress(), flush=True)
                    if time.monotonic() >= ends:
                        break
                soak.finish()
        except Exception as error:
            if not soak.samples:
                raise
            # The report says so, with what was measured until then.
            soak.lost(f"{type(error).__name__}: {error}")
            print(soak.server.tail(), file=sys.stderr)
        report = soak.report()
    report["command"] = "scripts/soak.sh" + (f" --long {options.long:g}" if options.long else "")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    mistakes = verdict(report)
    print(soak.progress())
    print(f"anonymous memory: {report['drift_percent']:+.2f} % since the warm-up; the server ended with code {report['server_exit']}")
    print("\n".join(mistakes) or "threads, file descriptors, mappings and shared memory after unloading: as before")
    print(f"{'FAILED' if mistakes else 'passed'}; all figures: {options.out}")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
