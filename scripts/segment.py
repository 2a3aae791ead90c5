#!/usr/bin/env python3
"""Usage: scripts/segment.py INPUT.. [--out DIR] [--url HOST:PORT] .. (--help shows all)

Segments the spleen in CT scans with a running server: docs/client.md. What it needs of Python's packages is installed once,
below the cache folder, if the Python that runs it has not got them (scripts/requirements/client.lock).
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
PACKAGES = ("tritonclient", "numpy", "nibabel", "pydicom", "highdicom", "PIL", "scipy", "jinja2", "tqdm", "geventhttpclient", "grpc")


def ensure_packages() -> None:
    """Goes on in the project's own environment where this Python lacks something."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return
    done = subprocess.run([SCRIPTS / "setup.sh", "client"], stdout=subprocess.PIPE, text=True)
    python = Path(done.stdout.strip().removeprefix("client ")) / "bin" / "python"
    if done.returncode or python.resolve() == Path(sys.executable).resolve() and sys.prefix == str(python.parent.parent):
        sys.exit(f"error: this Python lacks {', '.join(missing)}; pip install -r {SCRIPTS}/requirements/client.lock")
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


if __name__ == "__main__":
    ensure_packages()
    sys.path.insert(0, str(SCRIPTS))
    from spleen_client.cli import main

    sys.exit(main())
