"""The tutorial's notebook, executed: on a phantom, and on data laid out as Task09_Spleen is."""

from __future__ import annotations

import nbformat
import nibabel
import numpy as np
import pytest
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "examples" / "clients" / "spleen_segmentation.ipynb"


@pytest.mark.parametrize("data", ["a phantom", "Task09_Spleen"])
def test_it_runs(server, phantom, tmp_path, monkeypatch, data):
    monkeypatch.setenv("SPLEENSEG_URL", f"localhost:{server.http_port}")
    monkeypatch.setenv("SPLEENSEG_PHANTOM_SHAPE", "64,64,32")
    monkeypatch.setenv("MONAI_DATA_DIRECTORY", str(tmp_path))
    if data != "a phantom":
        for folder, voxels in (("imagesTr", phantom.ct), ("labelsTr", phantom.label)):
            (tmp_path / data / folder).mkdir(parents=True)
            nibabel.save(nibabel.Nifti1Image(np.asarray(voxels, np.int16), phantom.affine), tmp_path / data / folder / "spleen_2.nii.gz")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert ("spleen_2.nii.gz" in text) == (data != "a phantom")
    assert "the same mask" in text and "Dice 0." in text and "compute_infer" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


def test_it_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
