"""Statistics and metrics: counts are right, and the times are where the work is."""

from __future__ import annotations

import re
import time

import clients
import numpy as np
import pytest
import reference
import tritonclient.http

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
    clients.shared_memory(server, model, volume, {name: (1, 1, 96, 96, 96) for name in clients.OUTPUTS})
    began = time.monotonic()
    clients.shared_memory(server, model, volume, {name: (1, 1, 96, 96, 96) for name in clients.OUTPUTS})
    wall_ms = (time.monotonic() - began) * 1e3
    found = statistics(server, model)["inference_stats"]
    assert found["success"]["count"] == 2
    times = {key: milliseconds(found[key]) / 2 for key in ("compute_input", "compute_infer", "compute_output")}
    assert times["compute_infer"] >= SLEEP_S * 1e3
    assert times["compute_infer"] < SLEEP_S * 1e3 + 2000
    assert times["compute_input"] > 0.1
    assert times["compute_output"] > 0.1
    assert sum(times.values()) < 3 * wall_ms


def test_an_output_that_is_not_asked_for_is_not_computed(server, models):
    size = (160, 160, 160)
    child = models.two_classes
    both, mask_only = models.spleen(child, size=size), models.spleen(child, size=size)
    volume = reference.blobs((64, 64, 64), seed=5)[None]
    for _ in range(3):
        clients.http(server, both, volume)
        clients.http(server, mask_only, volume, outputs=["MASK"])
    output_ms = [milliseconds(statistics(server, m)["inference_stats"]["compute_output"]) for m in (both, mask_only)]
    # The contour looks at 27 voxels for each of its own, and its tensor is as large as the mask's.
    assert output_ms[1] < output_ms[0]


def test_a_request_is_prepared_while_the_network_has_another(server, models):
    """max_in_flight: four requests on one instance take about as long as the child's own instances need."""
    child = models.child("after(0.4, np.concatenate([0.5 - x, x - 0.5], axis=1))", instances=2)
    times = {}
    volume = reference.blobs((40, 40, 40), seed=6)[None]
    for limit in (1, 2):
        model = models.spleen(child, {"max_in_flight": str(limit)})
        client = server.http()
        given = tritonclient.http.InferInput("INPUT0", list(volume.shape), "FP32")
        given.set_data_from_numpy(volume)
        client.infer(model, [given])
        began = time.monotonic()
        for pending in [client.async_infer(model, [given]) for _ in range(4)]:
            pending.get_result()
        times[limit] = time.monotonic() - began
    assert times[1] > 4 * 0.4
    assert times[2] < 0.75 * times[1], times
