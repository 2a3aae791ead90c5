#!/usr/bin/env python3
"""Writes synthetic abdominal CT volumes with a spleen label. Not patients, not for clinical use.

    scripts/phantom.py --seed 7 --ct ct.nii.gz --label spleen.nii.gz
    scripts/phantom.py --seed 7 --count 3 --shape 512,512,114 --perf-json volumes.json
    perf_analyzer -m spleen_seg --input-data volumes.json ...

Several phantoms (--count) take the seeds that follow; a {seed} in a file name is replaced by each.
"""

from __future__ import annotations

import argparse
import sys

from spleen_phantom import best_threshold_dice, make_phantom, save_nifti, save_perf_analyzer_json


def numbers(kind):
    def parse(text: str):
        values = tuple(kind(v) for v in text.replace("x", ",").split(","))
        if len(values) != 3:
            raise argparse.ArgumentTypeError(f"found {text!r}, accepted are three numbers such as 512,512,114")
        return values

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="decides everything (default 0)")
    parser.add_argument("--count", type=int, default=1, help="number of phantoms (default 1)")
    parser.add_argument(
        "--shape", type=numbers(int), default=(512, 512, 114), help="voxels x,y,z (default 512,512,114)"
    )
    parser.add_argument("--spacing", type=numbers(float), help="mm x,y,z (default: the field of view holds the body)")
    parser.add_argument("--ranges", choices=("train", "heldout"), default="train", help="parameter ranges to draw from")
    parser.add_argument("--ct", help="NIfTI file for the volume, int16 HU")
    parser.add_argument("--label", help="NIfTI file for the spleen label, uint8")
    parser.add_argument("--perf-json", help="file for perf_analyzer --input-data, FP32 INPUT0")
    args = parser.parse_args()
    if not (args.ct or args.label or args.perf_json):
        parser.error("nothing to write: give --ct, --label or --perf-json")
    if args.count > 1 and any(p and "{seed}" not in p for p in (args.ct, args.label)):
        parser.error("with --count above 1 the names of --ct and --label must contain {seed}")

    def volumes():
        for seed in range(args.seed, args.seed + args.count):
            phantom = make_phantom(seed, args.shape, args.spacing, args.ranges)
            names = [p and p.replace("{seed}", str(seed)) for p in (args.ct, args.label)]
            save_nifti(phantom, *names)
            millilitres = phantom.label.sum() * abs(phantom.affine[:3, :3].diagonal().prod()) / 1000
            dice, window = best_threshold_dice(phantom.ct, phantom.label)
            print(
                f"seed {seed}: {phantom.ct.shape} voxels of {tuple(round(s, 3) for s in phantom.spacing)} mm, "
                f"spleen {millilitres:.0f} mL; the best threshold window {window} HU scores Dice {dice:.2f}",
                file=sys.stderr,
            )
            yield phantom.ct

    if args.perf_json:
        save_perf_analyzer_json(volumes(), args.perf_json)
    else:
        for _ in volumes():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
