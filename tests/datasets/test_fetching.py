"""Where files are looked for, and downloads that work, break off, are wrong, missing or impossible."""

import gzip
import hashlib
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from cmalight.datasets import (
    DataError,
    Delimited,
    Entry,
    RemoteFile,
    fetch,
    fetching,
    load_dataset,
    register,
    where,
)
from tests.datasets.server import Content, serving

TEXT = b"".join(b"%d,%d\n" % (i, 2 * i) for i in range(40))
SHA = hashlib.sha256(TEXT).hexdigest()


def entry(*urls: str, **more: object) -> Entry:
    file = RemoteFile("tiny.csv", urls=urls, sha256=more.pop("sha256", ()))  # type: ignore[arg-type]
    source = Delimited(file="tiny.csv", target=1)
    return register(Entry(name="tiny", task="regression", source=source, files=(file,), **more))  # type: ignore[arg-type]


def cached_files() -> list[str]:
    """Without the marks that keep files of one name apart."""
    folder = fetching.files_folder()
    return sorted(path.name.split("-", 1)[-1] for path in folder.iterdir()) if folder.exists() else []


def test_a_download_is_kept_and_not_repeated() -> None:
    with serving({"a": TEXT}) as server:
        tiny = entry(server.url("a"), sha256=(SHA,))
        assert where(tiny) == "to download"
        assert fetch("tiny") == [fetching.cached_file(tiny.files[0])]
        assert load_dataset("tiny").x_train.shape == (30, 1)
        assert where(tiny) == "cached"
        assert server.requests == ["/a"]


def test_the_mirror_is_tried_when_the_publisher_fails() -> None:
    with serving({"broken": TEXT, "b": TEXT}) as server:
        entry(server.url("gone"), server.url("broken"), server.url("b"), sha256=(SHA,))
        load_dataset("tiny")
        assert server.requests == ["/gone", "/broken", "/b"]
    assert cached_files() == ["tiny.csv"]


def test_an_interrupted_download_leaves_nothing_and_starts_anew() -> None:
    with serving({"broken": TEXT}) as server:
        entry(server.url("broken"))
        with pytest.raises(DataError, match="broke"):
            load_dataset("tiny")
        assert cached_files() == []
        server.files["a"] = TEXT
        entry(server.url("a"))
        assert len(load_dataset("tiny").x_train) == 30


def test_a_wrong_checksum_is_refused_and_names_the_way_out() -> None:
    with serving({"a": TEXT + b"9,9\n"}) as server:
        entry(server.url("a"), sha256=(SHA,))
        with pytest.raises(DataError, match="wrong sha256") as caught:
            load_dataset("tiny")
    for part in ("tiny.csv", str(fetching.files_folder()), "CMALIGHT_DATA", server.url("a")):
        assert part in str(caught.value)
    assert cached_files() == []


def test_wrong_values_are_refused_and_the_download_is_thrown_away() -> None:
    with serving({"a": TEXT}) as server:
        entry(server.url("a"), values_sha256="0" * 64)
        with pytest.raises(DataError, match="other values"):
            load_dataset("tiny")
    assert cached_files() == []


def test_right_values_are_taken_from_a_repacked_file() -> None:
    with serving({"a": TEXT, "b": TEXT.replace(b"\n", b"\r\n")}) as server:
        values = entry(server.url("a")).source.read({"tiny.csv": Path(fetch("tiny")[0])}).digest()
        Path(fetch("tiny")[0]).unlink()
        entry(server.url("b"), sha256=(SHA,), values_sha256=values)
        assert len(load_dataset("tiny").x_train) == 30


def test_wrong_shape_is_refused() -> None:
    with serving({"a": TEXT}) as server:
        entry(server.url("a"), rows=41)
        with pytest.raises(DataError, match="40 rows instead of 41"):
            load_dataset("tiny")
        entry(server.url("a"), features=2)
        with pytest.raises(DataError, match="1 features instead of 2"):
            load_dataset("tiny")


def test_a_missing_page_is_named() -> None:
    with serving({}) as server:
        entry(server.url("gone"))
        with pytest.raises(DataError, match="answers 404") as caught:
            load_dataset("tiny")
    assert "put it as tiny.csv into" in str(caught.value)


def test_offline_says_where_to_put_the_file() -> None:
    with serving({}) as server:
        address = server.url("a")
    entry(address)
    with pytest.raises(DataError, match="cannot be reached") as caught:
        load_dataset("tiny")
    assert "put it as tiny.csv into a folder named in CMALIGHT_DATA, or as" in str(caught.value)


def test_without_an_address_the_error_says_so() -> None:
    entry()
    with pytest.raises(DataError, match="nothing says where to download"):
        load_dataset("tiny")


BEGINNINGS = {
    "in the content": b"HTTP/1.0 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "in the header": b"HTTP/1.0 200 OK\r\nX: ",
}


@pytest.mark.parametrize("when", BEGINNINGS)
def test_a_server_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(BEGINNINGS[when])
        while not over.wait(0.02):
            handler.wfile.write(b"1")

    def with_patience(entry: Entry, file: RemoteFile, url: str, **more: Any) -> Path:
        """Little with the one that drips, and with the other as much as a busy machine needs."""
        monkeypatch.setattr(fetching, "SLOWNESS_SECONDS", 0.2 if url.endswith("/a") else 600.0)
        return retrieve(entry, file, url, **more)

    retrieve = fetching._retrieve
    monkeypatch.setattr(fetching, "_retrieve", with_patience)
    with serving({"a": drip, "b": TEXT}) as server:
        try:
            entry(server.url("a"))
            with pytest.raises(DataError, match=r"less than 10 kB per second, over 0[.]2 seconds"):
                load_dataset("tiny")
            assert cached_files() == []
            entry(server.url("a"), server.url("b"))
            assert len(load_dataset("tiny").x_train) == 30
        finally:
            over.set()


def test_a_transfer_whose_connection_is_free_again_is_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShowsForLong(fetching._Transfer):
        """Has every byte, and shows it until it is given up."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._show = lambda *_: self._given_up.wait(600) and None

    monkeypatch.setattr(fetching, "SLOWNESS_SECONDS", 0.2)
    monkeypatch.setattr(fetching, "_Transfer", ShowsForLong)
    with serving({"a": TEXT}) as server:
        entry(server.url("a"))
        with pytest.raises(DataError, match="too slow to wait for"):
            load_dataset("tiny")


def packed(text: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """The answer of a server that packs though it was asked not to."""
    data = gzip.compress(text)
    head = b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data)
    return lambda handler: handler.wfile.write(head + data) and None


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    for _ in range(64):
        handler.wfile.write(bytes(1 << 20))


@pytest.mark.parametrize("content", [bytes(4 << 20), packed(bytes(4 << 20)), endless])
def test_an_answer_above_the_limit_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch, content: Content) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")
    with serving({"a": content}) as server:
        entry(server.url("a"))
        with pytest.raises(DataError, match=r"above the limit of 1 MB.*CMALIGHT_MAX_BYTES"):
            load_dataset("tiny")
    assert cached_files() == []


def test_what_comes_with_a_redirection_is_not_read() -> None:
    sent = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 301 Moved\r\nLocation: /b\r\n\r\n")
        for _ in range(64):
            handler.wfile.write(bytes(1 << 20))
            sent.append(1)

    with serving({"a": elsewhere, "b": TEXT}) as server:
        entry(server.url("a"), sha256=(SHA,))
        assert len(load_dataset("tiny").x_train) == 30
        assert server.requests == ["/a", "/b"]
    assert len(sent) < 64


def test_an_answer_that_is_packed_unasked_is_unpacked() -> None:
    with serving({"a": packed(TEXT)}) as server:
        entry(server.url("a"), sha256=(SHA,))
        assert len(load_dataset("tiny").x_train) == 30


def test_what_a_killed_download_left_is_cleared(tmp_path: Path) -> None:
    left = fetching.files_folder() / ".tiny.csv.1.abcd.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 4000, time.time() - 4000))
    with serving({"a": TEXT}) as server:
        entry(server.url("a"))
        load_dataset("tiny")
    assert cached_files() == ["tiny.csv"]


def test_a_progress_bar_is_drawn_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"a": TEXT}) as server:
        entry(server.url("a"))
        fetch("tiny", progress=True)
    assert capsys.readouterr().out == ""


def test_data_folders_come_before_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    tiny = entry()
    for path, scale in ((second / "tiny.csv", 1), (fetching.cached_file(tiny.files[0]), 3)):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(b"%d,%d\n" % (i, scale * i) for i in range(40)))
    monkeypatch.setenv("CMALIGHT_DATA", os.pathsep.join((str(first), str(second))))
    assert where(tiny) == "local file"
    assert load_dataset("tiny").target_scaling.high == [39.0]  # type: ignore[union-attr]
    monkeypatch.delenv("CMALIGHT_DATA")
    assert where(tiny) == "cached"
    assert load_dataset("tiny").target_scaling.high == [117.0]  # type: ignore[union-attr]


def test_a_file_put_by_hand_with_a_wrong_checksum_is_refused_and_kept(data_folder: Path) -> None:
    (data_folder / "tiny.csv").write_bytes(b"1,2\n")
    entry("http://127.0.0.1:9/never", sha256=(SHA,))
    with pytest.raises(DataError, match="has the sha256") as caught:
        load_dataset("tiny")
    assert str(data_folder / "tiny.csv") in str(caught.value)
    assert (data_folder / "tiny.csv").exists()


def test_a_file_that_one_trusts_is_taken_whatever_its_checksum_and_only_then(data_folder: Path) -> None:
    (data_folder / "tiny.csv").write_bytes(TEXT + b"50,100\n")
    entry("http://127.0.0.1:9/never", sha256=(SHA,))
    assert fetch("tiny", trust=True) == [data_folder / "tiny.csv"]
    assert load_dataset("tiny", trust=True).target_scaling.high == [100.0]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="say that you trust it"):  # what is cached of it is not that of the known file
        load_dataset("tiny")


def test_a_file_that_one_trusts_may_have_other_values_but_not_another_shape(data_folder: Path) -> None:
    (data_folder / "tiny.csv").write_bytes(TEXT)
    entry(values_sha256="0" * 64, rows=40)
    with pytest.raises(DataError, match="say that you trust it"):
        load_dataset("tiny")
    assert len(load_dataset("tiny", trust=True).x_train) == 30
    (data_folder / "tiny.csv").write_bytes(TEXT + b"50,100\n")
    with pytest.raises(DataError, match="41 rows instead of 40"):
        load_dataset("tiny", trust=True)


def test_the_cache_has_a_place_of_its_own_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMALIGHT_CACHE")
    assert "cmalight" in str(fetching.cache_folder())
