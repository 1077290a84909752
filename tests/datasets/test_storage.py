"""Where files are looked for, downloads that work, break off, are wrong or missing, and values in the cache."""

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cmalight.datasets import DataError, Entry, Raw, dataset_info, fetch, load_dataset, registry, where
from cmalight.datasets.readers import Delimited
from cmalight.files import cache_folder
from tests.datasets.makers import tarred
from tests.datasets.server import serving

TEXT = b"".join(b"%d,%d\n" % (i, 2 * i) for i in range(40))
SHA = hashlib.sha256(TEXT).hexdigest()
VALUES_SHA = Raw(np.arange(40)[:, np.newaxis], 2 * np.arange(40)).digest()


def entry(*urls, **more):
    source = Delimited(target=1, member="tiny.csv")
    urls = urls or ("http://127.0.0.1:9/tiny.csv",)
    registry._registered["tiny"] = Entry(
        name="tiny", task="regression", source=source, file="tiny.csv", urls=urls, **more
    )
    return registry._registered["tiny"]


def cached(folder):
    return [path for path in (cache_folder() / folder).rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_download_is_kept_and_not_repeated():
    with serving({"a": TEXT}) as server:
        tiny = entry(server.url("a"), sha256=SHA)
        assert where(tiny) == "to download"
        path = fetch("tiny")
        assert path is not None
        assert path.read_bytes() == TEXT
        assert load_dataset("tiny").x_train.shape == (30, 1)
        assert where(tiny) == "cached"
        assert server.requests == ["/a"]


def test_two_at_once_download_once():
    with serving({"a": TEXT}) as server:
        entry(server.url("a"))
        with ThreadPoolExecutor(2) as pool:
            paths = list(pool.map(fetch, ["tiny", "tiny"]))
        assert server.requests == ["/a"]
    assert paths[0] == paths[1]


@pytest.mark.parametrize("facts", [{"sha256": SHA}, {"values_sha256": VALUES_SHA}, {"rows": 40, "features": 1}])
def test_the_mirror_is_tried_when_the_publisher_fails_or_sends_a_wrong_file(facts):
    wrong = TEXT.replace(b"7", b"8") + b"1,2\n"
    with serving({"broken": TEXT, "page": b"<html>gone</html>", "wrong": wrong, "b": TEXT}) as server:
        entry(*(server.url(name) for name in ("gone", "broken", "page", "wrong", "b")), **facts)
        assert len(load_dataset("tiny").x_train) == 30
        assert server.requests == ["/gone", "/broken", "/page", "/wrong", "/b"]
    assert [path.name for path in cached("files")] == ["tiny.csv"]


@pytest.mark.parametrize(
    ("path", "facts", "message"),
    [
        ("gone", {}, "gone: answers 404"),
        ("broken", {}, "broken: cannot be reached, or the connection broke"),
        ("a", {"sha256": "0" * 64}, "a sends a wrong file: .* has another sha256"),
        ("a", {"values_sha256": "0" * 64}, "other values than the published ones"),
        ("a", {"rows": 41, "features": 1}, "has 40 rows of 1 features; expected 41 of 1"),
        ("a", {"rows": 40, "features": 2}, "has 40 rows of 1 features; expected 40 of 2"),
    ],
)
def test_a_download_that_fails_or_is_wrong_leaves_nothing_and_says_where_to_put_the_file(path, facts, message):
    with serving({"a": TEXT, "broken": TEXT}) as server:
        entry(server.url(path), **facts)
        with pytest.raises(DataError, match=message) as caught:
            load_dataset("tiny")
        assert len(server.requests) == 1
    advice = f"Get it from {server.url(path)} and put it as tiny.csv into a folder named in CMALIGHT_DATA"
    assert str(caught.value).endswith(advice)
    assert cached("files") == cached("values") == []


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "occupied").write_bytes(b"")
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "occupied"))
    entry()
    with pytest.raises(DataError, match="set CMALIGHT_CACHE"):
        load_dataset("tiny")


def test_data_folders_come_before_a_download(data_folder, monkeypatch):
    monkeypatch.setenv("CMALIGHT_DATA", os.pathsep.join([str(data_folder / "first"), str(data_folder)]))
    (data_folder / "other.csv").write_bytes(TEXT)
    tiny = entry(other_names=("other.csv",))
    assert where(tiny) == "local file"
    assert fetch("tiny") == data_folder / "other.csv"


def test_a_local_file_with_the_wrong_checksum_is_refused_and_kept(data_folder):
    path = tarred(data_folder / "cifar-100-binary.tar.gz", {})
    with pytest.raises(DataError, match="another sha256"):
        load_dataset("cifar100")
    assert path.is_file()


def test_right_values_are_taken_from_a_repacked_file_and_then_come_from_the_cache(data_folder):
    (data_folder / "tiny.csv").write_bytes(TEXT.replace(b"\n", b"\r\n"))
    tiny = entry(values_sha256=VALUES_SHA, sha256="0" * 64)
    first = load_dataset("tiny")
    (data_folder / "tiny.csv").unlink()
    assert where(tiny) == "cached"
    again = load_dataset("tiny")
    assert (first.x_train == again.x_train).all()
    assert (first.feature_names, again.feature_names) == (("x0",), ("x0",))


def test_a_changed_file_is_read_anew(data_folder):
    entry()
    for times in (1, 2):
        (data_folder / "tiny.csv").write_bytes(TEXT * times)
        assert len(load_dataset("tiny").x_train) == 30 * times


def test_a_damaged_cache_is_read_anew_and_no_pickle_is_opened(data_folder, caplog):
    entry()
    (data_folder / "tiny.csv").write_bytes(TEXT)
    first = load_dataset("tiny")
    (path,) = cached("values")
    content, pickled = path.read_bytes(), io.BytesIO()
    np.savez(pickled, x=np.array([{}], dtype=object), y=np.zeros(1), feature_names=np.array([], dtype=str))
    half, changed = content[: len(content) // 2], content.replace(bytes(range(40)), bytes(40))
    for damaged in (half, changed, b"", pickled.getvalue()):
        path.write_bytes(damaged)
        assert (load_dataset("tiny").x_train == first.x_train).all()
        assert "will be read anew" in caplog.text
        caplog.clear()
    load_dataset("tiny")
    assert not caplog.text


def test_a_cache_that_cannot_be_written_is_only_a_warning(data_folder, monkeypatch, caplog):
    entry()
    (data_folder / "tiny.csv").write_bytes(TEXT)
    (data_folder / "occupied").write_bytes(b"")
    monkeypatch.setenv("CMALIGHT_CACHE", str(data_folder / "occupied"))
    assert len(load_dataset("tiny").x_train) == 30
    assert "could not be cached" in caplog.text


def test_where_says_what_is_here():
    assert [where(dataset_info(name)) for name in ("wine", "teacher", "mv")] == ["embedded", "embedded", "to download"]
