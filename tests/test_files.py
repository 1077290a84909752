"""Files appear complete or not at all."""

import os

import pytest

from cmalight.files import write_atomically


@pytest.mark.parametrize("content", [b"caf\xc3\xa9", "café", lambda file: file.write(b"caf\xc3\xa9")])
def test_bytes_text_and_a_writing_function_are_written_also_through_a_link(tmp_path, content):
    (tmp_path / "link").symlink_to("a")
    write_atomically(tmp_path / "a", b"old")
    write_atomically(tmp_path / "link", content)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"caf\xc3\xa9"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    def fail(file):
        file.write(b"half")
        raise ValueError("broken")

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ValueError, match="broken"):
        write_atomically(tmp_path / "a", fail)
    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "missing" / "a", b"")
    assert raised.value.filename == str(tmp_path / "missing" / "a")
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, b"")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"a": b"old"}


def test_a_device_is_written_to_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
