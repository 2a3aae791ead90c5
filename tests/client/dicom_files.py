"""Writes CT series as a scanner would, from a volume whose place is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


def write_series(
    folder: Path,
    voxels: np.ndarray,
    affine: np.ndarray,
    *,
    signed: bool = True,
    slope: float = 1,
    intercept: float = -1024,
    seed: int = 0,
    series: str | None = None,
    change=lambda number, dataset: None,
) -> list[Path]:
    """A volume [columns, rows, slices] in HU with its affine (RAS, as in NIfTI). Files are named at random, as an archive does.

    ``change(number, dataset)`` may alter the slice of this number before it is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lps = RAS_TO_LPS @ affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    series, study, frame = series or generate_uid(), generate_uid(), generate_uid()
    names = np.random.default_rng(seed).permutation(10 * voxels.shape[2])
    stored = np.rint((voxels - intercept) / slope)
    paths = []
    for number in range(voxels.shape[2]):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        path = folder / f"IM{seed:02d}{names[number]:06d}"
        dataset = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
        dataset.SOPClassUID, dataset.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        dataset.StudyInstanceUID, dataset.SeriesInstanceUID, dataset.FrameOfReferenceUID = study, series, frame
        dataset.Modality, dataset.Manufacturer, dataset.PatientName, dataset.PatientID = "CT", "A test", "Phantom^One", "P1"
        dataset.PatientBirthDate = dataset.PatientSex = dataset.AccessionNumber = dataset.StudyID = ""
        dataset.ReferringPhysicianName = dataset.PositionReferenceIndicator = ""
        dataset.StudyDate, dataset.StudyTime, dataset.SeriesNumber = "20260101", "120000", 3
        dataset.InstanceNumber = int(names[number])  # in no order, as some archives have it
        dataset.ImagePositionPatient = [round(float(v), 6) for v in lps[:3, :3] @ [0, 0, number] + lps[:3, 3]]
        dataset.ImageOrientationPatient = [float(v) for v in (*lps[:3, 0] / spacing[0], *lps[:3, 1] / spacing[1])]
        dataset.PixelSpacing = [float(spacing[1]), float(spacing[0])]
        dataset.SliceThickness = float(spacing[2])
        dataset.Columns, dataset.Rows = voxels.shape[:2]
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 16, 15
        dataset.PixelRepresentation = int(signed)
        dataset.RescaleSlope, dataset.RescaleIntercept = slope, intercept
        dataset.PixelData = stored[:, :, number].T.astype("<i2" if signed else "<u2").tobytes()
        change(number, dataset)
        dataset.save_as(path, enforce_file_format=True)
        paths.append(path)
    return paths


def read(path: Path) -> pydicom.Dataset:
    return pydicom.dcmread(path)
