"""Data sets by name: the paper's eleven tables, CIFAR, scikit-learn's small ones, generated ones, and your own.

    data = load_dataset("bikes")                                  # arrays: x_train, y_train, x_test, y_test
    data = load_dataset("cifar10:rows=4000")                      # the first rows of each part
    data = load_dataset("teacher:rows=1000000,features=50")       # generated, nothing to download
    data = load_dataset("shop.csv:target=price")                  # your own; see also `register`

The catalogue holds the licence, citation and checksum of every data set of the package.
A file is searched in the folders of CMALIGHT_DATA, then in the cache (CMALIGHT_CACHE, or the system's cache
folder), then downloaded into the cache.
"""

from __future__ import annotations

from cmalight.errors import DataError, needed

with needed("data sets need filelock, numpy, pandas and pooch", "data"):
    from cmalight.datasets.entry import Entry, Raw, digest_of
    from cmalight.datasets.loading import DataSet, fetch, load_dataset
    from cmalight.datasets.registry import dataset_info, known, register
    from cmalight.datasets.storage import where

__all__ = [
    "DataError",
    "DataSet",
    "Entry",
    "Raw",
    "dataset_info",
    "digest_of",
    "fetch",
    "known",
    "load_dataset",
    "register",
    "where",
]
