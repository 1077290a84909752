"""`cmalight datasets`: a table, facts, fetching, and one line for what is wrong."""

import pytest

from cmalight.datasets import Entry, registry
from cmalight.datasets.readers import Delimited
from tests.datasets.conftest import isolated  # noqa: F401
from tests.datasets.server import serving


def add_tiny(url):
    registry._registered["tiny"] = Entry(
        name="tiny", task="regression", source=Delimited(target=1, member="tiny.csv"), file="tiny.csv", urls=(url,)
    )


def test_list_shows_p_d_and_where(cmalight):
    lines = [line.split(maxsplit=4) for line in cmalight("datasets", "list").stdout.splitlines()]
    assert lines[0] == ["name", "task", "P", "d", "where"]
    assert ["bikes", "regression", "13034", "59", "to download"] in lines
    assert ["wine", "classification", "133", "14", "embedded"] in lines
    assert len(lines) == 1 + len(registry.known())


def test_info_credits_the_data(cmalight):
    text = cmalight("datasets", "info", "Bikes").stdout
    for part in (
        "P:             13034",
        "d:             59",
        "one-hot",
        "CC BY 4.0",
        "Fanaee-T",
        "https://archive.ics.uci.edu",
        "to download",
    ):
        assert part in text


def test_fetch_downloads_and_says_where(cmalight):
    with serving({"a": b"1,2\n3,4\n5,6\n7,8\n"}) as server:
        add_tiny(server.url("a"))
        result = cmalight("datasets", "fetch", "tiny")
    assert result.exit_code == 0
    assert result.stdout == f"tiny: {cmalight.folder / 'cache' / 'files' / 'tiny' / 'tiny.csv'}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "califronia"), "did you mean 'california'"),
        (("fetch", "nothing-like-it"), "known are ailerons"),
        (("info",), "Missing argument 'NAME'"),
        (("lsit",), "No such command 'lsit'"),
        (("fetch", "absent.csv:target=y"), "absent.csv is not a file"),
        (("info", "teacher:rows=x"), "whole number"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(cmalight, arguments, message):
    assert message in cmalight.refused("datasets", *arguments)
