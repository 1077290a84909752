"""The figures for a paper: vector and pixels, readable in print, the same colours as the page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cmalight.bench.analysis.curves import Axis, Bundles, Value, fractions
from cmalight.bench.analysis.profiles import data_profile, performance_profile, profile_area
from cmalight.bench.analysis.summaries import PAPER_TAUS, tau_text
from cmalight.bench.report.canvas import (
    LOOK,
    grid,
    legend_columns,
    line_look,
    panels,
    plain,
    plain_ticks,
    saved,
    share_axis,
    upright_or_slanted,
    value_axis,
    with_legend,
)
from cmalight.bench.report.content import Study, box_data
from cmalight.bench.report.strips import outcome_legend, strips
from cmalight.bench.report.styles import styles
from cmalight.errors import needed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Curves and strips are drawn for so many pairs of data set and network.
MOST_FAMILIES = 4
_MOST_STRIPS = 9
_VALUES: dict[Value, str] = {"loss": "training loss", "test_loss": "test loss", "test_accuracy": "test accuracy"}
_UNITS: dict[Axis, str] = {"seconds": "seconds of training", "epochs": "epochs", "evaluations": "full evaluations"}


def figure_files(study: Study) -> Iterator[tuple[str, bytes]]:
    """Names and contents: a PDF and a PNG of every figure that the results have data for."""
    with needed("figures need matplotlib", "bench"):
        from matplotlib import rc_context
    for name, make in planned_figures(study):
        with rc_context(LOOK):  # type: ignore[arg-type]
            figure = make()
            for kind in ("pdf", "png"):
                yield f"{name}.{kind}", saved(figure, kind)


def planned_figures(study: Study) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """The names of the figures, and how each is drawn."""
    if box_data(study):
        yield "figure1-evaluations-and-acceptance", lambda: control_figure(study)
    for number, tau in enumerate(PAPER_TAUS, start=2):
        yield f"figure{number}-profiles-tau-{tau:g}", lambda tau=tau: profile_figure(study, tau)  # type: ignore[misc]
    for place, family in enumerate(study.image_families):
        yield f"figure5-{slug(family)}-{place}", lambda family=family: image_figure(study, family)  # type: ignore[misc]
    yield "data-profiles", lambda: data_profile_figure(study)
    yield "areas", lambda: area_figure(study)
    bundles = Bundles(study.traces)
    for place, family in enumerate(study.families[:MOST_FAMILIES]):
        if any(one == family for one, _ in bundles.keys):
            yield (
                f"curves-{place}-{slug(family)}",
                lambda family=family: curve_figure(study, family, bundles),  # type: ignore[misc]
            )
        rows = study.traces.runs[study.traces.runs["family"] == family]
        found = strips(rows, study.results.epochs[study.results.epochs["key"].isin(rows["key"])])
        if found:
            yield (
                f"control-{place}-{slug(family)}",
                lambda family=family, rows=rows, found=found: strip_figure(study, family, rows, found),  # type: ignore[misc]
            )
    for name, make in _ADDED.items():
        yield name, lambda make=make: make(study)  # type: ignore[misc]


def add_figure(name: str, make: Callable[[Study], Figure]) -> None:
    """Have every report that this process writes draw one more figure.

    Args:
        name: of its files, without an ending.
        make: gives it for a study; sizes, panels and axes are in `canvas.py`, the colours of solvers in `styles.py`.

    Raises:
        ValueError: if the name is no name of a file in small letters.
    """
    if name != slug(name):
        raise ValueError(f"Invalid figure name: {name!r}; expected small letters, digits and dashes, as {slug(name)!r}")
    _ADDED[name] = make


_ADDED: dict[str, Callable[[Study], Figure]] = {}


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:60] or "unnamed"


def profile_figure(study: Study, tau: float) -> Figure:
    """Performance profiles by training time: Figures 2 to 4 of the paper."""
    costs = study.compared[tau]
    groups = study.groups if len(study.groups) == 1 else study.groups[:-1]
    figure, places = panels(len(groups))
    looks = styles(study.traces.labels.solvers)
    for axes, (name, problems) in zip(places, groups, strict=True):
        part = costs[costs.index.isin(problems)]
        profile = performance_profile(part)
        end = max(2.0, float(profile.index[-1])) ** 1.06
        for solver in part.columns:
            x, y = [*profile.index, end], [*profile[solver], profile[solver].iloc[-1]]
            axes.step(x, y, where="post", **line_look(looks[solver]))
        axes.set_xscale("log")
        axes.set_xlim(1, end)
        plain_ticks(axes, end)
        share_axis(axes)
        axes.set_xlabel("training time / least training time of any solver")
        axes.set_title(f"{name}, {len(part)} problems", loc="left")
    figure.suptitle(f"Performance profiles, τ = {tau_text(tau)}", x=0.01, ha="left", fontsize=10)
    return with_legend(figure, list(costs.columns), looks)


def data_profile_figure(study: Study) -> Figure:
    """Data profiles by training time."""
    figure, places = panels(len(PAPER_TAUS))
    looks = styles(study.traces.labels.solvers)
    for axes, tau in zip(places, PAPER_TAUS, strict=True):
        costs = study.compared[tau]
        profile = data_profile(costs)
        end = max(float(profile.index[-1]) * 1.04, 1e-9)
        for solver in costs.columns:
            x, y = [*profile.index, end], [*profile[solver], profile[solver].iloc[-1]]
            axes.step(x, y, where="post", **line_look(looks[solver]))
        axes.set_xlim(0, end)
        share_axis(axes)
        axes.set_xlabel("seconds of training")
        axes.set_title(f"τ = {tau_text(tau)}", loc="left")
    figure.suptitle("Data profiles: share of problems solved by then", x=0.01, ha="left", fontsize=10)
    return with_legend(figure, study.traces.labels.solvers, looks)


def area_figure(study: Study) -> Figure:
    """The areas under the performance profiles, with their intervals."""
    solvers = study.traces.labels.solvers
    figure, places = panels(len(PAPER_TAUS), height=1.3 + 0.2 * len(solvers))
    looks = styles(solvers)
    for axes, tau in zip(places, PAPER_TAUS, strict=True):
        areas = profile_area(study.compared[tau])
        for row, (solver, area, low, high) in enumerate(areas.itertuples()):
            if not math.isnan(area):
                error = [[area - low], [high - area]]
                axes.errorbar([area], [row], xerr=error, fmt="o", color=looks[solver].colour, capsize=3, markersize=5)
        labels = [plain(solver) for solver in areas.index] if axes is places[0] else [""] * len(areas)
        axes.set_yticks(range(len(areas)), labels)
        axes.set_ylim(len(areas) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("area under the profile")
        axes.set_title(f"τ = {tau_text(tau)}", loc="left")
    return figure


def control_figure(study: Study) -> Figure:
    """Box plots of full evaluations per epoch and of the acceptance rate: Figure 1 of the paper."""
    boxes = box_data(study)
    looks = styles(study.traces.labels.solvers)
    figure, places = panels(2)
    titles = (("per_epoch", "full evaluations per epoch"), ("acceptance", "acceptance rate of the tentative point"))
    for axes, (field, title) in zip(places, titles, strict=True):
        stats = [_statistics(box, field) for box in boxes]
        artists = axes.bxp(stats, showfliers=True, patch_artist=True, widths=0.5)
        for at, box in enumerate(boxes):
            colour = looks[box["name"]].colour
            artists["boxes"][at].set(facecolor=f"{colour}33", edgecolor=colour)
            artists["fliers"][at].set(markeredgecolor=colour, markersize=3)
            for line in (artists["medians"][at], *artists["whiskers"][2 * at : 2 * at + 2]):
                line.set(color=colour)
            for line in artists["caps"][2 * at : 2 * at + 2]:
                line.set(color=colour)
        upright_or_slanted(axes, [box["name"] for box in boxes])
        axes.set_ylim(bottom=0, top=1.02 if field == "acceptance" else None)
        axes.grid(visible=False, axis="x")
        axes.set_title(title, loc="left")
    return figure


def _statistics(box: dict[str, Any], field: str) -> dict[str, Any]:
    one = box[field]
    quartiles = {"q1": one["low"], "med": one["median"], "q3": one["high"]}
    low, high = one["whiskers"]
    return {**quartiles, "whislo": low, "whishi": high, "fliers": one["beyond"], "label": plain(box["name"])}


def curve_figure(study: Study, family: str, bundles: Bundles) -> Figure:
    """Training loss against seconds and epochs; the test loss too, where it was measured."""
    points = study.traces.points
    keys = {key for (one, _), found in bundles.keys.items() if one == family for key in found}
    tested = points[points["key"].isin(keys)]["test_loss"].notna().any()
    kinds: list[tuple[Value, Axis]] = [("loss", "seconds"), ("loss", "epochs")]
    return _curves(study, family, [*kinds, ("test_loss", "seconds")] if tested else kinds, bundles)


def image_figure(study: Study, family: str) -> Figure:
    """Test accuracy and training loss against time: Figure 5 of the paper."""
    return _curves(study, family, [("test_accuracy", "seconds"), ("loss", "seconds")], Bundles(study.traces))


def _curves(study: Study, family: str, kinds: Sequence[tuple[Value, Axis]], bundles: Bundles) -> Figure:
    solvers = study.traces.labels.solvers
    looks = styles(solvers)
    figure, places = panels(len(kinds))
    seen = []
    for axes, (value, axis) in zip(places, kinds, strict=True):
        for solver in solvers:
            curve = bundles.curve(family, solver, value, axis, fractions(240))
            if curve is None:
                continue
            seen.append(solver)
            axes.fill_between(curve.x, curve.low, curve.high, color=looks[solver].colour, alpha=0.15, linewidth=0)
            axes.plot(curve.x, curve.median, **line_look(looks[solver]))
        value_axis(axes, value)
        axes.set_xlim(left=0)
        axes.set_xlabel(_UNITS[axis])
        axes.set_ylabel(_VALUES[value])
    figure.suptitle(plain(family), x=0.01, ha="left", fontsize=10)
    return with_legend(figure, list(dict.fromkeys(seen)), looks)


def strip_figure(study: Study, family: str, rows: Any, found: Sequence[Any]) -> Figure:
    """Step sizes, and outcomes as coloured strips, of the first runs."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    solvers = study.traces.labels.solvers
    seeds = [rows["seed"].iat[strip[0]] for strip in found]
    first = sorted(range(len(found)), key=lambda at: seeds[at])[:_MOST_STRIPS]
    shown = sorted((found[at] for at in first), key=lambda strip: solvers.index(rows["label"].iat[strip[0]]))
    looks, outcomes = styles(solvers), outcome_legend()
    heights = [1.5, 0.2 * len(shown)]
    figure, (top, below) = grid(2, 1, height=sum(heights) + 1.7, sharex=True, height_ratios=heights)
    colours = ListedColormap([one["colour"] for one in outcomes])
    norm = BoundaryNorm([at - 0.5 for at in range(len(outcomes) + 1)], len(outcomes))
    labels, used, labels_seen = [], set(), Counter[str]()
    for at, (row, codes, steps, count) in enumerate(shown):
        label = rows["label"].iat[row]
        edges = [place * count / len(codes) for place in range(len(codes) + 1)]
        paler = 1.0 - 0.17 * min(labels_seen[label], 4)
        labels_seen[label] += 1
        top.step(edges, [*steps, steps[-1]], where="post", **line_look(looks[label]), linewidth=1.2, alpha=paler)
        below.pcolormesh(edges, [at - 0.4, at + 0.4], [codes], cmap=colours, norm=norm, edgecolors="face", lw=0.2)
        labels.append(plain(f"{label}, seed {rows['seed'].iat[row]}"))
        used |= {int(code) for code in codes}
    top.set_yscale("log")
    top.set_ylabel("step size ζ")
    below.set_yticks(range(len(labels)), labels)
    below.set_ylim(len(labels) - 0.5, -0.5)
    below.grid(visible=False)
    below.set_xlabel("epoch")
    below.set_xlim(left=0)
    figure.suptitle(f"{plain(family)}: what the control did", x=0.01, ha="left", fontsize=10)
    handles = [Patch(facecolor=outcomes[code]["colour"], edgecolor="#777777", linewidth=0.4) for code in sorted(used)]
    texts = [outcomes[code]["name"].replace("_", " ") for code in sorted(used)]
    figure.legend(handles, texts, loc="outside lower center", ncols=legend_columns(figure, texts), fontsize=8)
    return figure
