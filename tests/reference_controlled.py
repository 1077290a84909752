"""The naive twin of `Controlled`: deep copies, plain floats, all of the data as its sample, no clever bookkeeping."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cmalight.rules.tolerant import (
    CAP,
    EARLY,
    FAR,
    FEW,
    FIRST,
    GATE,
    LEVEL,
    PART,
    PATIENCE,
    PATIENCE_ABOVE,
    REST,
    RISE_SHARE,
    RISE_STEPS,
    SETTLED,
    SLACK,
    START,
    STEADY,
)


class Twin:
    """Lines 31 to 40 of docs/understand/controlled.md, around what `make` builds over a model's parameters."""

    def __init__(
        self,
        model: nn.Module,
        make: Callable[[Sequence[Tensor]], torch.optim.Optimizer],
        batches: list[tuple[Tensor, Tensor]],
        loss_fn: nn.Module,
        *,
        usual: float,
        growth: float = 2.0,
        tolerance: float,
        theta: float = 0.5,
        decay: float = 0.4,
        window: int = 200,
        max_epochs: int | None = None,
    ) -> None:
        self.model, self.batches, self.loss_fn = model, batches, loss_fn
        self.base = make(list(model.parameters()))
        self.usual, self.growth, self.tolerance, self.theta = usual, growth, tolerance, theta
        self.decay, self.window, self.max_epochs = decay, window, max_epochs
        lr = max(group["lr"] for group in self.base.param_groups)
        self.shares = [group["lr"] / lr for group in self.base.param_groups]  # of the groups
        self.zeta = min(lr, usual)  # line 31
        self.f_0 = self.low = self.evaluate()
        self.starting = self.zeta < usual and growth > 1.0
        self.usual = self.zeta if usual == math.inf and growth == 1.0 else usual
        self.scale = math.inf
        self.since_low = self.wait = self.due = 0
        self.cap = math.inf
        self.steps = self.epochs = 0
        self.judged = 0.0
        self.seen: set[str] = set()
        self.saved: tuple | None = None  # where the window under way began

    def evaluate(self) -> float:
        samples = sum(len(y) for _, y in self.batches)
        with torch.no_grad():
            value = sum(self.loss_fn(self.model(x), y).item() * len(y) for x, y in self.batches) / samples
        return value if math.isfinite(value) else math.inf

    def switch(self, mode: str) -> None:
        """Schedule-free optimizers train at one point and are judged at another."""
        getattr(self.base, mode, lambda: None)()

    def share(self, batches_done: float) -> float | None:
        if self.max_epochs is None:
            return None
        return min(1.0, (self.epochs + batches_done / len(self.batches)) / self.max_epochs)

    def factor(self, share: float | None) -> float:
        """Line 32."""
        rise = (self.steps + 1) / RISE_STEPS
        if share is not None:
            rise = max(rise, share / RISE_SHARE)
        return min(1.0, rise, math.inf if share is None else (1.0 - share) / self.decay)

    def length(self) -> int:
        """Line 33."""
        number = len(self.batches)
        part = math.ceil(number / math.ceil(number / self.window))
        return min(part, max(FIRST, round(PART * self.judged)))

    def waits(self, seen: float) -> bool:
        """Line 33, where an epoch is over: whether the next one goes on with its window."""
        share = self.share(len(self.batches))
        sizes = [len(y) for _, y in self.batches]
        batches = sum(sizes) / sizes[0]
        if self.starting or share is None or share >= 1.0 or batches >= FIRST:
            return False
        if not seen <= self.f_0 + (FAR - 1) * abs(self.f_0):
            return False
        return self.count + batches / 2 < min(self.window, max(FIRST, round(PART * self.judged)))

    def epoch(self) -> None:
        done = 0
        while done < len(self.batches):
            length = min(self.length(), len(self.batches) - done)
            seen = self.run(done, length)
            done += length
            if length == len(self.batches) and self.waits(seen / sum(len(y) for _, y in self.batches)):
                self.seen.add("left open")
            else:
                self.judge(self.share(done))
        self.epochs += 1

    def run(self, done: int, length: int) -> float:
        """Steps; gives the sum of the losses that they saw, sample by sample."""
        if self.saved is None:
            weights, base = copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.base.state_dict())
            self.saved = weights, base, self.evaluate()
            self.count = self.total = 0.0
        self.switch("train")
        total = 0.0
        chosen = self.batches[done : done + length]
        for number, (x, y) in enumerate(chosen):
            for group, share in zip(self.base.param_groups, self.shares, strict=True):
                group["lr"] = self.zeta * share * self.factor(self.share(done + number + 0.5))
            self.base.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            total += loss.item() * len(y)
            self.base.step()
            self.steps += 1
        self.switch("eval")
        self.count += sum(len(y) for _, y in chosen) / len(chosen[0][1])
        self.total += total
        return total

    def judge(self, share: float | None) -> None:
        (weights, base, before), self.saved = self.saved, None
        total, count = self.total, self.count
        self.judged += count
        self.due -= 1
        after = self.evaluate()
        highest = self.low + self.tolerance * abs(self.scale) * max(1.0, FEW / max(1.0, count))
        highest = before if self.starting else max(highest, before)
        bound = self.f_0
        if self.low > LEVEL * self.f_0 and count > 1.0:
            late = share is not None and share >= 1.0 - self.decay
            bound = max(self.f_0, before) if late else self.f_0 + SLACK * abs(self.f_0)
        if math.isfinite(total) and after <= min(highest, bound):  # line 34
            self.keep(before, after, share)
            return
        self.model.load_state_dict(weights)
        self.base.load_state_dict(base)
        self.undo()

    def undo(self) -> None:
        if self.starting or self.scale == math.inf:  # line 39
            self.seen.add("refused early")
            self.zeta /= START
            self.usual = self.zeta if self.usual == math.inf else self.usual
        else:
            self.seen.add("refused")
            self.zeta *= self.theta
        self.starting = False
        self.bar()  # line 40

    def bar(self) -> None:
        self.wait = 2 * self.wait + 1
        self.due = max(self.wait, self.due)

    def keep(self, before: float, after: float, share: float | None) -> None:
        self.since_low = 0 if after < self.low else self.since_low + 1
        self.low_before, self.low = self.low, min(self.low, after)
        if self.starting and after < before:  # line 35
            self.seen.add("start")
            self.starting = START * self.zeta < self.usual
            self.zeta *= min(START, self.usual / self.zeta)
            return
        if self.starting:
            self.starting = False
            self.usual = min(self.usual, self.zeta) if self.usual == math.inf else self.usual
        if self.judged < SETTLED:
            self.low = after
        elif self.scale == math.inf or self.judged <= 2 * FIRST:
            self.scale = after
        if share is None and self.since_low >= PATIENCE:  # line 38
            self.seen.add("stagnated")
            least = self.usual * math.sqrt(EARLY / self.judged)
            self.zeta = min(self.zeta, max(self.theta * self.zeta, least))
            self.since_low = 0
            self.due = max(REST, self.due)
        elif self.due <= 0 and (share is None or share < 1.0 - self.decay):
            if self.since_low >= PATIENCE_ABOVE and self.zeta > self.usual:  # line 38
                self.seen.add("stagnated above")
                self.zeta = self.cap = max(self.theta * self.zeta, self.usual)
                self.since_low = 0
            else:
                self.grow(before, after)

    def grow(self, before: float, after: float) -> None:
        factor = 1.0
        if self.zeta < self.usual < math.inf and after <= before:  # line 36
            factor = min(self.growth, self.usual / self.zeta)
        elif (  # line 37
            self.since_low == 0
            and 0.0 < after <= min(GATE * self.f_0, LEVEL * self.scale)
            and before <= STEADY * self.low_before
        ):
            factor = max(1.0, min(self.growth, min(CAP * self.usual, self.cap) / self.zeta))
            if self.cap < min(self.growth * self.zeta, CAP * self.usual):
                self.seen.add("capped")
        if factor > 1.0:
            self.seen.add("grown")
        self.zeta *= factor
