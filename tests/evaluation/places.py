"""Places where a training may keep a random number generator: each gives a loader and a loss that draw from it."""

import functools
import random
import types

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.helpers import MSE, table

SAMPLES = 40


def torch_generator():
    generator = torch.Generator().manual_seed(1)
    return generator, lambda: torch.rand((), generator=generator).item()


def numpy_generator():
    generator = numpy.random.default_rng(1)
    return generator, generator.random


def numpy_mersenne():
    generator = numpy.random.Generator(numpy.random.MT19937(1))
    return generator, generator.random


def numpy_legacy():
    generator = numpy.random.RandomState(1)
    return generator, generator.random_sample


def python_generator():
    generator = random.Random(1)
    return generator, generator.random


KINDS = {f.__name__: f for f in (torch_generator, numpy_generator, numpy_mersenne, numpy_legacy, python_generator)}


def noisy(batch, draw):
    x, y = (torch.stack(parts) for parts in zip(*batch, strict=True))
    return x + 0.1 * draw(), y


def loader_with(collate=None, dataset=None):
    return DataLoader(dataset or TensorDataset(*table(SAMPLES)), batch_size=10, collate_fn=collate)


class Noise:
    """A transform."""

    def __init__(self, step):
        self.step = step


class Slotted:
    __slots__ = ("generator",)

    def __init__(self, generator):
        self.generator = generator


class Pipeline(Dataset):
    """A data set that applies its transforms, one after the other."""

    def __init__(self, *steps):
        self.x, self.y = table(SAMPLES)
        self.pipeline = {"steps": [Noise(step=step) for step in steps]}

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x = self.x[index]
        for noise in self.pipeline["steps"]:
            x = x + 0.1 * noise.step()
        return x, self.y[index]


def in_a_closure(generator, draw):
    return loader_with(lambda batch: noisy(batch, draw)), MSE


def in_a_partial(generator, draw):
    return loader_with(functools.partial(noisy, draw=draw)), MSE


def in_a_default(generator, draw):
    def collate(batch, draw=draw):
        return noisy(batch, draw)

    return loader_with(collate), MSE


def in_a_bound_method(generator, draw):
    class Collates:
        def __init__(self):
            self.state = types.SimpleNamespace(held=Slotted(draw))

        def collate(self, batch):
            return noisy(batch, self.state.held.generator)

    return loader_with(Collates().collate), MSE


DRAW = None  # set by `in_a_global`


def collate_with_a_global(batch):
    return noisy(batch, DRAW)


def in_a_global(generator, draw):
    global DRAW
    DRAW = draw
    return loader_with(collate_with_a_global), MSE


def in_a_class_attribute(generator, draw):
    class Collates:
        draw_noise = staticmethod(draw)

        def __call__(self, batch):
            return noisy(batch, self.draw_noise)

    return loader_with(Collates()), MSE


def in_a_pipeline(generator, draw):
    return loader_with(dataset=Pipeline(draw)), MSE


def in_nested_containers(generator, draw):
    return loader_with(functools.partial(_nested, held=[{"deep": ({"er": (draw,)},)}])), MSE


def _nested(batch, held):
    return noisy(batch, held[0]["deep"][0]["er"][0])


def in_the_loss(generator, draw):
    class Smoothed(nn.Module):
        def __init__(self):
            super().__init__()
            self.noises = [draw]

        def forward(self, output, target):
            return MSE(output, target + 0.1 * self.noises[0]())

    return loader_with(), Smoothed()


def in_a_loss_function(generator, draw):
    return loader_with(), lambda output, target: MSE(output, target + 0.1 * draw())


PLACES = {
    f.__name__: f
    for f in (
        in_a_closure,
        in_a_partial,
        in_a_default,
        in_a_bound_method,
        in_a_global,
        in_a_class_attribute,
        in_a_pipeline,
        in_nested_containers,
        in_the_loss,
        in_a_loss_function,
    )
}


def place(where, kind="torch_generator"):
    """A fresh loader and loss with a generator there, and the generator."""
    generator, draw = KINDS[kind]()
    return *PLACES[where](generator, draw), generator
