"""A Lightning module, its data and a quiet Trainer, for the tests and for the processes they start."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight
from cmalight.integrations.lightning import WatchdogCallback
from tests.helpers import network, table
from tests.optim.steady import steady_adam

MSE = nn.MSELoss()
BOLD = 1.5  # too large: the first epochs are rejected
QUIETLY = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),  # torch's complaint about Lightning
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


class Regression(LightningModule):
    """As a user writes it: nothing in it knows of the watchdog but configure_optimizers."""

    def __init__(self, lr: float = 0.5, **options: Any) -> None:
        super().__init__()
        self.net = network()
        self.options = {"lr": lr, **options}

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = MSE(self.net(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True, batch_size=len(x))
        return loss

    def configure_optimizers(self):
        return CMALight(self.parameters(), **self.options)


class SteadyRegression(Regression):
    """Its step size is 0.01, and over the last half of the run goes to zero."""

    def configure_optimizers(self):
        self.rates = []
        optimizer = steady_adam(self, **{name: value for name, value in self.options.items() if name != "lr"})
        optimizer.base.register_step_pre_hook(lambda base, *_: self.rates.append(base.param_groups[0]["lr"]))
        return optimizer


class WithValidation(Regression):
    def __init__(self, lr: float = 0.5, **options: Any) -> None:
        super().__init__(lr, **options)
        self.seen_in_validation: list[torch.Tensor] = []

    def on_validation_epoch_start(self):
        if not self.trainer.sanity_checking:
            self.seen_in_validation.append(flat(self))

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", MSE(self.net(x), y))


class Reports(WatchdogCallback):
    """Keeps every report, and the weights right after it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reports: list[Any] = []
        self.weights: list[torch.Tensor] = []

    def _decide(self, trainer):
        super()._decide(trainer)
        self.reports.append(self.report)
        self.weights.append(flat(trainer.lightning_module))


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def batches(size: int = 16, samples: int = 100, dtype: torch.dtype = torch.float64) -> DataLoader:
    x, y = table(100, noise=0.3)
    return DataLoader(TensorDataset(x[:samples].to(dtype), y[:samples].to(dtype)), batch_size=size)


def trainer(*callbacks: Any, **options: Any) -> Trainer:
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 12,
    }
    return Trainer(callbacks=list(callbacks), **{**quiet, **options})


def fitted(module, callback=None, *, data=None, **options):
    callback = callback or Reports()
    trainer(callback, **options).fit(module, batches() if data is None else data)
    return callback
