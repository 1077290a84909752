"""Tables as a library: files and frames, column types, scores, model files."""

import io
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
import skops.io

from cmalight.errors import DataError
from cmalight.integrations.frames import column_kinds, convert, read_table
from cmalight.integrations.tables import load_model, predict_table, train_table

QUICK = {"hidden_layer_sizes": (16,), "max_epochs": 8}


def homes(rows=160):
    """Everything a reader can take for something else: zip codes, flags, dates, gaps, an index."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "zip": random.choice(["01234", "02345", "10001"], rows),
            "garden": random.choice([True, False], rows),
            "sold": random.choice(pd.date_range("2023-01-01", periods=700), rows),
            "size": random.uniform(20, 200, rows).round(1),
        }
    )
    frame["price"] = 1000 * frame["size"] + 90_000 * (frame["zip"] == "01234") + 40_000 * frame["garden"] + 0.5
    frame.loc[::9, "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("homes") / "homes.csv"
    homes().to_csv(path)
    return path, train_table(path, "price", **QUICK).model


def kinds_of(text, tmp_path, **options):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return column_kinds(read_table(path), **options)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", ""], "number"),
        (["01234", "02345", "10001"], "text"),
        (["true", "false", "true"], "text"),
        (["2024-01-05", "2024-02-29", ""], "date"),
        (["05/01/2024", "29/02/2024", "01/01/2024"], "date, day first"),
        (["2024-01-05 10:30", "2024-01-06 11:00", "2024-01-07 00:00"], "date"),
        (["2024-13-45", "2024-01-01", "x"], "text"),
        (["Oslo", "Rome", "12"], "text"),
    ],
)
def test_the_kind_of_a_column(tmp_path, cells, kind):
    text = "c,other\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells))
    assert kinds_of(text, tmp_path)["c"] == kind


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found_out(tmp_path, separator):
    text = "\n".join(line.replace(",", separator) for line in ("a,b", "1,x", "2,y"))
    assert kinds_of(text, tmp_path) == {"a": "number", "b": "text"}


def test_decimal_commas_between_semicolons(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\n2,25;y\n")
    assert list(read_table(tmp_path / "t.csv")["a"]) == [1.5, 2.25]


def test_parquet_xlsx_and_compressed_csv_read_as_csv_does(tmp_path):
    frame = homes(20)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    tables = [read_table(tmp_path / f"t.{kind}") for kind in ("csv.gz", "parquet", "xlsx")]
    kinds = column_kinds(tables[0])
    for table in tables[1:]:
        assert column_kinds(table) == kinds
        pd.testing.assert_frame_equal(convert(table, kinds, "t"), convert(tables[0], kinds, "t"))


def test_a_file_that_is_not_utf8_is_read_as_windows_text(tmp_path):
    (tmp_path / "t.csv").write_bytes("city,y\nMünchen,1\n".encode("cp1252"))
    assert read_table(tmp_path / "t.csv")["city"][0] == "München"


def test_index_and_constant_columns_are_left_out(tmp_path, caplog):
    caplog.set_level("INFO", "cmalight")
    text = pd.DataFrame({"a": [1, 2], "same": [3, 3], "gone": [1, 2]}).to_csv()
    assert kinds_of(text, tmp_path, drop=["gone"]) == {"a": "number"}
    assert "Unnamed: 0 (looks like the index of to_csv())" in caplog.text
    assert "same (has one value only)" in caplog.text


def test_numbers_can_be_categories(tmp_path):
    assert kinds_of("a,b\n1,2\n2,3\n", tmp_path, categorical=["a"]) == {"a": "text", "b": "number"}
    with pytest.raises(DataError, match="did you mean 'a'"):
        kinds_of("a,b\n1,2\n2,3\n", tmp_path, categorical=["aa"])


def test_a_frame_and_its_file_give_the_same_prediction(trained):
    path, model = trained
    from_file = model.predict(path)
    pd.testing.assert_frame_equal(model.predict(pd.read_csv(path)), from_file)
    pd.testing.assert_frame_equal(model.predict(homes()), from_file)  # dates and flags as types of their own
    assert model.kinds == {"zip": "text", "garden": "text", "sold": "date", "size": "number"}


def test_zip_codes_and_flags_are_learnt():
    options = {"hidden_layer_sizes": (32,), "max_epochs": 40, "patience": 40}
    assert train_table(homes(400), "price", **options).scores.table.loc["network", "r2"] > 0.7


def test_new_rows_need_the_columns_of_the_model(trained):
    _, model = trained
    frame = homes(5)
    pd.testing.assert_frame_equal(model.predict(frame[frame.columns[::-1]]), model.predict(frame))
    with pytest.raises(DataError, match="no column size"):
        model.predict(frame.drop(columns="size"))
    with pytest.raises(DataError, match="column 'size' holds 'large'; expected numbers"):
        model.predict(frame.assign(size="large"))
    with pytest.raises(DataError, match="expected dates"):
        model.predict(frame.assign(sold="yesterday"))
    assert np.isfinite(model.predict(frame.assign(zip="unknown", size=np.nan, sold=None))["prediction"]).all()


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (["yes", "no"] * 20, "classification"),
        ([True, False] * 20, "classification"),
        ([0, 1] * 20, "classification"),
        (list(range(40)), "regression"),
        ([0.5, 1.5] * 20, "regression"),
    ],
)
def test_the_task_follows_the_target_and_classes_keep_their_type(target, task):
    frame = pd.DataFrame({"a": np.arange(40.0), "y": target})
    model = train_table(frame, "y", **QUICK).model
    assert model.task == task
    if task == "classification":
        assert set(model.predict(frame)["prediction"]) <= set(target)


def test_classes_of_a_file_are_scored_as_those_of_its_frame(tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "y": [True] * 20 + [False] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = train_table(frame, "y", **QUICK).model
    assert model.evaluate(tmp_path / "t.csv").table.equals(model.evaluate(frame).table)


@pytest.mark.parametrize("target", ["number", "word"])
def test_on_noise_the_network_is_no_better_than_guessing(target):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(200, 3)), columns=list("abc"))
    frame["y"] = random.normal(size=200) if target == "number" else random.choice(["yes", "no"], 200)
    scores = train_table(frame, "y", **QUICK).scores
    assert not scores.beats_guess
    assert "no better than guessing" in scores.verdict


def test_a_network_is_compared_with_a_linear_model():
    x = np.random.default_rng(0).uniform(-2, 2, size=(600, 2))
    curved = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0] ** 2 + 0.01 * x[:, 1]})
    better = train_table(curved, "y", hidden_layer_sizes=(32,), max_epochs=30).scores
    assert "The network is better than a linear model (squared error" in better.verdict
    assert list(better.table.index) == ["network", "linear model", "guess"]
    worse = train_table(curved.assign(y=3 * x[:, 0]), "y", **QUICK).scores
    assert "A linear model is better than the network" in worse.verdict


def test_rows_without_a_target_are_left_out(caplog):
    caplog.set_level("INFO", "cmalight")
    frame = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40.0)})
    frame.loc[:4, "y"] = np.nan
    train_table(frame, "y", **QUICK)
    assert "left out: 5 rows without 'y'" in caplog.text


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (pd.DataFrame({"a": range(5), "y": range(5)}), "at least 10 are needed"),
        (pd.DataFrame({"a": range(20), "y": [1] * 20}), "nothing to predict"),
        (pd.DataFrame({"a": [1] * 20, "y": range(20)}), "no column is left"),
        (pd.DataFrame({"a": range(20)}), "Unknown column 'y'"),
    ],
)
def test_tables_without_anything_to_learn_are_refused(frame, complaint):
    with pytest.raises(DataError, match=complaint):
        train_table(frame, "y")


def test_a_saved_model_is_the_same_model(trained, tmp_path):
    path, model = trained
    model.save(tmp_path / "model.skops")
    pd.testing.assert_frame_equal(predict_table(tmp_path / "model.skops", path), model.predict(path))
    classes = train_table(homes().drop(columns="price"), "zip", **QUICK).model
    classes.save(tmp_path / "classes.skops")
    again = load_model(tmp_path / "classes.skops").predict(homes(), probabilities=True)
    pd.testing.assert_frame_equal(again, classes.predict(homes(), probabilities=True))
    assert list(again)[1:] == ["probability 01234", "probability 02345", "probability 10001"]


class Harm:
    """Unpickling it would make a file."""

    def __reduce__(self):
        return (open, ("harm.txt", "w"))


def test_a_model_file_cannot_run_code(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(DataError, match="is not a model file"):
        load_model("evil")
    (tmp_path / "other").write_bytes(skops.io.dumps({"format": "cmalight table model 1", "target": Harm()}))
    with pytest.raises(DataError, match="types that no model of cmalight has"):
        load_model("other")
    (tmp_path / "plain").write_bytes(skops.io.dumps({"weights": [1, 2]}))
    with pytest.raises(DataError, match="is not a model file"):
        load_model("plain")
    assert not (tmp_path / "harm.txt").exists()


def test_a_damaged_model_file_is_refused(trained, tmp_path):
    _, model = trained
    model.save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    for kept in (0, 10, len(data) // 2, len(data) - 1):
        (tmp_path / "model").write_bytes(data[:kept])
        with pytest.raises(DataError, match="damaged"):
            load_model(tmp_path / "model")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        place = archive.infolist()[1].header_offset + 80  # inside an array
    (tmp_path / "model").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(DataError, match="damaged"):
        load_model(tmp_path / "model")
