"""Networks of the test-bed: [L x N], the paper's seven, ResNets."""

from cmalight.models.layered import ACTIVATIONS, FullyConnected, LayeredSpec, layered, parse_size
from cmalight.models.paper import PAPER_NETWORKS, LargeSpec, paper_network, paper_spec
from cmalight.models.plain import network_from_dict, network_to_dict, spec_from_dict
from cmalight.models.resnet import RESNET_DEPTHS, ResNet, ResNetSpec, resnet
from cmalight.models.spec import NetworkSpec

__all__ = [
    "ACTIVATIONS",
    "PAPER_NETWORKS",
    "RESNET_DEPTHS",
    "FullyConnected",
    "LargeSpec",
    "LayeredSpec",
    "NetworkSpec",
    "ResNet",
    "ResNetSpec",
    "layered",
    "network_from_dict",
    "network_to_dict",
    "paper_network",
    "paper_spec",
    "parse_size",
    "resnet",
    "spec_from_dict",
]
