"""Optimizers by name: options are checked up front, schedules follow the share of the run that is done."""

import copy
import sys

import pytest
import schedulefree
import torch
from torch import nn

from cmalight import CMALight, Controlled, Objective, TensorBatches
from cmalight.training import known_solvers, make_solver
from cmalight.training.solvers import MuonAndAdamW, cosine, wsd
from tests.helpers import MSE, copied_state, needs_muon, network, same_state, table
from tests.training.common import stop_after, train

DATA = table(samples=120)


def fitted(optimizer, *, epochs=8, model=None, **more):
    model = network() if model is None else model
    return train(model, pair=DATA, optimizer=optimizer, batch_size=20, max_epochs=epochs, **more)


def test_the_names_are_those_of_the_guide():
    ours = {"auto", "cmalight", "cmalight-certified", "cma", "ig", "coff", "soap"}
    torchs = {"adam", "adamw", "nadam", "adagrad", "adadelta", "rmsprop", "sgd", "sgd-momentum"}
    others = {"prodigy", "schedule-free-adamw", "muon"}
    scheduled = {"adam-cosine", "adam-wsd", "adamw-cosine", "adamw-wsd", "soap-cosine", "soap-wsd", "muon-cosine"}
    assert set(known_solvers()) == ours | torchs | others | scheduled | {"prodigy-cosine", "sgd-momentum-cosine"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_muon) if "muon" in name else name for name in known_solvers()]
)
def test_every_solver_lowers_the_loss_and_resumes_bit_for_bit(name, tmp_path):
    """In float32: torch's load_state_dict changes the precision of NAdam's state where parameters are double."""
    options = {"optimizer_options": {"lr": 0.05}, "measure_train_loss": True}
    whole, result = fitted(name, model=network().float(), **options)
    assert result.history[-1].train_loss < result.history[0].train_loss
    for epoch in (0, 4):
        file = tmp_path / f"{epoch}.pt"
        fitted(name, model=network().float(), checkpoint=file, callbacks=[stop_after(epoch)], **options)
        parts, resumed = fitted(name, model=network().float(), checkpoint=file, **options)
        assert resumed.resumed_at == epoch + 1
        assert same_state(copied_state(whole), copied_state(parts))
        assert [r.lr for r in resumed.history] == [r.lr for r in result.history]


def test_the_certified_search_is_an_option_of_cmalight():
    optimizer = make_solver("cmalight-certified", {"lr": 0.1}).make(network().parameters())
    assert type(optimizer) is CMALight
    assert optimizer.settings["line_search"] == "certified"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cmalite", {}, "Unknown optimizer 'cmalite'; did you mean 'cmalight'"),
        ("adam", {"learning_rate": 1.0}, "Unknown option of 'adam' 'learning_rate'; .*known are lr, betas"),
        ("auto", {"momentum": 0.9}, "Unknown option of 'auto' 'momentum'"),
        ("auto", {"total_steps": 5}, "Unknown option of 'auto' 'total_steps'"),
        ("adam", {"warmup": 0.1}, "Unknown option of 'adam' 'warmup'"),
        ("adam", {"lr": -1.0}, "Invalid options of 'adam': Invalid learning rate: -1.0"),
        ("auto", {"lr": "fast"}, "Invalid options of 'auto'"),
        ("cmalight", {"theta": 2.0}, "Invalid options of 'cmalight': Invalid theta value: 2.0"),
        ("adam-wsd", {"decay": 2}, "Invalid decay value: 2; expected a number from 0 to 1"),
        ("adam-cosine", {"warmup": "x"}, "Invalid warmup value: 'x'"),
        ("muon", {"nesterov": True}, "Unknown option of 'muon' 'nesterov'"),
    ],
)
def test_wrong_names_options_and_values_are_found_before_any_training(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_solver(name, options)


@pytest.mark.parametrize("package", ["prodigyopt", "schedulefree"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    name = {"prodigyopt": "prodigy-cosine", "schedulefree": "schedule-free-adamw"}[package]
    with pytest.raises(ImportError, match=rf'needs {package}.*pip install "cmalight\[bench\]"'):
        make_solver(name)


def test_schedules_at_points_that_one_can_compute_by_hand():
    assert [cosine(s) for s in (0, 0.025, 0.05, 0.525, 1)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert [wsd(s) for s in (0, 0.025, 0.05, 0.6, 0.8, 1)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0])
    assert [wsd(s, warmup=0.0, decay=0.0) for s in (0, 0.5, 1)] == [1, 1, 1]
    assert [cosine(s, warmup=1.0) for s in (0, 0.5, 1)] == [0, 0.5, 0]


def test_every_step_has_the_schedules_lr_in_its_middle_and_the_groups_keep_the_peak(monkeypatch):
    seen = []
    step = torch.optim.Adam.step

    def noted(self, *arguments):
        seen.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    _, result = fitted("adam-wsd", optimizer_options={"lr": 0.02, "decay": 0.5})
    assert seen == pytest.approx([0.02 * wsd((k + 0.5) / 48, decay=0.5) for k in range(48)])
    assert result.optimizer.param_groups[0]["lr"] == 0.02
    assert [record.lr for record in result.history] == seen[5::6]


def test_a_checkpoint_of_another_schedule_or_solver_is_refused(tmp_path):
    fitted("adam-cosine", checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="schedule was"):
        fitted("adam-cosine", checkpoint=tmp_path / "run.pt", optimizer_options={"warmup": 0.5})
    with pytest.raises(ValueError, match="solver was adam-cosine, now adam"):
        fitted("adam", checkpoint=tmp_path / "run.pt")


@needs_muon
def test_muon_is_for_the_matrices_of_hidden_layers_and_adamw_for_the_rest():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    twin = copy.deepcopy(model)
    optimizer = MuonAndAdamW(model, adamw_lr=1e-2)
    hidden = twin[2].weight
    rest = [p for p in twin.parameters() if p is not hidden]
    muon = torch.optim.Muon([hidden], lr=0.02, weight_decay=0.01)
    adamw = torch.optim.AdamW(rest, lr=1e-2, weight_decay=0.01, betas=(0.9, 0.95))
    for _ in range(3):
        for one, optimizers in ((model, (optimizer,)), (twin, (muon, adamw))):
            one.zero_grad()
            MSE(one(DATA[0]), DATA[1]).backward()
            for each in optimizers:
                each.step()
    assert same_state(copied_state(model), copied_state(twin))
    reader = nn.Sequential(nn.Linear(4, 4), nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    muons, _ = MuonAndAdamW(reader).param_groups
    assert [id(p) for p in muons["params"]] == [id(reader[2].weight)]
    only_vectors = MuonAndAdamW([nn.Parameter(torch.ones(3))])
    assert only_vectors.step(lambda: torch.ones(())) == 1.0


def test_a_schedule_free_run_is_that_of_a_loop_that_switches_around_every_epoch():
    model, _ = fitted("schedule-free-adamw", epochs=5, order="fixed", optimizer_options={"lr": 0.05})
    twin = network()
    optimizer = schedulefree.AdamWScheduleFree(twin.parameters(), lr=0.05)
    batches = TensorBatches(*DATA, batch_size=20, order="fixed")
    for _ in range(5):
        optimizer.train()
        for x, y in batches:
            optimizer.zero_grad()
            MSE(twin(x), y).backward()
            optimizer.step()
        optimizer.eval()
    assert same_state(copied_state(model), copied_state(twin))


@pytest.mark.parametrize("controlled", [False, True])
def test_a_schedule_free_optimizer_is_measured_and_handed_back_where_it_is_judged(controlled):
    model = network()
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=0.05)
    if controlled:
        objective = Objective(model, MSE, TensorBatches(*DATA, batch_size=20))
        optimizer = Controlled(optimizer, model, objective=objective, total_steps=30)
    fitted(optimizer, epochs=5, model=model, validation=DATA, restore_best=True)
    _, result = fitted(optimizer, epochs=0, model=model)
    assert result.optimizer.param_groups[0]["train_mode"] is False
