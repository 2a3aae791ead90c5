#!/usr/bin/env bash
# Usage: scripts/gpu_bundle.sh [--without-pytorch] [--folder DIR [--cases N]] [FILE.tar.xz]
# Packs what scripts/gpu_check.sh needs on a machine with a GPU and without a network into one file of at most 60 MB
# (default build/gpu_bundle.tar.xz): both backends, threshold_backend, kernel_check, the stock Triton, models, the benchmark's Python model, MONAI, and
# the parity set with MONAI's results. Prints its path.
# --without-pytorch leaves torchscript_backend out, and with it the need to compile it.
# --folder writes the folder DIR that the file would unpack to instead; --cases takes so many of the parity set.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/release.sh"
source "$ROOT/scripts/lib/server.sh"

usage="usage: scripts/gpu_bundle.sh [--without-pytorch] [--folder DIR [--cases N]] [FILE.tar.xz]"
file=$ROOT/build/gpu_bundle.tar.xz pytorch=1 folder='' cases=''
while (($#)); do
  case $1 in
    -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    --without-pytorch) pytorch=''; shift ;;
    --folder | --cases)
      [[ -n ${2:-} ]] || die "$1 needs a value. $usage"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    -*) die "unknown argument '$1'. $usage" ;;
    *) file=$1; shift ;;
  esac
done
most_mb=60
[[ -z $folder || ! -e $folder ]] || die "$folder is there already"
[[ -n $folder ]] || need xz "Debian, Ubuntu: apt-get install xz-utils"
environments=(serve test release cuda)
if [[ -n $pytorch ]]; then environments+=(libtorch); fi
announce_environments "${environments[@]}"
announce_release_build
if [[ -n $pytorch ]]; then announce_torchscript_build backend; fi
install_environments "${environments[@]}"
unset TRITON_HOME # the one that is packed is PyPI's
locate_triton

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=${folder:-$work/gpu_bundle}
mkdir -p "$bundle/triton/bin" "$bundle/backends/"{spleenseg,threshold} "$bundle/benches" "$bundle/models"
build_release_object
cp "$RELEASE_OBJECT" "$bundle/backends/spleenseg/"
release_build --lib --package threshold_backend
cp "$RELEASE_FOLDER/libtriton_threshold.so" "$bundle/backends/threshold/"
release_build --package kernel_check
cp "$RELEASE_FOLDER/kernel_check" "$bundle/"
if [[ -n $pytorch ]]; then
  build_pytorch >&2
  mkdir "$bundle/backends/pytorch"
  cp "$BACKENDS/pytorch/libtriton_pytorch.so" "$bundle/backends/pytorch/"
  sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$(environment_lock libtorch)" >"$bundle/backends/pytorch/built_for"
  glibc_needed "$bundle/backends/pytorch/libtriton_pytorch.so" >"$bundle/backends/pytorch/needs_glibc"
fi
triton=$(dirname "$TRITON_STOCK_BACKENDS")
cp "$TRITON_SERVER" "$bundle/triton/bin/"
cp -rL "$TRITON_LIBRARIES" "$bundle/triton/lib"
cp -rL "$triton/backends" "$triton/python_backend_stubs" "$bundle/triton/"
for name in spleen_seg spleen_seg_native segmentation_3d; do cp -r "$ROOT/models/$name" "$bundle/models/"; done
cp -r "$ROOT/benches/python_backend" "$bundle/benches/"
# Pure Python, with its licence; it needs PyTorch and NumPy alone. For machines that have no MONAI of their own.
monai=$(environment_packages test)
mkdir "$bundle/python"
cp -r "$monai"/monai "$monai"/monai-*.dist-info "$bundle/python/"
mkdir "$bundle/gpu_check"
cp "$ROOT"/scripts/gpu_check/*.py "$bundle/gpu_check/"
rm "$bundle/gpu_check/make_parity.py"
cp "$ROOT/scripts/gpu_check.sh" "$ROOT/LICENSE" "$bundle/"
"$(environment_dir test)/bin/python" "$ROOT/scripts/gpu_check/make_parity.py" "$bundle/parity.npz" ${cases:+"$cases"}
find "$bundle" -name __pycache__ -prune -exec rm -rf {} +
printf 'version %s, %s\n' "$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)" \
  "$(git -C "$ROOT" describe --always --dirty --exclude='*' 2>/dev/null || printf 'no repository')" >"$bundle/MADE_FROM"
if [[ -n $folder ]]; then
  printf '%s\n' "$folder"
  exit
fi
mkdir -p "$(dirname "$file")"
XZ_OPT='-6 -T0' tar -C "$work" --owner=0 --group=0 -cJf "$work/bundle.tar.xz" gpu_bundle
bytes=$(stat -c %s "$work/bundle.tar.xz")
((bytes <= most_mb * 1000000)) || die "the bundle has $bytes bytes; at most $most_mb MB are wanted"
mv "$work/bundle.tar.xz" "$file"
say "$((bytes / 1000000)) MB. On the machine with the GPU: tar -xf $(basename "$file") && gpu_bundle/gpu_check.sh"
printf '%s\n' "$file"
