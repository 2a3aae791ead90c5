#!/usr/bin/env bash
# Usage: scripts/package.sh [--with-pytorch] [--model FILE.pt] [--out DIR]
# Makes the archive that a machine without a network is installed from: the release build of libtriton_spleenseg.so, both models,
# install.sh, documentation, checksums, licences and a bill of materials (CycloneDX). Writes it and its checksum into DIR
# (build/package), beside the unpacked form, and prints its path.
# --with-pytorch adds libtriton_pytorch.so with its libtorch (450 MB), for a Triton that has no PyTorch backend of its own.
# --model packs your network instead of the demonstration.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/model.sh"
source "$ROOT/scripts/lib/release.sh"

usage="usage: scripts/package.sh [--with-pytorch] [--model FILE.pt] [--out DIR]"
pytorch='' model='' out=$ROOT/build/package
while (($#)); do
  case $1 in
    -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    --with-pytorch) pytorch=1; shift ;;
    --model | --out)
      [[ -n ${2:-} ]] || die "$1 needs a value. $usage"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *) die "unknown argument '$1'. $usage" ;;
  esac
done
[[ -z $model || -f $model ]] || die "no such network: $model"
need readelf "binutils has it. Debian, Ubuntu: apt-get install binutils"
need_rust
environments=(release cuda)
if [[ -n $pytorch ]]; then environments+=(libtorch); fi
announce_environments "${environments[@]}"
announce_release_build
if [[ -n $pytorch ]]; then announce_torchscript_build backend; fi
install_environments "${environments[@]}"

version=$(cd "$ROOT" && cargo pkgid --locked --package triton-spleenseg | sed 's/.*[#@]//')
name=triton-spleenseg-$version-linux-x86_64${pytorch:+-with-pytorch}
commit=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || printf 'unknown')
if [[ $commit != unknown && -n $(git -C "$ROOT" status --porcelain --untracked-files=no) ]]; then commit+=' with changes'; fi
# Nothing in the archive is younger than its source.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || printf 0)}

mkdir -p "$out"
out=$(cd "$out" && pwd)
package=$out/$name
rm -rf "$package"
mkdir -p "$package/backends/spleenseg"

build_release_object
cp "$RELEASE_OBJECT" "$package/backends/spleenseg/"
wheels=''
if [[ -n $pytorch ]]; then
  (unset TRITON_HOME; build_pytorch) >&2
  wheels=$(environment_packages libtorch)
  mkdir "$package/backends/pytorch"
  cp "$BACKENDS/pytorch/libtriton_pytorch.so" "$package/backends/pytorch/"
  copy_libtorch "$wheels" "$package/backends/pytorch"
fi
write_model_repository "$package/models" "$model"
[[ -n $model ]] || cp "$ROOT/models/segmentation_3d/README.md" "$package/models/segmentation_3d/"
cp "$ROOT/scripts/package/install.sh" "$ROOT/README.md" "$ROOT/LICENSE" "$ROOT/CHANGELOG.md" "$ROOT/SECURITY.md" "$package/"
cp -r "$ROOT/docs" "$ROOT/deploy" "$package/"
python=$(environment_dir release)/bin/python
"$python" "$ROOT/scripts/package/links.py" "$package"

{
  printf 'version: %s\n' "$version"
  printf 'commit: %s\n' "$commit"
  printf 'rustc: %s\n' "$(rustc --version)"
  # Our own objects and the libraries beside them.
  printf 'glibc: %s\n' "$(glibc_needed "$package"/backends/*/*.so*)"
} >"$package/BUILD"
cargo_says=$(mktemp -d)
trap 'rm -rf "$cargo_says"' EXIT
(
  cd "$ROOT"
  cargo metadata --locked --format-version 1 --filter-platform "$RELEASE_TARGET" >"$cargo_says/metadata.json"
  for name_of in triton-spleenseg ${pytorch:+torchscript_backend}; do
    cargo tree --locked --package "$name_of" --edges normal,no-proc-macro --target "$RELEASE_TARGET" --prefix none --no-dedupe >"$cargo_says/$name_of.tree"
  done
)
"$python" "$ROOT/scripts/package/sbom.py" "$package" --cargo "$cargo_says" --lock "$ROOT/Cargo.lock" \
  --rustc "$(rustc --version | cut -d' ' -f2)" ${wheels:+--wheels "$wheels"} --epoch "$SOURCE_DATE_EPOCH"

chmod -R u=rwX,go=rX "$package"
(cd "$package" && find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
archive=$out/$name.tar.gz
tar --create --directory="$out" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu "$name" |
  gzip --no-name -4 >"$archive.new"
mv "$archive.new" "$archive"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
say "$(du -h "$archive" | cut -f1), glibc $(sed -n 's/^glibc: //p' "$package/BUILD") or newer"
printf '%s\n' "$archive"
