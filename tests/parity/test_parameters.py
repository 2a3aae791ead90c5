"""What MONAI cannot do is refused when the model is loaded, and its defaults are what the table says."""

from __future__ import annotations

import inspect

import monai_steps
import numpy as np
import pytest
from monai.transforms import CropForeground, KeepLargestConnectedComponent, Resize, ScaleIntensityRange
from rust_steps import Refused

VOLUME = np.random.default_rng(0).normal(50, 100, (6, 7, 8)).astype(np.float32)
LABELS = (VOLUME > 50).astype(np.uint8)


@pytest.mark.parametrize(
    "parameters",
    [
        {"b_min": None, "b_max": None},
        {"margin": -1},
        {"margin": [1, -2, 0]},
        {"mode": "area", "align_corners": True},
        {"mode": "area", "align_corners": False},
        {"mode": "nearest", "align_corners": False},
        {"mode": "nearest-exact", "align_corners": True},
        {"mode": "median"},
        {"spatial_size": [3, 3]},
        {"connectivity": 0},
        {"connectivity": 4},
        {"is_onehot": True},
        {"is_onehot": True, "applied_labels": [1, 2], "independent": False},
    ],
    ids=str,
)
def test_what_monai_refuses_is_refused_with_key_and_value(steps, parameters):
    with pytest.raises(Exception):  # noqa: B017, PT011: MONAI, torch and scikit-image each have their own
        monai_steps.prepare({"spatial_size": [3, 3, 3], **parameters}, VOLUME)
        monai_steps.keep_largest(parameters, LABELS)
    with pytest.raises(Refused, match="accepted") as refused:
        steps.config(parameters)
    assert refused.value.code == "InvalidArg"
    assert any(f'"{key}"' in str(refused.value) for key in ("clip", *parameters))


def test_names_are_monais(steps):
    taken = {
        name
        for transform in (ScaleIntensityRange, CropForeground, Resize, KeepLargestConnectedComponent)
        for name in inspect.signature(transform).parameters
    }
    assert monai_steps.DEFAULTS.keys() <= taken
    assert steps.config(monai_steps.DEFAULTS) == {"ignored": []}


def test_defaults_are_those_compared_with(steps):
    (default,) = steps.prepare({}, VOLUME)
    (given,) = steps.prepare(monai_steps.DEFAULTS, VOLUME)
    np.testing.assert_array_equal(default.resized, given.resized)
    np.testing.assert_array_equal(steps.keep_largest({}, LABELS), steps.keep_largest(monai_steps.DEFAULTS, LABELS))


def test_what_the_python_backend_needs_is_accepted(steps):
    given = {"FORCE_CPU_ONLY_INPUT_TENSORS": "no", "EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/env.tar.gz"}
    assert sorted(steps.config(given)["ignored"]) == sorted(given)
