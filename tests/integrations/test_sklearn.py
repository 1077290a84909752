"""The estimators among scikit-learn's own: its checks, pipelines, searches, copies."""

import re
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cmalight import WatchedClassifier, WatchedRegressor
from cmalight.integrations.sklearn import spread_rows


def regression(rows=300, targets=1, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 4))
    y = np.tanh(x @ random.normal(size=(4, targets))) * 100 + 500
    return x, y[:, 0] if targets == 1 else y


def flowers():
    x, y = sklearn.datasets.load_iris(return_X_y=True)
    return StandardScaler().fit_transform(x), np.array(["setosa", "versicolor", "virginica"])[y]


def small(kind=WatchedRegressor, **options):
    return kind(**{"hidden_layer_sizes": 8, "max_epochs": 10, "random_state": 0, **options})


def weights(estimator):
    return np.concatenate([array.ravel() for array in (*estimator.coefs_, *estimator.intercepts_)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of array libraries that are not installed
@parametrize_with_checks(
    [WatchedRegressor(10, lr=0.03, max_epochs=12), WatchedClassifier(10, lr=0.03, max_epochs=12)],
    # A row that is there twice is in two batches, one that counts twice in one.
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": "batches differ"},
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_rows_that_weigh_more_are_fitted_better():
    x = np.array([[0.0], [0.0], [1.0], [1.0]] * 20)
    y = np.array([0.0, 1.0, 0.0, 1.0] * 20)
    weight = np.array([3.0, 1.0, 1.0, 3.0] * 20)
    options = {"optimizer": "adam", "lr": 0.02, "max_epochs": 60, "dropout": 0.0, "early_stopping": False}
    predicted = small(**options).fit(x, y, sample_weight=weight).predict([[0.0], [1.0]])
    assert predicted == pytest.approx([0.25, 0.75], abs=0.06)
    labels = np.where(y > 0, "yes", "no")
    model = small(WatchedClassifier, **options).fit(x, labels, sample_weight=weight)
    assert model.predict_proba([[0.0], [1.0]])[:, 1] == pytest.approx([0.25, 0.75], abs=0.1)
    with pytest.raises(ValueError, match="sample_weight"):
        small().fit(x, y, sample_weight=weight[:3])


def test_classes_may_be_words():
    x, y = flowers()
    model = WatchedClassifier(random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9
    assert set(model.predict(x)) <= {"setosa", "versicolor", "virginica"}
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(x))


def test_the_random_state_decides_everything_and_leaves_the_callers_alone():
    x, y = regression(60)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = small().fit(x, y)
    assert torch.rand(1) == expected
    torch.manual_seed(2)
    assert np.array_equal(weights(small().fit(x, y)), weights(first))
    assert not np.array_equal(weights(small(random_state=1).fit(x, y)), weights(first))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamm"}, "did you mean 'adam'"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes"),
        ({"activation": "step"}, "activation"),
        ({"early_stopping": "yes"}, "early_stopping"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_epochs": None}, "A run needs an end"),
        ({"optimizer_options": {"speed": 1}}, "Unknown option of 'auto' 'speed'"),
        ({"optimizer": "sgd", "lr": 1e20}, "Training diverged"),
    ],
    ids=str,
)
def test_bad_parameters_are_named_and_leave_an_estimator_that_is_not_fitted(options, message):
    x, y = regression(60)
    model = small(max_epochs=1).fit(x, y).set_params(max_epochs=10).set_params(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(x, y)
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_one_class_is_refused_and_an_unfitted_estimator_too():
    x, _ = regression(30)
    with pytest.raises(ValueError, match="one class"):
        small(WatchedClassifier).fit(x, np.zeros(30))
    with pytest.raises(NotFittedError):
        clone(small(WatchedClassifier)).predict_proba(x)


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_a_regression_in_other_units_is_fitted_alone_and_in_a_pipeline(in_pipeline):
    x, y = regression()
    model = WatchedRegressor(hidden_layer_sizes=(20, 10), random_state=0)
    model = make_pipeline(StandardScaler(), model) if in_pipeline else model
    assert model.fit(x * 1000 + 7, y).score(x * 1000 + 7, y) > 0.9


def test_a_search_may_give_numbers_of_numpy():
    x, y = regression(60)
    options = {"max_epochs": np.int64(3), "batch_size": np.int64(20), "hidden_layer_sizes": np.array([5, 4])}
    model = small(**options, patience=np.int64(2), lr=np.float64(0.01)).fit(x, y)
    assert [len(intercepts) for intercepts in model.intercepts_] == [5, 4, 1]
    assert model.n_iter_ <= 3
    model = WatchedRegressor(max_epochs=None, time_limit=np.float64(0.2), random_state=0).fit(*regression(2000))
    assert model.status_ == "time_limit"


def test_the_weights_are_plain_arrays():
    x, y = regression(60)
    model = small(hidden_layer_sizes=(8, 5)).fit(x, y)
    assert [array.shape for array in model.coefs_] == [(4, 8), (8, 5), (5, 1)]
    assert [array.shape for array in model.intercepts_] == [(8,), (5,), (1,)]
    assert not any(isinstance(value, torch.Tensor | torch.nn.Module) for value in vars(model).values())
    scaled = (x - model.input_mean_) / model.input_scale_
    scaled = scaled / np.sqrt(1 + (scaled / 3) ** 2)
    for coefs, intercepts in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        scaled = np.maximum(scaled @ coefs + intercepts, 0)
    expected = (scaled @ model.coefs_[-1] + model.intercepts_[-1]) * model.target_scale_ + model.target_mean_
    np.testing.assert_allclose(model.predict(x), expected[:, 0])


def test_by_default_a_tenth_of_the_rows_stops_the_training_and_the_best_weights_are_kept():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 10)), random.normal(size=60)  # nothing to learn: validation soon gets worse
    model = WatchedRegressor(50, max_epochs=300, patience=5, random_state=0).fit(x, y)
    losses = model.validation_loss_curve_
    assert model.status_ == "patience"
    assert model.n_iter_ == len(model.loss_curve_) == len(losses) == int(np.argmin(losses)) + 6
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    kept_aside = spread_rows((y - y.mean()) / y.std(), 0.1, seed)
    error = ((model.predict(x[kept_aside]) - y[kept_aside]) / y.std()) ** 2
    assert error.mean() == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_rows_kept_aside_cover_the_classes_evenly(fraction):
    classes = np.repeat([0, 1, 2, 3], [100, 40, 20, 1])
    chosen = spread_rows(classes, fraction, 0)
    counts = np.bincount(classes[chosen], minlength=4)
    assert abs(counts[:3] - fraction * np.array([100, 40, 20])).max() <= 1
    assert counts[3] == 0  # its only row is trained on
    assert not np.array_equal(chosen, spread_rows(classes, fraction, 1))


def test_the_example_of_the_guide_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "estimators.md").read_text()
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert float(capsys.readouterr().out) > 0.95
