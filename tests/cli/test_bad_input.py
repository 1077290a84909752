"""Whatever a user gets wrong: one line on stderr, exit 2, nothing written."""

import hashlib
import io
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from cmalight.tabular.train_and_predict import predict_table

EVERYTHING = [
    "--save",
    "model.pt",
    "--history",
    "h.jsonl",
    "--plot",
    "p.png",
    "--checkpoint",
    "c.pt",
    "--max-epochs",
    1,
]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "prize"], "did you mean 'price'?"),
        ([], "name it (--target), one of age, city, size, price"),
        (["--target", "price", "--drop", "agee"], "did you mean 'age'?"),
        (["--target", "price", "--drop", "price"], "choose one"),
        (["--target", "price", "--categorical", "cty"], "did you mean 'city'?"),
        (["--target", "price", "--task", "regresion"], "did you mean 'regression'?"),
        (["--target", "city", "--task", "regression"], "holds text such as"),
        (["--target", "price", "--optimizer", "cmalite"], "did you mean 'cmalight'?"),
        (["--target", "price", "--net", "3by20"], "expected LAYERSxNEURONS such as '3x20'"),
        (["--target", "price", "--impute", "mean"], "Unknown value 'mean'; did you mean 'median'?"),
        (["--target", "price", "--lr", "fast"], "'fast' is not a valid float"),
        (["--target", "price", "--lr", "-1"], "-1"),
        (["--target", "price", "--lr", "nan"], "nan"),
        (["--target", "price", "--batch-size", "0"], "0 is not in the range"),
        (["--target", "price", "--time-limit", "nan"], "nan"),
        (["--target", "price", "--test-share", "1"], "less than 1"),
        (["--target", "price", "--test-share", "nan"], "nan"),
        (["--target", "price", "--test-share", "0.999"], "too few"),
        (["--target", "price", "--seed", "-1"], "-1 is not in the range"),
        (["--target", "price", "--learning-rate", "1"], "No such option"),
        (["--target", "price", "--delimiter", "ab"], "is not one character"),
        (["--target", "price", "--delimiter", ";"], "only one column was found; is the delimiter ','?"),
        (["--target", "price", "--target", "age"], "--target is given 2 times"),
    ],
)
def test_an_option_that_is_wrong(cmalight, houses, options, complaint):
    assert complaint in cmalight.refused("train", houses, *EVERYTHING, *options)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.csv", "", "is empty"),
        ("header.csv", "a,y\n", "no rows"),
        ("nan.csv", "a,y\n1,2\nnan,3\n4,5\n5,6\n", "1 missing values (NaN), the first in row 2"),
        ("cut.csv", "a,b,y\n1,2,3\n4,", "line 3 has 2 cells"),
        ("text.csv", "a,y\n1,2\nmany,3\n4,5\n5,6\n", "row 2 holds 'many'"),
        ("constant.csv", "a,y\n" + "1,3.5\n" * 9, "is 3.5 in all 6 training rows"),
        ("one-class.csv", "a,y\n" + "1,yes\n" * 9, "one class only"),
        ("same.csv", "a,y\n" + "1,1\n" * 9, "one class only"),
        ("target.csv", "a,y\n1,2\n2,\n3,4\n", "is missing (NaN) in 1 rows, the first is row 2"),
        ("infinite.csv", "a,y\n1,2.5\ninf,3\n4,5\n5,6\n", "row 2 is infinite"),
        ("lonely.csv", "y\n1\n2\n3\n4\n5\n", "no column beside the target"),
        ("short.csv", "a,y\n1,2\n", "too few"),
        ("names.txt", "a,y\n1,2\n", "unknown type"),
    ],
)
def test_a_file_that_is_wrong(cmalight, name, content, complaint):
    (cmalight.folder / name).write_text(content)
    assert complaint in cmalight.refused("train", name, "--target", "y", *EVERYTHING)


def test_a_file_that_is_not_there_or_is_a_folder_or_a_data_set_with_a_typo(cmalight, houses):
    assert "did you mean houses.csv?" in cmalight.refused("train", "huoses.csv", "--target", "price", *EVERYTHING)
    assert "is a directory" in cmalight.refused("train", cmalight.folder, "--target", "price", *EVERYTHING)
    assert "did you mean 'wine'?" in cmalight.refused("train", "whine", *EVERYTHING)
    assert "is for files" in cmalight.refused("train", "wine", "--target", "y", *EVERYTHING)
    assert "is for classification" in cmalight.refused("train", "wine", "--task", "regression", *EVERYTHING)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("--test-share", 2), "Invalid --test-share value: 2.0"),
        (("--save", "nowhere/x.pt"), "--save nowhere/x.pt: there is no directory"),
        (("--class-weight", "balanced"), "--class-weight is for classes"),
        (("--lr", 1, "--optimizer-option", "lr=2"), "--lr is given twice"),
        (("--optimizer-option", "rate=2"), "Invalid --optimizer-option for 'auto'"),
    ],
)
def test_the_command_calls_an_argument_by_its_option(cmalight, houses, given, complaint):
    assert complaint in cmalight.refused("train", houses, "--target", "price", *given)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_file_that_is_cut_off(cmalight, kind):
    path = cmalight.folder / f"t.{kind}"
    if kind == "parquet":
        pandas.DataFrame({"a": range(100), "y": range(100)}).to_parquet(path)
    else:
        np.savez(path, x=np.zeros((100, 2)), y=np.arange(100))
    path.write_bytes(path.read_bytes()[:-30])
    assert "cut off" in cmalight.refused("train", path, "--target", "y", *EVERYTHING)


@pytest.mark.parametrize("option", ["--save", "--history", "--plot", "--checkpoint"])
def test_a_place_that_cannot_be_written_is_found_out_before_the_training(cmalight, houses, option):
    (cmalight.folder / "folder").mkdir()
    arguments = ["train", houses, "--target", "price", "--time-limit", 600, option]
    assert "no directory nowhere; make it first" in cmalight.refused(*arguments, "nowhere/out.png")
    assert "is a directory" in cmalight.refused(*arguments, "folder")
    assert f"{option[2:]} would overwrite the input" in cmalight.refused(*arguments, houses)


def test_two_outputs_cannot_share_a_path_and_a_picture_has_a_known_type(cmalight, houses):
    arguments = ["train", houses, "--target", "price", "--max-epochs", 1]
    assert "would overwrite save" in cmalight.refused(*arguments, "--save", "a.pt", "--history", "./a.pt")
    assert "ending in .png, .svg, .pdf" in cmalight.refused(*arguments, "--plot", "picture.gif")


def test_a_training_that_diverged_writes_nothing(cmalight, houses):
    arguments = ["--target", "price", "--optimizer", "sgd", "--lr", 1e30, "--max-epochs", 9, "--save", "model.pt"]
    assert "diverged" in cmalight.refused("train", houses, *arguments)


def test_a_time_limit_too_short_for_an_epoch_is_said(cmalight, houses):
    arguments = ["--target", "price", "--time-limit", 1e-9, "--save", "model.pt"]
    assert "no epoch was finished" in cmalight.refused("train", houses, *arguments)


def test_commands_and_arguments_that_are_wrong(cmalight):
    assert "did you mean 'train'?" in cmalight.refused("trian")
    assert "Missing argument" in cmalight.refused("train")
    assert "Missing argument" in cmalight.refused("predict", "model.pt")
    assert "did you mean 'list'?" in cmalight.refused("datasets", "lisst")
    assert "No such option" in cmalight.refused("--verison")


def test_a_checkpoint_of_another_run_is_refused(cmalight, houses):
    arguments = ["train", houses, "--target", "price", "--max-epochs", 1, "--checkpoint", "c.pt"]
    assert cmalight(*arguments).exit_code == 0
    assert "another run" in cmalight.refused(*arguments, "--net", "2x3", "--save", "model.pt")


@pytest.fixture
def model(cmalight, houses):
    cmalight("train", houses, "--target", "price", "--max-epochs", 1, "--save", "model.pt")
    return cmalight.folder / "model.pt"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("age,city\n1,Rome\n", "new.csv lacks size, which the model was trained on; it has age, city"),
        ("age,city,size,garden\n1,Rome,2,3\n", "1 columns more than the model: garden"),
        ("age,city,size\nold,Rome,2\n", "row 1 holds 'old'; expected numbers"),
        ("age,city,size\n,Rome,2\n", "missing"),
        ("age,city,size\n1,,2\n", "missing"),
        ("age,city,size\n", "no rows"),
        ("", "is empty"),
    ],
)
def test_a_file_that_the_model_cannot_take(cmalight, model, content, complaint):
    (cmalight.folder / "new.csv").write_text(content)
    assert complaint in cmalight.refused("predict", model, "new.csv", "--out", "out.csv")


def test_more_columns_than_the_model_has_can_be_left_out(cmalight, model):
    (cmalight.folder / "new.csv").write_text("age,city,size,garden\n1,Rome,2,3\n")
    assert cmalight("predict", model, "new.csv", "--drop", "garden").exit_code == 0


def test_an_npz_file_with_more_features_than_the_model_is_refused(cmalight):
    np.savez("t.npz", x=np.random.default_rng(0).random((40, 3)), y=np.arange(40) * 0.5)
    cmalight("train", "t.npz", "--max-epochs", 1, "--save", "model.pt")
    np.savez("more.npz", x=np.zeros((2, 4)))
    assert "1 columns more than the model: x3" in cmalight.refused("predict", "model.pt", "more.npz", "--out", "o.csv")


def test_an_output_of_predict_that_cannot_be_written(cmalight, model, houses):
    assert "no directory nowhere" in cmalight.refused("predict", model, houses, "--out", "nowhere/out.csv")
    assert "would overwrite the input" in cmalight.refused("predict", model, houses, "--out", houses)
    assert "would overwrite the input" in cmalight.refused("predict", model, houses, "--out", model)
    assert "No space left" in cmalight.refused("predict", model, houses, "--out", "/dev/full")


def test_a_model_file_that_is_not_there_or_not_one(cmalight, model, houses):
    assert "no model file other.pt" in cmalight.refused("predict", "other.pt", houses)
    assert "is a directory" in cmalight.refused("predict", cmalight.folder, houses)
    assert "not a model" in cmalight.refused("predict", houses, houses)
    torch.save({"weights": torch.zeros(2)}, "weights.pt")
    assert "not a model file of cmalight" in cmalight.refused("predict", "weights.pt", houses)


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_model_file_that_is_cut_off(cmalight, model, houses, kept):
    data = model.read_bytes()
    model.write_bytes(data[: math.floor(kept * len(data)) if isinstance(kept, float) else kept])
    assert "cut off" in cmalight.refused("predict", model, houses)


def changed(model, **changes):
    outer = torch.load(model, weights_only=True)
    torch.save({**outer, **changes}, model)


def test_a_model_file_of_a_later_version_says_to_update(cmalight, model, houses):
    changed(model, version=2)
    assert "format 2, and this cmalight reads format 1; update it" in cmalight.refused("predict", model, houses)


def test_a_model_file_with_a_flipped_bit_is_refused(cmalight, model, houses):
    content = torch.load(model, weights_only=True)["content"].clone()
    content[len(content) // 2] ^= 1
    changed(model, content=content)
    assert "does not fit its checksum" in cmalight.refused("predict", model, houses)


def test_a_model_file_with_a_flipped_bit_anywhere_is_refused_or_unharmed(model, houses):
    data, wanted = model.read_bytes(), predict_table(model, houses).to_csv()
    random = np.random.default_rng(0)
    refused = 0
    for place in random.integers(0, len(data), 200):
        model.write_bytes(data[:place] + bytes([data[place] ^ 1 << int(random.integers(8))]) + data[place + 1 :])
        try:
            assert predict_table(model, houses).to_csv() == wanted
        except ValueError:
            refused += 1
    assert refused > 50


def test_a_model_file_with_the_wrong_content_is_refused(cmalight, model, houses):
    inner = io.BytesIO()
    torch.save({"network": {"kind": "layered"}}, inner)
    data = inner.getvalue()
    content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    changed(model, content=content, sha256=hashlib.sha256(data).hexdigest())
    assert "does not describe a model" in cmalight.refused("predict", model, houses)


class Harm:
    """Unpickling it would make a file."""

    def __reduce__(self):
        return (open, ("harm.txt", "w"))


@pytest.mark.parametrize("write", [lambda harm, file: torch.save(harm, file), pickle.dump])
def test_a_model_file_cannot_run_code(cmalight, houses, write):
    with open("evil.pt", "wb") as file:
        write({"format": "cmalight-model", "version": 1, "sha256": Harm()}, file)
    cmalight.refused("predict", "evil.pt", houses)
    assert not (cmalight.folder / "harm.txt").exists()


def test_messages_name_options_as_they_are_typed(cmalight):
    (cmalight.folder / "t.csv").write_text("weight (missing),price\n1,2\n,3\n" + "4,5\n" * 20)
    message = cmalight.refused("train", "t.csv", "--target", "price")
    assert "'weight (missing)'" in message
    assert "(--impute median)" in message


def test_a_full_disk_behind_standard_output_is_named(cmalight, houses):
    cmalight("train", houses, "--target", "price", "--save", "m.pt", "--max-epochs", 1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cmalight", "predict", "m.pt", str(houses)],
            cwd=cmalight.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("cmalight: error: standard output: No space left on device; the disk is full")
