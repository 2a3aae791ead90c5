"""The pages that people look things up in: links that lead somewhere, an index that has all of them, pictures for both backgrounds."""

from __future__ import annotations

import re
import xml.etree.ElementTree as tree
from pathlib import Path

import pytest
from conftest import ROOT

FOLDERS = ("docs", "models", "torchscript_backend", "triton_backend_api")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md") if not page.is_symlink())]
DRAWINGS = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    """All but those into the web."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists() or anchor and found.suffix == ".md" and anchor not in anchors(found):
            dead.append(target)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert dead_links(page) == []


def test_the_crate_s_documentation_links_what_the_guide_to_it_names():
    """Links to items lead nowhere outside it, so the guide has none; rustdoc checks this list."""
    guide = without_code((ROOT / "docs" / "from-python.md").read_text())
    crate = (ROOT / "triton_backend_api" / "src" / "lib.rs").read_text()
    names = set(re.findall(r"`([A-Z]\w+::\w+)`", guide))
    assert len(names) > 20
    for name in names:
        assert f"[`{name}`]" in crate, name


def test_the_index_has_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in re.findall(r"\]\(([^)]+)\)", index.read_text())}
    for page in (ROOT / "docs").glob("*.md"):
        assert page == index or page in linked, page.name


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda p: p.name)
def test_drawings_have_a_title_and_colours_for_both_backgrounds(drawing):
    root = tree.parse(drawing).getroot()
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert root.get("role") == "img" and title is not None and title.text
    style = root.find("{http://www.w3.org/2000/svg}style").text
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    used = {name for element in root.iter() for name in (element.get("class") or "").split()}
    # What has a colour has one for each background, or inherits that of all text.
    for name in used - {"head", "mono"}:
        assert f".{name} " in light and f".{name} " in dark, name


def test_every_parameter_is_described_in_one_place():
    """Response parameters that the code sets are on the page of outputs."""
    page = (ROOT / "docs" / "outputs.md").read_text()
    sources = "\n".join(p.read_text() for p in (ROOT / "src").rglob("*.rs"))
    names = set(re.findall(r"set_parameter\(\s*\"(\w+)\"", sources))
    assert {"crop_start", "crop_end"} <= names
    for name in names:
        assert f"`{name}`" in page, name
