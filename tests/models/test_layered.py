"""[L x N] networks: sizes as words, what the layers are, what they count; the paper's 77 numbers of variables."""

import itertools
from decimal import Decimal

import pytest
import torch
from torch import nn

from cmalight.models import ACTIVATIONS, PAPER_NETWORKS, layered, paper_network

# d, the constant column included, then n in thousands as printed, in the order of PAPER_NETWORKS.
TABLE_2 = {
    "Ailerons": (41, "2.1 1.64 12.1 24.6 935 2557 7567"),
    "Bejing Pm25": (48, "2.45 1.78 12.5 25 935 2558 7568"),
    "Bikes Sharing": (59, "3.0 2.0 13 2.55 936 2559 7569"),
    "California": (9, "0.5 1.0 10.5 23 933 2556 7556"),
    "Mv": (13, "0.7 1.08 10.7 23.2 934 2556 7566"),
    "BlogFeedback": (281, "14.1 6.44 24.1 36.6 948 2570 7580"),
    "Covtype": (55, "2.8 1.92 12.8 25.3 936 2558 7568"),
    "Protein": (75, "3.8 2.32 13.8 26.3 937 2560 7570"),
    "Sido": (4933, "247 99.5 257 269 1180 2802 7812"),
    "Skin NonSkin": (4, "0.25 0.9 10.3 22.8 933 2555 7566"),
    "YearPredictionMSD": (91, "4.6 2.64 14.6 27.1 937 2561 7571"),
}
# Printed, and meant: a decimal point one place too far left, and a digit wrong (d = 4 has 7566 already).
MISPRINTS = {("Bikes Sharing", "10x50"): ("2.55", "25.5"), ("California", "30x500"): ("7556", "7566")}


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("size", ["", "3", "x20", "0x20", "-3x20", "3x20x1", "[3x20]", "3.0x20", "٣x20", 3, None])
def test_a_size_that_is_not_layers_by_neurons_is_refused_with_an_example(size):
    with pytest.raises(ValueError, match=r"Invalid network size: .*such as '3x20'"):
        layered(size, 4)


def test_3x20_has_three_hidden_layers_of_20_and_a_linear_output():
    network = layered("3x20", 4)
    assert type(network) is nn.Sequential
    assert [type(layer) for layer in network] == [nn.Linear, nn.Sigmoid] * 3 + [nn.Linear]
    assert [tuple(layer.weight.shape) for layer in network[::2]] == [(20, 4), (20, 20), (20, 20), (1, 20)]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("bias", "expected"), [(False, 4 * 3 + 3 * 3 + 3 * 2), (True, 5 * 3 + 4 * 3 + 4 * 2)])
def test_options_are_honoured(activation, bias, expected):
    network = layered("2x3", 4, outputs=2, bias=bias, activation=activation)
    assert type(network[1]) is ACTIVATIONS[activation]
    assert network(torch.randn(7, 4)).shape == (7, 2)
    assert count(network) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "Invalid features value: 0"),
        ({"outputs": -1}, "Invalid outputs value: -1"),
        ({"bias": 1}, "Invalid bias value: 1"),
        ({"activation": "softmax"}, "expected one of sigmoid, tanh, relu, gelu, silu"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        layered("3x20", **{"features": 4, **options})


def agrees(parameters: int, printed: str) -> bool:
    """To one unit of the last printed digit: the paper cuts off in some cells and rounds up in others."""
    thousands = Decimal(printed)
    unit = Decimal(1).scaleb(thousands.as_tuple().exponent)
    return abs(Decimal(parameters) / 1000 - thousands) <= unit


@pytest.mark.parametrize("data", TABLE_2)
def test_the_numbers_of_variables_are_the_papers(data):
    d, row = TABLE_2[data]
    for name, printed in zip(PAPER_NETWORKS, row.split(), strict=True):
        with torch.device("meta"):
            network = paper_network(name, d - 1)
            assert network(torch.empty(5, d - 1)).shape == (5, 1)
        parameters = count(network)
        misprint, meant = MISPRINTS.get((data, name), (None, printed))
        assert agrees(parameters, meant), name
        assert misprint is None or (printed == misprint and not agrees(parameters, printed))


@pytest.mark.parametrize("bias", [False, True])
def test_small_networks_have_biases_in_the_first_layer_alone_or_everywhere_as_in_the_public_code(bias):
    assert [layer.bias is not None for layer in paper_network("3x20", 8, bias=bias)[::2]] == [True, *[bias] * 3]


def test_large_networks_go_over_50_and_end_without_a_sigmoid_between_the_last_two_layers():
    with torch.device("meta"):
        layers = list(paper_network("12x300", 8))
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    widths = [8, 50, 300, *[300] * 10, 50, 1]
    assert [(layer.in_features, layer.out_features) for layer in linear] == list(itertools.pairwise(widths))
    assert [type(layer) for layer in layers] == [nn.Linear, nn.Sigmoid] * 12 + [nn.Linear, nn.Linear]
    assert all(layer.bias is not None for layer in linear)


def test_another_size_is_refused_and_layered_named():
    with pytest.raises(ValueError, match=r"'2x50'; expected one of 1x50, .*, 30x500; for others use layered\(\)"):
        paper_network("2x50", 8)
