"""Segments the spleen in CT scans with a running server: NIfTI files, folders of them, or DICOM series in; masks out."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import VERSION, ClientError, axes, batch, sources
from .results import FORMATS, Options
from .segmenter import Segmenter
from .server import MODELS, Server, since
from .transport import TRANSPORTS

EXIT = """exit code:
  0  every scan is segmented, now or by an earlier run
  1  no scan is: the server cannot be used, or all scans failed
  2  wrong arguments, or nothing to segment was found
  3  some scans failed; the others are segmented
  130  interrupted; a next run goes on where this one stopped"""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="segment.py", description=__doc__, epilog=EXIT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help=".nii, .nii.gz, a folder of them, or a folder with a DICOM series")
    found.add_argument("--out", type=Path, default=Path("spleen"), metavar="DIR", help="folder for the results (default: spleen)")
    found.add_argument("--version", action="version", version=VERSION)
    server = found.add_argument_group("server")
    server.add_argument("--url", default="localhost:8000", help="HOST:PORT, http://, https://, grpc:// or grpcs://HOST:PORT (default: localhost:8000)")
    server.add_argument("--model", help=f"its name (default: the first that is ready of {', '.join(MODELS)})")
    server.add_argument("--axes", default="RAS", help="the axis order that the network was trained with (default: RAS)")
    server.add_argument(
        "--transport", choices=("auto", *TRANSPORTS), default="auto",
        help="network: within the request; system, cuda: shared memory on the server's machine; auto: system where that works",
    )  # fmt: skip
    server.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds that one answer may take (default: 600)")
    server.add_argument("--send-all", action="store_true", help="send whole volumes, not only the box of voxels that can matter")
    output = found.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, default="nifti", help="seg: DICOM SEG, for DICOM series (default: nifti)")
    output.add_argument("--no-contour", action="store_true", help="only the mask")
    output.add_argument("--png", action="store_true", help="also a picture of each scan, three planes with the outline")
    output.add_argument("--report", action="store_true", help="also one HTML page about all scans, DIR/report.html")
    output.add_argument("--notice", default="Not for clinical use.", help="what pictures, report and provenance say of the network")
    runs = found.add_argument_group("running")
    runs.add_argument("--in-flight", type=int, default=2, metavar="N", help="scans worked on at a time (default: 2)")
    runs.add_argument("--again", action="store_true", help="segment also what an earlier run has done with the same input and models")
    runs.add_argument("--series", metavar="UID", help="the SeriesInstanceUID to take from folders that hold several")
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 130


def _run(arguments) -> int:
    if arguments.in_flight < 1:
        return _usage(f"--in-flight {arguments.in_flight}: accepted is 1 or more")
    if not arguments.timeout > 0:
        return _usage(f"--timeout {arguments.timeout:g}: accepted are seconds above 0")
    try:
        options = Options(
            arguments.out,
            arguments.format,
            not arguments.no_contour,
            arguments.png,
            arguments.report,
            axes.parse(arguments.axes),
            arguments.notice,
        )
        found = sources.find(arguments.inputs, options.out, arguments.series)
        server = Server(arguments.url, arguments.model, arguments.timeout)
        options.out.mkdir(parents=True, exist_ok=True)
    except (ClientError, OSError) as error:
        return _usage(str(error))
    with server:
        try:
            segmenter = Segmenter(server, arguments.transport, options.model_axes, arguments.send_all)
            before, begin = server.totals(), time.perf_counter()
        except ClientError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        outcomes = _segment(found, segmenter, options, arguments)
        if options.report:
            from . import report

            seconds = time.perf_counter() - begin
            try:
                stages = since(before, server.totals())
            except ClientError as error:  # the scans are done all the same
                stages = {}
                print(f"warning: no stage times in the report: {error}", file=sys.stderr)
            path = report.write(outcomes, options, server.identity, stages, segmenter.carrier.name, seconds)
            print(f"report: {path}", file=sys.stderr)
    return exit_code(outcomes)


def _usage(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


def _segment(found, segmenter: Segmenter, options: Options, arguments) -> list[batch.Outcome]:
    from tqdm import tqdm

    # A bar on a terminal; elsewhere the lines of the scans are enough.
    with tqdm(total=len(found), unit="scan", file=sys.stderr, disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:

        def tell(outcome: batch.Outcome) -> None:
            if outcome.status == batch.FAILED:
                tqdm.write(f"error: {outcome.error}", file=sys.stderr)
            else:
                if outcome.warning:
                    tqdm.write(f"warning: {outcome.source.path}: {outcome.warning}", file=sys.stderr)
                tqdm.write(line(outcome), file=sys.stdout)
                sys.stdout.flush()
            bar.update()

        outcomes = batch.run(found, segmenter, options, arguments.in_flight, arguments.again, tell)
    counts = {status: sum(o.status == status for o in outcomes) for status in (batch.DONE, batch.KEPT, batch.FAILED)}
    print(", ".join(f"{n} {status}" for status, n in counts.items()), file=sys.stderr)
    return outcomes


def line(outcome: batch.Outcome) -> str:
    """Name, volume, and what was done: one line for each scan, columns apart by tabs."""
    record = outcome.record
    spleen = f"{record['volume_ml']:.1f} mL" if record["voxels"] else "no spleen found"
    return f"{outcome.source.name}\t{spleen}\t{outcome.status}\t{outcome.seconds:.1f} s"


def exit_code(outcomes: list[batch.Outcome]) -> int:
    failed = sum(o.status == batch.FAILED for o in outcomes)
    return 0 if not failed else 1 if failed == len(outcomes) else 3
