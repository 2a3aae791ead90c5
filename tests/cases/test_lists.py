"""tests/CASES.md and SAFETY.md say what is there: every test that they name, every file with `unsafe`. So does the list of errors of CUDA
that end a context."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "CASES.md"
SAFETY = ROOT / "SAFETY.md"
NOT_OURS = {"target", "build"}


def rows(page: Path) -> list[list[str]]:
    """The cells of every table's rows, without headings and rules."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith(("| case |", "| file |"))]


def rust_files() -> list[Path]:
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS and not f.startswith(".")]
        found += [Path(folder) / file for file in files if file.endswith(".rs")]
    return found


def code(text: str) -> str:
    """Without comments and strings."""
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', re.sub(r"//.*", "", text))


@pytest.mark.parametrize("page", [CASES, SAFETY], ids=lambda p: p.name)
def test_every_test_that_is_named_is_there(page):
    named = re.findall(r"`([\w/.]+\.(?:py|rs))::(\w+)`", page.read_text())
    assert len(named) > 20
    for file, function in named:
        text = (ROOT / file).read_text()
        before = r"^def " if file.endswith(".py") else r"#\[test\](?:\s*#\[.*\])*\s*fn "
        assert re.search(rf"{before}{function}\(", text, re.MULTILINE), f"{file} has no test {function}"


def test_every_case_has_a_test_or_says_why_not():
    cases = rows(CASES)
    ids = [row[0] for row in cases]
    assert len(ids) == len(set(ids)) == 54
    for case, _, shown in cases:
        assert re.search(r"::\w+`|GPU machine only|not covered", shown), case


def test_every_file_with_unsafe_code_is_listed_and_no_other():
    listed = [file for row in rows(SAFETY) for file in re.findall(r"`([\w/]+\.rs)`", row[0])]
    assert len(listed) == len(set(listed)), "a file is listed twice"
    found = {str(file.relative_to(ROOT)) for file in rust_files() if re.search(r"\bunsafe\b", code(file.read_text()))}
    assert set(listed) == found


def test_every_error_that_ends_the_process_for_cuda_is_sticky_and_few_others():
    """By cuda.h, which PyTorch's requirements bring into the environment of the tests."""
    (header,) = Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/include/cuda.h")
    said = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*CUDA_ERROR_(\w+)\s*=\s*(\d+)", header.read_text(errors="replace"), re.DOTALL)
    ends = {number: name for text, name, number in said if "process must be terminated" in " ".join(text.replace("*", " ").split())}
    assert len(ends) > 10
    (listed,) = re.findall(r"const STICKY: [^=]*= \[\n(.*?)\];", (ROOT / "src/cuda/error.rs").read_text(), re.DOTALL)
    sticky = dict(re.findall(r"(\d+), // (\w+)", listed))
    assert {number: name for number, name in sticky.items() if number in ends} == ends
    assert set(sticky) - set(ends) == {"214", "220", "709", "710"}
