"""Networks of these studies that have no name in the package."""

from torch import nn

from cmalight.models import layered


def xavier(features: int, outputs: int, size: str, gain: float = 1.0) -> nn.Sequential:
    """A sigmoid network of a size such as "3x20", with Xavier's first weights (Glorot and Bengio 2010), biases 0.

    With the gain 4, one over a sigmoid's slope, a layer passes on more than half of the differences between samples.
    """
    network = layered(size, features, outputs=outputs)
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
    return network
