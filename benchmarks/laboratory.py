"""The laboratory: many runs of one network on one data set in lock-step, so that a rule meets many problems in minutes.

    python benchmarks/laboratory.py run OUT.jsonl --sets bikes mv gen1 --nets 1x50 5x50 --budgets 1500 6000 \
        --seeds 2 --runs baselines wsds rule "rule LEVEL=1" "rule tolerance=0.3"
    python benchmarks/laboratory.py table OUT.jsonl --intervals --detail
    python benchmarks/laboratory.py table OUT.jsonl --intervals --against rule

The networks are the paper's [L x N] as batched matrices, one row per run; the rule is the package's own
(`cmalight.rules.tolerant`). A run is named by what it does:

    adam LR               Adam, fixed
    linear LR             Adam, warm-up over 5 % and a line to zero
    wsd LR                Adam, warm-up over 5 %, constant, a line to zero over the last 40 %
    rule [NAME=VALUE ..]  Adam under the rule, with other settings (small letters) or constants (capitals) of
                          `rules/tolerant.py`; zeta0=, eps=, usual=, sample=, momentum= (SGD instead of Adam),
                          budget=0 (none) and charge=0 (evaluations cost nothing) are the laboratory's

Networks are 1x50 or, with another activation than sigmoid, 1x50:relu, 1x50:tanh. Data sets are the registry's, or gen1,
gen2, ... for random teachers; bikes:1000 is a thousand rows of one. Work is equal: a run ends when its batches and its
evaluations (n rows cost n/3/128 batches) have used up the budget. Epochs that are shorter than a first window are
judged together, as in the package; windows of longer ones go on over the end of an epoch. The table gives ratios to the
best of the ten baselines on the same problem; results resume.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from cmalight.evaluation.sample import outlying_rows
from cmalight.rules import tolerant
from cmalight.rules.rule import InnerCycle, Known

BATCH = 128
RATES, PEAKS = ("1e-3", "3e-3", "1e-2", "3e-2", "1e-1"), ("3e-3", "1e-2", "3e-2", "1e-1", "3e-1")
GROUPS = {
    "baselines": [f"adam {rate}" for rate in RATES] + [f"linear {peak}" for peak in PEAKS],
    "wsds": [f"wsd {rate}" for rate in ("3e-3", "1e-2", "3e-2", "1e-1")],
}
SHAPES = {
    "adam": lambda _: 1.0,
    "linear": lambda t: min(1.0, t / 0.05) * (1 - t),
    "wsd": lambda t: min(1.0, t / 0.05, (1 - t) / 0.4),
}


def training_part(name: str) -> tuple[Tensor, Tensor]:
    """Inputs with a constant column, and targets."""
    name, _, rows = name.partition(":")
    if rows:
        return tuple(t[drawn(len(t))[: int(rows)]] for t in training_part(name))  # type: ignore[return-value]
    if name.startswith("gen"):
        return generated(int(name[3:]))
    from cmalight.datasets import load_dataset

    data = load_dataset(name)
    x = data.x_train.reshape(len(data.x_train), -1).float()
    y = data.y_train.reshape(len(x), -1)
    y = torch.nn.functional.one_hot(y[:, 0]).float() if not y.is_floating_point() else y.float()
    return torch.cat([x, torch.ones(len(x), 1)], 1), y


def drawn(rows: int) -> Tensor:
    """All rows in an order of their own; the first ones are a sample."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(7))


def generated(seed: int) -> tuple[Tensor, Tensor]:
    """Regression on a random two-layer teacher: rows, features and noise from the seed."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    u = torch.rand(6, generator=generator).tolist()
    rows, columns, hidden = int(2000 * 15 ** u[0]), int(4 * 15 ** u[1]), int(3 * 10 ** u[2])
    x = torch.randn(rows, columns, generator=generator)
    inner = x @ torch.randn(columns, hidden, generator=generator) / math.sqrt(columns) * (0.5 + 3 * u[4])
    y = torch.tanh(inner) @ torch.randn(hidden, 1, generator=generator) / math.sqrt(hidden)
    y = y / y.std() + 10 ** (-3 + 2.5 * u[3]) * torch.randn(rows, 1, generator=generator)
    x, y = (x - x.amin(0)) / (x.amax(0) - x.amin(0)), (y - y.min()) / (y.max() - y.min())
    return torch.cat([x, torch.ones(rows, 1)], 1), y


# Each in place, with its derivative by its value.
ACTIVATIONS = {
    "sigmoid": (Tensor.sigmoid_, lambda h: h * (1 - h)),
    "relu": (Tensor.relu_, lambda h: (h > 0).float()),
    "tanh": (Tensor.tanh_, lambda h: 1 - h * h),
}


class Networks:
    """Copies of the paper's small network (no biases) as batched matrices, each from its seed."""

    def __init__(self, inputs: int, net: str, outputs: int, seeds: list[int]) -> None:
        size, _, activation = net.partition(":")
        self.activate, self.derivative = ACTIVATIONS[activation or "sigmoid"]
        layers, width = map(int, size.split("x"))
        self.shapes = [(inputs, width), *[(width, width)] * (layers - 1), (width, outputs)]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        rows = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            drawn = [torch.rand(s, generator=generator) * 2 - 1 for s in self.shapes]
            rows.append(torch.cat([(w / math.sqrt(s[0])).flatten() for w, s in zip(drawn, self.shapes, strict=True)]))
        self.weights = torch.stack(rows)

    def parts(self, w: Tensor) -> list[Tensor]:
        return [p.view(len(w), *s) for p, s in zip(w.split(self.sizes, 1), self.shapes, strict=True)]

    def loss_and_gradient(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        matrices, hidden = self.parts(w), [x]
        for matrix in matrices[:-1]:
            hidden.append(self.activate(torch.bmm(hidden[-1], matrix)))
        residual = torch.bmm(hidden[-1], matrices[-1]) - y
        back = residual * (2.0 / (y.shape[1] * y.shape[2]))
        gradient = torch.empty_like(w)
        for number in range(len(matrices) - 1, -1, -1):
            self.parts(gradient)[number].copy_(torch.bmm(hidden[number].transpose(1, 2), back))
            if number:
                back = torch.bmm(back, matrices[number].transpose(1, 2)).mul_(self.derivative(hidden[number]))
        return (residual * residual).mean((1, 2)), gradient

    def f(self, w: Tensor, x: Tensor, y: Tensor) -> list[float]:
        total = torch.zeros(len(w), dtype=torch.float64)
        for some, target in zip(x.split(2048), y.split(2048), strict=True):
            matrices, h = self.parts(w), some.expand(len(w), *some.shape)
            for matrix in matrices[:-1]:
                h = self.activate(torch.bmm(h, matrix))
            total += ((torch.bmm(h, matrices[-1]) - target) ** 2).mean(2).sum(1).double()
        return (total / len(x)).tolist()


class Fixed:
    """A run whose schedule is known beforehand."""

    rows, eps, momentum = 0, 1e-15, None

    def __init__(self, kind: str, lr: float, budget: float) -> None:
        self.work, self.lr, self.budget, self.shape = 0.0, lr, budget, SHAPES[kind]

    def rate(self) -> float:
        return self.lr * self.shape((self.work + 0.5) / self.budget)

    def took(self, _loss: float) -> None:
        self.work += 1


class Ruled:
    """A run under the package's rule; also what the rule asks, with the values that the race has evaluated."""

    def __init__(self, options: dict[str, float], budget: float, per_epoch: int, rows: int, apart: int) -> None:
        own = {
            "zeta0": None,
            "eps": 1e-15,
            "budget": budget,
            "sample": 512,
            "usual": 7e-3,
            "momentum": None,
            "charge": 1.0,
        }
        own |= {name: options.pop(name) for name in list(options) if name in own}
        self.momentum = own["momentum"]
        self.constants = {name: options.pop(name) for name in list(options) if name.isupper()}
        self.rule = tolerant.TolerantRule(tolerant.Settings(usual=own["usual"], **options))  # type: ignore[arg-type]
        self.zeta = self.rule.begins_at(own["zeta0"] or own["usual"])
        self.eps, self.budget, self.end = own["eps"], own["budget"] or None, budget
        self.rows, self.per_epoch = rows if rows <= 2048 else min(int(own["sample"]), rows), per_epoch
        self.price = own["charge"] * (self.rows + apart) / 3 / BATCH
        self.work, self.steps, self.outcomes = 0.0, 0, []

    def start(self, f_0: float) -> None:
        self.known, self.before = Known(f_0, f_0, None), f_0
        self.memory = self.rule.fresh(f_0, self.zeta)
        self.work += self.price
        self.open()

    def open(self) -> None:
        self.taken, self.sum, self.of_epoch = 0, 0.0, 0.0
        self.plan()

    def plan(self) -> None:
        with self.changed():
            self.left = self.rule.window(self.memory, self.per_epoch) or self.per_epoch

    def took(self, loss: float) -> None:
        self.work, self.steps = self.work + 1, self.steps + 1
        self.taken, self.left = self.taken + 1, self.left - 1
        self.sum, self.of_epoch = self.sum + loss, self.of_epoch + loss

    def waits(self) -> bool:
        """Whether an epoch that is over is too short to be judged."""
        figures = {"batches": self.taken, "of_epoch": self.per_epoch, "f_tilde": self.of_epoch / self.per_epoch}
        with self.changed():
            waits = self.rule.waits(self.known, self.memory, share=self.share(), **figures)
        if waits:
            self.of_epoch = 0.0
            self.plan()
        return waits

    def changed(self) -> Any:
        return mock.patch.multiple(tolerant, **self.constants) if self.constants else nullcontext()

    def share(self, more: float = 0.0) -> float | None:
        return None if self.budget is None else min(1.0, (self.work + more) / self.budget)

    def rate(self) -> float:
        with self.changed():
            return self.zeta * self.rule.factor(self.share(0.5), self.steps)

    def close(self, after: float) -> bool:
        """Judge the window; gives whether it is kept."""
        self.work += self.price
        self.after = after if math.isfinite(after) else math.inf
        mean = self.sum / self.taken
        inner = InnerCycle(self.zeta, mean if math.isfinite(mean) else math.inf, 1.0, self.taken, self.share())
        with self.changed():
            decision, self.memory = self.rule.decide(inner, self.known, self.memory, self)  # type: ignore[arg-type]
        self.outcomes.append(decision.outcome.name.lower())
        self.zeta *= decision.zeta_factor
        if decision.alpha:
            self.before = self.after
        self.open()
        return bool(decision.alpha)

    def sample_before(self) -> float:
        return self.before

    def sample_after(self) -> float:
        return self.after


def made(name: str, budget: float, per_epoch: int, rows: int, apart: int) -> Fixed | Ruled:
    kind, *rest = name.split()
    if kind == "rule":
        return Ruled({key: float(text) for key, text in (r.split("=") for r in rest)}, budget, per_epoch, rows, apart)
    run = Fixed(kind, float(rest[0]), budget)
    if len(rest) > 1:
        run.eps = float(rest[1].removeprefix("eps="))
    return run


@torch.no_grad()
def race(
    x: Tensor, y: Tensor, net: str, names: list[str], seeds: list[int], budget: int, *, trained: int = 0
) -> list[dict[str, Any]]:
    """Every named run from every seed to the true training loss at its end; after `trained` batches of Adam, if any."""
    per_epoch = max(1, len(x) // BATCH)
    keys = [(name, seed) for name in names for seed in seeds]
    apart = outlying_rows((x, y), most=64) if len(x) > 2048 else []
    runs = [made(name, budget, per_epoch, len(x), len(apart)) for name, _ in keys]
    networks = Networks(x.shape[1], net, y.shape[1], [seed for _, seed in keys])
    w = networks.weights
    if trained:
        before = race(x, y, net, ["linear 1e-2"], seeds, trained)
        w = torch.stack([before[seeds.index(seed)]["weights"] for _, seed in keys])
    m, v, t = torch.zeros_like(w), torch.zeros_like(w), torch.zeros(len(keys), 1)
    sampled = drawn(len(x))
    sampled = sampled[~torch.isin(sampled, torch.tensor(apart))]

    def of_sample(weights: Tensor, rows: int) -> float:
        mean, share = networks.f(weights, x[sampled[:rows]], y[sampled[:rows]])[0], len(apart) / len(x)
        return (1 - share) * mean + share * networks.f(weights, x[apart], y[apart])[0] if apart else mean

    for i, run in enumerate(runs):
        if isinstance(run, Ruled):
            run.start(of_sample(w[i : i + 1], run.rows))
    kept = [state.clone() for state in (w, m, v, t)]
    which = torch.tensor([seeds.index(seed) for _, seed in keys])
    orders = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    eps = torch.tensor([[run.eps] for run in runs])
    sgd = [i for i, run in enumerate(runs) if run.momentum is not None]
    momentum = torch.tensor([[runs[i].momentum] for i in sgd])
    found: list[dict[str, Any]] = [{"run": name, "seed": seed} for name, seed in keys]
    going, position, order = set(range(len(runs))), per_epoch, []
    while going:
        if position >= per_epoch:
            order, position = [torch.randperm(len(x), generator=g) for g in orders], 0
        rows = [o[position * BATCH : (position + 1) * BATCH] for o in order]
        position += 1
        rates = torch.tensor([[run.rate() if i in going else 0.0] for i, run in enumerate(runs)])
        inputs, targets = torch.stack([x[i] for i in rows])[which], torch.stack([y[i] for i in rows])[which]
        loss, gradient = networks.loss_and_gradient(w, inputs, targets)
        t += 1
        velocity = momentum * m[sgd] + gradient[sgd] if sgd else None
        m.mul_(0.9).add_(gradient, alpha=0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (v / (1 - 0.999**t)).sqrt_().add_(eps).reciprocal_()
        before, w = w, w - scale.mul_(m).mul_(rates / (1 - 0.9**t))
        if sgd:
            m[sgd] = velocity
            w[sgd] = before[sgd] - rates[sgd] * velocity
        for i, value in enumerate(loss.tolist()):
            if i not in going:
                continue
            run = runs[i]
            run.took(value)
            is_last = run.work >= budget
            if isinstance(run, Ruled):
                is_last = run.work + run.price + 1 > run.end
                if is_last or not math.isfinite(value) or (run.left == 0 and not run.waits()):
                    stands = run.close(of_sample(w[i : i + 1], run.rows))
                    for now, before in zip((w, m, v, t), kept, strict=True):
                        (before if stands else now)[i] = (now if stands else before)[i]
                    found[i]["outcomes"] = run.outcomes
            if is_last:
                found[i] |= {"train": networks.f(w[i : i + 1], x, y)[0], "weights": w[i].clone()}
                going.discard(i)
    return found


def run(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    names = [name for one in given.runs for name in GROUPS.get(one, [one])]
    seeds = list(range(given.first_seed, given.first_seed + given.seeds))
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(r["set"], r["net"], r["budget"], r["run"], r["seed"]) for r in map(json.loads, lines)}
    for budget in given.budgets:
        for net in given.nets:
            for name in given.sets:
                todo = [n for n in names if any((name, net, budget, n, seed) not in done for seed in seeds)]
                if not todo:
                    continue
                began = time.perf_counter()
                results = race(*training_part(name), net, todo, seeds, budget, trained=given.trained)
                with given.out.open("a") as out:
                    for result in results:
                        del result["weights"]
                        out.write(json.dumps({"set": name, "net": net, "budget": budget, **result}) + "\n")
                print(budget, net, name, len(todo), f"{time.perf_counter() - began:.0f} s", flush=True)


def mean(values: list[float]) -> float:
    """Geometric."""
    return math.exp(sum(math.log(max(v, 1e-30)) if math.isfinite(v) else 20.0 for v in values) / len(values))


def table(given: argparse.Namespace) -> None:
    """Ratios to the best baseline of a problem, or to another run from the same seed: geometric means, intervals."""
    losses: dict[str, dict[tuple[str, str, int], dict[int, float]]] = {}
    for line in "".join(path.read_text() for path in given.out).splitlines():
        r = json.loads(line)
        losses.setdefault(r["run"], {}).setdefault((r["set"], r["net"], r["budget"]), {})[r["seed"]] = r["train"]
    baselines = [losses[name] for name in GROUPS["baselines"] if name in losses]
    best = {p: min(mean(list(one[p].values())) for one in baselines if p in one) for one in baselines for p in one}
    rows = []
    for name, of_problem in losses.items():
        ratios: dict[tuple[str, str, int], list[float]] = {}
        for p, values in of_problem.items():
            beside = losses[given.against].get(p, {}) if given.against else dict.fromkeys(values, best.get(p))
            ratios[p] = [value / beside[seed] for seed, value in values.items() if beside.get(seed)]
        ratios = {p: of_seeds for p, of_seeds in ratios.items() if of_seeds}
        if ratios:
            rows.append((mean([mean(of_seeds) for of_seeds in ratios.values()]), name, ratios))
    draw = random.Random(0)
    for middle, name, ratios in sorted(rows):
        means = {p: mean(of_seeds) for p, of_seeds in ratios.items()}
        within = sum(ratio <= 1.2 for ratio in means.values()) / len(means)
        interval = ""
        if given.intervals:
            again = sorted(mean([mean(draw.choices(r, k=len(r))) for r in ratios.values()]) for _ in range(200))
            interval = f" [{again[10]:.3f}, {again[189]:.3f}]"
        worst = max(means.values())
        print(f"{middle:6.3f}{interval} within 1.2: {within:4.0%}  worst {worst:6.2f}  of {len(means):3d}  {name}")
        if given.detail:
            for (data, net, budget), ratio in sorted(means.items(), key=lambda item: item[0][1:]):
                print(f"        {budget:6d} {net:>5} {data:>14} {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("--sets", nargs="+", required=True)
    runs.add_argument("--nets", nargs="+", default=["1x50", "3x20", "5x50", "10x50"])
    runs.add_argument("--budgets", nargs="+", type=int, default=[1500, 6000])
    runs.add_argument("--seeds", type=int, default=2)
    runs.add_argument("--first-seed", type=int, default=0)
    runs.add_argument("--trained", type=int, default=0, metavar="BATCHES", help="begin after so many of linear 1e-2")
    runs.add_argument("--runs", nargs="+", default=["baselines", "wsds", "rule"])
    runs.set_defaults(do=run)
    tables = verbs.add_parser("table")
    tables.add_argument("out", type=Path, nargs="+")
    tables.add_argument(
        "--against", metavar="RUN", help="ratios to this run from the same seed, not to the best baseline"
    )
    tables.add_argument("--intervals", action="store_true")
    tables.add_argument("--detail", action="store_true")
    tables.set_defaults(do=table)
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
