#!/usr/bin/env python3
"""Writes the segmentation network that models/segmentation_3d serves, as TorchScript with its config.pbtxt.

    scripts/export_model.py --random [OUT.pt]

--random is the network of MONAI's spleen tutorials (a 3-D UNet of 4.8 million parameters) with seeded random weights,
for tests and benchmarks. OUT.pt defaults to models/segmentation_3d/1/model.pt. The configuration goes beside the version
folder of OUT.pt (../config.pbtxt) unless --no-config is given.

Runs in the `test` environment: scripts/setup.sh test
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from monai.networks.nets import UNet

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUT = ROOT / "models" / "segmentation_3d" / "1" / "model.pt"
SHIPPED_CONFIG = ROOT / "models" / "segmentation_3d" / "config.pbtxt"

# The network of the tutorial that this project replaces; its pre-processing makes volumes of 224 voxels a side.
TUTORIAL_UNET = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 2,
    "channels": (16, 32, 64, 128, 256),
    "strides": (2, 2, 2, 2),
    "num_res_units": 2,
    "norm": "batch",
}
SPATIAL_SIZE = (224, 224, 224)


class ExportError(Exception):
    """What is wrong with a network, in words for the person who brought it."""


def random_network(seed: int = 0, arguments: dict = TUTORIAL_UNET) -> torch.nn.Module:
    """A UNet with reproducible random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = UNet(**arguments)
        # A fresh batch norm knows no data: its mean of 0 and variance of 1 let activations vanish with depth, and one class
        # would win everywhere. One pass over noise gives it the statistics that training on such data would.
        norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm3d)]
        for norm in norms:
            norm.momentum = 1.0
        network.train()
        with torch.no_grad():
            network(torch.rand(1, arguments["in_channels"], 64, 64, 64))
        for norm in norms:
            norm.momentum = 0.1
    return network.eval()


def to_torchscript(network: torch.nn.Module) -> torch.jit.ScriptModule:
    """Scripts the network, so that it takes volumes of any size that its strides divide."""
    try:
        return torch.jit.script(network.eval())
    except Exception as error:
        raise ExportError(f"the network cannot be compiled to TorchScript: {error}") from error


def check(network: torch.jit.ScriptModule, size: tuple[int, int, int] = (32, 48, 64)) -> int:
    """Runs a small volume through, and returns the number of classes."""
    volume = torch.rand(1, 1, *size)
    try:
        with torch.no_grad():
            scores = network(volume)
    except Exception as error:
        raise ExportError(f"the network refuses an input of shape {list(volume.shape)}: {error}") from error
    if not isinstance(scores, torch.Tensor):
        raise ExportError(f"the network returns {type(scores).__name__}; one tensor [1,C,D,H,W] is expected")
    if scores.dim() != 5 or scores.shape[0] != 1 or tuple(scores.shape[2:]) != size or scores.shape[1] < 2:
        raise ExportError(
            f"for an input of shape {list(volume.shape)} the network returns {list(scores.shape)}; "
            f"[1,C,{','.join(map(str, size))}] with C of 2 or more is expected"
        )
    if scores.dtype not in (torch.float32, torch.float16):
        raise ExportError(f"the network returns {scores.dtype}; float32 or float16 is expected")
    return scores.shape[1]


def config_text(classes: int, spatial_size: tuple[int, int, int] = SPATIAL_SIZE) -> str:
    """The shipped configuration, with this network's number of classes and this size."""
    shipped = SHIPPED_CONFIG.read_text()
    size = ", ".join(map(str, spatial_size))
    text = shipped.replace("dims: [ 1, 224, 224, 224 ]", f"dims: [ 1, {size} ]")
    return text.replace("dims: [ 2, 224, 224, 224 ]", f"dims: [ {classes}, {size} ]")


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the segmentation network as TorchScript with its config.pbtxt.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--random", action="store_true", help="the tutorial's UNet with random weights")
    parser.add_argument("out", nargs="?", type=Path, default=DEFAULT_OUT, metavar="OUT.pt", help=f"default: {DEFAULT_OUT}")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default 0)")
    parser.add_argument("--no-config", action="store_true", help="write the network only")
    arguments = parser.parse_args()

    try:
        network = to_torchscript(random_network(arguments.seed))
        classes = check(network)
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    network.save(str(arguments.out))
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB, {classes} classes")
    if not arguments.no_config:
        config = arguments.out.parent.parent / "config.pbtxt"
        # Read before it is written: by default it is the shipped file itself.
        text = config_text(classes)
        config.write_text(text)
        print(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
