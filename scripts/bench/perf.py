"""Runs perf_analyzer and reads its report."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

TRANSPORTS = {
    "shm": ("--shared-memory", "system"),
    "http": (),
    "grpc": ("-i", "grpc"),
}

# The columns of perf_analyzer's verbose CSV, in microseconds, and what they are called here, in milliseconds.
# "request/response" is sending and receiving over HTTP, and marshalling over gRPC.
COLUMNS = {
    "Avg latency": "latency_ms",
    "p50 latency": "p50_ms",
    "p99 latency": "p99_ms",
    "request/response": "transfer_ms",
    "response wait": "wait_ms",
    "Server Queue": "queue_ms",
    "Server Compute Input": "compute_input_ms",
    "Server Compute Infer": "compute_infer_ms",
    "Server Compute Output": "compute_output_ms",
}


class PerfError(Exception):
    """perf_analyzer did not measure anything, and what it said about it."""


@dataclass(frozen=True)
class Load:
    """What perf_analyzer is to send."""

    model: str
    tensor: str
    shape: tuple[int, ...]
    data: str  # "zero", or a folder with one raw file, named as the tensor
    transport: str = "shm"
    requests: int = 1
    concurrency: int = 1

    def arguments(self, http_port: int, grpc_port: int, report: Path) -> list[str]:
        port = grpc_port if self.transport == "grpc" else http_port
        shape = ",".join(map(str, self.shape))
        return [
            *("-m", self.model, "-u", f"127.0.0.1:{port}", "--input-data", self.data, "--shape", f"{self.tensor}:{shape}"),
            # Exactly this many requests: windows of a fixed time are for requests of milliseconds.
            *("--request-count", str(self.requests), "--concurrency-range", str(self.concurrency)),
            *("-f", str(report), "--verbose-csv", *TRANSPORTS[self.transport]),
        ]


def parse_report(text: str) -> dict[str, float]:
    """The one row of a verbose CSV report."""
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row.get("Concurrency")]
    if len(rows) != 1:
        raise PerfError(f"the report of perf_analyzer has {len(rows)} rows; one is expected:\n{text}")
    missing = [name for name in COLUMNS if not rows[0].get(name)]
    if missing:
        raise PerfError(f"the report of perf_analyzer lacks {missing}; this reads the format of perf_analyzer 2.50.0:\n{text}")
    return {ours: float(rows[0][theirs]) / 1000 for theirs, ours in COLUMNS.items()}


def request_count(output: str) -> int:
    """How many requests perf_analyzer has completed."""
    found = re.search(r"Request count: (\d+)", output)
    return int(found.group(1)) if found else 0


def run(load: Load, http_port: int, grpc_port: int, work: Path, timeout_s: float = 900) -> dict[str, float]:
    """Sends the load, and returns what perf_analyzer reports."""
    report = work / "perf.csv"
    report.unlink(missing_ok=True)
    command = [os.environ["SPLEENSEG_PERF_ANALYZER"], *load.arguments(http_port, grpc_port, report)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise PerfError(f"perf_analyzer did not end within {timeout_s:.0f} s: {' '.join(command)}") from None
    output = done.stdout + done.stderr
    count = request_count(output)
    if done.returncode or not report.exists() or count < load.requests or re.search(r"had error|[Ff]ailed to", output):
        raise PerfError(f"perf_analyzer failed (code {done.returncode}, {count} of {load.requests} requests): {output}")
    return parse_report(report.read_text())
