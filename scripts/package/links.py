"""Makes the links of the packed pages to what is not packed, such as the source, plain text.

    links.py PACKAGE

PACKAGE is the unpacked package.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")


def without_dead_links(page: Path) -> str:
    """The page, with the text alone of links to files that are not there."""

    def link(found: re.Match) -> str:
        text, target = found.groups()
        file = target.partition("#")[0]
        if "://" in target or (page.parent / file).exists():
            return found[0]
        return text

    # Every second part is a block of code, which stays.
    parts = CODE.split(page.read_text())
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def main() -> None:
    package = Path(sys.argv[1])
    for page in sorted(package.rglob("*.md")):
        page.write_text(without_dead_links(page))


if __name__ == "__main__":
    main()
