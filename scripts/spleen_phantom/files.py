"""Writing phantoms: NIfTI for people and scripts, JSON for perf_analyzer."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

from .phantom import Phantom


def save_nifti(phantom: Phantom, ct_path, label_path=None) -> None:
    """Writes int16 HU and, when ``label_path`` is given, the uint8 spleen label (1 in the spleen), in mm, RAS."""
    import nibabel  # only needed here

    for data, path in ((phantom.ct, ct_path), (phantom.label, label_path)):
        if path is None:
            continue
        image = nibabel.Nifti1Image(data, phantom.affine)
        image.header.set_xyzt_units("mm")
        image.header["descrip"] = b"synthetic phantom, not for clinical use"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(image, path)


def save_perf_analyzer_json(volumes, path, name: str = "INPUT0") -> None:
    """Writes the file for ``perf_analyzer --input-data``: one step a volume, FP32 little-endian in C order, base64.

    volumes: arrays of shape (nx, ny, nz), HU. The shape goes into the file, so ``--shape`` is not needed.
    """
    with open(path, "w", encoding="ascii") as out:
        out.write('{"data": [')
        for number, volume in enumerate(volumes):
            data = np.ascontiguousarray(volume, dtype="<f4")
            text = base64.b64encode(data).decode("ascii")
            out.write(", " if number else "")
            json.dump({name: {"content": {"b64": text}, "shape": list(data.shape)}}, out)
        out.write("]}\n")
