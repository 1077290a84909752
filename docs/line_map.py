"""Prints the table of docs/algorithm.md that maps each line of the listing to its line of code (--write: into it)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "algorithm.md"
SOURCE = Path(__file__).parent.parent / "src" / "cmalight"
ROOMS = {"CMALight": "control.py", "EDFL_Light": "linesearch.py"}
# Lines whose code is not a decision: where they live instead.
ELSEWHERE = {
    ("CMALight", 1): ("optim/watchdog.py", 'check_fraction("theta", theta)'),
    ("CMALight", 3): ("optim/base.py", "f_0 = self._evaluate(objective, ranks)"),
    ("CMALight", 5): ("optim/epoch.py", "inner = control.InnerCycle("),
    ("CMALight", 12): ("control.py", "found = search()  # line 13"),
    ("CMALight", 16): ("control.py", "    if below_start:  # line 17"),
    ("CMALight", 20): ("optim/epoch.py", "self._snapshot.move(decision.alpha / self._zeta)"),
}


def rows() -> list[tuple[str, int, str, int, str]]:
    """(algorithm, its line, file, line of the file, code), in the listing's order."""
    found = []
    for algorithm, file in ROOMS.items():
        for number, text in enumerate((SOURCE / file).read_text().splitlines(), 1):
            for line in _lines_named_in(text):
                found.append((algorithm, line, file, *_code(file, number)))
    for (algorithm, line), (file, code) in ELSEWHERE.items():
        texts = (SOURCE / file).read_text().splitlines()
        number = next(n for n, text in enumerate(texts, 1) if code in text)
        found.append((algorithm, line, file, *_code(file, number)))
    return sorted(found, key=lambda row: (list(ROOMS).index(row[0]), row[1], row[2], row[3]))


def _lines_named_in(text: str) -> list[int]:
    comment = text.partition("# line ")[2]
    return [int(number) for number in re.findall(r"line (\d+)", "line " + comment)] if comment else []


def _code(file: str, number: int) -> tuple[int, str]:
    """The statement on that line, or on the next one where the line is a comment; and its number."""
    texts = (SOURCE / file).read_text().splitlines()
    while texts[number - 1].strip().startswith("#"):
        number += 1
    return number, texts[number - 1].split("  # line")[0].strip()


def table() -> str:
    """The table in Markdown."""
    head = "| listing | line | code | file |\n|---|---|---|---|\n"
    return head + "".join(
        f"| {algorithm} | {line} | `{code.replace('|', chr(92) + '|')}` | `{file}:{number}` |\n"
        for algorithm, line, file, number, code in rows()
    )


def write() -> None:
    """Put the table at the end of the page, in place of the one that is there."""
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index("| listing |")] + table())


if __name__ == "__main__":
    write() if "--write" in sys.argv else print(table(), end="")
