"""DICOM series in, DICOM segmentations out."""

from __future__ import annotations

import highdicom
import nibabel
import numpy as np
import pydicom
import pytest
from dicom_files import RAS_TO_LPS, write_series
from nibabel.orientations import apply_orientation, io_orientation
from pydicom.uid import JPEGLSLossless, RLELossless, generate_uid
from spleen_client import ClientError, dicom_seg
from spleen_client.dicom import DicomSeries

SHAPE = (12, 10, 8)
ORIGIN = {
    "server": "triton 2.51.0",
    "model": "spleen_seg_native",
    "model_version": "3",
    "network": "segmentation_3d",
    "network_version": "2",
    "model_config_sha256": "ab" * 32,
    "build_id": "cd" * 20,
    "notice": "Not for clinical use.",
}


def affine(axes: str = "LPS", turn: float = 0.0) -> np.ndarray:
    """Of a volume whose axes point there, 1.5 x 1.5 x 4 mm."""
    columns = {"R": (1, 0, 0), "L": (-1, 0, 0), "A": (0, 1, 0), "P": (0, -1, 0), "S": (0, 0, 1), "I": (0, 0, -1)}
    found = np.eye(4)
    found[:3, :3] = np.array([columns[a] for a in axes]).T * (1.5, 1.5, 4.0)
    rotation = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    found[:3, :3] = rotation @ found[:3, :3]
    found[:3, 3] = (31.5, -20.25, -700)
    return found


def volume(low: int = -1000) -> np.ndarray:
    return np.random.default_rng(1).integers(low, 1500, SHAPE).astype(np.int16)


@pytest.mark.parametrize("turn", [0.0, 0.2])
@pytest.mark.parametrize("axes", ["LPS", "LPI", "RAS", "ASL", "LIP"])
def test_voxels_and_their_places_are_those_of_the_series(tmp_path, axes, turn):
    voxels = volume()
    write_series(tmp_path, voxels, affine(axes, turn))
    scan = DicomSeries(tmp_path)
    # The same volume as nibabel would have it: RAS voxels at RAS places.
    image = nibabel.Nifti1Image(voxels, affine(axes, turn))
    wanted = apply_orientation(voxels, io_orientation(image.affine))
    np.testing.assert_array_equal(scan.voxels_ras(), wanted)
    np.testing.assert_allclose(scan.affine_ras, nibabel.as_closest_canonical(image).affine, atol=1e-4)
    np.testing.assert_allclose(scan.spacing, (1.5, 1.5, 4.0), atol=1e-6)
    assert scan.millilitres(1000) == pytest.approx(9.0)


def test_the_result_lies_on_the_series(tmp_path):
    voxels = volume()
    write_series(tmp_path / "series", voxels, affine(turn=0.1))
    scan = DicomSeries(tmp_path / "series")
    scan.save((scan.voxels_ras() > 500).astype(np.uint8), tmp_path / "mask.nii.gz", "a test", {"model": "m"})
    written = nibabel.load(tmp_path / "mask.nii.gz")
    np.testing.assert_allclose(written.affine, affine(turn=0.1), atol=1e-4)
    np.testing.assert_array_equal(np.asarray(written.dataobj), voxels > 500)
    assert (written.header["sform_code"], written.header["qform_code"]) == (1, 1)
    assert written.header.get_xyzt_units()[0] == "mm"
    (extension,) = written.header.extensions
    assert extension.get_code() == 6 and b'"model": "m"' in extension.get_content()


@pytest.mark.parametrize(
    ("signed", "slope", "intercept", "dtype"),
    [(True, 1, 0, np.int16), (False, 1, -1024, np.int16), (True, 2, -1000, np.int16), (False, 0.5, -1024, np.float32), (False, 1, 40000, np.int32)],
)
def test_stored_numbers_become_hu(tmp_path, signed, slope, intercept, dtype):
    voxels = volume() // 2 * 2 + (intercept + 1000 if intercept > 0 else 0)
    write_series(tmp_path, voxels.astype(np.int32), affine(), signed=signed, slope=slope, intercept=intercept)
    found = DicomSeries(tmp_path)._voxels()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, voxels)


def test_slices_may_have_rescaling_of_their_own(tmp_path):
    def change(number, dataset):
        dataset.RescaleIntercept = -1024 - number

    voxels = volume()
    write_series(tmp_path, voxels, affine(), change=change)
    np.testing.assert_array_equal(DicomSeries(tmp_path)._voxels(), voxels - np.arange(SHAPE[2], dtype=np.int16))


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless])
def test_compressed_pixels(tmp_path, syntax):
    voxels = volume()
    write_series(tmp_path, voxels, affine(), signed=False, change=lambda number, dataset: dataset.compress(syntax))
    np.testing.assert_array_equal(DicomSeries(tmp_path)._voxels(), voxels)


def refusal(folder, series=None) -> str:
    with pytest.raises(ClientError) as caught:
        DicomSeries(folder, series).voxels_ras()
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    return str(caught.value)


def test_a_missing_slice_is_a_gap_with_its_place(tmp_path):
    paths = write_series(tmp_path, volume(), affine())
    paths[3].unlink()
    assert "a gap of 8.00 mm between slices 3 and 4 of 7, where 4.00 mm is usual (1 such places)" in refusal(tmp_path)


def test_series_are_not_mixed(tmp_path):
    one, two = generate_uid(), generate_uid()
    write_series(tmp_path, volume(), affine(), series=one)
    write_series(tmp_path, volume(), affine("LPI"), series=two, seed=7)
    message = refusal(tmp_path)
    assert "found 2 series" in message and f"{one} (8 slices)" in message and "--series" in message
    assert DicomSeries(tmp_path, two).shape == SHAPE
    assert f"found no series 1.2.3, only {one} (8 slices)" in refusal(tmp_path, "1.2.3")


def one_slice(**attributes):
    def change(number, dataset):
        if number == 2:
            for keyword, value in attributes.items():
                setattr(dataset, keyword, value)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (one_slice(PixelSpacing=[1.5, 1.6]), "the slices differ in PixelSpacing"),
        (one_slice(ImageOrientationPatient=[0, 1, 0, 0, 0, -1]), "the slices differ in ImageOrientationPatient"),
        (one_slice(Rows=5), "the slices differ in Rows"),
        (one_slice(FrameOfReferenceUID="1.2"), "the slices differ in FrameOfReferenceUID"),
        (one_slice(ImagePositionPatient=[-31.5, 20.25, -700]), "slices at the same place"),
        (one_slice(ImagePositionPatient=[-31.5, 20.25, -693]), "a gap of 5.00 mm between slices 3 and 4"),
        (one_slice(ImagePositionPatient=None), "it lacks ImagePositionPatient"),
        (one_slice(PixelData=b"1234"), "its pixels cannot be read"),
        (lambda number, dataset: setattr(dataset, "SOPClassUID", "1.2.840.10008.5.1.4.1.1.4"), "found no CT image, only {'MR Image Storage': 8}"),
        (lambda number, dataset: setattr(dataset, "ImagePositionPatient", [-31.5, 20.25 + number, -700 + 4 * number]), "gantry tilt"),
    ],
)
def test_what_is_no_volume_is_refused(tmp_path, change, words):
    write_series(tmp_path, volume(), affine(), change=change)
    assert words in refusal(tmp_path)


def test_other_files_beside_the_series_do_not_count(tmp_path):
    write_series(tmp_path, volume(), affine())
    (tmp_path / "DICOMDIR.txt").write_text("no DICOM")
    write_series(tmp_path, volume()[:, :, :1], affine(), seed=99, change=lambda n, d: setattr(d, "SOPClassUID", "1.2.840.10008.5.1.4.1.1.88.11"))
    assert DicomSeries(tmp_path).shape == SHAPE
    assert "no such folder" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("empty", [False, True])
def test_a_segmentation_object_finds_its_way_back(tmp_path, empty):
    write_series(tmp_path / "series", volume(), affine("LPI", 0.1))
    scan = DicomSeries(tmp_path / "series")
    mask_ras = np.zeros(scan.shape_ras, np.uint8) if empty else (scan.voxels_ras() > 300).astype(np.uint8)
    dicom_seg.save(scan, mask_ras, tmp_path / "mask.dcm", "Spleen", ORIGIN)
    written = highdicom.seg.segread(tmp_path / "mask.dcm")

    # As another reader has it: a volume with a place of its own, that must be the scan's.
    found = written.get_volume(combine_segments=True, allow_missing_positions=True)
    places = np.linalg.inv(RAS_TO_LPS @ scan.affine) @ found.affine
    indices = np.stack(np.meshgrid(*map(np.arange, found.spatial_shape), indexing="ij"), -1).reshape(-1, 3)
    mapped = np.rint(indices @ places[:3, :3].T + places[:3, 3]).astype(int)
    back = np.zeros(scan.shape, np.uint8)
    back[tuple(mapped.T)] = found.array.reshape(-1)
    np.testing.assert_array_equal(back, np.zeros(SHAPE) if empty else scan._voxels() > 300)
    assert back.any() != empty

    assert written.SeriesInstanceUID != scan.slices[0].SeriesInstanceUID
    assert written.StudyInstanceUID == scan.slices[0].StudyInstanceUID and written.PatientID == "P1"
    (segment,) = written.SegmentSequence
    algorithm = segment.SegmentationAlgorithmIdentificationSequence[0]
    assert algorithm.AlgorithmName == "spleen_seg_native" and algorithm.AlgorithmVersion == "3, segmentation_3d 2"
    assert f"model_config_sha256={'ab' * 32}" in algorithm.AlgorithmParameters.replace(" ", "")
    assert any("cd" * 20 in version for version in written.SoftwareVersions) and written.DeviceSerialNumber == "cd" * 20


def test_a_series_without_what_an_object_needs_is_one_line(tmp_path):
    def change(number, dataset):
        del dataset.StudyInstanceUID

    write_series(tmp_path, volume(), affine(), change=change)
    scan = DicomSeries(tmp_path)
    with pytest.raises(ClientError, match="a DICOM SEG cannot be made from this series: .*StudyInstanceUID"):
        dicom_seg.save(scan, np.ones(scan.shape_ras, np.uint8), tmp_path / "mask.dcm", "Spleen", ORIGIN)


def test_the_pixels_decoders_are_there():
    """JPEG and JPEG 2000, which archives send, besides what pydicom decodes alone."""
    from pydicom.pixels import get_decoder
    from pydicom.uid import JPEG2000Lossless, JPEGLosslessSV1

    for syntax in (JPEG2000Lossless, JPEGLosslessSV1):
        assert get_decoder(syntax).is_available
    assert pydicom.__version__
