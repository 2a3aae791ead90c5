"""What there is to segment: files and folders as they were given, as one list of scans with names for their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import ClientError
from .dicom import DicomSeries, is_dicom
from .nifti import ENDINGS, NiftiScan, is_nifti
from .scan import Scan


@dataclass(frozen=True)
class Source:
    """One scan, not yet opened."""

    path: Path  # a NIfTI file, or the folder of a DICOM series
    name: str  # of its results, relative to the output folder
    dicom: bool
    series: str | None = None

    def open(self) -> Scan:
        return DicomSeries(self.path, self.series) if self.dicom else NiftiScan(self.path)


def find(inputs: list[Path], out: Path, series: str | None = None) -> list[Source]:
    """All scans below ``inputs``. Nothing in ``out`` counts: those are results."""
    found: list[Source] = []
    for given in inputs:
        if given.is_dir():
            below = _below(given, out.resolve(), series)
            if not below:
                raise ClientError(f"{given}: found neither NIfTI ({', '.join(ENDINGS)}) nor DICOM files in this folder")
            found += below
        elif is_nifti(given) or not given.exists():
            found.append(Source(given, _stem(given), False))
        elif is_dicom(given):
            raise ClientError(f"{given}: one DICOM file is one slice; give the folder of the series")
        else:
            # NiftiScan says what is wrong with it.
            found.append(Source(given, _stem(given), False))
    names: dict[str, Path] = {}
    for source in found:
        if source.name in names:
            raise ClientError(f"{source.path} and {names[source.name]} would have the same results, {source.name}_mask; segment them apart")
        names[source.name] = source.path
    return found


def _below(folder: Path, out: Path, series: str | None) -> list[Source]:
    found = []
    for path in sorted([folder, *(p for p in folder.rglob("*") if p.is_dir())]):
        if path.resolve() == out or out in path.resolve().parents:
            continue
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        for file in files:
            if is_nifti(file):
                found.append(Source(file, str(file.relative_to(folder).with_name(_stem(file))), False))
        if any(is_dicom(file) for file in files if not is_nifti(file)):
            name = str(path.relative_to(folder)) if path != folder else folder.resolve().name
            found.append(Source(path, name, True, series))
    return found


def _stem(path: Path) -> str:
    name = path.name
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return path.stem
