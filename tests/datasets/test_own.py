"""A user's own data set in a TOML file: what is in the documentation works, what is wrong is said in a line."""

import contextlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmalight.datasets import DataError, dataset_info, load_dataset
from cmalight.datasets.fetching import files_folder
from tests.datasets.server import serving

CSV = 'id,colour,size,price\n1,"red, dark",3,10\n2,blue,4,20\n3,blue,5,30\n4,"red, dark",6,40\n'
TOML = """
[dataset]
name = "shop"
file = "shop.csv"
target = "price"
task = "regression"
one_hot = ["colour"]
drop = ["id"]
"""


def described(folder: Path, toml: str = TOML, csv: str = CSV) -> Path:
    (folder / "shop.csv").write_text(csv, encoding="utf-8")
    (folder / "shop.toml").write_text(toml, encoding="utf-8")
    return folder / "shop.toml"


def test_a_table_beside_its_description_is_loaded(tmp_path: Path) -> None:
    data = load_dataset(described(tmp_path))
    assert data.name == "shop"
    assert tuple(data.x_train.shape) == (3, 3)
    assert data.target_scaling is not None


def test_the_path_may_be_text_and_labels_may_be_words(tmp_path: Path) -> None:
    toml = TOML.replace("price", "colour").replace("regression", "classification").replace('one_hot = ["colour"]', "")
    data = load_dataset(str(described(tmp_path, toml)), test_share=0.0)
    assert data.classes == 2
    assert data.y_train.dtype == torch.int64
    assert sorted(data.y_train.tolist()) == [0, 0, 1, 1]


def test_without_a_header_columns_go_by_position(tmp_path: Path) -> None:
    toml = '[dataset]\nfile = "shop.csv"\ntarget = 0\ntask = "regression"\nheader = false\nseparator = ";"\n'
    data = load_dataset(described(tmp_path, toml, "1;2\n3;4\n"), test_share=0.0)
    assert data.name == "shop"
    assert data.features == 1


def test_two_descriptions_of_one_name_do_not_share_a_cache(tmp_path: Path) -> None:
    for folder, price in (("a", "40"), ("b", "80")):
        (tmp_path / folder).mkdir()
        path = described(tmp_path / folder, csv=CSV.replace("40", price))
        scaling = load_dataset(path, test_share=0.0).target_scaling
        assert scaling is not None
        assert scaling.high == [float(price)]


def test_two_downloads_of_one_name_never_meet(tmp_path: Path) -> None:
    """Neither the files nor what was parsed from them, also where the name of the data set is the same."""
    prices = {"a": "40", "b": "80"}
    with serving({folder: CSV.replace("40", price).encode() for folder, price in prices.items()}) as server:
        for again in range(2):
            for folder, price in prices.items():
                path = tmp_path / f"{folder}.toml"
                path.write_text(TOML.replace('"shop.csv"', f'"shop.csv"\nurls = ["{server.url(folder)}"]'))
                scaling = load_dataset(path, test_share=0.0).target_scaling
                assert scaling is not None
                assert scaling.high == [float(price)]
            if again == 0:
                for file in files_folder().iterdir():  # what was parsed is left
                    file.unlink()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[dataset]", "[datasets]", r"no \[dataset\] table"),
        ("one_hot", "onehot", "did you mean 'one_hot'"),
        ('task = "regression"', "", "needs task"),
        ('"regression"', '"regresion"', "did you mean 'regression'"),
        ('"price"', "3", "a column's name"),
        (
            '"price"',
            '"prize"',
            r"has no column 'prize'; did you mean 'price'[?] it has id, colour, size, price",
        ),
        ('drop = ["id"]', 'separator = ";"', r"shop[.]csv: only one column was found; is the delimiter ','[?]"),
        ('["id"]', '"id"', "a list"),
        ('["id"]', "[0]", "a column's name"),
        ('"shop.csv"', '""', "name the data file"),
        ('"shop.csv"', '"absent.csv"', "nothing says where to download"),
        ('drop = ["id"]', 'separator = ",,"', "one character"),
        ('drop = ["id"]', "header = 1", "true or false"),
        ('drop = ["id"]', "rows = true", "a whole number"),
        ('drop = ["id"]', 'urls = ["ftp://x/y"]', "http"),
        ('drop = ["id"]', "rows = 5", "4 rows instead of 5"),
        ('drop = ["id"]', 'sha256 = "00"', "sha256"),
        ("[dataset]", "[dataset", "not TOML"),
        ('["id"]', '["price"]', "drop has 'price', which is the target"),
        ('["colour"]', '["price"]', "one_hot has 'price', which is the target"),
        ('["id"]', '["colour"]', "both drop and one_hot have 'colour'"),
        ('one_hot = ["colour"]', "", r"shop[.]csv: column 'colour', row 1 holds 'red, dark', which is no number"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(described(tmp_path, TOML.replace(old, new)))
    assert "\n" not in str(caught.value)


def test_a_column_of_names_is_not_made_into_a_thousand_columns(tmp_path: Path) -> None:
    csv = "id,colour,size,price\n" + "".join(f"{i},c{i},1,{i}\n" for i in range(1001))
    with pytest.raises(DataError, match="1001 columns of 'colour'"):
        load_dataset(described(tmp_path, csv=csv))


def test_data_without_a_description_is_told_what_it_lacks(tmp_path: Path) -> None:
    described(tmp_path)
    with pytest.raises(DataError, match=r"write a \[dataset\] table"):
        load_dataset(str(tmp_path / "shop.csv"))


def test_a_missing_or_unreadable_description_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        dataset_info(tmp_path / "absent.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        dataset_info(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(DataError, match="too large"):
        dataset_info(tmp_path / "x.toml")


@given(st.text(max_size=80), st.sampled_from(["", TOML, "[dataset]\n"]))
def test_any_description_is_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, start: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes((start + text).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(DataError):
        dataset_info(path)
