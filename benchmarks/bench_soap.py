"""Time of a whole training step (forward, backward, step) with SOAP over the same with torch's AdamW.

    python benchmarks/bench_soap.py                              # the defaults, one thread
    python benchmarks/bench_soap.py --threads 2
    python benchmarks/bench_soap.py --max-side 128 256 512 --refresh-interval 10 20 --variant default one-sided
    python benchmarks/bench_soap.py --profile gpt                # where the time goes
    python benchmarks/bench_soap.py --memory                     # memory instead of time

Both optimizers train the same model on the same random batch in turns, in blocks of steps that hold whole refresh
intervals; a number is the least time of a block, in processor time with one thread and wall time with more. Data are
random: only the time counts here. Memory: the tensors of the optimizer's state, in multiples of the weights; `Auto` has
two copies of weights, buffers and state besides.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from common import workloads
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from cmalight import Auto
from cmalight.optim import soap
from cmalight.optim.soap import SOAP

BLOCK = 20
Case = tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]


def dense(sizes: list[int], activation: type[nn.Module], dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers[: -2 if dropout else -1])


class VAE(nn.Module):
    """A variational autoencoder on 784 inputs; returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = dense([784, 400, 40], nn.ReLU)
        self.decoder = dense([20, 400, 784], nn.ReLU)

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return functional.binary_cross_entropy_with_logits(self.decoder(code), x) + divergence / 784


def classes(count: int, rows: int) -> Tensor:
    return torch.randint(count, (rows,))


def workload(name: str, rows: int) -> Case:
    """One batch of a workload of the test-bed."""
    problem = workloads.WORKLOADS[name]()
    return problem.make_model(), problem.loss_fn, problem.train[0][:rows], problem.train[1][:rows]


CASES: dict[str, Callable[[], Case]] = {
    "resnet": lambda: (
        workloads.small_resnet(10, channels=3, stride=2, margin=4),
        functional.cross_entropy, torch.randn(128, 3, 32, 32), classes(10, 128),
    ),
    "gpt": lambda: workload("gpt", 16),
    "vit": lambda: workload("vit", 128),
    "lstm": lambda: workload("lstm", 128),
    "denoiser": lambda: workload("denoiser", 64),
    "census": lambda: (
        dense([104, 128, 128, 2], nn.ReLU, 0.1), functional.cross_entropy, torch.randn(128, 104), classes(2, 128),
    ),
    "paper 3x20": lambda: (
        dense([9, 20, 20, 20, 1], nn.Sigmoid), functional.mse_loss, torch.randn(128, 9), torch.randn(128, 1),
    ),
    "paper 5x50": lambda: (
        dense([9, 50, 50, 50, 50, 50, 1], nn.Sigmoid), functional.mse_loss, torch.randn(128, 9), torch.randn(128, 1),
    ),
    "wide 3x512": lambda: (
        dense([64, 512, 512, 512, 10], nn.ReLU), functional.cross_entropy, torch.randn(128, 64), classes(10, 128),
    ),
    "vae": lambda: (VAE(), lambda loss, _: loss, torch.rand(128, 784), torch.zeros(())),
}  # fmt: skip


def one_sided(param: Tensor, state: dict[str, object], max_side: int) -> dict[str, tuple[int, ...]]:
    """Factors for the shorter side alone."""
    shapes = soap_state_shapes(param, state, max_side)
    if "left" in shapes and "right" in shapes:
        longer = "left" if shapes["left"] > shapes["right"] else "right"
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith(longer)}
    return shapes


def unrotated_advance(run: soap._Run, group: dict[str, object]) -> None:
    """The first moment is kept as it is and rotated in each step: two more products."""
    soap._rotate(run.sides, run.first)
    soap_advance(run, group)


def bucket_each(param: Tensor, *_: object) -> object:
    """Each parameter by itself, no batching."""
    return id(param)


soap_state_shapes, soap_advance = soap._state_shapes, soap._advance
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "one-sided": {"_state_shapes": one_sided},
    "unrotated": {"_advance": unrotated_advance},
    "unbatched": {"_bucket_key": bucket_each},
}


@contextmanager
def variant(name: str) -> Iterator[None]:
    with mock.patch.multiple(soap, **VARIANTS[name]) if VARIANTS[name] else mock.patch.dict({}):
        yield


def stepper(case: Callable[[], Case], make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Callable[[], None]:
    torch.manual_seed(0)
    model, loss_fn, x, y = case()
    optimizer = make(list(model.parameters()))

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()

    return step


def block_time(step: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(BLOCK):
        step()
    return (clock() - start) / BLOCK


def measure(name: str, variant_name: str, options: dict[str, int], args: argparse.Namespace) -> tuple[float, float]:
    """Seconds per training step: AdamW, SOAP."""
    clock = time.process_time if args.threads == 1 else time.perf_counter
    adamw = stepper(CASES[name], lambda params: torch.optim.AdamW(params, lr=1e-5))
    ours = stepper(CASES[name], lambda params: SOAP(params, lr=1e-5, **options))
    times: list[tuple[float, float]] = []
    with variant(variant_name):
        ours()
        began = time.perf_counter()
        while len(times) < 5 or time.perf_counter() - began < args.seconds:
            times.append((block_time(adamw, clock), block_time(ours, clock)))
    return min(t[0] for t in times[1:]), min(t[1] for t in times[1:])


def profile(name: str) -> None:
    step = stepper(CASES[name], lambda params: SOAP(params, lr=1e-5))
    for _ in range(BLOCK):
        step()
    with torch.profiler.profile() as profiler:
        for _ in range(BLOCK):
            step()
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=40))


def memory(name: str) -> tuple[int, list[float]]:
    """How many weights there are, and the state of AdamW, SOAP and `Auto` in multiples of them."""
    multiples = []
    for make in (torch.optim.AdamW, SOAP, Auto):
        torch.manual_seed(0)
        model, loss_fn, x, y = CASES[name]()
        optimizer = make(model if make is Auto else model.parameters(), lr=1e-5)
        for _ in range(40):  # several windows, so that `Auto` has both copies
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss) if isinstance(optimizer, Auto) else optimizer.step()
            optimizer.zero_grad()
        state = optimizer.state_dict()
        tensors = {t.data_ptr(): t.nbytes for t in tree_leaves(state) if isinstance(t, Tensor) and t.dim()}
        multiples.append(sum(tensors.values()) / sum(p.nbytes for p in model.parameters()))
    return sum(p.numel() for p in model.parameters()), multiples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="per workload and setting")
    parser.add_argument("--workloads", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--max-side", type=int, nargs="+", default=[256])
    parser.add_argument("--refresh-interval", type=int, nargs="+", default=[10], choices=[5, 10, 20])
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=["default"])
    parser.add_argument("--profile", choices=CASES)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.profile:
        profile(args.profile)
        return
    if args.memory:
        print("| model | weights | AdamW | SOAP | Auto |\n|---|---:|---:|---:|---:|")
        for name in args.workloads:
            weights, multiples = memory(name)
            print(f"| {name} | {weights:,} | {' | '.join(f'{one:.1f}' for one in multiples)} |", flush=True)
        return
    for variant_name in args.variant:
        for max_side in args.max_side:
            for interval in args.refresh_interval:
                print(f"{variant_name}, max_side {max_side}, refresh_interval {interval}, {args.threads} thread(s)")
                ratios = []
                for name in args.workloads:
                    options = {"max_side": max_side, "refresh_interval": interval}
                    adamw, ours = measure(name, variant_name, options, args)
                    ratios.append(ours / adamw)
                    print(f"  {name:12} AdamW {adamw * 1e3:8.3f} ms   SOAP {ours * 1e3:8.3f} ms   {ratios[-1]:5.2f}")
                print(f"  median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
