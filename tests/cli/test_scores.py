"""Scores beside what a guess would get: in training, in predict, in evaluate, in the picture."""

import csv
import gzip
import io
import re

import numpy as np
import pandas
import pytest
import torch
from click.testing import CliRunner
from sklearn.metrics import accuracy_score, mean_absolute_error

from cmalight.cli import command
from cmalight.tabular import TableChoices, load_model, train_on_table

NO_BETTER = "the model is no better than a guess"


def figures(line):
    return {name: float(value) for name, value in re.findall(r"(\w+) (-?[\d.e+-]+)", line.split(":", 1)[1])}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def kinds(cmalight, flowers):
    """A model of the kinds of flowers."""
    arguments = ["--optimizer", "adam", "--lr", 0.1, "--max-epochs", 20, "--test-share", 0.2]
    assert cmalight("train", flowers, "--target", "kind", *arguments, "--save", "kinds.pt").exit_code == 0
    return "kinds.pt"


def test_scores_of_a_number_stand_above_those_of_the_mean(cmalight, houses):
    arguments = ["--target", "price", "--optimizer", "adam", "--lr", 0.05, "--max-epochs", 60]
    result = cmalight("train", houses, *arguments)
    scored, guessed = (line for line in result.stdout.splitlines() if line.startswith(("test rows", "always the mean")))
    found, base = figures(scored), figures(guessed)
    assert list(found) == list(base) == ["r2", "rmse", "mae"]
    assert found["r2"] > 0.5 > 0.1 > abs(base["r2"])
    assert found["mae"] < base["mae"]
    assert NO_BETTER not in result.stderr


def test_a_model_that_only_says_the_most_frequent_class_is_called_no_better_than_a_guess(cmalight, flowers):
    with flowers.open("a") as file:
        file.write("1.1;rose\n" * 20)
    arguments = ["--target", "kind", "--optimizer", "sgd", "--lr", 1e-9, "--max-epochs", 1]
    result = cmalight("train", flowers, *arguments)
    assert result.exit_code == 0
    assert figures(next(x for x in result.stdout.splitlines() if x.startswith("always 'rose'")))["accuracy"] == 0.5
    assert NO_BETTER in result.stderr


def test_a_class_weight_lets_rare_classes_weigh_the_same(cmalight):
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(0, 1, 380), random.normal(1.5, 1, 20)])
    pandas.DataFrame({"x": x, "kind": ["a"] * 380 + ["b"] * 20}).to_csv("t.csv", index=False)
    recalls = []
    for class_weight in (None, "balanced"):
        options = {"optimizer": "adam", "lr": 0.05, "max_epochs": 20, "class_weight": class_weight}
        result = train_on_table("t.csv", TableChoices(target="kind"), **options)
        matrix = result.scores.confusion()
        recalls.append(matrix[1, 1] / matrix[1].sum())
    assert recalls[1] > recalls[0]
    (cmalight.folder / "n.csv").write_text("x,y\n" + "".join(f"{i},{i * 0.5}\n" for i in range(40)))
    assert "is for classes" in cmalight.refused("train", "n.csv", "--target", "y", "--class-weight", "balanced")


def test_evaluate_scores_a_file_and_shows_which_classes_are_confused(cmalight, kinds):
    (cmalight.folder / "some.csv").write_text("petal;kind\n1;rose\n5;tulip\n9;tulip\n1;lily\n")
    lines = cmalight("evaluate", kinds, "some.csv").stdout.splitlines()
    assert figures(lines[0])["accuracy"] == 0.5
    assert lines[1].startswith("always 'lily'")
    matrix = [line.split() for line in lines[-3:]]
    assert matrix == [["lily", "0", "1", "0"], ["rose", "0", "1", "0"], ["tulip", "1", "0", "1"]]


def test_evaluate_needs_the_target_and_its_classes(cmalight, kinds):
    (cmalight.folder / "without.csv").write_text("petal\n1\n")
    assert "'kind'" in cmalight.refused("evaluate", kinds, "without.csv")
    (cmalight.folder / "strange.csv").write_text("petal;kind\n1;weed\n")
    assert "weed, which the model does not know" in cmalight.refused("evaluate", kinds, "strange.csv")


def test_predict_scores_what_has_the_target_beside_the_predictions(cmalight, kinds, flowers):
    result = cmalight("predict", kinds, flowers)
    assert len(rows_of(result.stdout)) == 60
    assert figures(result.stderr.splitlines()[0])["accuracy"] > 0.9
    assert "accuracy" in cmalight("predict", kinds, flowers, "--out", "out.csv").stdout
    (cmalight.folder / "without.csv").write_text("petal\n1\n")
    assert cmalight("predict", kinds, "without.csv").stderr == ""
    (cmalight.folder / "strange.csv").write_text("petal;kind\n1;weed\n")
    assert cmalight("predict", kinds, "strange.csv").exit_code == 0


def test_predictions_come_with_all_probabilities_and_the_columns_that_are_kept(cmalight, kinds):
    (cmalight.folder / "new.csv").write_text("id,petal,weight\nn1,1.0,2.5\nn2,5.0,3\n")
    assert "2 columns more than the model" in cmalight.refused("predict", kinds, "new.csv")
    result = cmalight("predict", kinds, "new.csv", "--keep", "id", "--keep", "weight", "--probabilities")
    rows = rows_of(result.stdout)
    probabilities = [f"probability {kind}" for kind in ("lily", "rose", "tulip")]
    assert list(rows[0]) == ["id", "weight", "prediction", *probabilities]
    assert [(row["id"], row["weight"], row["prediction"]) for row in rows] == [
        ("n1", "2.5", "rose"),
        ("n2", "3", "tulip"),
    ]
    assert sum(float(rows[0][name]) for name in probabilities) == pytest.approx(1, abs=1e-3)
    (cmalight.folder / "new.csv").write_text("prediction,petal\n1,1.0\n")
    assert "'prediction' is called as" in cmalight.refused("predict", kinds, "new.csv", "--keep", "prediction")


def test_a_saved_model_predicts_and_scores_a_frame(cmalight, kinds, houses):
    model = load_model(kinds)
    frame = pandas.DataFrame({"petal": [1.0, 5.0, 9.0], "kind": ["rose", "rose", "lily"], "id": [1, 2, 3]})
    predictions = model.predict(frame, keep=["id"]).to_pandas()
    assert predictions[["id", "prediction"]].to_numpy().tolist() == [[1, "rose"], [2, "tulip"], [3, "lily"]]
    scores = model.evaluate(frame, keep=["id"])
    assert scores.values["accuracy"] == accuracy_score(frame["kind"], predictions["prediction"])
    trained = train_on_table(houses, TableChoices(target="price"), max_epochs=2)
    prices = pandas.read_csv(houses)
    of_all = trained.model.evaluate(prices).values
    expected = mean_absolute_error(prices["price"], trained.model.predict(prices).values)
    assert of_all["mae"] == pytest.approx(expected, rel=1e-6)


def test_patience_keeps_training_rows_aside_and_leaves_the_test_rows_for_the_scores(cmalight):
    x, y = np.random.default_rng(0).random((2, 60))  # nothing to be learnt
    pandas.DataFrame({"x": x, "y": y}).to_csv("t.csv", index=False)
    arguments = ["--target", "y", "--optimizer", "adam", "--lr", 0.1, "--max-epochs", 500, "--patience", 3]
    result = cmalight("train", "t.csv", *arguments)
    assert "split: 45 training rows, 15 test rows" in result.stdout
    assert "of the training rows are kept aside to stop by" in result.stdout
    assert "no better validation for 3 epochs" in result.stdout


def test_options_reach_the_optimizer_the_network_and_torch(cmalight, flowers):
    table = ["train", flowers, "--target", "kind", "--max-epochs", 1]
    arguments = ["--activation", "tanh", "--threads", 1, "--device", "cpu", "--save", "m.pt", "--weight-decay", 0.1]
    before = torch.get_num_threads()
    assert cmalight(*table, *arguments, "--optimizer-option", "betas=(0.8, 0.9)").exit_code == 0
    assert torch.get_num_threads() == before
    assert "Tanh" in str(load_model("m.pt").network)
    assert "speed" in cmalight.refused(*table, "--optimizer-option", "speed=3")
    assert "NAME=VALUE" in cmalight.refused(*table, "--optimizer-option", "speed")
    assert "lr is given twice" in cmalight.refused(*table, "--optimizer-option", "lr=3", "--lr", 2)
    assert "activation" in cmalight.refused(*table, "--activation", "step")
    assert "Unknown device 'tpu'" in cmalight.refused(*table, "--device", "tpu")


def test_a_stalled_training_is_told_in_the_words_of_the_command(cmalight, houses):
    arguments = ["--optimizer", "cmalight", "--lr", 1e30, "--optimizer-option", "theta=0.5", "--max-epochs", 60]
    result = cmalight("train", houses, "--target", "price", *arguments)
    stalled = [line for line in result.stderr.splitlines() if "stalled" in line]
    assert len(stalled) == 1
    assert "optimizer 'auto'" in stalled[0]
    assert "optimizer." not in stalled[0]


def test_the_picture_shows_what_was_predicted(cmalight, flowers, houses):
    for table, target in ((flowers, "kind"), (houses, "price")):
        arguments = ["--target", target, "--max-epochs", 1, "--plot", "p.svg"]
        assert cmalight("train", table, *arguments).exit_code == 0
        svg = (cmalight.folder / "p.svg").read_text()
        assert "<!-- predicted -->" in svg
        assert "<!-- true -->" in svg


def test_help_is_also_h(cmalight):
    for verb in ([], ["train"], ["datasets", "list"]):
        assert cmalight(*verb, "-h").stdout == cmalight(*verb, "--help").stdout != ""


def test_tables_come_compressed_in_another_encoding_or_by_standard_input(cmalight, flowers, kinds):
    (cmalight.folder / "t.csv.gz").write_bytes(gzip.compress(flowers.read_bytes()))
    assert cmalight("evaluate", kinds, "t.csv.gz").stdout == cmalight("evaluate", kinds, flowers).stdout
    (cmalight.folder / "t.csv").write_bytes(
        "größe,y\n".encode("latin-1") + b"".join(b"%d,%d.5\n" % (i, i) for i in range(40))
    )
    arguments = ["--target", "y", "--max-epochs", 1]
    assert "name its encoding" in cmalight.refused("train", "t.csv", *arguments)
    assert cmalight("train", "t.csv", *arguments, "--encoding", "latin-1").exit_code == 0
    given = CliRunner().invoke(command, ["predict", kinds, "-"], input="petal\n1\n9\n")
    assert [row["prediction"] for row in rows_of(given.stdout)] == ["rose", "lily"]
