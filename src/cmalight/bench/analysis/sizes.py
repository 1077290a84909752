"""Small and big data sets, apart as in the paper's Figures 2 to 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cmalight.datasets import DataError, dataset_info

if TYPE_CHECKING:
    import pandas

Size = Literal["small", "big"]
# Where Table 2 of the paper has no say: its own data sets fall on the right sides of these bounds.
_BIG_ROWS = 35_000
_BIG_VALUES = 5_000_000


def size_of(dataset: str) -> Size | None:
    """None for a data set whose size the registry does not know, such as a user's own."""
    try:
        entry = dataset_info(dataset)
    except (DataError, OSError):
        return None
    if entry.group in ("small", "big"):
        return entry.group
    if entry.training_rows is None or entry.d is None:
        return None
    return "big" if entry.training_rows >= _BIG_ROWS or entry.training_rows * entry.d >= _BIG_VALUES else "small"


def size_groups(runs: pandas.DataFrame, *, column: str = "problem") -> list[tuple[str, set[str]]]:
    """Names of groups with their problems: big and small where both are there, and all of them.

    column: what a problem is called by
    """
    sizes = {dataset: size_of(dataset) for dataset in runs["dataset"].astype(str).unique()}
    of_run = runs["dataset"].astype(str).map(sizes)
    found = [(f"{size} data sets", set(runs[of_run == size][column])) for size in ("big", "small")]
    everything = set(runs[column])
    parts = [(name, problems) for name, problems in found if problems and problems != everything]
    whole = [name for name, problems in found if problems and problems == everything]
    return [*parts, (f"all data sets ({whole[0].split()[0]})" if whole else "all data sets", everything)]


def is_image_set(dataset: str) -> bool:
    try:
        return dataset_info(dataset).image is not None
    except (DataError, OSError):
        return False
