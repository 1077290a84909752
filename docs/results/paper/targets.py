"""What a constant predicts: `python docs/results/paper/targets.py`, with the paper's data sets at hand.

Writes targets.json: of each data set the variance of its training targets, which is the loss of the best constant, and
the numbers of its training samples and features.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cmalight.datasets import DataError, load_dataset

FILE = Path(__file__).with_suffix(".json")
DATASETS = (
    "ailerons",
    "beijing-pm25",
    "bikes",
    "blogfeedback",
    "california",
    "covtype",
    "mv",
    "protein",
    "skin-nonskin",
)


@dataclass(frozen=True)
class Target:
    """Of the training part, scaled as the test-bed scales it, with the split of seed 0."""

    variance: float
    samples: int
    features: int


def computed(dataset: str) -> Target:
    data = load_dataset(dataset)
    variance = float(data.y_train.double().var(correction=0))
    return Target(float(f"{variance:.8g}"), len(data.x_train), data.features)


def known() -> dict[str, Target]:
    """Those of the paper's data sets, which need not be at hand."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Target(**values) for name, values in found.items()}


def targets(datasets: list[str]) -> dict[str, Target]:
    """Of those that are known or can be loaded here."""
    written, found = known(), {}
    for name in datasets:
        try:
            found[name] = written[name] if name in written else computed(name)
        except DataError:
            continue
    return found


def main() -> None:
    found = {name: asdict(computed(name)) for name in DATASETS}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
