"""What every scan has, whatever file it came from: a grid with a place in the patient, and results written on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import nibabel
import numpy as np
from nibabel.orientations import aff2axcodes, apply_orientation, io_orientation, ornt_transform

from . import ClientError
from .axes import RAS, affine_ras

LOWEST_HU = -150  # above it the lowest value of a volume is hardly one of a CT: air has -1000
DESCRIPTION_BYTES = 79  # of NIfTI's descrip, which ends with a zero


def doubt(voxels: np.ndarray) -> str:
    """Why these values are hardly Hounsfield units, or nothing: every CT has air or fat in it, a label map has not."""
    lowest = np.fmin.reduce(voxels, axis=None)  # passes over NaN
    if not lowest > LOWEST_HU:
        return ""
    return f"values from {lowest:g} to {np.fmax.reduce(voxels, axis=None):g}: are these Hounsfield units?"


class Scan:
    """One 3-D volume. Voxels are read when they are asked for."""

    kind: str  # NIfTI or DICOM

    def __init__(self, path: Path, shape, affine: np.ndarray):
        self.path = path
        self.shape = tuple(int(n) for n in shape)  # in the file's own order
        self.affine = np.asarray(affine, dtype=np.float64)  # voxels to mm, RAS
        if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
            raise ClientError(f"{path}: its affine does not describe a volume: {np.round(affine[:3], 3).tolist()}")
        self.orientation = io_orientation(affine)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Voxel size in mm, in the file's own order."""
        return tuple(float(v) for v in nibabel.affines.voxel_sizes(self.affine))

    @property
    def axes(self) -> str:
        """Where the file's own axes point to, such as LPS."""
        return "".join(aff2axcodes(self.affine))

    @property
    def shape_ras(self) -> tuple[int, int, int]:
        """Axis i of the file becomes axis orientation[i, 0]."""
        return tuple(self.shape[i] for i in np.argsort(self.orientation[:, 0]))

    @property
    def spacing_ras(self) -> tuple[float, float, float]:
        return tuple(self.spacing[i] for i in np.argsort(self.orientation[:, 0]))

    @property
    def affine_ras(self) -> np.ndarray:
        return affine_ras(self.affine, self.orientation, self.shape)

    def millilitres(self, voxels: int) -> float:
        return float(voxels * abs(np.linalg.det(self.affine[:3, :3])) / 1000)

    def voxels_ras(self) -> np.ndarray:
        """The voxels in HU and RAS: a view, in whatever type and memory order they are stored."""
        return apply_orientation(self._voxels(), self.orientation)

    def _voxels(self) -> np.ndarray:
        raise NotImplementedError

    def files(self) -> list[Path]:
        """All that the scan was read from."""
        return [self.path]

    def fingerprint(self) -> str:
        """The same for the same bytes, whatever the files are called."""
        digests = []
        for path in self.files():
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()

    def _header(self) -> nibabel.Nifti1Header:
        """Of the results: what it says of the scan's place stays as it is."""
        raise NotImplementedError

    def save(self, labels_ras: np.ndarray, path, description: str, provenance: dict | None = None) -> None:
        """Writes labels (uint8) in RAS as NIfTI in the scan's own order, with its affine.

        The description goes to the header's descrip, provenance as JSON to a comment extension.
        """
        back = ornt_transform(RAS, self.orientation)
        labels = np.ascontiguousarray(apply_orientation(labels_ras, back), dtype=np.uint8)
        header = self._header()
        header.extensions.clear()
        if provenance is not None:
            header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", json.dumps(provenance, sort_keys=True).encode()))
        header.set_data_dtype(np.uint8)
        header["cal_min"], header["cal_max"] = 0, max(1, int(labels.max()))
        header["descrip"] = description.encode("ascii", "replace")[:DESCRIPTION_BYTES]
        kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
        nibabel.save(kind(labels, self.affine, header), path)
