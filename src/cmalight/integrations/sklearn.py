"""Fully connected networks as scikit-learn estimators, trained by `cmalight.fit`."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from cmalight.errors import check_choice, check_flag, check_fraction, check_part, check_whole, needed
from cmalight.models import ACTIVATIONS
from cmalight.training import SampleWeighted, Status, fit, with_weights

with needed("The estimators need scikit-learn 1.6 or newer", "sklearn"):
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
    from sklearn.utils.validation import (  # type: ignore[import-untyped]
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )

_LR = 3e-3  # for "auto", whose own default is higher and overfits small tables
_OUTLIER = 3.0  # scaled inputs are drawn in smoothly so that none is further out than this


class _WatchedNetwork(BaseEstimator):  # type: ignore[misc]
    """The constructor and the training that both estimators share."""

    _loss: ClassVar[nn.Module]
    _validation: ClassVar[dict[str, bool]]

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (128, 128),
        *,
        activation: str = "relu",
        dropout: float = 0.1,
        optimizer: str = "auto",
        lr: float | None = None,
        weight_decay: float = 0.01,
        optimizer_options: Mapping[str, Any] | None = None,
        batch_size: int | Literal["auto"] = "auto",
        max_epochs: int | None = 40,
        time_limit: float | None = None,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        patience: int = 15,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        """Store the arguments; `fit` checks them, as scikit-learn wants it.

        Args:
            hidden_layer_sizes: Neurons of each hidden layer.
            activation: "relu", "tanh", "sigmoid", "gelu" or "silu".
            dropout: Fraction of the neurons of each hidden layer that a training step leaves out.
            optimizer: A name that `cmalight.fit` knows: "auto" runs `Auto`, others are "cmalight" or "adamw-cosine".
            lr: Learning rate; None takes 0.003 for "auto" and the default of the optimizer for others.
            weight_decay: Weight decay of the optimizer.
            optimizer_options: Other arguments of the optimizer.
            batch_size: Rows per step; "auto" makes about 30 batches per epoch, of 16 to 128 rows.
            max_epochs: Maximum number of epochs; None only with a time limit.
            time_limit: Maximum training time in seconds.
            early_stopping: Keep rows aside, stop when their loss no longer falls, and keep the best weights.
            validation_fraction: Fraction of the rows kept aside.
            patience: Epochs without a lower validation loss after which training stops.
            random_state: Seed of the initial weights, of the order of the rows and of the rows kept aside.
            verbose: Show the progress of the training.
        """
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer_options = optimizer_options
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.time_limit = time_limit
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train a new network.

        Args:
            X: One row per sample.
            y: The class of each sample; for a regression the target, or one column for each of several targets.
            sample_weight: Weight of each sample; None gives all the same weight.

        Returns:
            The estimator itself.

        Raises:
            ValueError: An argument is invalid, values are missing or not finite, there is a single class, or the
                training diverged.
        """
        self.__dict__.pop("coefs_", None)  # a failed fit leaves an estimator that is not fitted
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], **self._validation)  # noqa: N806
        target = self._encoded(y)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.input_mean_, scale = X.mean(axis=0), X.std(axis=0)
        self.input_scale_ = np.where(scale > 1e-12 * np.maximum(np.abs(self.input_mean_), 1e-300), scale, 1.0)
        inputs, targets, loss = _tensor(self._scaled(X)), _tensor(target), self._loss
        counts = np.ones(len(X), dtype=bool)
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            targets, loss = with_weights(targets, weight), SampleWeighted(loss)
            counts = weight > 0
        strata = target if target.ndim == 1 else target.mean(axis=1)
        aside = np.zeros(len(X), dtype=bool)
        aside[counts] = spread_rows(strata[counts], self.validation_fraction if self.early_stopping else 0.0, seed)
        rows, validates = int((~aside).sum()), bool(aside.any())
        network = self._network(X.shape[1], target.shape[1] if target.ndim == 2 else int(target.max()) + 1, seed)
        result = fit(
            network,
            loss,
            (inputs[~aside], targets[~aside]),
            optimizer=self.optimizer,
            optimizer_options=self._options(),
            batch_size=max(16, min(128, rows // 30)) if self.batch_size == "auto" else int(self.batch_size),
            seed=seed,
            max_epochs=self.max_epochs,
            time_limit=self.time_limit,
            validation=(inputs[aside], targets[aside]) if validates else None,
            patience=self.patience if validates else None,
            restore_best=validates,
            progress=bool(self.verbose),
        )
        if result.status is Status.DIVERGED:
            raise ValueError(f"Training diverged: {result.reason}; give a smaller lr, or optimizer='auto'")
        if result.status is Status.INTERRUPTED:
            warnings.warn("Training was interrupted; the finished epochs are kept.", stacklevel=2)
        layers = [layer for layer in network if isinstance(layer, nn.Linear)]
        self.coefs_ = [layer.weight.detach().numpy().T.copy() for layer in layers]
        self.intercepts_ = [layer.bias.detach().numpy().copy() for layer in layers]
        self.n_iter_ = len(result.history)
        self.loss_curve_ = [record.batch_loss for record in result.history]
        validation_losses = [record.validation_loss for record in result.history]
        self.validation_loss_curve_ = [value for value in validation_losses if value is not None]
        self.status_ = result.status.value
        return self

    def _encoded(self, y: Any) -> Any:
        """Return scaled targets (one column each) or numbers of classes, and keep what predicting needs."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        check_flag("early_stopping", self.early_stopping)
        check_fraction("validation_fraction", self.validation_fraction)
        check_part("dropout", self.dropout)
        for size in self._sizes():
            check_whole("hidden_layer_sizes", size, least=1)
        if self.batch_size != "auto":
            check_whole("batch_size", self.batch_size, least=1)

    def _sizes(self) -> list[int]:
        given = self.hidden_layer_sizes
        return list(given) if isinstance(given, Sequence | np.ndarray) else [given]

    def _options(self) -> dict[str, Any]:
        options = {"lr": _LR} if self.optimizer == "auto" else {}
        options |= self.optimizer_options or {}
        options |= {} if self.lr is None else {"lr": self.lr}
        return options | ({"weight_decay": self.weight_decay} if self.weight_decay else {})

    def _network(self, inputs: int, outputs: int, seed: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for width, following in itertools.pairwise([inputs, *self._sizes(), outputs]):
                layers += [nn.Linear(width, following), ACTIVATIONS[self.activation]()]
                layers += [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(*layers[: -2 if self.dropout else -1])  # the last layer is linear

    def _scaled(self, X: Any) -> Any:  # noqa: N803
        standard = (X - self.input_mean_) / self.input_scale_
        return standard / np.sqrt(1.0 + (standard / _OUTLIER) ** 2)

    def _outputs(self, X: Any) -> Tensor:  # noqa: N803
        """The network's outputs in double precision, so that a row's value does not depend on the rows beside it."""
        check_is_fitted(self, "coefs_")
        values = torch.as_tensor(self._scaled(validate_data(self, X, dtype=[np.float64, np.float32], reset=False)))
        weights = [torch.as_tensor(array).double() for array in (*self.coefs_, *self.intercepts_)]
        *hidden, last = zip(weights[: len(self.coefs_)], weights[len(self.coefs_) :], strict=True)
        activation = ACTIVATIONS[self.activation]()
        for coefs, intercepts in hidden:
            values = activation(values.double() @ coefs + intercepts)
        return values.double() @ last[0] + last[1]


class WatchedRegressor(RegressorMixin, _WatchedNetwork):  # type: ignore[misc]
    """A fully connected network for one or several targets, fitted by least squares.

    By default `Auto` trains it: SOAP under the watchdog, whose alarms are settled by the loss over all training rows.
    Inputs and targets are scaled inside, so no StandardScaler is needed. By default a tenth of the rows is kept aside,
    and the weights with the lowest loss on these rows are the result. `WatchedClassifier` has the same arguments.

    Attributes:
        coefs_: Weights of each layer as arrays (inputs, outputs).
        intercepts_: Biases of each layer as arrays.
        n_iter_: Number of epochs.
        loss_curve_: Mean batch loss of each epoch, in units of the scaled target.
        validation_loss_curve_: Loss of each epoch on the rows kept aside.
        status_: The rule that ended the training: "max_epochs", "patience", "time_limit" or "interrupted".
        input_mean_: Mean of each feature.
        input_scale_: Standard deviation of each feature.
        target_mean_: Mean of each target.
        target_scale_: Standard deviation of each target.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from cmalight import WatchedRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> WatchedRegressor(max_epochs=20, random_state=0).fit(X, y).score(X, y) > 0.4
        True
    """

    _loss = nn.MSELoss()
    _validation: ClassVar = {"multi_output": True, "y_numeric": True}

    def _encoded(self, y: Any) -> Any:
        table = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        scale = table.std(axis=0)
        self.target_mean_, self.target_scale_ = table.mean(axis=0), np.where(scale > 0, scale, 1.0)
        self._single_target = y.ndim == 1
        return (table - self.target_mean_) / self.target_scale_

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the targets of some rows.

        Args:
            X: Rows of features.

        Returns:
            One value per row; one row of values if `fit` had a table of targets.

        Raises:
            sklearn.exceptions.NotFittedError: Before `fit`.
            ValueError: The number of features differs, or values are missing or not finite.
        """
        outputs = self._outputs(X).numpy() * self.target_scale_ + self.target_mean_
        return outputs[:, 0] if self._single_target else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class WatchedClassifier(ClassifierMixin, _WatchedNetwork):  # type: ignore[misc]
    """A fully connected network with one output per class, fitted by cross entropy.

    By default `Auto` trains it: SOAP under the watchdog, whose alarms are settled by the loss over all training rows.
    Inputs are scaled inside, so no StandardScaler is needed. By default a tenth of the rows of each class is kept
    aside, and the weights with the lowest loss on these rows are the result. `WatchedRegressor` has the same arguments.

    Attributes:
        classes_: The classes in the order of the columns of `predict_proba`.
        coefs_: Weights of each layer as arrays (inputs, outputs).
        intercepts_: Biases of each layer as arrays.
        n_iter_: Number of epochs.
        loss_curve_: Mean batch loss of each epoch.
        validation_loss_curve_: Loss of each epoch on the rows kept aside.
        status_: The rule that ended the training: "max_epochs", "patience", "time_limit" or "interrupted".
        input_mean_: Mean of each feature.
        input_scale_: Standard deviation of each feature.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from cmalight import WatchedClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = WatchedClassifier(max_epochs=20, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
    """

    _loss = nn.CrossEntropyLoss()
    _validation: ClassVar = {}

    def _encoded(self, y: Any) -> Any:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"WatchedClassifier needs two classes or more, but the data has one class: {y[0]}")
        return codes

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the most probable class of each row.

        Args:
            X: Rows of features.

        Returns:
            One class per row.

        Raises:
            sklearn.exceptions.NotFittedError: Before `fit`.
            ValueError: The number of features differs, or values are missing or not finite.
        """
        chosen = self._outputs(X).argmax(dim=1)
        return self.classes_[chosen.numpy()]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Predict the probability of each class.

        Args:
            X: Rows of features.

        Returns:
            One row per row of `X`, one column per class in the order of `classes_`.

        Raises:
            sklearn.exceptions.NotFittedError: Before `fit`.
            ValueError: The number of features differs, or values are missing or not finite.
        """
        return torch.softmax(self._outputs(X), dim=1).numpy()

    def predict_log_proba(self, X: Any) -> Any:  # noqa: N803
        """Predict the logarithm of the probability of each class.

        Args:
            X: Rows of features.

        Returns:
            One row per row of `X`, one column per class in the order of `classes_`.

        Raises:
            sklearn.exceptions.NotFittedError: Before `fit`.
            ValueError: The number of features differs, or values are missing or not finite.
        """
        return torch.log_softmax(self._outputs(X), dim=1).numpy()


def spread_rows(strata: Any, fraction: float, seed: int) -> Any:
    """Choose a random fraction of rows that covers all classes, or the range of a number, evenly.

    Args:
        strata: Number of the class of each row (whole numbers), or a number for each row.
        fraction: Fraction of the rows to choose.
        seed: Random seed.

    Returns:
        A mask of the chosen rows. A class with a single row is not chosen.
    """
    chosen = np.zeros(len(strata), dtype=bool)
    count = math.floor(fraction * len(strata) + 0.5)
    shuffled = np.random.RandomState(seed).permutation(len(strata))
    in_order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    chosen[in_order[((np.arange(count) + 0.5) * len(strata) / max(count, 1)).astype(int)]] = True
    if np.issubdtype(strata.dtype, np.integer):
        chosen &= np.bincount(strata)[strata] > 1
    return chosen


def _tensor(values: Any) -> Tensor:
    """A copy for training: numbers in single precision, classes as they are."""
    return torch.tensor(values, dtype=torch.int64 if np.issubdtype(values.dtype, np.integer) else torch.float32)
