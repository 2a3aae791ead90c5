"""Volumes of odd shapes, and what makes each of them odd."""

from __future__ import annotations

import numpy as np

BRIGHT, AIR = 90.0, -1000.0


def noise(shape: tuple[int, int, int], seed: int, mean: float = 40.0, spread: float = 150.0) -> np.ndarray:
    """Hounsfield units, some in the default window, some below, some above."""
    return np.random.default_rng(seed).normal(mean, spread, shape).astype(np.float32)


def air_with(shape: tuple[int, int, int], *places: tuple) -> np.ndarray:
    """Air, and different soft tissue at the given places."""
    volume = np.full(shape, AIR, np.float32)
    tissue = np.random.default_rng(sum(shape)).uniform(BRIGHT - 60, BRIGHT + 60, shape).astype(np.float32)
    for place in places:
        volume[place] = tissue[place]
    return volume


MIDDLE = slice(4, 9)

VOLUMES: dict[str, np.ndarray] = {
    "one voxel in all": noise((1, 1, 1), 0, mean=50, spread=10),
    "first axis of 1": noise((1, 7, 9), 1),
    "middle axis of 1": noise((7, 1, 9), 2),
    "last axis of 1": noise((7, 9, 1), 3),
    "only a last axis": noise((1, 1, 13), 4),
    "only a first axis": noise((13, 1, 1), 5),
    "first axis of 1000": noise((1000, 3, 2), 6),
    "middle axis of 1000": noise((2, 1000, 3), 7),
    "last axis of 1000": noise((3, 2, 1000), 8),
    "all foreground": noise((17, 19, 23), 9, mean=60, spread=20),
    "one voxel of foreground": air_with((11, 12, 13), (slice(7, 8), slice(3, 4), slice(5, 6))),
    "first and last voxel": air_with((9, 10, 11), (0, 0, 0), (-1, -1, -1)),
    "last voxel only": air_with((6, 5, 4), (-1, -1, -1)),
    "touches the first face of the first axis": air_with((12, 13, 14), (slice(0, 3), MIDDLE, MIDDLE)),
    "touches the last face of the first axis": air_with((12, 13, 14), (slice(9, 12), MIDDLE, MIDDLE)),
    "touches the first face of the middle axis": air_with((12, 13, 14), (MIDDLE, slice(0, 3), MIDDLE)),
    "touches the last face of the middle axis": air_with((12, 13, 14), (MIDDLE, slice(10, 13), MIDDLE)),
    "touches the first face of the last axis": air_with((12, 13, 14), (MIDDLE, MIDDLE, slice(0, 3))),
    "touches the last face of the last axis": air_with((12, 13, 14), (MIDDLE, MIDDLE, slice(11, 14))),
    "body, table and a burnt-in voxel": air_with(
        (64, 48, 33), (slice(20, 41), slice(11, 30), slice(5, 28)), (slice(50, 52), slice(2, 45), slice(1, 32)), (0, 0, 0)
    ),
    "a few hundred thousand voxels": noise((83, 71, 67), 10),
}

SIZES = [(11, 13, 7), (24, 24, 24), (1, 1, 1), (1, 5, 3), (40, 3, 64), (2, 2, 2), (16, 1, 16)]


def with_not_finite(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """Noise with NaN and both infinities strewn in, also at the corners."""
    volume = noise(shape, seed)
    random = np.random.default_rng(seed)
    for value in (np.nan, np.inf, -np.inf):
        volume[tuple(random.integers(0, size, 12) for size in shape)] = value
    volume[0, 0, 0] = np.nan
    volume[-1, -1, -1] = np.inf
    return volume


def smooth(shape: tuple[int, ...], seed: int, passes: int) -> np.ndarray:
    """Noise averaged with its neighbours: more passes make fewer and larger components."""
    field = np.random.default_rng(seed).normal(size=shape)
    for _ in range(passes):
        for axis in range(len(shape) - 3, len(shape)):
            field = field + np.roll(field, 1, axis) + np.roll(field, -1, axis)
    return (field / field.std()).astype(np.float32)
