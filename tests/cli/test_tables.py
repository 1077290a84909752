"""`cmalight train`, `predict` and `evaluate`: what they say, write and refuse."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

QUICK = ["--target", "price", "--max-epochs", 2]


def test_a_table_is_learnt_predicted_and_scored(cmalight, houses):
    result = cmalight("train", houses, "--target", "price", "--save", "model", "--curve", "curve.png")
    assert result.exit_code == 0, result.output
    assert f"table: {houses}, 80 rows, 4 columns" in result.stdout
    assert (
        "regression of 'price' from 3 columns (2 number, 1 text); 60 rows to train on, 20 to test on" in result.stdout
    )
    assert "linear model" in result.stdout
    assert "written: model" in result.stdout
    assert "not kept" not in result.stdout
    assert (cmalight.folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert cmalight("predict", "model", houses, "--keep", "city", "--out", "out.csv").exit_code == 0
    predicted, wanted = pd.read_csv("out.csv"), pd.read_csv(houses)
    assert list(predicted) == ["city", "prediction"]
    assert np.corrcoef(predicted["prediction"], wanted["price"])[0, 1] > 0.8
    assert cmalight("predict", "model", houses).stdout.startswith("prediction\n")
    assert "squared error" in cmalight("evaluate", "model", houses).stdout


def test_classes_are_words(cmalight, flowers):
    assert cmalight("train", flowers, "--target", "kind", "--class-weight", "balanced", "--save", "m").exit_code == 0
    result = cmalight("predict", "m", flowers, "--probabilities")
    assert result.stdout.startswith("prediction,probability lily,probability rose,probability tulip\nrose,")
    assert "log loss" in cmalight("evaluate", "m", flowers).stdout


def test_without_save_the_model_is_said_to_be_lost(cmalight, houses):
    assert "The model is not kept: give --save FILE" in cmalight("train", houses, *QUICK).stdout


def test_quiet_says_nothing(cmalight, houses):
    result = cmalight("train", houses, *QUICK, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_data_set_goes_by_its_name(cmalight):
    result = cmalight("train", "wine", "--max-epochs", 2, "--save", "m")
    assert "table: wine, 178 rows" in result.stdout
    assert "classification of 'target'" in result.stdout
    sklearn.datasets.load_wine(as_frame=True).data.to_csv("wine.csv")
    assert "class_" in cmalight("predict", "m", "wine.csv").stdout


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "prize"], "did you mean 'price'?"),
        ([], "name the target, the column to predict: one of age, city, size, price"),
        (["--target", "price", "--drop", "agee"], "did you mean 'age'?"),
        (["--target", "price", "--categorical", "cty"], "did you mean 'city'?"),
        (["--target", "price", "--task", "regresion"], "regression"),
        (["--target", "city", "--task", "regression"], "not a number"),
        (["--target", "price", "--test-share", "1"], "test_share"),
        (["--target", "price", "--seed", "-1"], "-1 is not in the range"),
        (["--target", "price", "--time-limit", "nan"], "nan"),
        (["--target", "price", "--learning-rate", "1"], "No such option"),
        (["--target", "price", "--class-weight", "balanced"], "class_weight is for classes"),
        (["--target", "price", "--save", "nowhere/model"], "nowhere/model cannot be written"),
        (["--target", "price", "--save", "."], "cannot be written"),
        (["--target", "price", "--save", "houses.csv"], "is the table itself"),
        (["--target", "price", "--curve", "picture.gif"], ".png, .svg or .pdf"),
    ],
)
def test_an_option_that_is_wrong(cmalight, houses, options, complaint):
    assert complaint in cmalight.refused("train", houses, "--max-epochs", 1, *options)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.csv", "", "empty.csv cannot be read"),
        ("header.csv", "a,y\n", "header.csv has no rows"),
        ("ragged.csv", "a,y\n1,2\n1,2,3\n", "ragged.csv cannot be read"),
        ("cut.parquet", "PAR1", "cut.parquet cannot be read"),
        ("cut.xlsx", "PK", "cut.xlsx cannot be read"),
        ("table.dat", "a,y\n1,2\n", "unknown type"),
        ("constant.csv", "a,y\n" + "1,3.5\n" * 12, "nothing to predict"),
        ("short.csv", "a,y\n1,2\n", "at least 10 are needed"),
    ],
)
def test_a_file_that_is_wrong(cmalight, name, content, complaint):
    (cmalight.folder / name).write_text(content)
    assert complaint in cmalight.refused("train", name, "--target", "y", "--save", "model")


def test_a_file_that_is_not_there_or_a_data_set_with_a_typo(cmalight):
    assert "nowhere.csv: there is no such file" in cmalight.refused("train", "nowhere.csv", "--target", "y")
    assert "did you mean 'wine'?" in cmalight.refused("train", "whine")
    assert "has its own" in cmalight.refused("train", "wine", "--target", "y")
    assert "is a directory" in cmalight.refused("train", cmalight.folder, "--target", "y")


def test_a_model_that_is_none(cmalight, houses):
    assert "is not a regular file" in cmalight.refused("predict", "/dev/zero", houses)
    assert "is a directory" in cmalight.refused("predict", ".", houses)
    assert "there is no such file" in cmalight.refused("evaluate", "nothing", houses)
    assert "is not a model file" in cmalight.refused("predict", houses, houses)


def test_rows_that_the_model_cannot_take(cmalight, houses):
    cmalight("train", houses, *QUICK, "--save", "model")
    (cmalight.folder / "new.csv").write_text("age,city\n1,Rome\n")
    assert "new.csv has no column size" in cmalight.refused("predict", "model", "new.csv", "--out", "out.csv")
    (cmalight.folder / "new.csv").write_text("age,city,size\nold,Rome,2\n")
    assert "column 'age' holds 'old'" in cmalight.refused("predict", "model", "new.csv")
    assert "Unknown column 'price'" in cmalight.refused("evaluate", "model", "new.csv")
    assert "probabilities are for classes" in cmalight.refused("predict", "model", houses, "--probabilities")
    assert "nowhere/out.csv" in cmalight.refused("predict", "model", houses, "--out", "nowhere/out.csv")


def start(*arguments, **options):
    """`cmalight ...` as a process, whose progress is one line per epoch on stderr."""
    environment = {**os.environ, "CI": "1", "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([sys.executable, "-m", "cmalight", *map(str, arguments)], **{**streams, **options})


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_epochs_and_exits_130(tmp_path):
    x = np.random.default_rng(0).uniform(-3, 3, size=(20_000, 2))
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(x[:, 0] * x[:, 1])}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["train", "t.csv", "--target", "y", "--max-epochs", 100_000, "--save", "m"]
    with start(*arguments, cwd=tmp_path, pipesize=4096) as process:
        next(line for line in process.stderr if line.startswith("epoch 1 "))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "m"}
    with start("predict", "m", "t.csv", cwd=tmp_path) as process:
        assert process.communicate(timeout=600)[0].count("\n") == 20_001
