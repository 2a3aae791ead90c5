"""The same steps as MONAI 1.6.1 does them. Parameters have their names there; those not given have the product's defaults."""

from __future__ import annotations

import monai
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
from skimage.measure import label as components_of

assert monai.__version__ == "1.6.1", f"the reference is MONAI 1.6.1, found {monai.__version__}"

DEFAULTS = {
    "a_min": -57.0,
    "a_max": 164.0,
    "b_min": 0.0,
    "b_max": 1.0,
    "clip": True,
    "margin": 0,
    "allow_smaller": True,
    "k_divisible": 1,
    "spatial_size": [224, 224, 224],
    "mode": "area",
    "align_corners": None,
    "applied_labels": [1],
    "is_onehot": None,
    "independent": True,
    "connectivity": None,
    "num_components": 1,
}


def chosen(parameters: dict, *names: str) -> dict:
    unknown = parameters.keys() - DEFAULTS.keys()
    assert not unknown, f"not parameters of the transforms: {unknown}"
    return {name: parameters.get(name, DEFAULTS[name]) for name in names}


def prepare(parameters: dict, volume: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    """The resized volume, and where the crop begins and ends."""
    scale = ScaleIntensityRange(**chosen(parameters, "a_min", "a_max", "b_min", "b_max", "clip"))
    crop = CropForeground(**chosen(parameters, "margin", "allow_smaller", "k_divisible"), return_coords=True)
    size = parameters.get("spatial_size", DEFAULTS["spatial_size"])
    # Resize takes one number only for volumes of one axis; the product takes it for all three.
    resize = Resize([size] * 3 if isinstance(size, int) else size, **chosen(parameters, "mode", "align_corners"))
    cropped, start, end = crop(scale(torch.from_numpy(volume)[None]))
    return resize(cropped)[0].numpy(), start.tolist(), end.tolist()


def invert(parameters: dict, volume: np.ndarray, labels: np.ndarray, mode: str = "nearest-exact") -> np.ndarray:
    """Labels of the network's grid back on the volume's, as Invertd does it: the inverses of Resize and CropForeground, with
    this interpolation mode in place of the one that the volume was resized with."""
    scale = ScaleIntensityRange(**chosen(parameters, "a_min", "a_max", "b_min", "b_max", "clip"))
    size = parameters.get("spatial_size", DEFAULTS["spatial_size"])
    there = Compose(
        [
            CropForeground(**chosen(parameters, "margin", "allow_smaller", "k_divisible")),
            Resize([size] * 3 if isinstance(size, int) else size, **chosen(parameters, "mode", "align_corners")),
        ]
    )
    prepared = there(scale(MetaTensor(torch.from_numpy(volume.astype(np.float32))[None])))
    applied = convert_applied_interp_mode(prepared.applied_operations, mode=mode)
    image = MetaTensor(torch.from_numpy(labels.astype(np.float32))[None], applied_operations=applied)
    return there.inverse(image)[0].numpy()


def argmax(logits: np.ndarray) -> np.ndarray:
    return AsDiscrete(argmax=True)(torch.from_numpy(logits))[0].numpy()


def keep_largest(parameters: dict, labels: np.ndarray) -> np.ndarray:
    names = ("applied_labels", "is_onehot", "independent", "connectivity", "num_components")
    # The transform overwrites what it is given: this is a copy of its own.
    image = torch.from_numpy(labels.astype(np.float32))[None]
    return KeepLargestConnectedComponent(**chosen(parameters, *names))(image)[0].numpy()


def contour(labels: np.ndarray) -> np.ndarray:
    return LabelToContour()(torch.from_numpy(labels.astype(np.float32))[None])[0].numpy()


def foregrounds(parameters: dict, labels: np.ndarray) -> list[np.ndarray]:
    """The masks whose components are looked for, one after the other."""
    applied = parameters.get("applied_labels", DEFAULTS["applied_labels"])
    if applied is None:
        applied = [label for label in np.unique(labels) if label]
    applied = [applied] if isinstance(applied, int) else applied
    if parameters.get("independent", True):
        return [labels == label for label in applied]
    return [np.isin(labels, applied)]


def is_tied(parameters: dict, labels: np.ndarray) -> bool:
    """Whether MONAI's choice depends on how NumPy sorts equal sizes: the smallest kept component has an equal."""
    count, connectivity = (parameters.get(name, DEFAULTS[name]) for name in ("num_components", "connectivity"))

    def tied(foreground: np.ndarray) -> bool:
        sizes = np.sort(np.bincount(components_of(foreground, connectivity=connectivity).ravel())[1:])[::-1]
        return 0 < count < len(sizes) and sizes[count - 1] == sizes[count]

    return any(map(tied, foregrounds(parameters, labels)))


def keep_last_of_equals(parameters: dict, labels: np.ndarray) -> np.ndarray:
    """The product's rule written down once more: largest first, and of equals the one that begins last in C order."""
    count, connectivity = (parameters.get(name, DEFAULTS[name]) for name in ("num_components", "connectivity"))
    kept = labels.copy()
    for foreground in foregrounds(parameters, labels):
        # Components are numbered in the C order of their first voxels.
        numbers = components_of(foreground, connectivity=connectivity)
        sizes = np.bincount(numbers.ravel())
        ranked = sorted(range(1, len(sizes)), key=lambda number: (sizes[number], number), reverse=True)
        kept[foreground & ~np.isin(numbers, ranked[:count])] = 0
    return kept


def sizes_kept(parameters: dict, before: np.ndarray, after: np.ndarray) -> list[list[int]]:
    """The sizes of the components that stay, for each mask; every one of them must have stayed as a whole."""
    connectivity = parameters.get("connectivity", DEFAULTS["connectivity"])
    every = []
    for foreground in foregrounds(parameters, before):
        if (before[foreground] == 0).any():
            continue  # background among the labels: whether it stays cannot be seen
        numbers = components_of(foreground, connectivity=connectivity)
        total, kept = np.bincount(numbers[foreground]), np.bincount(numbers[foreground], after[foreground] > 0)
        assert ((kept == 0) | (kept == total)).all(), "a component was kept in part"
        every.append(sorted(kept[kept > 0].tolist()))
    return every
