"""Which voxels are sent: never fewer than the server's own box, and only where the configuration allows to know it."""

from __future__ import annotations

import numpy as np
import pytest
from spleen_client.foreground import Rule, box

A_MIN = np.float32(-57)


def test_defaults_are_those_of_the_backend():
    assert Rule.of_parameters({}) == Rule(A_MIN, (0, 0, 0))


@pytest.mark.parametrize(
    ("parameters", "reach"),
    [
        ({"margin": "3"}, (3, 3, 3)),
        ({"margin": "[1, 2, 3]", "k_divisible": "4,1,0"}, (4, 2, 3)),
        ({"b_min": "-1", "k_divisible": "16"}, (15, 15, 15)),
        ({"b_min": "None"}, (0, 0, 0)),
    ],
)
def test_the_box_reaches_as_far_as_the_server_may(parameters, reach):
    assert Rule.of_parameters(parameters).reach == reach


@pytest.mark.parametrize("parameters", [{"b_min": "0.1"}, {"a_min": "low"}, {"margin": "1,2"}, {"a_min": "nan"}])
def test_where_nothing_can_be_said_the_whole_volume_is_sent(parameters):
    assert Rule.of_parameters(parameters) is None
    assert box(np.zeros((2, 3, 4)), None) == (slice(0, 2), slice(0, 3), slice(0, 4))


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
def test_the_box_is_that_of_all_voxels_above_a_min(dtype):
    volume = np.full((9, 8, 7), -57, dtype)
    volume[2, 3, 4] = volume[5, 1, 6] = -56
    assert box(volume, Rule(A_MIN, (0, 0, 0))) == (slice(2, 6), slice(1, 4), slice(4, 7))
    assert box(volume, Rule(A_MIN, (1, 2, 9))) == (slice(1, 7), slice(0, 6), slice(0, 7))


def test_without_foreground_there_is_no_box():
    volume = np.full((3, 3, 3), np.nan, np.float32)
    volume[0] = -57
    assert box(volume, Rule(A_MIN, (0, 0, 0))) is None
