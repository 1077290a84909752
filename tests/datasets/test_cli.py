"""`cmalight datasets`: a table, facts, fetching, and one line for what is wrong."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cmalight.cli import command
from cmalight.datasets import Delimited, Entry, RemoteFile, register
from tests.datasets.server import serving


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["datasets", *arguments], prog_name="cmalight")


def test_list_shows_p_d_and_where() -> None:
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["name", "task", "P", "d", "where"]
    assert ["bikes", "regression", "13034", "59", "to", "download"] in [line.split() for line in lines]
    assert ["wine", "classification", "133", "14", "embedded"] in [line.split() for line in lines]
    assert len(lines) == 23


def test_list_draws_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert "┃" in run("list").stdout


def test_info_credits_the_data() -> None:
    text = run("info", "Bikes").stdout
    for part in ("13034", "d = 59", "one-hot", "CC BY 4.0", "Fanaee-T", "https://archive.ics.uci.edu", "to download"):
        assert part in text


def test_info_of_ones_own_set(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[dataset]\nfile = "x.csv"\ntarget = "y"\ntask = "regression"\n')
    assert "known when it is read" in run("info", str(tmp_path / "x.toml")).stdout


def test_fetch_downloads_and_says_where() -> None:
    with serving({"a": b"1,2\n3,4\n5,6\n7,8\n"}) as server:
        file = RemoteFile("tiny.csv", urls=(server.url("a"),))
        register(Entry(name="tiny", task="regression", source=Delimited(file="tiny.csv", target=1), files=(file,)))
        result = run("fetch", "tiny")
    assert result.exit_code == 0
    assert result.stdout.startswith("tiny: ")
    assert "tiny.csv" in result.stdout


def test_fetch_of_an_embedded_set_has_nothing_to_do() -> None:
    assert "nothing to fetch" in run("fetch", "wine").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "califronia"), "did you mean 'california'"),
        (("fetch", "nothing-like-it"), "known are ailerons"),
        (("info",), "needs the NAME"),
        (("fetch",), "needs the NAME"),
        (("lsit",), "did you mean 'list'"),
        (("info", "absent.toml"), "cannot be read"),
        (("info", "teacher:rows=x"), "whole number"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_failed_download_is_one_line_and_exit_2() -> None:
    with serving({}) as server:
        file = RemoteFile("tiny.csv", urls=(server.url("gone"),))
        register(Entry(name="tiny", task="regression", source=Delimited(file="tiny.csv", target=1), files=(file,)))
        result = run("fetch", "tiny")
    assert result.exit_code == 2
    assert "answers 404" in result.stderr
    assert len(result.stderr.splitlines()) == 1
