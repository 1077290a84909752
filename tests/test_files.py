"""Files appear complete or not at all."""

import os

import pytest

from cmalight.files import write_atomically


@pytest.mark.parametrize("content", [b"caf\xc3\xa9", "café", lambda file: file.write(b"caf\xc3\xa9")])
def test_bytes_text_and_a_writing_function_are_written(tmp_path, content):
    write_atomically(tmp_path / "a", content)
    assert (tmp_path / "a").read_bytes() == b"caf\xc3\xa9"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_atomically(path, fail)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"a": b"old"}


def test_an_error_names_the_file_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "missing" / "a", b"")
    assert raised.value.filename == str(tmp_path / "missing" / "a")
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, b"")
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to("a")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_device_is_written_to_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
