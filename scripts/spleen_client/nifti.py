"""Scans stored as NIfTI: any orientation, data type and memory order."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np

from . import ClientError, millimetres, one_line, times
from .scan import Scan

ENDINGS = (".nii.gz", ".nii")


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS)


class NiftiScan(Scan):
    """One 3-D NIfTI file."""

    kind = "NIfTI"

    def __init__(self, path):
        path = Path(path)
        image = _load(path)
        shape = image.shape
        if len(shape) > 3 and set(shape[3:]) == {1}:
            image = image.slicer[(..., *(0 for _ in shape[3:]))]
            shape = image.shape
        if len(shape) != 3:
            raise ClientError(
                f"{path}: found {len(shape)} dimensions, {times(shape)}; accepted is one 3-D volume"
                + (": take one volume of the series out first" if len(shape) > 3 else "")
            )
        if min(shape) < 1:
            raise ClientError(f"{path}: found {times(shape)} voxels; accepted is a volume with at least one")
        if image.get_data_dtype().kind not in "iuf":
            raise ClientError(f"{path}: found voxels of type {image.get_data_dtype()}; accepted are real numbers")
        self.image = image
        super().__init__(path, shape, image.affine)

    @property
    def name(self) -> str:
        name = self.path.name
        for ending in (".gz", ".nii", ".img", ".hdr"):
            name = name.removesuffix(ending)
        return name

    def _voxels(self) -> np.ndarray:
        try:
            return np.asanyarray(self.image.dataobj)
        except Exception as error:  # a cut-off or damaged file raises whatever its decompressor raises
            raise ClientError(f"{self.path}: its voxels cannot be read: {one_line(error)}") from None

    def _header(self) -> nibabel.Nifti1Header:
        # A copy keeps both of the scan's transforms and their codes.
        return self.image.header.copy()


def _load(path: Path):
    if not path.is_file():
        raise ClientError(f"{path}: no such file; give a CT as NIfTI (.nii or .nii.gz)")
    if path.stat().st_size == 0:
        raise ClientError(f"{path}: the file is empty; give a CT as NIfTI (.nii or .nii.gz)")
    try:
        image = nibabel.load(path)
    except Exception as error:  # nibabel passes on whatever a damaged file raises in the layers below it
        raise ClientError(f"{path}: cannot be read as NIfTI (.nii or .nii.gz): {one_line(error)}") from None
    if not isinstance(image, nibabel.Nifti1Pair):
        raise ClientError(f"{path}: found {type(image).__name__}; accepted is NIfTI (.nii or .nii.gz)")
    return image


def read_label(path, scan: NiftiScan) -> np.ndarray:
    """A known segmentation of ``scan``, in RAS, true in the spleen. It may be stored in another orientation."""
    label = NiftiScan(path)
    if label.shape_ras != scan.shape_ras or not np.allclose(label.affine_ras, scan.affine_ras, atol=0.01):
        raise ClientError(
            f"{path}: not the geometry of {scan.path.name}: found {times(label.shape_ras)} voxels of "
            f"{millimetres(label.spacing_ras)}, needed are {times(scan.shape_ras)} of {millimetres(scan.spacing_ras)} at the same place"
        )
    voxels = label.voxels_ras()
    values = np.unique(voxels[voxels != 0])
    if len(values) != 1:
        raise ClientError(f"{path}: found the labels {values[:8].tolist()}; accepted is one label for the spleen, and 0 elsewhere")
    return voxels != 0
