"""What the scikit-learn estimators share: the network, its training by `fit`, its outputs."""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.errors import check_choice, check_flag, check_fraction, needed

with needed("The estimators need scikit-learn 1.6 or newer", "sklearn"):
    import numpy as np
    from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state  # type: ignore[import-untyped]
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # type: ignore[import-untyped]

from cmalight.evaluation.batches import Order, TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.models.layered import ACTIVATIONS
from cmalight.optim import CMA, CMALight
from cmalight.optim.host import EpochOptimizer
from cmalight.training.data.feed import auto_batch_size
from cmalight.training.data.weights import SampleWeighted, with_weights
from cmalight.training.fitting import FitResult, fit
from cmalight.training.records.history import EpochRecord, History
from cmalight.training.records.stopping import Status
from cmalight.training.solvers.optimizers import make_optimizer

_ROWS_AT_ONCE = 1 << 16


class NetworkEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the network, the training, and the outputs."""

    _loss: nn.Module
    _weighted_loss: nn.Module
    network_: nn.Sequential
    n_iter_: int
    loss_curve_: list[float]
    history_: History
    _optimizer: Optimizer
    _structure: tuple[list[int], str]

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        *,
        activation: str = "tanh",
        optimizer: str = "auto",
        lr: float | None = None,
        weight_decay: float = 0.0,
        optimizer_options: Mapping[str, Any] | None = None,
        batch_size: int | Literal["auto"] = "auto",
        order: Order = "reshuffle",
        max_epochs: int | None = 100,
        time_limit: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer_options = optimizer_options
        self.batch_size = batch_size
        self.order = order
        self.max_epochs = max_epochs
        self.time_limit = time_limit
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, inputs: Any, target: Any, outputs: int, *, stratify: Any, sample_weight: Any) -> None:
        """Train the network, a new one or, with warm_start, the one there is, on arrays that were checked."""
        self._check_parameters()
        self._weighted_loss = self._loss
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)
            target = with_weights(target, weight).to(_dtype_of(inputs)).numpy()
            self._weighted_loss = SampleWeighted(self._loss)
        sizes = [inputs.shape[1], *_sizes(self.hidden_layer_sizes), outputs]
        goes_on = self._goes_on()
        if goes_on:
            self._require_same_network((sizes, self.activation))
            self.network_, self._optimizer = copy.deepcopy((self.network_, self._optimizer))  # this fit may fail
        else:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self.n_iter_, self.loss_curve_ = 0, []
            self.network_ = _network(sizes, self.activation, self._seed).to(_dtype_of(inputs))
            self._structure = (sizes, self.activation)
        training, validation = self._parts(inputs, target, stratify)
        batches = TensorBatches(
            *training, batch_size=self._batch_size(len(training[0])), order=self.order, seed=self._seed
        )
        batches.set_epoch(self.n_iter_)
        optimizer = self._kept_optimizer(batches) if goes_on else None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*has stalled", category=RuntimeWarning)  # said below, once
            result = self._fit(batches, validation, optimizer)
        self._conclude(result, batches)

    def _fit(self, batches: TensorBatches, validation: Any, kept: Optimizer | None) -> FitResult:
        optimizer = kept or make_optimizer(self.optimizer, self.network_.parameters(), self._optimizer_options())
        # Others shrink their lr on purpose, over a schedule or a budget.
        may_stall = isinstance(optimizer, CMALight | CMA)
        return fit(
            self.network_,
            self._weighted_loss,
            batches,
            optimizer=optimizer,
            seed=self._seed,
            max_epochs=_plain(self.max_epochs),
            time_limit=self.time_limit,
            validation=validation,
            patience=_plain(self.patience) if self.early_stopping else None,
            restore_best=bool(self.early_stopping),
            callbacks=(_StopWhenTooSmall(torch.finfo(batches.tensors[0].dtype).eps),) if may_stall else (),
            progress=bool(self.verbose),
        )

    def _conclude(self, result: FitResult, batches: TensorBatches) -> None:
        if result.status is Status.DIVERGED:
            raise ValueError(f"Training diverged: {result.reason}; give a smaller lr, or optimizer='auto'")
        self._optimizer, self._data_seen = result.optimizer, _fingerprint(batches)
        self._made_as = (self.optimizer, self._optimizer_options())
        self.status_ = result.status.value
        self.history_ = result.history
        self.evaluations_ = result.evaluations
        self.n_iter_ += result.epochs
        self.loss_curve_ = self.loss_curve_ + [record.f_tilde for record in result.history]
        self.loss_ = Objective(self.network_, self._weighted_loss, batches)()
        if result.status is Status.INTERRUPTED:
            warnings.warn("Training was interrupted; the weights of the last whole epoch are kept.", stacklevel=4)
        stalled = isinstance(result.optimizer, EpochOptimizer) and result.optimizer.control.state.stall_reported
        if stalled or result.status is Status.CALLBACK:
            warnings.warn(
                f"{type(self).__name__} stopped making progress after {self.n_iter_} epochs: try another lr, "
                "scaled inputs (StandardScaler), or optimizer='cmalight-certified'",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _goes_on(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "network_")

    def _kept_optimizer(self, batches: TensorBatches) -> Optimizer | None:
        """With the data of the last call the control goes on; other data is another objective.

        None where another optimizer, or other options of it, are asked for by now.
        """
        if self._made_as != (self.optimizer, self._optimizer_options()):
            return None
        if _fingerprint(batches) != self._data_seen and hasattr(self._optimizer, "restart"):
            self._optimizer.restart(Objective(self.network_, self._weighted_loss, batches))
        return self._optimizer

    def _input_types(self) -> Any:
        """A network that goes on keeps its precision."""
        return _dtypes(self.network_) if self._goes_on() else [np.float64, np.float32]

    def _check_parameters(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        for name in ("warm_start", "early_stopping"):
            check_flag(name, getattr(self, name))
        if self.early_stopping:
            check_fraction("validation_fraction", self.validation_fraction)

    def _require_same_network(self, wanted: tuple[list[int], str]) -> None:
        if self._structure != wanted:
            kept, asked = (
                f"layers {sizes} and activation {activation!r}" for sizes, activation in (self._structure, wanted)
            )
            raise ValueError(
                f"warm_start goes on with a network of {kept}, but this fit needs {asked}: set warm_start=False, "
                "or keep the features, targets, hidden_layer_sizes and activation"
            )

    def _optimizer_options(self) -> dict[str, Any]:
        options = dict(self.optimizer_options or {})
        if self.lr is not None:
            options["lr"] = self.lr
        if self.weight_decay:
            options["weight_decay"] = self.weight_decay
        return options

    def _batch_size(self, rows: int) -> int:
        if self.batch_size != "auto":
            return _plain(self.batch_size)  # type: ignore[no-any-return]
        return auto_batch_size(rows)

    def _parts(self, inputs: Any, target: Any, stratify: Any) -> tuple[tuple[Tensor, Tensor], Any]:
        if not self.early_stopping:
            return (_tensor(inputs), _tensor(target)), None
        parts = train_test_split(
            inputs, target, test_size=self.validation_fraction, random_state=self._seed, stratify=stratify
        )
        x, x_validation, y, y_validation = (_tensor(part) for part in parts)
        return (x, y), (x_validation, y_validation)

    @torch.no_grad()
    def _outputs(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        inputs = _tensor(validate_data(self, X, dtype=_dtypes(self.network_), reset=False))
        self.network_.eval()
        return torch.cat([self.network_(part) for part in torch.split(inputs, _ROWS_AT_ONCE)]).numpy()


@contextlib.contextmanager
def all_or_nothing(estimator: NetworkEstimator) -> Iterator[None]:
    """A fit that fails leaves the estimator as it was: not fitted, or with the model it had."""
    kept = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(kept)
        raise


class _StopWhenTooSmall:
    """Ends a training whose step size has shrunk below rounding: it cannot move any more."""

    def __init__(self, rounding: float) -> None:
        self._rounding = rounding
        self._first: float | None = None

    def on_epoch_end(self, record: EpochRecord) -> bool:
        self._first = self._first or record.lr
        return record.lr <= self._rounding * self._first


def _sizes(hidden_layer_sizes: Any) -> list[int]:
    sizes = [hidden_layer_sizes] if isinstance(hidden_layer_sizes, int | np.integer) else list(hidden_layer_sizes)
    if not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
        raise ValueError(
            f"Invalid hidden_layer_sizes value: {hidden_layer_sizes!r}; expected whole numbers >= 1, such as (50, 50)"
        )
    return [int(size) for size in sizes]


def _network(sizes: list[int], activation: str, seed: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])  # the outputs are linear


def _plain(number: Any) -> Any:
    """Searches over an array hand out NumPy's whole numbers."""
    return int(number) if isinstance(number, np.integer) else number


def _dtype_of(inputs: Any) -> torch.dtype:
    return torch.float32 if inputs.dtype == np.float32 else torch.float64


def _dtypes(network: nn.Module) -> Any:
    return np.float32 if next(network.parameters()).dtype is torch.float32 else np.float64


def _tensor(values: Any) -> Tensor:
    """A copy: what the user holds may be read-only, and may change."""
    return torch.tensor(values)


def _fingerprint(batches: TensorBatches) -> tuple[int, ...]:
    """Tells data apart that a warm start would otherwise take for the same."""
    return tuple(zlib.crc32(t.numpy().tobytes()) for t in batches.tensors)
