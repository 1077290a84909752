"""The picture of a training: losses over seconds, and what was predicted for the test rows."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cmalight.errors import needed
from cmalight.tabular.scores import Scores
from cmalight.training.records.history import EpochRecord, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = (".png", ".svg", ".pdf")

_TRAINING_COLOUR = "#1f77b4"
_VALIDATION_COLOUR = "#d95f02"
_MOST_LABELLED = 12  # classes


def check_picture(path: Path) -> None:
    """A picture of that name can be drawn here."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"{path} has no known type of picture; expected a name ending in {', '.join(PICTURES)}")
    with needed(f"{path} needs matplotlib", "cli"):
        import matplotlib  # noqa: F401


def training_picture(history: History, scores: Scores | None, *, title: str, kind: str, loss: str) -> bytes:
    """A picture with the losses over the seconds and, where there are test rows, what was predicted for them.

    Args:
        history: of the training.
        scores: on the test rows: classes are drawn as a confusion matrix, numbers against the true ones.
        title: of the picture.
        kind: the ending of the file, such as "png".
        loss: what the loss is, for the axis.
    """
    from matplotlib.figure import Figure

    panels = 1 if scores is None else 2
    figure = Figure(figsize=(7.0 if panels == 1 else 11.5, 4.2), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False, width_ratios=[7.0, 4.5][:panels])[0]
    _draw_losses(axes[0], history, loss)
    axes[0].set_title(title)
    if scores is not None:
        _draw_predictions(axes[1], scores)
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=150)
    return picture.getvalue()


def _draw_losses(axes: Axes, history: History, loss: str) -> None:
    seconds = [record.seconds for record in history]
    curves: dict[str, tuple[Sequence[float | None], str, str]] = {
        "training": ([_training_loss(record) for record in history], _TRAINING_COLOUR, "-"),
        "validation (rows not trained on)": (
            [record.validation_loss for record in history],
            _VALIDATION_COLOUR,
            "--",
        ),
    }
    for label, (losses, colour, style) in curves.items():
        values = [math.nan if value is None or not math.isfinite(value) else value for value in losses]
        if any(math.isfinite(value) for value in values):
            marker = "o" if len(values) < 3 else None
            axes.plot(seconds, values, style, color=colour, label=label, linewidth=1.8, marker=marker)
    if all(line.get_ydata().min() > 0 for line in axes.get_lines()):  # type: ignore[union-attr]
        axes.set_yscale("log")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(f"{loss} per sample")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend()


def _draw_predictions(axes: Axes, scores: Scores) -> None:
    from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay  # type: ignore[import-untyped]

    if scores.classes:
        few = len(scores.classes) <= _MOST_LABELLED
        display = ConfusionMatrixDisplay(scores.confusion(), display_labels=scores.classes if few else None)
        display.plot(ax=axes, cmap="Blues", colorbar=False, include_values=few, xticks_rotation="vertical")
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        if not few:
            axes.set_xticks([])
            axes.set_yticks([])
    else:
        PredictionErrorDisplay(y_true=scores.truth, y_pred=scores.predicted).plot(ax=axes, kind="actual_vs_predicted")
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
    first, value = next(iter(scores.values.items()))
    axes.set_title(f"test rows: {first} {value:.4g}")


def _training_loss(record: EpochRecord) -> float:
    return record.f_tilde if record.train_loss is None else record.train_loss
