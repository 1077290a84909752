"""Lightning: manual optimization, broken off epochs, modules that do unusual things, and what is refused."""

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn

from cmalight import CMA, IG, CMALight, Objective, Outcome
from cmalight.integrations.lightning import WatchdogCallback
from tests.helpers import run_epoch
from tests.integrations.lightning_modules import (
    BOLD,
    MSE,
    QUIETLY,
    Regression,
    Reports,
    WithValidation,
    batches,
    fitted,
    flat,
    trainer,
)

pytestmark = QUIETLY


class Manual(Regression):
    def __init__(self, lr):
        super().__init__(lr)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = MSE(self.net(batch[0]), batch[1])
        self.manual_backward(loss)
        optimizer.step()


def evaluate(module, batch):
    return MSE(module.net(batch[0]), batch[1]), len(batch[0])


def test_manual_optimization_works_with_a_forward():
    manual, automatic = Manual(BOLD), Regression(BOLD)
    reports = fitted(manual, Reports(forward=evaluate)).reports
    assert reports == fitted(automatic).reports
    assert torch.equal(flat(manual), flat(automatic))


def test_manual_optimization_without_a_forward_is_refused():
    with pytest.raises(ValueError, match=r"manual optimization.*forward="):
        fitted(Manual(0.5))


@pytest.mark.parametrize("limit", [{"max_steps": 10}, {"max_steps": 10, "val_check_interval": 3}], ids=str)
def test_a_fit_that_is_stopped_inside_an_epoch_goes_back_to_its_beginning(limit, caplog):
    module, callback = WithValidation(0.5), Reports()
    trainer(callback, max_epochs=-1, **limit).fit(module, batches(), batches())
    assert torch.equal(flat(module), callback.weights[0])
    assert len(callback.reports) == 1
    assert "back where it began" in caplog.text
    assert module.trainer.optimizers[0].epoch_under_way is None


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_resumed_inside_an_epoch_its_rest_is_an_epoch(tmp_path):
    saved = ModelCheckpoint(tmp_path, filename="middle", every_n_train_steps=10, save_top_k=1)
    trainer(Reports(), saved, enable_checkpointing=True, max_epochs=2).fit(Regression(0.3), batches())
    module, resumed = Regression(0.3), Reports()
    trainer(resumed, max_epochs=4).fit(module, batches(), ckpt_path=tmp_path / "middle.ckpt", weights_only=True)
    assert len(resumed.reports) == 3  # the rest of the second epoch, the third and the fourth
    assert resumed.reports[0].lr == 0.3
    assert resumed.reports[-1].phi < resumed.reports[0].phi


def test_clipped_gradients_are_what_the_epoch_went_by():
    module, twin = Regression(0.5), Regression(0.5)
    reports = fitted(module, gradient_clip_val=0.05, max_epochs=4).reports
    optimizer = twin.configure_optimizers()
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(twin.parameters(), 0.05) and None)
    objective = Objective(twin, None, batches(), forward=evaluate)
    assert reports == [run_epoch(optimizer, objective, twin.net, batches(), early=True) for _ in range(4)]
    assert torch.equal(flat(module), flat(twin))


class FailAt(Callback):
    def __init__(self, error, batch):
        self.error, self.batch = error, batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx == self.batch:
            raise self.error


def test_ctrl_c_goes_back_to_the_beginning_of_the_epoch():
    module, callback = Regression(0.5), Reports()
    with pytest.raises(SystemExit):
        trainer(callback, FailAt(KeyboardInterrupt(), 3)).fit(module, batches())
    assert torch.equal(flat(module), callback.weights[0])


def test_an_error_leaves_the_weights_and_closes_the_epoch():
    module, callback = Regression(0.5), Reports()
    with pytest.raises(RuntimeError, match="disk full"):
        trainer(callback, FailAt(RuntimeError("disk full"), 3)).fit(module, batches())
    assert not torch.equal(flat(module), callback.weights[0])
    fitted(module, max_epochs=1)


class WithMetric(Regression):
    """Logs in the ways that are allowed in training_step only, and counts with torchmetrics."""

    def __init__(self, *args, **options):
        from torchmetrics import MeanSquaredError

        super().__init__(*args, **options)
        self.error = MeanSquaredError()
        self.steps = 0

    def training_step(self, batch):
        x, y = batch
        output = self.net(x)
        self.error(output, y)
        self.log("error", self.error, on_step=True, on_epoch=True)
        self.log_dict({"loss_as_dict": MSE(output, y)}, on_step=True)
        return {"loss": MSE(output, y), "extra": 1}

    def on_train_epoch_end(self):
        self.samples_counted = int(self.error.total)


def test_an_evaluation_leaves_no_trace_in_logs_and_metrics():
    module = WithMetric(2.0, line_search="certified")
    callback = fitted(module, max_epochs=3)
    assert sum(r.evaluations for r in callback.reports) > 2
    assert module.samples_counted == 100
    assert "log" not in vars(module)


class LeavesOut(Regression):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 2 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_batch_that_is_left_out_is_no_step():
    data = list(batches())
    module, twin = LeavesOut(), Regression()
    reports = fitted(module, Reports(forward=evaluate), max_epochs=3).reports
    optimizer = twin.configure_optimizers()
    objective = Objective(twin, None, data, forward=evaluate)
    expected = [run_epoch(optimizer, objective, twin.net, data[:2] + data[3:]) for _ in range(3)]
    assert reports == expected
    assert torch.equal(flat(module), flat(twin))


def test_a_batch_without_a_loss_cannot_be_evaluated_by_training_step():
    with pytest.raises(ValueError, match="every batch counts there"):
        fitted(LeavesOut())


def test_only_the_batches_that_are_trained_on_are_evaluated():
    few, all_of_few = Regression(BOLD), Regression(BOLD)
    reports = fitted(few, limit_train_batches=4).reports
    assert reports == fitted(all_of_few, data=batches(samples=64)).reports


@pytest.mark.parametrize("optimizer", [CMA, IG])
def test_the_baselines_are_watched_too(optimizer):
    class Baseline(Regression):
        def configure_optimizers(self):
            return optimizer(self.parameters(), lr=0.5)

    reports = fitted(Baseline(), max_epochs=3).reports
    assert len(reports) == 3
    assert reports[0].outcome is (Outcome.UNCONTROLLED if optimizer is IG else reports[0].outcome)


def test_an_objective_of_ones_own_is_used():
    module = Regression()
    objective = Objective(module.net, MSE, batches())
    callback = Reports(objective)
    fitted(module, callback, max_epochs=2)
    assert callback._objective is objective
    with pytest.raises(ValueError, match="exclude each other"):
        WatchdogCallback(objective, forward=evaluate)


def test_other_optimizers_are_refused():
    class Adam(Regression):
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Two(Manual):
        def configure_optimizers(self):
            return [CMALight(self.net[0].parameters()), CMALight(self.net[2].parameters())]

    with pytest.raises(ValueError, match="but got Adam"):
        fitted(Adam())
    with pytest.raises(ValueError, match="but got CMALight, CMALight"):
        fitted(Two(0.5), Reports(forward=evaluate))


def test_several_loaders_need_an_objective():
    with pytest.raises(ValueError, match=r"several training loaders.*objective="):
        fitted(Regression(), data={"a": batches(), "b": batches()})


class Scalar:
    """A loader of numbers."""

    def __iter__(self):
        return iter((1.0, 2.0))

    def __len__(self):
        return 2


def test_a_batch_without_a_size_needs_a_count():
    class Scalars(Regression):
        def training_step(self, batch, batch_idx):
            return (self.net[0].bias.sum() - batch) ** 2

    with pytest.raises(ValueError, match="count="):
        fitted(Scalars(), data=Scalar())
    callback = Reports(count=lambda batch: 3)
    fitted(Scalars(0.01), callback, data=Scalar(), max_epochs=2)
    assert callback.reports[0].f_tilde > 0


def test_the_older_name_of_the_library_works_too():
    import pytorch_lightning

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Regression(BOLD).net

        def training_step(self, batch, batch_idx):
            return MSE(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return CMALight(self.parameters(), lr=BOLD)

    module, callback = Module(), Reports()
    run = pytorch_lightning.Trainer(
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=12,
    )
    run.fit(module, batches())
    assert callback.reports == fitted(Regression(BOLD)).reports


def test_batch_norm_goes_back_with_a_rejected_epoch():
    class Normed(Regression):
        def __init__(self):
            super().__init__(BOLD, early_rejection=False)
            self.net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sigmoid(), nn.Linear(5, 1)).double()

    module = Normed()
    callback = fitted(module, max_epochs=1)
    assert callback.reports[0].alpha == 0.0
    assert module.net[1].num_batches_tracked == 0


def test_a_trainer_without_the_callback_is_warned_of():
    with pytest.warns(RuntimeWarning, match=r"outside any epoch.*pass WatchdogCallback\(\) to the Trainer"):
        trainer(max_epochs=4).fit(Regression(), batches())
