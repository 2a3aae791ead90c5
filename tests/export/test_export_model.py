"""scripts/export_model.py: every kind of network that people bring, and what it says of those that cannot be served."""

from __future__ import annotations

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from monai.networks.nets import UNet

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import export_model  # noqa: E402: found through the line above

SMALL = {"channels": [4, 8], "strides": [2], "num_res_units": 0}


def export(*arguments: str, fails: bool = False) -> str:
    """What the script prints. It runs in this process, for importing torch takes longer than all that is tested."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["export_model.py", *arguments])
        status = export_model.main()
    assert (status != 0) == fails, out.getvalue() + err.getvalue()
    return err.getvalue() if fails else out.getvalue()


def small_unet(classes: int = 2, seed: int = 1) -> UNet:
    torch.manual_seed(seed)
    return UNet(spatial_dims=3, in_channels=1, out_channels=classes, norm="batch", **SMALL).eval()


def served(folder: Path) -> Path:
    return folder / "segmentation_3d" / "1" / "model.pt"


def assert_same_network(path: Path, network: torch.nn.Module) -> None:
    volume = torch.rand(1, 1, 16, 24, 32)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.load(str(path))(volume), network(volume))


@pytest.fixture
def bundle(tmp_path) -> Path:
    """A bundle in the layout of MONAI's spleen_ct_segmentation, three classes."""
    folder = tmp_path / "organ_bundle"
    (folder / "configs").mkdir(parents=True)
    (folder / "models").mkdir()
    torch.save(small_unet(3).state_dict(), folder / "models" / "model.pt")
    config = {
        "imports": ["$import glob"],
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "network_def": {"_target_": "UNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 3, "norm": "batch", **SMALL},
        "network": "$@network_def.to(@device)",
    }
    (folder / "configs" / "inference.json").write_text(json.dumps(config))
    return folder


def test_bundle_folder(bundle, tmp_path):
    out = served(tmp_path / "out")
    assert "3 classes" in export("--bundle", str(bundle), str(out), "--size", "96,80,64")
    assert_same_network(out, small_unet(3))
    shipped = (ROOT / "models" / "segmentation_3d" / "config.pbtxt").read_text()
    config = (out.parent.parent / "config.pbtxt").read_text()
    assert config == shipped.replace("1, 224, 224, 224", "1, 96, 80, 64").replace("2, 224, 224, 224", "3, 96, 80, 64")


def test_bundle_zip(bundle, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "bundle"), "zip", root_dir=bundle.parent, base_dir=bundle.name)
    export("--bundle", archive, str(served(tmp_path / "out")))
    assert_same_network(served(tmp_path / "out"), small_unet(3))


def test_bundle_with_torchscript(bundle, tmp_path):
    torch.jit.script(small_unet(2, seed=9)).save(str(bundle / "models" / "model.ts"))
    export("--bundle", str(bundle), str(served(tmp_path / "out")))
    assert_same_network(served(tmp_path / "out"), small_unet(2, seed=9))


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"epoch": 3, "state_dict": s}, lambda s: {f"module.{k}": v for k, v in s.items()}])
def test_state_dict(tmp_path, wrap):
    weights = tmp_path / "weights.pt"
    torch.save(wrap(small_unet().state_dict()), weights)
    export("--state-dict", str(weights), "--unet", json.dumps(SMALL), str(served(tmp_path / "out")))
    assert_same_network(served(tmp_path / "out"), small_unet())


def test_torchscript(tmp_path):
    path = tmp_path / "own.ts"
    torch.jit.script(small_unet()).save(str(path))
    export("--torchscript", str(path), str(served(tmp_path / "out")), "--no-config")
    assert_same_network(served(tmp_path / "out"), small_unet())
    assert not (tmp_path / "out" / "segmentation_3d" / "config.pbtxt").exists()


def test_random_is_reproducible_and_decides(tmp_path):
    networks = []
    for name in ("a", "b"):
        export("--random", str(served(tmp_path / name)))
        config = served(tmp_path / name).parent.parent / "config.pbtxt"
        assert config.read_text() == (ROOT / "models" / "segmentation_3d" / "config.pbtxt").read_text()
        networks.append(torch.jit.load(str(served(tmp_path / name))))
    assert 4.7e6 < sum(p.numel() for p in networks[0].parameters()) < 4.9e6
    for size in ((32, 32, 32), (16, 48, 64)):
        volume = torch.rand(1, 1, *size)
        with torch.no_grad():
            first, second = (network(volume) for network in networks)
        assert first.shape == (1, 2, *size)
        assert torch.equal(first, second)
        assert 0 < float(first.argmax(1).float().mean()) < 1


class TwoD(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, 0]


class OneClass(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x], 1)[:, :, ::2]


class TwoTensors(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return x, x


class ThreeChannels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv3d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (TwoD, ["[1, 1, 96, 128]", "[1,C,64,96,128]"]),
        (OneClass, ["[1, 1, 64, 96, 128]", "C of 2"]),
        (Halves, ["[1, 2, 32, 96, 128]"]),
        (TwoTensors, ["tuple", "one tensor"]),
        (ThreeChannels, ["[1, 1, 64, 96, 128]", "channels"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_networks_that_cannot_be_served(tmp_path, network, words):
    path = tmp_path / "own.ts"
    torch.jit.script(network()).save(str(path))
    text = export("--torchscript", str(path), str(served(tmp_path / "out")), fails=True)
    for word in words:
        assert word in text, text
    assert not served(tmp_path / "out").exists()


def test_what_is_wrong_with_the_files(bundle, tmp_path):
    out = str(served(tmp_path / "out"))
    nothing = tmp_path / "nothing"
    assert str(nothing) in export("--bundle", str(nothing), out, fails=True)
    text = tmp_path / "text.pt"
    text.write_text("not a network")
    assert "neither a folder nor a zip" in export("--bundle", str(text), out, fails=True)
    assert "no TorchScript" in export("--torchscript", str(text), out, fails=True)
    assert "state dict" in export("--state-dict", str(text), out, fails=True)

    weights = tmp_path / "weights.pt"
    torch.save(small_unet().state_dict(), weights)
    assert "more" in export("--state-dict", str(weights), out, fails=True)  # the tutorial's UNet is another network
    assert "--unet" in export("--state-dict", str(weights), "--unet", "{", out, fails=True)
    assert "--unet" in export("--state-dict", str(weights), "--unet", '{"chanels": [1]}', out, fails=True)

    (bundle / "configs" / "inference.json").write_text(json.dumps({"network": 1}))
    assert "network_def" in export("--bundle", str(bundle), out, fails=True)
    (bundle / "configs" / "inference.json").unlink()
    assert "configs/inference.json" in export("--bundle", str(bundle), out, fails=True)
    (bundle / "models" / "model.pt").unlink()
    assert "models/model.ts" in export("--bundle", str(bundle), out, fails=True)
