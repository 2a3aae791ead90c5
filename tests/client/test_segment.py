"""scripts/segment.py against stock Triton: formats, axis orders, transports, and what it does with many scans."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import nibabel
import numpy as np
import pytest
from conftest import ROOT, VARIANTS
from dicom_files import write_series
from nibabel.orientations import axcodes2ornt, ornt_transform
from spleen_client.cli import main
from spleen_client.nifti import NiftiScan
from spleen_client.segmenter import Segmenter
from spleen_client.server import Server

EIGHT = ("RAS", "LPS", "LAS", "RPI", "SAR", "PSL", "IRA", "AIL")


@pytest.fixture
def segment(server, models, capsys):
    """Runs the command line; returns its exit code, the lines on stdout, and those on stderr."""

    def run(*arguments, model: str | None = None, url: str | None = None):
        address = url or f"localhost:{server.http_port}"
        code = main([*map(str, arguments), "--url", address, "--model", model or models.plain])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return run


def record(folder: Path, name: str = "ct") -> dict:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.fixture
def wanted(segment, ct, tmp_path, voxels) -> np.ndarray:
    """The mask of the whole phantom, sent as it is."""
    assert segment(ct, "--out", tmp_path / "wanted", "--send-all", "--transport", "network")[0] == 0
    mask = voxels(tmp_path / "wanted" / "ct_mask.nii.gz")
    assert 500 < mask.sum() < mask.size / 2
    return mask


def test_a_scan_becomes_mask_contour_and_record(segment, ct, phantom, tmp_path, wanted, voxels):
    code, out, _ = segment(ct, "--out", tmp_path / "out", "--png")
    made = record(tmp_path / "out")
    assert code == 0 and out == [f"ct\t{made['volume_ml']:.1f} mL\tsegmented\t{out[0].split()[-2]} s"]
    mask, contour = (nibabel.load(tmp_path / "out" / f"ct_{what}.nii.gz") for what in ("mask", "contour"))
    source = nibabel.load(ct)
    for image in (mask, contour):
        np.testing.assert_array_equal(image.affine, source.affine)
        assert image.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(mask.dataobj, wanted)
    edge = np.asarray(contour.dataobj) > 0
    assert edge.any() and not (edge & (wanted == 0)).any() and edge.sum() < wanted.sum()
    assert made["voxels"] == wanted.sum()
    assert made["volume_ml"] == pytest.approx(wanted.sum() * abs(np.linalg.det(source.affine[:3, :3])) / 1000)
    assert made["transport"] == "system shared memory"
    assert (tmp_path / "out" / "ct_overlay.png").read_bytes()[:4] == b"\x89PNG"


def test_the_result_says_where_it_came_from(segment, models, ct, tmp_path):
    assert segment(ct, "--out", tmp_path / "out", "--notice", "A test")[0] == 0
    image = nibabel.load(tmp_path / "out" / "ct_mask.nii.gz")
    (extension,) = image.header.extensions
    origin = json.loads(extension.get_content().rstrip(b"\0"))
    assert origin["model"] == models.plain and origin["model_version"] == "1" and origin["notice"] == "A test"
    assert origin["server"].startswith("triton 2.") and origin["network"].startswith("child")
    assert len(origin["model_config_sha256"]) == len(origin["input_sha256"]) == 64
    line = image.header["descrip"].item().decode()
    assert line.startswith(f"{models.plain} v1 {origin['network']} v1") and len(line) < 80


@pytest.mark.parametrize("order", EIGHT)
def test_eight_axis_orders_give_the_same_anatomy(segment, phantom, tmp_path, wanted, voxels, order):
    source = nibabel.Nifti1Image(phantom.ct, phantom.affine)
    turned = source.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(order)))
    # Another type and memory order as well, with the scaling that such files have.
    stored = np.asfortranarray(turned.dataobj, dtype=np.float64) if order in EIGHT[::2] else np.ascontiguousarray(turned.dataobj)
    path = tmp_path / f"{order}.nii"
    nibabel.save(nibabel.Nifti1Image(stored, turned.affine, dtype=stored.dtype), path)
    assert segment(path, "--out", tmp_path / "out")[0] == 0
    written, sent = nibabel.load(tmp_path / "out" / f"{order}_mask.nii.gz"), nibabel.load(path)
    np.testing.assert_array_equal(written.affine, sent.affine)
    assert written.shape == sent.shape and "".join(nibabel.aff2axcodes(written.affine)) == order
    np.testing.assert_array_equal(voxels(tmp_path / "out" / f"{order}_mask.nii.gz"), wanted)


def test_another_trained_order_is_another_request(segment, ct, tmp_path, wanted, voxels):
    """The threshold of the test's network has no preferred direction: only the resampling to its grid tells the orders apart."""
    assert segment(ct, "--out", tmp_path / "out", "--axes", "ASL")[0] == 0
    mask = voxels(tmp_path / "out" / "ct_mask.nii.gz")
    assert record(tmp_path / "out")["model_axes"] == "ASL"
    common = 2 * (mask & wanted).sum() / (mask.sum() + wanted.sum())
    assert 0.6 < common < 1


@pytest.mark.parametrize("transport", ["system", "network"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_every_way_to_the_server_gives_the_same_mask(segment, server, ct, tmp_path, wanted, voxels, protocol, transport):
    url = f"{protocol}://127.0.0.1:{server.grpc_port if protocol == 'grpc' else server.http_port}"
    code, _, err = segment(ct, "--out", tmp_path / "out", "--transport", transport, url=url)
    assert code == 0, err
    np.testing.assert_array_equal(voxels(tmp_path / "out" / "ct_mask.nii.gz"), wanted)
    assert record(tmp_path / "out")["transport"].startswith(transport)


def test_int16_is_half_of_the_bytes_and_the_same_mask(segment, models, ct, tmp_path, wanted, voxels):
    assert segment(ct, "--out", tmp_path / "out", model=models.int16)[0] == 0
    assert segment(ct, "--out", tmp_path / "fp32")[0] == 0
    np.testing.assert_array_equal(voxels(tmp_path / "out" / "ct_mask.nii.gz"), wanted)
    assert 2 * record(tmp_path / "out")["sent_bytes"] == record(tmp_path / "fp32")["sent_bytes"]


@pytest.mark.parametrize("variant", ["plain", "native", *VARIANTS])
def test_the_box_alone_gives_the_mask_of_the_whole(segment, models, ct, tmp_path, voxels, variant):
    model = {"plain": models.plain, "native": models.native}.get(variant) or models.variants[variant]
    masks, sent = [], []
    for name, more in (("box", []), ("whole", ["--send-all"])):
        code, _, err = segment(ct, "--out", tmp_path / name, *more, model=model)
        assert code == 0, err
        masks.append([voxels(tmp_path / name / f"ct_{what}.nii.gz") for what in ("mask", "contour")])
        sent.append(record(tmp_path / name)["sent_bytes"])
    np.testing.assert_array_equal(masks[0], masks[1])
    assert masks[0][0].any()
    # Where everything is foreground, or all of it is in reach, there is no smaller box.
    assert sent[0] == sent[1] if variant in ("high",) else sent[0] < sent[1]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("transport", ["system", "network"])
def test_the_servers_native_masks_are_those_that_the_client_lays_back(segment, server, models, ct, tmp_path, voxels, transport, protocol):
    url = f"{protocol}://127.0.0.1:{server.grpc_port if protocol == 'grpc' else server.http_port}"
    for name, model in (("client", models.plain), ("server", models.native)):
        code, _, err = segment(ct, "--out", tmp_path / name, "--transport", transport, model=model, url=url)
        assert code == 0, err
    for what in ("mask", "contour"):
        ours, theirs = (voxels(tmp_path / name / f"ct_{what}.nii.gz") for name in ("client", "server"))
        np.testing.assert_array_equal(ours, theirs)
        assert ours.any()
    ours, theirs = (record(tmp_path / name) for name in ("client", "server"))
    assert (ours["native"], theirs["native"]) == (False, True) and ours["voxels"] == theirs["voxels"]
    # What the server says of the mask is what the mask says.
    origin = theirs["provenance"]
    assert origin["build_id"].startswith("spleenseg-") and len(origin["config_hash"]) == 16 and origin["network_version"] == "1"
    assert theirs["mask_voxels"] > 0
    image = nibabel.load(tmp_path / "server" / "ct_mask.nii.gz")
    line = image.header["descrip"].item().decode()
    assert f"cfg {origin['config_hash'][:8]}" in line and "spleenseg-" in line
    (extension,) = image.header.extensions
    assert json.loads(extension.get_content().rstrip(b"\0"))["build_id"] == origin["build_id"]


def test_the_servers_volume_is_the_masks(server, models, ct):
    with Server(f"localhost:{server.http_port}", models.native) as connected:
        found = Segmenter(connected).segment(NiftiScan(ct))
    assert json.loads(found.parameters["voxels"]) == [found.voxels]
    assert json.loads(found.parameters["volume_ml"])[0] == pytest.approx(found.millilitres, abs=1e-3)


def test_without_a_name_the_native_model_is_used(server, ct, tmp_path, capsys):
    assert main([str(ct), "--out", str(tmp_path / "out"), "--url", f"localhost:{server.http_port}"]) == 0
    assert record(tmp_path / "out")["identity"]["model"] == "spleen_seg_native"


def test_a_dicom_series_gives_the_mask_of_the_same_volume(segment, phantom, tmp_path, wanted, voxels):
    source = nibabel.Nifti1Image(phantom.ct, phantom.affine)
    turned = source.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt("LPS")))
    write_series(tmp_path / "series", np.asarray(turned.dataobj), turned.affine, signed=False)
    code, out, err = segment(tmp_path / "series", "--out", tmp_path / "out", "--format", "both")
    assert code == 0 and out[0].startswith("series\t"), err
    np.testing.assert_array_equal(voxels(tmp_path / "out" / "series_mask.nii.gz"), wanted)

    import highdicom

    for what, title in (("mask", "Spleen"), ("contour", "Spleen contour")):
        written = highdicom.seg.segread(tmp_path / "out" / f"series_{what}.dcm")
        frames = written.get_volume(combine_segments=True, allow_missing_positions=True)
        assert frames.array.sum() == voxels(tmp_path / "out" / f"series_{what}.nii.gz").sum() > 0
        assert written.SegmentSequence[0].SegmentLabel == title
    # One slice less is a series that no volume can be made of.
    next((tmp_path / "series").iterdir()).unlink()
    code, out, err = segment(tmp_path / "series", "--out", tmp_path / "gap")
    assert code in (0, 1) and (code == 0 or "found a gap" in err[0])


def test_dicom_seg_of_nifti_is_refused(segment, ct, tmp_path):
    code, out, err = segment(ct, "--out", tmp_path / "out", "--format", "seg")
    assert code == 1 and not out and "DICOM SEG needs a DICOM series" in err[0]


@pytest.fixture
def many(phantom, ct, tmp_path) -> Path:
    """A folder with five scans in two folders, two of which cannot be segmented."""
    folder = tmp_path / "many"
    (folder / "b").mkdir(parents=True)
    for name in ("one.nii.gz", "b/two.nii.gz", "b/three.nii.gz"):
        shutil.copy(ct, folder / name)
    (folder / "broken.nii.gz").write_bytes(ct.read_bytes()[:2000])
    nibabel.save(nibabel.Nifti1Image(np.full((20, 18, 16), -1000, np.int16), np.eye(4)), folder / "air.nii")
    return folder


def test_failures_stop_nothing_and_the_rest_is_not_done_twice(segment, many, tmp_path):
    out = many / "results"  # within the input: results are no scans
    code, lines, err = segment(many, "--out", out, "--in-flight", 3)
    assert code == 3 and sorted(line.split("\t")[0] for line in lines) == ["b/three", "b/two", "one"]
    errors = [line for line in err if line.startswith("error: ")]
    assert len(errors) == 2 and any("air.nii has no foreground" in e for e in errors) and any("broken.nii.gz" in e for e in errors)
    assert err[-1] == "3 segmented, 0 already done, 2 failed"
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*_mask.nii.gz")}
    assert len(times) == 3

    code, lines, err = segment(many, "--out", out)
    assert code == 3 and all("already done" in line for line in lines) and err[-1] == "0 segmented, 3 already done, 2 failed"
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())


def test_what_would_come_out_otherwise_is_done_again(segment, models, ct, tmp_path):
    out = tmp_path / "out"

    def status(*arguments, model=None) -> str:
        code, lines, err = segment(ct, "--out", out, *arguments, model=model)
        assert code == 0, err
        return lines[0].split("\t")[2]

    assert status() == "segmented" and status() == "already done"
    assert status("--axes", "LPS") == "segmented" and status() == "segmented"
    assert status(model=models.int16) == "segmented" and status() == "segmented"
    assert status("--png") == "segmented" and status() == "already done"
    assert status("--again") == "segmented"
    (out / "ct_contour.nii.gz").unlink()
    assert status("--no-contour") == "already done" and status() == "segmented"
    image = nibabel.load(ct)
    nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj) + 1, image.affine), ct)
    assert status() == "segmented"
    (out / "ct.json").write_text("{")
    assert status() == "segmented"


def test_messages_and_exit_codes(segment, server, ct, tmp_path):
    code, out, err = segment(ct, "--out", tmp_path / "out", url="localhost:9")
    assert code == 1 and len(err) == 1 and "no Triton at http://localhost:9" in err[0]
    code, out, err = segment(tmp_path / "nowhere.nii", "--out", tmp_path / "out")
    assert code == 1 and "no such file" in err[0]
    code, out, err = segment(ct, ct, "--out", tmp_path / "out")
    assert code == 2 and "would have the same results" in err[0]
    (tmp_path / "nothing").mkdir()
    code, out, err = segment(tmp_path / "nothing", "--out", tmp_path / "out")
    assert code == 2 and "found neither NIfTI (.nii.gz, .nii) nor DICOM files" in err[0]
    # Before the server is asked: there is none.
    for wrong in (["--in-flight", "0"], ["--timeout", "0"], ["--axes", "RAL"]):
        code, out, err = segment(ct, "--out", tmp_path / "wrong", *wrong, url="localhost:9")
        assert code == 2 and len(err) == 1 and err[0].startswith("error: ") and wrong[1] in err[0]
    assert not (tmp_path / "wrong").exists()
    assert segment(ct, "--out", tmp_path / "out", "--transport", "cuda")[0] == 1


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_that_is_not_ready_is_told_with_those_that_are(segment, server, models, ct, tmp_path, protocol):
    port = server.grpc_port if protocol == "grpc" else server.http_port
    wanted = {
        "nobody": f"error: no model nobody is ready at localhost:{port}; ready are: ",
        models.orphan: f"error: model {models.orphan} calls nobody, which is not ready at localhost:{port}; ready are: ",
    }
    for model, words in wanted.items():
        code, out, err = segment(ct, "--out", tmp_path / "out", model=model, url=f"{protocol}://localhost:{port}")
        assert code == 1 and not out and len(err) == 1 and err[0].startswith(words)
        ready = err[0].removeprefix(words).split(", ")
        assert {models.plain, "spleen_seg", "spleen_seg_native"} <= set(ready) and "nobody" not in ready


def test_another_port_that_answers_is_one_line(segment, server, ct, tmp_path):
    def error(port: int, scheme: str = "") -> str:
        code, out, err = segment(ct, "--out", tmp_path / "out", url=f"{scheme}localhost:{port}")
        err = [line for line in err if not line.startswith("127.0.0.1 - - ")]  # what the other server says
        assert code == 1 and not out and len(err) == 1
        return err[0]

    grpc, metrics = server.grpc_port, server.metrics_port
    assert error(grpc) == f"error: localhost:{grpc} does not speak Triton's HTTP; for gRPC write grpc://localhost:{grpc}"
    assert error(metrics).startswith(f"error: localhost:{metrics} does not speak Triton's HTTP; ")
    assert "no Triton at grpc://" in error(server.http_port, "grpc://")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert error(other.server_port).startswith(f"error: localhost:{other.server_port} does not speak Triton's HTTP; ")
        other.shutdown()


def test_values_that_are_no_hounsfield_units_are_doubted(segment, ct, phantom, tmp_path):
    label = tmp_path / "label.nii.gz"
    nibabel.save(nibabel.Nifti1Image(phantom.label.astype(np.uint8), phantom.affine), label)
    code, out, err = segment(label, ct, "--out", tmp_path / "out", "--send-all")
    assert code == 0 and len(out) == 2
    assert err == [f"warning: {label}: values from 0 to 1: are these Hounsfield units?", "2 segmented, 0 already done, 0 failed"]


def test_stdout_has_the_lines_of_the_scans_alone(segment, ct, tmp_path):
    code, out, err = segment(ct, "--out", tmp_path / "out", "--report")
    assert code == 0 and len(out) == 1 and out[0].startswith("ct\t")
    assert err[-1] == f"report: {tmp_path / 'out' / 'report.html'}" and (tmp_path / "out" / "report.html").is_file()


def test_an_answer_that_takes_too_long_is_one_line(segment, server, models, ct, tmp_path):
    for url in (f"localhost:{server.http_port}", f"grpc://localhost:{server.grpc_port}"):
        code, _, err = segment(ct, "--out", tmp_path / "out", "--timeout", "2", model=models.slow, url=url)
        assert code == 1 and len(err) == 2 and err[0].startswith("error: "), err
        assert "within 2 s" in err[0] or "Deadline" in err[0], err


def test_the_script_runs_as_a_command_and_without_torch(server, models, ct, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "segment.py", ct, "--out", tmp_path / "out", "--model", models.plain]
    done = subprocess.run([*map(str, command), "--url", f"localhost:{server.http_port}"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout.startswith("ct\t"), done.stderr
    code = "import sys; sys.path.insert(0, sys.argv[1]); import spleen_client.cli, spleen_client.report, spleen_client.dicom_seg; print(sorted({'torch', 'monai', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "scripts")], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.strip() == "[]"
