"""What every part gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .report import Report


@dataclass(frozen=True)
class Check:
    bundle: Path
    work: Path
    """An empty folder that goes afterwards."""
    backends: Path
    report: Report
    gpu: bool
    """Whether the GPU is what is checked; otherwise the check itself is, on the CPU."""

    def say(self, text: str) -> None:
        self.report.say(text)

    def fail_if(self, wrong: list[str], name: str) -> None:
        """The first few in the report, all of them in a file."""
        if wrong:
            (self.report.folder / f"{name}.wrong.txt").write_text("\n".join(wrong) + "\n")
            raise AssertionError("; ".join(wrong[:5]) + (f"; {len(wrong) - 5} more in {name}.wrong.txt" if len(wrong) > 5 else ""))

    def log(self, name: str) -> Path:
        return self.report.folder / f"{name}.log"
