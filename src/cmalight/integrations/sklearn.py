"""Fully connected networks as scikit-learn estimators, trained by `cmalight.fit`."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cmalight.errors import check_choice, check_flag, check_fraction, check_whole, invalid, is_number, needed
from cmalight.models import ACTIVATIONS
from cmalight.training import Status, fit
from cmalight.training.weights import SampleWeighted, with_weights

with needed("The estimators need scikit-learn 1.6 or newer", "sklearn"):
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state, compute_sample_weight  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
    from sklearn.utils.validation import (  # type: ignore[import-untyped]
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )

_LR = 3e-3  # of "auto"; its own is higher and overfits small tables
_ROWS_AT_ONCE = 1 << 16
_OUTLIER = 3.0  # scaled inputs are drawn in smoothly so that none is further out than this


class _NetworkEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: scaling of the inputs, training, and the network's outputs."""

    _loss: nn.Module

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

    def _train(self, inputs: Any, target: Any, outputs: int, strata: Any, weight: Any) -> None:
        """Train a new network on checked arrays; the fitted attributes are set once it is done.

        Args:
            inputs: Rows of features.
            target: Scaled targets or numbers of classes.
            outputs: Width of the last layer.
            strata: One value per row; the validation rows cover its range, or its classes, evenly.
            weight: One weight per row, or None.
        """
        self._check_parameters()
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
        x, y = _float32(_scaled(inputs, mean, scale)), _float32(target)
        loss = self._loss
        if weight is not None:
            y, loss = with_weights(y, weight), SampleWeighted(self._loss)
        kept_aside = spread_rows(strata, self.validation_fraction if self.early_stopping else 0.0, seed)
        network = self._network([inputs.shape[1], *self._sizes(), outputs], seed)
        result = fit(
            network,
            loss,
            (x[~kept_aside], y[~kept_aside]),
            optimizer=self.optimizer,
            optimizer_options=self._optimizer_options(),
            batch_size=_batch_size(self.batch_size, int((~kept_aside).sum())),
            seed=seed,
            max_epochs=_plain(self.max_epochs),
            time_limit=self.time_limit,
            validation=(x[kept_aside], y[kept_aside]) if kept_aside.any() else None,
            patience=_plain(self.patience) if kept_aside.any() else None,
            restore_best=bool(kept_aside.any()),
            progress=bool(self.verbose),
        )
        if result.status is Status.DIVERGED:
            raise ValueError(f"Training diverged: {result.reason}; give a smaller lr, or optimizer='auto'")
        if result.status is Status.INTERRUPTED:
            warnings.warn("Training was interrupted; the finished epochs are kept.", stacklevel=3)
        layers = [layer for layer in network if isinstance(layer, nn.Linear)]
        self.coefs_ = [layer.weight.detach().numpy().T.copy() for layer in layers]
        self.intercepts_ = [layer.bias.detach().numpy().copy() for layer in layers]
        self.input_mean_, self.input_scale_ = mean, scale
        self.n_iter_ = len(result.history)
        self.loss_curve_ = [record.batch_loss for record in result.history]
        self.validation_loss_curve_ = [
            record.validation_loss for record in result.history if record.validation_loss is not None
        ]
        self.status_ = result.status.value

    def _network(self, sizes: Sequence[int], seed: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for inputs, outputs in itertools.pairwise(sizes):
                layers += [nn.Linear(inputs, outputs), ACTIVATIONS[self.activation]()]
                layers += [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(*layers[: -2 if self.dropout else -1])  # the last layer is linear

    def _check_parameters(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        check_flag("early_stopping", self.early_stopping)
        check_fraction("validation_fraction", self.validation_fraction)
        if not (is_number(self.dropout) and 0 <= self.dropout < 1):
            raise invalid("dropout", self.dropout, "a number >= 0 and less than 1")
        if self.batch_size != "auto":
            check_whole("batch_size", self.batch_size, least=1)

    def _sizes(self) -> list[int]:
        given = self.hidden_layer_sizes
        sizes = [given] if isinstance(given, int | np.integer) else list(given)
        for size in sizes:
            check_whole("hidden_layer_sizes", size, least=1)
        return [int(size) for size in sizes]

    def _optimizer_options(self) -> dict[str, Any]:
        options = dict(self.optimizer_options or {})
        if self.lr is not None:
            options["lr"] = self.lr
        elif self.optimizer == "auto":
            options.setdefault("lr", _LR)
        if self.weight_decay:
            options["weight_decay"] = self.weight_decay
        return options

    @torch.no_grad()
    def _outputs(self, X: Any) -> Any:  # noqa: N803
        """The network's outputs in double precision, so that a row's value does not depend on the rows beside it."""
        check_is_fitted(self, "coefs_")
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        inputs = torch.as_tensor(_scaled(rows, self.input_mean_, self.input_scale_), dtype=torch.float64)
        network = self._network([len(self.coefs_[0]), *(len(bias) for bias in self.intercepts_)], 0).double().eval()
        layers = (layer for layer in network if isinstance(layer, nn.Linear))
        for layer, coefs, intercepts in zip(layers, self.coefs_, self.intercepts_, strict=True):
            layer.weight.copy_(torch.as_tensor(coefs.T))
            layer.bias.copy_(torch.as_tensor(intercepts))
        return torch.cat([network(part) for part in torch.split(inputs, _ROWS_AT_ONCE)]).numpy()


class CMALightRegressor(RegressorMixin, _NetworkEstimator):  # type: ignore[misc]
    """A fully connected network that is fitted by least squares; one or several targets.

    Inputs and targets are scaled inside, so no StandardScaler is needed. By default a tenth of the rows is kept aside,
    and the weights with the lowest loss on these rows are the result.

    Args:
        hidden_layer_sizes: Neurons of each hidden layer.
        activation: "relu", "tanh", "sigmoid", "gelu" or "silu".
        dropout: Share of the neurons of each hidden layer that a training step leaves out.
        optimizer: A name that `cmalight.fit` knows, such as "auto", "cmalight" or "adamw-cosine".
        lr: Learning rate; None takes 0.003 for "auto" and the optimizer's own for others.
        weight_decay: Weight decay of the optimizer.
        optimizer_options: Other arguments of the optimizer.
        batch_size: Rows per step; "auto" makes about 30 batches per epoch, of 16 to 128 rows.
        max_epochs: Maximum number of epochs; None only with a time limit.
        time_limit: Maximum training time in seconds.
        early_stopping: Keep rows aside, stop when the loss on these rows no longer falls, and keep the best weights.
        validation_fraction: Share of the rows kept aside.
        patience: Epochs without a lower validation loss after which training stops.
        random_state: Seed of the initial weights, of the order of the rows and of the rows kept aside.
        verbose: Show the progress of the training.

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

    Raises:
        ValueError: In `fit`, not here: scikit-learn's rule is that a constructor stores its arguments unseen.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from cmalight import CMALightRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> CMALightRegressor(max_epochs=20, random_state=0).fit(X, y).score(X, y) > 0.4
        True
    """

    _loss = nn.MSELoss()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CMALightRegressor:  # noqa: N803
        """Train the network.

        Args:
            X: One row per sample.
            y: The target, or one column for each of several targets.
            sample_weight: Weight of each sample; None gives all the same weight.

        Returns:
            The estimator itself.

        Raises:
            ValueError: An argument is invalid, values are missing or not finite, or the training diverged.
        """
        X, y = validate_data(  # noqa: N806
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        table = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        weight = None if sample_weight is None else _weights(sample_weight, X)
        mean, spread = table.mean(axis=0), table.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        scaled = (table - mean) / scale
        self._train(X, scaled, table.shape[1], strata=scaled.mean(axis=1), weight=weight)
        self.target_mean_, self.target_scale_, self._single_target = mean, scale, y.ndim == 1
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict the targets of some rows.

        Args:
            X: Rows of features.

        Returns:
            One value per row; one row of values where `fit` had a table of targets.

        Raises:
            sklearn.exceptions.NotFittedError: Before `fit`.
            ValueError: The number of features differs, or values are missing or not finite.
        """
        outputs = self._outputs(X) * self.target_scale_ + self.target_mean_
        return outputs[:, 0] if self._single_target else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class CMALightClassifier(ClassifierMixin, _NetworkEstimator):  # type: ignore[misc]
    """A fully connected network with one output per class, fitted by cross entropy.

    Inputs are scaled inside, so no StandardScaler is needed. By default a tenth of the rows of each class is kept
    aside, and the weights with the lowest loss on these rows are the result.

    Args:
        hidden_layer_sizes: Neurons of each hidden layer.
        activation: "relu", "tanh", "sigmoid", "gelu" or "silu".
        dropout: Share of the neurons of each hidden layer that a training step leaves out.
        optimizer: A name that `cmalight.fit` knows, such as "auto", "cmalight" or "adamw-cosine".
        lr: Learning rate; None takes 0.003 for "auto" and the optimizer's own for others.
        weight_decay: Weight decay of the optimizer.
        optimizer_options: Other arguments of the optimizer.
        batch_size: Rows per step; "auto" makes about 30 batches per epoch, of 16 to 128 rows.
        max_epochs: Maximum number of epochs; None only with a time limit.
        time_limit: Maximum training time in seconds.
        early_stopping: Keep rows aside, stop when the loss on these rows no longer falls, and keep the best weights.
        validation_fraction: Share of the rows kept aside.
        patience: Epochs without a lower validation loss after which training stops.
        class_weight: "balanced" gives all classes the same weight in the loss; a dict gives the weight of each class.
        random_state: Seed of the initial weights, of the order of the rows and of the rows kept aside.
        verbose: Show the progress of the training.

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

    Raises:
        ValueError: In `fit`, not here: scikit-learn's rule is that a constructor stores its arguments unseen.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from cmalight import CMALightClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = CMALightClassifier(max_epochs=20, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
    """

    _loss = nn.CrossEntropyLoss()

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
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            dropout=dropout,
            optimizer=optimizer,
            lr=lr,
            weight_decay=weight_decay,
            optimizer_options=optimizer_options,
            batch_size=batch_size,
            max_epochs=max_epochs,
            time_limit=time_limit,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CMALightClassifier:  # noqa: N803
        """Train the network.

        Args:
            X: One row per sample.
            y: The class of each sample.
            sample_weight: Weight of each sample, multiplied by its class weight; None gives all the same weight.

        Returns:
            The estimator itself.

        Raises:
            ValueError: An argument is invalid, values are missing or not finite, there is a single class, or the
                training diverged.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])  # noqa: N806
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"CMALightClassifier needs two classes or more, but the data has one class: {classes[0]}")
        weight = None if sample_weight is None else _weights(sample_weight, X)
        if self.class_weight is not None:
            weight = compute_sample_weight(self.class_weight, y) * (1.0 if weight is None else weight)
        self._train(X, codes, len(classes), strata=codes, weight=weight)
        self.classes_ = classes
        return self

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
        chosen = self._outputs(X).argmax(axis=1)
        return self.classes_[chosen]

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
        return torch.softmax(torch.as_tensor(self._outputs(X)), dim=1).numpy()

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
        return torch.log_softmax(torch.as_tensor(self._outputs(X)), dim=1).numpy()


def spread_rows(strata: Any, share: float, seed: int) -> Any:
    """Choose a random share of rows that covers all classes, or the range of a number, evenly.

    Args:
        strata: Number of the class of each row (whole numbers), or a number for each row.
        share: Share of the rows to choose.
        seed: Random seed.

    Returns:
        A mask of the chosen rows. A class with a single row is not chosen.
    """
    chosen = np.zeros(len(strata), dtype=bool)
    count = math.floor(share * len(strata) + 0.5)
    shuffled = np.random.RandomState(seed).permutation(len(strata))
    in_order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    chosen[in_order[((np.arange(count) + 0.5) * len(strata) / max(count, 1)).astype(int)]] = True
    if np.issubdtype(strata.dtype, np.integer):
        chosen &= np.bincount(strata)[strata] > 1
    return chosen


def _scaled(inputs: Any, mean: Any, scale: Any) -> Any:
    """Standardised features with outliers drawn in."""
    standard = (inputs - mean) / scale
    return standard / np.sqrt(1.0 + (standard / _OUTLIER) ** 2)


def _weights(sample_weight: Any, inputs: Any) -> Any:
    return _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)


def _batch_size(given: Any, rows: int) -> int:
    return max(16, min(128, rows // 30)) if given == "auto" else int(given)


def _plain(number: Any) -> Any:
    """Convert NumPy's whole numbers, which searches over an array hand out."""
    return int(number) if isinstance(number, np.integer) else number


def _float32(values: Any) -> Tensor:
    """A copy for training: numbers in single precision, classes as they are."""
    return torch.tensor(values, dtype=torch.int64 if np.issubdtype(values.dtype, np.integer) else torch.float32)
