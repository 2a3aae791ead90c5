"""NIfTI scans: any orientation, data type and memory order in; masks in the scan's own geometry out.

The network is trained on volumes in RAS order (x grows to the patient's right, y to the front, z to the head), so that is
how a scan is sent. Arrays "in RAS" below are the scan's voxels with axes swapped and flipped, never resampled.
"""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
from nibabel.orientations import aff2axcodes, apply_orientation, inv_ornt_aff, io_orientation, ornt_transform

from . import DemoError

RAS = np.array([[0, 1], [1, 1], [2, 1]])


class Scan:
    """One 3-D NIfTI file. Voxels are read when they are asked for."""

    def __init__(self, path):
        self.path = Path(path)
        self.image = _load(self.path)
        shape = self.image.shape
        if len(shape) > 3 and set(shape[3:]) == {1}:
            self.image = self.image.slicer[(..., *(0 for _ in shape[3:]))]
            shape = self.image.shape
        if len(shape) != 3:
            raise DemoError(
                f"{self.path}: found {len(shape)} dimensions, {_times(shape)}; accepted is one 3-D volume"
                + (": take one volume of the series out first" if len(shape) > 3 else "")
            )
        if min(shape) < 1:
            raise DemoError(f"{self.path}: found {_times(shape)} voxels; accepted is a volume with at least one")
        if self.image.get_data_dtype().kind not in "iuf":
            raise DemoError(f"{self.path}: found voxels of type {self.image.get_data_dtype()}; accepted are real numbers")
        affine = self.image.affine
        if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
            raise DemoError(f"{self.path}: its affine does not describe a volume: {np.round(affine[:3], 3).tolist()}")
        self.orientation = io_orientation(affine)

    @property
    def name(self) -> str:
        name = self.path.name
        for ending in (".gz", ".nii", ".img", ".hdr"):
            name = name.removesuffix(ending)
        return name

    @property
    def shape(self) -> tuple[int, int, int]:
        """In the file's own order."""
        return self.image.shape

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Voxel size in mm, in the file's own order."""
        return tuple(float(v) for v in nibabel.affines.voxel_sizes(self.image.affine))

    @property
    def axes(self) -> str:
        """Where the file's own axes point to, such as LPS."""
        return "".join(aff2axcodes(self.image.affine))

    @property
    def shape_ras(self) -> tuple[int, int, int]:
        """Axis i of the file becomes axis orientation[i, 0]."""
        return tuple(self.shape[i] for i in np.argsort(self.orientation[:, 0]))

    @property
    def spacing_ras(self) -> tuple[float, float, float]:
        return tuple(self.spacing[i] for i in np.argsort(self.orientation[:, 0]))

    @property
    def affine_ras(self) -> np.ndarray:
        return self.image.affine @ inv_ornt_aff(self.orientation, self.shape)

    def millilitres(self, voxels: int) -> float:
        return float(voxels * abs(np.linalg.det(self.image.affine[:3, :3])) / 1000)

    def voxels_ras(self) -> np.ndarray:
        """The scaled values in RAS: a view, in whatever type and order the file has."""
        try:
            voxels = np.asanyarray(self.image.dataobj)
        except Exception as error:  # a cut-off or damaged file raises whatever its decompressor raises
            raise DemoError(f"{self.path}: its voxels cannot be read: {_one_line(error)}") from None
        return apply_orientation(voxels, self.orientation)

    def save(self, labels_ras: np.ndarray, path, description: str) -> None:
        """Writes labels (uint8) in RAS as NIfTI in the file's own order, with its affine."""
        back = ornt_transform(RAS, self.orientation)
        labels = np.ascontiguousarray(apply_orientation(labels_ras, back), dtype=np.uint8)
        kind = nibabel.Nifti2Image if isinstance(self.image.header, nibabel.Nifti2Header) else nibabel.Nifti1Image
        # The scan's header keeps both of its transforms and their codes; what else it says is about the scan.
        header = self.image.header.copy()
        header.extensions.clear()
        header.set_data_dtype(np.uint8)
        header["cal_min"], header["cal_max"] = 0, 1
        header["descrip"] = description.encode("ascii")[:79]
        nibabel.save(kind(labels, self.image.affine, header), path)


def _load(path: Path):
    if not path.is_file():
        raise DemoError(f"{path}: no such file; give a CT as NIfTI (.nii or .nii.gz)")
    if path.stat().st_size == 0:
        raise DemoError(f"{path}: the file is empty; give a CT as NIfTI (.nii or .nii.gz)")
    try:
        image = nibabel.load(path)
    except Exception as error:  # nibabel passes on whatever a damaged file raises in the layers below it
        raise DemoError(f"{path}: cannot be read as NIfTI (.nii or .nii.gz): {_one_line(error)}") from None
    if not isinstance(image, nibabel.Nifti1Pair):
        raise DemoError(f"{path}: found {type(image).__name__}; accepted is NIfTI (.nii or .nii.gz)")
    return image


def read_label(path, scan: Scan) -> np.ndarray:
    """A known segmentation of ``scan``, in RAS, true in the spleen. It may be stored in another orientation."""
    label = Scan(path)
    if label.shape_ras != scan.shape_ras or not np.allclose(label.affine_ras, scan.affine_ras, atol=0.01):
        raise DemoError(
            f"{path}: not the geometry of {scan.path.name}: found {_times(label.shape_ras)} voxels of "
            f"{millimetres(label.spacing_ras)}, needed are {_times(scan.shape_ras)} of {millimetres(scan.spacing_ras)} at the same place"
        )
    voxels = label.voxels_ras()
    values = np.unique(voxels[voxels != 0])
    if len(values) != 1:
        raise DemoError(f"{path}: found the labels {values[:8].tolist()}; accepted is one label for the spleen, and 0 elsewhere")
    return voxels != 0


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _times(shape) -> str:
    return " x ".join(str(n) for n in shape)


def millimetres(spacing) -> str:
    return " x ".join(f"{s:.2f}" for s in spacing) + " mm"
