"""Shows that something is being done: a running line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager


@contextmanager
def working(what: str):
    """Everything goes to stderr, so that the results on stdout can be captured. On failure only the line ends."""
    terminal = sys.stderr.isatty()
    begin = time.monotonic()
    ended = threading.Event()

    def show(text: str, end: str) -> None:
        print(("\r\033[K" if terminal else "") + text, end=end, file=sys.stderr, flush=True)

    def tick() -> None:
        while not ended.wait(1 if terminal else 10):
            show(f"  {what}: {time.monotonic() - begin:.0f} s", "" if terminal else "\n")

    thread = threading.Thread(target=tick, daemon=True)
    if terminal:
        show(f"  {what} ..", "")
    thread.start()
    try:
        yield
    except BaseException:
        ended.set()
        thread.join()
        if terminal:
            show("", "")
        raise
    ended.set()
    thread.join()
    show(f"  {what}: done in {time.monotonic() - begin:.1f} s", "\n")
