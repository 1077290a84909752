"""Metrics of all outputs and targets together, measured without a trace on the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from cmalight.errors import unknown_name

Metric = Callable[[Tensor, Tensor], Any]


def mse(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over all elements."""
    return (output.reshape(target.shape).double() - target.double()).square().mean()


def mae(output: Tensor, target: Tensor) -> Tensor:
    """Mean absolute error over all elements."""
    return (output.reshape(target.shape).double() - target.double()).abs().mean()


def r2(output: Tensor, target: Tensor) -> Tensor:
    """Coefficient of determination: 1 - residual / total sum of squares, the mean over outputs."""
    wanted = target.double().reshape(len(target), -1)
    residual = (output.double().reshape(len(target), -1) - wanted).square().sum(0)
    return (1 - residual / (wanted - wanted.mean(0)).square().sum(0)).mean()


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Share of samples given their own class; one output means two classes, cut at 0."""
    return (_chosen(output) == _classes(output, target)).double().mean()


def f1(output: Tensor, target: Tensor) -> float:
    """Harmonic mean of precision and recall, the mean over the classes that appear."""
    wanted, chosen = _classes(output, target), _chosen(output)
    scores = []
    for label in torch.unique(torch.cat((wanted.flatten(), chosen.flatten()))):
        hits = int(((wanted == label) & (chosen == label)).sum())
        scores.append(2 * hits / (int((wanted == label).sum()) + int((chosen == label).sum())))
    return sum(scores) / len(scores)


def auc(output: Tensor, target: Tensor) -> float:
    """Area under the ROC curve; of several classes the mean of each against the rest; NaN where one is absent."""
    wanted, chances = _classes(output, target), _probabilities(output)
    labels = [1] if chances.shape[1] == 2 else range(chances.shape[1])
    areas = [_area(chances[:, label], wanted == label) for label in labels]
    return sum(areas) / len(areas)


def log_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean of -log of the probability that was given to the right class."""
    chances = _probabilities(output).log()
    return -chances.gather(1, _classes(output, target)[:, None]).mean()


METRICS: dict[str, Metric] = {
    "mse": mse,
    "rmse": lambda output, target: mse(output, target).sqrt(),
    "mae": mae,
    "r2": r2,
    "accuracy": accuracy,
    "f1": f1,
    "auc": auc,
    "log_loss": log_loss,
}

BEST_WHEN_SMALL = ("loss", "mse", "rmse", "mae", "log_loss")
"""What `monitor` may name for which less is better; more of all other metrics, the user's own included, is better."""


def make_metrics(chosen: Sequence[str | Metric]) -> dict[str, Metric]:
    """Metrics by name; a function's name is its own.

    Raises:
        ValueError: A name is not known, or two metrics have the same name.
    """
    made: dict[str, Metric] = {}
    for metric in chosen:
        if isinstance(metric, str) and metric not in METRICS:
            raise ValueError(unknown_name("metric", metric, METRICS))
        name = metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))
        if name in made or (callable(metric) and name in ("loss", *METRICS)):
            raise ValueError(f"Two metrics are called {name!r}: give each its own name, a function by its __name__")
        made[name] = METRICS[metric] if isinstance(metric, str) else metric
    return made


def evaluate_metrics(
    metrics: dict[str, Metric], outputs: Iterable[Tensor], targets: Iterable[Tensor]
) -> dict[str, float]:
    """The metrics of batches of outputs and targets, joined on the CPU."""
    if not metrics:
        return {}
    output, target = (torch.cat([part.detach().cpu() for part in parts]) for parts in (outputs, targets))
    return {name: float(metric(output, target)) for name, metric in metrics.items()}


def _area(score: Tensor, positive: Tensor) -> float:
    """The share of pairs of a positive and a negative in which the positive scores higher; ties count half."""
    score = score.contiguous()
    ordered = score.sort().values
    ranks = (torch.searchsorted(ordered, score) + torch.searchsorted(ordered, score, right=True) + 1).double() / 2
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    return (float(ranks[positive].sum()) - positives * (positives + 1) / 2) / (positives * negatives)


def _is_wide(output: Tensor) -> bool:
    return output.dim() > 1 and output.shape[1] > 1


def _chosen(output: Tensor) -> Tensor:
    return output.argmax(1) if _is_wide(output) else (output.reshape(-1) > 0).long()


def _classes(output: Tensor, target: Tensor) -> Tensor:
    """The class of each sample: a label, or the largest of as many targets as outputs."""
    if not _is_wide(output):
        return (target.reshape(-1) > 0.5).long()
    return target.argmax(1) if target.dim() > 1 and target.shape == output.shape else target.long()


def _probabilities(output: Tensor) -> Tensor:
    if _is_wide(output):
        return torch.softmax(output.double(), dim=1)
    of_one = torch.sigmoid(output.double().reshape(-1))
    return torch.stack((1 - of_one, of_one), dim=1)
