#!/usr/bin/env python3
"""What MEMORY_FORMAT and AUTOCAST of torchscript_backend do to a network's mask, and to its CPU time.

    scripts/compare_network.py CT.nii.gz [--model MODEL.pt] [--rounds 2] [--settings contiguous channels_last_3d+bfloat16 ..]

A scan goes through MONAI's transforms with the shipped parameters of spleen_seg, then through the network with each setting in turn,
`rounds` times, in one process with the libtorch that torchscript_backend has. The first setting is the one that the others are compared with:

    scores   the largest difference of a class score
    argmax   voxels of the network's grid whose class changes
    mask     the same in the largest component, and the Dice coefficient of both masks
    CPU      user and system seconds of the fastest round, as a multiple of the first setting's

Runs in the `test` environment: scripts/setup.sh test
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

import torch_environment

try:
    import torch
    from monai.transforms import KeepLargestConnectedComponent
    from train_demo import preprocess
except ModuleNotFoundError as missing:
    torch_environment.needed(missing, __doc__)

ROOT = Path(__file__).resolve().parent.parent
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FORMATS = ("contiguous", "channels_last_3d")


class Network:
    """A TorchScript file as the backend loads and calls it with one setting: FORMAT or FORMAT+TYPE."""

    def __init__(self, path: Path, setting: str) -> None:
        memory_format, _, half = setting.partition("+")
        if memory_format not in FORMATS or half not in ("", *HALF):
            raise SystemExit(f"error: setting {setting}; accepted: {', '.join(FORMATS)}, each also with +bfloat16 or +float16")
        self.module = torch.jit.load(str(path), map_location="cpu")
        self.last = memory_format == "channels_last_3d"
        self.half = HALF.get(half)
        if self.last:
            for parameter in self.module.parameters():
                if parameter.dim() == 5:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last_3d)

    def __call__(self, volume: torch.Tensor) -> torch.Tensor:
        if self.last:
            d, h, w = volume.shape[2:]
            volume = volume.as_strided(volume.shape, (d * h * w, 1, h * w, w, 1))
        with torch.no_grad(), torch.autocast("cpu", self.half or torch.bfloat16, enabled=self.half is not None):
            return self.module(volume).float()


def network_input(scan: Path) -> torch.Tensor:
    """The scan as spleen_seg hands it to the network, in the axis order of the demonstration network: RAS."""
    import nibabel

    image = nibabel.as_closest_canonical(nibabel.load(scan))
    volume, _ = preprocess(image.get_fdata(dtype="float32"))
    return torch.from_numpy(volume)[None, None]


def largest_component(scores: torch.Tensor) -> torch.Tensor:
    return KeepLargestConnectedComponent(applied_labels=[1])(scores.argmax(1)).as_tensor()[0] > 0


def dice(one: torch.Tensor, two: torch.Tensor) -> float:
    total = int(one.sum() + two.sum())
    return 2 * int((one & two).sum()) / total if total else 1.0


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compare(volume: torch.Tensor, model: Path, settings: list[str], rounds: int) -> list[dict]:
    """One row for each setting, the first compared with itself."""
    networks = [Network(model, setting) for setting in settings]
    times, scores = [[] for _ in networks], [None] * len(networks)
    for _ in range(rounds):
        for at, network in enumerate(networks):
            start = cpu_seconds()
            scores[at] = network(volume)
            times[at].append(cpu_seconds() - start)
    first = largest_component(scores[0])
    rows = []
    for setting, result, seconds in zip(settings, scores, times):
        mask = largest_component(result)
        rows.append(
            {
                "setting": setting,
                "scores": float((result - scores[0]).abs().max()),
                "argmax": int((result.argmax(1) != scores[0].argmax(1)).sum()),
                "mask": int((mask != first).sum()),
                "of": int(first.sum()),
                "dice": dice(mask, first),
                "cpu": min(seconds) / min(times[0]),
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scan", type=Path, help="NIfTI")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "segmentation_3d" / "1" / "model.pt")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--settings", nargs="+", default=["contiguous", "channels_last_3d", "channels_last_3d+bfloat16", "channels_last_3d+float16"])
    args = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, PyTorch {torch.__version__}")
    print("| setting | scores | argmax | mask | Dice | CPU |\n|---|---:|---:|---:|---:|---:|")
    for row in compare(network_input(args.scan), args.model, args.settings, args.rounds):
        print("| {setting} | {scores:.1e} | {argmax:,} | {mask:,} of {of:,} | {dice:.5f} | {cpu:.2f} |".format(**row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
