"""A network that misbehaves on command: its request says what was found, and all others are answered as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import clients
import numpy as np
import pytest
import reference
from checks import TRIED, Expected, expected
from leaks import descriptors, wait_for
from models import SIZE, Repository
from tritonclient.utils import InferenceServerException as Failed

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SHAPES = {"MASK": (1, 1, *SIZE), "CONTOUR": (1, 1, *SIZE)}


def in_shared_memory(server, model, volume, **options):
    return clients.shared_memory(server, model, volume, SHAPES, **options)


WAYS = [clients.http, clients.grpc, clients.asyncio_http, clients.asyncio_grpc, in_shared_memory]


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((45, 40, 30), seed=80)[None]


@pytest.fixture(scope="module")
def good(volume) -> Expected:
    return Expected(volume)


def refused(send, server, model, volume, command: str) -> str:
    TRIED["faults of the network"] += 1
    with pytest.raises(Failed) as error:
        send(server, model, volume, request_id=command)
    return error.value.message().replace(", ", ",")


@pytest.fixture
def meanwhile(server, commanded, models, volume, good, tmp_path, in_background):
    """A good request that the network's other instance works on during the test."""
    model = models.spleen(commanded)
    go = tmp_path / "go"
    running = in_background(lambda: clients.grpc(server, model, volume, request_id=f"when({str(go)!r}, good(x))"))
    wait_for(go.with_suffix(".begun").exists)
    yield model
    go.touch()
    good.assert_is(running.result())
    good.assert_is(clients.http(server, model, volume))


# What the network does, and what the client has to be told besides the network's name.
FAULTS = {
    "says an error": ("fail('out of liver')", ["failed: out of liver"]),
    "raises": ("1 / 0", ["failed: ", "ZeroDivisionError"]),
    "one class": ("x", ["[1,1,24,20,16]", "[1,C,24,20,16]"]),
    "257 classes": ("np.zeros((1, 257, 24, 20, 16), np.float32)", ["[1,257,24,20,16]", "2 to 256"]),
    "another size": ("good(x)[..., :15]", ["[1,2,24,20,15]", "[1,C,24,20,16]"]),
    "another rank": ("good(x)[:, 0]", ["[1,24,20,16]", "[1,C,24,20,16]"]),
    "no batch": ("good(x)[:0]", ["[0,2,24,20,16]", "[1,C,24,20,16]"]),
    "empty": ("good(x)[..., :0]", ["[1,2,24,20,0]", "[1,C,24,20,16]"]),
    "INT32": ("good(x).astype(np.int32)", ["INT32", "FP32 and FP16"]),
    "FP64": ("good(x).astype(np.float64)", ["FP64", "FP32 and FP16"]),
    "BOOL": ("good(x) > 0", ["BOOL", "FP32 and FP16"]),
    "BYTES": ("np.full((1, 2, 24, 20, 16), b'text', np.object_)", ["BYTES", "FP32 and FP16"]),
    "no output": ("pb_utils.InferenceResponse([])", ["no output 'OUTPUT__0' came"]),
    "another output": ("response(good(x), 'SCORES')", ["no output 'OUTPUT__0' came"]),
    "no response": ("[]", ["failed: ", "Number of InferenceResponse objects"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_is_told_to_its_client_alone(server, commanded, meanwhile, volume, fault):
    command, words = FAULTS[fault]
    for send in WAYS:
        text = refused(send, server, meanwhile, volume, command)
        for word in [f"model '{commanded}'", *words]:
            assert text.count(word) == 1, f"{send.__name__}: {text}"


# Of x, the network's input, alone: MONAI gets the same scores.
NO_NUMBERS = {
    "all NaN": "np.full_like(np.concatenate([x, x], 1), np.nan)",
    "NaN here and there": "np.concatenate([np.where(x > 0.8, np.nan, 0.5 - x), x - 0.5], 1).astype(np.float32)",
    "infinite": "np.concatenate([0.5 - x, np.where(x > 0.5, np.inf, -np.inf)], 1).astype(np.float32)",
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_scores_that_are_no_numbers_give_what_monai_makes_of_them(server, meanwhile, volume, case):
    mask, contour, _ = expected(volume[0], NO_NUMBERS[case])
    for send in WAYS:
        answer = send(server, meanwhile, volume, request_id=NO_NUMBERS[case])
        np.testing.assert_array_equal(answer.arrays["MASK"][0], mask, err_msg=send.__name__)
        np.testing.assert_array_equal(answer.arrays["CONTOUR"][0], contour, err_msg=send.__name__)


# What a decoupled network does, and what the client is told.
STREAMS = {
    "no response": ("[]", "sent 0 responses; exactly one is accepted"),
    "two responses": ("[good(x), good(x)]", "sent 2 responses; exactly one is accepted"),
    "a response, then an error": ("[good(x), pb_utils.InferenceResponse(error=pb_utils.TritonError('late'))]", "sent 2 responses"),
    "an error": ("fail('out of liver')", "failed: out of liver"),
}


def test_a_decoupled_network_is_used_where_it_sends_one_response(server, models, volume, good):
    network = models.load(models.write.commanded(decoupled=True))
    model = models.spleen(network)
    good.assert_is(clients.http(server, model, volume))
    for command, words in STREAMS.values():
        for send in WAYS:
            text = refused(send, server, model, volume, command)
            assert f"model '{network}'" in text and words in text, text
        good.assert_is(clients.grpc(server, model, volume))


def test_a_network_that_hangs_ends_its_request_with_the_timeout(server, commanded, models, meanwhile, volume, good, tmp_path):
    impatient = models.spleen(commanded, {"segmentation_timeout_s": "5"})
    hung = tmp_path / "hung"
    try:
        text = refused(clients.grpc, server, impatient, volume, f"when({str(hung)!r}, good(x))")
        assert text == f"model '{commanded}' did not answer within 5 s (parameter segmentation_timeout_s)"
        assert hung.with_suffix(".begun").exists()
        # Both instances of the network are busy now. A request waits for one of them, and its client may give up meanwhile.
        text = refused(lambda *a, **o: clients.grpc(*a, client_timeout=0.3, **o), server, meanwhile, volume, "")
        assert "Deadline Exceeded" in text
    finally:
        hung.touch()
    good.assert_is(clients.http(server, impatient, volume))


def test_a_network_whose_process_dies(start_server, volume, good, tmp_path, in_background):
    """One of its two processes ends in the midst of a request; the other one goes on. Loaded again, both are there.

    On a server of its own: stock Triton never ends unloading a model of the Python backend whose process died, whoever called it.
    """
    repository = Repository(tmp_path / "models")
    network = repository.commanded(instances=2)
    model = repository.spleen(network)
    server = start_server(repository.root, "--model-control-mode=explicit", f"--load-model={network}", f"--load-model={model}")
    go = tmp_path / "go"
    running = in_background(lambda: clients.grpc(server, model, volume, request_id=f"when({str(go)!r}, good(x))"))
    wait_for(go.with_suffix(".begun").exists)
    # The server does not start the process again by itself: the next request of that process fails as clearly.
    for command in ("os._exit(1)", ""):
        text = refused(clients.http, server, model, volume, command)
        assert f"model '{network}' failed: Stub process" in text and "is not healthy" in text, text
    go.touch()
    good.assert_is(running.result())
    server.http().unload_model(network)
    wait_for(lambda: not server.http().is_model_ready(network))
    assert f"model '{network}' cannot be called" in refused(clients.http, server, model, volume, "")
    server.http().load_model(network)
    for _ in range(3):
        good.assert_is(clients.grpc(server, model, volume))
    # A server that is killed leaves what its networks have in /dev/shm.
    regions = [Path(path) for path in descriptors(server.process.pid) if path.startswith("/dev/shm/")]
    assert regions
    server.kill()
    for region in regions:
        region.unlink(missing_ok=True)
