"""The examples in the docstrings run as they stand, and give what they show."""

import doctest

import pytest

import cmalight
from cmalight import datasets, models

NAMED = [getattr(module, name) for module in (cmalight, datasets, models) for name in module.__all__]
PUBLIC = [*NAMED, cmalight.WatchedRegressor, cmalight.WatchedClassifier]
WITH_EXAMPLES = {thing.__name__: thing for thing in PUBLIC if callable(thing) and ">>>" in (thing.__doc__ or "")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(WITH_EXAMPLES[name].__doc__, {}, name, None, 0))
    assert runner.summarize(verbose=False).failed == 0
