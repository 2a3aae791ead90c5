"""The phantom generator: determinism, geometry, what it must not give away, and the files it writes."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from spleen_phantom import RANGES, best_threshold_dice, make_phantom, sample_parameters, save_nifti  # noqa: E402

SHAPE = (96, 96, 48)
CASES = [(seed, ranges) for ranges in ("train", "heldout") for seed in (0, 7, 100_003)]


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{c[1]}-{c[0]}")
def phantom(request):
    return make_phantom(request.param[0], SHAPE, ranges=request.param[1])


def millimetres(phantom, mask):
    """Centre of a mask in the scan's own coordinates (RAS)."""
    return (phantom.affine @ np.append(np.argwhere(mask).mean(0), 1))[:3]


def body_of(phantom):
    """The patient: the largest connected part that is neither air nor sheet-thin, with the lungs and gas filled."""
    solid = ndimage.binary_opening(phantom.ct > -300, iterations=1)
    parts, _ = ndimage.label(solid)
    body = parts == 1 + np.argmax(np.bincount(parts.ravel())[1:])
    return np.stack([ndimage.binary_fill_holes(body[:, :, k]) for k in range(body.shape[2])], axis=2)


def test_same_seed_same_bytes_and_another_seed_another_patient():
    first, again, other = (make_phantom(s, (64, 48, 20)) for s in (3, 3, 4))
    assert first.ct.tobytes() == again.ct.tobytes() and first.label.tobytes() == again.label.tobytes()
    assert np.array_equal(first.affine, again.affine)
    assert (first.ct != other.ct).mean() > 0.5
    assert first.parameters != other.parameters


def test_types_and_range(phantom):
    assert phantom.ct.shape == phantom.label.shape == SHAPE
    assert phantom.ct.dtype == np.int16 and phantom.label.dtype == np.uint8
    assert set(np.unique(phantom.label)) == {0, 1}
    assert -1024 <= phantom.ct.min() < -900 and 200 < phantom.ct.max() <= 3071


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 64), (64, 1, 3), (33, 65, 7), (40, 20, 200)])
def test_any_shape(shape):
    made = make_phantom(1, shape)
    assert made.ct.shape == made.label.shape == shape
    assert np.isfinite(made.affine).all() and np.linalg.det(made.affine[:3, :3]) > 0


def test_spacing_is_the_affine():
    made = make_phantom(2, (50, 40, 30), spacing=(6.5, 7.0, 4.0))
    assert np.allclose(np.diag(made.affine), [6.5, 7.0, 4.0, 1])
    assert made.spacing == (6.5, 7.0, 4.0)


def test_the_patient_does_not_depend_on_the_sampling():
    """The same seed at twice the resolution shows the same spleen at the same place."""
    coarse = make_phantom(5, (64, 64, 40), spacing=(6, 6, 5))
    fine = make_phantom(5, (128, 128, 80), spacing=(3, 3, 2.5))
    volumes = [p.label.sum() * np.prod(p.spacing) / 1000 for p in (coarse, fine)]
    assert volumes[0] == pytest.approx(volumes[1], rel=0.04)
    assert np.allclose(millimetres(coarse, coarse.label), millimetres(fine, fine.label), atol=1.0)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="shape.*three positive"):
        make_phantom(0, (10, 0, 10))
    with pytest.raises(ValueError, match="spacing.*three positive"):
        make_phantom(0, (10, 10, 10), spacing=(1, -1, 1))
    with pytest.raises(ValueError, match="ranges.*'train' and 'heldout'"):
        make_phantom(0, (10, 10, 10), ranges="other")
    with pytest.raises(ValueError, match="spleen_colour"):
        make_phantom(0, (10, 10, 10), parameters={"spleen_colour": 1})


def test_spleen_is_one_piece_of_a_plausible_size_inside_the_body(phantom):
    _, pieces = ndimage.label(phantom.label, np.ones((3, 3, 3)))
    sizes = np.bincount(ndimage.label(phantom.label, np.ones((3, 3, 3)))[0].ravel())[1:]
    assert sizes.max() > 0.97 * sizes.sum(), f"{pieces} pieces"
    # A short scan may cut the spleen and the held-out bands reach far, hence the low limit.
    assert 20 < phantom.label.sum() * np.prod(phantom.spacing) / 1000 < 500
    body = body_of(phantom)
    assert (body & (phantom.label > 0)).sum() == phantom.label.sum()
    assert not (ndimage.binary_dilation(~body) & (phantom.label > 0)).any(), "the spleen touches the skin"


def test_sides(phantom):
    """Spleen at the patient's left and behind the middle of the body; more soft tissue (the liver) at the right."""
    body = body_of(phantom)
    spleen, middle = millimetres(phantom, phantom.label), millimetres(phantom, body)
    assert spleen[0] < middle[0] - 40
    assert spleen[1] < middle[1]
    x = np.arange(SHAPE[0])[:, None, None]
    centre = np.argwhere(body)[:, 0].mean()
    levels = phantom.label.any(axis=(0, 1))
    # Within the cavity and at the spleen's height, soft tissue other than the spleen.
    inner = ndimage.binary_erosion(body, iterations=8) & levels & (phantom.label == 0)
    soft = inner & (phantom.ct > -20) & (phantom.ct < 200)
    right, left = (soft & (x > centre)).sum(), (soft & (x < centre)).sum()
    assert right > 1.15 * left


def test_spleen_intensity(phantom):
    p = phantom.parameters
    inside = phantom.ct[ndimage.binary_erosion(phantom.label, iterations=1)]
    assert inside.mean() == pytest.approx(p["spleen_hu"], abs=4)
    assert 0.4 * p["noise"] < inside.std() < 2 * p["noise"]


def test_neighbours_share_the_spleens_intensity(phantom):
    """At least five times the spleen's volume of other tissue lies within one and a half noise levels of it."""
    p = phantom.parameters
    near = np.abs(phantom.ct.astype(float) - p["spleen_hu"]) < 1.5 * p["noise"]
    assert (near & (phantom.label == 0)).sum() > 5 * phantom.label.sum()


def test_no_threshold_finds_the_spleen(phantom):
    score, window = best_threshold_dice(phantom.ct, phantom.label)
    assert 0 < score < 0.5, window
    # Nor after the noise is smoothed away.
    smooth = np.rint(ndimage.gaussian_filter(phantom.ct.astype(np.float32), 1)).astype(np.int16)
    score, window = best_threshold_dice(smooth, phantom.label)
    assert score < 0.5, window


def test_best_threshold_is_the_best():
    """Against trying every window on a volume where the spleen does have an intensity of its own."""
    rng = np.random.default_rng(0)
    label = np.zeros((20, 20, 20), np.uint8)
    label[5:12, 5:12, 5:12] = 1
    ct = np.rint(rng.normal(0, 8, label.shape) + 25 * label).astype(np.int16)
    found, (low, high) = best_threshold_dice(ct, label, bin_width=1)
    values = range(int(ct.min()), int(ct.max()) + 2)
    every = 0.0
    for a in values:
        for b in values:
            mask = (ct >= a) & (ct < b)
            if mask.any():
                every = max(every, 2 * (mask & (label > 0)).sum() / (mask.sum() + label.sum()))
    assert found == pytest.approx(every)
    mask = (ct >= low) & (ct < high)
    assert found == pytest.approx(2 * (mask & (label > 0)).sum() / (mask.sum() + label.sum()))


def test_partial_volume():
    """Without noise, voxels between fat and muscle or air take values between: there is no hard edge anywhere."""
    made = make_phantom(6, SHAPE, parameters={"noise": 0.0})
    # Along rows from the air in front into the body, the first step is never straight from air to soft tissue.
    row = made.ct[SHAPE[0] // 2, :, SHAPE[2] // 2].astype(int)
    skin = np.flatnonzero(row > -900)[-1]
    assert -950 < row[skin] < 0 or -950 < row[skin - 1] < 0
    assert len(np.unique(made.ct)) > 500


def test_ranges_do_not_overlap():
    for name, r in RANGES.items():
        assert r.outer_low < r.low <= r.high < r.outer_high, name
    for seed in range(40):
        train, heldout = sample_parameters(seed), sample_parameters(seed, "heldout")
        for name, r in RANGES.items():
            assert r.low <= train[name] <= r.high, name
            outside = r.outer_low <= heldout[name] < r.low or r.high < heldout[name] <= r.outer_high
            assert outside, (name, heldout[name])


def test_nifti_keeps_voxels_and_geometry(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    made = make_phantom(8, (30, 40, 20))
    save_nifti(made, tmp_path / "ct.nii.gz", tmp_path / "deeper" / "label.nii.gz")
    ct, label = nibabel.load(tmp_path / "ct.nii.gz"), nibabel.load(tmp_path / "deeper" / "label.nii.gz")
    assert ct.get_data_dtype() == np.int16 and label.get_data_dtype() == np.uint8
    assert np.array_equal(np.asarray(ct.dataobj), made.ct) and np.array_equal(np.asarray(label.dataobj), made.label)
    assert np.allclose(ct.affine, made.affine, atol=1e-4) and np.allclose(label.affine, made.affine, atol=1e-4)
    assert nibabel.aff2axcodes(ct.affine) == ("R", "A", "S")
    assert ct.header.get_xyzt_units()[0] == "mm"


def test_command_writes_perf_analyzer_input(tmp_path):
    """The form that perf_analyzer reads: data -> one object a step -> input -> content.b64 and shape."""
    out = tmp_path / "volumes.json"
    command = [sys.executable, SCRIPTS / "phantom.py", "--seed", "9", "--count", "2", "--shape", "20,24,10"]
    subprocess.run([*command, "--perf-json", out], check=True, capture_output=True)
    data = json.loads(out.read_text())["data"]
    assert len(data) == 2
    for seed, step in zip((9, 10), data):
        assert list(step) == ["INPUT0"]
        assert step["INPUT0"]["shape"] == [20, 24, 10]
        values = np.frombuffer(base64.b64decode(step["INPUT0"]["content"]["b64"], validate=True), "<f4")
        assert np.array_equal(values.reshape(20, 24, 10), make_phantom(seed, (20, 24, 10)).ct)


def test_command_says_what_is_wrong(tmp_path):
    def run(*extra):
        return subprocess.run([sys.executable, SCRIPTS / "phantom.py", *extra], capture_output=True, text=True)

    nothing, shape, names = run(), run("--shape", "5,5", "--ct", "a"), run("--count", "2", "--ct", "a.nii")
    assert nothing.returncode and "--ct, --label or --perf-json" in nothing.stderr
    assert shape.returncode and "three numbers" in shape.stderr
    assert names.returncode and "{seed}" in names.stderr
