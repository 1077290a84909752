"""Fully connected networks as scikit-learn estimators, trained by `fit` under any optimizer it knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cmalight.integrations.network_estimator import NetworkEstimator, all_or_nothing  # says what to install

# isort: split

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import validate_data  # type: ignore[import-untyped]


class CMALightRegressor(RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    """A fully connected network that is fitted by least squares; one or several targets.

    Targets are centred and scaled inside, and `loss_` is in those units. Inputs are taken as they are: put a
    StandardScaler before it. Precision follows the inputs, float64 or float32.

    Args:
        hidden_layer_sizes: neurons of each hidden layer.
        activation: "tanh", "sigmoid", "relu", "gelu" or "silu".
        optimizer: a name that `cmalight.fit` knows: "auto", which finds its step size, "cmalight",
            "cmalight-certified", "cma", "ig", "adam", ...
        lr: the first step size; None takes the optimizer's own.
        weight_decay: of the optimizer.
        optimizer_options: its other arguments.
        batch_size: "auto" makes about 50 batches per epoch, of 8 to 128 rows.
        order: "reshuffle" or "fixed".
        max_epochs: the end of the training.
        time_limit: the end in seconds of training.
        early_stopping: keep `validation_fraction` of the rows aside, stop after `patience` epochs without a better
            loss on them, and end on the best weights.
        validation_fraction: of the rows, for that.
        patience: for that.
        warm_start: a second `fit` goes on where the first ended, in its precision; another optimizer, or other
            options of it, begin anew from its weights; another hidden_layer_sizes or activation is refused.
        random_state: of the initial weights, the order of the rows and the rows that are kept aside.
        verbose: show a bar, or one line per epoch in CI logs.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from cmalight import CMALightRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = make_pipeline(StandardScaler(), CMALightRegressor((20,), max_epochs=20, random_state=0)).fit(X, y)
        >>> model.score(X, y) > 0.4
        True
    """

    _loss = nn.MSELoss()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CMALightRegressor:  # noqa: N803
        """Train the network.

        Args:
            X: one row per sample.
            y: the target, or a column for each of several.
            sample_weight: how much each sample counts, against the mean of all; None lets all count the same.

        Returns:
            The estimator itself.
        """
        with all_or_nothing(self):
            X, y = validate_data(self, X, y, dtype=self._input_types(), multi_output=True, y_numeric=True)  # noqa: N806
            table = y.reshape(len(y), -1).astype(X.dtype)
            self._single_target = y.ndim == 1
            if not self._goes_on():
                spread = table.std(axis=0)
                self._target_mean, self._target_scale = table.mean(axis=0), np.where(spread > 0, spread, 1.0)
            scaled = ((table - self._target_mean) / self._target_scale).astype(X.dtype)
            self._train(X, scaled, table.shape[1], stratify=None, sample_weight=sample_weight)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The targets of some rows.

        Args:
            X: rows of features.

        Returns:
            One value per row, or one row of them where there were several targets.
        """
        outputs = self._outputs(X)
        outputs = outputs * self._target_scale + self._target_mean
        return outputs[:, 0] if self._single_target else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class CMALightClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """A fully connected network with one output per class, fitted by cross entropy.

    Inputs are taken as they are: put a StandardScaler before it. Precision follows the inputs, float64 or float32.

    Args:
        hidden_layer_sizes: neurons of each hidden layer.
        activation: "tanh", "sigmoid", "relu", "gelu" or "silu".
        optimizer: a name that `cmalight.fit` knows: "auto", which finds its step size, "cmalight",
            "cmalight-certified", "cma", "ig", "adam", ...
        lr: the first step size; None takes the optimizer's own.
        weight_decay: of the optimizer.
        optimizer_options: its other arguments.
        batch_size: "auto" makes about 50 batches per epoch, of 8 to 128 rows.
        order: "reshuffle" or "fixed".
        max_epochs: the end of the training.
        time_limit: the end in seconds of training.
        early_stopping: keep `validation_fraction` of the rows aside, stop after `patience` epochs without a better
            loss on them, and end on the best weights.
        validation_fraction: of the rows, for that.
        patience: for that.
        warm_start: a second `fit` goes on where the first ended, in its precision; another optimizer, or other
            options of it, begin anew from its weights; another hidden_layer_sizes or activation is refused.
        random_state: of the initial weights, the order of the rows and the rows that are kept aside.
        verbose: show a bar, or one line per epoch in CI logs.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from cmalight import CMALightClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = make_pipeline(StandardScaler(), CMALightClassifier((20,), max_epochs=20, random_state=0)).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
    """

    _loss = nn.CrossEntropyLoss()
    classes_: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CMALightClassifier:  # noqa: N803
        """Train the network.

        Args:
            X: one row per sample.
            y: the class of each sample.
            sample_weight: how much each sample counts, against the mean of all; None lets all count the same.
                scikit-learn's `compute_sample_weight("balanced", y)` lets all classes weigh the same.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if there are fewer than two classes, or, with `warm_start`, others than before.
        """
        with all_or_nothing(self):
            X, y = validate_data(self, X, y, dtype=self._input_types())  # noqa: N806
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(
                    f"CMALightClassifier needs two classes or more, but the data has one class: {classes[0]}"
                )
            if self._goes_on() and not np.array_equal(classes, self.classes_):
                raise ValueError(f"warm_start goes on with the classes {self.classes_}, but this fit has {classes}")
            self.classes_ = classes
            self._train(X, codes, len(classes), stratify=codes, sample_weight=sample_weight)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The most probable class of each row.

        Args:
            X: rows of features.

        Returns:
            One label per row.
        """
        chosen = self._outputs(X).argmax(axis=1)
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """The probability of each class.

        Args:
            X: rows of features.

        Returns:
            One row per row, one column per class in the order of `classes_`.
        """
        return torch.softmax(torch.as_tensor(self._outputs(X)), dim=1).numpy()

    def predict_log_proba(self, X: Any) -> Any:  # noqa: N803
        """The logarithm of the probability of each class.

        Args:
            X: rows of features.

        Returns:
            One row per row, one column per class in the order of `classes_`.
        """
        return torch.log_softmax(torch.as_tensor(self._outputs(X)), dim=1).numpy()
