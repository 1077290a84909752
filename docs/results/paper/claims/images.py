"""What the paper says of CIFAR-10."""

from collections.abc import Iterator

from claims.measures import NAMES, Figure, mean
from claims.verdicts import Claim, verdict
from cmalight import bench


def finals(results: bench.Results, column: str) -> dict[str, Figure]:
    """The mean over the starts of what each solver ended with."""
    done = results.runs[results.runs["status"] == "done"]
    return {str(solver): mean(group[column].to_numpy()) for solver, group in done.groupby("solver")}


def images(results: bench.Results) -> Iterator[Claim]:
    if not len(results.runs):
        return
    others = ("adam", "adagrad", "adadelta")
    accuracy, loss = finals(results, "final_test_accuracy"), finals(results, "final_loss")
    starts = results.runs["seed"].nunique()
    shown = [one for one in ("cmalight", *others) if one in accuracy]
    texts = [
        f"{NAMES[one]} {accuracy[one].value:.1%} (loss {loss[one].value:.2f})" for one in shown
    ]
    yield Claim(
        "CIFAR-10, ResNet-18: CMALight has a significant advantage over Adam, Adagrad and Adadelta in efficiency and "
        "in the quality reached in a given time (Figure 5).",
        f"A ResNet-18 of an eighth of the width, 2,560 pictures, {starts} start{'s' if starts > 1 else ''}; "
        f"test accuracy and training loss after 30 s: {', '.join(texts)}.",
        ("cifar10-small",),
        verdict(
            [accuracy["cmalight"].value > accuracy[one].value for one in shown[1:]]
            + [loss["cmalight"].value < loss[one].value for one in shown[1:]]
        ),
    )
