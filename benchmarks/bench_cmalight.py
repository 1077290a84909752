"""What to take when one wants CMALight to work: one setting after the other, on bikes with the network [3x20].

    CMALIGHT_DATA=FOLDER python benchmarks/bench_cmalight.py

Prints f over the variance of the targets after 250 epochs, for each of three seeds; 1 is the constant prediction.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from common import table
from torch import Tensor, nn

from cmalight import fit
from cmalight.datasets import load_dataset
from cmalight.models import layered

SEEDS = (0, 1, 2)
PRINTED: dict[str, Any] = {"lr": 0.5, "gamma": 1e-2, "order": "reshuffle", "batch_size": 128, "gain": None}
PUBLIC = {**PRINTED, "lr": 0.05, "gamma": 1e-6, "order": "fixed"}
SETTINGS = {
    "Table 3, reshuffled: the defaults": PRINTED,
    "fixed order": {**PRINTED, "order": "fixed"},
    "γ = 10⁻⁶": {**PRINTED, "gamma": 1e-6},
    "Xavier": {**PRINTED, "gain": 1.0},
    "Xavier, gain 4": {**PRINTED, "gain": 4.0},
    "batches of 32": {**PRINTED, "batch_size": 32},
    "fixed order, γ = 10⁻⁶": {**PUBLIC, "lr": 0.5},
    "fixed order, γ = 10⁻⁶, ζ⁰ = 0.05: the public code": PUBLIC,
    "fixed order, γ = 10⁻⁶, Xavier": {**PUBLIC, "lr": 0.5, "gain": 1.0},
    "fixed order, γ = 10⁻⁶, Xavier, gain 4": {**PUBLIC, "lr": 0.5, "gain": 4.0},
    "fixed order, γ = 10⁻⁶, batches of 32": {**PUBLIC, "lr": 0.5, "batch_size": 32},
    "fixed order, γ = 10⁻⁶, batches of 32, Xavier": {**PUBLIC, "lr": 0.5, "batch_size": 32, "gain": 1.0},
}


def share_left(x: Tensor, y: Tensor, setting: dict[str, Any], seed: int) -> tuple[float, str]:
    """What is left of the variance of the targets, and the evaluations per epoch."""
    torch.manual_seed(seed)
    model = layered("3x20", x.shape[1])
    if setting["gain"] is not None:
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, setting["gain"])
                nn.init.zeros_(layer.bias)
    result = fit(
        model,
        nn.MSELoss(),
        (x, y),
        optimizer="cmalight",
        optimizer_options={"lr": setting["lr"], "gamma": setting["gamma"]},
        batch_size=setting["batch_size"],
        order=setting["order"],
        seed=seed,
        max_epochs=250,
        progress=False,
    )
    with torch.no_grad():
        left = nn.functional.mse_loss(model(x), y) / y.var(correction=0)
    return left.item(), f"{result.evaluations / result.epochs:.2f}"


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Each of the last|Neither")
    data = load_dataset("bikes")
    x, y = torch.as_tensor(data.x_train), torch.as_tensor(data.y_train)
    rows = []
    for name, setting in SETTINGS.items():
        found = [share_left(x, y, setting, seed) for seed in SEEDS]
        rows.append((name, ", ".join(f"{left:.2f}" for left, _ in found), ", ".join(one for _, one in found)))
    print(table(("setting", "f over the variance", "evaluations per epoch"), rows))


if __name__ == "__main__":
    main()
