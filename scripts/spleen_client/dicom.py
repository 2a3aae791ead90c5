"""Scans stored as a DICOM series: one CT slice a file, sorted by where it lies in the patient."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import nibabel
import numpy as np
import pydicom
from pydicom.errors import InvalidDicomError
from pydicom.uid import CTImageStorage, EnhancedCTImageStorage

from . import ClientError, millimetres, one_line
from .scan import Scan

TILT = 1e-3  # sine of the largest angle between the slices' normal and the line through their corners
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
SAME = ("Rows", "Columns", "PixelSpacing", "ImageOrientationPatient", "FrameOfReferenceUID")


def is_dicom(path: Path) -> bool:
    """Whether the file has DICOM's preamble."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


class DicomSeries(Scan):
    """The CT series of one folder. Axis 0 runs along the rows of a slice (columns), 1 down its columns, 2 through the slices."""

    kind = "DICOM"

    def __init__(self, folder, series: str | None = None):
        folder = Path(folder)
        slices = _of_one_series(folder, _headers(folder), series)
        first = slices[0]
        for keyword in SAME:
            _same(folder, slices, keyword)
        if first.get("SamplesPerPixel", 1) != 1:
            raise ClientError(f"{folder}: found {first.SamplesPerPixel} values a pixel; accepted are CT images in grey")
        along_row, along_column = np.split(np.array(first.ImageOrientationPatient, dtype=float), 2)
        normal = np.cross(along_row, along_column)
        if not np.isclose(np.linalg.norm(normal), 1, atol=1e-3):
            raise ClientError(f"{folder}: ImageOrientationPatient {list(first.ImageOrientationPatient)} does not hold two directions at right angles")
        slices.sort(key=lambda s: float(normal @ np.array(s.ImagePositionPatient, dtype=float)))
        positions = np.array([s.ImagePositionPatient for s in slices], dtype=float)
        step = _step(folder, positions, normal, slices)
        rows_apart, columns_apart = (float(v) for v in first.PixelSpacing)
        lps = np.eye(4)
        lps[:3, 0], lps[:3, 1], lps[:3, 2] = along_row * columns_apart, along_column * rows_apart, step
        lps[:3, 3] = positions[0]
        self.slices = slices  # headers without pixels, from the lowest along the normal on
        super().__init__(folder, (first.Columns, first.Rows, len(slices)), LPS_TO_RAS @ lps)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def files(self) -> list[Path]:
        return [Path(s.filename) for s in self.slices]

    def _voxels(self) -> np.ndarray:
        columns, rows, count = self.shape
        slopes = {(float(s.get("RescaleSlope", 1)), float(s.get("RescaleIntercept", 0))) for s in self.slices}
        # The scanner's own numbers fit INT16 in all but odd cases; then they stay what they are.
        whole = all(float(v).is_integer() for pair in slopes for v in pair)
        volume = np.empty((count, rows, columns), np.int32 if whole else np.float32)
        for number, header in enumerate(self.slices):
            try:
                stored = pydicom.dcmread(header.filename).pixel_array
            except Exception as error:  # a damaged file raises whatever its decoder raises
                raise ClientError(f"{header.filename}: its pixels cannot be read: {one_line(error)}") from None
            if stored.shape != (rows, columns):
                raise ClientError(f"{header.filename}: found pixels of shape {stored.shape}, needed is one image of {rows} x {columns}")
            slope, intercept = float(header.get("RescaleSlope", 1)), float(header.get("RescaleIntercept", 0))
            np.multiply(stored, slope, out=volume[number], casting="unsafe")
            volume[number] += type(volume[number, 0, 0])(intercept)
        if whole and volume.min() >= np.iinfo(np.int16).min and volume.max() <= np.iinfo(np.int16).max:
            volume = volume.astype(np.int16)
        return volume.transpose(2, 1, 0)

    def _header(self) -> nibabel.Nifti1Header:
        header = nibabel.Nifti1Header()
        header.set_data_shape(self.shape)
        header.set_sform(self.affine, code="scanner")
        header.set_qform(self.affine, code="scanner")
        header.set_xyzt_units("mm")
        return header


def _headers(folder: Path) -> list[pydicom.Dataset]:
    if not folder.is_dir():
        raise ClientError(f"{folder}: no such folder; give the folder of a DICOM series")
    found = []
    for path in sorted(p for p in folder.iterdir() if p.is_file() and is_dicom(p)):
        try:
            found.append(pydicom.dcmread(path, stop_before_pixels=True))
        except (InvalidDicomError, OSError, ValueError, KeyError, EOFError) as error:
            raise ClientError(f"{path}: cannot be read as DICOM: {one_line(error)}") from None
    return found


def _of_one_series(folder: Path, headers: list[pydicom.Dataset], series: str | None) -> list[pydicom.Dataset]:
    """The CT images of the series that was asked for, or of the only one. Reports and the like beside them do not count."""
    if any(h.get("SOPClassUID") == EnhancedCTImageStorage for h in headers):
        raise ClientError(f"{folder}: found an Enhanced CT image (all slices in one file); accepted are CT images of one slice a file")
    images = [h for h in headers if h.get("SOPClassUID") == CTImageStorage]
    if not images:
        kinds = Counter(h["SOPClassUID"].repval if "SOPClassUID" in h else "no SOPClassUID" for h in headers)
        raise ClientError(f"{folder}: found no CT image, only {dict(kinds)}")
    counts = Counter(str(h.get("SeriesInstanceUID", "")) for h in images)
    if series is not None:
        images = [h for h in images if h.get("SeriesInstanceUID") == series]
        if not images:
            raise ClientError(f"{folder}: found no series {series}, only {_listed(counts)}")
    elif len(counts) > 1:
        raise ClientError(f"{folder}: found {len(counts)} series, {_listed(counts)}; choose one with --series UID")
    for image in images:
        missing = [k for k in ("Rows", "Columns", "PixelSpacing", "ImageOrientationPatient", "ImagePositionPatient") if image.get(k) is None]
        if missing:
            raise ClientError(f"{image.filename}: it lacks {', '.join(missing)}")
    return images


def _listed(counts: Counter) -> str:
    return ", ".join(f"{uid} ({count} slices)" for uid, count in counts.most_common(4))


def _same(folder: Path, slices: list[pydicom.Dataset], keyword: str) -> None:
    """All slices must agree, or they are no volume."""

    def value(header):
        found = header.get(keyword)
        if keyword in ("PixelSpacing", "ImageOrientationPatient"):
            return tuple(round(float(v), 4) for v in found)
        return found

    values = Counter(value(s) for s in slices)
    if len(values) > 1:
        listed = ", ".join(f"{v} ({n} slices)" for v, n in values.most_common(3))
        raise ClientError(f"{folder}: the slices differ in {keyword}: {listed}; accepted is one volume, such as without its scout image")


def _step(folder: Path, positions: np.ndarray, normal: np.ndarray, slices) -> np.ndarray:
    """From one slice to the next, in mm. What is not evenly spaced along a line is refused, with the place."""
    if len(positions) == 1:
        thickness = float(slices[0].get("SliceThickness") or 1)
        return normal * thickness
    along = positions @ normal
    gaps = np.diff(along)
    spacing = float(np.median(gaps))
    tolerance = max(0.01, 0.02 * spacing)
    if (twice := np.flatnonzero(gaps < 1e-3)).size:
        raise ClientError(f"{folder}: found {len(twice) + 1} or more slices at the same place, {along[twice[0]]:.2f} mm along their normal: two reconstructions?")
    if (wide := np.flatnonzero(gaps > spacing + tolerance)).size:
        at = wide[0]
        raise ClientError(
            f"{folder}: found a gap of {gaps[at]:.2f} mm between slices {at + 1} and {at + 2} of {len(along)}, where {spacing:.2f} mm is usual "
            f"({len(wide)} such places): slices are missing, or the spacing varies"
        )
    if (narrow := np.flatnonzero(gaps < spacing - tolerance)).size:
        at = narrow[0]
        raise ClientError(f"{folder}: slices {at + 1} and {at + 2} are {gaps[at]:.2f} mm apart, where {spacing:.2f} mm is usual; accepted is even spacing")
    line = (positions[-1] - positions[0]) / (len(positions) - 1)
    sideways = np.linalg.norm(line - normal * (line @ normal)) / np.linalg.norm(line)
    if sideways > TILT:
        raise ClientError(
            f"{folder}: the slices are shifted sideways by {sideways * 100:.1f} % of their distance: gantry tilt; accepted are slices "
            f"at right angles to their line ({millimetres([spacing])} apart)"
        )
    return line
