"""One HTML page about all scans of a run: pictures, volumes, times, and what made them. It holds all that it shows."""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import Path

import jinja2

from . import VERSION, millimetres, times
from .batch import DONE, FAILED, KEPT, Outcome
from .results import Options, Results

PLANE_NAMES = ("axial", "coronal", "sagittal")


def write(outcomes: list[Outcome], options: Options, identity: dict, stages: dict, transport: str, seconds: float) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    counts = {status: sum(o.status == status for o in outcomes) for status in (DONE, KEPT, FAILED)}
    page = environment.get_template("report.html.j2").render(
        scans=[_scan(outcome, options) for outcome in outcomes],
        counts=counts,
        identity=identity,
        stages=stages if counts[DONE] else {},
        transport=transport,
        seconds=seconds,
        notice=options.notice,
        version=VERSION,
        created=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    path = options.out / "report.html"
    part = path.with_name(".report.html.part")
    part.write_text(page, encoding="utf-8")
    part.replace(path)
    return path


def _scan(outcome: Outcome, options: Options) -> dict:
    scan = {"name": outcome.source.name, "path": str(outcome.source.path), "status": outcome.status, "error": outcome.error}
    if outcome.record is None:
        return scan
    record, results = outcome.record, Results(outcome.source.name, options)
    images = [base64.b64encode(results.plane(n).read_bytes()).decode() for n in range(3)]
    return scan | {
        "planes": list(zip(PLANE_NAMES, images)),
        "millilitres": record["volume_ml"],
        "voxels": record["voxels"],
        "geometry": f"{times(record['shape'])} voxels, axes {record['axes']}",
        "spacing": millimetres(record["spacing_mm"]),
        "sent": f"{record['sent_bytes'] / 1e6:.1f} MB over {record['transport']}",
        "seconds": record["seconds"],
        "origin": {k: v for k, v in record["provenance"].items() if v and k != "notice"},
        "files": [path for what, path in record["files"].items() if not what.startswith("plane")],
    }
