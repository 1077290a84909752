"""SOAP: its naive twin, its state, and hard gradients."""

import copy
import io

import pytest
import torch
from torch import nn

from cmalight.optim.soap import SOAP
from tests.helpers import NothingReachesTheHost

from .naive_soap import NaiveSOAP

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-15, "weight_decay": 0.1, "max_side": 16, "refresh_interval": 5}

# Two equal matrices share a stack; a convolution is (8, 8); one side of the long ones is left alone; the last but one
# has no small side; a side of one row needs no basis.
SHAPES = [(6, 6), (6, 6), (5, 5), (8, 2, 2, 2), (4, 40), (40, 4), (1, 7), (7,), (), (20, 30), (3,)]


def make_params(shapes=SHAPES, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]


def make_gradients(params, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p) for p in params] for _ in range(steps)
    ]


def take_step(optimizer, grads):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for param, grad in zip(params, grads, strict=True):
        param.grad = None if grad is None else grad.clone()
    optimizer.step()


def assert_close(params, others, tolerance=1e-8):
    for param, other in zip(params, others, strict=True):
        torch.testing.assert_close(param, other, rtol=0, atol=tolerance)


def assert_equal(params, others):
    for param, other in zip(params, others, strict=True):
        assert torch.equal(param, other)


def adopt_bases(naive, optimizer):
    """A gradient with fewer columns than rows leaves eigenvectors free to choose; take those that torch chose."""
    for param, twin, state in zip(optimizer.param_groups[0]["params"], naive.params, naive.states, strict=True):
        for side, name in enumerate(("left_basis", "right_basis")):
            if state is not None and state["t"] == 0 and name in optimizer.state[param]:
                state["bases"][side] = optimizer.state[param][name].to(twin.dtype).clone()


class TestAlgorithm:
    @pytest.mark.parametrize("shapes", [SHAPES, [(6, 9), (9, 6), (5, 3, 2, 2)]], ids=["one factor", "two factors"])
    @pytest.mark.parametrize("come_and_go", [False, True], ids=["always", "gradients come and go"])
    def test_it_agrees_with_the_naive_twin(self, shapes, come_and_go):
        params = make_params(shapes)
        twin = [p.detach().clone() for p in params]
        optimizer, naive = SOAP(params, **OPTIONS), NaiveSOAP(twin, **OPTIONS)
        for step, grads in enumerate(make_gradients(params, 40)):
            if come_and_go:
                grads = [None if step < 3 * i or (step + i) % 4 == 0 else grad for i, grad in enumerate(grads)]
            take_step(optimizer, grads)
            naive.step(grads)
            adopt_bases(naive, optimizer)
            assert_equal([p.grad for p in params if p.grad is not None], [g for g in grads if g is not None])
        assert_close(params, twin)

    def test_the_first_gradient_takes_no_step(self):
        params = make_params()
        before = [p.detach().clone() for p in params]
        optimizer = SOAP(params, **OPTIONS)
        take_step(optimizer, make_gradients(params, 1)[0])
        assert_equal(params, before)
        assert {optimizer.state[p]["step"] for p in params} == {0}

    def test_a_parameter_without_factors_is_stepped_by_adamw_from_its_second_gradient_on(self):
        shapes = [(7,), (), (20, 30), (3,), (1, 1)]
        params, others = make_params(shapes), make_params(shapes)
        optimizer = SOAP(params, **OPTIONS)
        adamw = torch.optim.AdamW(others, lr=1e-2, betas=(0.9, 0.99), eps=1e-15, weight_decay=0.1)
        for step, grads in enumerate(make_gradients(params, 12)):
            take_step(optimizer, grads)
            if step:
                take_step(adamw, grads)
        assert_close(params, others, 1e-12)

    def test_parameter_groups_have_their_own_options(self):
        params, others, more = make_params(), make_params(), make_params(seed=5)
        second = {**OPTIONS, "lr": 3e-3, "weight_decay": 0.0, "max_side": 5}
        optimizer = SOAP([{"params": others, **second}, {"params": params}], **OPTIONS)
        alone, other_alone = SOAP(make_params(), **OPTIONS), SOAP(make_params(), **second)
        for grads in make_gradients(params, 12):
            take_step(optimizer, grads + grads)
            take_step(alone, grads)
            take_step(other_alone, grads)
        assert_equal(params, alone.param_groups[0]["params"])
        assert_equal(others, other_alone.param_groups[0]["params"])
        optimizer.add_param_group({"params": more})
        for grads in make_gradients(params, 7):
            take_step(optimizer, grads + grads + grads)
        assert optimizer.state[more[0]]["step"] == 6

    def test_channels_last_makes_no_difference(self):
        plain, other = make_params([(8, 4, 3, 3)]), make_params([(8, 4, 3, 3)])
        other[0].data = other[0].data.to(memory_format=torch.channels_last)
        optimizers = [SOAP(plain, lr=1e-2), SOAP(other, lr=1e-2)]
        for grads in make_gradients(plain, 25):
            take_step(optimizers[0], grads)
            take_step(optimizers[1], [grads[0].to(memory_format=torch.channels_last)])
        assert_equal(plain, other)


def test_it_agrees_with_a_published_package():
    """pytorch_optimizer takes QR decompositions in float32 and decays after the step; without decay both are equal."""
    published = pytest.importorskip("pytorch_optimizer")
    params, others = make_params([(6, 6), (6, 6), (5, 5), (7,)]), make_params([(6, 6), (6, 6), (5, 5), (7,)])
    optimizer = SOAP(params, lr=1e-2, betas=(0.95, 0.95))
    theirs = published.SOAP(others, lr=1e-2, betas=(0.95, 0.95), eps=1e-15, weight_decay=0, precondition_frequency=10)
    for step, grads in enumerate(make_gradients(params, 60)):
        take_step(optimizer, grads)
        take_step(theirs, grads)
        assert_close(params, others, 1e-11 if step < 10 else 1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("lr", -1.0), ("lr", float("nan")), ("lr", torch.ones(2)), ("betas", (1.0, 0.9)), ("betas", (0.9, -0.1)),
            ("eps", -1e-8), ("weight_decay", -0.1), ("weight_decay", float("nan")), ("max_side", -1),
            ("max_side", 2.5), ("refresh_interval", 0),
        ],
    )  # fmt: skip
    def test_an_invalid_option_is_refused(self, name, value):
        with pytest.raises(ValueError, match=f"Invalid {name}"):
            SOAP(make_params(), **{name: value})

    def test_a_complex_parameter_is_refused_and_not_added(self):
        optimizer = SOAP(make_params())
        with pytest.raises(ValueError, match="complex"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3, 3, dtype=torch.complex64))]})
        assert len(optimizer.param_groups) == 1

    def test_a_sparse_gradient_is_refused(self):
        embedding = nn.Embedding(10, 4, sparse=True)
        embedding(torch.tensor([1, 2])).sum().backward()
        with pytest.raises(RuntimeError, match="sparse gradient"):
            SOAP(embedding.parameters()).step()


def through_state_dict(optimizer, params):
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    fresh = SOAP(params, lr=5.0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    return fresh


class TestState:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("steps", [1, 13])
    def test_a_loaded_state_goes_on_bit_for_bit_in_its_precision(self, dtype, steps):
        """That of half precision parameters is in float32; Lightning replaces the state's dictionaries and tensors."""
        params = make_params(dtype=dtype)
        optimizer = SOAP(params, **OPTIONS)
        gradients = make_gradients(params, steps + 12)
        for grads in gradients[:steps]:
            take_step(optimizer, grads)
        others = [nn.Parameter(p.detach().clone()) for p in params]
        loaded = through_state_dict(optimizer, others)
        for param, state in list(loaded.state.items()):
            loaded.state[param] = {n: v if n == "step" else v.clone() for n, v in state.items()}
        for grads in gradients[steps:]:
            take_step(optimizer, grads)
            take_step(loaded, grads)
        assert_equal(params, others)
        tensors = [v for state in loaded.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        assert {t.dtype for t in tensors} == {torch.float64 if dtype is torch.float64 else torch.float32}

    def test_names_and_shapes_are_as_documented(self):
        params = make_params([(4, 40), (40, 4), (6, 2, 2, 2), (20, 30), (7,), (1, 5)])
        optimizer = SOAP(params, **OPTIONS)
        take_step(optimizer, make_gradients(params, 1)[0])
        found = [{n: tuple(v.shape) for n, v in optimizer.state[p].items() if n != "step"} for p in params]
        moments = [{"exp_avg": tuple(p.shape), "exp_avg_sq": tuple(p.shape)} for p in params]
        left4 = {"left": (4, 4), "left_basis": (4, 4)}
        right4 = {"right": (4, 4), "right_basis": (4, 4)}
        both = {"left": (6, 6), "left_basis": (6, 6), "right": (8, 8), "right_basis": (8, 8)}
        factors = [left4, right4, both, {}, {}, {"right": (5, 5), "right_basis": (5, 5)}]
        assert found == [m | f for m, f in zip(moments, factors, strict=True)]
        assert all(v.is_contiguous() for p in params for n, v in optimizer.state[p].items() if n != "step")

    def test_state_changes_in_place_so_that_a_snapshot_can_be_copied_back(self):
        params = make_params(dtype=torch.float32)
        optimizer = SOAP(params, **OPTIONS)
        gradients = make_gradients(params, 30)
        for grads in gradients[:8]:
            take_step(optimizer, grads)
        snapshot = copy.deepcopy([(p, optimizer.state[p]) for p in params])

        def run():
            for grads in gradients[8:]:
                take_step(optimizer, grads)
            return [p.detach().clone() for p in params]

        tensors = [v for p in params for n, v in optimizer.state[p].items() if n != "step"]
        ends = run()
        after = [v for p in params for n, v in optimizer.state[p].items() if n != "step"]
        assert [id(v) for v in after] == [id(v) for v in tensors]
        with torch.no_grad():
            for param, (old_param, old_state) in zip(params, snapshot, strict=True):
                param.copy_(old_param)
                for name, value in old_state.items():
                    if name == "step":
                        optimizer.state[param][name] = value
                    else:
                        optimizer.state[param][name].copy_(value)
        assert_equal(run(), ends)


@pytest.mark.parametrize("lr", [1e-2, torch.tensor(1e-2)])
def test_no_value_reaches_the_host(lr):
    params = make_params(dtype=torch.bfloat16)
    optimizer = SOAP(params, **{**OPTIONS, "lr": lr})
    with NothingReachesTheHost():
        for grads in make_gradients(params, 12):
            take_step(optimizer, grads)


class TestHardGradients:
    def test_dead_inputs_and_outputs_keep_their_weights(self):
        (param,) = make_params([(12, 15)], dtype=torch.float32)
        before = param.detach().clone()
        optimizer = SOAP([param], lr=1e-2)
        for (grad,) in make_gradients([param], 60):
            grad[:, 3:7] = 0
            grad[5] = 0
            take_step(optimizer, [grad])
        assert_equal([param[:, 3:7], param[5]], [before[:, 3:7], before[5]])
        assert not torch.allclose(param[0, :3], before[0, :3], atol=1e-2)

    def test_rows_that_come_alive_are_stepped_after_the_next_refresh(self):
        (param,) = make_params([(12, 15)], dtype=torch.float32)
        optimizer = SOAP([param], lr=1e-2)
        before = param[5].detach().clone()
        for step, (grad,) in enumerate(make_gradients([param], 25)):
            if step < 12:
                grad[5] = 0
            take_step(optimizer, [grad])
            assert torch.equal(param[5], before) == (step <= 20)

    def test_a_first_gradient_of_zero_leaves_adam_until_the_next_refresh(self):
        params, others = make_params([(6, 6)]), make_params([(6, 6)])
        optimizer = SOAP(params, lr=1e-2)
        adam = torch.optim.Adam(others, lr=1e-2, eps=1e-15)
        take_step(optimizer, [torch.zeros(6, 6, dtype=torch.float64)])
        for grads in make_gradients(params, 10):
            take_step(optimizer, grads)
            take_step(adam, grads)
        assert_close(params, others, 1e-12)

    @pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-15, 1e15])
    def test_tiny_and_huge_gradients_stay_finite(self, scale):
        params = make_params(dtype=torch.float32)
        optimizer = SOAP(params, **OPTIONS)
        for grads in make_gradients(params, 22):
            take_step(optimizer, [scale * g for g in grads])
        assert all(p.isfinite().all() and p.abs().max() < 10 for p in params)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    @pytest.mark.parametrize("at", [0, 1, 4, 5])
    def test_gradients_that_are_not_finite_raise_nothing(self, bad, at):
        params = make_params(dtype=torch.float32)
        optimizer = SOAP(params, **OPTIONS)
        for step, grads in enumerate(make_gradients(params, 17)):
            take_step(optimizer, [torch.full_like(g, bad) if step == at else g for g in grads])
        bases = [v for s in optimizer.state.values() for n, v in s.items() if n.endswith("basis")]
        assert all(basis.isfinite().all() for basis in bases)


def test_empty_parameters_and_groups_are_accepted():
    params = [nn.Parameter(torch.ones(0, 5)), nn.Parameter(torch.ones(0)), nn.Parameter(torch.ones(3, 3))]
    optimizer = SOAP([{"params": params}, {"params": []}])
    for grads in make_gradients(params, 12):
        take_step(optimizer, grads)
    assert params[2].isfinite().all()
