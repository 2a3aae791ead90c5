#!/usr/bin/env python3
"""Writes the segmentation network that models/segmentation_3d serves, as TorchScript with its config.pbtxt.

    scripts/export_model.py --random [OUT.pt]
    scripts/export_model.py --bundle DIR_OR_ZIP [OUT.pt]
    scripts/export_model.py --state-dict FILE.pt [--unet '{"channels": [8, 16, 32], "strides": [2, 2]}'] [OUT.pt]
    scripts/export_model.py --torchscript FILE.ts [OUT.pt]

--random is the network of MONAI's spleen tutorials (a 3-D UNet of 4.8 million parameters) with seeded random weights,
for tests and benchmarks. --bundle takes a MONAI bundle such as spleen_ct_segmentation: models/model.ts, or models/model.pt
with the network_def of its configs (a bundle's configs may run code: export only those that you trust). --state-dict takes
the weights of a MONAI UNet with the arguments in --unet, which are added to the tutorial's.

The network must map [1,1,D,H,W] to [1,C,D,H,W]. OUT.pt defaults to models/segmentation_3d/1/model.pt. The configuration
goes beside the version folder of OUT.pt (../config.pbtxt) unless --no-config is given.

Runs in the `test` environment: scripts/setup.sh test
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import torch_environment

try:
    import torch
    from monai.networks.nets import UNet
except ModuleNotFoundError as missing:
    torch_environment.needed(missing, __doc__)

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


def load_torchscript(path: Path) -> torch.jit.ScriptModule:
    try:
        return torch.jit.load(str(path), map_location="cpu").eval()
    except (RuntimeError, ValueError, OSError) as error:
        raise ExportError(f"{path} is no TorchScript file: {first_line(error)}") from error


def load_weights(network: torch.nn.Module, path: Path) -> torch.nn.Module:
    """Puts the weights of a checkpoint into the network."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ExportError(f"{path} is no file of weights (a state dict): {first_line(error)}") from error
    # Training scripts often save more than the weights, under one of these names.
    for key in ("model", "state_dict", "network", "net"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ExportError(f"{path} holds no state dict (names with tensors)")
    # Left by DataParallel.
    state = {key.removeprefix("module."): value for key, value in state.items()}
    own = network.state_dict()
    problems = [
        *(f"{key} is missing" for key in own if key not in state),
        *(f"{key} is not the network's" for key in state if key not in own),
        *(
            f"{key} has shape {list(state[key].shape)} where the network has {list(own[key].shape)}"
            for key in own
            if key in state and state[key].shape != own[key].shape
        ),
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ExportError(f"the weights in {path} are not those of this network: {'; '.join(problems[:3])}{more}")
    network.load_state_dict(state)
    return network


def state_dict_network(path: Path, unet: str) -> torch.nn.Module:
    try:
        arguments = {**TUTORIAL_UNET, **json.loads(unet)}
        network = UNet(**arguments)
    except (ValueError, TypeError) as error:
        raise ExportError(f"--unet {unet} does not describe a MONAI UNet: {first_line(error)}") from error
    return load_weights(network, path)


def bundle_network(path: Path) -> torch.nn.Module:
    """The network of a MONAI bundle, a folder or a zip of one."""
    if path.is_dir():
        return bundle_folder_network(path)
    if not zipfile.is_zipfile(path):
        raise ExportError(f"{path} is neither a folder nor a zip file")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        roots = sorted((p.parent for p in Path(folder).rglob("models") if p.is_dir()), key=lambda p: len(p.parts))
        if not roots:
            raise ExportError(f"{path} holds no folder models/, so it is no MONAI bundle")
        return bundle_folder_network(roots[0])


def bundle_folder_network(folder: Path) -> torch.nn.Module:
    script, weights = folder / "models" / "model.ts", folder / "models" / "model.pt"
    if script.exists():
        return load_torchscript(script)
    if not weights.exists():
        raise ExportError(f"{folder} holds neither models/model.ts nor models/model.pt, so it is no MONAI bundle with a network")
    configs = [folder / "configs" / name for name in ("inference.json", "train.json", "inference.yaml", "train.yaml")]
    config = next((c for c in configs if c.exists()), None)
    if config is None:
        raise ExportError(f"{folder} has weights but none of {', '.join(f'configs/{c.name}' for c in configs)} to say of which network")
    from monai.bundle import ConfigParser

    parser = ConfigParser()
    try:
        parser.read_config(str(config))
        if "network_def" not in parser.config:
            raise ExportError(f"{config} has no network_def")
        network = parser.get_parsed_content("network_def", instantiate=True)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"the network_def of {config} cannot be built: {first_line(error)}") from error
    return load_weights(network, weights)


def to_torchscript(network: torch.nn.Module) -> torch.jit.ScriptModule:
    """Scripts the network, so that it takes volumes of any size that its strides divide."""
    network = network.cpu().eval()
    if isinstance(network, torch.jit.ScriptModule):
        return network
    try:
        return torch.jit.script(network)
    except Exception as error:
        raise ExportError(f"the network cannot be compiled to TorchScript: {first_line(error)}") from error


def check(network: torch.jit.ScriptModule, size: tuple[int, int, int]) -> int:
    """Runs one volume of this size through, and returns the number of classes."""
    volume = torch.rand(1, 1, *size)
    shape = list(volume.shape)
    try:
        with torch.no_grad():
            scores = network(volume)
    except Exception as error:
        # TorchScript puts its reason last, below a trace of its own code.
        reason = str(error).strip().splitlines()[-1]
        raise ExportError(f"the network refuses an input of shape {shape}: {reason}") from error
    if not isinstance(scores, torch.Tensor):
        raise ExportError(f"the network returns a {type(scores).__name__}; one tensor [1,C,D,H,W] is expected")
    if scores.dim() != 5 or scores.shape[0] != 1 or tuple(scores.shape[2:]) != size or scores.shape[1] < 2:
        raise ExportError(
            f"for an input of shape {shape} the network returns {list(scores.shape)}; "
            f"[1,C,{','.join(map(str, size))}] with C of 2 or more is expected"
        )
    if scores.dtype not in (torch.float32, torch.float16):
        raise ExportError(f"the network returns {scores.dtype}; float32 or float16 is expected")
    return scores.shape[1]


def config_text(classes: int, spatial_size: tuple[int, int, int] = SPATIAL_SIZE) -> str:
    """The shipped configuration, with this network's number of classes and this size."""
    size = ", ".join(map(str, spatial_size))
    text = SHIPPED_CONFIG.read_text()
    # The network's own dims are the only two lines of four numbers: one channel in, one for each class out.
    lines = []
    for line in text.splitlines():
        if line.strip().startswith("dims: ["):
            channels = 1 if not any("dims: [" in earlier for earlier in lines) else classes
            line = f"{line[: line.index('[')]}[ {channels}, {size} ]"
        lines.append(line)
    return "\n".join(lines) + "\n"


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def three_integers(text: str) -> tuple[int, int, int]:
    values = tuple(int(value) for value in text.split(","))
    if len(values) != 3 or min(values) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not three numbers such as 224,224,224")
    return values


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s SOURCE [options] [OUT.pt]"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--random", action="store_true", help="the tutorial's UNet with random weights")
    source.add_argument("--bundle", type=Path, metavar="DIR_OR_ZIP", help="a MONAI bundle")
    source.add_argument("--state-dict", type=Path, metavar="FILE", help="the weights of a MONAI UNet")
    source.add_argument("--torchscript", type=Path, metavar="FILE", help="a network that is TorchScript already")
    parser.add_argument("out", nargs="?", type=Path, default=DEFAULT_OUT, metavar="OUT.pt", help=f"default: {DEFAULT_OUT}")
    parser.add_argument("--unet", default="{}", metavar="JSON", help="with --state-dict: arguments of the UNet")
    parser.add_argument("--seed", type=int, default=0, help="with --random (default 0)")
    parser.add_argument("--size", type=three_integers, default=SPATIAL_SIZE, help="spatial_size of spleen_seg (default 224,224,224)")
    parser.add_argument("--no-config", action="store_true", help="write the network only")
    return parser.parse_args()


def network_of(args: argparse.Namespace) -> torch.nn.Module:
    for given in (args.bundle, args.state_dict, args.torchscript):
        if given is not None and not given.exists():
            raise ExportError(f"{given} does not exist")
    if args.bundle:
        return bundle_network(args.bundle)
    if args.state_dict:
        return state_dict_network(args.state_dict, args.unet)
    if args.torchscript:
        return load_torchscript(args.torchscript)
    return random_network(args.seed)


def main() -> int:
    args = arguments()
    try:
        network = to_torchscript(network_of(args))
        # The size that will be served, if it is small enough to be tried in a moment; else one that shows the same.
        size = args.size if max(args.size) <= 128 else (64, 96, 128)
        classes = check(network, size)
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    args.out.parent.mkdir(parents=True, exist_ok=True)
    network.save(str(args.out))
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, {classes} classes")
    if not args.no_config:
        config = args.out.parent.parent / "config.pbtxt"
        # Read before it is written: by default it is the shipped file itself.
        text = config_text(classes, args.size)
        config.write_text(text)
        print(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
