"""Tables: the best in bold, and names that are text in every format."""

import csv
import io
import math

import pytest

from cmalight.bench.analysis.tables import (
    Heading,
    PartlySolved,
    ReportTable,
    latex_text,
    markdown_text,
    shown,
    to_csv,
    to_latex,
    to_markdown,
)

NASTY = "<script>alert(1)</script> | a_b & 50% $x$ #1 {y} ~ ^ \\ `c` *d* [e]"


def table(rows, group=1):
    columns = (Heading("data set", is_text=True), Heading("solver", is_text=True), Heading("loss", best="low"))
    return ReportTable("results", "A caption with 100 %", columns, tuple(rows), group=group)


ROWS = [("x", "a", 0.25), ("x", "b", 0.5), ("y", "a", math.inf), ("y", "b", 3e-7), ("z", "a", math.nan)]


def test_csv_has_all_digits_and_reads_back():
    rows = list(csv.reader(io.StringIO(to_csv(table([(NASTY, 'he said "a,b"', 1 / 3), *ROWS])))))
    assert rows[0] == ["data set", "solver", "loss"]
    assert rows[1] == [NASTY, 'he said "a,b"', str(1 / 3)]
    assert [row[2] for row in rows[2:]] == ["0.25", "0.5", "inf", "3e-07", ""]


def test_markdown_has_the_best_of_each_group_in_bold():
    lines = to_markdown(table(ROWS)).splitlines()
    assert lines[1] == "|---|---|---:|"
    assert lines[2:] == [
        "| x | a | **0.25** |",
        "| x | b | 0.5 |",
        "| y | a | never |",
        "| y | b | **3e-07** |",
        "| z | a |  |",
    ]


def test_latex_is_booktabs_with_the_best_in_bold():
    text = to_latex(table(ROWS))
    assert r"\caption{A caption with 100 \%}" in text
    assert r"\begin{tabular}{llr}" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert r"x & a & \textbf{0.25} \\" in text
    assert r" & b & 0.5 \\" in text
    assert r"y & a & never \\" in text
    assert r" & b & \textbf{$3 \cdot 10^{-7}$} \\" in text


def test_equal_as_printed_is_equally_good():
    rows = [("x", "a", 0.1000001), ("x", "b", 0.1), ("x", "c", 0.2)]
    assert table(rows).best() == {(0, 2), (1, 2)}


def test_names_are_text_in_markdown_and_one_cell():
    line = to_markdown(table([(NASTY, "a", 1.0)])).splitlines()[2]
    assert "<" not in line
    unescaped = line.replace("\\\\", "").replace("\\|", "")
    assert unescaped.count("|") == 4
    assert markdown_text("two\nlines") == "two lines"


def test_names_are_text_in_latex():
    line = latex_text(NASTY)
    assert r"\textless{}script\textgreater{}" in line
    for sign in "&%$#_{}":
        assert f"\\{sign}" in line
    assert line.endswith("{*}d{*} {[}e]")
    assert latex_text("\\input{x}") == r"\textbackslash{}input\{x\}"
    assert latex_text("τ=0.1") == r"$\tau$=0.1"
    assert latex_text("adam, λ = 1e-6") == r"adam, $\lambda$ = 1e-6"


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (math.nan, ""), (math.inf, "never"), (3, "3"), (0.123456, "0.1235"), ("a", "a")]
)
def test_cells_as_they_are_printed(value, text):
    assert shown(value) == text


def test_a_median_that_too_few_runs_reach_says_how_many_do():
    rows = [("x", "a", PartlySolved(1, 2)), ("x", "b", math.inf), ("x", "c", 2.0)]
    assert [line.split("|")[3].strip() for line in to_markdown(table(rows)).splitlines()[2:]] == [
        "1 of 2",
        "never",
        "**2**",
    ]
    assert r"& a & 1 of 2 \\" in to_latex(table(rows))
    assert [row[2] for row in csv.reader(io.StringIO(to_csv(table(rows))))][1:] == ["inf", "inf", "2.0"]
