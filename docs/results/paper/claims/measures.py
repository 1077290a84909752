"""The published runs by what they are for, and what is computed from them: areas, differences, intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from cmalight.bench.analysis.costs import Problems, Traces
from cmalight.bench.analysis.profiles import AREA_LIMIT, resampled
from cmalight.bench.analysis.sizes import size_of

from cmalight import bench

PAPER = ("cmalight", "cma", "ig", "adam", "adagrad", "adadelta")
NAMES = {
    "cmalight": "CMALight",
    "cma": "CMA",
    "ig": "IG",
    "adam": "Adam",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
}
SHALLOW = ("paper:1x50", "paper:3x20")
TAUS = (1e-1, 1e-2, 1e-4)
_SMALL_NETWORKS = ("paper:1x50", "paper:3x20", "paper:5x50", "paper:10x50")
_RESAMPLES = 2000
_FEW = 6


@dataclass(frozen=True)
class Figure:
    """A mean with its 95 % interval, a bootstrap over problems or runs; of a few, their least and greatest."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_signless(self.value)} [{_signless(self.low)}, {_signless(self.high)}]"

    def __neg__(self) -> "Figure":
        return Figure(-self.value, -self.high, -self.low)

    def less(self, number: float) -> "Figure":
        return Figure(self.value - number, self.low - number, self.high - number)

    @property
    def signed(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]".replace("-", "−")


def _signless(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def short(network: str) -> str:
    """As the paper writes it between brackets."""
    return network.removeprefix("paper:")


def network_order(networks: Sequence[str]) -> list[str]:
    """By depth and width."""
    return sorted(networks, key=lambda one: [int(n) for n in short(one).split("x")])


@dataclass(frozen=True)
class Parts:
    """The published runs, by what they are for.

    Attributes:
        tables: the paper's solvers on its small networks, compiled.
        today: solvers of today on the same problems, eager.
        large: the paper's solvers on its large networks.
        regularised: the same with a regulariser.
        images: of CIFAR-10.
    """

    tables: bench.Results
    today: bench.Results
    large: bench.Results
    regularised: bench.Results
    images: bench.Results


def parts(results: bench.Results) -> Parts:
    runs = results.runs
    is_image = runs["dataset"].str.startswith("cifar10")
    of_lambda = runs["solver"].str.contains("λ")
    on_table = ~is_image & ~of_lambda & runs["network"].isin(_SMALL_NETWORKS)
    is_compiled = runs["engine"] == "compiled"
    if not is_compiled.any():  # a study of one part, as the quick one
        is_compiled, is_eager = on_table, on_table
    else:
        is_eager = ~is_compiled
    return Parts(
        tables=_part(results, on_table & is_compiled),
        today=_part(results, on_table & is_eager),
        large=_part(results, ~is_image & ~of_lambda & ~on_table),
        regularised=_part(results, of_lambda),
        images=_part(results, is_image),
    )


def _part(results: bench.Results, mask: "pandas.Series[bool]") -> bench.Results:
    runs = results.runs[mask].reset_index(drop=True)
    return bench.Results(
        runs, results.epochs[results.epochs["key"].isin(runs["key"])].reset_index(drop=True)
    )


def on_networks(results: bench.Results, networks: Sequence[str]) -> bench.Results:
    return _part(results, results.runs["network"].isin(networks))


def is_complete(results: bench.Results) -> bool:
    """Whether all of the paper's solvers have runs there, so that they can be compared."""
    return set(PAPER) <= set(results.runs["solver"])


def of_size(results: bench.Results, size: str) -> bench.Results:
    """The runs on small or on big data sets, as Table 2 of the paper has them."""
    names = results.runs["dataset"]
    return _part(results, names.isin([name for name in names.unique() if size_of(name) == size]))


def by_size(results: bench.Results) -> dict[str, Traces]:
    """What areas and profiles are computed from, for big and for small data sets; made once, it serves every τ."""
    return {size: bench.traces(of_size(results, size)) for size in ("big", "small")}


def mean(values: Sequence[float]) -> Figure:
    """With its interval, the same resamples on every call; fewer than six values are no sample to draw from."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Figure(*[float("nan")] * 3)
    if len(known) < _FEW:
        return Figure(float(known.mean()), float(known.min()), float(known.max()))
    means = known[resampled(len(known), _RESAMPLES)].mean(axis=1)
    return Figure(float(known.mean()), *map(float, np.quantile(means, [0.025, 0.975])))


def difference(values: Sequence[float], others: Sequence[float]) -> Figure:
    """Of two means over different problems, each resampled by itself."""
    first, second = (np.asarray(one, dtype=np.float64) for one in (values, others))
    if min(len(first), len(second)) < _FEW:
        return mean([]).less(0.0)
    means = first[resampled(len(first), _RESAMPLES)].mean(axis=1)
    means -= second[resampled(len(second), _RESAMPLES)].mean(axis=1)[::-1]
    value = float(first.mean() - second.mean())
    return Figure(value, *map(float, np.quantile(means, [0.025, 0.975])))


def gains(costs: pandas.DataFrame) -> pandas.DataFrame:
    """By problem and solver: 1 for the quickest, 0 for a hundred times its time or never; their means are the areas."""
    with np.errstate(divide="ignore"):
        logs = np.log(bench.ratios(costs).to_numpy())
    return pandas.DataFrame(
        np.clip(1 - logs / np.log(AREA_LIMIT), 0, 1), index=costs.index, columns=costs.columns
    )


def areas(
    source: bench.Results | Traces,
    tau: float,
    *,
    solvers: Sequence[str] = PAPER,
    problems: Problems = "start",
) -> pandas.DataFrame:
    """`gains` of those solvers, on the problems that all of them have a result of."""
    return gains(bench.solution_costs(source, tau, solvers=solvers, problems=problems))


def advantages(found: pandas.DataFrame, solver: str, others: Sequence[str]) -> dict[str, Figure]:
    """The difference of the areas of a solver and of each of the others."""
    return {other: mean((found[solver] - found[other]).to_numpy()) for other in others}


def listed(found: dict[str, Figure]) -> str:
    return ", ".join(f"{NAMES.get(name, name)} {figure.signed}" for name, figure in found.items())
