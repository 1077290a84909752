"""The limit on what a file may unpack to; files that appear whole, and what is left of those that did not."""

import os
import time
from pathlib import Path

import pytest

from cmalight.files import (
    DEFAULT_LIMIT,
    check_folder,
    check_outputs,
    refuse_larger,
    remove_abandoned,
    unpacking_limit,
    whole_file,
    without_infinities,
)


def test_the_limit_is_one_gibibyte_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMALIGHT_MAX_BYTES", raising=False)
    assert unpacking_limit() == DEFAULT_LIMIT == 2**30
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "4e9")
    assert unpacking_limit() == 4 * 10**9


@pytest.mark.parametrize("given", ["much", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", given)
    with pytest.raises(ValueError, match=rf"CMALIGHT_MAX_BYTES is '{given}'; expected a positive number of bytes"):
        unpacking_limit()


def test_what_is_larger_is_refused_with_the_way_to_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1000")
    refuse_larger("a.npz", 1000)
    with pytest.raises(KeyError, match=r"a\.npz would take .* MB.*CMALIGHT_MAX_BYTES=1001"):
        refuse_larger("a.npz", 1001, error=KeyError)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(RuntimeError, match="in the middle"), whole_file(path) as file:
        file.write(b"half")
        raise RuntimeError("in the middle")
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["a.bin"]


def test_what_a_killed_process_left_goes_after_an_hour(tmp_path: Path) -> None:
    for name in ("kept.tmp", ".a.bin.1.aa.tmp", ".a.bin.2.bb.tmp", "a.bin"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("kept.tmp", ".a.bin.1.aa.tmp", "a.bin"):
        os.utime(tmp_path / name, (time.time() - 4000, time.time() - 4000))
    remove_abandoned(tmp_path)
    assert sorted(found.name for found in tmp_path.iterdir()) == [".a.bin.2.bb.tmp", "a.bin", "kept.tmp"]
    remove_abandoned(tmp_path / "absent")


def test_outputs_clear_what_a_killed_process_left_of_them_and_nothing_else(tmp_path: Path) -> None:
    for name in (".model.pt.1.aa.tmp", ".other.pt.1.aa.tmp"):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - 4000, time.time() - 4000))
    check_outputs({"--save": tmp_path / "model.pt"}, ())
    assert [found.name for found in tmp_path.iterdir()] == [".other.pt.1.aa.tmp"]


def test_what_was_there_is_kept_where_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for content in (b"1", b"2", b"3"):
        with whole_file(path, keep=tmp_path / "before") as file:
            file.write(content)
    assert (path.read_bytes(), (tmp_path / "before").read_bytes()) == (b"3", b"2")


def test_json_gets_no_infinities() -> None:
    assert without_infinities({"a": [1.0, float("nan"), (float("inf"), "x")]}) == {"a": [1.0, None, [None, "x"]]}


def test_a_folder_that_can_be_made_and_written_to_is_left_as_it_was(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "results")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_or_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        check_folder(tmp_path / "file" / "results")
    with pytest.raises(OSError, match=r"/proc/results"):
        check_folder(Path("/proc/results"))
