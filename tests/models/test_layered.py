"""[L x N] networks: sizes as words, what the layers are, what they count."""

import copy
import pickle

import pytest
import torch
from torch import nn

from cmalight import CMALight, Objective
from cmalight.models import ACTIVATIONS, LayeredSpec, layered, parse_size
from tests.helpers import MSE, run_epoch, split, table


@pytest.mark.parametrize("size", ["3x20", "[3x20]", "3×20", "[3×20]", "3X20", " [3 x 20] "])
def test_a_size_is_layers_by_neurons(size):
    assert parse_size(size) == (3, 20)


@pytest.mark.parametrize(
    "size", ["", "x", "3", "3x", "x20", "0x20", "3x0", "-3x20", "3x20x1", "[3x20", "3x20]", "3.0x20", "٣x20", 3, None]
)
def test_anything_else_is_refused_with_an_example(size):
    with pytest.raises(ValueError, match=r"Invalid network size: .*such as '3x20'"):
        parse_size(size)


def test_3x20_has_three_hidden_layers_of_20_and_a_linear_output():
    kinds = [type(layer) for layer in layered("3x20", 4)]
    shapes = [tuple(layer.weight.shape) for layer in layered("3x20", 4) if isinstance(layer, nn.Linear)]
    assert kinds == [nn.Linear, nn.Sigmoid] * 3 + [nn.Linear]
    assert shapes == [(20, 4), (20, 20), (20, 20), (1, 20)]


@pytest.mark.parametrize(
    ("bias", "constant_input", "count"),
    [
        (False, False, 4 * 3 + 3 * 3 + 3 * 2),
        (True, False, (4 + 1) * 3 + (3 + 1) * 3 + (3 + 1) * 2),
        (False, True, 5 * 3 + 3 * 3 + 3 * 2),
        (True, True, (5 + 1) * 3 + (3 + 1) * 3 + (3 + 1) * 2),
    ],
)
def test_parameters_are_counted_with_and_without_bias_and_constant_column(bias, constant_input, count):
    network = layered("2x3", 4, outputs=2, bias=bias, constant_input=constant_input)
    assert sum(p.numel() for p in network.parameters()) == count
    assert network.spec.parameters == count


def test_counting_parameters_draws_no_random_numbers():
    before = torch.get_rng_state()
    LayeredSpec(3, 20, features=4)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_gives_the_asked_outputs(activation):
    assert layered("2x3", 4, outputs=2, activation=activation)(torch.randn(7, 4)).shape == (7, 2)


def test_the_constant_column_stands_for_a_bias_of_the_first_layer():
    with_column = layered("1x3", 4, bias=False, constant_input=True).double()
    first, last = with_column[1], with_column[3]
    x = torch.randn(7, 4, dtype=torch.float64)
    by_hand = torch.sigmoid(x @ first.weight[:, :4].T + first.weight[:, 4]) @ last.weight.T
    torch.testing.assert_close(with_column(x), by_hand)


def test_one_sample_without_a_batch_dimension_works():
    assert layered("1x3", 4, constant_input=True)(torch.randn(4)).shape == (1,)


def test_passing_the_constant_column_oneself_is_refused():
    with pytest.raises(ValueError, match=r"takes 4 features .* shape \(7, 5\); it appends the constant column itself"):
        layered("1x3", 4, constant_input=True)(torch.ones(7, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "Invalid features value: 0"),
        ({"features": 4.0}, r"Invalid features value: 4\.0"),
        ({"features": True}, "Invalid features value: True"),
        ({"outputs": -1}, "Invalid outputs value: -1"),
        ({"bias": 1}, "Invalid bias value: 1"),
        (
            {"activation": "softmax"},
            "Invalid activation value: 'softmax'; expected one of sigmoid, tanh, relu, gelu, silu",
        ),
        ({"activation": ["sigmoid"]}, "Invalid activation value"),
        ({"constant_input": None}, "Invalid constant_input value: None"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        layered("3x20", **{"features": 4, **options})


@pytest.mark.parametrize(("size", "message"), [("1001x1", "layers"), ("1x100001", "width"), ("2x99999", "parameters")])
def test_absurd_sizes_are_refused_before_anything_is_allocated(size, message):
    with pytest.raises(ValueError, match=message):
        layered(size, 4)


def test_the_printed_network_shows_its_constant_column():
    assert "ConstantColumn(features=4)" in repr(layered("1x3", 4, constant_input=True))


def test_copies_and_pickles_keep_the_spec_and_parts_have_none():
    network = layered("3x20", 4)
    assert copy.deepcopy(network).spec == network.spec
    assert pickle.loads(pickle.dumps(network)).spec == network.spec
    assert network[:-1].spec is None


@pytest.mark.parametrize("constant_input", [False, True])
def test_an_epoch_of_cmalight_lowers_the_loss(constant_input):
    torch.manual_seed(0)
    network = layered("3x20", 4, constant_input=constant_input, bias=not constant_input).double()
    batches = split(*table(), 16)
    objective = Objective(network, MSE, batches)
    before = objective()
    run_epoch(CMALight(network.parameters(), lr=0.05), objective, network, batches)
    assert objective() < before
