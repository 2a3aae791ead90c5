"""spleenseg-cli: NIfTI in, mask out, without a server, and the same mask as the server's to the bit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nibabel
import numpy as np
import pytest
from conftest import ROOT
from nibabel.orientations import axcodes2ornt, ornt_transform
from spleen_client.nifti import NiftiScan
from spleen_client.segmenter import Segmenter
from spleen_client.server import Server

MODEL = ROOT / "models" / "segmentation_3d" / "1" / "model.pt"


def cli(*arguments) -> subprocess.CompletedProcess:
    program = os.environ.get("SPLEENSEG_CLI")
    if not program:
        raise RuntimeError("SPLEENSEG_CLI is not set: run these tests with scripts/test.sh client [pytest arguments]")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A server with the shipped models."""
    from triton import Triton, backend_folder

    folder = tmp_path_factory.mktemp("shipped")
    server = Triton(Path(os.environ["SPLEENSEG_REPOSITORY"]), backend_folder(folder / "backends"), folder / "server.log")
    with server:
        yield server


@pytest.fixture(scope="module")
def real_ct() -> Path:
    path = Path(os.environ.get("SPLEENSEG_TEST_DATA", "")) / "ct_abdomen_3mm.nii.gz"
    if not path.is_file():
        pytest.skip(f"no real CT: {path} is absent (SPLEENSEG_TEST_DATA names its folder)")
    return path


@pytest.fixture(scope="module")
def found(shipped, real_ct):
    """What server and client make of the real CT: with native outputs, and laid back by the client."""
    results = []
    for model in ("spleen_seg_native", "spleen_seg"):
        with Server(f"localhost:{shipped.http_port}", model) as server:
            results.append(Segmenter(server).segment(NiftiScan(real_ct)))
    return results


def test_the_servers_native_mask_of_a_real_ct_is_the_clients(found):
    server, client = found
    assert server.native and not client.native and 0 < server.voxels < server.mask.size
    np.testing.assert_array_equal(server.mask, client.mask)
    np.testing.assert_array_equal(server.contour, client.contour)


@pytest.mark.parametrize("axes", ["RAS", "SLA"])
def test_offline_is_the_server_to_the_bit(found, real_ct, tmp_path, axes):
    scan = nibabel.load(real_ct)
    turned = scan.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(axes)))
    path = tmp_path / "a.scan.nii.gz"
    nibabel.save(turned, path)
    done = cli(path, tmp_path / "a.mask.nii.gz", "--model", MODEL, "--contour", tmp_path / "edge.nii")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'a.mask.nii.gz'}\t{found[0].millilitres:.1f} mL\n"
    for name, labels in (("a.mask.nii.gz", found[0].mask), ("edge.nii", found[0].contour)):
        written = nibabel.load(tmp_path / name)
        np.testing.assert_array_equal(written.affine, turned.affine)
        assert written.get_data_dtype() == np.uint8 and written.header["descrip"].item().startswith(b"spleenseg-cli ")
        np.testing.assert_array_equal(np.asarray(nibabel.as_closest_canonical(written).dataobj), labels)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mask.nii.gz", "a.scan.nii.gz", "edge.nii"]


def test_a_scan_without_sform_and_with_scaling(found, real_ct, tmp_path):
    """Only the quaternion says where the voxels lie, and slope and intercept make them HU."""
    scan = nibabel.load(real_ct)
    image = nibabel.Nifti1Image(((np.asarray(scan.dataobj) + 1024) // 2 * 2).astype(np.int16), None)
    image.set_qform(scan.affine @ np.diag([1, 1, 1, 1]), code=1)
    image.header.set_slope_inter(1, -1024)
    image.header["sform_code"] = 0
    nibabel.save(image, tmp_path / "ct.nii")
    nibabel.save(nibabel.Nifti1Image(np.asarray(nibabel.load(tmp_path / "ct.nii").dataobj), scan.affine), tmp_path / "plain.nii")
    for name in ("ct", "plain"):
        done = cli(tmp_path / f"{name}.nii", tmp_path / f"{name}_mask.nii", "--model", MODEL)
        assert done.returncode == 0, done.stderr
    one, two = (nibabel.load(tmp_path / f"{name}_mask.nii") for name in ("ct", "plain"))
    np.testing.assert_array_equal(np.asarray(one.dataobj), np.asarray(two.dataobj))
    np.testing.assert_allclose(one.affine, scan.affine, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ct.nii", "mask.nii"], 2, "--model is missing"),
        (["ct.nii", "mask.nii", "--model", "nowhere.pt"], 1, "cannot load the TorchScript file nowhere.pt"),
        (["nowhere.nii", "mask.nii", "--model", MODEL], 1, "nowhere.nii: cannot be read as NIfTI"),
        (["ct.nii", "mask.nii", "--model", MODEL, "--set", "a_min=low"], 1, "a_min"),
        (["ct.nii", "mask.nii", "--model", MODEL, "--set", "a_min=5000", "--set", "a_max=6000"], 1, "has no foreground"),
        (["series.nii", "mask.nii", "--model", MODEL], 1, "accepted is one 3-D volume"),
    ],
)
def test_messages(tmp_path, arguments, code, words):
    nibabel.save(nibabel.Nifti1Image(np.zeros((8, 8, 8), np.int16), np.eye(4)), tmp_path / "ct.nii")
    nibabel.save(nibabel.Nifti1Image(np.zeros((8, 8, 8, 2), np.int16), np.eye(4)), tmp_path / "series.nii")
    done = cli(*(tmp_path / a if str(a).endswith(".nii") else a for a in arguments))
    assert done.returncode == code and words in done.stderr and done.stdout == "", done.stderr
    assert done.stderr.startswith("error: ") and not (tmp_path / "mask.nii").exists()
