"""What the paper says of CIFAR-10."""

from collections.abc import Iterator

import pandas

from claims.measures import NAMES, Figure, listed, mean
from claims.verdicts import Claim, verdict
from cmalight import bench


def images(results: bench.Results) -> Iterator[Claim]:
    if not len(results.runs):
        return
    others = ("adam", "adagrad", "adadelta")
    done = results.runs[results.runs["status"] == "done"]
    accuracy, loss = (
        done.pivot(index="seed", columns="solver", values=column)
        for column in ("final_test_accuracy", "final_loss")
    )
    shown = [one for one in ("cmalight", *others) if one in accuracy]
    texts = [
        f"{NAMES[one]} {_in_percent(mean(accuracy[one].to_numpy()))}, loss {mean(loss[one].to_numpy())}"
        for one in shown
    ]
    higher = {one: mean((accuracy["cmalight"] - accuracy[one]).to_numpy()) for one in shown[1:]}
    lower = {one: mean((loss[one] - loss["cmalight"]).to_numpy()) for one in shown[1:]}
    times = _seconds_to(results, done, loss["cmalight"]).reindex(columns=shown)
    later = {one: mean((times[one] - times["cmalight"]).to_numpy()) for one in shown[1:]}
    seconds = [f"{NAMES[one]} {mean(times[one].to_numpy())}" for one in shown]
    yield Claim(
        "CIFAR-10, ResNet-18: CMALight has a significant advantage over Adam, Adagrad and Adadelta in efficiency "
        "(Figure 5).",
        f"{_what_ran(done)}. Seconds to the training loss at which CMALight ends: {', '.join(seconds)}; theirs less "
        f"its, start by start: {listed(later)}.",
        ("cifar10-small",),
        verdict(list(later.values())),
    )
    yield Claim(
        "The same in the quality reached in a given time.",
        f"Test accuracy and training loss at the end: {'; '.join(texts)}. Accuracy of CMALight less theirs, start by "
        f"start: {listed(higher)}; their loss less its: {listed(lower)}.",
        ("cifar10-small",),
        verdict([*higher.values(), *lower.values()]),
    )


def _seconds_to(
    results: bench.Results, runs: pandas.DataFrame, level: "pandas.Series[float]"
) -> pandas.DataFrame:
    """By start and solver, until the loss was that low; who never was is given all of its time."""
    by_key = runs.set_index("key")
    epochs = results.epochs[results.epochs["key"].isin(by_key.index)]
    low = epochs["train_loss"] <= epochs["key"].map(by_key["seed"]).map(level)
    first = epochs[low].groupby("key")["seconds"].min()
    found = by_key.assign(first=first.reindex(by_key.index).fillna(by_key["seconds"]))
    return found.pivot(index="seed", columns="solver", values="first")


def _in_percent(figure: Figure) -> str:
    return f"{figure.value:.1%} [{figure.low:.1%}, {figure.high:.1%}]".replace("%", " %")


def _what_ran(runs: pandas.DataFrame) -> str:
    """Data, network, starts, limit and epochs, as the runs say."""
    starts = runs["seed"].nunique()
    epochs = runs["epochs"].median()
    return (
        f"{', '.join(sorted(runs['network'].unique()))} on {', '.join(sorted(runs['dataset'].unique()))}, "
        f"{starts} start{'s' if starts > 1 else ''}, {', '.join(f'{one:g}' for one in runs['time_limit'].unique())} s "
        f"(a median of {epochs:g} epochs)"
    )
