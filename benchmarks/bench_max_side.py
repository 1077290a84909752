"""Which `max_side` a transformer of ten million weights wants, at equal time: 256 leaves all its matrices to Adam.

    python benchmarks/bench_max_side.py --seconds 150

A character model of width 384 with six blocks, batches of 16 windows, one thread. Every run has the same processor time
and decays to zero within it; the loss is that on text that no run has seen.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from common import workloads
from torch import Tensor, nn

from cmalight import Auto, TensorBatches

WIDTH, BLOCKS, BATCH = 384, 6, 16
RUNS = ((256, 1e-3), (256, 1e-2), (512, 3e-3), (512, 1e-2), (2048, 3e-3))


class Model(workloads.GPT):
    """The character model of the workloads with more blocks."""

    def __init__(self, symbols: int) -> None:
        super().__init__(symbols, WIDTH)
        blocks = [workloads.Block(WIDTH, is_causal=True) for _ in range(BLOCKS)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(WIDTH))


def train(max_side: int, lr: float, seconds: float) -> tuple[int, float, int]:
    """Steps taken, the validation loss after them, and the number of weights."""
    problem = workloads.gpt(characters=400_000)
    symbols = int(max(problem.train[0].max(), problem.train[1].max())) + 1
    torch.manual_seed(0)
    model = Model(symbols)
    start = time.process_time()

    def done() -> float:
        return min(1.0, (time.process_time() - start) / seconds)

    optimizer = Auto(model, lr=lr, max_side=max_side, progress=done)
    steps = 0
    while done() < 1:
        for x, y in TensorBatches(*problem.train, batch_size=BATCH, seed=steps):
            loss = problem.loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
            steps += 1
            if done() >= 1:
                break
    return steps, unseen_loss(model, problem), sum(p.numel() for p in model.parameters())


@torch.no_grad()
def unseen_loss(model: nn.Module, problem: workloads.Problem) -> float:
    x, y = (part[:256] for part in problem.validation)
    losses: list[Tensor] = [problem.loss_fn(model.eval()(a), b) for a, b in zip(x.split(64), y.split(64), strict=True)]
    return float(torch.stack(losses).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=150.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| max_side | lr | weights | steps | validation loss |\n|---:|---:|---:|---:|---:|")
    for max_side, lr in RUNS:
        steps, loss, weights = train(max_side, lr, args.seconds)
        print(f"| {max_side} | {lr:g} | {weights / 1e6:.1f} million | {steps} | {loss:.3f} |", flush=True)


if __name__ == "__main__":
    main()
