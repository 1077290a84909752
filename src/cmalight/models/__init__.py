"""Networks by name: the paper's [L x N] networks, others of that kind, and ResNets for small images.

Every [L x N] network is a plain `nn.Sequential` of `nn.Linear` and an activation. A ResNet is an `nn.Sequential` of
stem, blocks and head, whose blocks are `Residual` modules.
"""

from cmalight.models.layered import ACTIVATIONS, PAPER_NETWORKS, layered, paper_network
from cmalight.models.resnet import RESNET_DEPTHS, Residual, resnet

__all__ = ["ACTIVATIONS", "PAPER_NETWORKS", "RESNET_DEPTHS", "Residual", "layered", "paper_network", "resnet"]
