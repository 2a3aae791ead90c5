"""Shapes of the body and its organs, as layers that are painted in order, each over the ones before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from . import fields as f
from .ranges import generator

SPLEEN = "spleen"


@dataclass
class Layer:
    """A part of the body: where it is (negative inside, shape as the grid it was made on) and its intensity."""

    name: str
    field: np.ndarray
    hu: float | np.ndarray  # one number, or values at the points of ``field``
    origin: tuple[int, int, int] = (0, 0, 0)
    steep_as: np.ndarray | None = None  # a field of the same shape that rises as fast, to share the work


class Anatomy:
    """Geometry of one phantom. ``p`` are its parameters (see ranges.py), ``seed`` decides the random shapes."""

    def __init__(self, p: dict[str, float], seed: int):
        self.p, self.seed = p, seed
        self.a = p["body_half_width"]
        self.b = self.a * p["body_depth_ratio"]
        # Half axes and centre of the cavity, inside skin, fat and wall; the muscles of the back take more room.
        self.ca = self.a - p["skin_thickness"] - p["fat_side"] - p["wall_thickness"]
        front = self.b - p["skin_thickness"] - p["fat_front"] - p["wall_thickness"]
        back = self.b - p["skin_thickness"] - p["fat_back"] - p["wall_thickness"] - 16
        self.cb, self.cy = (front + back) / 2, (front - back) / 2
        self.spine_y = self.cy - self.cb + 29 * p["spine_scale"]
        self.spleen_centre = self._on_wall(p["spleen_angle"], 0.80, p["spleen_z"])

    def waves(self, purpose: str, wavelength: float, count: int = 10) -> f.Waves:
        return f.Waves.draw(generator(self.seed, "waves " + purpose), wavelength, count)

    def uniform(self, purpose: str, low: float, high: float) -> float:
        return float(generator(self.seed, purpose).uniform(low, high))

    def _on_wall(self, angle: float, depth: float, z: float) -> np.ndarray:
        """Point on the left side of the cavity, ``angle`` degrees from the front, at ``depth`` of its half axes."""
        t = np.radians(angle)
        return np.array([-depth * self.ca * np.sin(t), self.cy + depth * self.cb * np.cos(t), z])

    def grid(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> f.Grid:
        """The working grid on these axes (mm), with the deformation of the whole body and the shared fields."""
        shape = (len(z), len(x), len(y))
        flat = [
            np.broadcast_to(v.astype(np.float32), shape) for v in (z[:, None, None], x[None, :, None], y[None, None, :])
        ]
        g = f.Grid(z, x, y, *flat)
        bend = [self.waves(f"warp {a}", 190, 6)(g) * np.float32(self.p["warp"]) for a in "zxy"]
        roll = np.radians(self.p["roll"])
        c, s = np.float32(np.cos(roll)), np.float32(np.sin(roll))
        x1, y1 = flat[1] + bend[1], flat[2] + bend[2]
        g.Z, g.X, g.Y = flat[0] + np.float32(0.7) * bend[0], c * x1 + s * y1, c * y1 - s * x1

        p = self.p
        power = p["body_exponent"]
        u, v = np.abs(g.X) / self.a, np.abs(g.Y) / self.b
        # The hips are wider, the chest a little narrower.
        scale = (1 + 0.05 * np.tanh((-130 - g.Z) / 60) - 0.03 * np.tanh((g.Z - 90) / 60)).astype(np.float32)
        body = ((u**power + v**power) ** (1 / power) / scale - 1) * self.b
        groove = np.exp(-((g.X / 22) ** 2)) * 7  # the furrow of the back
        g.shared["body"] = f.as_distance(body + np.where(g.Y < 0, groove, 0) * np.float32(0.8))
        ellipse = (np.sqrt((g.X / self.ca) ** 2 + ((g.Y - self.cy) / self.cb) ** 2) / scale - 1) * self.cb
        g.shared["ellipse"] = f.as_distance(ellipse)  # the ribs follow it
        bump = np.sqrt(g.X**2 + (g.Y - self.spine_y + 14) ** 2) - 35  # spine and the muscles beside it
        g.shared["cavity"] = -f.rounded_union(-g.shared["ellipse"], bump, 12)

        r2 = (g.X / self.ca) ** 2 + ((g.Y - self.cy) / self.cb) ** 2
        right = 1 / (1 + np.exp(-g.X / 22))
        top = (
            p["diaphragm_left"] + (p["diaphragm_right"] - p["diaphragm_left"]) * right - 9 * np.exp(-((g.X / 30) ** 2))
        )
        edge = -12 + 26 * (g.Y - self.cy) / self.cb
        height = edge + (top - edge) * np.clip(1.05 - r2, 0.002, 1) ** 0.55
        g.shared["above"] = f.as_distance((height - g.Z).astype(np.float32))  # negative above the diaphragm
        return g

    # The shapes; each takes any part of the grid.

    def abdomen(self, g: f.Grid, gap: float) -> np.ndarray:
        """The cavity below the diaphragm, ``gap`` mm inside its wall."""
        return np.maximum(g.shared["cavity"] + gap, 3 - g.shared["above"])

    def stomach(self, g: f.Grid) -> np.ndarray:
        p, s = self.p, self.p["stomach_scale"]
        x = p["stomach_x"]
        top = p["diaphragm_left"]
        points = [
            (-0.34 * self.ca + x, self.cy + 0.06 * self.cb, top - 36),
            (-0.36 * self.ca + x, self.cy + 0.42 * self.cb, top - 62),
            (-0.14 * self.ca + x, self.cy + 0.58 * self.cb, -52),
            (0.16 * self.ca, self.cy + 0.52 * self.cb, -58),
        ]
        u = f.tube(g, points, [33 * s, 30 * s, 22 * s, 14 * s]) + self.waves("stomach", 45)(g) * np.float32(1.8)
        return np.maximum(u, self.abdomen(g, 3))

    def kidney(self, g: f.Grid, side: int) -> np.ndarray:
        """side: +1 the right kidney, -1 the left one."""
        s = self.p["kidney_scale"]
        m = f.turn(1, 10 * side) @ f.turn(2, 28 * side)
        u = f.ellipsoid(g, self.kidney_centre(side), (28 * s, 24 * s, 54 * s), m)
        return np.maximum(u + self.waves(f"kidney {side}", 40)(g) * np.float32(1.2), self.abdomen(g, 5))

    def kidney_centre(self, side: int) -> np.ndarray:
        z = self.p["kidney_right_z" if side > 0 else "kidney_left_z"]
        return np.array([side * max(0.44 * self.ca, 54), self.cy - 0.46 * self.cb, z])

    def spleen(self, g: f.Grid) -> np.ndarray:
        p = self.p
        angle = p["spleen_angle"]
        # Axes: radial (thickness), along the wall (breadth), along the tenth rib (length).
        m = f.turn(0, -p["spleen_tilt"]) @ f.turn(2, 90 - angle)
        axes = (p["spleen_thickness"], p["spleen_breadth"], p["spleen_length"])
        u = f.ellipsoid(g, self.spleen_centre, axes, m)
        u = f.as_distance(u) + self.waves("spleen", 38)(g) * np.float32(p["spleen_lobulation"])
        # The concave side faces the stomach and the kidney.
        r = p["spleen_hollow"] * self.ca
        hollow = self._on_wall(angle - 6, 0.36, p["spleen_z"] + 4)
        u = np.maximum(u, -f.ellipsoid(g, hollow, (r, r, 2.2 * r)))
        # Its inner end lies further from the spine the lower one looks.
        inner = 0.45 - 0.0024 * np.clip(g.Z - np.float32(p["spleen_z"]), -60, 50)
        u = -f.rounded_union(-u, -(g.X + self.ca * inner), 10)
        gap = 1 + p["spleen_wall_gap"]
        u = np.maximum(u, np.maximum(gap - self.stomach(g), gap + 1.5 - self.kidney(g, -1)))
        u = np.maximum(u, self.abdomen(g, gap))
        parts, count = ndimage.label(u < 0)
        if count > 1:  # what the neighbours have cut off
            sizes = np.bincount(parts.ravel())[1:]
            u = np.where((parts > 0) & (parts != 1 + np.argmax(sizes)), np.float32(1), u)
        return u

    def liver(self, g: f.Grid) -> np.ndarray:
        p, s = self.p, self.p["liver_scale"]
        z = p["liver_z"]
        right = f.ellipsoid(
            g, (0.58 * self.ca, self.cy - 2, z + 2), (0.62 * self.ca * s, 1.15 * self.cb, 98 * s), f.turn(1, -14)
        )
        reach = p["left_lobe_reach"]
        left = f.ellipsoid(
            g,
            ((30 - reach) / 2 + 10, self.cy + 0.42 * self.cb, z + 18),
            ((70 + reach) * 0.62, 40 * s, 44 * s),
            f.turn(1, 12),
        )
        u = f.rounded_union(right, left, 16) + self.waves("liver", 55)(g) * np.float32(2)
        u = np.maximum(u, 3 - self.stomach(g))
        u = np.maximum(u, 2.5 - self.kidney(g, 1))
        return np.maximum(u, self.abdomen(g, 2))

    def vessel(self, points, purpose: str, wander: float = 4) -> np.ndarray:
        """Polyline points (x, y, z) with a seeded wander."""
        rng = generator(self.seed, purpose)
        return np.asarray(points, float) + rng.normal(0, wander, (len(points), 3))
