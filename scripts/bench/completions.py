"""When requests end, as the server counts them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self


class Watch:
    """Looks in a thread whether a count has changed, until a look has seen enough, or to the end."""

    def __init__(self, count: Callable[[], int], interval_s: float = 0.02):
        self._count, self._interval_s = count, interval_s
        self._last = count()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> bool:
        """Whether it has seen enough."""
        raise NotImplementedError

    def _watch(self) -> None:
        while not self._ended.wait(self._interval_s) and not self._look():
            pass

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._ended.set()
        self._thread.join()


class Completions(Watch):
    """Every change of the count. perf_analyzer's own throughput counts the time until it looks again, once a second: too
    coarse for requests of seconds."""

    def __init__(self, count: Callable[[], int], interval_s: float = 0.02):
        super().__init__(count, interval_s)
        self.steps: list[tuple[float, int]] = []  # (time, count) whenever the count has changed

    def _look(self) -> bool:
        now = self._count()
        if now != self._last:
            self.steps.append((time.monotonic(), now))
            self._last = now
        return False

    def __exit__(self, *exc) -> None:
        super().__exit__(*exc)
        self._look()

    def throughput(self) -> float | None:
        return throughput(self.steps)


class AfterFirst(Watch):
    """Takes one reading when the first request has ended, and looks no more after that: it must not slow what is measured.

    A client's shared memory gets its pages while its first request is answered, which is neither backend's work.
    """

    def __init__(self, count: Callable[[], int], read: Callable[[], dict], interval_s: float = 0.02):
        super().__init__(count, interval_s)
        self._read = read
        self.reading: dict | None = None

    def _look(self) -> bool:
        if self._count() == self._last:
            return False
        self.reading = self._read()
        return True


def throughput(steps: list[tuple[float, int]]) -> float | None:
    """Requests in a second between the first completion and the last. None if fewer than two were seen."""
    if len(steps) < 2:
        return None
    (began, first), (ended, last) = steps[0], steps[-1]
    return (last - first) / (ended - began)
