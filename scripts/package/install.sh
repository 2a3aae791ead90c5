#!/usr/bin/env bash
# Usage: install.sh DIR [--repository DIR]
#        install.sh --uninstall DIR
# Installs what lies beside it into the Triton installation DIR, such as /opt/tritonserver: backends into DIR/backends, models
# into DIR/models or the model repository named. No network, no Python: bash, coreutils, findutils, grep, sed, awk. Nothing is
# changed before every checksum is verified. A second run changes nothing; a newer release replaces what an older one
# installed, but never a model's file that was changed since. DIR/.triton-spleenseg lists what was installed: --uninstall
# removes that, and again nothing that was changed.
set -Eeuo pipefail
umask 022

PACKAGE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
USAGE='usage: install.sh DIR [--repository DIR], or install.sh --uninstall DIR'

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
report() { printf '%-10s %s\n' "$1" "$2"; }
hash_of_file() { sha256sum -- "$1" | cut -c1-64; }

# What BUILD says: lines of "name: value".
build_info() { awk -v key="$1: " 'index($0, key) == 1 { print substr($0, length(key) + 1) }' "$PACKAGE/BUILD"; }

verify_package() {
  local file wrong
  for file in SHA256SUMS BUILD backends models; do
    [[ -e $PACKAGE/$file ]] || die "$PACKAGE/$file is missing; run install.sh in the folder that the archive was unpacked to"
  done
  if ! wrong=$(cd "$PACKAGE" && sha256sum --check --strict --quiet SHA256SUMS 2>&1); then
    printf '%s\n' "$wrong" >&2
    die "the package is damaged or was changed (above); unpack the archive again. Nothing was installed"
  fi
  # A file that no checksum covers must not be installed either.
  while IFS= read -r file; do
    grep -qxF -- "$(hash_of_file "$PACKAGE/$file")  $file" "$PACKAGE/SHA256SUMS" ||
      die "$file is not listed in SHA256SUMS; unpack the archive again. Nothing was installed"
  done < <(cd "$PACKAGE" && find backends models ! -type d | LC_ALL=C sort)
}

verify_machine() {
  local needed found
  [[ $(uname -sm) == "Linux x86_64" ]] || die "this is $(uname -sm); the package is for Linux x86_64"
  needed=$(build_info glibc)
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2) || true
  [[ -n $found ]] || die "this system has no glibc; the package needs glibc $needed or newer"
  [[ $(printf '%s\n' "$needed" "$found" | sort -V | head -n 1) == "$needed" ]] ||
    die "glibc is $found; the package needs $needed or newer"
}

folder() { # folder PATH : its absolute path, made if it is not there
  if ! mkdir -p -- "$1" 2>/dev/null || [[ ! -w $1 ]]; then
    die "cannot write to $1; run this as a user who can, or name another folder"
  fi
  (cd -- "$1" && pwd)
}

recorded_hash() { # recorded_hash PATH : the hash of what was installed there, if anything was
  if [[ -e $RECORD ]]; then awk -v path="$1" 'substr($0, 67) == path { print substr($0, 1, 64) }' "$RECORD"; fi
}

place() { # place SOURCE DESTINATION : in one step, for a running server may have the old file mapped
  mkdir -p -- "$(dirname "$2")"
  cp -- "$1" "$2.new"
  chmod 644 -- "$2.new"
  mv -f -- "$2.new" "$2"
}

install_file() { # install_file SOURCE DESTINATION own|theirs : theirs are never overwritten when they were changed
  local new old
  new=$(hash_of_file "$1")
  if [[ ! -e $2 ]]; then
    place "$1" "$2"
    report installed "$2"
  else
    old=$(hash_of_file "$2")
    if [[ $old == "$new" ]]; then
      report unchanged "$2"
    elif [[ $3 == own || $old == "$(recorded_hash "$2")" ]]; then
      place "$1" "$2"
      report replaced "$2"
    else
      report kept "$2 (changed since it was installed, or not from this package; the new one is $1)"
      KEPT=1
      new=$(recorded_hash "$2")
      [[ -n $new ]] || return 0
    fi
  fi
  printf '%s  %s\n' "$new" "$2" >>"$RECORD.new"
}

install_package() {
  local target=$1 repository=$2 file
  verify_package
  verify_machine
  target=$(folder "$target")
  repository=$(folder "${repository:-$target/models}")
  RECORD=$target/.triton-spleenseg
  local pytorch=$target/backends/pytorch/libtriton_pytorch.so
  if [[ -e $PACKAGE/backends/pytorch && -e $pytorch && -z $(recorded_hash "$pytorch") ]] &&
    ! cmp -s "$PACKAGE/backends/pytorch/libtriton_pytorch.so" "$pytorch"; then
    die "$target has a PyTorch backend of its own; install the package without one. Nothing was installed"
  fi
  trap 'rm -f -- "$RECORD.new"; printf "error: the installation stopped half-way; run it again\n" >&2' ERR
  : >"$RECORD.new"
  while IFS= read -r file; do
    install_file "$PACKAGE/$file" "$target/$file" own
  done < <(cd "$PACKAGE" && find backends -type f | LC_ALL=C sort)
  while IFS= read -r file; do
    mkdir -p -- "$repository/${file#models/}"
  done < <(cd "$PACKAGE" && find models -mindepth 1 -type d)
  while IFS= read -r file; do
    install_file "$PACKAGE/$file" "$repository/${file#models/}" theirs
  done < <(cd "$PACKAGE" && find models -type f | LC_ALL=C sort)
  remove_what_is_left
  mv -f -- "$RECORD.new" "$RECORD"
  printf 'triton-spleenseg %s is installed. %s\n' "$(build_info version)" "A running server takes it at its next start:"
  printf '  tritonserver --backend-directory=%s --model-repository=%s\n' "$target/backends" "$repository"
  if [[ -n $KEPT ]]; then printf 'Files marked "kept" are not those of this release: compare them.\n'; fi
}

# Files that an older release installed and this one has no more.
remove_what_is_left() {
  [[ -e $RECORD ]] || return 0
  local line
  while IFS= read -r line; do
    awk -v path="${line:66}" 'substr($0, 67) == path { found = 1 } END { exit !found }' "$RECORD.new" || remove_file "$line"
  done <"$RECORD"
}

remove_file() { # remove_file LINE : a line of the record
  local hash=${1:0:64} path=${1:66} folder
  if [[ ! -e $path ]]; then
    report missing "$path"
  elif [[ $(hash_of_file "$path") == "$hash" ]]; then
    rm -- "$path"
    report removed "$path"
  else
    report kept "$path (changed since it was installed)"
  fi
  folder=$(dirname "$path")
  # The folder of a model's version, of the model, of the repository: as far up as they are empty.
  for _ in 1 2 3; do
    rmdir -- "$folder" 2>/dev/null || break
    folder=$(dirname "$folder")
  done
}

uninstall() {
  local target line
  [[ -d $1 ]] || die "no such folder: $1"
  target=$(folder "$1")
  RECORD=$target/.triton-spleenseg
  [[ -e $RECORD ]] || die "nothing of triton-spleenseg is installed in $target: there is no $RECORD"
  while IFS= read -r line; do
    # A model of this backend has a version's folder without a file.
    if [[ $line == */config.pbtxt ]]; then rmdir -- "$(dirname "${line:66}")/1" 2>/dev/null || true; fi
    remove_file "$line"
  done <"$RECORD"
  rm -- "$RECORD"
}

main() {
  local target='' repository='' action=install
  while (($#)); do
    case $1 in
      -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
      --uninstall) action=uninstall; shift ;;
      --repository) [[ -n ${2:-} ]] || die "--repository needs a folder. $USAGE"; repository=$2; shift 2 ;;
      -*) die "unknown option '$1'. $USAGE" ;;
      *) [[ -z $target ]] || die "one folder is expected, '$1' is a second. $USAGE"; target=$1; shift ;;
    esac
  done
  [[ -n $target ]] || die "$USAGE"
  if [[ $action == uninstall ]]; then
    [[ -z $repository ]] || die "--uninstall knows where everything was installed. $USAGE"
    uninstall "$target"
  else
    install_package "$target" "$repository"
  fi
}

KEPT=''
main "$@"
