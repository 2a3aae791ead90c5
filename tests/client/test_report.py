"""The HTML report: what it says, and how it looks in a real browser at the width of a phone and of a desk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
from spleen_client import batch, grid, report
from spleen_client.cli import exit_code, line
from spleen_client.results import Options
from spleen_client.segmenter import Segmentation
from spleen_client.sources import find

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
IDENTITY = {
    "server": "triton 2.51.0",
    "model": "spleen_seg_native",
    "model_version": "3",
    "model_config_sha256": "0123456789abcdef" * 4,
    "network": "segmentation_3d",
    "network_version": "2",
    "network_config_sha256": "f" * 64,
}
STAGES = {
    "spleen_seg_native": {"queue": 0.5, "compute_input": 61.25, "compute_infer": 1534.0, "compute_output": 22.0},
    "segmentation_3d": {"queue": 0.1, "compute_input": 0.0, "compute_infer": 1530.0, "compute_output": 0.0},
}
LONG = "A_name_as_long_as_an_archive_gives_it_1.2.840.113619.2.55.3.2831868886.201.1467286216.547"


class Known:
    """Segments with the label that the phantom has, without a server."""

    server = SimpleNamespace(identity=IDENTITY)

    def __init__(self, labels):
        self.labels = labels

    def segment(self, scan, contour: bool = True):
        mask = self.labels[scan.path.name]
        voxels, seconds = int(mask.sum()), {"read": 0.2, "prepare": 0.1, "request": 1.7, "lay back": 0.05}
        where = ((0, 72), (2, 60), (0, 40))
        return Segmentation(
            mask, grid.contour(mask), voxels, scan.millilitres(voxels), True, where, 12_345_678, "system shared memory", {"build_id": "c0ffee" * 6}, seconds
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory, phantom):
    """A report about three scans: one with a spleen, one without, and one that failed."""
    folder = tmp_path_factory.mktemp("report")
    image = nibabel.Nifti1Image(phantom.ct, phantom.affine)
    (folder / "in").mkdir()
    names = ["case_007.nii.gz", f"{LONG}.nii.gz"]
    for name in names:
        nibabel.save(image, folder / "in" / name)
    (folder / "in" / "broken.nii.gz").write_bytes(b"<b>no gzip</b>")
    spleen = nibabel.as_closest_canonical(nibabel.Nifti1Image(phantom.label, phantom.affine))
    mask = np.asarray(spleen.dataobj).astype(np.uint8)
    options = Options(folder / "out", report=True, png=True)
    segmenter = Known({names[0]: mask, names[1]: mask * 0})
    outcomes = batch.run(find([folder / "in"], options.out), segmenter, options, in_flight=1)
    path = report.write(outcomes, options, IDENTITY, STAGES, "system shared memory", 4.25)
    return SimpleNamespace(path=path, outcomes=outcomes, options=options, segmenter=segmenter, mask=mask)


def test_it_holds_all_that_it_shows_and_says_what_is_known(made):
    text = made.path.read_text()
    by_name = {o.source.name: o for o in made.outcomes}
    assert {name: o.status for name, o in by_name.items()} == {"case_007": "segmented", LONG: "segmented", "broken": "failed"}
    assert exit_code(made.outcomes) == 3 and "no spleen found" in line(by_name[LONG])
    assert f"{by_name['case_007'].record['volume_ml']:.1f} mL" in text and "no spleen found" in text
    for words in ("triton 2.51.0", "spleen_seg_native, version 3", "segmentation_3d, version 2", "1534.0", "Not for clinical use", "c0ffee"):
        assert words in text
    # Of the file's own words nothing is taken for HTML.
    assert "cannot be read as NIfTI" in text and "<b>no gzip" not in text
    assert "http://" not in text and "https://" not in text and "<script" not in text
    assert text.count("data:image/jpeg;base64,") == 6


def test_a_later_run_shows_what_an_earlier_one_made(made):
    outcomes = batch.run([o.source for o in made.outcomes], identity_alone(), made.options)
    assert [o.status for o in outcomes] == [o.status if o.status == "failed" else "already done" for o in made.outcomes]
    path = report.write(outcomes, made.options, IDENTITY, STAGES, "system shared memory", 0.1)
    text = path.read_text()
    assert text.count("data:image/jpeg;base64,") == 6 and "in an earlier run" in text and "compute_infer" not in text
    report.write(made.outcomes, made.options, IDENTITY, STAGES, "system shared memory", 4.25)


def identity_alone():
    return SimpleNamespace(server=SimpleNamespace(identity=IDENTITY))


@pytest.fixture(scope="module")
def browser() -> Iterator:
    found = os.environ.get("SPLEENSEG_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        pytest.skip("no browser: none of " + ", ".join(BROWSERS) + " is on PATH, and SPLEENSEG_BROWSER names none (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield running
        running.close()


WIDTHS = {"phone": (390, 844, 3), "small phone": (320, 640, 2), "tablet": (768, 1024, 2), "desk": (1280, 900, 1)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_it_looks_right(browser, made, device, scheme, tmp_path):
    width, height, scale = WIDTHS[device]
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=scale, is_mobile=width < 700, color_scheme=scheme
    )
    page = context.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url.split(":")[0]))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(made.path.as_uri())

    assert set(asked) <= {"file", "data"} and not complaints
    # Nothing is wider than the screen, and no words run out of their box.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inner = "[...document.querySelectorAll('section *')].filter(e => e.getBoundingClientRect().right > innerWidth)"
    assert page.evaluate(f"{inner}.length") == 0
    sizes = page.evaluate("[...document.querySelectorAll('p, dt, dd, td, th')].map(e => parseFloat(getComputedStyle(e).fontSize))")
    assert min(sizes) >= 14

    images = page.locator(".planes img")
    assert images.count() == 6
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth === 420 && i.alt)")
    boxes = [images.nth(n).bounding_box() for n in range(3)]
    if width < 640:
        # One above the other, as wide as the screen has room.
        assert len({round(b["x"]) for b in boxes}) == 1 and boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
        assert boxes[0]["width"] > 0.8 * width and all(b["height"] <= b["width"] + 1 for b in boxes)
    else:
        assert len({round(b["y"]) for b in boxes}) == 1 and boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"]
        assert all(abs(b["width"] - b["height"]) < 1 for b in boxes)

    # Words stand out from what lies behind them (WCAG: 4.5 to 1).
    assert min(page.evaluate(CONTRASTS)) >= 4.5
    # What is folded opens.
    page.locator("details summary").first.click()
    assert page.locator("details dd", has_text="c0ffee").first.is_visible()
    folder = Path(os.environ.get("SPLEENSEG_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"report_{device.replace(' ', '_')}_{scheme}.png", full_page=True)
    context.close()


CONTRASTS = """
[...document.querySelectorAll('h1, h2, p, dt, dd, td, th, a, summary, .volume')].map(e => {
  const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
                       return .2126 * r + .7152 * g + .0722 * b; };
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  let behind = e;
  while (behind && numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [a, b] = [getComputedStyle(e).color, getComputedStyle(behind).backgroundColor].map(c => light(numbers(c).slice(0, 3)));
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
})
"""
