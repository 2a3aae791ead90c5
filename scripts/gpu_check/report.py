"""What each part came to, and what all of them came to."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

PASSED, FAILED, NOTHING_CHECKED = 0, 1, 2


class Skip(Exception):
    """A part that cannot run here: what is missing."""


class OutOfTime(BaseException):
    """The ten minutes are over. No Exception, so that no part takes it for a failure of its own and goes on."""


class Report:
    def __init__(self, folder: Path, seconds: float):
        self.folder = folder
        self.deadline = time.monotonic() + seconds
        self.lines: list[str] = []
        self.outcomes: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)
        (self.folder / "report.txt").write_text("\n".join(self.lines) + "\n")

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def part(self, name: str, work: Callable[[], str | None], needs_s: float) -> None:
        """Runs one part, which may say what it left out. Whatever happens in it, the next one runs."""
        self.say(f"\n== {name} ==")
        began = time.monotonic()
        self.outcomes[name] = "failed: not done within 10 minutes"
        try:
            if self.left() < needs_s:
                raise Skip(f"{needs_s:.0f} s of the 10 minutes; {max(self.left(), 0):.0f} are left")
            left_out = work()
            outcome = f"passed: without {left_out}" if left_out else "passed"
        except Skip as missing:
            outcome = f"skipped: {missing}"
        except Exception as error:  # noqa: BLE001: a part that breaks is a part that failed
            (self.folder / f"{name.replace(' ', '_')}.traceback.txt").write_text(traceback.format_exc())
            outcome = f"failed: {error or type(error).__name__}"
        self.outcomes[name] = outcome
        self.say(f"{outcome} ({time.monotonic() - began:.0f} s)")

    def finish(self, wanted: set[str]) -> int:
        """One line a part, one for all, and the exit code. Nothing was checked where no part of `wanted` could run."""
        self.say("\n== result ==")
        for name, outcome in self.outcomes.items():
            self.say(f"{name}: {outcome}")
        kinds = {name: outcome.split(":")[0] for name, outcome in self.outcomes.items()}
        counts = Counter(kinds.values())
        self.say(", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")))
        if counts["failed"]:
            verdict, code = "FAILED", FAILED
        elif not any(kinds.get(name) == "passed" for name in wanted):
            verdict, code = "NOTHING COULD BE CHECKED of what this is for", NOTHING_CHECKED
        else:
            verdict, code = "PASSED", PASSED
        self.say(f"{verdict}; report and server logs are in {self.folder}")
        return code
