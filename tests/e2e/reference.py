"""What MONAI gives for the same volume: the reference that every end-to-end result is compared with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import (
    AsDiscrete,
    Compose,
    CropForeground,
    KeepLargestConnectedComponent,
    LabelToContour,
    Resize,
    ScaleIntensityRange,
)
from monai.transforms.utils import convert_applied_interp_mode


@dataclass
class Prepared:
    resized: np.ndarray  # [1,1,D,H,W] as the network gets it
    start: list[int]
    end: list[int]


def prepare(
    volume: np.ndarray,
    size: tuple[int, int, int],
    *,
    a_min: float = -57,
    a_max: float = 164,
    mode: str = "area",
    margin: int = 0,
    allow_smaller: bool = True,
) -> Prepared:
    """One volume [H,W,D] up to the network's input."""
    image = torch.as_tensor(np.asarray(volume, dtype=np.float32))[None]
    image = ScaleIntensityRange(a_min, a_max, 0.0, 1.0, clip=True)(image)
    crop = CropForeground(margin=margin, allow_smaller=allow_smaller, return_coords=True)
    cropped, start, end = crop(image)
    resized = Resize(size, mode=mode)(cropped)
    return Prepared(resized.numpy()[None], [int(v) for v in start], [int(v) for v in end])


def native(volume: np.ndarray, mask: np.ndarray, size: tuple[int, int, int], *, margin: int = 0, allow_smaller: bool = True):
    """A mask [1,D,H,W] on the grid of its volume [H,W,D] by MONAI's own inverses, with mode nearest-exact; and its contour."""
    there = Compose([CropForeground(margin=margin, allow_smaller=allow_smaller), Resize(size)])
    image = ScaleIntensityRange(-57, 164, 0.0, 1.0, clip=True)(MetaTensor(torch.as_tensor(volume)[None]))
    applied = convert_applied_interp_mode(there(image).applied_operations, mode="nearest-exact")
    back = there.inverse(MetaTensor(torch.as_tensor(mask), applied_operations=applied)).as_tensor()
    return np.asarray(back), np.asarray(LabelToContour()(back))


def finish(scores: np.ndarray, *, applied_labels: tuple[int, ...] = (1,), num_components: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """One volume's class scores [C,D,H,W] to its mask and contour, each [1,D,H,W]."""
    labels = AsDiscrete(argmax=True)(torch.as_tensor(np.asarray(scores, dtype=np.float32)))
    # The transform overwrites what it is given.
    mask = KeepLargestConnectedComponent(applied_labels=list(applied_labels), num_components=num_components)(labels.clone())
    contour = LabelToContour()(mask.clone())
    return np.asarray(mask), np.asarray(contour)


def blobs(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """A volume in Hounsfield units with air around it and several separate bright blobs of different sizes."""
    random = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0.0, 1.0, n) for n in shape), indexing="ij")
    body = sum((a - 0.5) ** 2 for a in axes) < 0.42**2
    volume = np.where(body, -20.0, -900.0)
    for radius, centre in zip((0.19, 0.12, 0.08), itertools.permutations((0.32, 0.55, 0.7))):
        distance = np.sqrt(sum((a - c) ** 2 for a, c in zip(axes, centre)))
        volume = np.where((distance < radius) & body, 120.0, volume)
    return (volume + random.normal(0.0, 15.0, shape)).astype(np.float32)
