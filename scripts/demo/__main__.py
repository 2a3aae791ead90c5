"""The client of scripts/demo.sh: PYTHONPATH=scripts python -m demo --help"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from spleen_client import ClientError
from spleen_client.nifti import NiftiScan, read_label
from spleen_client.progress import working
from spleen_client.scan import doubt

from . import NOTICE


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("step", choices=("check", "run"), help="check: only look at the files; run: segment the scan")
    parser.add_argument("--ct", type=Path, help="CT as NIfTI in HU (default: a phantom)")
    parser.add_argument("--label", type=Path, help="its known spleen")
    parser.add_argument("--url", default="127.0.0.1:8000", help="HTTP address of the server")
    parser.add_argument("--cache", type=Path, required=True, help="where the phantom is kept")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--notice", default=NOTICE, help="what the picture says of the network")
    return parser.parse_args()


def check(args) -> None:
    """Finds what is wrong with the files before anybody waits for a build."""
    if args.ct:
        scan = NiftiScan(args.ct)
        if args.label:
            read_label(args.label, scan)


def run(args) -> None:
    from spleen_client import picture
    from spleen_client.segmenter import Segmenter
    from spleen_client.server import Server, since

    from . import report

    label_path, name = args.label, None
    if args.ct:
        ct_path = args.ct
    else:
        from .phantom_case import SEED, phantom

        ct_path, label_path = phantom(args.cache)
        name = f"Synthetic phantom (seed {SEED}, held out from training)"
    args.out.mkdir(parents=True, exist_ok=True)
    with working("reading the scan"):
        scan = NiftiScan(ct_path)
        label = read_label(label_path, scan) if label_path else None
        hu = scan.voxels_ras()
        warning = doubt(hu)
    if warning:
        print(f"  warning: {warning}", file=sys.stderr)

    with working("segmenting on the server"):
        with Server(args.url) as server:
            segmenter, before = Segmenter(server), server.totals()
            answer = segmenter.segment(scan)
            stages = since(before, server.totals())
    with working("writing the results"):
        mask = answer.mask
        files = report.Files(args.out)
        for labels, path in ((mask, files.mask), (answer.contour, files.contour)):
            scan.save(labels, path, args.notice)
        if not args.ct:
            # Beside the mask, so that a viewer finds all of it in one folder.
            shutil.copyfile(ct_path, files.ct)
            shutil.copyfile(label_path, files.label)
        found = report.measure(scan, mask, label)
        lines = picture.Lines(name or scan.path.name, report.facts(scan, found), args.notice)
        picture.save(picture.draw(hu, mask, scan.spacing_ras, lines, label), files.picture)
    print(report.text(name or str(scan.path), scan, found, answer, stages, files, args.notice, made=not args.ct))


def main() -> int:
    args = arguments()
    try:
        {"check": check, "run": run}[args.step](args)
    except (ClientError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
