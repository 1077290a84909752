"""Each data set's parser on a tiny file in its publisher's format."""

import zipfile

import numpy as np
import pytest

from cmalight.datasets import DataError, Entry, dataset_info
from cmalight.datasets.readers import Delimited
from cmalight.datasets.storage import read_file
from tests.datasets.makers import beijing, bikes, cifar, gzipped, keel, lines, tarred, zipped


def read(name, path):
    return dataset_info(name).source.read(path)


KEEL = keel(dict.fromkeys("abcdefgh", "real[0, 9]"), "MedianHouseValue", [[1, 2, 3, 4, 5, 6, 7, 8, 9]])
AILERONS = keel({f"A{i}": "real[0,1]" for i in range(40)}, "Goal", [[*range(40), "-8.0E-4"]], end="\n")
COVTYPE = lines([[*range(54), 5], [*range(54), 7]])
ROWS = [[279, 261532, 0, *range(74)], [279, 261533, 1, *range(74)]]
PROTEIN = {"phy_train.dat": b"1\t2\n", "bio_train.dat": lines(ROWS, "\t")}
BLOG = {"blogData_test-2012.02.01.00_00.csv": b"1,2\n", "blogData_train.csv": lines([[*range(281)]])}
SIDO = {"sido0_train.targets": b"-1\n1\n", "sido0_train.data": b"0 1 1 \n1 0 0 \n", "sido0_test.data": b"x"}
YEAR = lines([[2001, *range(90)]])
SKIN = [[74, 85, 123, 1], [1, 2, 3, 2]]


@pytest.mark.parametrize(
    ("name", "write", "x", "y"),
    [
        ("ailerons", lambda to: zipped(to, {"ailerons.dat": AILERONS}), [[*range(40)]], [-8e-4]),
        ("california", lambda to: zipped(to, {"sub/california.dat": KEEL}), [[1, 2, 3, 4, 5, 6, 7, 8]], [9]),
        ("blogfeedback", lambda to: zipped(to, BLOG), [[*range(280)]], [280]),
        ("covtype", lambda to: gzipped(to, COVTYPE), [[*range(54)]] * 2, [5, 7]),
        ("protein", lambda to: tarred(to, PROTEIN), [[*range(74)]] * 2, [0, 1]),
        ("sido", lambda to: zipped(to, SIDO), [[0, 1, 1], [1, 0, 0]], [-1, 1]),
        ("skin-nonskin", lambda to: plain(to, lines(SKIN, "\t")), [[74, 85, 123], [1, 2, 3]], [1, 2]),
        ("skin-nonskin", lambda to: plain(to, lines(SKIN, "\t", "\r\n")), [[74, 85, 123], [1, 2, 3]], [1, 2]),
        ("year-prediction-msd", lambda to: zipped(to, {"YearPredictionMSD.txt": YEAR}), [[*range(90)]], [2001]),
    ],
)
def test_a_file_of_the_publisher_is_read(tmp_path, name, write, x, y):
    raw = read(name, write(tmp_path / "file"))
    assert raw.x.tolist() == x
    assert raw.y.tolist() == y


def test_a_missing_value_is_refused(tmp_path):
    path = plain(tmp_path / "tiny.csv", b"1,2,3\n4,5\n")
    tiny = Entry(name="tiny", task="regression", source=Delimited(target=0, member="tiny.csv"), file="tiny.csv")
    with pytest.raises(DataError, match=r"tiny\.csv of tiny has a value that is missing"):
        read_file(tiny, path)


def plain(path, data):
    path.write_bytes(data)
    return path


def test_mv_turns_its_colour_into_three_columns_in_its_place(tmp_path):
    inputs = {f"X{i}": "integer [0, 2]" if i == 3 else "real [0, 1]" for i in range(1, 11)}
    rows = [[i, 0, color, 0, 0, 0, 0, 0, 0, 5, i] for i, color in enumerate((2, 0, 1))]
    raw = read("mv", zipped(tmp_path / "m.zip", {"mv.dat": keel(inputs, "Y", rows)}))
    assert raw.x.shape == (3, 12)
    assert raw.x[:, 2:5].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert raw.x[:, -1].tolist() == [5, 5, 5]


def test_bikes_gives_58_columns_with_names_and_bears_stray_blanks(tmp_path):
    raw = read("bikes", zipped(tmp_path / "b.zip", {"hour.csv": bikes(), "day.csv": b"no", "Readme.txt": b"no"}))
    assert raw.x.shape == (24, 58)
    assert raw.x[0].sum() == pytest.approx(5 + 1 + 0.24 + 0.2879 + 0.81 + 0.5)
    assert raw.y.tolist() == [13 + i for i in range(24)]
    assert raw.feature_names[:5] == ("season=1", "season=2", "season=3", "season=4", "yr")
    assert len(raw.feature_names) == 58
    untidy = bikes().replace(b"\n9,", b"\n\n9,").replace(b",2,1,0,", b",2,1 ,0,")  # as copies of the file have it
    assert read("bikes", zipped(tmp_path / "untidy.zip", {"hour.csv": untidy})).digest() == raw.digest()


@pytest.mark.parametrize("packed", [False, True])
def test_beijing_drops_rows_without_target_and_gives_47_columns(tmp_path, packed):
    path, members = tmp_path / "b.csv", {"PRSA_data_2010.1.1-2014.12.31.csv": beijing()}
    raw = read("beijing-pm25", zipped(path, members) if packed else plain(path, beijing()))
    assert raw.x.shape == (24, 47)
    assert raw.y.tolist() == [100 + i for i in range(24)]


def test_cifar10_joins_its_batches_in_order(tmp_path):
    members = {f"cifar-10-batches-bin/data_batch_{i}.bin": cifar([[i], [9]], seed=i) for i in (5, 4, 3, 2, 1)}
    members["cifar-10-batches-bin/test_batch.bin"] = cifar([[7]])
    raw = read("cifar10", tarred(tmp_path / "c.tar.gz", members))
    assert raw.x.shape == (10, 3, 32, 32)
    assert raw.x.dtype == np.uint8
    assert raw.y.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert raw.x[0].tobytes() == members["cifar-10-batches-bin/data_batch_1.bin"][1:3073]
    assert raw.y_test is not None
    assert raw.y_test.tolist() == [7]


def test_a_long_table_with_numbers_in_a_column_of_text_is_read(tmp_path):
    """In pieces, in each of which pandas guesses anew what such a column is."""
    path = tmp_path / "long.csv"
    rest = ",".join(["1.5"] * 74)
    path.write_text("".join(f"{row // 900},{row},{row % 2},{rest}\n" for row in range(20_000)))
    raw = Delimited(target=2, member="long.csv", drop=(0, 1)).read(path)
    assert (raw.x.shape, raw.y[:3].tolist()) == ((20_000, 74), [0.0, 1.0, 0.0])


def other(old, new):
    return {"california.dat": KEEL.replace(old, new)}


UNEQUAL = {"sido0_train.data": b"0 1\n1 0\n", "sido0_train.targets": b"-1\n"}
CUT = {"train.bin": cifar([[0, 1]])[:-1], "test.bin": cifar([[0, 1]])}


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("covtype", lambda to: gzipped(to, b"1,2,3\n4,5\n"), "KeyError: 54"),
        ("covtype", lambda to: plain(to, COVTYPE), "has 2 rows of 54 features; expected 581012 of 54"),
        ("covtype", lambda to: plain(to, b"<html>gone</html>"), "cannot be read .*could not convert"),
        ("california", lambda to: zipped(to, other(b"@data", b"")), "cannot be read .*EmptyDataError"),
        ("california", lambda to: zipped(to, {"mv.dat": KEEL}), r"it has no california\.dat"),
        ("sido", lambda to: zipped(to, UNEQUAL), "2 rows and targets of shape"),
        ("cifar10", lambda to: tarred(to, CUT), r"it has no data_batch_1\.bin"),
        ("cifar100", lambda to: tarred(to, CUT), "another sha256"),
        ("bikes", lambda to: plain(to, b"PK\x03\x04 but no zip"), "cannot be read"),
    ],
)
def test_a_wrong_or_damaged_file_is_named_in_one_line(tmp_path, name, write, reason):
    with pytest.raises(DataError, match=reason) as caught:
        read_file(dataset_info(name), write(tmp_path / "file"))
    assert str(tmp_path / "file") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [lambda data: data.replace(b"2001", b"2002"), lambda data: data[: len(data) // 2]])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    path = tmp_path / "y.zip"
    with zipfile.ZipFile(path, "w") as archive:  # stored, so that a changed byte is another number
        archive.writestr("YearPredictionMSD.txt", "2001" + ",1" * 90)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="damaged, cut short, or another file"):
        read_file(dataset_info("year-prediction-msd"), path)
