"""Either model unloaded and loaded under load, every load order, warm-up, and the end of the server with work in flight."""

from __future__ import annotations

import itertools
import queue
import re
import signal
import threading
import time

import clients
import numpy as np
import pytest
import reference
import tritonclient.grpc
from checks import TRIED, Expected
from leaks import wait_for, waiting
from models import Repository
from test_operation import WARMUP, metric
from tritonclient.utils import InferenceServerException as Failed

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=83)[None]


@pytest.fixture(scope="module")
def good(volume) -> Expected:
    return Expected(volume)


class Load:
    """Clients that send the good request until they are told to end. Each answer is right, or an error that names the model."""

    def __init__(self, server, model: str, network: str, volume, good: Expected, count: int = 3):
        self.server, self.model, self.volume, self.good, self.count = server, model, volume, good, count
        # What stands in for an answer while one of them is away, and the code of it.
        self.away = {f"model '{network}' cannot be called: ": ("UNAVAILABLE",), f"'{model}'": ("UNAVAILABLE", "NOT_FOUND")}
        self.answered, self.refused, self.wrong = 0, 0, []
        self.ended = threading.Event()

    def run(self) -> None:
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.server.grpc_port}")
        given = tritonclient.grpc.InferInput("INPUT0", list(self.volume.shape), "FP32")
        given.set_data_from_numpy(self.volume)
        while not self.ended.is_set():
            try:
                self.good.assert_is(clients.grpc_answer(client.infer(self.model, [given], client_timeout=60)))
                self.answered += 1
            except Failed as error:
                code = error.status().removeprefix("StatusCode.")
                known = any(word in error.message() and code in codes for word, codes in self.away.items())
                self.refused += known
                self.wrong += [] if known else [str(error)]
                time.sleep(0.01)
            except AssertionError as error:
                self.wrong.append(str(error))
        client.close()

    def __enter__(self):
        self.threads = [threading.Thread(target=self.run) for _ in range(self.count)]
        for thread in self.threads:
            thread.start()
        self.answer()
        return self

    def answer(self) -> None:
        """Waits for a further answer."""
        before = self.answered
        wait_for(lambda: self.answered > before or bool(self.wrong))

    def refusal(self) -> None:
        """Waits for a further request that came while one of the models was away."""
        before = self.refused
        wait_for(lambda: self.refused > before or bool(self.wrong))

    def __exit__(self, *_exc):
        self.ended.set()
        for thread in self.threads:
            thread.join(90)
        assert not any(thread.is_alive() for thread in self.threads)
        assert not self.wrong, self.wrong[:3]
        assert self.answered


def test_either_model_is_unloaded_and_loaded_under_load(server, models, volume, good, tmp_path):
    network = models.load(models.write.quick(tmp_path))
    model = models.load(models.write.spleen(network))
    with Load(server, model, network, volume, good) as load:
        for turn in range(4):
            for name in ((network,), (model,), (network, model), (model, network))[turn]:
                TRIED["models taken away under load"] += 1
                models.unload(name, rests=False)
                wait_for(lambda: not models.client.is_model_ready(name))
                load.refusal()
                models.load(name)
            load.answer()
        # In place: the configuration changed, and the new one takes over while the old one ends its requests.
        config = models.write.root / model / "config.pbtxt"
        config.write_text(config.read_text() + "\nresponse_cache { enable: false }\n")
        models.client.load_model(model)
        load.answer()


def test_every_order_of_loading_and_unloading(server, models, volume, good, tmp_path):
    network = models.write.quick(tmp_path)
    model = models.write.spleen(network)
    for first, last in itertools.product(itertools.permutations((network, model)), repeat=2):
        for name in first:
            models.load(name)
            if len(models.loaded) == 1 and name == model:
                with pytest.raises(Failed, match=network):
                    clients.grpc(server, model, volume)
        good.assert_is(clients.grpc(server, model, volume))
        for name in last:
            models.unload(name)
        wait_for(lambda: not any(models.client.is_model_ready(name) for name in (network, model)))
        with pytest.raises(Failed, match=model):
            clients.grpc(server, model, volume)


def test_both_at_once_when_the_server_starts_warm(start_server, volume, good, tmp_path):
    """Triton refuses in-process calls until all models are loaded, so the warm-up never reaches the network. Neither refuses the start."""
    repository = Repository(tmp_path / "models")
    network = repository.quick(tmp_path)
    model = repository.spleen(network, extra=WARMUP)
    server = start_server(repository.root)
    assert re.search(f"{model}: a warm-up request got as far as the network: .*Server not ready", server.text()), server.tail()
    good.assert_is(clients.http(server, model, volume))
    assert server.stop() == 0, server.tail()


def test_a_warm_up_that_fails_is_said_and_refuses_no_load(server, models, volume, good):
    """Stock Triton 2.51 often crashes where a warm-up is answered with an error, so no warm-up of this backend is."""
    network = models.child("fail('not in the mood')")
    read = models.child()
    for model, stage, found in (
        (models.write.spleen(network, extra=WARMUP), "segment", "not in the mood"),
        (models.write.spleen(read, {"max_voxels": "1000"}, extra=WARMUP), "read", "max_voxels"),
    ):
        models.load(model)
        (line,) = (line for line in server.text().splitlines() if f"{model}: a warm-up request failed in {stage}" in line)
        assert line.startswith("W") and found in line, line
        # From then on it is an error again.
        with pytest.raises(Failed, match=found):
            clients.grpc(server, model, volume)
    good.assert_is(clients.grpc(server, models.pair(), volume))


def test_as_many_requests_as_are_configured_are_warm_ups_and_no_later_one(server, models, volume):
    """Of each of two instances, and again where the model is loaded anew while it is being served."""
    model = models.write.spleen(models.child("fail('not in the mood')"), extra=WARMUP.replace("batch_size: 1", "batch_size: 2 count: 3"))
    config = models.write.root / model / "config.pbtxt"
    text = config.read_text()
    assert text.count("count: 1") == 1
    config.write_text(text.replace("count: 1", "count: 2"))
    models.load(model)
    for loads in (1, 2):
        warm_ups = server.text().count(f"{model}: a warm-up request failed in segment")
        assert warm_ups == loads * 2 * 2 * 3
        for _ in range(4):
            with pytest.raises(Failed, match="not in the mood"):
                clients.grpc(server, model, volume)
        config.write_text(config.read_text() + "\nresponse_cache { enable: false }\n")
        models.client.load_model(model)
        config.write_text(config.read_text().replace("\nresponse_cache { enable: false }\n", ""))


def test_the_server_ends_with_requests_at_the_network_in_the_queue_and_given_up(start_server, volume, good, tmp_path):
    repository = Repository(tmp_path / "models")
    network = repository.commanded()
    model = repository.spleen(network, {"max_in_flight": "2"})
    server = start_server(repository.root)
    client, came, go = server.grpc(), queue.Queue(), tmp_path / "go"
    given = tritonclient.grpc.InferInput("INPUT0", list(volume.shape), "FP32")
    given.set_data_from_numpy(volume)
    calls = [
        client.async_infer(model, [given], lambda result, error: came.put((result, error)), request_id=f"when({str(go)!r}, good(x))")
        for _ in range(6)
    ]
    wait_for(go.with_suffix(".begun").exists)
    # Each has been accepted: one at work in the network and one in its queue, one that waits for a place, and three in the queue of ours.
    wait_for(lambda: waiting(server) == 4)
    calls[3].cancel()
    assert came.get(timeout=60)[1] is not None
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "in-flight requests" in server.text() or "Signal (15)" in server.text())
    go.touch()
    # Those that were accepted are answered; none hangs, none gets another one's error.
    ends = [came.get(timeout=60) for _ in range(5)]
    for result, error in ends:
        if error is None:
            good.assert_is(clients.grpc_answer(result))
        else:
            assert "UNAVAILABLE" in str(error.status()) or "CANCELLED" in str(error.status()), error
    assert any(error is None for _, error in ends), ends
    assert server.stop() == 0, server.tail()


def test_the_first_request_takes_the_steps_of_the_tenth(server, models, request, tmp_path):
    """Nothing is put off until the first request comes: how long it takes, beside the tenth, is a recorded figure and no assertion."""
    model = models.load(models.write.spleen(models.load(models.write.quick(tmp_path)), size=(96, 96, 96), data_type="TYPE_UINT8"))
    volume = reference.blobs((128, 128, 100), seed=84)[None]
    steps = ("read", "foreground", "resize", "argmax", "components", "count", "contour", "write")
    spent = []
    for number in range(1, 11):
        answer = clients.http(server, model, volume)
        spent.append(sum(metric(server, "spleenseg_step_duration_seconds_sum", model, step=step) for step in steps))
        assert all(metric(server, "spleenseg_step_duration_seconds_count", model, step=step) == number for step in steps)
        if number == 1:
            first = answer
    for name in clients.OUTPUTS:
        np.testing.assert_array_equal(answer.arrays[name], first.arrays[name])
    times = np.diff(spent, prepend=0.0) * 1e3
    request.node.user_properties.append(("ms outside the network, requests 1, 2 and 10", " ".join(f"{times[at]:.1f}" for at in (0, 1, 9))))
