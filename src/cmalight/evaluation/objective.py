"""f(w): the mean loss per sample over all the data, by a pass that leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cmalight.errors import check_choice
from cmalight.evaluation.counting import sample_count
from cmalight.evaluation.larger_batches import is_pair_of_tensors, looks_across_the_batch, merged
from cmalight.evaluation.norms import accumulation_dtype
from cmalight.evaluation.randomness import RandomSource, draws_nothing
from cmalight.evaluation.rank_parts import in_lockstep, own_part, refuse_if_failed
from cmalight.evaluation.sample import Sample, chosen_batches, seed_all
from cmalight.evaluation.shapes import refuse_broadcast
from cmalight.evaluation.undisturbed import private_iteration, undisturbed
from cmalight.parallel.ranks import ALONE, ranks_of, unwrapped
from cmalight.parallel.shards import communicates, reshard

Forward = Callable[[Any, Any], tuple[Tensor, Any]]

# A few samples have to give the mean of each to this relative accuracy, or batches stay as they come.
_TRIED_SAMPLES = 16
_MERGE_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class Objective:
    """Calling it gives the mean loss per sample at the current weights.

    Args:
        model: run in training mode, as the epoch runs it; modules frozen in eval mode stay so
            as long as the model itself is in training mode.
        loss_fn: `loss_fn(model(input), target)` gives the mean loss of a batch.
        loader: yields `(input, target)`, again and again; batches are brought to the model's device.
        forward: for other batches, `forward(model, batch)` gives the mean loss and the number of samples behind it.
        mode: "train", or "eval" to evaluate with dropout off and BatchNorm's running statistics.
        merge: None merges batches into large ones where that does not change the value, as far as a trial on
            single samples can tell: a sample mean, and no layer that looks across the batch. True insists,
            False never does.
        process_group: the ranks that share the evaluation: a group, False for nobody, or None for those that
            `cmalight.parallel.ranks.ranks_of` finds.
        whole: every rank's loader gives all the data in the same order, so that each evaluates a part of it; without
            this, a loader that has no DistributedSampler is taken for the rank's own part.

    Raises:
        ValueError: if an argument cannot be used, such as a loader that can be iterated only once.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Objective
        >>> x = torch.ones(100, 2)
        >>> model = nn.Linear(2, 1)
        >>> objective = Objective(model, nn.MSELoss(), [(x[:60], model(x[:60]) + 1), (x[60:], model(x[60:]) + 1)])
        >>> round(objective(), 6)  # over all 100 samples, each counted once
        1.0
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Tensor] | None,
        loader: Iterable[Any],
        *,
        forward: Forward | None = None,
        mode: Literal["train", "eval"] = "train",
        merge: bool | None = None,
        process_group: Any = None,
        whole: bool = False,
    ) -> None:
        check_choice("mode", mode, ("train", "eval"))
        if not isinstance(model, nn.Module):
            raise ValueError(f"Objective needs a torch.nn.Module as its model, but got {model!r}")
        if not isinstance(loader, Iterable):
            raise ValueError(f"Objective needs a loader, such as a DataLoader or a list of batches, but got {loader!r}")
        if not (loss_fn is None or callable(loss_fn)):
            raise ValueError(f"Objective needs a loss_fn to call, but got {loss_fn!r}")
        if loss_fn is None and forward is None:
            raise ValueError("Objective needs a loss_fn, or forward=lambda model, batch: (mean loss, count)")
        if getattr(loss_fn, "reduction", "mean") in ("sum", "none"):
            raise ValueError(
                f"Objective needs the mean loss of a batch, but loss_fn has reduction={loss_fn.reduction!r}; "  # type: ignore[union-attr]
                "use reduction='mean'"
            )
        if isinstance(loader, Iterator):
            raise ValueError(
                "Objective needs a loader that can be iterated again and again, but got an iterator, "
                "which ends after one pass; pass the DataLoader or a list of batches itself"
            )
        if merge and forward is not None:
            raise ValueError("merge=True works with (input, target) batches only, not with forward=")
        self.model = model
        self.loss_fn = loss_fn
        self.loader = private_iteration(loader)
        self.mode = mode
        self.samples: float = math.nan  # of the last pass: the sum of the counts
        self.before_batch: Callable[[], object] | None = None  # may raise, to break off a pass
        self.process_group = process_group
        self._whole = whole
        self._ranks = ALONE
        self._part = self.loader  # what this rank evaluates of it
        self._forward = forward
        self._merge = False if forward is not None else merge
        self._tried = False
        self._passes = 0
        self._sample: Sample | None = None

    @torch.no_grad()
    def __call__(self) -> float:
        """Evaluate f at the current weights."""
        self._share_out()
        return self.without_a_trace(lambda _: self.whole_pass())

    @torch.no_grad()
    def sample(self) -> Sample:
        """A fixed small part of the data, whose mean loss tells where steps have led at a fraction of a pass.

        Returns:
            What gives that mean loss when it is called; the same part in every call.
        """
        self._share_out()
        if self._sample is None:
            self._sample = self._drawn_sample()
        return self._sample

    def _drawn_sample(self) -> Sample:
        with undisturbed(self.model, self._part, (self.loss_fn, self._forward)) as generators:
            seed_all(generators)  # for data sets that draw random numbers, as augmentation does
            self._set_mode()
            may_merge = self.may_merge()
            weights = sum(p.numel() for p in self.model.parameters())
            # A forward pass that talks to other ranks would need such rows on all of them.
            count = None if communicates(self.model) else partial(sample_count, self.loss_fn)
            chosen = chosen_batches(self._part, may_merge=may_merge, weights=weights, count=count)
            if may_merge:
                batches, outlying = (list(merged(some, self.model)) for some in (chosen.batches, chosen.outlying))
                chosen = replace(chosen, batches=batches, outlying=outlying)
        return Sample(self, chosen.with_those_of(self._ranks))

    @torch.no_grad()
    def mean_over(self, batches: Iterable[Any]) -> float:
        """The mean loss per sample of these batches, over all ranks, with the same random numbers every time.

        Args:
            batches: As the loader of the objective gives them.

        Returns:
            The mean, on every rank.
        """

        def mean(generators: tuple[RandomSource, ...]) -> float:
            seed_all(generators)
            return self._mean_loss(iter(batches))[0]

        functions = [function for function in (self.loss_fn, self._forward) if function is not None]
        return self.without_a_trace(mean, may_draw=not draws_nothing(self.model, *functions))

    def without_a_trace(self, mean: Callable[[tuple[RandomSource, ...]], float], *, may_draw: bool = True) -> float:
        """Evaluate something in the objective's mode, and leave buffers, modes and random numbers as they were.

        Args:
            mean: Evaluates it, given the generators of the random numbers that it may draw.
            may_draw: Whether it may draw any.

        Returns:
            What `mean` gave.
        """
        functions = self.loss_fn, self._forward
        try:
            with undisturbed(self.model, self._part, functions, may_draw=may_draw) as generators:
                self._set_mode()
                return mean(generators)
        finally:
            reshard(self.model)

    def whole_pass(self) -> float:
        """The mean loss over all the data, as the model and the random numbers are now; sets `samples`.

        Returns:
            The mean, on every rank.
        """
        mean, self.samples = self._mean_loss(self._batches())
        return mean

    def state_dict(self) -> dict[str, Any]:
        """What later passes depend on: whether batches are merged, and when that is tried again.

        Returns:
            Plain values.
        """
        return {"merge": self._merge, "tried": self._tried, "passes": self._passes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the objective that `state_dict` was taken from.

        Args:
            state: What `state_dict` gave.
        """
        self._merge, self._tried, self._passes = state["merge"], state["tried"], state["passes"]

    def _share_out(self) -> None:
        ranks = ranks_of(self.model, self.process_group)
        if ranks != self._ranks:
            self._ranks, self._part = ranks, own_part(self.loader, ranks, whole=self._whole)
            self._sample = None

    def _set_mode(self) -> None:
        if self.mode == "eval":
            self.model.eval()
        elif not self.model.training:
            self.model.train()

    def _mean_loss(self, batches: Iterator[Any]) -> tuple[float, float]:
        """With the number of samples, over all ranks.

        A rank whose pass fails says so to the others, which would wait for it otherwise. Not so where it fails within
        a forward pass that communicates (FSDP2): the others then wait inside their own, and end by an error of the
        process group, or by its timeout.
        """
        total, samples, failure = 0.0, 0.0, None
        try:
            total, samples = self.own_sums(self._rounds(batches))
        except Exception as error:
            if self._ranks.alone:
                raise
            failure = error
        rows = self._ranks.gather(total, samples, failure is not None)
        if failure is not None:
            raise failure
        refuse_if_failed([has_failed for *_, has_failed in rows])
        samples = sum(row[1] for row in rows)
        if not samples:
            raise ValueError("Objective got no batch from its loader; it must yield at least one, on every pass")
        return sum(row[0] for row in rows) / samples, samples

    def own_sums(self, rounds: Generator[tuple[Any, bool]]) -> tuple[float, float]:
        """What this rank adds to a mean.

        Args:
            rounds: Batches, and whether each counts.

        Returns:
            Σ count · loss and Σ count.
        """
        total: Tensor | None = None
        samples = 0.0
        for batch, counts in rounds:
            try:
                loss, count = self.evaluate(batch)
            except Exception as error:
                rounds.throw(error)  # comes back at once, or after the other ranks have been told
                raise
            if not counts:
                continue
            if total is None:
                total = torch.zeros((), dtype=accumulation_dtype(loss.device), device=loss.device)
            total.add_(loss.to(total.device), alpha=count)
            samples += count
        return (0.0 if total is None else float(total.item())), samples

    def _rounds(self, batches: Iterator[Any]) -> Generator[tuple[Any, bool]]:
        """The batches, and whether they count: where a forward pass talks to other ranks, all make equally many."""
        if self._ranks.alone or not communicates(self.model):
            return ((batch, True) for batch in batches)
        return in_lockstep(batches, self._ranks)

    def _batches(self) -> Iterator[Any]:
        yield from merged(self._part, self.model) if self.may_merge() else self._part

    def may_merge(self) -> bool:
        """Whether batches are evaluated several at once; asked once for each pass, because it is tried now and then.

        Returns:
            True where that gives the same.
        """
        self._passes += 1
        if self._merge is None and not self._ranks.alone and communicates(self.model):
            self._merge = False  # the trial would not make equally many forward passes on every rank
        if self._merge is None or (self._tried and self._merge and _is_time_to_try_again(self._passes)):
            # The trial draws random numbers of its own, and a resumed run makes it at another moment.
            with undisturbed(self.model, self._part, (self.loss_fn, self._forward)):
                self._merge, self._tried = self._merging_is_exact(), True
        return bool(self._merge) and not looks_across_the_batch(self.model)

    def evaluate(self, batch: Any) -> tuple[Tensor, float]:
        """One batch, as the model is now.

        Args:
            batch: As the loader gives it.

        Returns:
            Its mean loss, and its count.

        Raises:
            ValueError: If the loss is no scalar.
        """
        if self.before_batch is not None:
            self.before_batch()
        if self._forward is not None:
            loss, count = self._unpacked(self._forward(unwrapped(self.model), batch))
        else:
            loss, count = self._forward_pair(batch)
        loss = torch.as_tensor(loss)
        if loss.numel() != 1:
            raise ValueError(f"Objective needs a scalar loss per batch, but got one of shape {tuple(loss.shape)}")
        return loss.reshape(()), float(count)

    @staticmethod
    def _unpacked(result: Any) -> tuple[Any, float]:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(
                "forward must return (mean loss, count), the count being the number of samples behind the mean, "
                f"but it returned {_describe(result)}"
            )
        if not float(result[1]) > 0:
            raise ValueError(f"forward returned the count {result[1]}; expected a positive number of samples")
        return result

    def _forward_pair(self, batch: Any) -> tuple[Tensor, float]:
        if self.loss_fn is None or not (isinstance(batch, list | tuple) and len(batch) == 2):
            raise ValueError(
                f"Objective expects batches (input, target), but the loader gave {_describe(batch)}; "
                "pass forward=lambda model, batch: (mean loss, count)"
            )
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        inputs, target = (part.to(device, non_blocking=True) if isinstance(part, Tensor) else part for part in batch)
        count = sample_count(self.loss_fn, target)
        if not count:
            raise ValueError(
                f"Objective cannot count the samples of a target that is {_describe(target)}; "
                "pass forward=lambda model, batch: (mean loss, count)"
            )
        output = unwrapped(self.model)(inputs)
        refuse_broadcast(output, target, self.loss_fn)
        return self.loss_fn(output, target), count

    def _merging_is_exact(self) -> bool:
        """Tries it on single samples, whose losses differ most: is the loss of all the mean of the loss of each?

        What looks like a sample mean at one point may not be one elsewhere, so this is asked again now and then.
        """
        if looks_across_the_batch(self.model):
            return False
        first = next(iter(self._part), None)
        if not is_pair_of_tensors(first) or len(first[0]) < 2:
            return False
        few = first[0][:_TRIED_SAMPLES], first[1][:_TRIED_SAMPLES]
        try:
            loss, samples = self.evaluate(few)
            parts = [self.evaluate((few[0][i : i + 1], few[1][i : i + 1])) for i in range(len(few[0]))]
        except (RuntimeError, ValueError):
            return False  # a model that cannot take a single sample, or a target that the loss ignores
        samples_of_parts = sum(count for _, count in parts)
        mean_of_parts = sum(float(part) * count for part, count in parts) / samples_of_parts
        tolerance = _MERGE_TOLERANCE.get(loss.dtype, 1e-2)
        return math.isclose(samples, samples_of_parts) and math.isclose(float(loss), mean_of_parts, rel_tol=tolerance)


def _is_time_to_try_again(passes: int) -> bool:
    """After 4, 8, 16, ... passes: soon after the start, and then hardly ever."""
    return passes >= 4 and passes & (passes - 1) == 0


def _describe(batch: Any) -> str:
    if isinstance(batch, list | tuple):
        return f"a {type(batch).__name__} of {len(batch)}"
    if isinstance(batch, Tensor):
        return f"a tensor of shape {tuple(batch.shape)}"
    return f"a {type(batch).__name__}"
