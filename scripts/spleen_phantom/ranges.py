"""The parameters of a phantom, each with its range for training and its range for held-out tests.

The held-out range of a parameter consists of two bands, one below and one above the training range, and never
overlaps it: a phantom drawn from ``heldout`` differs from everything in ``train`` in every parameter at once.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Range:
    """Training values lie in [low, high]; held-out values in [outer_low, low) or (high, outer_high]."""

    outer_low: float
    low: float
    high: float
    outer_high: float

    def draw(self, rng: np.random.Generator, heldout: bool) -> float:
        if not heldout:
            return float(rng.uniform(self.low, self.high))
        below, above = self.low - self.outer_low, self.outer_high - self.high
        t = rng.uniform(0.0, below + above)
        return float(self.outer_low + t if t < below else self.high + (t - below))


# name: (outer_low, low, high, outer_high). Lengths in mm, angles in degrees, intensities in HU, others are ratios.
RANGES: dict[str, Range] = {
    name: Range(*limits)
    for name, limits in {
        # framing of the scan
        "field_of_view_margin": (8, 15, 70, 80),  # width of the field of view beyond the body's own width
        "z_coverage": (80, 90, 300, 330),  # extent of the scan from feet to head
        "z_position": (-1.1, -1, 1, 1.1),  # where the scan lies relative to the spleen, in units of the free play
        "offset_x": (-16, -12, 12, 16),
        "offset_y": (-16, -12, 12, 16),
        "roll": (-5.5, -4, 4, 5.5),  # rotation about the long axis
        # body
        "body_half_width": (142, 148, 188, 196),
        "body_depth_ratio": (0.67, 0.69, 0.80, 0.82),
        "body_exponent": (2.05, 2.1, 2.5, 2.55),  # 2 is an ellipse, larger is squarer
        "skin_thickness": (1.3, 1.5, 2.6, 2.8),
        "fat_front": (5, 7, 26, 29),  # subcutaneous fat
        "fat_side": (4, 5, 20, 23),
        "fat_back": (6, 7, 18, 20),
        "wall_thickness": (12, 12.5, 16, 17),  # muscle and ribs around the cavity
        "warp": (1, 1.3, 3.6, 4.2),  # smooth deformation of everything, root mean square
        # chest
        "diaphragm_left": (46, 50, 66, 70),  # height of the dome above the spleen's centre
        "diaphragm_right": (58, 62, 86, 90),
        "rib_spacing": (25, 26, 31, 32),
        "rib_phase": (-0.55, -0.5, 0.5, 0.55),
        "rib_drop": (36, 40, 64, 70),
        # spleen
        "spleen_length": (54, 57, 78, 81),  # half axes of the ellipsoid it is carved from
        "spleen_breadth": (42, 45, 61, 63),
        "spleen_thickness": (30, 32, 43, 45),
        "spleen_tilt": (8, 12, 42, 46),
        "spleen_angle": (118, 121, 137, 140),  # around the cavity, 0 at the front
        "spleen_z": (-11, -9, 9, 11),
        "spleen_hollow": (0.13, 0.15, 0.26, 0.28),  # radius of the concave side, relative to the cavity
        "spleen_lobulation": (0.8, 1, 3, 3.4),
        "spleen_wall_gap": (0.8, 1, 3.5, 4),
        # neighbours
        "liver_scale": (0.86, 0.89, 1.1, 1.13),
        "liver_z": (-14, -11, 11, 14),
        "left_lobe_reach": (-38, -30, 48, 56),  # how far the left lobe passes the midline
        "stomach_scale": (0.77, 0.8, 1.12, 1.15),
        "stomach_x": (-9, -7, 7, 9),
        "stomach_gas": (-0.5, -0.35, 0.65, 0.8),  # height of the air-fluid level, in stomach radii; higher is less gas
        "kidney_scale": (0.82, 0.86, 1.12, 1.16),
        "kidney_left_z": (-62, -56, -30, -24),
        "kidney_right_z": (-76, -70, -44, -38),
        "aorta_radius": (7.5, 8.5, 12, 13),
        "spine_scale": (0.88, 0.91, 1.09, 1.12),
        # intensities; offsets are relative to the spleen
        "spleen_hu": (28, 33, 120, 128),
        "liver_offset": (-13, -11, 11, 13),
        "stomach_offset": (-16, -13, 6, 8),
        "kidney_offset": (-10, -8, 10, 12),
        "muscle_offset": (-13, -11, 5, 7),
        "blood_offset": (-14, -10, 40, 46),
        "fat_hu": (-116, -112, -92, -88),
        "bone_hu": (330, 370, 640, 690),
        "noise": (8, 10, 22, 24),  # standard deviation inside the body
        "noise_cutoff": (0.26, 0.3, 0.5, 0.54),  # cycles per mm, the sharpness of the reconstruction kernel
        "blur": (0.5, 0.6, 1.5, 1.7),  # width of the point spread function in the slice
        # around the patient
        "table_gap": (0.5, 1, 9, 11),
        "table_curvature": (0.00035, 0.0005, 0.0016, 0.0018),  # 1 / mm
        "table_hu": (-190, -150, 180, 220),
        "clothes_gap": (1.5, 2, 9, 10.5),
        "clothes_hu": (-640, -600, -180, -140),
    }.items()
}


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A random generator for one purpose, so that drawing more numbers for one thing never changes another."""
    return np.random.default_rng([int(seed), zlib.crc32(purpose.encode())])


def sample_parameters(seed: int, ranges: str = "train") -> dict[str, float]:
    """All parameters of the phantom ``seed`` as a dictionary; ``ranges`` is "train" or "heldout"."""
    if ranges not in ("train", "heldout"):
        raise ValueError(f"ranges: found {ranges!r}, accepted are 'train' and 'heldout'")
    return {name: r.draw(generator(seed, name), ranges == "heldout") for name, r in RANGES.items()}
