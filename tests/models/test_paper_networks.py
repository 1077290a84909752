"""The paper's networks: Table 2's numbers of variables, all 77 of them."""

from decimal import Decimal

import pytest
import torch
from torch import nn

from cmalight import CMALight, Objective
from cmalight.models import PAPER_NETWORKS, LargeSpec, LayeredSpec, paper_network, paper_spec
from tests.helpers import MSE, run_epoch, split, table

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

PAIRS = [
    (data, d, name, printed)
    for data, (d, row) in TABLE_2.items()
    for name, printed in zip(PAPER_NETWORKS, row.split(), strict=True)
]


def agrees(parameters: int, printed: str) -> bool:
    """To one unit of the last printed digit: the paper cuts off in some cells and rounds up in others."""
    thousands = Decimal(printed)
    unit = Decimal(1).scaleb(thousands.as_tuple().exponent)
    return abs(Decimal(parameters) / 1000 - thousands) <= unit


def test_the_table_has_77_pairs():
    assert len(PAIRS) == 77


@pytest.mark.parametrize(("data", "d", "name", "printed"), PAIRS, ids=[f"{pair[0]}-{pair[2]}" for pair in PAIRS])
def test_the_number_of_variables_is_the_papers(data, d, name, printed):
    parameters = paper_spec(name, d - 1).parameters
    if (data, name) in MISPRINTS:
        misprint, meant = MISPRINTS[data, name]
        assert printed == misprint
        assert not agrees(parameters, printed)
        printed = meant
    assert agrees(parameters, printed)


@pytest.mark.parametrize(("name", "layers", "width"), [("1x50", 1, 50), ("3x20", 3, 20), ("10x50", 10, 50)])
def test_small_networks_count_d_n_plus_the_squares_plus_n(name, layers, width):
    d = 9
    network = paper_network(name, d - 1)
    assert sum(p.numel() for p in network.parameters()) == d * width + (layers - 1) * width**2 + width


def test_small_networks_have_no_bias_and_a_constant_column():
    assert paper_spec("[3×20]", 8) == LayeredSpec(3, 20, features=8, bias=False, constant_input=True)
    assert paper_network("3x20", 8)[1].weight.shape == (20, 9)


def test_large_networks_go_over_50_and_end_without_a_sigmoid_between_the_last_two_layers():
    layers = list(paper_network("12x300", 8))
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    widths = [8, 50, 300, *[300] * 10, 50, 1]
    assert [layer.in_features for layer in linear] == widths[:-1]
    assert [layer.out_features for layer in linear] == widths[1:]
    assert [type(layer) for layer in layers] == [nn.Linear, nn.Sigmoid] * 12 + [nn.Linear, nn.Linear]
    assert all(layer.bias is not None for layer in linear)


@pytest.mark.parametrize(("name", "width", "repeats"), [("12x300", 300, 10), ("12x500", 500, 10), ("30x500", 500, 30)])
def test_large_networks_repeat_their_middle(name, width, repeats):
    assert paper_spec(name, 8) == LargeSpec(width, repeats, features=8)


@pytest.mark.parametrize("name", PAPER_NETWORKS)
def test_every_network_maps_features_to_one_output(name):
    assert paper_network(name, 8)(torch.randn(5, 8)).shape == (5, 1)


def test_another_size_is_refused_and_layered_named():
    with pytest.raises(ValueError, match=r"'2x50'; expected one of 1x50, .*, 30x500; for other sizes use layered\(\)"):
        paper_network("2x50", 8)


@pytest.mark.parametrize("name", ["1x50", "10x50", "12x300"])
def test_an_epoch_of_cmalight_lowers_the_loss(name):
    torch.manual_seed(0)
    network = paper_network(name, 4).double()
    batches = split(*table(), 16)
    objective = Objective(network, MSE, batches)
    before = objective()
    run_epoch(CMALight(network.parameters(), lr=0.01), objective, network, batches)
    assert objective() < before
