"""Hostile and damaged archives end in a DataError, and nothing is ever written."""

import contextlib
import gzip
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.datasets import DataError, archives, dataset_info
from tests.datasets.makers import bikes, cifar, gzipped, keel, tarred, zipped


def read(path: Path, *wanted: str) -> dict[str, bytes]:
    return {name: stream.read() for name, stream in archives.members(path, wanted)}


@pytest.mark.parametrize("name", ["../a.txt", "/a.txt", "x/../../a.txt", "..\\a.txt", "C:/a.txt"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    for make, file in ((zipped, "z.zip"), (tarred, "t.tar.gz")):
        with pytest.raises(DataError, match="leaves its folder"):
            read(make(tmp_path / file, {name: b"x"}), "a.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.tar.gz", "z.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "t.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("a.txt")
        info.type, info.linkname = kind, "/elsewhere"
        archive.addfile(info)
    with pytest.raises(DataError, match="link or a device"):
        read(path, "a.txt")


def test_bombs_stop_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")
    bomb = bytes(32 * archives.MEGABYTE)
    nested = gzip.compress(bomb)
    for path, name in (
        (zipped(tmp_path / "z.zip", {"a.txt": bomb}), "a.txt"),
        (zipped(tmp_path / "n.zip", {"a.txt.gz": nested}), "a.txt"),
        (gzipped(tmp_path / "g.gz", bomb), "a.txt"),
        (tarred(tmp_path / "t.tar.gz", {"other": bomb, "a.txt": b"x"}), "a.txt"),
    ):
        with pytest.raises(DataError, match="above the limit of 1 MB"):
            read(path, name)
        monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e9")
        assert read(path, name)
        monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")


def test_a_size_that_lies_does_not_help_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")
    data = zipped(tmp_path / "z.zip", {"a.txt": bytes(8 * archives.MEGABYTE)}).read_bytes()
    size = (8 * archives.MEGABYTE).to_bytes(4, "little")
    (tmp_path / "lie.zip").write_bytes(data.replace(size, (100).to_bytes(4, "little")))
    with pytest.raises(DataError):
        read(tmp_path / "lie.zip", "a.txt")


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    members = {f"{i}": b"" for i in range(5)}
    for path in (zipped(tmp_path / "z.zip", members), tarred(tmp_path / "t.tar.gz", members)):
        with pytest.raises(DataError, match="members"):
            read(path, "a.txt")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "z.zip", {"a.txt": b"x"}).read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    (tmp_path / "z.zip").write_bytes(bytes(data))
    with pytest.raises(DataError, match="encrypted"):
        read(tmp_path / "z.zip", "a.txt")


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no member b\.txt"):
        read(zipped(tmp_path / "z.zip", {"a.txt": b"x"}), "a.txt", "b.txt")


def test_a_plain_file_cannot_hold_two_members(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"plain")
    for path in (tmp_path / "p", gzipped(tmp_path / "g", b"plain")):
        with pytest.raises(DataError, match="should hold a, b"):
            read(path, "a", "b")


def _good(folder: Path) -> dict[str, Path]:
    """A good file for each kind of reader."""
    inputs = dict.fromkeys("abcdefgh", "real[0,9]")
    pictures = {f"data_batch_{i}.bin": cifar([[1]]) for i in range(1, 6)} | {"test_batch.bin": cifar([[2]])}
    sido = {"sido0_train.data": b"0 1\n1 0\n", "sido0_train.targets": b"1\n-1\n"}
    return {
        "california": zipped(folder / "k.zip", {"california.dat": keel(inputs, "Y", [[1, 2, 3, 4, 5, 6, 7, 8, 9]])}),
        "bikes": zipped(folder / "b.zip", {"hour.csv": bikes()}),
        "covtype": gzipped(folder / "c.gz", b"1,2\n" * 50),
        "sido": zipped(folder / "s.zip", sido),
        "cifar10": tarred(folder / "p.tar.gz", pictures),
    }


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _good(tmp_path_factory.mktemp("good"))


def _reads_or_refuses(name: str, path: Path) -> None:
    entry = dataset_info(name)
    with contextlib.suppress(DataError):
        entry.source.read({file.name: path for file in entry.files})


NAMES = ["california", "bikes", "covtype", "sido", "cifar10"]


@pytest.mark.parametrize("name", NAMES)
@given(
    cut=st.floats(0, 1), flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=8)
)
def test_damage_anywhere_is_refused_or_harmless(
    good: dict[str, Path], name: str, cut: float, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(good[name].read_bytes())
    for place, flip in flips:
        data[int(place * len(data))] ^= flip
    path = good[name].with_name(f"damaged-{name}")
    path.write_bytes(bytes(data[: int(cut * len(data))] if cut < 0.5 else data))
    _reads_or_refuses(name, path)


@pytest.mark.parametrize("name", [*NAMES, "beijing-pm25", "skin-nonskin", "protein", "mnist"])
@given(
    data=st.binary(max_size=300), magic=st.sampled_from([b"", b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"\x00\x00\x08\x03"])
)
def test_noise_is_refused(tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes, magic: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"noise-{name}"
    path.write_bytes(magic + data)
    _reads_or_refuses(name, path)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_in_a_keel_file_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "text.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("california.dat", f"@attribute a real\n@attribute b real\n{text}\n@data\n1,2\n{text}")
    _reads_or_refuses("california", path)


def test_a_file_is_told_by_what_it_holds_not_by_its_name(tmp_path: Path) -> None:
    assert read(gzipped(tmp_path / "looks.tar.gz", b"plain"), "x") == {"x": b"plain"}
    assert read(zipped(tmp_path / "looks.gz", {"x": b"plain"}), "x") == {"x": b"plain"}
