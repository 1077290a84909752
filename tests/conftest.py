"""One torch thread per test process, since the run uses every core; and examples that are the same on every run."""

import logging
import os
import signal
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
# No test fails because the machine was slow.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
# A run in the background inherits an ignored Ctrl-C, which the tests of Ctrl-C, and their processes, would inherit too.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, in that order: a worker that began one of them last would be waited for.
LONGEST = [
    f"tests/{name}.py"
    for name in ("docs/test_site", "test_examples", "parallel/test_torchrun", "bench/test_running", "bench/test_dask")
]


def pytest_configure(config):
    """No test leaves anything in the user's cache; the processes of a run share one, and build the kernel once."""
    if not hasattr(config, "workerinput"):
        cache = tempfile.TemporaryDirectory(prefix="cmalight-tests-")
        config.add_cleanup(cache.cleanup)
        os.environ["CMALIGHT_CACHE"] = cache.name


def pytest_collection_modifyitems(items):
    ranks = {path: rank for rank, path in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


@pytest.fixture(autouse=True)
def own_messages():
    """The command shows what the library logs, for as long as its process lives: here, for as long as its test runs."""
    logger = logging.getLogger("cmalight")
    before = list(logger.handlers)
    yield
    logger.handlers[:] = before
