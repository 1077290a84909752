"""Small files that would take much memory are refused before they do, and wide ones are read in linear time."""

import io
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from cmalight.tables.encoding import FeatureEncoding
from cmalight.tables.reading import read_table
from cmalight.tables.table import Column, Table, check_names

LIMIT = 20_000_000
ROOM = 20 * LIMIT  # what reading may take on top of what the process has already


def _npz_of_zeros(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros((6_000_000, 10), dtype=np.uint8), y=np.zeros(6_000_000, dtype=np.uint8))


def _npz_that_lies(path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(80))


def _parquet_of_one_number(path: Path) -> None:
    table = pyarrow.table({"a": np.zeros(1_000_000), "b": np.zeros(1_000_000)})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(30):
            writer.write_table(table)


def _parquet_of_packed_text(path: Path) -> None:
    texts = [f"{i}" + "x" * 1_000_000 for i in range(30)]
    pyarrow.parquet.write_table(pyarrow.table({"a": texts}), path, compression="zstd", use_dictionary=False)


def _csv_of_zeros(path: Path) -> None:
    path.write_bytes(b"a,b\n" + b"0,0\n" * 1_300_000)


def _csv_of_words(path: Path) -> None:
    path.write_bytes(b"a,b\n" + b"ab,cd\n" * 160_000)


BOMBS = {
    "zeros.npz": _npz_of_zeros,
    "lies.npz": _npz_that_lies,
    "one_number.parquet": _parquet_of_one_number,
    "packed_text.parquet": _parquet_of_packed_text,
    "zeros.csv": _csv_of_zeros,
    "words.csv": _csv_of_words,
}

_READ = """
import json, pathlib, resource, sys
import pyarrow.parquet, pandas
from cmalight.tables.reading import read_table
size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]),) * 2)
said = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        said[path.name] = f"read {read_table(path).rows}"
    except BaseException as error:
        said[path.name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def _read_all(folder: Path) -> dict[str, str]:
    """What reading each file says, in a process that cannot take more than ROOM."""
    environment = {**os.environ, "CMALIGHT_MAX_BYTES": str(LIMIT), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(folder), str(ROOM)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bombs")
    for name, make in BOMBS.items():
        make(folder / name)
    # The longest text a thousand times over is held once.
    pyarrow.parquet.write_table(pyarrow.table({"a": ["x" * 1_000_000] * 1000}), folder / "repeated.parquet")
    return _read_all(folder)


pytestmark = pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="needs a limit on a process's memory")


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_too_much_is_refused_before_it_does(said: dict[str, str], name: str) -> None:
    assert said[name].startswith("DataError")
    assert name in said[name]
    assert "above the limit of 20 MB" in said[name]
    assert "CMALIGHT_MAX_BYTES=" in said[name]


def test_a_long_text_that_is_repeated_is_no_bomb(said: dict[str, str]) -> None:
    assert said["repeated.parquet"] == "read 1000"


def test_the_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 10)))
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "50000")
    with pytest.raises(ValueError, match="above the limit"):
        read_table(tmp_path / "a.npz")
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "100000")
    assert read_table(tmp_path / "a.npz").rows == 1000


def test_one_hot_inputs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.array([f"c{i % 500}" for i in range(2000)], dtype=object)
    table = Table("t.csv", (Column("a", cells), Column("b", np.arange(2000.0))))
    encoding = FeatureEncoding.fitted_on(table, np.arange(2000))
    assert encoding.apply(table).shape == (2000, 501)
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "1e6")
    with pytest.raises(ValueError, match=r"t\.csv as 501 inputs would take 8\.02 MB or more"):
        encoding.apply(table)


class CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def test_the_work_grows_with_the_columns_and_not_with_their_square() -> None:
    columns = 2000
    names = [CountedName(f"c{i}") for i in range(columns)]
    table = Table("t.csv", tuple(Column(name, np.arange(3.0)) for name in names))
    CountedName.compared = 0
    check_names("t.csv", names)
    encoding = FeatureEncoding.fitted_on(table, np.arange(3))
    encoding.apply(table.take(np.arange(2)))
    table.without(names[:1000]).only(names[1000:])
    assert CountedName.compared < 20 * columns


def test_too_many_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(100_001)) + "\n" + ",".join("1" for _ in range(100_001)) + "\n")
    with pytest.raises(ValueError, match=r"wide\.csv has 100001 columns; the most that are read are 100000"):
        read_table(path)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_header_longer_than_the_sample_does_not_hide_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "wide.csv"
    lines = [delimiter.join(f"{word}{i}" for i in range(6000)) for word in ("a_long_name", "1", "2")]
    path.write_text("\n".join(lines) + "\n")
    table = read_table(path)
    assert len(table.columns) == 6000
    assert table.column("a_long_name5999").values.tolist() == [15999.0, 25999.0]
