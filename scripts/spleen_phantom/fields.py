"""The working grid and the implicit functions that shapes are made of.

A shape is a scalar field that is negative inside, positive outside and roughly a distance in mm near its surface.
``np.maximum`` of two fields is the intersection, ``np.minimum`` the union, negation the outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

STEP = 2.5  # mm between points of the working grid: organs are smooth at this scale, edges are interpolated


@dataclass
class Waves:
    """Smooth random noise with mean 0 and standard deviation about 1: a sum of plane waves.

    Evaluated from the coordinates alone, hence identical on any grid and any part of it.
    """

    vectors: np.ndarray  # (count, 3) radians per mm, in the order z, x, y
    phases: np.ndarray  # (count,)

    @classmethod
    def draw(cls, rng: np.random.Generator, wavelength: float, count: int = 10) -> Waves:
        directions = rng.standard_normal((count, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        lengths = wavelength * rng.uniform(0.75, 1.35, (count, 1))
        return cls(2 * np.pi * directions / lengths, rng.uniform(0, 2 * np.pi, count))

    def __call__(self, grid: Grid) -> np.ndarray:
        z, x, y = (
            np.exp(1j * self.vectors[:, a, None] * axis[None, :]) for a, axis in enumerate((grid.z, grid.x, grid.y))
        )
        z = z * np.exp(1j * self.phases)[:, None]
        # A plane wave is a product of three one-dimensional factors, so the sum over waves is one matrix product.
        plane = (x[:, :, None] * y[:, None, :]).reshape(len(self.phases), -1).astype(np.complex64)
        z = z.T.astype(np.complex64)
        total = z.real @ plane.real - z.imag @ plane.imag
        total *= np.float32(np.sqrt(2 / len(self.phases)))
        return total.reshape(grid.shape)


@dataclass
class Grid:
    """Points of the working grid. ``z``, ``x``, ``y`` are the axes; ``Z``, ``X``, ``Y`` the warped coordinates and
    ``shared`` further fields, all of shape (len(z), len(x), len(y)), float32."""

    z: np.ndarray
    x: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    X: np.ndarray
    Y: np.ndarray
    origin: tuple[int, int, int] = (0, 0, 0)  # index of this grid's first point in the whole grid
    shared: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.z), len(self.x), len(self.y))

    def part(self, centre, reach) -> Grid | None:
        """The points within ``reach`` mm of ``centre`` along each axis (both in the order x, y, z); None if none."""
        spans = []
        for axis, c, r in zip(
            (self.z, self.x, self.y), (centre[2], centre[0], centre[1]), (reach[2], reach[0], reach[1])
        ):
            lo, hi = np.searchsorted(axis, (c - r, c + r))
            lo, hi = max(lo - 1, 0), min(hi + 1, len(axis))
            if hi - lo < 2:
                return None
            spans.append(slice(int(lo), int(hi)))
        cut = tuple(spans)
        return Grid(
            self.z[cut[0]],
            self.x[cut[1]],
            self.y[cut[2]],
            self.Z[cut],
            self.X[cut],
            self.Y[cut],
            tuple(o + s.start for o, s in zip(self.origin, cut)),
            {name: values[cut] for name, values in self.shared.items()},
        )


def slope(values: np.ndarray, lengths=(1.0, 1.0, 1.0)) -> np.ndarray:
    """Length of the gradient of a field on the working grid; ``lengths`` weigh the slopes per mm along z, x, y."""
    total = np.full(values.shape, np.float32(1e-6))
    for axis, length in enumerate(lengths):
        v, t = np.moveaxis(values, axis, 0), np.moveaxis(total, axis, 0)
        if len(v) < 2:
            continue
        step = np.empty_like(v)
        np.subtract(v[2:], v[:-2], out=step[1:-1])
        step[0], step[-1] = 2 * (v[1] - v[0]), 2 * (v[-1] - v[-2])
        step *= np.float32(length / (2 * STEP))
        step *= step
        t += step
    return np.sqrt(total, out=total)


def as_distance(values: np.ndarray) -> np.ndarray:
    """A field with the same zero surface whose values near it are distances in mm."""
    return values / slope(values)


def ellipsoid(grid: Grid, centre, half_axes, rotation=None) -> np.ndarray:
    """Ellipsoid; centre and half axes in the order x, y, z; rotation a 3x3 matrix whose rows are its axes."""
    d = [grid.X - np.float32(centre[0]), grid.Y - np.float32(centre[1]), grid.Z - np.float32(centre[2])]
    if rotation is not None:
        m = rotation.astype(np.float32)
        d = [m[a, 0] * d[0] + m[a, 1] * d[1] + m[a, 2] * d[2] for a in range(3)]
    r = np.sqrt(sum((v / np.float32(h)) ** 2 for v, h in zip(d, half_axes)))
    return (r - 1) * np.float32(min(half_axes))


FAR = 10.0  # mm; a tube's field is exact up to here and constant beyond
SHIFT = 25.0  # mm; roll and deformation move points by less


def tube(grid: Grid, points, radii) -> np.ndarray:
    """Union of cones along a polyline: points (n, 3) in the order x, y, z; one radius a point."""
    total = np.full(grid.shape, np.float32(FAR))
    for p, q, rp, rq in zip(points[:-1], points[1:], radii[:-1], radii[1:]):
        p, q = np.asarray(p, np.float32), np.asarray(q, np.float32)
        part = grid.part((p + q) / 2, np.abs(q - p) / 2 + max(rp, rq) + FAR + SHIFT)
        if part is None:
            continue
        v = q - p
        d = [part.X - p[0], part.Y - p[1], part.Z - p[2]]
        t = np.clip((d[0] * v[0] + d[1] * v[1] + d[2] * v[2]) / (v @ v), 0, 1)
        for a in range(3):
            d[a] -= t * v[a]
            d[a] *= d[a]
        r = np.sqrt(d[0] + d[1] + d[2]) - (np.float32(rp) + np.float32(rq - rp) * t)
        spot = total[tuple(slice(o - g, o - g + n) for o, g, n in zip(part.origin, grid.origin, part.shape))]
        np.minimum(spot, r, out=spot)
    return total


def rounded_union(a: np.ndarray, b: np.ndarray, radius: float) -> np.ndarray:
    """Union whose crease is filled over about ``radius`` mm."""
    h = np.clip(0.5 + 0.5 * (b - a) / np.float32(radius), 0, 1)
    return b + (a - b) * h - np.float32(radius) * h * (1 - h)


def turn(axis: int, degrees: float) -> np.ndarray:
    """Rotation matrix about axis 0 (x), 1 (y) or 2 (z)."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    m = np.eye(3)
    i, j = [(1, 2), (2, 0), (0, 1)][axis]
    m[i, i], m[i, j], m[j, i], m[j, j] = c, -s, s, c
    return m
