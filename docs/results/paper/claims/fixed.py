"""Sentences of the paper that no run decides: what it says of its own problems, of data, and of its proof."""

import torch
from targets import targets

from claims.verdicts import PARTLY, Claim
from cmalight import bench
from cmalight.models import paper_network, resnet

NOT_TRIED, BY_DEFINITION, REFUTED = "not tried", "by definition", "not so"


def weights(network: torch.nn.Module) -> int:
    return sum(one.numel() for one in network.parameters())


def largest(*parts: bench.Results) -> tuple[int, int]:
    """The most weights of a network, and the most samples of a data set, of which a run ended an epoch."""
    trained = [part.runs[part.runs["epochs"] > 0] for part in parts]
    pairs = {
        pair
        for runs in trained
        for pair in runs[["dataset", "network"]].itertuples(index=False, name=None)
    }
    found = targets(sorted({dataset for dataset, _ in pairs}))
    counts = [
        weights(paper_network(network.removeprefix("paper:"), found[dataset].features))
        for dataset, network in pairs
        if dataset in found
    ]
    return max(counts, default=0), max((one.samples for one in found.values()), default=0)


def dimension(*parts: bench.Results) -> Claim:
    most, samples = largest(*parts)
    return Claim(
        "The problems of the test-bed have up to one million variables and 500 thousand samples.",
        "Its Table 2 has up to 7.8 million variables, on the large networks, and 435,759 samples. Here the largest "
        f"network of which a run ended an epoch has {most:,} weights, and the largest data set {samples:,} training "
        "samples.",
        (),
        PARTLY,
    )


def influence() -> Claim:
    return Claim(
        "f̃ is equally influenced by all samples.",
        "It is the [mean of their losses](../understand/algorithm.md#units), each taken once, on the way.",
        (),
        BY_DEFINITION,
    )


def cifar10() -> list[Claim]:
    count = weights(resnet(18, classes=10, channels=3))
    return [
        Claim(
            "CIFAR-10 has 50,000 images of 8 x 32 x 32, that is 8,192 features, in ten classes.",
            "The published files have 50,000 for training and 10,000 for testing, in ten classes, of 3 x 32 x 32, that "
            "is 3,072 values.",
            (),
            PARTLY,
        ),
        Claim(
            "ResNet-18 on it has about 1.3 · 10⁷ variables.",
            f"The usual one for such pictures has {count:,} [weights](deviations.md).",
            (),
            REFUTED,
        ),
        Claim(
            "Few reached more than 94 % test accuracy with it, and those with data augmentation.",
            "A sentence on other people's results.",
            (),
            NOT_TRIED,
        ),
    ]


def state_of_the_art() -> Claim:
    return Claim(
        "The test accuracy is slightly below the state of the art, for want of augmentation and a schedule.",
        "The network is narrower here, and sees part of the pictures.",
        (),
        NOT_TRIED,
    )


def convergence() -> Claim:
    return Claim(
        "Conclusion: the algorithm converges under mild assumptions.",
        "As published it need not: it [stalls and goes round in circles](../understand/counterexamples.md) under the "
        "paper's assumptions. With the certified search it [does](../understand/theory.md).",
        (),
        REFUTED,
    )
