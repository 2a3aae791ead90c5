"""scripts/compare_network.py: what it says of settings that change nothing, little and something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compare_network  # noqa: E402: found through the line above


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(4, 2, 3, padding=1))
    path = tmp_path_factory.mktemp("network") / "model.pt"
    torch.jit.script(network).save(str(path))
    return path


def test_rounding_is_told_from_half_precision(model):
    volume = torch.rand(1, 1, 16, 16, 16, generator=torch.Generator().manual_seed(4))
    settings = ["contiguous", "contiguous", "channels_last_3d", "channels_last_3d+bfloat16", "contiguous+float16"]
    same, rerun, last, brain, half = compare_network.compare(volume, model, settings, rounds=1)
    assert same["scores"] == rerun["scores"] == rerun["argmax"] == rerun["mask"] == 0 and rerun["dice"] == 1
    assert last["scores"] < 1e-5 < half["scores"] < brain["scores"] < 0.1
    assert brain["of"] > 0 and brain["dice"] > 0.9


def test_voxels_and_dice_are_counted():
    one, two = torch.zeros(2, 4, 4, 4, dtype=torch.bool)
    assert compare_network.dice(one, two) == 1
    one[0, 0, :3] = True
    two[0, 0, 2:] = True
    assert compare_network.dice(one, two) == pytest.approx(2 * 1 / (3 + 2))
    scores = torch.zeros(1, 2, 4, 4, 4)
    scores[0, 1, 0, 0, :2] = 1
    scores[0, 1, 3, 3, 3] = 1
    assert compare_network.largest_component(scores).sum() == 2


def test_an_unknown_setting_is_named(model):
    with pytest.raises(SystemExit, match="channels_last; accepted: contiguous, channels_last_3d"):
        compare_network.Network(model, "channels_last")
