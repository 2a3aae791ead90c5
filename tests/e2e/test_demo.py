"""scripts/demo.sh as a newcomer runs it: with no argument, with a scan of unusual geometry, with one that cannot be segmented."""

from __future__ import annotations

import re
import subprocess
import sys

import nibabel
import numpy as np
import pytest
from models import ROOT
from test_scripts import ready

sys.path.insert(0, str(ROOT / "scripts"))

from spleen_phantom import make_phantom  # noqa: E402: found through the line above

pytestmark = pytest.mark.timeout(600)


def demo(*arguments):
    command = [str(ROOT / "scripts" / "demo.sh"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, stdin=subprocess.DEVNULL)
    started = re.search(r"Starting Triton on 127\.0\.0\.1:(\d+)", done.stderr)
    assert started, done.stderr
    assert not ready(int(started.group(1))), "the server still runs"
    return done


def dice_of(done) -> float:
    assert done.returncode == 0, done.stderr
    return float(re.search(r"^Dice +([0-9.]+)", done.stdout, re.MULTILINE).group(1))


def test_a_phantom_that_the_network_never_saw(tmp_path):
    done = demo("--out", tmp_path)
    assert dice_of(done) >= 0.90
    assert "512 x 512 x 114 voxels" in done.stdout and "Not for clinical use" in done.stdout
    # Every stage has taken time, and none more than the client has waited.
    times = {name: float(ms) for name, ms in re.findall(r"^ {4}(\w+(?: \w+)?) +([0-9.]+)", done.stdout, re.MULTILINE)}
    assert all(0 < times[stage] < times["round trip"] for stage in ("compute_input", "compute_infer", "compute_output"))

    ct, mask, contour = (nibabel.load(tmp_path / f"{name}.nii.gz") for name in ("phantom", "mask", "contour"))
    spleen = np.asarray(nibabel.load(tmp_path / "phantom_spleen.nii.gz").dataobj) > 0
    affines = (ct.affine, mask.affine, contour.affine)
    mask, contour = (np.asarray(image.dataobj) > 0 for image in (mask, contour))
    np.testing.assert_array_equal(affines[0], affines[1])
    np.testing.assert_array_equal(affines[0], affines[2])
    printed = dice_of(done)
    assert 2 * (mask & spleen).sum() / (mask.sum() + spleen.sum()) == pytest.approx(printed, abs=1e-4)
    assert contour.any() and not (contour & ~mask).any()
    assert (tmp_path / "spleen.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def small_scan(tmp_path_factory):
    """A phantom stored in RAS, its label, and the mask that the demonstration finds in it."""
    folder = tmp_path_factory.mktemp("ras")
    phantom = make_phantom(100_001, (160, 160, 60), ranges="heldout")
    scan = nibabel.Nifti1Image(phantom.ct, phantom.affine)
    nibabel.save(scan, folder / "ct.nii.gz")
    nibabel.save(nibabel.Nifti1Image(phantom.label, phantom.affine), folder / "label.nii.gz")
    done = demo(folder / "ct.nii.gz", folder / "label.nii.gz", "--out", folder / "results")
    return scan, folder / "label.nii.gz", nibabel.load(folder / "results" / "mask.nii.gz"), dice_of(done)


@pytest.mark.parametrize("axes", ["LPS", "SAR"])
def test_another_orientation_type_and_order_give_the_same_mask(tmp_path, small_scan, axes):
    scan, label, mask, dice = small_scan
    codes = [nibabel.orientations.axcodes2ornt(a) for a in ("RAS", axes)]
    turned = scan.as_reoriented(nibabel.orientations.ornt_transform(*codes))
    voxels = np.asfortranarray(turned.dataobj, dtype=np.float64)
    nibabel.save(nibabel.Nifti1Image(voxels, turned.affine, dtype=np.float64), tmp_path / "ct.nii")
    done = demo(tmp_path / "ct.nii", "--label", label, "--out", tmp_path / "results")
    written, sent = nibabel.load(tmp_path / "results" / "mask.nii.gz"), nibabel.load(tmp_path / "ct.nii")
    assert written.shape == sent.shape and f"axes {axes}" in done.stdout
    np.testing.assert_array_equal(written.affine, sent.affine)
    in_ras = nibabel.as_closest_canonical(written)
    assert np.asarray(mask.dataobj).any() and dice_of(done) == dice
    np.testing.assert_array_equal(np.asarray(in_ras.dataobj), np.asarray(mask.dataobj))


def test_a_scan_that_holds_nothing_is_one_line(tmp_path):
    nibabel.save(nibabel.Nifti1Image(np.full((40, 30, 20), -1000, np.int16), np.eye(4)), tmp_path / "air.nii.gz")
    done = demo(tmp_path / "air.nii.gz", "--out", tmp_path / "results")
    assert done.returncode == 1 and done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "has no foreground" in errors[0]
    assert not list((tmp_path / "results").glob("*.nii.gz"))
