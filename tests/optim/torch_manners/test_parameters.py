"""Parameter groups, and kinds of parameters: complex, sparse, of several dtypes, named, frozen."""

import pytest
import torch
from torch import nn

from cmalight import CMA, Outcome
from cmalight.optim.epoch_optimizer import EpochOptimizer

from .cases import (
    MSE,
    assert_same,
    assert_same_models,
    batches,
    each,
    each_of_the_paper,
    network,
    objective_of,
    run_epoch,
    run_losses,
    train,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")


@pytest.mark.filterwarnings("ignore:2 of 4 trainable parameters")
@each
def test_a_group_added_after_the_start_is_trained_with_the_others(make):
    model = network()
    optimizer = make(model, model[0].parameters(), lr=0.1)
    train(optimizer, model, range(1))
    control = optimizer.state_dict()["param_groups"][0].get("control")
    optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.1})
    assert optimizer.state_dict()["param_groups"][0].get("control") == control
    seen = []
    run_epoch(optimizer, model, batches(1), after_step=lambda: seen.append(model[3].bias.item()))
    assert len(set(seen)) >= 5


@each
def test_a_group_is_added_only_once_and_not_while_an_epoch_is_open(make):
    model = network()
    optimizer = make(model)
    with pytest.raises(ValueError, match="appear in more than one parameter group"):
        optimizer.add_param_group({"params": model[3].parameters()})
    if isinstance(optimizer, EpochOptimizer):
        extra = {"params": [nn.Parameter(torch.ones(2))]}
        with pytest.raises(RuntimeError, match="inside an epoch"), optimizer.epoch(objective_of(model)):
            optimizer.add_param_group(extra)


@each
def test_parameters_can_be_frozen_and_thawed_in_mid_run(make):
    model = network()
    optimizer = make(model)
    model[0].requires_grad_(False)
    before = [p.detach().clone() for p in model[0].parameters()]
    train(optimizer, model, range(1))
    assert_same(model[0].parameters(), before)
    model[0].requires_grad_(True)
    seen = []
    run_epoch(optimizer, model, batches(1), after_step=lambda: seen.append(model[0].bias[0].item()))
    assert len(set(seen)) >= 5


_QUANTISED = nn.Parameter(torch.tensor([3]), requires_grad=False)
_FORMS = {
    "named": lambda model: model.named_parameters(),
    "a first group without parameters, as of sharded training": lambda model: [
        {"params": []}, {"params": model.parameters()},
    ],
    "a first parameter of frozen integers, as of adapters": lambda model: [
        {"params": [_QUANTISED]}, {"params": model.parameters()},
    ],
}  # fmt: skip


@each
@pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
def test_parameters_in_other_forms_train_as_in_the_plain_one(make, form):
    model, plain = network(), network()
    optimizer = make(model, form(model))
    assert train(optimizer, model, range(2)) == train(make(plain), plain, range(2))
    assert_same_models(model, plain)
    names = optimizer.state_dict()["param_groups"][0].get("param_names")
    assert names == (["0.weight", "0.bias", "3.weight", "3.bias"] if form is _FORMS["named"] else None)


@each_of_the_paper
@pytest.mark.parametrize("lr", [0.5, 40.0], ids=["accepted", "undone"])
def test_an_epoch_on_a_complex_parameter_ends_like_one_on_two_real_ones(make, lr):
    start = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    ends = []
    for value in (start.clone(), torch.view_as_real(start).clone()):
        model = nn.ParameterList([value])
        real = torch.view_as_real(model[0]) if value.is_complex() else model[0]

        def loss(p=model[0]):
            return (torch.view_as_real(p) if p.is_complex() else p).square().mean()

        report = run_losses(make(model, lr=lr, weight_decay=0.1), lambda loss=loss: loss().item(), [(loss, 1)] * 2)
        ends.append((report, real.detach()))
    assert ends[0][0].outcome is ends[1][0].outcome
    assert ends[0][0].direction_norm == pytest.approx(ends[1][0].direction_norm, rel=1e-12)
    torch.testing.assert_close(ends[0][1], ends[1][1])


@each_of_the_paper
def test_sparse_gradients_of_an_embedding_train_as_dense_ones(make):
    data = [
        (torch.tensor([0, 1, 1]), torch.ones(3, 1, dtype=torch.float64)),
        (torch.tensor([3, 4]), torch.zeros(2, 1, dtype=torch.float64)),
    ]
    ends = []
    for sparse in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 2, sparse=sparse), nn.Linear(2, 1)).double()
        losses = [(lambda model=model, x=x, y=y: MSE(model(x), y), len(y)) for x, y in data]
        report = run_losses(
            make(model, lr=0.1), lambda losses=losses: sum(n * loss().item() for loss, n in losses) / 5, losses
        )
        ends.append((report.outcome, list(model.parameters())))
    assert ends[0][0] is ends[1][0]
    torch.testing.assert_close(ends[0][1], ends[1][1])


@each_of_the_paper
def test_a_bfloat16_epoch_that_is_undone_is_undone_bit_for_bit(make):
    model = nn.ParameterList([torch.linspace(1, 2, 5).to(d) for d in (torch.bfloat16, torch.float32)])
    start = [p.detach().clone() for p in model]

    def loss():
        return torch.stack([p.double().square().mean() for p in model]).mean()

    report = run_losses(make(model, lr=50.0), lambda: loss().item(), [(loss, 1)] * 3)
    undone = report.alpha == 0.0
    assert undone is (report.outcome is not Outcome.UNCONTROLLED)
    assert all(torch.equal(p, q) for p, q in zip(model, start, strict=True)) is undone


@each_of_the_paper
def test_the_direction_of_a_bfloat16_epoch_is_not_rounded_to_bfloat16(make):
    """From 1 by 2⁻⁷ to 2⁻⁹ in both coordinates: 1 − 2⁻⁹ has nine binary digits, one too many for bfloat16."""
    model, seen = nn.ParameterList([torch.ones(2, dtype=torch.bfloat16)]), []
    p = model[0]
    losses = [(lambda slope=slope: slope * p.sum(), 1) for slope in (1 - 2**-7, 2**-7 - 2**-9)]
    report = run_losses(
        make(model, lr=1.0), lambda: p.float().sum().item(), losses, after_step=lambda: seen.append(p.tolist())
    )
    assert seen[-1] == [2**-9, 2**-9]
    assert report.direction_norm == pytest.approx((1 - 2**-9) * 2**0.5, rel=1e-6)


def test_the_value_of_the_weights_is_evaluated_anew_only_where_somebody_changed_them():
    evaluations = []
    for changes in (False, True):
        model = network()
        optimizer = CMA(model.parameters(), lr=0.1)
        run_epoch(optimizer, model, batches(0))
        before = optimizer.evaluations
        if changes:
            nn.init.ones_(model[3].bias)
        run_epoch(optimizer, model, batches(1))
        evaluations.append(optimizer.evaluations - before)
    assert evaluations[1] == evaluations[0] + 1
