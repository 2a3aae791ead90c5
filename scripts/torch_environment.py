"""What scripts that need torch and MONAI say to a Python that has not got them."""

from __future__ import annotations

import sys
from typing import NoReturn


def needed(missing: ModuleNotFoundError, usage: str | None) -> NoReturn:
    """Ends the script: with its usage if that was asked for, else with where a Python is that has the module."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(usage)
        sys.exit(0)
    sys.exit(
        f"error: {missing.name} is not installed for {sys.executable}: run scripts/setup.sh test, "
        "and this script with bin/python of the folder that it prints"
    )
