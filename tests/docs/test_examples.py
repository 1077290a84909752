"""The examples in the docstrings run as they stand, and give what they show."""

import doctest
import inspect
import warnings

import pytest
from cmalight.integrations.lightning import WatchdogCallback

import cmalight
from cmalight import bench, datasets, models
from cmalight.integrations import tables

# One after the other in one folder where the second reads what the first wrote.
EXAMPLES = {
    "fit": [cmalight.fit],
    "CMALight": [cmalight.CMALight],
    "Controlled": [cmalight.Controlled],
    "Objective": [cmalight.Objective],
    "TensorBatches": [cmalight.TensorBatches],
    "CMALightRegressor": [cmalight.CMALightRegressor],
    "CMALightClassifier": [cmalight.CMALightClassifier],
    "WatchdogCallback": [WatchdogCallback],
    "train_table": [tables.train_table],
    "load_dataset": [datasets.load_dataset],
    "register": [datasets.register],
    "layered": [models.layered],
    "bench": [bench.run, bench.load],
}


METHODS = [
    one
    for estimator in (cmalight.CMALightRegressor, cmalight.CMALightClassifier)
    for name, one in vars(estimator).items()
    if inspect.isfunction(one) and not name.startswith("_")
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_a_method_of_an_estimator_says_what_it_raises(method):
    assert "Raises:" in method.__doc__


@pytest.mark.parametrize(
    "name", [*(n for n in EXAMPLES if n != "bench"), pytest.param("bench", marks=pytest.mark.slow)]
)
def test_the_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "_registered", {})
    runner = doctest.DocTestRunner()
    for thing in EXAMPLES[name]:
        example = doctest.DocTestParser().get_doctest(thing.__doc__, {}, thing.__qualname__, None, 0)
        assert example.examples
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning has advice on workers and loggers
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
