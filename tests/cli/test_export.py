"""Exported models give what the model itself predicts, in onnxruntime and in torch.export's own form."""

import numpy as np
import onnxruntime
import pandas
import pytest
import torch

from cmalight.tabular import TableChoices, train_on_table

OPTIONS = {"optimizer": "adam", "lr": 0.05, "max_epochs": 5}

# Of torch's exporter and what it uses, about itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def answers(path, inputs):
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(torch.as_tensor(inputs)).detach().numpy()
    return onnxruntime.InferenceSession(path).run(None, {"inputs": inputs})[0]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_an_exported_model_predicts_the_same(cmalight, houses, flowers, ending):
    prices = pandas.read_csv(houses)
    model = train_on_table(houses, TableChoices(target="price"), **OPTIONS).model
    path = cmalight.folder / f"houses.{ending}"
    model.export(path)
    for rows in (prices, prices[:1]):
        np.testing.assert_allclose(answers(path, model.encode(rows)), model.predict(rows).values, rtol=1e-5)
    kinds = pandas.read_csv(flowers, sep=";")
    model = train_on_table(flowers, TableChoices(target="kind"), **OPTIONS).model
    path = cmalight.folder / f"flowers.{ending}"
    model.export(path)
    np.testing.assert_allclose(answers(path, model.encode(kinds)), model.predict(kinds).probabilities, atol=1e-6)


def test_another_ending_is_refused(cmalight, houses):
    model = train_on_table(houses, TableChoices(target="price"), **OPTIONS).model
    with pytest.raises(ValueError, match=r"expected \.onnx, or \.pt2"):
        model.export("houses.tflite")
