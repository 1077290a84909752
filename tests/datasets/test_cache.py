"""The cache of parsed data: exact, quick, atomic, and never trusted when damaged."""

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.datasets import Delimited, Entry, Raw, RemoteFile, cache, load_dataset, loading, register

RAW = Raw(np.arange(12, dtype=np.float64).reshape(4, 3) / 7, np.array([0, 1, 2, -300.0]))


def saved(folder: Path) -> Path:
    path = folder / "parsed" / "x.bin"
    cache.save(path, RAW, recipe="r", stamp="s")
    return path


def test_what_is_saved_comes_back_exactly_and_mapped(tmp_path: Path) -> None:
    loaded = cache.load(saved(tmp_path), recipe="r", stamp="s")
    assert loaded is not None
    assert (loaded.x == RAW.x).all()
    assert (loaded.y == RAW.y).all()
    assert loaded.x_test is None
    assert isinstance(loaded.x, np.memmap)
    assert loaded.digest() == RAW.digest()
    assert [path.name for path in (tmp_path / "parsed").iterdir()] == ["x.bin"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 255], "uint8"),
        ([-1, 300], "int16"),
        ([0, 70_000], "int32"),
        ([0.5, 2], "float32"),
        ([0.1, 2], "float64"),
        ([2**40 + 0.5, 1], "float64"),
    ],
)
def test_the_smallest_exact_type_is_taken(values: list[float], expected: str) -> None:
    array = np.array(values, dtype=np.float64)
    assert cache.narrowed(array).dtype == expected
    assert (cache.narrowed(array) == array).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**31), 2**31), min_size=1))
def test_narrowing_never_changes_a_value(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    assert (cache.narrowed(array).astype(np.float64) == array).all()


def test_another_recipe_stamp_or_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    assert cache.load(path, recipe="other", stamp="s") is None
    assert cache.load(path, recipe="r", stamp="other") is None
    assert cache.load(path, recipe="r", stamp=None) is not None
    assert cache.load(tmp_path / "absent", recipe="r", stamp=None) is None
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert cache.load(path, recipe="r", stamp="s") is None


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), cut=st.booleans())
def test_any_damage_is_noticed(tmp_path_factory: pytest.TempPathFactory, place: float, flip: int, cut: bool) -> None:
    path = saved(tmp_path_factory.mktemp("c"))
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    data[at] ^= flip
    path.write_bytes(bytes(data[:at] if cut else data))
    loaded = cache.load(path, recipe="r", stamp="s")
    assert loaded is None or loaded.digest() == RAW.digest()  # a flipped byte of padding changes nothing


def test_a_cache_whose_parts_do_not_fit_is_not_taken(tmp_path: Path) -> None:
    cache.save(tmp_path / "x.bin", Raw(np.zeros((4, 3)), np.zeros(5)), recipe="r", stamp="s")
    assert cache.load(tmp_path / "x.bin", recipe="r", stamp="s") is None


def test_a_damaged_cache_is_rebuilt(data_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (data_folder / "tiny.csv").write_bytes(b"".join(b"%d,%d\n" % (i, i) for i in range(8)))
    source = Delimited(file="tiny.csv", target=1)
    entry = register(Entry(name="tiny", task="regression", source=source, files=(RemoteFile("tiny.csv"),)))
    first = load_dataset("tiny")
    path = loading.cached_path(entry)
    path.write_bytes(path.read_bytes()[:-1] + b"\x63")
    with caplog.at_level(logging.WARNING, logger="cmalight"):
        assert (load_dataset("tiny").x_train == first.x_train).all()
    assert "built anew" in caplog.text
    caplog.clear()
    load_dataset("tiny")
    assert not caplog.text


def test_a_changed_file_is_parsed_anew_and_a_vanished_one_is_not_missed(data_folder: Path) -> None:
    file = data_folder / "tiny.csv"
    source = Delimited(file="tiny.csv", target=1)
    register(Entry(name="tiny", task="regression", source=source, files=(RemoteFile("tiny.csv"),)))
    file.write_bytes(b"1,1\n2,2\n3,3\n4,4\n")
    assert len(load_dataset("tiny").x_train) == 3
    file.write_bytes(b"1,1\n2,2\n3,3\n4,4\n5,5\n6,6\n7,7\n8,8\n")
    assert len(load_dataset("tiny").x_train) == 6
    file.unlink()
    assert len(load_dataset("tiny").x_train) == 6


def test_a_cache_that_cannot_be_written_is_only_a_warning(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (data_folder / "tiny.csv").write_bytes(b"1,1\n2,2\n3,3\n4,4\n")
    (data_folder / "occupied").write_bytes(b"")
    monkeypatch.setenv("CMALIGHT_CACHE", str(data_folder / "occupied"))
    source = Delimited(file="tiny.csv", target=1)
    register(Entry(name="tiny", task="regression", source=source, files=(RemoteFile("tiny.csv"),)))
    assert len(load_dataset("tiny").x_train) == 3
    assert "could not be cached" in caplog.text
