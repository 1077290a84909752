"""A Lightning module as it always was; the watchdog is a callback."""

from __future__ import annotations

import torch
from cmalight.integrations.lightning import WatchdogCallback
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled
from cmalight.datasets.generated import teacher_network


class Regression(LightningModule):
    """What is new in it is the name in configure_optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 1))
        self.loss = nn.MSELoss()

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = self.loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.log("val_loss", self.loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Controlled:
        return Controlled(torch.optim.Adam(self.parameters(), lr=7e-3, eps=1e-15))  # the Trainer says how long it is


class PrintReports(WatchdogCallback):
    """The callback, talking."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        print(f"{trainer.current_epoch:3}  {self.report}")


def main() -> None:
    seed_everything(0, verbose=False)
    x, y = teacher_network(2400, 8, noise=0.05)
    training = DataLoader(TensorDataset(x[400:], y[400:]), batch_size=64, shuffle=True)
    validation = DataLoader(TensorDataset(x[:400], y[:400]), batch_size=400)
    best = ModelCheckpoint("lightning_checkpoints", monitor="val_loss")
    trainer = Trainer(
        callbacks=[PrintReports(), best],
        max_epochs=10,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), training, validation)
    print(f"best validation loss {best.best_model_score:.4f} in {best.best_model_path}")


if __name__ == "__main__":
    main()
