"""What the benchmark of triton_backend_api makes of its recordings."""

import json
import multiprocessing
import socket
import threading

import pytest
from bench import api, api_report, health
from conftest import ROOT


def recorded(added_ns: int = 1000, python_us: float = 300.0, load: float = 0.1) -> dict:
    run = {"requests": 10, "latency_us": 1.0}
    identity = [
        # The machine gets slower from round to round; the ratio within each stays.
        {"round": n, "stack": stack, "concurrency": c, "compute_us": us * (n + 1), "per_second": 100.0, **run}
        for n in range(3)
        for c in (1, 16)
        for stack, us in (("rust", 10.0), ("python", python_us))
    ]
    threads = [
        {"round": 0, "stack": stack, "threads": n, "compute_us": us, "per_second": 1.0, **run}
        for stack, times in (("rust", (8000.0, 4000.0)), ("python", (900_000.0, 950_000.0)))
        for n, us in zip((1, 2), times)
    ]
    return {
        "made": {"date": "2026-01-02", "command": "scripts/bench_api.sh", "load_average": load},
        "machine": {"cores": "2"},
        "cost": [{"bytes": 0, "requests": 1, "yardstick_ns": 5000, "subject_ns": 5000 + added_ns, "added_ns": added_ns}],
        "identity": identity,
        "health": [{"round": 0, "concurrency": c, "per_second": 9000.0} for c in (1, 16)],
        "threads": threads,
    }


def test_ratios_are_taken_within_a_round():
    text = api_report.write(recorded())
    assert "30.0 (30.0..30.0), met" in text
    assert "| Rust, this crate | 8.0 (8.0..8.0) | 4.0 (4.0..4.0) | 2.00 (2.00..2.00) |" in text
    assert "0.95 (0.95..0.95)" in text
    assert "busy" not in text


@pytest.mark.parametrize("changed", [{"added_ns": 3001}, {"python_us": 199.0}])
def test_a_target_that_is_missed_says_so(changed):
    assert api_report.write(recorded(**changed)).count("**missed**") == 1
    assert "missed" not in api_report.write(recorded(added_ns=3000, python_us=200.0))


def test_a_busy_machine_is_named():
    assert "**The machine was busy** (load average 4.0 on 2 cores" in api_report.write(recorded(load=4.0))


def test_the_committed_report_is_that_of_the_committed_results():
    folder = ROOT / "docs" / "benchmarks"
    assert api_report.write(json.loads((folder / "api.json").read_text())) == (folder / "api.md").read_text()


def test_the_models_are_the_same_but_for_the_backend(tmp_path):
    rust = api.write_model(tmp_path, "rust", "threads", "threads", limit=5)
    python = api.write_model(tmp_path, "python", "threads", "python", limit=5)
    texts = [(tmp_path / name / "config.pbtxt").read_text().splitlines()[2:] for name in (rust, python)]
    assert texts[0] == texts[1] and any('"limit"' in line for line in texts[0])
    assert (tmp_path / "python" / "1" / "model.py").exists()


def serve(listener: socket.socket, answered) -> None:
    """Answers every request on every connection with an empty 200."""

    def talk(connection: socket.socket) -> None:
        while connection.recv(4096):
            with answered.get_lock():
                answered.value += 1
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def test_health_requests_are_counted():
    answered = multiprocessing.Value("q", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = multiprocessing.Process(target=serve, args=(listener, answered), daemon=True)
        server.start()
        rate = health.rate(listener.getsockname()[1], concurrency=2, seconds=0.2)
        server.terminate()
        server.join()
    assert answered.value == round(rate * 0.2) > 0
