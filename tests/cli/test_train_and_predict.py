"""From a file to a network, and from there to predictions."""

import csv
import datetime
import io
import json

import numpy as np
import pandas
import pytest
import sklearn.datasets

from cmalight.tables.reading import read_table
from cmalight.tables.splitting import split_rows
from cmalight.tabular import load_model
from tests.bench.common import own_data


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_regression_is_found_out_learnt_and_predicted_in_the_units_of_the_file(cmalight, houses):
    arguments = ["--target", "price", "--optimizer", "adam", "--lr", 0.05, "--max-epochs", 150, "--save", "model.pt"]
    result = cmalight("train", houses, *arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "80 rows, 4 columns, comma separated" in result.stdout
    assert "task: regression of 'price'" in result.stdout
    assert "features: 2 numeric, 1 categorical, which make 5 inputs" in result.stdout
    assert "split: 60 training rows, 20 test rows" in result.stdout
    predictions = rows_of(cmalight("predict", "model.pt", houses).stdout)
    predicted = np.array([float(row["prediction"]) for row in predictions])
    wanted = pandas.read_csv(houses)["price"].to_numpy()
    assert np.corrcoef(predicted, wanted)[0, 1] > 0.95
    assert abs(predicted - wanted).mean() < 20_000


def test_classification_is_found_out_learnt_and_predicted_by_name(cmalight, flowers):
    arguments = ["--target", "kind", "--optimizer", "adam", "--lr", 0.1, "--max-epochs", 40, "--save", "model.pt"]
    result = cmalight("train", flowers, *arguments)
    assert "semicolon separated" in result.stdout
    assert "3 classes: lily, rose, tulip" in result.stdout
    assert "accuracy 1 " in result.stdout
    assert cmalight("predict", "model.pt", flowers, "--out", "out.csv").exit_code == 0
    predictions = rows_of((cmalight.folder / "out.csv").read_text())
    assert [row["prediction"] for row in predictions] == ["rose"] * 20 + ["tulip"] * 20 + ["lily"] * 20
    assert all(0.5 < float(row["probability"]) <= 1 for row in predictions)


def test_the_same_seed_gives_the_same_model_and_another_seed_another(cmalight, houses):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert (
            cmalight("train", houses, "--target", "price", "--max-epochs", 2, "--seed", seed, "--save", name).exit_code
            == 0
        )
    a, b, c = (cmalight("predict", name, houses).stdout for name in "abc")
    assert a == b != c


def test_scaling_is_fitted_on_the_training_rows_alone(cmalight, tmp_path):
    table = pandas.DataFrame({"a": np.arange(40.0), "y": np.arange(40.0) * 2})
    table.to_csv("t.csv", index=False)
    cmalight("train", "t.csv", "--target", "y", "--max-epochs", 1, "--test-share", 0.5, "--save", "model.pt")
    scaling = load_model("model.pt").target.scaling
    training, _ = split_rows(40, 0.5, 0)
    assert (scaling.low.item(), scaling.high.item()) == (2 * min(training), 2 * max(training))
    assert (min(training), max(training)) != (0, 39)


def test_the_task_can_be_chosen(cmalight, tmp_path):
    pandas.DataFrame({"a": range(40), "y": [0, 1] * 20}).to_csv("t.csv", index=False)
    assert "task: classification" in cmalight("train", "t.csv", "--target", "y", "--max-epochs", 1).stdout
    forced = cmalight("train", "t.csv", "--target", "y", "--max-epochs", 1, "--task", "regression")
    assert "task: regression of 'y' (as asked for)" in forced.stdout


def test_history_and_picture_are_written(cmalight, houses):
    result = cmalight(
        "train", houses, "--target", "price", "--max-epochs", 3, "--history", "history.jsonl", "--plot", "losses.png"
    )
    assert "written: history.jsonl" in result.stdout
    records = [json.loads(line) for line in (cmalight.folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [0, 1, 2]
    assert all(record["train_loss"] > 0 and record["validation_loss"] > 0 for record in records)
    assert set(records[0]["metrics"]) == {"r2"}
    assert (cmalight.folder / "losses.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_parquet_and_npz_files_are_read_too(cmalight, houses, kind):
    frame = pandas.read_csv(houses)
    if kind == "parquet":
        frame.to_parquet("t.parquet")
        arguments = ["t.parquet", "--target", "price"]
    else:
        np.savez("t.npz", x=frame[["age", "size"]].to_numpy(), y=frame["price"].to_numpy())
        arguments = ["t.npz"]
    result = cmalight("train", *arguments, "--max-epochs", 1, "--save", "model.pt")
    assert result.exit_code == 0, result.output
    assert len(rows_of(cmalight("predict", "model.pt", arguments[0]).stdout)) == 80


def test_a_data_set_is_trained_on_by_name(cmalight):
    result = cmalight("train", "wine", "--max-epochs", 1, "--save", "model.pt")
    assert result.exit_code == 0, result.output
    assert "classification of 'target' (as the data set says), 3 classes: class_0, class_1, class_2" in result.stdout
    assert load_model("model.pt").features.width == 13


def test_a_model_of_a_data_set_predicts_a_file_with_its_columns_and_classes(cmalight):
    bunch = sklearn.datasets.load_wine(as_frame=True)
    frame = bunch.data.assign(target=bunch.target_names[bunch.target])
    frame[frame.columns[::-1]].to_csv("wine.csv", index=False)
    arguments = ["--optimizer", "adam", "--lr", 0.05, "--max-epochs", 30, "--save", "model.pt"]
    assert cmalight("train", "wine", *arguments).exit_code == 0
    result = cmalight("evaluate", "model.pt", "wine.csv")
    assert result.exit_code == 0, result.output
    assert float(result.stdout.split("accuracy ")[1].split()[0]) > 0.95


def test_a_model_of_a_described_data_set_predicts_the_file_it_was_trained_on(cmalight, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    rows = ["id,size,city,age,kind"]
    for number in range(60):
        city, size = random.choice(["Rome", "Oslo"]), random.uniform(0, 1)
        kind = "dear" if size > 0.5 and city == "Oslo" else "cheap"
        rows.append(f"n{number},{size:.3f},{city},{random.integers(1, 9)},{kind}")
    (tmp_path / "flats.csv").write_text("\n".join(rows) + "\n")
    description = 'file = "flats.csv"\ntarget = "kind"\ntask = "classification"\none_hot = ["city"]\ndrop = ["id"]\n'
    (tmp_path / "flats.toml").write_text(f"[dataset]\n{description}")
    arguments = ["--optimizer", "adam", "--lr", 0.05, "--max-epochs", 100, "--save", "model.pt"]
    for _ in range(2):  # parsed, and from the cache
        result = cmalight("train", "flats.toml", *arguments)
        assert "2 classes: cheap, dear" in result.stdout
        assert "features: 2 numeric, 1 categorical, which make 4 inputs" in result.stdout
        lines = cmalight("predict", "model.pt", "flats.csv").stdout.splitlines()[1:]
        right = [line.split(",")[0] == row.rsplit(",", 1)[1] for line, row in zip(lines, rows[1:], strict=True)]
        assert sum(right) >= 57


def test_a_data_sets_targets_are_predicted_in_their_own_units(cmalight):
    cmalight("train", "teacher:rows=200,features=2,noise=0", "--max-epochs", 1, "--save", "model.pt")
    model = load_model("model.pt")
    assert model.target.scaling.low.item() < -0.5 < 0.5 < model.target.scaling.high.item()


def test_missing_values_are_filled_in_where_training_was_told_to(cmalight, houses):
    text = houses.read_text().splitlines()
    text[3] = ",Oslo,100,150000"
    text[4] = "30,,100,100000"
    houses.write_text("\n".join(text) + "\n")
    arguments = ["train", houses, "--target", "price", "--max-epochs", 1, "--save", "model.pt"]
    assert "1 missing" in cmalight.refused(*arguments)
    assert cmalight(*arguments, "--impute", "median").exit_code == 0
    assert len(rows_of(cmalight("predict", "model.pt", houses).stdout)) == 80


def test_a_cell_that_stood_for_a_missing_value_in_training_does_so_again(cmalight, houses):
    text = houses.read_text().splitlines()
    text[3] = "?,Oslo,100,150000"
    houses.write_text("\n".join(text) + "\n")
    arguments = ["train", houses, "--target", "price", "--max-epochs", 1, "--save", "model.pt"]
    assert "(--missing '?')" in cmalight.refused(*arguments)
    assert cmalight(*arguments, "--missing", "?", "--impute", "median").exit_code == 0
    assert len(rows_of(cmalight("predict", "model.pt", houses).stdout)) == 80


def test_an_unknown_category_is_said_and_counts_as_none_or_is_refused(cmalight, houses):
    cmalight("train", houses, "--target", "price", "--max-epochs", 1, "--save", "model.pt")
    (cmalight.folder / "new.csv").write_text("age,city,size\n30,Quito,100\n")
    result = cmalight("predict", "model.pt", "new.csv")
    assert len(rows_of(result.stdout)) == 1
    assert "cmalight: warning: new.csv: column 'city' holds categories" in result.stderr
    assert "Quito" in result.stderr
    assert "Quito" in cmalight.refused("predict", "model.pt", "new.csv", "--unknown", "refuse", "--out", "out.csv")


def test_columns_left_out_of_the_training_may_be_there_again(cmalight, houses):
    cmalight("train", houses, "--target", "price", "--drop", "age", "--max-epochs", 1, "--save", "model.pt")
    assert len(rows_of(cmalight("predict", "model.pt", houses).stdout)) == 80
    assert load_model("model.pt").features.names == ("size", "city")


def test_codes_that_look_like_numbers_can_be_categories_and_keep_their_zeros(cmalight):
    rows = [f"{code},{i % 7},{i}" for i, code in enumerate(["007", "08", "7"] * 10)]
    (cmalight.folder / "t.csv").write_text("code,a,y\n" + "\n".join(rows) + "\n")
    cmalight("train", "t.csv", "--target", "y", "--categorical", "code", "--max-epochs", 1, "--save", "model.pt")
    assert load_model("model.pt").features.categorical[0].categories == ("007", "7", "08")
    assert "warning" not in cmalight("predict", "model.pt", "t.csv").stderr


def test_no_test_rows_are_kept_if_none_are_wanted(cmalight, houses):
    result = cmalight("train", houses, "--target", "price", "--max-epochs", 1, "--test-share", 0, "--plot", "p.svg")
    assert "split: 80 training rows, 0 test rows" in result.stdout
    assert "test rows:" not in result.stdout.splitlines()[-1]
    assert b"validation" not in (cmalight.folder / "p.svg").read_bytes()


def test_quiet_says_nothing(cmalight, houses):
    arguments = ["--optimizer", "adam", "--lr", 0.05, "--max-epochs", 20, "--quiet"]
    result = cmalight("train", houses, "--target", "price", *arguments)
    assert (result.exit_code, result.output) == (0, "")


def test_a_checkpoint_lets_the_same_command_go_on(cmalight, houses):
    table = ["train", houses, "--target", "price", "--optimizer", "cmalight"]  # auto would count with its epochs
    arguments = [*table, "--checkpoint", "run.ck", "--save", "model.pt"]
    assert cmalight(*arguments, "--max-epochs", 2).exit_code == 0
    assert "training: 5 epochs" in cmalight(*arguments, "--max-epochs", 5, "--history", "h.jsonl").stdout
    assert len((cmalight.folder / "h.jsonl").read_text().splitlines()) == 5
    resumed = cmalight("predict", "model.pt", houses).stdout
    cmalight(*table, "--max-epochs", 5, "--save", "straight.pt")
    assert cmalight("predict", "straight.pt", houses).stdout == resumed


def test_columns_that_are_not_what_they_seem_are_recognised_said_and_predicted_with(cmalight):
    start = datetime.date(2023, 11, 5)
    frame = pandas.DataFrame(
        {
            "customer_id": range(500, 560),
            "when": [str(start + datetime.timedelta(i)) for i in range(60)],
            "share": [f"{i % 9}.5%" for i in range(60)],
            "zip": [f"0{150 + i % 3}" for i in range(60)],
            "note": [f"text {i}" for i in range(60)],
            "price": [f"${100 + 3 * i}.25" for i in range(60)],
        }
    )
    frame.to_csv(cmalight.folder / "t.csv", index=False)
    result = cmalight("train", "t.csv", "--target", "price", "--max-epochs", 2, "--save", "model.pt")
    for line in (
        "column 'customer_id': left out, an id: a different whole number in every row (--as-is takes it as it is)",
        "column 'when': dates such as 2023-11-05, taken as year, month, day, weekday (--as-is takes them as text)",
        "column 'share': amounts such as 0.5%, taken as numbers (--as-is takes them as text)",
        "column 'zip': codes with leading zeros such as 0150, taken as categories",
        "column 'note': left out, 60 different texts in 60 rows (--as-is takes it as it is)",
        "column 'price': amounts such as $100.25, taken as numbers (--as-is takes them as text)",
        "features: 5 numeric, 1 categorical, which make 8 inputs",
    ):
        assert line in result.stdout.splitlines()
    assert len(rows_of(cmalight("predict", "model.pt", "t.csv").stdout)) == 60
    new = frame.head(3).drop(columns=["price", "note", "customer_id"])
    new.to_csv(cmalight.folder / "new.csv", index=False)
    assert len(rows_of(cmalight("predict", "model.pt", "new.csv").stdout)) == 3
    new.assign(when="soon").to_csv(cmalight.folder / "odd.csv", index=False)
    assert "column 'when', row 1 holds 'soon'" in cmalight.refused("predict", "model.pt", "odd.csv")
    kept = cmalight("train", "t.csv", "--target", "price", "--as-is", "customer_id", "--max-epochs", 1)
    assert "column 'customer_id'" not in kept.stdout


@pytest.mark.parametrize(("scaling", "warned"), [("robust", False), ("minmax", True), ("standard", True)])
def test_an_outlier_is_drawn_in_or_named(cmalight, scaling, warned):
    frame = pandas.DataFrame({"a": np.arange(60.0), "y": np.arange(60.0) % 7 + 0.5})
    frame.loc[3, "a"] = 1e9
    frame.to_csv(cmalight.folder / "t.csv", index=False)
    arguments = ["train", "t.csv", "--target", "y", "--test-share", 0, "--max-epochs", 1, "--save", "m.pt"]
    result = cmalight(*arguments, "--scaling", scaling)
    assert ("column 'a' has a value far from all others" in result.stderr) == warned
    encoded = load_model("m.pt").features.apply(read_table("t.csv"))
    assert (np.ptp(np.delete(encoded, 3)) > 0.5) == (not warned)


def test_a_target_that_no_float_can_square_is_refused(cmalight):
    frame = pandas.DataFrame({"a": np.arange(30.0), "y": [*np.arange(29.0) / 2, 1e300]})
    frame.to_csv(cmalight.folder / "t.csv", index=False)
    assert "column 'y', row 30 is 1e+300; expected finite numbers up to 1e+100" in cmalight.refused(
        "train", "t.csv", "--target", "y", "--save", "m.pt"
    )


def test_a_file_that_is_not_there_is_not_taken_for_a_data_set(cmalight):
    assert "there is no file missing.xlsx" in cmalight.refused("train", "missing.xlsx", "--target", "a")


def test_the_files_of_a_data_set_that_one_trusts_are_taken_and_the_model_says_so(cmalight, houses):
    source = own_data(cmalight.folder / "own", sha256="0" * 64)
    training = ("train", source, "--net", "1x2", "--max-epochs", 1, "--save")
    assert "say that you trust it" in cmalight.refused(*training, "refused.pt")
    result = cmalight(*training, "trusted.pt", "--trust")
    assert result.exit_code == 0, result.stderr
    assert "are taken whatever their checksum (--trust)" in result.stderr
    assert load_model("trusted.pt").trusted
    assert "trust is for data sets" in cmalight.refused("train", houses, "--target", "price", "--trust")
    assert cmalight("train", houses, "--target", "price", "--max-epochs", 1, "--save", "plain.pt").exit_code == 0
    assert not load_model("plain.pt").trusted
