"""The picture of a training: losses over seconds."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from cmalight.training.history import EpochRecord, History

PICTURES = (".png", ".svg", ".pdf")

_TRAINING_COLOUR = "#1f77b4"
_VALIDATION_COLOUR = "#d95f02"


def check_picture(path: Path) -> None:
    """A picture of that name can be drawn here."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"{path} has no known type of picture; expected a name ending in {', '.join(PICTURES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{path} needs matplotlib: pip install "cmalight[cli]"') from error


def losses_over_seconds(history: History, *, title: str, kind: str, loss: str) -> bytes:
    """A picture with the training loss and, where there is one, the validation loss.

    Args:
        kind: the ending of the file, such as "png".
        loss: what the loss is, for the axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    seconds = [record.seconds for record in history]
    curves: dict[str, tuple[Sequence[float | None], str, str]] = {
        "training": ([_training_loss(record) for record in history], _TRAINING_COLOUR, "-"),
        "validation (test rows)": ([record.validation_loss for record in history], _VALIDATION_COLOUR, "--"),
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
    axes.set_title(title)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=150)
    return picture.getvalue()


def _training_loss(record: EpochRecord) -> float:
    return record.f_tilde if record.train_loss is None else record.train_loss
