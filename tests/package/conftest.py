"""The package as scripts/package.sh makes it, once a session, and the environments whose tools check it."""

from __future__ import annotations

import functools
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 1500


def script(*arguments: str, root: Path = ROOT, **environment: str) -> str:
    """What a script of the project prints; its messages are shown when it fails."""
    done = subprocess.run(
        [str(root / "scripts" / arguments[0]), *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@functools.cache
def environment_folder(name: str) -> Path:
    """An environment of scripts/lib/environments.sh, installed if need be."""
    return Path(script("setup.sh", name).removeprefix(f"{name} "))


@dataclass(frozen=True)
class Package:
    archive: Path
    folder: Path
    """The archive unpacked, away from where it was made."""


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Package:
    archive = Path(script("package.sh", "--out", str(tmp_path_factory.mktemp("made"))))
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    return Package(archive, unpacked / archive.name.removesuffix(".tar.gz"))
