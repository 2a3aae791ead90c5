"""The files of one scan's results, and the record by which a later run knows that they are there."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from . import ClientError, millimetres, picture, provenance, times
from .dicom import DicomSeries
from .scan import Scan
from .segmenter import Segmentation

FORMATS = ("nifti", "seg", "both")
PLANES = ".report"  # below the output folder: the pictures that a report is made of
# What decides a result besides the scan itself; another server version alone does not.
IDENTITY = ("model", "model_version", "model_config_sha256", "network", "network_version", "network_config_sha256")


@dataclass(frozen=True)
class Options:
    """What is written, and how."""

    out: Path
    format: str = "nifti"
    contour: bool = True
    png: bool = False
    report: bool = False
    model_axes: str = "RAS"
    notice: str = "Not for clinical use."


class Results:
    """Where the results of the scan of this name go."""

    def __init__(self, name: str, options: Options):
        self.name, self.options = name, options
        self.record = options.out / f"{name}.json"

    def path(self, ending: str) -> Path:
        return self.options.out / f"{self.name}_{ending}"

    def plane(self, number: int) -> Path:
        return self.options.out / PLANES / f"{self.name}_{number}.jpg"

    def files(self, dicom: bool) -> dict[str, Path]:
        """What will be there in the end, by what it is."""
        options, found = self.options, {}
        for what in ("mask", "contour") if options.contour else ("mask",):
            if options.format in ("nifti", "both"):
                found[what] = self.path(f"{what}.nii.gz")
            if options.format in ("seg", "both") and dicom:
                found[f"{what} (DICOM SEG)"] = self.path(f"{what}.dcm")
        if options.png:
            found["picture"] = self.path("overlay.png")
        if options.report:
            found |= {f"plane {n}": self.plane(n) for n in range(3)}
        return found

    def done(self, input_sha256: str, identity: dict[str, str], dicom: bool) -> dict | None:
        """The record of an earlier run, if all that this run would make is there and would come out the same."""
        try:
            record = json.loads(self.record.read_text())
            same = (
                record["input_sha256"] == input_sha256
                and record["model_axes"] == self.options.model_axes
                and all(record["identity"][key] == identity.get(key) for key in IDENTITY if key in identity)
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if same and all(path.is_file() for path in self.files(dicom).values()) else None

    def write(self, scan: Scan, found: Segmentation, identity: dict[str, str], input_sha256: str) -> dict:
        """Writes all of it; the record comes last, so that an interrupted run is seen as not done."""
        options = self.options
        if options.format == "seg" and not isinstance(scan, DicomSeries):
            raise ClientError(f"{scan.path}: DICOM SEG needs a DICOM series, this is {scan.kind}; use --format nifti")
        origin = provenance.collect(identity, found, input_sha256, options.notice)
        files = self.files(isinstance(scan, DicomSeries))
        for path in (self.record, *files.values()):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)
        line = provenance.description(origin)
        for what, labels in (("mask", found.mask), ("contour", found.contour)):
            if what in files:
                scan.save(labels, files[what], line, origin)
            if (seg := f"{what} (DICOM SEG)") in files:
                from . import dicom_seg

                title = "Spleen" if what == "mask" else "Spleen contour"
                dicom_seg.save(scan, labels, files[seg], title, origin)
        record = {
            "input": str(scan.path),
            "input_sha256": input_sha256,
            "identity": identity,
            "model_axes": options.model_axes,
            "provenance": origin,
            "shape": list(scan.shape),
            "axes": scan.axes,
            "spacing_mm": list(scan.spacing),
            "voxels": found.voxels,
            "volume_ml": found.millilitres,
            # Few here and none above: a mask that fell between the voxels of a coarser scan.
            "mask_voxels": provenance.one_volume(found.parameters.get("mask_voxels")),
            "native": found.native,
            "transport": found.transport,
            "sent_bytes": found.sent_bytes,
            "seconds": found.seconds,
            "files": {what: str(path.relative_to(options.out)) for what, path in files.items()},
        }
        self._pictures(scan, found, record)
        part = self.record.with_name(f".{self.record.name}.{os.getpid()}")
        part.write_text(json.dumps(record, indent=1) + "\n")
        part.replace(self.record)
        return record

    def _pictures(self, scan: Scan, found: Segmentation, record: dict) -> None:
        options = self.options
        if not (options.png or options.report):
            return
        ras = scan.voxels_ras()
        if options.png:
            lines = picture.Lines(self.name, facts(record), options.notice)
            picture.save(picture.draw(ras, found.mask, scan.spacing_ras, lines), self.path("overlay.png"))
        if options.report:
            for number, plane in enumerate(picture.planes(ras, found.mask, scan.spacing_ras)):
                plane.save(self.plane(number), quality=88)


def facts(record: dict) -> str:
    """One line about a scan and its spleen."""
    spleen = f"spleen {record['volume_ml']:.0f} mL" if record["voxels"] else "no spleen found"
    return "   ·   ".join([f"{times(record['shape'])} voxels of {millimetres(record['spacing_mm'])}", spleen])
