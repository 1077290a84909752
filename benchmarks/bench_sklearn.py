"""CMALightRegressor and CMALightClassifier against scikit-learn's MLPs: same network, rows, batches and epochs."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from common import interleaved, quick_option, ratio, table
from sklearn.datasets import load_diabetes, load_digits, make_classification
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from cmalight import CMALightClassifier, CMALightRegressor
from cmalight.datasets.generated import teacher_network

HIDDEN, BATCH, EPOCHS = (50,), 64, 50


@dataclass(frozen=True)
class Problem:
    """Rows to train on and rows to test on; scaled inputs, and for numbers scaled targets."""

    name: str
    x: Any
    y: Any
    x_test: Any
    y_test: Any
    classes: bool

    @classmethod
    def made(cls, name: str, x: Any, y: Any, *, classes: bool) -> Problem:
        parts = train_test_split(x, y, random_state=0, stratify=y if classes else None)
        scaler = StandardScaler().fit(parts[0])
        if not classes:
            mean, spread = parts[2].mean(), parts[2].std()
            parts[2:] = [(part - mean) / spread for part in parts[2:]]
        return cls(name, scaler.transform(parts[0]), parts[2], scaler.transform(parts[1]), parts[3], classes)

    def loss(self, model: Any, x: Any, y: Any) -> float:
        if self.classes:
            return float(log_loss(y, model.predict_proba(x), labels=model.classes_))
        return float(mean_squared_error(y, model.predict(x)))


@dataclass(frozen=True)
class Trained:
    """How long one training took, what it reached, and (for ours) the seconds and mean losses of its epochs."""

    seconds: float
    epochs: tuple[tuple[float, float], ...]
    train_loss: float
    test_loss: float
    score: float


def problems() -> list[Problem]:
    x, y = (part.double().numpy() for part in teacher_network(8000, 10, noise=0.1))
    many = make_classification(8000, 30, n_informative=20, n_classes=5, class_sep=1.0, random_state=0)
    return [
        Problem.made("teacher, 6000 x 10", x, y[:, 0], classes=False),
        Problem.made("diabetes, 331 x 10", *load_diabetes(return_X_y=True), classes=False),
        Problem.made("digits, 1347 x 64", *load_digits(return_X_y=True), classes=True),
        Problem.made("5 classes, 6000 x 30", *many, classes=True),
    ]


def contestants(problem: Problem, seed: int) -> dict[str, Callable[[], Any]]:
    """All with tanh; MLP's own solver is Adam."""
    ours = CMALightClassifier if problem.classes else CMALightRegressor
    theirs = MLPClassifier if problem.classes else MLPRegressor
    common = {"hidden_layer_sizes": HIDDEN, "activation": "tanh", "batch_size": BATCH, "random_state": seed}
    return {
        "MLP (adam)": lambda: theirs(**common, max_iter=EPOCHS, alpha=0.0, tol=0.0, n_iter_no_change=EPOCHS),
        "MLP (sgd)": lambda: theirs(
            **common, max_iter=EPOCHS, alpha=0.0, tol=0.0, n_iter_no_change=EPOCHS, solver="sgd"
        ),
        "CMALight": lambda: ours(**common, max_epochs=EPOCHS),
        "CMALight (adam)": lambda: ours(**common, max_epochs=EPOCHS, optimizer="adam"),
    }


def train(problem: Problem, make: Callable[[], Any]) -> Trained:
    model = make()
    start = time.perf_counter()
    model.fit(problem.x, problem.y)
    seconds = time.perf_counter() - start
    return Trained(
        seconds,
        tuple((record.seconds, record.f_tilde) for record in getattr(model, "history_", ())),
        problem.loss(model, problem.x, problem.y),
        problem.loss(model, problem.x_test, problem.y_test),
        float(model.score(problem.x_test, problem.y_test)),
    )


def rows(problem: Problem, seeds: int) -> list[list[str]]:
    results: dict[str, list[Trained]] = {}
    for seed in range(seeds):
        made = contestants(problem, seed)
        functions = {name: lambda make=make: train(problem, make) for name, make in made.items()}
        for name, once in interleaved(functions, 1, warmup=0).items():
            results.setdefault(name, []).extend(once)
    base = results["MLP (adam)"]

    def median(values: list[float]) -> float:
        return statistics.median(values)

    def share_of_time_to_the_same_loss(runs: list[Trained]) -> str:
        """An epoch's mean loss is taken while it falls, so this is rather too late than too early."""
        if not runs[0].epochs:
            return ""
        shares = [
            next((seconds for seconds, loss in run.epochs if loss <= mlp.train_loss), math.inf) / mlp.seconds
            for run, mlp in zip(runs, base, strict=True)
        ]
        return f"**{median(shares):.2f}**" if math.isfinite(median(shares)) else "not reached"

    return [
        [
            problem.name,
            name,
            f"{median([t.seconds for t in runs]):.2f} s",
            f"**{ratio([t.seconds for t in runs], [t.seconds for t in base]):.2f}**",
            share_of_time_to_the_same_loss(runs),
            f"{median([t.train_loss for t in runs]):.4f}",
            f"{median([t.test_loss for t in runs]):.4f}",
            f"{median([t.score for t in runs]):.3f}",
        ]
        for name, runs in results.items()
    ]


def main() -> None:
    seeds = 1 if quick_option(__doc__) else 5
    torch.set_num_threads(1)
    np.seterr(all="raise", under="ignore")
    warnings.filterwarnings("ignore", category=Warning, module="sklearn")
    header = [
        "data",
        "estimator",
        f"{EPOCHS} epochs",
        "of MLP (adam)",
        "to MLP (adam)'s training loss, of its time",
        "training loss",
        "test loss",
        "test score",
    ]
    print(table(header, [row for problem in problems() for row in rows(problem, seeds)]))


if __name__ == "__main__":
    main()
