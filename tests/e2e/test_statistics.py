"""Statistics and metrics: counts are right, and the times are where the work is; what is not needed is not done, and what can overlap does."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from leaks import wait_for, waiting
from test_operation import metric

SLEEP_S = 0.3


def statistics(server, model: str) -> dict:
    return server.http().get_inference_statistics(model)["model_stats"][0]


def milliseconds(duration: dict) -> float:
    return duration.get("ns", 0) / 1e6


def test_successes_failures_and_executions_are_counted(server, models):
    model = models.pair()
    good = reference.blobs((30, 30, 20), seed=3)[None]
    air = np.full((1, 30, 30, 20), -1000.0, np.float32)
    for _ in range(4):
        clients.http(server, model, good)
    for _ in range(3):
        with pytest.raises(tritonclient.http.InferenceServerException):
            clients.http(server, model, air)
    found = statistics(server, model)
    assert found["inference_stats"]["success"]["count"] == 4
    assert found["inference_stats"]["fail"]["count"] == 3
    assert found["inference_count"] == 4
    assert found["execution_count"] == 4
    metrics = server.metrics()
    assert re.search(rf'nv_inference_request_success{{model="{model}",version="1"}} 4\b', metrics)
    failed = re.findall(rf'nv_inference_request_failure{{model="{model}"[^}}]*}} (\d+)', metrics)
    assert sum(map(int, failed)) == 3


def test_times_lie_where_the_work_is(server, models):
    child = models.child(f"after({SLEEP_S}, np.concatenate([0.5 - x, x - 0.5], axis=1))")
    model = models.spleen(child, size=(96, 96, 96))
    volume = reference.blobs((256, 256, 64), seed=4)[None]
    began = time.monotonic()
    for _ in range(2):
        clients.shared_memory(server, model, volume, {name: (1, 1, 96, 96, 96) for name in clients.OUTPUTS})
    wall_ms = (time.monotonic() - began) * 1e3
    found = statistics(server, model)["inference_stats"]
    assert found["success"]["count"] == 2
    times = {key: milliseconds(found[key]) for key in ("compute_input", "compute_infer", "compute_output")}
    assert times["compute_infer"] >= 2 * SLEEP_S * 1e3
    assert times["compute_input"] > 0.2
    assert times["compute_output"] > 0.2
    # Parts of what the client has waited for, none of it counted twice.
    assert sum(times.values()) <= wall_ms


def test_an_output_that_is_not_asked_for_is_not_computed(server, models):
    size = (160, 160, 160)
    child = models.two_classes
    both, mask_only = models.spleen(child, size=size), models.spleen(child, size=size)
    volume = reference.blobs((64, 64, 64), seed=5)[None]
    for _ in range(3):
        clients.http(server, both, volume)
        clients.http(server, mask_only, volume, outputs=["MASK"])
    for model, contours in ((both, 3), (mask_only, 0)):
        assert metric(server, "spleenseg_step_duration_seconds_count", model, step="argmax") == 3
        assert metric(server, "spleenseg_step_duration_seconds_count", model, step="contour") == contours
    written = [metric(server, "spleenseg_output_bytes_total", model) for model in (both, mask_only)]
    assert written[0] == 2 * written[1] == 3 * 2 * 4 * np.prod(size)


@pytest.mark.parametrize("limit", [1, 2])
def test_a_request_is_prepared_while_the_network_has_another(server, models, commanded, tmp_path, limit):
    """max_in_flight: so many requests are at the network's two instances before any of them is answered, and no more."""
    model = models.spleen(commanded, {"max_in_flight": str(limit)})
    volume = reference.blobs((40, 40, 40), seed=6)[None]
    go = [tmp_path / f"go{number}" for number in range(4)]

    def begun() -> int:
        return sum(path.with_suffix(".begun").exists() for path in go)

    with ThreadPoolExecutor(len(go)) as pool:
        running = [pool.submit(clients.grpc, server, model, volume, request_id=f"when({str(path)!r}, good(x))") for path in go]
        try:
            # One of the others waits for a place, the rest in the model's queue.
            wait_for(lambda: begun() == limit and waiting(server) == len(go) - limit - 1)
            assert begun() == limit
        finally:
            for path in go:
                path.touch()
        for request in running:
            request.result(timeout=120)
    assert begun() == len(go)
