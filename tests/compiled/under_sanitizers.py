"""Run the whole white list once with a kernel that was built with sanitizers, whose path is the argument."""

from __future__ import annotations

import ctypes
import sys

import torch

from cmalight.compiled import Evaluator, library
from tests.compiled.test_agreement import BATCH, LOSSES, MODELS, OPTIMIZERS, pair, soap


def main() -> None:
    torch.set_num_threads(1)
    kernel = library._declared(ctypes.CDLL(sys.argv[1]))
    library.kernel = lambda: kernel  # type: ignore[assignment]
    for dtype in (torch.float32, torch.float64):
        runs = [(model, "mse", "adam") for model in MODELS]
        runs += [("tanh", loss, "sgd") for loss in LOSSES]
        runs += [("wide", "mse", optimizer) for optimizer in (*OPTIMIZERS, "soap")]
        for model, loss, optimizer in runs:
            make = OPTIMIZERS[optimizer](0.1) if optimizer in OPTIMIZERS else lambda p: soap(p, 0.1)
            both = pair(model, loss, make, dtype, samples=4 * BATCH + 5)
            both.program.begin_epoch(both.batches.permutation(0))
            both.program.run([1.0] * 5)
            Evaluator(both.model, both.loss_fn, both.batches, mode="eval").measure()
    sys.stdout.write("all clean\n")


if __name__ == "__main__":
    main()
