"""Networks of the test-bed: [L x N], the paper's seven, ResNets."""

from cmalight.models.layered import ACTIVATIONS, FullyConnected, LayeredSpec, layered, parse_size
from cmalight.models.paper_networks import PAPER_NETWORKS, LargeSpec, paper_network, paper_spec
from cmalight.models.resnet import RESNET_DEPTHS, ResNet, ResNetSpec, resnet
from cmalight.models.spec import NetworkSpec, network_from_dict, network_to_dict, spec_from_dict

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
