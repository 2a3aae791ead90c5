"""The client of scripts/demo.sh: PYTHONPATH=scripts python -m demo --help"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

from . import NOTICE, DemoError
from .progress import working
from .scan import Scan, read_label


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
        scan = Scan(args.ct)
        if args.label:
            read_label(args.label, scan)


def run(args) -> None:
    from . import client, grid, picture, report

    label_path, name = args.label, None
    if args.ct:
        ct_path = args.ct
    else:
        from .phantom_case import SEED, phantom

        ct_path, label_path = phantom(args.cache)
        name = f"Synthetic phantom (seed {SEED}, held out from training)"
    args.out.mkdir(parents=True, exist_ok=True)
    with working("reading the scan"):
        scan = Scan(ct_path)
        label = read_label(label_path, scan) if label_path else None
        hu = scan.voxels_ras()
        lowest = np.nanmin(hu)
    if lowest > -150:
        print(f"  note: the lowest value is {lowest:.0f}; a CT in Hounsfield units has -1000 in air", file=sys.stderr)

    with working("segmenting on the server"):
        answer = client.segment(args.url, hu)
    with working("writing the results"):
        mask, contour = (grid.to_volume(a, answer.crop) for a in (answer.mask, answer.contour))
        files = report.Files(args.out)
        for labels, path in ((mask, files.mask), (contour, files.contour)):
            scan.save(labels, path, args.notice)
        if not args.ct:
            # Beside the mask, so that a viewer finds all of it in one folder.
            shutil.copyfile(ct_path, files.ct)
            shutil.copyfile(label_path, files.label)
        found = report.measure(scan, mask, label)
        lines = picture.Lines(name or scan.path.name, report.facts(scan, found), args.notice)
        picture.save(picture.draw(hu, mask, scan.spacing_ras, lines, label), files.picture)
    print(report.text(name or str(scan.path), scan, found, answer, files, args.notice, made=not args.ct))


def main() -> int:
    args = arguments()
    try:
        {"check": check, "run": run}[args.step](args)
    except (DemoError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
