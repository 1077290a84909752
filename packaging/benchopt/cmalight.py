"""A benchopt solver: `Auto` on a benchmark whose objective gives a PyTorch model and a data set."""

from typing import Any, ClassVar

import torch
from benchopt import BaseSolver
from torch.utils.data import DataLoader

from cmalight import Auto, Objective


class Solver(BaseSolver):
    """SOAP under the watchdog of cmalight."""

    name = "cmalight-auto"
    requirements: ClassVar[list[str]] = ["pip::cmalight", "pytorch"]
    sampling_strategy = "callback"
    parameters: ClassVar[dict[str, Any]] = {"lr": [1e-2], "batch_size": [128], "weight_decay": [0.0]}

    def set_objective(self, model, dataset, loss=None):
        """Take the problem. The objective makes a new model before each repetition."""
        self.model, self.dataset = model, dataset
        self.loss = torch.nn.CrossEntropyLoss() if loss is None else loss

    def run(self, callback):
        """Train one epoch after the other, as long as the callback says so.

        Benchopt decides when to stop, so the number of steps is not known and the learning rate does not decay.
        """
        loader = DataLoader(self.dataset, batch_size=self.batch_size, shuffle=True)
        objective = Objective(self.model, self.loss, loader)
        optimizer = Auto(self.model, objective=objective, lr=self.lr, weight_decay=self.weight_decay)
        while callback():
            self.model.train()
            for x, y in loader:
                loss = self.loss(self.model(x), y)
                loss.backward()
                optimizer.step(loss)
                optimizer.zero_grad()

    def get_result(self):
        """Return what the objective evaluates."""
        return {"model": self.model}
