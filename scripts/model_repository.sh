#!/usr/bin/env bash
# Usage: scripts/model_repository.sh DIR [--model FILE.pt]
# Writes a complete model repository into DIR: spleen_seg, spleen_seg_native and segmentation_3d. The network is FILE.pt (TorchScript,
# [1,1,D,H,W] -> [1,C,D,H,W]), else the one in models/, else one with random weights.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/model.sh"

usage="usage: scripts/model_repository.sh DIR [--model FILE.pt]"
dir='' model=''
while (($#)); do
  case $1 in
    -h | --help) say "$usage"; exit ;;
    --model) model=${2:-}; [[ -n $model ]] || die "--model needs a file. $usage"; shift 2 ;;
    -*) die "unknown option '$1'. $usage" ;;
    *) [[ -z $dir ]] || die "one folder is expected, '$1' is a second. $usage"; dir=$1; shift ;;
  esac
done
[[ -n $dir ]] || die "$usage"
write_model_repository "$dir" "$model"
printf '%s\n' "$dir"
