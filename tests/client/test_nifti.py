"""Scans of every orientation, type and memory order; results in the scan's own geometry; messages for what is no scan."""

from __future__ import annotations

import itertools
import struct

import nibabel
import numpy as np
import pytest
from spleen_client import ClientError
from spleen_client.nifti import NiftiScan, read_label
from nibabel.orientations import apply_orientation, inv_ornt_aff, ornt_transform

SHAPE, SPACING = (7, 5, 4), (0.8, 1.25, 3.0)  # in RAS
RAS = np.array([[0, 1], [1, 1], [2, 1]])
ORIENTATIONS = [
    np.array(list(zip(order, flips)))
    for order in itertools.permutations(range(3))
    for flips in itertools.product((1, -1), repeat=3)
]


def affine_ras(oblique: float = 0.0) -> np.ndarray:
    turn = np.array([[np.cos(oblique), -np.sin(oblique), 0], [np.sin(oblique), np.cos(oblique), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag(SPACING)
    affine[:3, 3] = (-101.5, 33.25, 12)
    return affine


def stored(voxels: np.ndarray, orientation: np.ndarray, oblique: float = 0.0) -> nibabel.Nifti1Image:
    """A RAS volume as a file of the given orientation (axis and sign of each of the file's axes)."""
    change = ornt_transform(RAS, orientation)
    return nibabel.Nifti1Image(apply_orientation(voxels, change), affine_ras(oblique) @ inv_ornt_aff(change, voxels.shape))


def voxels_of(dtype=np.int16) -> np.ndarray:
    return np.random.default_rng(5).integers(-1000, 1000, SHAPE).astype(dtype)


@pytest.mark.parametrize("oblique", [0.0, 0.3])
@pytest.mark.parametrize("orientation", ORIENTATIONS, ids=lambda o: "".join(nibabel.orientations.ornt2axcodes(o)))
def test_every_orientation_is_sent_in_ras_and_comes_back(tmp_path, orientation, oblique):
    voxels = voxels_of()
    image = stored(voxels, orientation, oblique)
    image.header.set_xyzt_units("mm")
    nibabel.save(image, tmp_path / "ct.nii.gz")

    scan = NiftiScan(tmp_path / "ct.nii.gz")
    np.testing.assert_array_equal(scan.voxels_ras(), voxels)
    assert scan.shape_ras == SHAPE and np.allclose(scan.spacing_ras, SPACING)
    np.testing.assert_allclose(scan.affine_ras, affine_ras(oblique), atol=1e-5)
    assert scan.axes == "".join(nibabel.orientations.ornt2axcodes(orientation))
    assert scan.millilitres(1000) == pytest.approx(np.prod(SPACING))

    mask = (voxels > 300).astype(np.uint8)
    scan.save(mask, tmp_path / "mask.nii.gz", "a test")
    written = nibabel.load(tmp_path / "mask.nii.gz")
    assert written.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(written.affine, nibabel.load(tmp_path / "ct.nii.gz").affine)
    # Voxel by voxel the scan's own: no viewer can disagree about where it lies.
    np.testing.assert_array_equal(np.asarray(written.dataobj), (np.asarray(image.dataobj) > 300))
    assert written.header.get_xyzt_units()[0] == "mm" and written.header["descrip"].item() == b"a test"


def test_both_transforms_of_the_scan_and_their_codes_are_kept(tmp_path):
    image = stored(voxels_of(), ORIENTATIONS[11])
    image.set_sform(image.affine, code=4)
    image.set_qform(image.affine, code=1)
    nibabel.save(image, tmp_path / "ct.nii")
    NiftiScan(tmp_path / "ct.nii").save(np.ones(SHAPE, np.uint8), tmp_path / "mask.nii", "a test")
    written, original = (nibabel.load(tmp_path / name).header for name in ("mask.nii", "ct.nii"))
    assert (written["sform_code"], written["qform_code"]) == (4, 1)
    np.testing.assert_array_equal(written.get_sform(), original.get_sform())
    np.testing.assert_array_equal(written.get_qform(), original.get_qform())


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
def test_data_types_and_memory_orders(tmp_path, dtype, order):
    voxels = np.asarray(voxels_of() % 200, dtype=dtype, order=order)
    nibabel.save(nibabel.Nifti1Image(voxels, affine_ras(), dtype=dtype), tmp_path / "ct.nii.gz")
    sent = np.empty(SHAPE, np.float32)
    np.copyto(sent, NiftiScan(tmp_path / "ct.nii.gz").voxels_ras(), casting="unsafe")
    np.testing.assert_array_equal(sent, voxels.astype(np.float32))


def test_stored_numbers_are_scaled_to_hu_and_the_mask_is_not(tmp_path):
    image = nibabel.Nifti1Image(voxels_of(), affine_ras())
    image.header.set_slope_inter(2.0, -1024.0)
    nibabel.save(image, tmp_path / "ct.nii")
    scan = NiftiScan(tmp_path / "ct.nii")
    np.testing.assert_allclose(scan.voxels_ras(), np.asarray(nibabel.load(tmp_path / "ct.nii").dataobj))
    scan.save(np.ones(SHAPE, np.uint8), tmp_path / "mask.nii", "a test")
    assert (np.asarray(nibabel.load(tmp_path / "mask.nii").dataobj) == 1).all()


def test_nifti2_and_a_single_volume_in_four_dimensions(tmp_path):
    nibabel.save(nibabel.Nifti2Image(voxels_of()[..., None], affine_ras()), tmp_path / "ct.nii")
    scan = NiftiScan(tmp_path / "ct.nii")
    assert scan.shape == SHAPE
    np.testing.assert_array_equal(scan.voxels_ras(), voxels_of())
    scan.save(np.ones(SHAPE, np.uint8), tmp_path / "mask.nii", "a test")
    written = nibabel.load(tmp_path / "mask.nii")
    assert isinstance(written, nibabel.Nifti2Image) and written.shape == SHAPE


def save_raw(path, **changes) -> None:
    """A file whose header says what nibabel itself would not write."""
    image = nibabel.Nifti1Image(voxels_of(), affine_ras())
    nibabel.save(image, path)
    raw = bytearray(path.read_bytes())
    for offset, fmt, value in changes.values():
        struct.pack_into(fmt, raw, offset, value)
    path.write_bytes(raw)


def test_messages(tmp_path):
    def message_of(name: str) -> str:
        with pytest.raises(ClientError) as caught:
            NiftiScan(tmp_path / name).voxels_ras()
        assert "\n" not in str(caught.value) and name in str(caught.value)
        return str(caught.value)

    assert "no such file" in message_of("nowhere.nii.gz")
    (tmp_path / "nothing.nii.gz").write_bytes(b"")
    assert "the file is empty" in message_of("nothing.nii.gz")
    (tmp_path / "text.nii.gz").write_bytes(b"this is no gzip")
    assert "cannot be read as NIfTI" in message_of("text.nii.gz")
    nibabel.save(nibabel.MGHImage(voxels_of(np.float32), affine_ras()), tmp_path / "other.mgz")
    assert "found MGHImage; accepted is NIfTI" in message_of("other.mgz")

    nibabel.save(nibabel.Nifti1Image(np.zeros((*SHAPE, 3), np.int16), affine_ras()), tmp_path / "series.nii")
    assert "found 4 dimensions, 7 x 5 x 4 x 3; accepted is one 3-D volume: take one volume of the series" in message_of(
        "series.nii"
    )
    nibabel.save(nibabel.Nifti1Image(np.zeros((7, 5), np.int16), affine_ras()), tmp_path / "flat.nii")
    assert "found 2 dimensions" in message_of("flat.nii")
    nibabel.save(nibabel.Nifti1Image(np.zeros((7, 0, 4), np.int16), affine_ras()), tmp_path / "zero.nii")
    assert "found 7 x 0 x 4 voxels" in message_of("zero.nii")
    nibabel.save(nibabel.Nifti1Image(np.zeros(SHAPE, np.complex64), affine_ras()), tmp_path / "complex.nii")
    assert "accepted are real numbers" in message_of("complex.nii")

    # srow_x of the sform set to zeros: two axes that point nowhere.
    save_raw(tmp_path / "flat_affine.nii", a=(280, "<f", 0.0), b=(284, "<f", 0.0), c=(288, "<f", 0.0))
    assert "affine does not describe a volume" in message_of("flat_affine.nii")
    save_raw(tmp_path / "cut.nii")
    (tmp_path / "cut.nii").write_bytes((tmp_path / "cut.nii").read_bytes()[:-9])
    assert "its voxels cannot be read" in message_of("cut.nii")


def test_a_label_may_be_stored_in_another_orientation(tmp_path):
    voxels = voxels_of()
    nibabel.save(stored(voxels, ORIENTATIONS[3]), tmp_path / "ct.nii")
    nibabel.save(stored((voxels > 0).astype(np.uint8) * 4, ORIENTATIONS[42]), tmp_path / "label.nii")
    np.testing.assert_array_equal(read_label(tmp_path / "label.nii", NiftiScan(tmp_path / "ct.nii")), voxels > 0)


def test_a_label_of_another_scan_is_refused(tmp_path):
    nibabel.save(nibabel.Nifti1Image(voxels_of(), affine_ras()), tmp_path / "ct.nii")
    scan = NiftiScan(tmp_path / "ct.nii")
    moved = affine_ras()
    moved[0, 3] += 5
    one = np.ones(SHAPE, np.uint8)
    for name, image, words in (
        ("moved.nii", nibabel.Nifti1Image(one, moved), "not the geometry of ct.nii"),
        ("smaller.nii", nibabel.Nifti1Image(one[1:], affine_ras()), "found 6 x 5 x 4 voxels"),
        (
            "many.nii",
            nibabel.Nifti1Image((voxels_of() % 3).astype(np.uint8), affine_ras()),
            r"found the labels \[1, 2\]; accepted is one",
        ),
        ("none.nii", nibabel.Nifti1Image(one * 0, affine_ras()), r"found the labels \[\]"),
    ):
        nibabel.save(image, tmp_path / name)
        with pytest.raises(ClientError, match=words):
            read_label(tmp_path / name, scan)
