#!/usr/bin/env python3
"""Trains the demonstration network on synthetic phantoms. Synthetic data only: not for clinical use.

    scripts/train_demo.py data  --cache DIR            phantoms through the pipeline's pre-processing, once
    scripts/train_demo.py train --cache DIR            trains; may be stopped and started again at any time
    scripts/train_demo.py test  --cache DIR [--ct CT.nii.gz --ct-label SPLEEN.nii.gz]
    scripts/train_demo.py export --cache DIR --out models/segmentation_3d/1/model.pt

Training uses the seeds 0.. and the parameter ranges "train", the test uses seeds from 100000 on and the ranges
"heldout", which overlap nowhere (spleen_phantom/ranges.py). Dice is measured in the scan's own voxels: argmax, largest
connected component, nearest neighbour back through crop and resize. Needs torch, monai, numpy, scipy, nibabel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from monai.networks.nets import UNet
from monai.transforms import CropForeground, KeepLargestConnectedComponent, Resize, ScaleIntensityRange
from spleen_phantom import best_threshold_dice, make_phantom, sample_parameters
from spleen_phantom.ranges import generator

SIZE = (224, 224, 224)
HALF = (112, 112, 112)  # what the UNet inside sees, and what training works on
HELDOUT_SEED = 100_000
# From a step on, this share of the scans is also cut to a part of its length, not shorter than this: long scans come first.
SHORT_SCANS = ((0, 0.0, 1.0), (700, 0.4, 0.4), (1200, 0.6, 0.3), (1750, 0.6, 0.25), (2150, 0.6, 0.18))
# From a step on, the spleen is also made brighter or darker than it is, against all around it, by up to this.
CONTRASTS = ((0, 0.0), (1750, 0.08), (2150, 0.12))
NETWORK = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 2,
    "channels": (16, 32, 64, 96, 96),
    "strides": (2, 2, 2, 2),
    "num_res_units": 0,
    "norm": "instance",
}


class HalfResolution(torch.nn.Module):
    """A MONAI UNet that works on half the resolution. float32 (N, 1, D, H, W) to (N, 2, D, H, W), sides multiples of 32.

    The mean of eight voxels has a third of their noise and an eighth of their cost, and the outline of a spleen is
    smooth enough to be interpolated.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unet = UNet(**NETWORK)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(self.unet(F.avg_pool3d(x, 2)), scale_factor=2.0, mode="trilinear")


# -- data --


def scan(seed: int, ranges: str):
    """A phantom with a seeded matrix size and slice distance, as scanners and reconstructions differ."""
    rng = generator(seed, "scan")
    side = int(rng.choice([128, 160, 192, 224, 256, 320, 384, 512]))
    distance = rng.uniform(1.5, 5.0)  # mm between slices
    coverage = sample_parameters(seed, ranges)["z_coverage"]
    return make_phantom(seed, (side, side, max(12, round(coverage / distance))), ranges=ranges)


def preprocess(ct: np.ndarray) -> tuple[np.ndarray, tuple[slice, slice, slice]]:
    """ct: HU, (nx, ny, nz). Returns the network's input, float32 of shape SIZE, and the box it was cropped to.

    MONAI's transforms with the parameters of models/spleen_seg/config.pbtxt.
    """
    volume = torch.as_tensor(np.ascontiguousarray(ct, dtype=np.float32))[None]
    scaled = ScaleIntensityRange(-57, 164, 0, 1, clip=True)(volume)
    crop = CropForeground(allow_smaller=True)
    start, end = crop.compute_bounding_box(scaled)
    box = tuple(slice(int(a), int(b)) for a, b in zip(start, end))
    resized = Resize(SIZE, mode="area")(scaled[(slice(None), *box)])
    return resized.as_tensor()[0].numpy(), box


def preprocess_with(program: str, ct: np.ndarray) -> tuple[np.ndarray, tuple[slice, slice, slice]]:
    """The same by this project's own pipeline: ``program`` is the built example ``steps``, which says how it is spoken
    to (examples/steps/main.rs). Equal to MONAI's result within rounding."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = str(Path(folder, "ct.npy")), str(Path(folder, "resized.npy"))
        np.save(source, np.ascontiguousarray(ct, dtype=np.float32))
        command = {"step": "prepare", "parameters": {}, "inputs": [source], "outputs": [target]}
        run = subprocess.run([program], input=json.dumps(command) + "\n", check=True, stdout=subprocess.PIPE, text=True)
        answer = json.loads(run.stdout)
        if "error" in answer:
            sys.exit(f"{program}: {answer['error']}")
        (volume,) = answer["volumes"]
        box = tuple(slice(a, b) for a, b in zip(volume["crop_start"], volume["crop_end"]))
        return np.load(target).reshape(SIZE), box


def prepare(task) -> str:
    """Makes and stores one phantom unless it is there already."""
    seed, ranges, folder, program = task
    path = Path(folder, f"{ranges}-{seed}.npz")
    if not path.exists():
        torch.set_num_threads(1)
        phantom = scan(seed, ranges)
        volume, box = preprocess_with(program, phantom.ct) if program else preprocess(phantom.ct)
        label = torch.as_tensor(phantom.label[box])[None, None].float()
        label = F.avg_pool3d(F.interpolate(label, SIZE, mode="nearest-exact"), 2)[0, 0]  # share of each voxel, in eighths
        half = F.avg_pool3d(torch.from_numpy(volume)[None, None], 2)[0, 0]
        store = {"volume": half.numpy().astype(np.float16), "label": (label * 8).numpy().astype(np.uint8)}
        if ranges == "heldout":
            store = {"volume": volume, "native": phantom.label, "box": np.array([(s.start, s.stop) for s in box])}
            store |= {"threshold": best_threshold_dice(phantom.ct, phantom.label)[0], "spacing": phantom.spacing}
        part = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, **store)
        part.replace(path)
    return path.name


def make_data(args) -> None:
    folder = Path(args.cache)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(s, "train", folder, args.pipeline) for s in range(args.count)]
    tasks[8:8] = [(HELDOUT_SEED + s, "heldout", folder, args.pipeline) for s in range(args.test_count)]
    with ProcessPoolExecutor(args.workers) as pool:
        for n, name in enumerate(pool.map(prepare, tasks)):
            print(f"{n + 1}/{len(tasks)} {name}", flush=True)


# -- training --


def moved(rng: np.random.Generator, spleen: float, shortest: float | None) -> torch.Tensor:
    """Where each voxel of HALF is taken from, as grid_sample wants it: (1, D, H, W, 3), last axis first.

    Small rotations, each axis scaled and shifted, and a smooth deformation; never mirrored, as left and right matter.
    ``shortest``: cut to at least this share of the length, around the spleen, whose middle is at z = ``spleen`` in -1..1.
    """
    angles = np.radians(rng.uniform(-1, 1, 3) * (10, 6, 6))
    turn = np.eye(3)
    for axis, angle in enumerate(angles):
        i, j = [(1, 2), (0, 2), (0, 1)][axis]
        one = np.eye(3)
        one[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        turn = turn @ one
    scale = np.exp(rng.uniform(-1, 1, 3) * (0.25, 0.14, 0.14))  # last axis first: z, y, x
    shift = rng.uniform(-1, 1, 3) * (0.2, 0.08, 0.08)
    if shortest:
        scale[0] = rng.uniform(shortest, 0.8)
        shift[0] = np.clip(spleen + rng.uniform(-0.8, 0.8) * scale[0], scale[0] - 1, 1 - scale[0])
    matrix = np.concatenate([turn * scale, shift[:, None]], axis=1)
    grid = F.affine_grid(torch.from_numpy(matrix.astype(np.float32))[None], (1, 1, *HALF), align_corners=False)
    knots = torch.from_numpy(rng.standard_normal((1, 3, 7, 7, 7)).astype(np.float32)) * float(rng.uniform(0, 0.03))
    return grid + F.interpolate(knots, HALF, mode="trilinear", align_corners=True).movedim(1, -1)


def augment(volume: torch.Tensor, label: torch.Tensor, rng: np.random.Generator, step: int):
    """The scan of another body by another scanner: moved, contrast, brightness, blur and noise. All of shape HALF."""
    if rng.uniform() < 0.85:
        pair = torch.stack([volume, label])[None]
        profile = label.sum((0, 1))
        spleen = float((profile * torch.linspace(-1, 1, HALF[2])).sum() / profile.sum())
        _, share, shortest = max(phase for phase in SHORT_SCANS if phase[0] <= step)
        grid = moved(rng, spleen, shortest if share and rng.uniform() < share else None)
        volume, label = F.grid_sample(pair, grid, padding_mode="border", align_corners=False)[0]
    _, contrast = max(phase for phase in CONTRASTS if phase[0] <= step)
    if contrast:
        volume = volume + label * float(rng.uniform(-contrast, contrast))
    if rng.uniform() < 0.3:
        volume = volume + float(rng.uniform(0, 1)) * (F.avg_pool3d(volume[None], 3, 1, 1)[0] - volume)
    body = volume > 0
    volume = volume.clamp(0, 1) ** float(np.exp(rng.uniform(-0.3, 0.3)))
    noise = torch.from_numpy(rng.standard_normal(volume.shape, dtype=np.float32)) * float(rng.uniform(0, 0.06))
    changed = volume * float(rng.uniform(0.8, 1.2)) + float(rng.uniform(-0.08, 0.08)) + noise
    return torch.where(body, changed, volume).clamp(0, 1), label


def loss_of(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cross entropy plus soft Dice of the spleen. logits (N, 2, D, H, W), label (N, D, H, W) of 0 and 1."""
    margin = logits[:, 1] - logits[:, 0]
    cross = F.binary_cross_entropy_with_logits(margin, label)
    p = margin.sigmoid()
    dims = (1, 2, 3)
    dice = (2 * (p * label).sum(dims) + 50) / (p.sum(dims) + label.sum(dims) + 50)
    return cross + (1 - dice).mean()


class Scans:
    """The training scans, read once. Training begins with the first 24 of them and takes one more every fourth step, so
    that it can run beside the data step, whose next scan it waits for."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count, self.read = folder, count, []

    def known_at(self, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        while len(self.read) < min(self.count, 24 + step // 4):
            path = self.folder / f"train-{len(self.read)}.npz"
            if not path.exists():
                print(f"waiting for {path.name}: is the data step running?", flush=True)
            while not path.exists():
                time.sleep(5)
            with np.load(path) as data:
                self.read.append((torch.from_numpy(data["volume"]), torch.from_numpy(data["label"])))
        return self.read


def batch(data, step: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng, pairs = np.random.default_rng([seed, step]), []
    for i in rng.integers(0, len(data), 2):
        volume, label = data[i]
        pairs.append(augment(volume.float(), label.float() / 8, rng, step))
    volumes = torch.stack([v for v, _ in pairs])[:, None].contiguous(memory_format=torch.channels_last_3d)
    return volumes, torch.stack([label for _, label in pairs])


def train(args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    folder = Path(args.cache)
    network = HalfResolution().to(memory_format=torch.channels_last_3d)
    optimizer = torch.optim.AdamW(network.parameters(), lr=args.rate, weight_decay=1e-4)
    mean = {k: v.clone() for k, v in network.state_dict().items()}  # of the weights, over some 300 steps
    checkpoint, step, spent = folder / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        mean, step, spent = saved["mean"], saved["step"], saved["seconds"]
    scans = Scans(folder, args.count)
    begin, running = time.monotonic() - spent, None
    while step < args.steps:
        rate = args.rate * min(1, (step + 1) / 100) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        volumes, labels = batch(scans.known_at(step), step, args.seed)
        loss = loss_of(network.unet(volumes), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        step += 1
        keep = min(1 - 1 / 300, step / (step + 10))
        for name, value in network.state_dict().items():
            mean[name].lerp_(value, 1 - keep)
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        if step % 20 == 0 or step == args.steps:
            print(f"step {step}/{args.steps} loss {running:.4f} {time.monotonic() - begin:.0f} s", flush=True)
        if step % 100 == 0 or step == args.steps:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "mean": mean, "step": step}
            state |= {"seconds": time.monotonic() - begin, "seed": args.seed, "count": args.count, "steps": args.steps}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)


def trained(args) -> torch.nn.Module:
    """The network of the checkpoint, with the mean of its weights over the last steps."""
    saved = torch.load(Path(args.cache, "checkpoint.pt"))
    network = HalfResolution()
    network.load_state_dict(saved["mean"])
    print(f"checkpoint of step {saved['step']} of {saved['steps']}, seed {saved['seed']}, {saved['count']} phantoms")
    return network.eval()


# -- test --


def to_native(mask: np.ndarray, box, shape) -> np.ndarray:
    """mask of shape SIZE back into the scan's grid: nearest neighbour inside the box, 0 outside."""
    out = np.zeros(shape, bool)
    index = [
        np.minimum((np.arange(b.stop - b.start) + 0.5) * n / (b.stop - b.start), n - 1).astype(int)
        for b, n in zip(box, mask.shape)
    ]
    out[tuple(box)] = mask[np.ix_(*index)] > 0
    return out


def segment(network, volume: np.ndarray) -> np.ndarray:
    """Argmax and largest component of the network's answer, both of shape SIZE."""
    with torch.no_grad():
        logits = network(torch.from_numpy(volume)[None, None])
    mask = logits.argmax(1).float()
    return np.asarray(KeepLargestConnectedComponent(applied_labels=[1], connectivity=3)(mask))[0]


def dice_of(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a > 0, b > 0
    return float(2 * (a & b).sum() / max(1, a.sum() + b.sum()))


def test(args) -> None:
    torch.set_num_threads(args.threads)
    network = torch.jit.load(args.model).eval() if args.model else trained(args)
    scores = []
    for seed in range(HELDOUT_SEED, HELDOUT_SEED + args.test_count):
        with np.load(Path(args.cache, f"heldout-{seed}.npz")) as data:
            box = [slice(int(a), int(b)) for a, b in data["box"]]
            native = data["native"]
            begin = time.monotonic()
            mask = segment(network, data["volume"])
            score = dice_of(to_native(mask, box, native.shape), native)
            scores.append(score)
            print(
                f"heldout {seed} {native.shape} spacing {np.round(data['spacing'], 2)} "
                f"Dice {score:.4f} (best threshold {float(data['threshold']):.2f}) {time.monotonic() - begin:.1f} s",
                flush=True,
            )
    if scores:
        print(
            f"{len(scores)} held-out phantoms: Dice mean {np.mean(scores):.4f}, median {np.median(scores):.4f}, "
            f"minimum {min(scores):.4f}"
        )
    if args.ct:
        import nibabel

        image = nibabel.as_closest_canonical(nibabel.load(args.ct))
        ct = np.asarray(image.dataobj, dtype=np.float32)
        volume, box = preprocess(ct)
        native = to_native(segment(network, volume), box, ct.shape)
        millilitres = native.sum() * abs(np.linalg.det(image.affine[:3, :3])) / 1000
        line = f"{Path(args.ct).name}: {ct.shape} voxels, spleen {millilitres:.0f} mL"
        if args.ct_label:
            label = nibabel.as_closest_canonical(nibabel.load(args.ct_label))
            line += f", Dice {dice_of(native, np.asarray(label.dataobj)):.4f}"
        print(line)
        if args.ct_mask:
            nibabel.save(nibabel.Nifti1Image(native.astype(np.uint8), image.affine), args.ct_mask)


def export(args) -> None:
    torch.set_num_threads(args.threads)
    network = trained(args)
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    torch.jit.script(network).save(str(out))
    volume = torch.rand((1, 1, *SIZE), generator=torch.Generator().manual_seed(args.seed))
    with torch.no_grad():
        difference = (torch.jit.load(str(out))(volume) - network(volume)).abs().max().item()
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB, differs from the checkpoint by {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("data", "train", "test", "export"))
    parser.add_argument("--cache", required=True, help="folder for volumes (4 MB each, held-out 50 MB) and checkpoint")
    parser.add_argument("--count", type=int, default=96, help="training phantoms, seeds 0.. (default 96)")
    parser.add_argument("--test-count", type=int, default=24, help="held-out phantoms (default 24)")
    parser.add_argument("--workers", type=int, default=2, help="processes that make phantoms (default 2)")
    parser.add_argument("--pipeline", help="pre-process with this built example 'steps' instead of MONAI")
    parser.add_argument("--seed", type=int, default=1, help="of weights, order and augmentation (default 1)")
    parser.add_argument("--steps", type=int, default=700, help="training steps of two volumes (default 700)")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate at its highest (default 0.003)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--model", help="test this TorchScript file instead of the checkpoint")
    parser.add_argument("--ct", help="a CT to segment too, NIfTI in HU")
    parser.add_argument("--ct-label", help="its spleen label")
    parser.add_argument("--ct-mask", help="where to write the mask of --ct")
    parser.add_argument("--out", default="models/segmentation_3d/1/model.pt")
    args = parser.parse_args()
    {"data": make_data, "train": train, "test": test, "export": export}[args.step](args)


if __name__ == "__main__":
    main()
