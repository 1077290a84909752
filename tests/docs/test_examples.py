"""The examples in the docstrings run as they stand, and give what they show."""

import doctest
import warnings

import pytest

import cmalight
from cmalight import datasets, models

# One after the other in one folder where the second reads what the first wrote.
EXAMPLES = {
    "fit": [cmalight.fit],
    "Auto": [cmalight.Auto],
    "Controlled": [cmalight.Controlled],
    "Certified": [cmalight.Certified],
    "CMALight": [cmalight.CMALight],
    "Objective": [cmalight.Objective],
    "TensorBatches": [cmalight.TensorBatches],
    "WatchedRegressor": [cmalight.WatchedRegressor],
    "WatchedClassifier": [cmalight.WatchedClassifier],
    "load_dataset": [datasets.load_dataset],
    "register": [datasets.register],
    "layered": [models.layered],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    for thing in EXAMPLES[name]:
        example = doctest.DocTestParser().get_doctest(thing.__doc__, {}, thing.__qualname__, None, 0)
        assert example.examples
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
