"""Networks as plain dicts: what goes out comes back, and what a file may not ask for."""

import json

import pytest
import torch
from torch import nn

from cmalight.models import (
    LayeredSpec,
    ResNetSpec,
    network_from_dict,
    network_to_dict,
    paper_spec,
    spec_from_dict,
)

SPECS = [
    LayeredSpec(3, 20, features=4, outputs=2, bias=False, activation="tanh", constant_input=True),
    paper_spec("1x50", 4),
    paper_spec("12x300", 4),
    ResNetSpec(18, classes=7, channels=1),
]
LAYERED = {"kind": "layered", "layers": 3, "width": 20, "features": 4}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_network_comes_back_from_json_with_its_weights(spec):
    network = spec.build()
    rebuilt = network_from_dict(json.loads(json.dumps(network_to_dict(network))))
    assert rebuilt.spec == spec
    rebuilt.load_state_dict(network.state_dict())
    assert [p.shape for p in rebuilt.parameters()] == [p.shape for p in network.parameters()]


def test_the_dict_holds_the_kind_and_every_field():
    assert LayeredSpec(3, 20, features=4).to_dict() == {
        **LAYERED,
        "outputs": 1,
        "bias": True,
        "activation": "sigmoid",
        "constant_input": False,
    }


def test_fields_with_a_default_may_be_left_out():
    assert spec_from_dict(LAYERED) == LayeredSpec(3, 20, features=4)


def test_the_rebuilt_network_computes_the_same():
    network = SPECS[0].build()
    rebuilt = network_from_dict(network_to_dict(network))
    rebuilt.load_state_dict(network.state_dict())
    x = torch.randn(5, 4)
    assert torch.equal(rebuilt(x), network(x))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (None, "Invalid network description: None; expected a dict"),
        ([LAYERED], "Invalid network description"),
        ({}, "Invalid network kind value: None; expected one of layered, paper-large, resnet"),
        ({**LAYERED, "kind": "os.system"}, "Invalid network kind value: 'os.system'"),
        ({**LAYERED, "kind": ["layered"]}, "Invalid network kind value"),
        ({"kind": "layered", "width": 20}, "missing layers, features; its fields are layers, width"),
        ({**LAYERED, "depth": 3, 7: 1}, "unknown depth, 7"),
        ({**LAYERED, "layers": "3"}, "Invalid layers value: '3'"),
        ({**LAYERED, "layers": 10**30}, "Invalid layers value"),
        ({**LAYERED, "width": float("nan")}, "Invalid width value: nan"),
        ({**LAYERED, "width": 90_000}, "parameters; expected at most 1,000,000,000"),
        ({**LAYERED, "features": -4}, "Invalid features value: -4"),
        ({**LAYERED, "bias": "no"}, "Invalid bias value: 'no'"),
        ({**LAYERED, "activation": "__import__"}, "Invalid activation value"),
        ({"kind": "paper-large", "width": 300, "repeats": 0, "features": 4}, "Invalid repeats value: 0"),
        ({"kind": "resnet", "depth": True}, "Invalid depth value: True"),
    ],
)
def test_what_a_file_may_not_ask_for(plain, message):
    with pytest.raises(ValueError, match=message):
        network_from_dict(plain)


@pytest.mark.parametrize("network", [nn.Linear(2, 1), LayeredSpec(3, 20, features=4).build()[:-1]])
def test_other_networks_have_no_description(network):
    with pytest.raises(ValueError, match="has no description to write down; expected a network built by cmalight"):
        network_to_dict(network)
