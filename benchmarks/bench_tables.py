"""The estimators beside MLP, HistGradientBoosting and a linear model on the same five splits of eight sets.

    CMALIGHT_DATA=FOLDER python benchmarks/bench_tables.py --results tables.jsonl

Each finished fit is one line of the results file. The same command goes on where it stopped; --show prints the table of
what is there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmalight import CMALightClassifier, CMALightRegressor
from cmalight.datasets import load_dataset

REGRESSION = ("diabetes", "california", "bikes", "ailerons")
CLASSIFICATION = ("breast-cancer", "digits", "wine", "skin-nonskin")
ROWS, SPLITS = 5000, 5


def data(name: str) -> tuple[Any, Any]:
    whole = load_dataset(name, scale=False)
    x = np.concatenate((whole.x_train, whole.x_test)).astype(np.float64)
    y = np.concatenate((whole.y_train, whole.y_test)).reshape(len(x))
    chosen = np.random.default_rng(0).permutation(len(x))[:ROWS]
    return x[chosen], y[chosen]


def contestants(name: str, seed: int) -> dict[str, Any]:
    if name in CLASSIFICATION:
        return {
            "cmalight": CMALightClassifier(random_state=seed),
            "MLP": make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
            "boosting": HistGradientBoostingClassifier(random_state=seed),
            "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        }
    mlp = TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
    return {
        "cmalight": CMALightRegressor(random_state=seed),
        "MLP": make_pipeline(StandardScaler(), mlp),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
        "linear": make_pipeline(StandardScaler(), Ridge()),
    }


def measure(path: Path, names: list[str]) -> None:
    done = {(one["set"], one["model"], one["split"]) for one in records(path)}
    for split in range(SPLITS):
        for name in names:
            x, y = data(name)
            strata = y if name in CLASSIFICATION else None
            x, x_test, y, y_test = train_test_split(x, y, random_state=split, stratify=strata)
            for model, estimator in contestants(name, split).items():
                if (name, model, split) in done:
                    continue
                begin = time.process_time()
                estimator.fit(x, y)
                seconds = time.process_time() - begin
                record = {"set": name, "model": model, "split": split, "rows": len(x), "features": x.shape[1]}
                with path.open("a") as file:
                    file.write(json.dumps({**record, "seconds": seconds, **score(estimator, x_test, y_test)}) + "\n")


def score(estimator: Any, x: Any, y: Any) -> dict[str, float]:
    if not hasattr(estimator, "predict_proba"):
        return {"score": r2_score(y, estimator.predict(x))}
    loss = log_loss(y, estimator.predict_proba(x), labels=estimator.classes_)
    return {"score": loss, "accuracy": accuracy_score(y, estimator.predict(x))}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(path: Path) -> str:
    found = records(path)
    models = ("cmalight", "MLP", "boosting", "linear")
    lines = [f"| set | score | {' | '.join(models)} |", "|---|---|" + "---:|" * len(models)]
    for name in (*REGRESSION, *CLASSIFICATION):
        of_set = [one for one in found if one["set"] == name]
        if not of_set:
            continue
        cells = []
        for model in models:
            runs = [one for one in of_set if one["model"] == model]
            values = [one["score"] for one in runs]
            seconds = np.mean([one["seconds"] for one in runs])
            cells.append(f"{np.mean(values):.3f} ± {np.std(values):.3f} ({seconds:.1f} s)" if runs else "")
        size = f"{name}, {of_set[0]['rows']} x {of_set[0]['features']}"
        lines.append(f"| {size} | {'log loss' if name in CLASSIFICATION else 'r²'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("tables.jsonl"), help="file of results, one line per fit")
    parser.add_argument("--only", nargs="+", default=[*REGRESSION, *CLASSIFICATION], help="sets to measure")
    parser.add_argument("--show", action="store_true", help="print the table of what is there, and measure nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="sklearn")
    if not arguments.show:
        measure(arguments.results, arguments.only)
    print(table(arguments.results))


if __name__ == "__main__":
    main()
