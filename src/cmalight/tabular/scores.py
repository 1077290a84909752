"""How good a model is on rows whose target is known, beside what a guess would score on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cmalight.tables.scaling import Array
from cmalight.tables.targets import ClassTarget, Target
from cmalight.training.records.metrics import measured

NUMBER_SCORES = ("r2", "rmse", "mae")
CLASS_SCORES = ("accuracy", "f1", "auc", "log_loss")

_MOST_SHOWN = 12  # classes of a confusion matrix in text


@dataclass(frozen=True)
class Scores:
    """Figures of a model on some rows, in the units of the data.

    Args:
        values: by name: r2, rmse and mae of a number; accuracy, f1 (the mean over the classes), auc and log_loss of a
            class. What is not defined on these rows is left out.
        baseline: the same figures of the guess.
        guess: what is guessed, in words: the mean, or the most frequent class, of the training rows.
        truth: one value per row.
        predicted: one value per row.
        classes: their names, where the target is a class.
    """

    values: dict[str, float]
    baseline: dict[str, float]
    guess: str
    truth: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    classes: tuple[str, ...] = ()

    @property
    def beats_the_guess(self) -> bool:
        """Whether the first figure, or of classes the mean over all of them, is better than the guess's."""
        return any(self.values[name] > self.baseline[name] for name in ("r2", "accuracy", "f1") if name in self.values)

    def lines(self, rows: str) -> list[str]:
        """The figures for a reader, those of the guess below.

        Args:
            rows: what the rows are called.

        Returns:
            One line for the model, one for the guess.
        """
        lines = [f"{label}:" for label in (rows, self.guess)]
        for name in self.values:
            lines = _padded(lines)
            for which, figures in enumerate((self.values, self.baseline)):
                lines[which] += f"  {name} {_shown(figures[name])}"
        return lines

    def confusion(self) -> npt.NDArray[np.int64]:
        """How often a row of a class (down) was taken for each class (across).

        Returns:
            A square matrix, in the order of the classes.
        """
        from sklearn.metrics import confusion_matrix  # type: ignore[import-untyped]

        return np.asarray(confusion_matrix(self.truth, self.predicted, labels=list(self.classes)))

    def confusion_lines(self) -> Iterator[str]:
        """The confusion matrix for a reader; nothing for numbers, or where it would be too wide.

        Returns:
            Its lines, with a heading.
        """
        if not 0 < len(self.classes) <= _MOST_SHOWN:
            return
        import pandas

        names = list(self.classes)
        yield "rows by class, true (down) and predicted (across):"
        yield from pandas.DataFrame(self.confusion(), index=names, columns=names).to_string().splitlines()


def guess_of(target: Target, encoded: Any) -> tuple[float, ...]:
    """What to say without looking at a row: the mean of the target, or the share of each class.

    Args:
        target: its encoding.
        encoded: the target of the training rows, as the network takes it.
    """
    values = np.asarray(encoded)
    if isinstance(target, ClassTarget):
        counts = np.bincount(values, minlength=len(target.classes))
        return tuple((counts / counts.sum()).tolist())
    return (float(target.decode(values.astype(np.float64).reshape(-1, 1)).mean()),)


def scores_of(target: Target, guess: tuple[float, ...], outputs: Array, encoded: Any) -> Scores:
    """The scores of what a network gave.

    Args:
        target: its encoding.
        guess: as `guess_of` gives it.
        outputs: of the network.
        encoded: the true target, as the network takes it.
    """
    wanted = np.asarray(encoded)
    if isinstance(target, ClassTarget):
        truth = torch.as_tensor(wanted)
        with np.errstate(divide="ignore"):
            guessed = np.tile(np.log(guess), (len(wanted), 1))
        names = np.array(target.classes, dtype=object)
        shown = f"always {target.classes[int(np.argmax(guess))]!r}"
        found, base = (measured(CLASS_SCORES, torch.as_tensor(one), truth) for one in (outputs, guessed))
        return _scores(found, base, shown, names[wanted], names[outputs.argmax(axis=1)], target.classes)
    truth_in_units = target.decode(wanted.astype(np.float64).reshape(-1, 1))
    predicted = target.decode(outputs)
    found, base = (
        measured(NUMBER_SCORES, torch.as_tensor(one), torch.as_tensor(truth_in_units))
        for one in (predicted, np.full_like(predicted, guess[0]))
    )
    return _scores(found, base, f"always the mean, {_shown(guess[0])}", truth_in_units, predicted, ())


def _scores(
    found: dict[str, float], base: dict[str, float], guess: str, truth: Any, predicted: Any, classes: tuple[str, ...]
) -> Scores:
    defined = [name for name in found if np.isfinite(found[name]) and np.isfinite(base[name])]
    values, baseline = ({name: figures[name] for name in defined} for figures in (found, base))
    return Scores(values, baseline, guess, truth, predicted, classes)


def _padded(lines: list[str]) -> list[str]:
    width = max(len(line) for line in lines)
    return [line.ljust(width) for line in lines]


def _shown(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
