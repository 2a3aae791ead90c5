"""Runs the benchmark. scripts/bench.sh prepares everything that this needs."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import figures, machine, more_sections, readme, report, sections
from .equality import NotEqual
from .repositories import ROOT
from .session import Session
from .settings import FULL, QUICK

RESULTS = ROOT / "docs" / "benchmarks"  # what the project's README shows the headline of
NEEDED_MB = 14_000  # three stacks at once, and perf_analyzer with 1 GB


def measure(session: Session) -> None:
    """All sections in order. What is optional says how long it takes on 2 cores, and is left out if a deadline is near."""
    volumes = sections.write_inputs(session)
    sections.start(session)
    sections.check_equal(session, {name: volumes[name] for name in session.settings.compared})
    volumes.clear()
    sections.headline(session)
    optional(session, "step by step", 25, sections.steps)
    sections.phantom(session)
    session.stop()
    optional(session, "spleen_seg's own load", 20, sections.own_load)
    optional(session, "the servers without the UNet", 25, more_sections.start_light)
    if more_sections.light_is_up(session):
        optional(session, "noise", 25, more_sections.noise)
        optional(session, "many requests", 10, more_sections.soak)
        optional(session, "growth with slices", 45, more_sections.growth)
    session.stop()
    optional(session, "several clients", 100, more_sections.concurrency)


def optional(session: Session, name: str, seconds: float, section: Callable[[Session], None]) -> None:
    """Runs a section if it fits. Its failure is reported and does not cost the results of the others."""
    if not session.has_time(name, seconds):
        return
    try:
        section(session)
    except (NotEqual, RuntimeError, OSError) as error:
        session.say(f"{name} failed: {error}")
        session.results["failed"].append(name)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description="Measures this backend against the Python backend.")
    parser.add_argument("--quick", action="store_true", help="within 5 minutes: fewer rounds, fewer tables")
    parser.add_argument("--out", type=Path, help="folder of the results (docs/benchmarks; with --quick build/bench/quick)")
    parser.add_argument("--report", action="store_true", help="only write the report of that folder's results.json again, with its notes.md, if there is one")
    arguments = parser.parse_args()
    arguments.out = arguments.out or (ROOT / "build" / "bench" / "quick" if arguments.quick else RESULTS)
    return arguments


def write_report(out: Path, results: dict) -> None:
    notes = out / "notes.md"
    (out / "README.md").write_text(report.write(results, figures.shown(results), notes.read_text() if notes.exists() else ""))
    if out.resolve() == RESULTS:
        readme.update(ROOT / "README.md", results)
    # Plotting is kept apart, so that measuring needs no plotting library.
    subprocess.run([os.environ["SPLEENSEG_PLOT_PYTHON"], "-m", "bench.plots", str(out / "results.json"), str(out)], check=True)


def run(arguments: argparse.Namespace, work: Path) -> dict:
    load_average, cores = machine.load_average(), len(os.sched_getaffinity(0))
    busy_above = 0.25 * cores
    if load_average > busy_above:
        print(f"warning: the machine is busy (load average {load_average:.1f}); the figures will not mean much", file=sys.stderr)
    if machine.available_mb() < NEEDED_MB:
        raise RuntimeError(f"{machine.available_mb():.0f} MB of memory are available; the benchmark needs {NEEDED_MB} MB")
    network = Path(os.environ["SPLEENSEG_NETWORK"])
    with Session(QUICK if arguments.quick else FULL, work, network) as session:
        measure(session)
        return {
            "made": {
                "date": datetime.date.today().isoformat(),
                "command": "scripts/bench.sh --quick" if arguments.quick else "scripts/bench.sh",
                "seconds": session.elapsed_s(),
                "load_average": load_average,
                "busy_above": busy_above,
            },
            "machine": {"Triton": server_version(session), **machine.describe()},
            **session.results,
        }


def server_version(session: Session) -> str:
    logs = sorted(session.work.glob("*/server.log"))
    text = logs[0].read_text(errors="replace") if logs else ""
    return machine.first_match(r"^\| server_version\s*\|\s*(\S+)", text)


def main() -> int:
    arguments = parse_arguments()
    store = arguments.out / "results.json"
    if arguments.report:
        if not store.exists():
            print(f"error: there is no {store}; scripts/bench.sh without --report measures and writes it", file=sys.stderr)
            return 1
        results = json.loads(store.read_text())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        work = ROOT / "build" / "bench" / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            results = run(arguments, work)
        except (NotEqual, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        # Several GB of volumes; the servers' logs stay.
        shutil.rmtree(work / "data", ignore_errors=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(results, indent=1) + "\n")
    write_report(arguments.out, results)
    print(report.console(results))
    print(f"\n{arguments.out}/README.md has all tables and plots.")
    if results["failed"]:
        print(f"error: failed, see above: {', '.join(results['failed'])}", file=sys.stderr)
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
