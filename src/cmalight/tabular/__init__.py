"""From a table to a trained network, its scores and its predictions: what the command's verbs do, for Python."""

from cmalight.tabular.data import TableChoices
from cmalight.tabular.model import Predictions, TabularModel
from cmalight.tabular.model_file import load_model
from cmalight.tabular.scores import Scores
from cmalight.tabular.train_and_predict import Outputs, TabularResult, evaluate_table, predict_table, train_on_table

__all__ = [
    "Outputs",
    "Predictions",
    "Scores",
    "TableChoices",
    "TabularModel",
    "TabularResult",
    "evaluate_table",
    "load_model",
    "predict_table",
    "train_on_table",
]
