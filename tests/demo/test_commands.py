"""scripts/demo.sh and its client as commands: what they say of wrong arguments, before anything is installed or built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from spleen_client.progress import working

ROOT = Path(__file__).resolve().parents[2]


def script(tmp_path, *arguments: str):
    """The cache is an empty folder: whatever starts to install anything is caught by what it leaves there."""
    environment = os.environ | {"TRITON_SPLEENSEG_CACHE": str(tmp_path / "cache")}
    command = [str(ROOT / "scripts" / "demo.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=tmp_path)
    assert not (tmp_path / "cache").exists()
    return done


def test_help_is_the_header_of_the_script(tmp_path):
    done = script(tmp_path, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: scripts/demo.sh [CT.nii.gz") and "not for clinical use" in done.stdout
    assert "source" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.nii.gz"], "no such file: nowhere.nii.gz"),
        (["here.nii", "--label", "nowhere.nii"], "no such file: nowhere.nii"),
        (["here.nii", "here.nii", "here.nii"], "found 3 files, accepted are a CT and its label"),
        (["--label", "here.nii"], "a label needs its CT"),
        (["--label"], "--label needs a value"),
        (["--fast"], "unknown option '--fast'"),
        (["here.nii", "--repository", "nowhere"], "no such model repository: nowhere"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_arguments_are_one_line(tmp_path, arguments, words):
    (tmp_path / "here.nii").write_bytes(b"")
    done = script(tmp_path, *arguments)
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0]


def client(tmp_path, *arguments: str):
    command = [sys.executable, "-m", "demo", *arguments, "--cache", str(tmp_path), "--out", str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def test_check_passes_a_scan_and_refuses_what_is_none(tmp_path):
    ct, series = tmp_path / "ct.nii.gz", tmp_path / "series.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6), np.float64), np.eye(4)), ct)
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6, 2), np.int16), np.eye(4)), series)
    assert client(tmp_path, "check", "--ct", str(ct)).returncode == 0
    refused = client(tmp_path, "check", "--ct", str(series))
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"error: {series}: found 4 dimensions, 4 x 5 x 6 x 2; accepted is one 3-D volume: take one volume of the series out first"
    ]


def test_the_client_needs_no_torch(tmp_path):
    """Nor MONAI: neither while it segments nor while it makes a phantom."""
    code = (
        "import sys; import demo.__main__, demo.report, demo.phantom_case, spleen_client.picture, spleen_client.segmenter; "
        "print(sorted({'torch', 'monai', 'matplotlib'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_progress_is_shown_and_a_failure_passes(capsys):
    with working("doing a thing"):
        pass
    assert "doing a thing: done in" in capsys.readouterr().err
    with pytest.raises(ValueError, match="as it was"), working("doing a thing"):
        raise ValueError("as it was")
    assert "done" not in capsys.readouterr().err


def test_the_phantom_is_made_once_and_kept(tmp_path, monkeypatch):
    from demo import phantom_case

    monkeypatch.setattr(phantom_case, "SHAPE", (48, 48, 24))
    ct, label = phantom_case.phantom(tmp_path)
    assert nibabel.load(ct).shape == nibabel.load(label).shape == (48, 48, 24)
    assert sorted(p.name for p in ct.parent.iterdir()) == ["ct.nii.gz", "spleen.nii.gz"]
    made = ct.stat().st_mtime_ns
    assert phantom_case.phantom(tmp_path) == (ct, label) and ct.stat().st_mtime_ns == made
