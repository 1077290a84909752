"""Random number generators are found wherever a training may keep them; what cannot be saved is named."""

import itertools
import random

import pytest
import torch
from torch import nn

from cmalight import Objective
from cmalight.evaluation.randomness import draws_nothing, randomness_of, sources
from tests.evaluation.places import KINDS, PLACES, place
from tests.helpers import network, table


def values(model, loader, loss_fn):
    """What a pass without any care gives, twice: it draws, so the two differ."""
    return [sum(loss_fn(model(x), y) for x, y in loader).item() for _ in range(2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", PLACES)
def test_an_evaluation_leaves_no_trace_on_a_generator(where, kind):
    model = network()
    first, second = values(model, *place(where, kind)[:2])
    assert first != second
    loader, loss_fn, _ = place(where, kind)
    objective = Objective(model, loss_fn, loader)
    objective()
    objective()
    assert values(model, loader, loss_fn) == [first, second]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_taken_is_put_back(kind):
    generator, draw = KINDS[kind]()
    source = sources(None, [generator])[-1]
    assert source.name == "loader[0]"
    state = source.get()
    drawn = [draw() for _ in range(700)]
    source.put(state)
    assert [draw() for _ in range(700)] == drawn


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (random.SystemRandom(), "loader.rng (SystemRandom)"),
        ((number for number in range(3)), "loader.rng (generator)"),
        (itertools.cycle([1, 2]), "loader.rng (cycle)"),
        (iter([1, 2]), "loader.rng (list_iterator)"),
        (torch.quasirandom.SobolEngine(2), "loader.rng (SobolEngine)"),
    ],
)
def test_what_cannot_be_saved_is_named(thing, name):
    class Held:
        rng = None

    held = Held()
    held.rng = thing
    assert randomness_of(None, loader=held).uncovered == (name,)


def test_the_global_generators_are_no_second_source():
    import numpy

    held = [torch.rand, random.random, numpy.random.rand, random.gauss, torch.default_generator]
    assert [s.name for s in sources(None, held)] == ["torch", "python", "numpy"]


def test_objects_that_refer_to_each_other_end_the_search():
    first, second = {}, {}
    first["second"], second["first"] = second, first
    first["rng"] = generator = torch.Generator()
    found = [s for s in sources(None, second) if s.name == "loader['first']['rng']"]
    assert len(found) == 1
    assert torch.equal(found[0].get(), generator.get_state())


def test_a_walk_without_end_says_where_it_ended():
    class Chain:
        def __init__(self, following):
            self.following = following

    chain = None
    for _ in range(60_000):
        chain = Chain(chain)
    (left_out,) = randomness_of(None, loader=chain).uncovered
    assert left_out.endswith("(MoreObjects)")
    while chain is not None:  # else Python would take it apart recursively
        chain = chain.following


def test_attributes_are_read_without_running_properties():
    class Careful(nn.Module):
        data = None

        @property
        def dangerous(self):
            raise AssertionError("ran")

        def __init__(self):
            super().__init__()
            self.array = torch.ones(3).numpy()  # has no truth value
            self.rng = torch.Generator()

    assert [s.name for s in sources(Careful(), None)][-1] == "model.rng"


@pytest.mark.parametrize(
    "change",
    [
        {"pos": 10**6},
        {"pos": -1},
        {"key": [0] * 5},
        {"key": 3},
        {"other": 1},
    ],
)
def test_a_state_that_would_make_numpy_read_beyond_its_memory_is_refused(change):
    generator, _ = KINDS["numpy_legacy"]()
    source = sources(None, [generator])[-1]
    state = source.get()
    with pytest.raises(ValueError, match="NumPy generator"):
        source.check({**state, "state": {**state["state"], **change}})
    source.check(state)


def test_merging_goes_on_as_it_was_decided():
    """The trial depends on the weights, so a run that is gone on with must not make it anew."""
    model, (x, y) = network(), table(40)
    batches = list(zip(x.split(10), y.split(10), strict=True))
    first, second = Objective(model, nn.MSELoss(), batches), Objective(model, nn.MSELoss(), batches)
    first()
    first.load_state_dict({**first.state_dict(), "merge": False})
    second.load_state_dict(first.state_dict())
    second()
    assert second.state_dict() == {"merge": False, "tried": True, "passes": 2}


class _Chain(nn.Sequential):
    """Calls its parts, as its base does."""


class _Noisy(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + torch.rand(())


def _hooked(model):
    model[0].register_forward_hook(lambda _module, _inputs, output: output + torch.rand(()))
    return model


def _patched(model):
    forward = model[0].forward
    model[0].forward = lambda x: forward(x) + torch.rand(())
    return model


def test_of_plain_networks_it_is_known_that_they_draw_nothing():
    assert draws_nothing(network(), nn.MSELoss())
    assert draws_nothing(_Chain(nn.Linear(4, 1), nn.Sigmoid()))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 1), nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(4, 1), nn.RReLU()),
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 1))),
        _Noisy(nn.Linear(4, 1)),
        _hooked(network()),
        _patched(network()),
    ],
)
def test_what_may_draw_is_never_taken_for_what_does_not(model):
    assert not draws_nothing(model)


def test_functions_and_hooks_of_all_modules_may_draw():
    assert not draws_nothing(network(), lambda *_: torch.rand(()))
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not draws_nothing(network())
    finally:
        handle.remove()
