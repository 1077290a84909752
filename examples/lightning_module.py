"""Lightning: the optimizer comes from `configure_optimizers`. Lightning passes it a closure, so nothing else is new."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Auto


class Regression(LightningModule):
    """A small network for a regression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1))
        self.loss = nn.MSELoss()

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return self.loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.log("val_loss", self.loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Auto:
        optimizer = Auto(self, total_steps=int(self.trainer.estimated_stepping_batches))
        optimizer.on_report(print)
        return optimizer


def main() -> None:
    seed_everything(0, verbose=False)
    x = torch.randn(2400, 8)
    y = torch.tanh(x @ torch.randn(8, 1)) + 0.05 * torch.randn(2400, 1)
    training = DataLoader(TensorDataset(x[400:], y[400:]), batch_size=32, shuffle=True)
    validation = DataLoader(TensorDataset(x[:400], y[:400]), batch_size=400)
    best = ModelCheckpoint("lightning_checkpoints", monitor="val_loss")
    trainer = Trainer(
        callbacks=[best],
        max_epochs=10,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), training, validation)
    print(f"best validation loss {best.best_model_score:.5f} in {best.best_model_path}")


if __name__ == "__main__":
    main()
