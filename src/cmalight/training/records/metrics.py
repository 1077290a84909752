"""Figures of merit, gathered over batches, and measured beside the training, which does not notice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cmalight.errors import needed, unknown_name
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import sample_count
from cmalight.evaluation.larger_batches import merged
from cmalight.evaluation.undisturbed import undisturbed
from cmalight.training.data.feed import to_device


class Metric(Protocol):
    """Gathers over batches; `value` is the figure for all of them together."""

    def update(self, output: Tensor, target: Tensor) -> None: ...
    def value(self) -> float: ...


class MeanError:
    """The mean over all elements of a figure of each difference, and then a figure of that mean."""

    def __init__(
        self, each: Callable[[Tensor], Tensor] = torch.square, whole: Callable[[float], float] = lambda mean: mean
    ) -> None:
        self._each, self._whole = each, whole
        self._sum = 0.0
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        self._sum += float(self._each((output.reshape(target.shape) - target).double()).sum())
        self._count += target.numel()

    def value(self) -> float:
        return self._whole(self._sum / self._count) if self._count else math.nan


class R2:
    """1 − (residual sum of squares)/(total sum of squares), each output's own mean; the mean over outputs."""

    def __init__(self) -> None:
        self._count = 0
        self._residual: Tensor | float = 0.0
        self._mean: Tensor | float = 0.0
        self._total: Tensor | float = 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        target = target.double().reshape(len(target), -1)
        self._residual = self._residual + (output.double().reshape(len(target), -1) - target).square().sum(0)
        # Welford's update for a whole batch: no cancellation where the mean is large against the spread.
        count, mean = len(target), target.mean(0)
        shift = mean - self._mean
        weight = self._count * count / (self._count + count)
        self._total = self._total + (target - mean).square().sum(0) + shift.square() * weight
        self._mean = self._mean + shift * count / (self._count + count)
        self._count += count

    def value(self) -> float:
        return float((1 - torch.as_tensor(self._residual) / torch.as_tensor(self._total)).mean())


class Accuracy:
    """The share of samples whose largest output is that of their class; one output means two classes, cut at 0."""

    def __init__(self) -> None:
        self._right = 0
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        wanted = _classes(output, target)
        self._right += int((_chosen(output) == wanted).sum())
        self._count += wanted.numel()

    def value(self) -> float:
        return self._right / self._count if self._count else math.nan


class OverAll:
    """Keeps all outputs and targets, for a figure that exists for all of them together only.

    Args:
        figure: called as `figure(outputs, targets)`, on the CPU.
    """

    def __init__(self, figure: Callable[[Tensor, Tensor], Any]) -> None:
        self._figure = figure
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []

    def update(self, output: Tensor, target: Tensor) -> None:
        self._outputs.append(output.detach().cpu())
        self._targets.append(target.detach().cpu())

    def value(self) -> float:
        return float(self._figure(torch.cat(self._outputs), torch.cat(self._targets))) if self._outputs else math.nan


def f1(output: Tensor, target: Tensor) -> float:
    """The mean over the classes of the harmonic mean of precision and recall."""
    wanted, chosen = _classes(output, target), _chosen(output)
    return float(_sklearn().f1_score(wanted, chosen, average="macro", zero_division=0.0))


def auc(output: Tensor, target: Tensor) -> float:
    """The area under the ROC curve, of several classes the mean of each against the rest; NaN where one is absent."""
    wanted, chances = _classes(output, target), _probabilities(output)
    if len(set(wanted.tolist())) < chances.shape[1]:
        return math.nan
    scores = chances[:, 1] if chances.shape[1] == 2 else chances
    return float(_sklearn().roc_auc_score(wanted, scores, multi_class="ovr"))


def log_loss(output: Tensor, target: Tensor) -> float:
    """The mean of -log of the probability that the right class was given."""
    chances = _probabilities(output)
    return float(_sklearn().log_loss(_classes(output, target), chances, labels=range(chances.shape[1])))


def _chosen(output: Tensor) -> Tensor:
    return output.argmax(1) if _is_wide(output) else (output.reshape(-1) > 0).long()


def _classes(output: Tensor, target: Tensor) -> Tensor:
    """The right class of each sample: a label, or the largest of as many targets as outputs."""
    if _is_wide(output):
        return target.argmax(1) if target.dim() > 1 and target.shape == output.shape else target.long()
    return (target.reshape(-1) > 0.5).long()


def _probabilities(output: Tensor) -> Tensor:
    if _is_wide(output):
        return torch.softmax(output.double(), dim=1)
    of_one = torch.sigmoid(output.double().reshape(-1))
    return torch.stack((1 - of_one, of_one), dim=1)


def _is_wide(output: Tensor) -> bool:
    return output.dim() > 1 and output.shape[1] > 1


def _sklearn() -> Any:
    with needed("This metric is scikit-learn's", "data"):
        import sklearn.metrics  # type: ignore[import-untyped]
    return sklearn.metrics


METRICS: dict[str, Callable[[], Metric]] = {
    "mse": MeanError,
    "rmse": partial(MeanError, whole=math.sqrt),
    "mae": partial(MeanError, torch.abs),
    "r2": R2,
    "accuracy": Accuracy,
    "f1": partial(OverAll, f1),
    "auc": partial(OverAll, auc),
    "log_loss": partial(OverAll, log_loss),
}

_BEST_WHEN_SMALL = ("mse", "rmse", "mae", "log_loss")

MetricChoice = str | Callable[[Tensor, Tensor], Any]
"""A name of `METRICS`, or a function of all outputs and all targets."""


def metric_name(metric: MetricChoice) -> str:
    """What a metric is called in the history: a function by its own name."""
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))


def is_best_when_small(name: str) -> bool:
    """Whether the smaller value of a metric is the better one; functions of the user's own are best when large."""
    return name in _BEST_WHEN_SMALL


def make_metrics(metrics: Iterable[MetricChoice]) -> dict[str, Metric]:
    """Fresh metrics by name.

    Args:
        metrics: names, or functions that are called as `function(outputs, targets)` and give a number.

    Raises:
        ValueError: a name is not known, or two metrics have the same name.
    """
    made: dict[str, Metric] = {}
    for metric in metrics:
        name = metric_name(metric)
        if name in made or (callable(metric) and name in METRICS):
            raise ValueError(f"Two metrics are called {name!r}: give each another name, a function by its __name__")
        if callable(metric):
            made[name] = OverAll(metric)
        elif metric in METRICS:
            made[name] = METRICS[metric]()
        else:
            raise ValueError(unknown_name("metric", str(metric), METRICS))
    return made


def measured(metrics: Iterable[MetricChoice], output: Tensor, target: Tensor) -> dict[str, float]:
    """The metrics of one set of outputs."""
    made = make_metrics(metrics)
    for metric in made.values():
        metric.update(output, target)
    return {name: metric.value() for name, metric in made.items()}


@torch.no_grad()
def measure(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    loader: Iterable[Any],
    chosen: Sequence[MetricChoice],
    device: torch.device,
) -> tuple[float, dict[str, float]]:
    """Mean loss and metrics over `loader` in eval mode."""
    metrics = make_metrics(chosen)
    total, samples = 0.0, 0.0
    with undisturbed(model, loader, loss_fn):
        model.eval()
        for inputs, target in merged(loader, model) if isinstance(loader, TensorBatches) else loader:
            target = to_device(target, device)
            output = model(to_device(inputs, device))
            count = sample_count(loss_fn, target) or 0.0
            total += float(loss_fn(output, target)) * count
            samples += count
            for metric in metrics.values():
                metric.update(output, target)
    if not samples:
        raise ValueError("The validation data gave no batch; it must give at least one, on every pass")
    return total / samples, {name: metric.value() for name, metric in metrics.items()}
