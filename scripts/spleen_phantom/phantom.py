"""From parameters to voxels: sampling, partial volume, noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft

from .anatomy import SPLEEN, Anatomy, Layer
from .fields import STEP, slope
from .organs import all_layers
from .ranges import generator, sample_parameters

LOWEST, HIGHEST = -265.0, 150.0  # mm: below and above, the anatomy is not modelled


@dataclass
class Phantom:
    """ct: int16 HU, shape (nx, ny, nz); label: uint8, same shape, 1 in the spleen; affine: 4x4, voxel index to mm in
    RAS; parameters: what it was made from."""

    ct: np.ndarray
    label: np.ndarray
    affine: np.ndarray
    parameters: dict[str, float]

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Voxel size in mm along x, y, z."""
        return tuple(float(v) for v in np.diag(self.affine)[:3])


def make_phantom(seed: int, shape=(512, 512, 114), spacing=None, ranges: str = "train", parameters=None) -> Phantom:
    """One synthetic abdominal CT with its spleen.

    seed        decides everything; the same anatomy appears whatever shape and spacing
    shape       voxels along x, y, z
    spacing     mm along x, y, z; by default the field of view holds the body and the scan covers ``z_coverage``
    ranges      "train" or "heldout": where the parameters are drawn from
    parameters  values that replace drawn ones, by name
    """
    shape = tuple(int(n) for n in shape)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape: found {shape}, accepted are three positive numbers of voxels")
    p = sample_parameters(seed, ranges)
    unknown = set(parameters or {}) - set(p)
    if unknown:
        raise ValueError(f"parameters: {sorted(unknown)} are unknown, accepted are {sorted(p)}")
    p.update(parameters or {})
    anatomy = Anatomy(p, seed)
    if spacing is None:
        width = 2 * anatomy.a + p["field_of_view_margin"]
        spacing = (width / shape[0], width / shape[1], p["z_coverage"] / shape[2])
    spacing = tuple(float(s) for s in spacing)
    if len(spacing) != 3 or min(spacing) <= 0:
        raise ValueError(f"spacing: found {spacing}, accepted are three positive lengths in mm")

    centre = (p["offset_x"], p["offset_y"], _z_centre(p, shape[2] * spacing[2]))
    axes = [c + (np.arange(n) - (n - 1) / 2) * s for c, n, s in zip(centre, shape, spacing)]
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = [a[0] for a in axes]

    work = [np.arange(a[0] - STEP, a[-1] + 2 * STEP, STEP) for a in axes]
    grid = anatomy.grid(*work)
    ct, label = _paint(all_layers(anatomy, grid), grid, axes, spacing, p)
    _add_noise(ct, grid, axes, spacing, p, seed)
    np.clip(ct, -1024, 3071, out=ct)
    return Phantom(np.rint(ct, out=ct).astype(np.int16), label, affine, p)


def _z_centre(p: dict[str, float], coverage: float) -> float:
    """Middle of the scan: a long scan holds the whole spleen wherever it lies, a short one most of it."""
    play = max(22.0, coverage / 2 - 62)
    middle = p["spleen_z"] + p["z_position"] * play
    room = (LOWEST + coverage / 2, HIGHEST - coverage / 2)
    return float(np.clip(middle, *room)) if room[0] < room[1] else sum(room) / 2


def _weights(target: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Linear interpolation from the regular axis ``source`` to ``target``: lower index and weight of the upper."""
    position = np.clip((target - source[0]) / STEP, 0, len(source) - 1.001)
    low = position.astype(np.int64)
    return low, (position - low).astype(np.float32)


def _matrix(low: np.ndarray, weight: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The same as a matrix with one row a target, over the source points start..stop."""
    m = np.zeros((len(low), stop - start), np.float32)
    rows = np.arange(len(low))
    m[rows, low - start] = 1 - weight
    m[rows, low + 1 - start] = weight
    return m


@dataclass
class _Brush:
    """A layer made ready for the voxels: covered range of each axis, interpolation matrices, scaled field."""

    layer: Layer
    z: tuple[int, int]
    x: slice
    y: slice
    to_x: np.ndarray
    to_y: np.ndarray
    field: np.ndarray


def _brush(layer: Layer, grid, low, weight, spacing, blur: float, extents: dict) -> _Brush | None:
    oz, ox, oy = layer.origin
    nz, nx, ny = layer.field.shape
    # A voxel is covered in proportion to how far the surface is, in units of the voxel's extent along the normal.
    steep = layer.field if layer.steep_as is None else layer.steep_as
    if id(steep) not in extents:
        lengths = (spacing[2], np.hypot(spacing[0], blur), np.hypot(spacing[1], blur))
        extents[id(steep)] = steep, np.maximum(slope(steep.astype(np.float32, copy=False), lengths), np.float32(0.03))
    scaled = layer.field / extents[id(steep)][1]
    near = scaled < 0.5
    spans = []
    for axis, (o, n) in enumerate(((oz, nz), (ox, nx), (oy, ny))):
        hit = np.flatnonzero(near.any(axis=tuple(a for a in range(3) if a != axis)))
        if len(hit) == 0:
            return None
        first, last = max(hit[0] - 1, 0), min(hit[-1] + 1, n - 1)
        inside = np.flatnonzero((low[axis] >= o + first) & (low[axis] + 1 <= o + last))
        if len(inside) == 0:
            return None
        spans.append((inside[0], inside[-1] + 1, first, last + 1, o))
    (z0, z1, *_), (x0, x1, fx, lx, _), (y0, y1, fy, ly, _) = spans
    x, y = slice(int(x0), int(x1)), slice(int(y0), int(y1))
    to_x = _matrix(low[1][x] - ox, weight[1][x], fx, lx)
    to_y = _matrix(low[2][y] - oy, weight[2][y], fy, ly)
    if isinstance(layer.hu, np.ndarray):
        layer.hu = layer.hu[:, fx:lx, fy:ly]
    return _Brush(layer, (int(z0), int(z1)), x, y, to_x, to_y.T.copy(), scaled[:, fx:lx, fy:ly])


def _paint(layers: list[Layer], grid, axes, spacing, p) -> tuple[np.ndarray, np.ndarray]:
    x, y, z = axes
    pairs = [_weights(t, s) for t, s in ((z, grid.z), (x, grid.x), (y, grid.y))]
    low, weight = [a for a, _ in pairs], [b for _, b in pairs]
    extents: dict = {}
    brushes = [b for layer in layers if (b := _brush(layer, grid, low, weight, spacing, p["blur"], extents))]
    extents.clear()
    ct = np.empty((len(x), len(y), len(z)), np.float32)
    label = np.zeros(ct.shape, np.uint8)
    image = np.empty((len(x), len(y)), np.float32)
    for k in range(len(z)):
        image.fill(-1000)
        for b in brushes:
            if not b.z[0] <= k < b.z[1]:
                continue
            i, t = low[0][k] - b.layer.origin[0], weight[0][k]
            plane = b.field[i] + t * (b.field[i + 1] - b.field[i])
            if plane.min() >= 0.5:
                continue
            cover = b.to_x @ plane @ b.to_y
            spot = image[b.x, b.y]
            if b.layer.name == SPLEEN:
                label[b.x, b.y, k] = cover < 0
            np.subtract(0.5, cover, out=cover)
            np.clip(cover, 0, 1, out=cover)
            if isinstance(b.layer.hu, np.ndarray):
                hu = b.to_x @ (b.layer.hu[i] + t * (b.layer.hu[i + 1] - b.layer.hu[i])) @ b.to_y
                spot += cover * (hu - spot)
            else:
                spot += cover * (np.float32(b.layer.hu) - spot)
        ct[:, :, k] = image
    return ct, label


def _add_noise(ct: np.ndarray, grid, axes, spacing, p, seed: int) -> None:
    """Adds noise with the texture of filtered back projection, in place: power rises with the frequency up to the
    kernel's cut-off; strongest in the middle of the body; neighbouring slices share a part."""
    x, y, z = axes
    rng = generator(seed, "noise")
    fx = np.fft.fftfreq(len(x), spacing[0])[:, None]
    fy = np.fft.rfftfreq(len(y), spacing[1])[None, :]
    frequency = np.sqrt(fx * fx + fy * fy)
    power = (frequency + 0.03) * np.exp(-((frequency / p["noise_cutoff"]) ** 2))
    amplitude = np.sqrt(power / power.mean()).astype(np.float32)
    radius = np.sqrt((x[:, None] / 190) ** 2 + (y[None, :] / 150) ** 2)
    strength = (p["noise"] * (0.62 + 0.5 * np.exp(-(radius**2)))).astype(np.float32)
    shared = float(np.clip(0.6 - 0.15 * spacing[2], 0, 0.45))
    keep = np.sqrt(1 - shared**2)
    before = None
    for k in range(len(z)):
        white = rng.standard_normal((len(x), len(y)), dtype=np.float32)
        texture = scipy.fft.irfft2(scipy.fft.rfft2(white) * amplitude, s=white.shape)
        mixed = texture if before is None else np.float32(keep) * texture + np.float32(shared) * before
        before = texture
        ct[:, :, k] += strength * mixed


def best_threshold_dice(ct: np.ndarray, label: np.ndarray, bin_width: int = 2) -> tuple[float, tuple[int, int]]:
    """The highest Dice that "spleen is where low <= HU < high" reaches, over all windows; and that window in HU."""
    low, high = int(ct.min()), int(ct.max()) + bin_width + 1
    edges = np.arange(low, high + bin_width, bin_width)
    inside = np.histogram(ct[label > 0], edges)[0]
    both = inside + np.histogram(ct[label == 0], edges)[0]
    hits = np.concatenate([[0], np.cumsum(inside)])
    size = np.concatenate([[0], np.cumsum(both)])
    spleen = hits[-1]
    best, window = 0.0, (low, low)
    used = np.flatnonzero(inside)
    if len(used) == 0:
        return best, window
    for i in range(used[0], used[-1] + 1):
        dice = 2 * (hits[i + 1 :] - hits[i]) / (spleen + size[i + 1 :] - size[i])
        j = int(np.argmax(dice))
        if dice[j] > best:
            best, window = float(dice[j]), (int(edges[i]), int(edges[i + 1 + j]))
    return best, window
