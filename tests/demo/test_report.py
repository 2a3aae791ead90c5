"""What the demonstration measures and prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
from demo import NOTICE, report
from spleen_client.nifti import NiftiScan

STAGES = {"queue": 0.5, "compute_input": 12.25, "compute_infer": 3000.5, "compute_output": 7.75}


@pytest.fixture
def scan(tmp_path) -> NiftiScan:
    image = nibabel.Nifti1Image(np.zeros((20, 10, 5), np.int16), np.diag([-2.0, 2.0, 5.0, 1.0]))
    nibabel.save(image, tmp_path / "case7.nii.gz")
    return NiftiScan(tmp_path / "case7.nii.gz")


def box(*slices) -> np.ndarray:
    out = np.zeros((20, 10, 5), np.uint8)
    out[slices] = 1
    return out


def test_dice():
    a, b = box(slice(0, 4)), box(slice(2, 8))
    assert report.dice(a, b) == pytest.approx(2 * 2 / (4 + 6))
    assert report.dice(a, a) == 1 and report.dice(a, box(slice(10, 12))) == 0
    assert report.dice(a * 0, a * 0) == 1 and report.dice(a, a * 0) == 0


def printed(scan, mask, label) -> str:
    answer = SimpleNamespace(seconds={"prepare": 0.25, "request": 3.125}, transport="system shared memory")
    stages = {"spleen_seg": STAGES, "segmentation_3d": STAGES}
    found = report.measure(scan, mask, label)
    return report.text("a case", scan, found, answer, stages, report.Files(Path("/results")), NOTICE, made=label is not None)


def test_everything_is_printed(scan):
    text = printed(scan, box(slice(0, 4)), box(slice(2, 8)) > 0)
    lines = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert "20 x 10 x 5 voxels, axes LAS" in lines["shape"] and "2.00 x 2.00 x 5.00 mm" in lines["spacing"]
    assert "4.0 mL" in lines["spleen"] and "6.0 mL" in lines["known"] and "0.4000" in lines["Dice"]
    assert text.count("3000.5") == 2 and "3125.0" in text and "250.0" in text
    for file in ("spleen.png", "mask.nii.gz", "contour.nii.gz", "phantom.nii.gz"):
        assert file in text
    assert text.splitlines()[-1] == NOTICE and "Not for clinical use" in NOTICE


def test_without_a_label_there_is_no_dice_and_an_empty_mask_is_said(scan):
    text = printed(scan, box() * 0, None)
    assert "Dice" not in text and "known" not in text and "phantom" not in text
    assert "none found: the mask is empty" in text
    assert "no spleen found" in report.facts(scan, report.measure(scan, box() * 0, None))
