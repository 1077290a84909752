"""Lightning's Trainer with what `configure_optimizers` returns, and nothing else."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective, Outcome
from tests.helpers import same_state

pytest.importorskip("lightning")
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch.optim.lr_scheduler import CosineAnnealingLR

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),  # torch's complaint about Lightning
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks"),
]
MSE = nn.MSELoss()
X = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True).sin()


def loader(size=16):
    return DataLoader(TensorDataset(X, Y), batch_size=size)


class Regression(LightningModule):
    """As a user writes it: nothing in it knows of a control but configure_optimizers."""

    def __init__(self, scheduler=False):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        self.has_scheduler = scheduler
        self.reports = []

    def loss(self, batch):
        return MSE(self.net(batch[0]), batch[1])

    def training_step(self, batch):
        loss = self.loss(batch)
        self.log("train_loss", loss, batch_size=len(batch[1]))
        return loss

    def objective(self):
        steps = self.trainer.estimated_stepping_batches  # loads the data, too
        data = self.trainer.train_dataloader
        return Objective(self, None, data, forward=lambda m, b: (m.loss(b), len(b[1]))), steps

    def configure_optimizers(self):
        objective, steps = self.objective()
        base = torch.optim.Adam(self.parameters(), lr=1e-2)
        optimizer = Controlled(base, self, objective=objective, total_steps=None if self.has_scheduler else steps)
        optimizer.on_report(self.reports.append)
        if not self.has_scheduler:
            return optimizer
        scheduler = {"scheduler": CosineAnnealingLR(optimizer, steps), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def trainer(*callbacks, **options):
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 4,
    }
    return Trainer(callbacks=list(callbacks), **{**quiet, **options})


def fitted(module, data=None, **options):
    run = trainer(**options)
    run.fit(module, loader() if data is None else data)
    return run.optimizers[0]


def looped(module, *, epochs=4, parts=1, clip=None):
    """The same by hand."""
    base = torch.optim.Adam(module.parameters(), lr=1e-2)
    objective = Objective(module, None, loader(), forward=lambda m, b: (m.loss(b), len(b[1])))
    optimizer = Controlled(base, module, objective=objective, total_steps=epochs * -(-7 // parts))
    for _ in range(epochs):
        for number, batch in enumerate(loader()):
            loss = module.loss(batch) / parts
            loss.backward()
            if number % parts == parts - 1 or number == 6:
                if clip:
                    nn.utils.clip_grad_norm_(module.parameters(), clip)
                optimizer.step(loss)  # Lightning's closure has the last batch's
                optimizer.zero_grad()
    return optimizer


@pytest.mark.parametrize(
    ("options", "by_hand"),
    [({}, {}), ({"accumulate_grad_batches": 2}, {"parts": 2}), ({"gradient_clip_val": 0.1}, {"clip": 0.1})],
    ids=["plain", "accumulated", "clipped"],
)
def test_the_trainer_does_what_the_loop_does(options, by_hand):
    module, twin = Regression(), Regression()
    optimizer, expected = fitted(module, **options), looped(twin, **by_hand)
    assert (optimizer.steps, optimizer.total_steps) == (expected.steps, expected.total_steps)
    assert optimizer.report == expected.report
    assert same_state(module.net.state_dict(), twin.net.state_dict())


@pytest.mark.parametrize("scaled", [False, True])
def test_mixed_precision_trains_and_a_step_that_the_scaler_skips_is_no_step(scaled):
    plugin = (
        MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**10))
        if scaled
        else MixedPrecision("bf16-mixed", "cpu")
    )

    class Overflowing(Callback):
        def on_after_backward(self, trainer, module):
            if scaled and trainer.fit_loop.total_batch_idx == 8:
                module.net[0].weight.grad[0, 0] = torch.inf

    class Observing(Regression):
        """With a scaler Lightning calls `step()` without its closure."""

        def training_step(self, batch):
            loss = super().training_step(batch)
            if scaled:
                self.optimizers(use_pl_optimizer=False).observe(loss)
            return loss

    module = Observing()
    run = trainer(Overflowing(), plugins=[plugin])
    run.fit(module, loader())
    assert run.optimizers[0].steps == 28 - scaled
    assert {report.outcome for report in module.reports} == {Outcome.KEPT}


@pytest.mark.parametrize("scheduler", [False, True])
def test_a_checkpoint_resumes_inside_a_window_bit_for_bit(tmp_path, scheduler):
    """A window of 5 steps is open after the 7 steps of the first epoch."""
    whole, resumed = Regression(scheduler), Regression(scheduler)
    trainer(ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")).fit(whole, loader())
    again = trainer()
    again.fit(resumed, loader(), ckpt_path=tmp_path / "epoch=0.ckpt", weights_only=True)
    assert again.optimizers[0].steps == 28
    assert resumed.reports == whole.reports[-len(resumed.reports) :]
    assert same_state(resumed.state_dict(), whole.state_dict())
