"""A backend that panics, on stock Triton: an error with the panic's text, and the server and the next request go on."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http
from checks import TRIED
from leaks import threads, wait_for
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.usefixtures("nothing_is_left")
GIVEN = np.arange(6, dtype=np.float32)


def panics(models, at: str = "") -> str:
    """A model of the example `panics`, written."""
    name = models.write.name("panics")
    TRIED["panics"] += bool(at)
    tensors = "".join(f'{kind} [ {{ name: "{tensor}" data_type: TYPE_FP32 dims: [ -1 ] }} ]\n' for kind, tensor in (("input", "IN"), ("output", "OUT")))
    parameter = f'parameters {{ key: "panic" value {{ string_value: "{at}" }} }}\n'
    models.write.write(name, f'name: "{name}"\nbackend: "panics"\n{tensors}{parameter}instance_group [ {{ kind: KIND_CPU }} ]\n')
    return name


def echo(client, model: str, place: str = "") -> np.ndarray:
    TRIED["panics"] += bool(place)
    given = tritonclient.http.InferInput("IN", list(GIVEN.shape), "FP32")
    given.set_data_from_numpy(GIVEN)
    return client.infer(model, [given], request_id=place).as_numpy("OUT")


def test_a_request_gets_the_panics_text_and_the_next_one_its_answer(server, models):
    model = models.load(panics(models))
    before = threads(server.process.pid)
    for place in ("start", "output", "thread") * 3:
        with pytest.raises(InferenceServerException) as error:
            echo(models.client, model, place)
        # On a thread of the author's own nobody but the thread knows the text; the request is answered all the same.
        words = "dropped this request" if place == "thread" else f"fault in start: told to panic at {place}"
        assert words in error.value.message(), error.value
        assert error.value.status() == "500"
        np.testing.assert_array_equal(echo(models.client, model), GIVEN)
    # A panic after the answer takes nothing back.
    np.testing.assert_array_equal(echo(models.client, model, "answered"), GIVEN)
    np.testing.assert_array_equal(echo(models.client, model), GIVEN)
    (statistics,) = models.client.get_inference_statistics(model)["model_stats"]
    assert statistics["inference_stats"]["fail"]["count"] == 9
    assert statistics["inference_stats"]["success"]["count"] == 11
    wait_for(lambda: not threads(server.process.pid) - before)


@pytest.mark.parametrize(("place", "stage"), [("load", "model_initialize"), ("create", "instance_initialize")])
def test_a_panic_while_loading_refuses_the_load(models, place, stage):
    with pytest.raises(InferenceServerException) as error:
        models.client.load_model(panics(models, place))
    assert f"fault in {stage}: told to panic at {place}" in error.value.message()


@pytest.mark.parametrize("place", ["instance's end", "model's end"])
def test_a_panic_while_unloading_is_a_line_in_the_log(server, models, place):
    model = models.load(panics(models, place))
    np.testing.assert_array_equal(echo(models.client, model), GIVEN)
    models.unload(model)
    wait_for(lambda: any(line.startswith("E") and f"told to panic at {place}" in line for line in server.text().splitlines()))
    np.testing.assert_array_equal(echo(models.client, models.load(panics(models))), GIVEN)
