"""Configurations that load, and those that are refused: with the field, its value and what is accepted."""

from __future__ import annotations

import re

import clients
import numpy as np
import pytest
import reference
import tritonclient.http
from checks import assert_equals_monai
from models import SIZE, TWO_CLASSES, set_parameter, shipped_config

Refused = tritonclient.http.InferenceServerException


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    return reference.blobs((50, 41, 37), seed=9)[None]


def test_shipped_parameters_are_the_defaults(server, models, volume):
    """A configuration without any parameter but the small size and the child gives the same as the shipped one."""
    child = models.two_classes
    config = re.sub(r"^parameters .*\n", "", shipped_config(), flags=re.MULTILINE)
    name = models.write.name("bare")
    config = config.replace("spleen_seg", name).replace("224, 224, 224", ", ".join(map(str, SIZE)))
    config = set_parameter(config, "spatial_size", ",".join(map(str, SIZE)))
    models.write.write(name, set_parameter(config, "segmentation_model", child))
    bare = clients.http(server, models.load(name), volume)
    shipped = clients.http(server, models.spleen(child), volume)
    assert_equals_monai(bare, volume)
    for output in clients.OUTPUTS:
        np.testing.assert_array_equal(bare.arrays[output], shipped.arrays[output])


def test_inputs_and_outputs_are_completed(server, models, volume):
    model = models.pair(drop=("input", "output"))
    config = server.http().get_model_config(model)
    assert [(i["name"], i["data_type"]) for i in config["input"]] == [("INPUT0", "TYPE_FP32")]
    assert [int(d) for d in config["input"][0]["dims"]] == [-1, -1, -1]
    outputs = [(o["name"], o["data_type"], [int(d) for d in o["dims"]]) for o in config["output"]]
    assert outputs == [(name, "TYPE_FP32", [1, *SIZE]) for name in ("MASK", "CONTOUR")]
    assert_equals_monai(clients.http(server, model, volume), volume)


def test_batches(server, models):
    """Two volumes in one request; each has its own box."""
    model = models.pair(max_batch_size=4)
    first = reference.blobs((40, 44, 36), seed=10)
    second = np.full_like(first, -1000.0)
    second[5:30, 10:40, 3:20] = first[5:30, 10:40, 3:20]
    volumes = np.stack([first, second])
    answer = clients.http(server, model, volumes)
    assert_equals_monai(answer, volumes)
    starts = answer.boxes()[0]
    assert starts[0] != starts[1]


def test_requests_of_a_dynamic_batch_have_their_own_fate(server, models):
    """One Execute with three requests, the middle one bad: two right answers and one error."""
    extra = "\ndynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: [ 3 ] }\n"
    model = models.pair(max_batch_size=4, extra=extra)
    good = reference.blobs((40, 44, 36), seed=11)[None]
    client = server.http()
    pending = []
    for volume in (good, np.full_like(good, -1000.0), good):
        given = tritonclient.http.InferInput("INPUT0", list(volume.shape), "FP32")
        given.set_data_from_numpy(volume)
        pending.append(client.async_infer(model, [given]))
    answers = []
    for number, handle in enumerate(pending):
        if number == 1:
            with pytest.raises(Refused):
                handle.get_result()
        else:
            answers.append(clients.http_answer(handle.get_result()))
    for answer in answers:
        assert_equals_monai(answer, good)


def test_without_a_batch_axis_of_triton(server, models):
    child = models.child(dims=(-1, -1, -1, -1, -1), max_batch_size=0)
    model = models.spleen(child, max_batch_size=0)
    volumes = np.stack([reference.blobs((40, 44, 36), seed=seed) for seed in (12, 13)])
    assert_equals_monai(clients.http(server, model, volumes), volumes)


def test_variable_output_dims(server, models, volume):
    name = models.write.name("variable")
    child = models.two_classes
    config = shipped_config().replace("spleen_seg", name).replace("[ 1, 224, 224, 224 ]", "[ 1, -1, -1, -1 ]")
    for key, value in {"segmentation_model": child, "spatial_size": ",".join(map(str, SIZE))}.items():
        config = set_parameter(config, key, value)
    models.write.write(name, config)
    assert_equals_monai(clients.http(server, models.load(name), volume), volume)


@pytest.mark.parametrize("mode", ["area", "trilinear", "nearest", "nearest-exact"])
def test_resize_modes(server, models, volume, mode):
    assert_equals_monai(clients.http(server, models.pair({"mode": mode}), volume), volume, mode=mode)


@pytest.mark.parametrize("allow_smaller", [True, False])
def test_margin(server, models, volume, allow_smaller):
    scan = np.full_like(volume, -1000.0)
    scan[0, 2:40, 3:35, 1:30] = np.maximum(volume[0, 2:40, 3:35, 1:30], -40.0)
    model = models.pair({"margin": "6", "allow_smaller": str(allow_smaller).lower()})
    assert_equals_monai(clients.http(server, model, scan), scan, margin=6, allow_smaller=allow_smaller)


def test_several_components(server, models):
    volume = reference.blobs((60, 60, 60), seed=14)[None]
    model = models.pair({"num_components": "2"})
    answer = clients.http(server, model, volume)
    assert_equals_monai(answer, volume, post={"num_components": 2})
    one = clients.http(server, models.pair(), volume)
    assert answer.arrays["MASK"].sum() > one.arrays["MASK"].sum()


def test_other_tensor_names_and_version(server, models, volume):
    child = models.child(input_name="image", output_name="scores")
    parameters = {"segmentation_input": "image", "segmentation_output": "scores", "segmentation_version": "1"}
    assert_equals_monai(clients.http(server, models.spleen(child, parameters), volume), volume)


# What people who come from the Python backend have: its outputs are INT64, its environment is packed.
PYTHON_BACKEND_CONFIG = """
name: "{name}"
backend: "spleenseg"
max_batch_size: 1

input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }} ]
output [
  {{ name: "MASK" data_type: TYPE_INT64 dims: [ 1, {dims} ] }},
  {{ name: "CONTOUR" data_type: TYPE_INT64 dims: [ 1, {dims} ] }}
]
instance_group [ {{ kind: KIND_CPU }} ]
parameters: {{ key: "EXECUTION_ENV_PATH", value: {{ string_value: "$$TRITON_MODEL_DIRECTORY/spleen_env.tar.gz" }} }}
parameters: {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS", value: {{ string_value: "no" }} }}
"""


def test_configuration_of_the_python_backend(server, models, volume):
    name = models.write.name("tutorial")
    config = PYTHON_BACKEND_CONFIG.format(name=name, dims=", ".join(map(str, SIZE))).replace("$$", "$")
    for key, value in {"segmentation_model": models.two_classes, "spatial_size": ",".join(map(str, SIZE))}.items():
        config = set_parameter(config, key, value)
    models.write.write(name, config)
    answer = clients.http(server, models.load(name), volume)
    assert answer.data_types == {"MASK": "INT64", "CONTOUR": "INT64"}
    assert_equals_monai(answer, volume)
    assert "FORCE_CPU_ONLY_INPUT_TENSORS" in server.text()
    assert "EXECUTION_ENV_PATH" in server.text()


# key, wrong value, a word of what is accepted
WRONG = [
    ("a_min", "low", "number"),
    ("a_min", "164", "a_max"),
    ("a_min", "NaN", "finite"),
    ("b_max", "-1", "b_min"),
    ("clip", "perhaps", "true"),
    ("margin", "-1", "0"),
    ("spatial_size", "96,96", "three"),
    ("mode", "bicubic", "area"),
    ("align_corners", "true", "trilinear"),
    ("is_onehot", "true", "false"),
    ("connectivity", "4", "3"),
    ("num_components", "-1", "0"),
    ("segmentation_model", "", "name"),
    ("segmentation_version", "0", "-1"),
    ("segmentation_timeout_s", "0", "above 0"),
    ("max_in_flight", "0", "1"),
]


@pytest.mark.parametrize(("key", "value", "accepted"), WRONG, ids=[f"{k}={v}" for k, v, _ in WRONG])
def test_wrong_parameters_refuse_the_load(server, models, key, value, accepted):
    name = models.write.spleen("none", {key: value})
    with pytest.raises(Refused) as refusal:
        models.load(name)
    text = str(refusal.value)
    assert key in text and accepted in text, text
    if value:
        assert value in text, text
    assert server.alive()


def test_an_unknown_parameter_refuses_the_load(server, models):
    name = models.write.spleen("none", {"a_mim": "-57"})
    with pytest.raises(Refused, match="a_mim"):
        models.load(name)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"INPUT0"', '"IN0"', "IN0"),
        ('"MASK"', '"SPLEEN"', "SPLEEN"),
        ("dims: [ -1, -1, -1 ]", "dims: [ -1, -1 ]", "INPUT0"),
        ("dims: [ 1, 24, 20, 16 ]", "dims: [ 24, 20, 16 ]", "MASK"),
        ("dims: [ 1, 24, 20, 16 ]", "dims: [ 1, 24, 20, 17 ]", "MASK"),
        ("KIND_CPU", "KIND_GPU", "GPU"),
    ],
    ids=["input name", "output name", "input rank", "output rank", "output size", "GPU"],
)
def test_wrong_tensors_refuse_the_load(server, models, old, new, named):
    name = models.write.spleen("none")
    path = models.write.root / name / "config.pbtxt"
    config = path.read_text()
    assert old in config
    path.write_text(config.replace(old, new))
    with pytest.raises(Refused, match=named):
        models.load(name)


def test_bool_is_refused_for_three_labels(server, models, volume):
    """Whether a network has three classes is only known from its answer, unless the parameters name further labels."""
    name = models.write.spleen("none", {"applied_labels": "1,2"}, data_type="TYPE_BOOL")
    with pytest.raises(Refused, match="BOOL"):
        models.load(name)


def test_two_spleen_models_share_one_child(server, models, volume):
    child = models.two_classes
    first, second = models.spleen(child), models.spleen(child, {"a_max": "120"})
    assert_equals_monai(clients.http(server, first, volume), volume, TWO_CLASSES)
    assert_equals_monai(clients.http(server, second, volume), volume, TWO_CLASSES, a_max=120.0)
