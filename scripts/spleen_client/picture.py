"""One picture of a segmentation: three planes through the mask with its outline over a soft-tissue window.

Radiological convention: the patient's right is on the left of the picture, front (axial) and head (coronal, sagittal) are
up; in the sagittal plane the front is on the left. All planes have the same scale, in true proportions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

LEVEL, WIDTH = 40.0, 400.0  # HU: the usual window for the abdomen
# Name, the axis that is cut, and what the plane's left, right, upper and lower edge are. Both remaining axes of a RAS
# array are shown with their highest index first, which is what the convention asks for in all three planes.
PLANES = (("AXIAL", 2, "RLAP"), ("CORONAL", 1, "RLSI"), ("SAGITTAL", 0, "APSI"))
MASK_COLOUR, LABEL_COLOUR = (255, 140, 26), (64, 200, 255)
BACKGROUND, PANEL, TITLE, TEXT, QUIET = (16, 18, 22), (0, 0, 0), (245, 246, 248), (198, 203, 210), (134, 141, 151)
EDGE, GAP, HEAD, FOOT = 24, 12, 84, 62  # pixels around and between the panels, for the words above and below
MAX_HEIGHT = 1400  # pixels of a panel, for volumes of unusual proportions
FINE = 2  # drawn at this multiple of the size and scaled down, for smooth text and lines


@dataclass
class Lines:
    """The words of the picture."""

    title: str
    facts: str
    notice: str = ""


def best_slices(mask: np.ndarray) -> tuple[int, int, int]:
    """Along each axis the slice that shows most of the mask; the middle ones where there is none."""
    found = []
    for axis in range(3):
        area = mask.sum(axis=tuple(a for a in range(3) if a != axis))
        found.append(int(np.argmax(area)) if area.any() else mask.shape[axis] // 2)
    return tuple(found)


def plane(volume: np.ndarray, axis: int, index: int) -> np.ndarray:
    """A plane of a RAS volume as an image: rows downwards, columns to the right."""
    return np.moveaxis(volume, axis, 0)[index][::-1, ::-1].T


def window(hu: np.ndarray) -> np.ndarray:
    """HU as grey values; what is not a number is black."""
    grey = np.clip((np.nan_to_num(hu.astype(np.float32), nan=-np.inf) - (LEVEL - WIDTH / 2)) / WIDTH, 0, 1)
    return np.rint(grey * 255).astype(np.uint8)


def outline(mask: np.ndarray, size: tuple[int, int], line: float) -> np.ndarray:
    """How much of each pixel of an image of ``size`` the outline of a mask covers: 0 to 1, with smooth edges."""
    soft = Image.fromarray(mask.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    # Half a voxel of smoothing turns the staircase of the voxels into a line and keeps it in its place.
    pixels_per_voxel = max(size[0] / mask.shape[1], size[1] / mask.shape[0])
    soft = ndimage.gaussian_filter(np.asarray(soft), 0.5 * max(pixels_per_voxel, 1.0))
    rows, columns = np.gradient(soft)
    distance = np.abs(soft - 0.5) / np.maximum(np.hypot(rows, columns), 1e-6)
    return np.clip(line / 2 + 0.5 - distance, 0, 1)


def body_box(hu: np.ndarray, spacing, margin: float = 8.0) -> tuple[slice, slice, slice]:
    """The part of the volume worth showing: all that is denser than lung, and a margin in mm."""
    box = []
    thin = tuple(max(1, n // 160) for n in hu.shape)  # a look at a part of the voxels is enough
    dense = hu[:: thin[0], :: thin[1], :: thin[2]] > -300
    for axis, step in enumerate(spacing):
        # Single voxels of noise do not count.
        share = dense.mean(axis=tuple(a for a in range(3) if a != axis))
        hit = np.flatnonzero(share > 0.002) * thin[axis]
        extra = int(np.ceil(margin / step)) if axis < 2 else 0
        low, high = (hit[0], hit[-1] + thin[axis]) if len(hit) else (0, hu.shape[axis])
        box.append(slice(max(0, int(low) - extra), min(hu.shape[axis], int(high) + extra)))
    return tuple(box)


def _font(size: float):
    return ImageFont.load_default(round(size * FINE))


class _Sheet:
    """An image in which all lengths are given in final pixels."""

    def __init__(self, width: int, height: int):
        self.image = Image.new("RGB", (width * FINE, height * FINE), BACKGROUND)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, x, y, text, size, colour, anchor="la", halo: int = 0) -> None:
        """A halo keeps words readable on an image."""
        place, font = (x * FINE, y * FINE), _font(size)
        self.draw.text(place, text, fill=colour, font=font, anchor=anchor, stroke_width=halo * FINE, stroke_fill=PANEL)

    def rectangle(self, x, y, width, height, colour) -> None:
        self.draw.rectangle((x * FINE, y * FINE, (x + width) * FINE - 1, (y + height) * FINE - 1), fill=colour)

    def length(self, text: str, size: float) -> float:
        return self.draw.textlength(text, font=_font(size)) / FINE

    def finish(self) -> Image.Image:
        return self.image.reduce(FINE)


def draw(
    hu: np.ndarray, mask: np.ndarray, spacing, lines: Lines, label: np.ndarray | None = None, width: int = 1500
) -> Image.Image:
    """hu, mask and label in RAS, all of the same shape; spacing in mm. Returns a picture ``width`` pixels wide."""
    box = body_box(hu, spacing)
    hu, mask = hu[box], mask[box] > 0
    label = None if label is None else label[box] > 0
    slices = best_slices(mask if mask.any() or label is None else label)
    extents = [tuple(hu.shape[a] * spacing[a] for a in range(3) if a != axis) for _, axis, _ in PLANES]
    places, sizes, scale, bottom = arrange(extents, width)

    sheet = _Sheet(width, bottom + FOOT)
    for (name, axis, edges), (x, y, panel_width, panel_height), size in zip(PLANES, places, sizes):
        sheet.rectangle(x, y, panel_width, panel_height, PANEL)
        corner = (x + (panel_width - size[0]) // 2, y + (panel_height - size[1]) // 2)
        sheet.image.paste(_panel(hu, mask, label, axis, slices[axis], size), tuple(v * FINE for v in corner))
        _annotate(sheet, name, edges, x, y, panel_width, panel_height)
    _words(sheet, lines, label is not None, width, bottom)
    _scale_bar(sheet, scale, places[0][0] + places[0][2], places[0][1] + places[0][3])
    return sheet.finish()


def planes(hu: np.ndarray, mask: np.ndarray, spacing, side: int = 420) -> list[Image.Image]:
    """The three planes by themselves, each this many pixels wide and at most as high, with name and edges written in."""
    box = body_box(hu, spacing)
    hu, mask = hu[box], mask[box] > 0
    slices = best_slices(mask)
    found = []
    for name, axis, edges in PLANES:
        width_mm, height_mm = (hu.shape[a] * spacing[a] for a in range(3) if a != axis)
        scale = side / max(width_mm, height_mm)
        size = max(1, round(width_mm * scale)), max(1, round(height_mm * scale))
        height = max(size[1], side // 3)
        sheet = _Sheet(side, height)
        sheet.rectangle(0, 0, side, height, PANEL)
        corner = ((side - size[0]) // 2 * FINE, (height - size[1]) // 2 * FINE)
        sheet.image.paste(_panel(hu, mask, None, axis, slices[axis], size), corner)
        _annotate(sheet, name, edges, 0, 0, side, height)
        _scale_bar(sheet, scale, side, height)
        found.append(sheet.finish())
    return found


def arrange(extents, width: int):
    """Where the panels go, from the planes' extents in mm. Returns each panel's (x, y, width, height), each plane's size
    in pixels, the pixels per mm, and where the panels end.

    Side by side; in a short scan coronal and sagittal are low, and go one above the other beside the axial plane.
    """
    (axial, front), (coronal, _), (sagittal, height) = extents
    stacked = 2 * height < 0.9 * front
    gaps = 1 if stacked else 2
    across = axial + max(coronal, sagittal) if stacked else axial + coronal + sagittal
    tallest = max(front, height)
    scale = min((width - 2 * EDGE - gaps * GAP) / across, MAX_HEIGHT / tallest)
    sizes = [tuple(max(1, round(v * scale)) for v in extent) for extent in extents]
    tallest = max(140, *(h for _, h in sizes))
    x, y, places = EDGE, HEAD, []
    if stacked:
        right, half = max(w for w, _ in sizes[1:]), (tallest - GAP) // 2
        places = [(x, y, sizes[0][0], tallest)]
        places += [(x + sizes[0][0] + GAP, y + n * (half + GAP), right, half) for n in range(2)]
    else:
        for panel_width, _ in sizes:
            places.append((x, y, panel_width, tallest))
            x += panel_width + GAP
    return places, sizes, scale, HEAD + tallest


def _panel(hu, mask, label, axis: int, index: int, size) -> Image.Image:
    fine = (max(1, size[0] * FINE), max(1, size[1] * FINE))
    grey = Image.fromarray(window(plane(hu, axis, index))).resize(fine, Image.Resampling.BICUBIC)
    pixels = np.repeat(np.asarray(grey, np.float32)[..., None], 3, axis=2)
    for shape, colour, line in ((label, LABEL_COLOUR, 1.3), (mask, MASK_COLOUR, 2.0)):
        if shape is None:
            continue
        cut = plane(shape, axis, index)
        if cut.any():
            cover = outline(cut, fine, line * FINE)[..., None]
            pixels += cover * (np.array(colour, np.float32) - pixels)
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _annotate(sheet: _Sheet, name: str, edges: str, x, y, width, height) -> None:
    left, right, up, down = edges
    sheet.text(x + 9, y + 8, name, 13, TEXT, halo=2)
    sheet.text(x + 9, y + height / 2, left, 15, TEXT, "lm", 2)
    sheet.text(x + width - 9, y + height / 2, right, 15, TEXT, "rm", 2)
    sheet.text(x + width / 2, y + 8, up, 15, TEXT, "ma", 2)
    sheet.text(x + width / 2, y + height - 8, down, 15, TEXT, "md", 2)


def _scale_bar(sheet: _Sheet, scale: float, right: float, bottom: float) -> None:
    for millimetres in (100, 50, 20, 10):
        if millimetres * scale < 130:
            break
    length = millimetres * scale
    sheet.rectangle(right - 12 - length, bottom - 14, length, 3, TEXT)
    sheet.text(right - 12 - length / 2, bottom - 19, f"{millimetres // 10} cm", 13, TEXT, "md", 2)


def _words(sheet: _Sheet, lines: Lines, label: bool, width: int, bottom: float) -> None:
    title = lines.title
    while sheet.length(title, 24) > width - 2 * EDGE:
        title = title[: len(title) * 9 // 10].rstrip(". ") + " .."
    sheet.text(EDGE, 18, title, 24, TITLE)
    sheet.text(EDGE, 52, lines.facts, 16, TEXT)
    x, y = EDGE, bottom + 31
    for name, colour, line in (("network", MASK_COLOUR, 3), ("known spleen", LABEL_COLOUR, 2)):
        if name == "network" or label:
            sheet.rectangle(x, y - line / 2, 26, line, colour)
            sheet.text(x + 34, y, name, 15, TEXT, "lm")
            x += 34 + sheet.length(name, 15) + 26
    sheet.text(width - EDGE, y, lines.notice, 15, MASK_COLOUR, "rm")
    sheet.text(x, y, f"window {LEVEL - WIDTH / 2:.0f} to {LEVEL + WIDTH / 2:.0f} HU", 15, QUIET, "lm")


def palette() -> Image.Image:
    """128 greys, and both colours in eight strengths over eight greys: what lines with smooth edges are made of."""
    greys = [(2 * i, 2 * i, 2 * i) for i in range(128)]
    mixed = [
        tuple(round(g + cover * (c - g)) for c in colour)
        for colour in (MASK_COLOUR, LABEL_COLOUR)
        for cover in np.linspace(1, 0.2, 8)
        for g in np.linspace(0, 245, 8)
    ]
    image = Image.new("P", (1, 1))
    image.putpalette([v for colour in greys + mixed for v in colour])
    return image


def save(picture: Image.Image, path) -> None:
    """As PNG with a palette: two thirds of the size for the same looks."""
    picture.quantize(palette=palette(), dither=Image.Dither.NONE).save(path, optimize=True)
