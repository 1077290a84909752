"""Tables as CSV, Markdown and LaTeX (booktabs), with the best in bold and every name escaped."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Best = Literal["low", "high"]
Cell = str | int | float | None

_GREEK = {
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "ε": "varepsilon",
    "ζ": "zeta",
    "η": "eta",
    "θ": "theta",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "ν": "nu",
    "ρ": "rho",
    "σ": "sigma",
    "τ": "tau",
    "φ": "varphi",
    "ω": "omega",
}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "·": r"\textperiodcentered{}",
    **{letter: rf"$\{name}$" for letter, name in _GREEK.items()},
    "[": "{[}",  # at the head of a row, the end of the one before it would take them as arguments
    "*": "{*}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\`*_[]|#~$"}}
NEVER = "never"


class PartlySolved(float):
    """A median that is not reached, though some of the runs are there: infinite as a number, `1 of 2` in print.

    Attributes:
        solved: how many runs got there.
        runs: of how many.
    """

    solved: int
    runs: int

    def __new__(cls, solved: int, runs: int) -> PartlySolved:
        """An infinite number that knows its share."""
        made = super().__new__(cls, math.inf)
        made.solved, made.runs = solved, runs
        return made


@dataclass(frozen=True)
class Heading:
    """best: which of the numbers are printed in bold"""

    title: str
    best: Best | None = None
    is_text: bool = False


@dataclass(frozen=True)
class ReportTable:
    """Rows of texts and numbers; inf stands for never or `PartlySolved`, NaN or None for nothing.

    name: of the files
    group: how many of the first columns say which rows compete for the best
    """

    name: str
    caption: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    group: int = 0

    def best(self) -> set[tuple[int, int]]:
        """Places (row, column) of the best: all of them if several are equal as they are printed."""
        found = set()
        for column, about in enumerate(self.columns):
            if about.best is None:
                continue
            groups: dict[tuple[Cell, ...], list[int]] = {}
            for row, cells in enumerate(self.rows):
                if _is_finite(cells[column]):
                    groups.setdefault(cells[: self.group], []).append(row)
            for rows in groups.values():
                values = [float(self.rows[row][column] or 0) for row in rows]
                best = min(values) if about.best == "low" else max(values)
                found |= {(row, column) for row in rows if shown(self.rows[row][column]) == shown(best)}
        return found


def shown(value: Cell) -> str:
    """A cell as it is printed."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, PartlySolved):
        return f"{value.solved} of {value.runs}"
    if isinstance(value, float) and math.isinf(value):
        return NEVER
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def to_csv(table: ReportTable) -> str:
    """All digits; inf for never, and where too few runs got there for a median."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.title for column in table.columns])
    writer.writerows([["" if value is None or value != value else value for value in row] for row in table.rows])
    return text.getvalue()


def to_markdown(table: ReportTable) -> str:
    best = table.best()
    lines = [_row([markdown_text(column.title) for column in table.columns])]
    lines.append("|" + "|".join("---" if column.is_text else "---:" for column in table.columns) + "|")
    for row, cells in enumerate(table.rows):
        texts = [markdown_text(shown(cell)) for cell in cells]
        lines.append(_row([f"**{text}**" if (row, at) in best else text for at, text in enumerate(texts)]))
    return "\n".join(lines) + "\n"


def to_latex(table: ReportTable) -> str:
    r"""A `table` for \usepackage{booktabs}."""
    best = table.best()
    spec = "".join("l" if column.is_text else "r" for column in table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(table.caption)}}}"]
    lines += [rf"\label{{tab:{_label(table.name)}}}", rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    lines += [_latex_row([latex_text(column.title) for column in table.columns]), r"\midrule"]
    previous: tuple[Cell, ...] | None = None
    for row, cells in enumerate(table.rows):
        if table.group and previous not in (None, cells[: table.group]):
            lines.append(r"\addlinespace")
        texts = [_latex_cell(cell) for cell in cells]
        if table.group and previous == cells[: table.group]:
            texts[: table.group] = [""] * table.group
        previous = cells[: table.group]
        lines.append(
            _latex_row([rf"\textbf{{{text}}}" if (row, at) in best else text for at, text in enumerate(texts)])
        )
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def markdown_text(text: str) -> str:
    return "".join(_MARKDOWN.get(sign, sign) for sign in _one_line(text))


def _latex_cell(cell: Cell) -> str:
    text = shown(cell)
    if isinstance(cell, str):
        return latex_text(text)
    power = re.fullmatch(r"(-?[\d.]+)e([+-]\d+)", text)
    return rf"${power[1]} \cdot 10^{{{int(power[2])}}}$" if power else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
