"""The recommended optimizer against the test-bed's solvers, on the paper's data sets and networks.

    CMALIGHT_DATA=folder python benchmarks/study_controlled.py OUT --part solvers --seconds 10 --seeds 3

Parts: `solvers` (all solvers at their defaults, by the clock), `rates` (Adam at five fixed step sizes, by the clock),
`starts` (first step sizes from 1e-5 to 10, by epochs), `trained` (from weights that Adam has trained), `digits` (a
small residual network on scikit-learn's digits, by epochs), `eps` (Adam alone on a deep network, by steps). Runs
resume, but those of the last three: what is finished in OUT is not run again.
"""

import argparse
import os
from pathlib import Path

import pandas
import torch
from torch import nn

from cmalight import bench, fit
from cmalight.bench.analysis.costs import solution_costs
from cmalight.bench.analysis.profiles import profile_area
from cmalight.datasets import load_dataset
from cmalight.models import layered
from cmalight.models.resnet import Residual

DATASETS = ("ailerons", "bikes", "california", "mv", "blogfeedback", "skin-nonskin")
NETWORKS = ("1x50", "3x20", "5x50", "10x50")
OTHERS = (
    "cmalight",
    "cma",
    "ig",
    "adam",
    "adamw",
    "nadam",
    "adagrad",
    "adadelta",
    "sgd-momentum",
    "lbfgs",
    "schedule-free-adamw",
    "prodigy",
)
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
STARTS = tuple(10.0**exponent for exponent in range(-5, 2))


def main() -> None:
    arguments = parsed()
    part = {
        "solvers": solvers,
        "rates": rates,
        "starts": lambda given: by_epochs(given, {f"{lr:g}": {"lr": lr} for lr in STARTS}, reference="0.001"),
        "trained": trained,
        "digits": digits,
        "eps": eps,
    }[arguments.part]
    part(arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=("solvers", "rates", "starts", "trained", "digits", "eps"), required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000, help="of a run that is limited by epochs")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    return parser.parse_args()


def solvers(given: argparse.Namespace) -> None:
    names = ("auto", *OTHERS)
    run(given, given.out, [bench.Solver(name, name) for name in names], time_limit=given.seconds)
    results = bench.load(given.out)
    evaluations_per_epoch(results)
    areas(results, names)


def rates(given: argparse.Namespace) -> None:
    adams = [bench.Solver("adam", f"adam {lr:g}", {"lr": lr}) for lr in RATES]
    run(given, given.out, [bench.Solver("auto", "auto"), *adams], time_limit=given.seconds)
    finals = medians(bench.load(given.out))
    best = finals[[solver.name for solver in adams]].min(axis=1)
    compare(finals[["auto"]], best, "the best of Adam's five step sizes")


def by_epochs(given: argparse.Namespace, options: dict[str, dict[str, object]], *, reference: str) -> None:
    for dataset in given.datasets:
        steps_an_epoch = -(-len(load_dataset(dataset).x_train) // 128)
        chosen = [bench.Solver("auto", name, values) for name, values in options.items()]
        run(given, given.out / dataset, chosen, datasets=[dataset], max_epochs=max(8, given.steps // steps_an_epoch))
    frames = [medians(bench.load(given.out / dataset)) for dataset in given.datasets]
    finals = pandas.concat(frames)
    compare(finals[list(options)], finals[reference], f"{reference!r}")


def run(given: argparse.Namespace, out: Path, chosen: list[bench.Solver], **limits: object) -> None:
    spec = bench.Spec(
        datasets=tuple(limits.pop("datasets", given.datasets)),
        networks=tuple(bench.Network(name, name) for name in given.networks),
        solvers=tuple(chosen),
        seeds=tuple(range(given.seeds)),
        name="controlled",
        **limits,
    )
    bench.run(spec, out, workers=given.workers)


def medians(results: bench.Results) -> pandas.DataFrame:
    """The median final loss over the seeds: one row per data set and network, one column per solver."""
    runs = results.runs.assign(final_loss=results.runs["final_loss"].astype(float))
    return runs.pivot_table(index=["dataset", "network"], columns="solver", values="final_loss", aggfunc="median")


def compare(finals: pandas.DataFrame, reference: pandas.Series, name: str) -> None:
    ratios = finals.div(reference, axis=0)
    print(f"\nFinal true training loss over that of {name} (median over seeds)\n")
    print(ratios.round(3).to_string())
    summary = pandas.DataFrame(
        {
            "median": ratios.median(),
            "worst": ratios.max(),
            "share at most 1": (ratios <= 1.0).mean(),
            "problems": ratios.notna().sum(),
        }
    )
    print("\n" + summary.round(3).to_string())


def areas(results: bench.Results, names: tuple[str, ...]) -> None:
    table = {}
    for tau in (1e-1, 1e-2, 1e-4):
        costs = solution_costs(results, tau=tau, solvers=names)
        table[f"tau={tau:g}"] = profile_area(costs)["area"]
    print("\nArea under the performance profile (training seconds)\n")
    print(pandas.DataFrame(table).sort_values("tau=0.01", ascending=False).round(3).to_string())


def evaluations_per_epoch(results: bench.Results) -> None:
    last = results.epochs.groupby("key").last()
    runs = results.runs.set_index("key")
    shares = (last["evaluations"] / (last["epoch"] + 1)).groupby(runs["solver"]).median()
    print("\nFull evaluations an epoch, median over runs\n")
    print(shares.round(3).to_string())


def trained(given: argparse.Namespace) -> None:
    """Whether it goes on improving at least as fast as Adam at its default, from weights that Adam has trained."""
    rows = []
    for dataset in given.datasets:
        data = load_dataset(dataset)
        pair = data.x_train, data.y_train
        epochs = max(8, given.steps // -(-len(data.x_train) // 128))
        for network in given.networks:
            torch.manual_seed(0)
            model = layered(network, data.features)
            options = {"loss_fn": nn.MSELoss(), "data": pair, "progress": False, "measure_train_loss": True}
            fit(model, optimizer="adam", max_epochs=min(60, epochs), **options)
            start = {name: value.clone() for name, value in model.state_dict().items()}
            finals = {}
            for solver in ("auto", "adam"):
                model.load_state_dict(start)
                result = fit(model, optimizer=solver, max_epochs=min(20, epochs), **options)
                finals[solver] = result.history[-1].train_loss
            rows.append({"dataset": dataset, "network": network, **finals})
            print(rows[-1], flush=True)
    table = pandas.DataFrame(rows).set_index(["dataset", "network"])
    compare(table[["auto"]], table["adam"], "Adam at its default, after 20 more epochs")


def eps(given: argparse.Namespace) -> None:
    """Adam alone on the deepest network: below which eps it leaves the mean of its targets."""
    rows = []
    for dataset in given.datasets:
        data = load_dataset(dataset)
        epochs = max(1, given.steps // -(-len(data.x_train) // 128))
        for lr in (1e-3, 1e-2):
            losses = {}
            for value in (1e-8, 1e-10, 1e-12, 1e-15, 1e-20):
                torch.manual_seed(0)
                result = fit(
                    layered("10x50", data.features),
                    nn.MSELoss(),
                    (data.x_train, data.y_train),
                    optimizer="adam",
                    optimizer_options={"lr": lr, "eps": value},
                    max_epochs=epochs,
                    progress=False,
                    measure_train_loss=True,
                    engine="eager",
                )
                losses[f"{value:g}"] = result.history[-1].train_loss
            rows.append({"dataset": dataset, "lr": lr, **losses})
            print(rows[-1], flush=True)
    print(f"\nTrue training loss of Adam on [10x50] after {given.steps} steps, by eps\n")
    print(pandas.DataFrame(rows).set_index(["dataset", "lr"]).round(5).to_string())


def small_resnet() -> nn.Sequential:
    """Three residual blocks of 16 channels over the 8x8 images, with BatchNorm: 14,000 weights."""

    def block() -> Residual:
        layers = [layer for _ in range(2) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
        return Residual(nn.Sequential(*layers[:-1]), inputs=16, outputs=16, stride=1)

    stem = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*stem, block(), block(), block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def digits(given: argparse.Namespace) -> None:
    """A classification, with BatchNorm: true training loss and test accuracy after 30 epochs."""
    data = load_dataset("digits")
    rows = []
    contestants = {"auto": ("auto", {}), "cmalight": ("cmalight", {})}
    contestants |= {f"adam {lr:g}": ("adam", {"lr": lr}) for lr in RATES}
    for name, (solver, options) in contestants.items():
        for seed in range(given.seeds):
            torch.manual_seed(seed)
            model = small_resnet()
            pair = data.x_train, data.y_train
            result = fit(
                model,
                nn.CrossEntropyLoss(),
                pair,
                optimizer=solver,
                optimizer_options=options,
                max_epochs=30,
                progress=False,
                measure_train_loss=True,
            )
            with torch.no_grad():
                right = model.eval()(data.x_test).argmax(1) == data.y_test
            losses = [record.train_loss for record in result.history]
            figures = {"loss": losses[-1], "accuracy": float(right.float().mean()), "epochs": len(losses)}
            rows.append({"solver": name, "seed": seed, **figures, "evaluations": result.history[-1].evaluations})
    table = pandas.DataFrame(rows).groupby("solver", sort=False).median().drop(columns="seed")
    print("\nDigits, a small residual network, 30 epochs: medians over seeds\n")
    print(table.round(5).to_string())


if __name__ == "__main__":
    if "CMALIGHT_DATA" not in os.environ:
        print("CMALIGHT_DATA is not set: data sets that are not in the cache will be downloaded")
    torch.set_num_threads(1)
    main()
