"""The image sets, each with its publisher's own test part.

The sha256 of these files are those that TensorFlow Datasets (Apache 2.0) records for the same addresses.
"""

from __future__ import annotations

from cmalight.datasets.entries.entry import Entry, RemoteFile
from cmalight.datasets.image_formats import Cifar, Idx

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_CIFAR_PAPER = (
    "A. Krizhevsky (2009), Learning multiple layers of features from tiny images, technical report, "
    "University of Toronto"
)
_PIXELS = "pixels divided by 255, NCHW; labels as they are"
_MNIST_BASES = (
    "http://yann.lecun.com/exdb/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
_FASHION_BASES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
)
_IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _cifar(classes: int, things: str, source: Cifar, size: int, sha256: str, labels: str = "") -> Entry:
    """CIFAR-10 and CIFAR-100 differ in their labels and in how many files they come in."""
    return Entry(
        name=f"cifar{classes}",
        title=f"CIFAR-{classes}: small colour photographs of {things}",
        group="images",
        task="classification",
        rows=50_000,
        test_rows=10_000,
        features=3_072,
        image=(3, 32, 32),
        classes=classes,
        source=source,
        files=(RemoteFile(name=source.archive, urls=(f"{_TORONTO}/{source.archive}",), sha256=(sha256,), size=size),),
        encoding=f"the binary version{labels}; {_PIXELS}",
        licence="none stated; the authors ask for the citation",
        citation=_CIFAR_PAPER,
        homepage=f"{_TORONTO}/cifar.html",
    )


def _grey(
    name: str,
    elsewhere: str,
    bases: tuple[str, ...],
    known: tuple[tuple[int, str], ...],
    *,
    title: str,
    licence: str,
    citation: str,
    homepage: str,
) -> Entry:
    """MNIST and its successor use the same names for their four files, which are in a folder of their own.

    elsewhere: the folder that torchvision keeps them in
    known: size and sha256 of each
    """
    files = tuple(
        RemoteFile(
            name=f"{name}/{file}",
            urls=tuple(f"{base}/{file}" for base in bases),
            sha256=(sha256,),
            size=size,
            other_names=(f"{elsewhere}/raw/{file}",),
        )
        for file, (size, sha256) in zip(_IDX_NAMES, known, strict=True)
    )
    train_images, train_labels, test_images, test_labels = (file.name for file in files)
    return Entry(
        name=name,
        title=title,
        group="images",
        task="classification",
        rows=60_000,
        test_rows=10_000,
        features=784,
        image=(1, 28, 28),
        classes=10,
        source=Idx(train_images, train_labels, test_images, test_labels),
        files=files,
        encoding=_PIXELS,
        licence=licence,
        citation=citation,
        homepage=homepage,
    )


CIFAR10 = _cifar(
    10,
    "ten kinds of things",
    Cifar(
        archive="cifar-10-binary.tar.gz",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test=("test_batch.bin",),
        classes=10,
    ),
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)

CIFAR100 = _cifar(
    100,
    "a hundred kinds of things",
    Cifar(
        archive="cifar-100-binary.tar.gz",
        train=("train.bin",),
        test=("test.bin",),
        classes=100,
        label_bytes=2,
        label=1,
    ),
    168_513_733,
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    labels=", fine labels",
)

FASHION_MNIST = _grey(
    "fashion-mnist",
    "FashionMNIST",
    _FASHION_BASES,
    (
        (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    title="Fashion-MNIST: grey pictures of ten kinds of clothing",
    licence="MIT",
    citation=(
        "H. Xiao, K. Rasul, R. Vollgraf (2017), Fashion-MNIST: a novel image dataset for benchmarking machine "
        "learning algorithms, arXiv:1708.07747"
    ),
    homepage="https://github.com/zalandoresearch/fashion-mnist",
)

MNIST = _grey(
    "mnist",
    "MNIST",
    _MNIST_BASES,
    (
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    title="MNIST: handwritten digits",
    licence="CC BY-SA 3.0",
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Gradient-based learning applied to document recognition, "
        "Proc. IEEE 86, 2278-2324"
    ),
    homepage="http://yann.lecun.com/exdb/mnist",
)

PICTURES = (CIFAR10, CIFAR100, FASHION_MNIST, MNIST)
