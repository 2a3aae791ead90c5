"""Markdown tables."""

from __future__ import annotations

from .summary import Spread

NOT_MEASURED = "not measured"


def table(head: list[str], rows: list[list[str]]) -> str:
    """The first column is text, the others are figures."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    if any(len(line) != len(head) for line in lines):
        raise ValueError(f"a row does not have the {len(head)} columns of {head}")
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def text(value: Spread | None, digits: int = 0, unit: str = "") -> str:
    return value.text(digits, unit) if value else NOT_MEASURED


def middle(value: Spread | None, digits: int = 0, unit: str = "") -> str:
    return f"{value.middle:,.{digits}f}{unit}" if value else NOT_MEASURED
