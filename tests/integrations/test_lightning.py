"""Lightning's Trainer with the watchdog as a callback, against a plain loop."""

import csv

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from cmalight import Objective, Outcome
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


def looped(module, *, epochs):
    """The same by hand."""
    data = batches()
    optimizer = module.configure_optimizers()
    objective = Objective(module, None, data, forward=lambda m, b: (MSE(m.net(b[0]), b[1]), len(b[0])))
    return [run_epoch(optimizer, objective, module.net, data, early=True) for _ in range(epochs)]


@pytest.mark.parametrize(
    "options", [{"lr": BOLD}, {"lr": 2.0, "line_search": "certified"}, {"lr": BOLD, "weight_decay": 1e-3}], ids=str
)
def test_the_trainer_does_what_the_loop_does(options):
    module, twin = Regression(**options), Regression(**options)
    reports = fitted(module, max_epochs=25).reports
    expected = looped(twin, epochs=25)
    assert [str(r) for r in reports] == [str(r) for r in expected]
    assert torch.equal(flat(module), flat(twin))
    assert len({r.outcome for r in reports}) >= 3


def test_validation_and_checkpoints_see_the_controlled_weights(tmp_path):
    module, callback = WithValidation(BOLD, early_rejection=False), Reports()
    saved = ModelCheckpoint(tmp_path, monitor="val_loss", save_top_k=-1)
    trainer(callback, saved, enable_checkpointing=True, max_epochs=6).fit(module, batches(), batches())
    assert callback.reports[0].alpha == 0.0, "this epoch was to be undone"
    assert torch.equal(torch.stack(module.seen_in_validation), torch.stack(callback.weights))
    files = sorted(tmp_path.iterdir(), key=lambda file: int(file.stem.split("=")[1].split("-")[0]))
    for file, weights in zip(files, callback.weights, strict=True):
        state = torch.load(file, weights_only=True)["state_dict"]
        assert torch.equal(torch.cat([t.flatten() for t in state.values()]), weights)


def test_the_figures_and_the_step_size_are_logged(tmp_path):
    callback, monitor = Reports(), LearningRateMonitor("epoch")
    run = trainer(callback, monitor, logger=CSVLogger(tmp_path), log_every_n_steps=1, max_epochs=5)
    run.fit(Regression(BOLD), batches())
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name, value in {
        "evaluations": lambda r: r.evaluations,
        "line": lambda r: r.outcome.line,
        "f_tilde": lambda r: r.f_tilde,
        "phi": lambda r: r.phi,
    }.items():
        logged = [float(row[f"cmalight/{name}"]) for row in rows if row[f"cmalight/{name}"]]
        assert logged == pytest.approx([value(r) for r in callback.reports])
    assert monitor.lrs["lr-CMALight"] == [r.lr for r in callback.reports]
    assert run.callback_metrics["cmalight/next_lr"].item() == pytest.approx(callback.reports[-1].next_lr)


def test_a_figure_of_the_epoch_can_be_monitored(tmp_path):
    saved = ModelCheckpoint(tmp_path, monitor="cmalight/phi", save_top_k=1)
    callback = Reports()
    trainer(callback, saved, enable_checkpointing=True, max_epochs=4).fit(WithValidation(), batches(), batches())
    assert saved.best_model_score.item() == pytest.approx(min(r.phi for r in callback.reports))


def test_validation_runs_also_after_an_epoch_that_ended_early():
    module, callback = WithValidation(BOLD), Reports()
    stopping = EarlyStopping("val_loss", patience=3)  # looks for val_loss after every epoch, and insists on it
    run = trainer(callback, stopping, max_epochs=20)
    run.fit(module, batches(), batches())
    assert callback.reports[0].outcome is Outcome.REJECTED_EARLY
    assert len(module.seen_in_validation) == len(callback.reports) == 4  # four times the weights it began with
    assert run.fit_loop.epoch_loop.total_batch_idx + 1 == 4 * 7


RESUMED = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")


@RESUMED
@pytest.mark.parametrize("kind", [Regression, WithValidation])
def test_a_fit_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path, kind):
    validation = batches() if kind is WithValidation else None
    whole, unbroken = kind(BOLD, early_rejection=False), Reports()
    trainer(unbroken, max_epochs=10).fit(whole, batches(), validation)
    for stop in (1, 4):
        folder = tmp_path / str(stop)
        saved = ModelCheckpoint(folder, filename="half")
        half = trainer(Reports(), saved, enable_checkpointing=True, max_epochs=stop)
        half.fit(kind(BOLD, early_rejection=False), batches(), validation)
        module, resumed = kind(BOLD, early_rejection=False), Reports()
        run = trainer(resumed, max_epochs=10)
        run.fit(module, batches(), validation, ckpt_path=folder / "half.ckpt", weights_only=True)
        assert resumed.reports == unbroken.reports[stop:]
        assert torch.equal(flat(module), flat(whole))


class CountBatches(Callback):
    def __init__(self):
        self.per_epoch = []

    def on_train_epoch_start(self, *_):
        self.per_epoch.append(0)

    def on_train_batch_end(self, *_):
        self.per_epoch[-1] += 1


def test_an_epoch_that_cannot_succeed_ends_early_and_changes_nothing_else():
    early, late, counted = Regression(BOLD), Regression(BOLD, early_rejection=False), CountBatches()
    callback = Reports()
    trainer(callback, counted).fit(early, batches())
    reports = fitted(late).reports
    assert Outcome.REJECTED_EARLY in {r.outcome for r in callback.reports}
    for report, number in zip(callback.reports, counted.per_epoch, strict=True):
        assert (number < 7) == (report.outcome is Outcome.REJECTED_EARLY)
    assert [r.next_lr for r in callback.reports] == [r.next_lr for r in reports]
    assert torch.equal(flat(early), flat(late))


@RESUMED
def test_a_fit_can_be_resumed_after_an_epoch_that_ended_early(tmp_path):
    whole, callback = Regression(BOLD), Reports()
    trainer(callback, max_epochs=8).fit(whole, batches())
    assert callback.reports[1].outcome is Outcome.REJECTED_EARLY
    saved = ModelCheckpoint(tmp_path, filename="half")
    trainer(Reports(), saved, enable_checkpointing=True, max_epochs=2).fit(Regression(BOLD), batches())
    module, resumed = Regression(BOLD), Reports()
    trainer(resumed, max_epochs=8).fit(module, batches(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert [str(r) for r in resumed.reports] == [str(r) for r in callback.reports[2:]]
    assert torch.equal(flat(module), flat(whole))


@pytest.mark.parametrize("parts", [2, 3])  # of 7 batches: the last step has fewer
def test_accumulated_gradients_are_one_batch(parts):
    small, large = (Regression(4.0, early_rejection=False) for _ in range(2))
    accumulated = fitted(small, data=batches(10, 70), accumulate_grad_batches=parts, max_epochs=6).reports
    at_once = fitted(large, data=batches(10 * parts, 70), max_epochs=6).reports
    assert [r.outcome for r in accumulated] == [r.outcome for r in at_once]
    assert [r.f_tilde for r in accumulated] == pytest.approx([r.f_tilde for r in at_once], rel=1e-12)
    torch.testing.assert_close(flat(small), flat(large), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
def test_mixed_precision_observes_and_evaluates_what_it_trains(scaled):
    from lightning.pytorch.plugins import MixedPrecision

    plugin = (
        MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))
        if scaled
        else MixedPrecision("bf16-mixed", "cpu")
    )
    module, callback = Regression(0.5).float(), Reports()
    trainer(callback, plugins=[plugin], max_epochs=8).fit(module, batches(dtype=torch.float32))
    plain = fitted(Regression(0.5).float(), data=batches(dtype=torch.float32), max_epochs=8).reports
    for report, expected in zip(callback.reports, plain, strict=True):
        assert report.f_tilde == pytest.approx(expected.f_tilde, rel=0.02)
        assert report.f_tilde != expected.f_tilde, "nothing was rounded"
    evaluated, true_loss = callback._objective(), Objective(module.net, MSE, batches(dtype=torch.float32))()
    assert evaluated == pytest.approx(true_loss, rel=0.02)
    assert evaluated != true_loss, "nothing was rounded"
