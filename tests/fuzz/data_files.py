"""Random, damaged and hostile data files, each read once, in a process with little memory.

`python -m tests.fuzz.data_files FOLDER` prints one line of JSON per kind: how many cases were tried, how many of them
gave data, how many were refused with a message that names the file, and what else happened.
"""

import gc
import gzip
import hashlib
import io
import json
import logging
import os
import random
import resource
import shutil
import sys
import tarfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from cmalight.datasets import DataError, Delimited, Entry, RemoteFile, dataset_info, load_dataset, register
from cmalight.datasets.loading import cached_path
from cmalight.tables.reading import read_table
from cmalight.tables.table import Reading
from cmalight.tabular.data import TableChoices, prepare
from tests.datasets.makers import bikes, cifar, gzipped, keel, tarred, zipped
from tests.datasets.server import serving
from tests.fuzz.cases import cases, numbers

ROOM = 600_000_000  # bytes on top of what the process has when it begins
LIMIT = "2e7"

Numbers = random.Random


def damaged(data: bytes, numbers: Numbers) -> bytes:
    """Flipped, cut, repeated, swapped and inserted bytes; sometimes none."""
    result = bytearray(data)
    for _ in range(numbers.choice((0, 0, 1, 1, 1, 2, 5, 20))):
        if not result:
            break
        at = numbers.randrange(len(result))
        what = numbers.randrange(6)
        if what <= 1:
            result[at] ^= 1 << numbers.randrange(8)
        elif what == 2:
            result[at] = numbers.randrange(256)
        elif what == 3:
            del result[at : at + numbers.choice((1, 4, 64))]
        elif what == 4:
            result[at:at] = numbers.choice((b"\0", b"\xff" * 4, b'"', b"\n", b",", b"nan", b"1e999", bytes(64)))
        else:
            other = numbers.randrange(len(result))
            result[at : at + 8] = result[other : other + 8]
    if numbers.random() < 0.1:
        del result[numbers.randrange(len(result) + 1) :]
    return bytes(result)


CELLS = (
    *("0", "1", "-1", "1.5", "1,5", "1e300", "-1e-300", "1e999", "inf", "nan", "NA", "", " ", "?", "true", "FALSE"),
    *("0150", "2024-01-31", "$94.1", "45%", "word", "größe", '"', '""', '"a,b"', "'", "\t", "𝛼", "x" * 300),
    *("0x1F", "1_000", "--", "=1+1", "<b>", "None", "0.25", "123456789", "31/01/2024", "1 000", "1.234,5"),
)


def csv_text(numbers: Numbers) -> str:
    """A table that is mostly sound; columns of numbers, words or anything."""
    separator = numbers.choice((",", ",", ";", "\t", "|", " "))
    end = numbers.choice(("\n", "\n", "\r\n", "\r"))
    width, rows = numbers.choice((1, 2, 3, 4, 4, 9)), numbers.choice((0, 1, 8, 30, 60, 60, 60, 60))
    kinds = [numbers.choice(("number", "number", "number", "number", "word", "word", "any")) for _ in range(width)]
    oddness = numbers.choice((0.0, 0.0, 0.0, 0.002, 0.01, 0.1))

    def cell(kind: str) -> str:
        if kind == "any" or numbers.random() < oddness:
            return numbers.choice(CELLS)
        return f"{numbers.gauss(0, 9):.4g}" if kind == "number" else numbers.choice("abc")

    lines = [[f"c{i}" if numbers.random() >= oddness else numbers.choice(CELLS) for i in range(width)]]
    for _ in range(rows):
        line = [cell(kind) for kind in kinds]
        if numbers.random() < oddness / 10:
            line = line[1:] if numbers.random() < 0.5 else [*line, "1"]
        lines.append(line)
    return end.join(separator.join(line) for line in lines) + numbers.choice((end, end, ""))


def prepared(path: Path, numbers: Numbers) -> None:
    """Read, and encoded for a network."""
    missing = numbers.choice(((), (), ("?",)))
    reading = Reading(decimal=numbers.choice((".", ".", ",")), missing=missing)
    target = numbers.choice(read_table(path, reading).names)
    impute = numbers.choice((None, "median"))
    prepare(path, TableChoices(target=target, reading=reading, impute=impute, seed=numbers.randrange(9)))


def a_csv_file(folder: Path, numbers: Numbers) -> None:
    path = folder / "table.csv"
    text = csv_text(numbers).encode()
    path.write_bytes(damaged(text, numbers) if numbers.random() < 0.2 else text)
    prepared(path, numbers)


def an_npz_file(folder: Path, numbers: Numbers) -> None:
    path = folder / "table.npz"
    kinds = ("f8", "f4", "u1", "i8", "?", "U3", "S2", "c16", "M8[s]")
    shape = (numbers.choice((0, 1, 8, 40)), numbers.choice((0, 1, 3, 3)))
    arrays = {"x": np.arange(shape[0] * shape[1]).reshape(shape).astype(numbers.choice(kinds[:5]))}
    arrays[numbers.choice(("y", "y", "z"))] = np.arange(shape[0]).astype(numbers.choice(kinds))
    (np.savez if numbers.random() < 0.5 else np.savez_compressed)(path, **arrays)
    if numbers.random() < 0.4:
        path.write_bytes(with_damaged_members(path, numbers))
    else:
        path.write_bytes(damaged(path.read_bytes(), numbers))
    prepared(path, numbers)


def with_damaged_members(path: Path, numbers: Numbers) -> bytes:
    """A sound archive around damaged contents: no checksum helps."""
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", numbers.choice((0, 8, 12, 14))) as new:
        for name in old.namelist():
            content = old.read(name)
            head = bytearray(damaged(content[:100], numbers))
            new.writestr(name, bytes(head) + content[100:])
    return packed.getvalue()


def a_parquet_file(folder: Path, numbers: Numbers) -> None:
    path = folder / "table.parquet"
    rows = numbers.choice((1, 40, 40))
    frame = pandas.DataFrame(
        {
            "a": np.arange(rows) * 0.5,
            "b": [numbers.choice(("red", "blue", None)) for _ in range(rows)],
            "c": np.arange(rows) % 3 == 0,
            "d": pandas.array(list(range(rows)), dtype="Int64"),
            "e": pandas.Categorical([numbers.choice("uvw") for _ in range(rows)]),
        }
    )
    frame.to_parquet(
        path,
        compression=numbers.choice((None, "snappy", "zstd", "gzip")),
        index=numbers.choice((None, False, True)),
        use_dictionary=numbers.random() < 0.5,
        data_page_version=numbers.choice(("1.0", "2.0")),
    )
    path.write_bytes(damaged(path.read_bytes(), numbers))
    prepared(path, numbers)


def a_wrapped_file(folder: Path, numbers: Numbers) -> None:
    """A table that is compressed, in another encoding, or a sheet."""
    if numbers.random() < 0.5:
        path = folder / "table.csv.gz"
        encoding = numbers.choice(("utf-8", "utf-8", "utf-16", "cp1252"))
        path.write_bytes(gzip.compress(csv_text(numbers).encode(encoding, "replace")))
    else:
        path = folder / "table.xlsx"
        cells: list[list[Any]] = [[row, row % 7 / 2, "abc"[row % 3]] for row in range(30)]
        if numbers.random() < 0.5:
            cells[numbers.randrange(30)][numbers.randrange(3)] = numbers.choice((None, True, *CELLS))
        pandas.DataFrame(cells, columns=["a", "b", "c"]).to_excel(path, index=False)
        if numbers.random() < 0.3:
            path.write_bytes(with_damaged_members(path, numbers))
    path.write_bytes(damaged(path.read_bytes(), numbers))
    prepared(path, numbers)


def an_archive(folder: Path, numbers: Numbers) -> None:
    """The formats of the registry, damaged as they are, or inside a sound archive."""
    name = numbers.choice(("california", "bikes", "covtype", "sido", "cifar10", "skin-nonskin"))
    inputs = dict.fromkeys("abcdefgh", "real[0,9]")
    contents = {
        "california": {"california.dat": keel(inputs, "Y", [[1, 2, 3, 4, 5, 6, 7, 8, 9]])},
        "bikes": {"hour.csv": bikes()},
        "covtype": {"covtype.data": b"1,2\n" * 50},
        "sido": {"sido0_train.data": b"0 1\n1 0\n", "sido0_train.targets": b"1\n-1\n"},
        "cifar10": {f"data_batch_{i}.bin": cifar([[1]]) for i in range(1, 6)} | {"test_batch.bin": cifar([[2]])},
        "skin-nonskin": {"Skin_NonSkin.txt": b"1\t2\t3\t1\n" * 9},
    }[name]
    if numbers.random() < 0.5:
        contents = {member: damaged(content, numbers) for member, content in contents.items()}
    path = folder / "archive.bin"
    pack = numbers.choice((zipped, tarred, "gzip"))
    if pack == "gzip":
        gzipped(path, next(iter(contents.values())))
    else:
        pack(path, contents)  # type: ignore[operator]
    path.write_bytes(damaged(path.read_bytes(), numbers))
    entry = dataset_info(name)
    entry.source.read({file.name: path for file in entry.files})


def a_bomb(folder: Path, numbers: Numbers) -> None:
    """Small, sound, and of 40 MB to some GB."""
    path = folder / "archive.bin"
    size = numbers.choice((40_000_000, 200_000_000))
    kind = numbers.randrange(5)
    pattern = numbers.choice((b"0,0\n", b"\n", b"0", b"ab,1\n", b"0,0,0,0,0,0,0,0\n", b"\0", b'"\n'))
    content = pattern * (size // len(pattern))
    if kind == 0:
        zipped(path, {"table.csv": content})
    elif kind == 1:
        path.write_bytes(gzip.compress(content, 1))
    elif kind == 2:
        zipped(path, {"table.csv.gz": gzip.compress(content, 1)})
    elif kind == 3:
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            info = tarfile.TarInfo("table.csv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    else:  # few cells in the lines, many in the first
        first = b",".join(b"%d" % i for i in range(numbers.choice((10, 5000, 99_999))))
        zipped(path, {"table.csv": first + b"\n" + b"0\n" * (size // 100)})
    del content
    one_hot = numbers.choice(((), (0,)))
    Delimited(file="f", member="table.csv", target=1, one_hot=one_hot, drop_missing=True).read({"f": path})


def a_description(folder: Path, numbers: Numbers) -> None:
    values = (
        *('"table.csv"', '"c0"', '"c1"', "0", "true", "[]", '["c1"]', '["c0", "c1"]', "[0]", '""', "1.5", '"\\u0000"'),
        *('"regression"', '"classification"', '";"', "{}", "2024-01-01", "-1", '["http://127.0.0.1:9/x"]'),
    )
    keys = (
        *("name", "title", "file", "member", "urls", "sha256", "task", "target", "separator", "header", "one_hot"),
        *("drop", "drop_missing", "rows", "features", "licence", "nonsense"),
    )
    table = {"file": '"table.csv"', "target": '"c0"', "task": numbers.choice(('"regression"', '"classification"'))}
    for _ in range(numbers.choice((0, 1, 1, 2, 4))):
        table[numbers.choice(keys)] = numbers.choice(values)
    (folder / "table.csv").write_text(csv_text(numbers) if numbers.random() < 0.5 else "c0,c1\n1,2\n3,4\n5,6\n8,9\n")
    text = "[dataset]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
    path = folder / "table.toml"
    path.write_bytes(damaged(text.encode(), numbers) if numbers.random() < 0.3 else text.encode())
    load_dataset(path)


def a_cache(folder: Path, numbers: Numbers) -> None:
    """Damaged between two uses: built anew, never wrong."""
    (folder / "table.csv").write_text("".join(f"{i},{i * 0.1}\n" for i in range(numbers.choice((4, 50)))))
    source = Delimited(file="table.csv", target=1)
    entry = register(
        Entry(name="fuzz", task="regression", source=source, files=(RemoteFile("table.csv"),), folder=folder)
    )
    first = load_dataset("fuzz")
    path = cached_path(entry)
    content = path.read_bytes()
    path.write_bytes(damaged(content, numbers) if numbers.random() < 0.5 else resealed(content, numbers))
    again = load_dataset("fuzz")
    if not (bool((first.x_train == again.x_train).all()) and bool((first.y_train == again.y_train).all())):
        raise AssertionError("other data than before the damage")


def resealed(content: bytes, numbers: Numbers) -> bytes:
    """Another header, with the checksum that it needs."""
    length = int.from_bytes(content[8:16], "little")
    header = content[16 : 16 + length]
    found: dict[str, Any] = json.loads(header)
    odd: list[Any] = [-1, 2**70, "x", None, [], {}, 1.5, [2**62, 2**62], [-4], "object", "float16"]
    what = numbers.choice((*found, "array", "bytes"))
    if what == "array":
        found["arrays"][0][numbers.choice(("name", "type", "shape", "sha256"))] = numbers.choice(odd)
    elif what != "bytes":
        found[what] = numbers.choice(odd)
    header = damaged(header, numbers) if what == "bytes" else json.dumps(found).encode()
    sealed = len(header).to_bytes(8, "little") + header + hashlib.sha256(header).digest()
    return content[:8] + sealed + content[16 + length + 32 :]


def an_answer(folder: Path, numbers: Numbers) -> None:
    """What a server sends: status lines, headers and contents that are wrong, packed, cut or endless."""
    gc.collect()  # the class of the last server, and its answer with it, are in a cycle
    content = numbers.choice((b"1,2\n3,4\n5,6\n7,8\n", b"", bytes(1000), b"<html>", b"1,2\n" * 20_000_000))
    encoding = numbers.choice((b"", b"", b"gzip", b"deflate", b"br", b"x"))
    if encoding == b"gzip" and numbers.random() < 0.8:
        content = gzip.compress(content, 1)
    length = numbers.choice((len(content), len(content), len(content) + 5, 0, -1, 10**15))
    headers = [
        b"HTTP/1.%d %d %s" % (numbers.randrange(2), numbers.choice((200, 200, 200, 206, 301, 404, 500, 999)), b"OK")
    ]
    headers += [b"Content-Encoding: " + encoding] * bool(encoding)
    headers += [b"Content-Length: %d" % length] * (numbers.random() < 0.6)
    headers += [b"Transfer-Encoding: chunked"] * (numbers.random() < 0.2)
    headers += [b"Location: " + numbers.choice((b"/a", b"file:///etc/hosts", b"http://[", b""))] * (
        numbers.random() < 0.2
    )
    head = b"\r\n".join(headers) + b"\r\n\r\n"
    if numbers.random() < 0.3:
        head = damaged(head, numbers)
    with serving({"a": lambda handler: handler.wfile.write(head + content) and None}, most_requests=4) as server:
        source = Delimited(file="table.csv", target=1)
        register(
            Entry(
                name="fuzz", task="regression", source=source, files=(RemoteFile("table.csv", urls=(server.url("a"),)),)
            )
        )
        try:
            load_dataset("fuzz")
        finally:
            left = [path.name for path in Path(os.environ["CMALIGHT_CACHE"]).rglob("*.tmp")]
            if left:
                raise AssertionError(f"left in the cache: {left}")


KINDS: dict[str, tuple[Callable[[Path, Numbers], object], int, str]] = {
    "csv": (a_csv_file, 150, "table.csv"),
    "npz": (an_npz_file, 150, "table.npz"),
    "parquet": (a_parquet_file, 100, "table.parquet"),
    "wrapped": (a_wrapped_file, 60, "table."),
    "archive": (an_archive, 120, "archive.bin"),
    "bomb": (a_bomb, 6, "archive.bin"),
    "toml": (a_description, 150, "table"),
    "cache": (a_cache, 60, "table.csv"),
    "http": (an_answer, 40, "table.csv"),
}


def tried(kind: str, folder: Path) -> dict[str, object]:
    run, default, name = KINDS[kind]
    said: dict[str, object] = {"kind": kind, "tried": 0, "good": 0, "refused": 0, "wrong": []}
    wrong: list[str] = []
    total = cases(default) if kind != "bomb" else max(default, cases(default) // 100)
    for case in range(total):
        place = folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        os.environ["CMALIGHT_CACHE"] = str(place / "cache")
        sys.stderr.write(f"{kind} {case}\n")  # the last line tells where a crash was
        try:
            run(place, numbers(kind, case))
            said["good"] = int(str(said["good"])) + 1
        except (DataError, ValueError) as error:
            if type(error) in (DataError, ValueError) and name in str(error) and "\n" not in str(error):
                said["refused"] = int(str(said["refused"])) + 1
            else:
                wrong.append(f"case {case}: {type(error).__name__}: {error}")
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(f"case {case}: {type(error).__name__} at {last.filename}:{last.lineno}: {error}")
    said["tried"], said["wrong"] = total, wrong
    return said


def main() -> None:
    folder, kinds = Path(sys.argv[1]), sys.argv[2:] or list(KINDS)
    warnings.simplefilter("error")
    logging.getLogger("cmalight").addHandler(logging.NullHandler())
    os.environ.update(CMALIGHT_MAX_BYTES=LIMIT, NO_PROXY="127.0.0.1")
    os.environ.pop("CMALIGHT_DATA", None)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    for kind in kinds:
        sys.stdout.write(json.dumps(tried(kind, folder)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
