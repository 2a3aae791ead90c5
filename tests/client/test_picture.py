"""The picture: radiological convention, true proportions, an outline that lies on the mask's edge."""

from __future__ import annotations

import numpy as np
import pytest
from spleen_client import picture
from PIL import Image

SHAPE, SPACING = (80, 60, 24), (2.0, 3.0, 5.0)


def ellipsoid(centre, radius, shape=SHAPE, spacing=SPACING) -> np.ndarray:
    """centre as fractions of the volume, radius in mm."""
    axes = np.meshgrid(*((np.arange(n) + 0.5) * s for n, s in zip(shape, spacing)), indexing="ij")
    return sum((a - c * n * s) ** 2 for a, c, n, s in zip(axes, centre, shape, spacing)) < radius**2


def body(shape=SHAPE) -> np.ndarray:
    return np.zeros(shape, np.int16)


def coloured(image: Image.Image, colour) -> np.ndarray:
    return np.abs(np.asarray(image.convert("RGB")).astype(int) - colour).sum(axis=2) < 90


def drawn(hu, mask, label=None, spacing=SPACING):
    image = picture.draw(hu, mask, spacing, picture.Lines("a title", "facts"), label)
    box = picture.body_box(hu, spacing)
    extents = [tuple((box[a].stop - box[a].start) * spacing[a] for a in range(3) if a != axis) for _, axis, _ in picture.PLANES]
    return image, *picture.arrange(extents, image.width)


@pytest.mark.parametrize(
    ("corner", "sides"),
    [
        # x right, y front, z head: which half of the axial, coronal and sagittal panel it must be in (right?, lower?)
        ((0.25, 0.25, 0.25), [(True, True), (True, True), (True, True)]),
        ((0.75, 0.25, 0.25), [(False, True), (False, True), (True, True)]),
        ((0.25, 0.75, 0.25), [(True, False), (True, True), (False, True)]),
        ((0.25, 0.25, 0.75), [(True, True), (True, False), (True, False)]),
    ],
)
def test_radiological_convention(corner, sides):
    image, places, *_ = drawn(body(), ellipsoid(corner, 18))
    found = coloured(image, picture.MASK_COLOUR)
    for (x, y, width, height), (right, lower) in zip(places, sides):
        panel = found[y : y + height, x : x + width]
        rows, columns = np.nonzero(panel)
        assert len(rows) > 30
        assert (columns.mean() > width / 2) == right and (rows.mean() > height / 2) == lower


def test_a_sphere_is_round_and_of_its_true_size_in_every_plane():
    radius = 25.0
    image, places, _, scale, _ = drawn(body(), ellipsoid((0.5, 0.5, 0.5), radius))
    found = coloured(image, picture.MASK_COLOUR)
    for x, y, width, height in places:
        rows, columns = np.nonzero(found[y : y + height, x : x + width])
        for extent, voxel in ((np.ptp(columns) + 1, 5.0), (np.ptp(rows) + 1, 5.0)):
            # The line's own width, and one voxel of the coarsest axis.
            assert abs(extent - 2 * radius * scale) <= 3 + voxel * scale
        # Nothing but a ring: its middle is free.
        middle = found[y + height // 2 - 3 : y + height // 2 + 3, x + width // 2 - 3 : x + width // 2 + 3]
        assert not middle.any()


def test_the_outline_lies_on_the_edge_of_the_mask():
    mask = np.zeros((40, 30), bool)
    mask[10:25, 8:21] = True
    cover = picture.outline(mask, (300, 400), 2.0)  # ten pixels a voxel
    rows, columns = np.nonzero(cover > 0.5)
    assert abs(rows.min() - 100) <= 2 and abs(rows.max() + 1 - 250) <= 2
    assert abs(columns.min() - 80) <= 2 and abs(columns.max() + 1 - 210) <= 2
    assert cover[175, 145] == 0 and cover[20, 20] == 0


def test_the_slices_shown_are_those_with_most_of_the_mask():
    mask = np.zeros(SHAPE, bool)
    mask[10:20, 30:32, 5:9] = True
    mask[12, 25:40, 7] = True
    assert picture.best_slices(mask) == (12, 30, 7)
    assert picture.best_slices(np.zeros(SHAPE, bool)) == (40, 30, 12)


def test_window():
    grey = picture.window(np.array([-1000, -160, 40, 240, 3000, np.nan]))
    assert grey.tolist() == [0, 0, 128, 255, 255, 0]


def test_empty_masks_and_odd_volumes_have_a_picture():
    for shape in (SHAPE, (1, 1, 1), (3, 200, 2), (60, 50, 400)):
        image, places, *_ = drawn(body(shape), np.zeros(shape, np.uint8))
        assert image.width == 1500 and image.height < 1700
        x, y, width, height = places[0]
        assert not coloured(image, picture.MASK_COLOUR)[y : y + height, x : x + width].any()
    nothing = np.full(SHAPE, -1000, np.int16)
    assert picture.body_box(nothing, SPACING) == tuple(slice(0, n) for n in SHAPE)


def test_a_short_scan_gets_its_low_planes_stacked():
    tall, low = ((300, 240), (300, 250), (240, 250)), ((300, 240), (300, 90), (240, 90))
    (axial, coronal, sagittal), *_ = picture.arrange(tall, 1500)
    assert axial[1] == coronal[1] == sagittal[1] and axial[0] < coronal[0] < sagittal[0]
    (axial, coronal, sagittal), *_ = picture.arrange(low, 1500)
    assert coronal[0] == sagittal[0] > axial[0] and coronal[1] + coronal[3] < sagittal[1]


def test_the_file_is_a_png_with_the_colours_and_below_400_kb(tmp_path):
    hu = np.random.default_rng(2).normal(40, 20, (256, 256, 100)).astype(np.int16)
    mask = ellipsoid((0.3, 0.3, 0.5), 45, hu.shape, (1.5, 1.5, 3.0))
    label = ellipsoid((0.36, 0.3, 0.5), 45, hu.shape, (1.5, 1.5, 3.0))
    image, *_ = drawn(hu, mask, label, (1.5, 1.5, 3.0))
    picture.save(image, tmp_path / "spleen.png")
    saved = Image.open(tmp_path / "spleen.png")
    assert saved.format == "PNG" and saved.size == image.size
    assert (tmp_path / "spleen.png").stat().st_size < 400_000
    for colour in (picture.MASK_COLOUR, picture.LABEL_COLOUR):
        assert coloured(saved, colour).sum() > 0.8 * coloured(image, colour).sum() > 300
    grey = np.asarray(image.convert("L")).astype(int)
    assert np.abs(np.asarray(saved.convert("L")).astype(int) - grey).mean() < 3


def test_the_planes_by_themselves_show_the_mask_where_it_is():
    mask = ellipsoid((0.25, 0.75, 0.5), 18)
    axial, coronal, sagittal = picture.planes(body(), mask, SPACING, side=300)
    for plane, right, lower in ((axial, True, False), (coronal, True, None), (sagittal, False, None)):
        assert plane.width == 300 and 100 <= plane.height <= 300
        rows, columns = np.nonzero(coloured(plane, picture.MASK_COLOUR))
        assert len(rows) > 30 and (columns.mean() > 150) == right
        assert lower is None or (rows.mean() > plane.height / 2) == lower
    flat = picture.planes(body((60, 50, 2)), np.zeros((60, 50, 2), bool), (1.0, 1.0, 1.0), side=300)
    assert [p.height for p in flat[1:]] == [100, 100]
