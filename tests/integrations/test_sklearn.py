"""The estimators among scikit-learn's own: its checks, pipelines, searches, copies."""

import io
import pickle

import joblib
import numpy as np
import pytest
import sklearn.datasets
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cmalight
from cmalight import CMALightClassifier, CMALightRegressor
from cmalight.training.solvers.optimizers import SOLVERS


def regression(rows=300, targets=1, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 4))
    y = np.tanh(x @ random.normal(size=(4, targets))) * 100 + 500
    return x, y[:, 0] if targets == 1 else y


def flowers():
    x, y = sklearn.datasets.load_iris(return_X_y=True)
    return StandardScaler().fit_transform(x), np.array(["setosa", "versicolor", "virginica"])[y]


def small(kind=CMALightRegressor, **options):
    return kind(**{"hidden_layer_sizes": 8, "max_epochs": 10, "random_state": 0, **options})


def weights(estimator):
    return torch.cat([p.detach().flatten() for p in estimator.network_.parameters()])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of array libraries that are not installed
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [CMALightRegressor(hidden_layer_sizes=10, max_epochs=12), CMALightClassifier(hidden_layer_sizes=10, max_epochs=12)],
    # A row that is there twice is in two batches, one that counts twice in one.
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": "batches differ"},
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_they_are_found_at_the_top_of_the_package():
    from cmalight.integrations.sklearn import CMALightRegressor as from_its_home

    assert cmalight.CMALightRegressor is from_its_home
    assert "CMALightClassifier" in dir(cmalight)


def test_a_regression_in_other_units_is_fitted_in_a_pipeline():
    x, y = regression()
    model = make_pipeline(
        StandardScaler(), CMALightRegressor(hidden_layer_sizes=(20, 10), max_epochs=40, random_state=0)
    )
    assert model.fit(x * 1000 + 7, y).score(x * 1000 + 7, y) > 0.9


def test_several_targets_are_fitted_at_once():
    x, y = regression(targets=3)
    model = CMALightRegressor(20, max_epochs=40, random_state=0).fit(x, y)
    assert model.predict(x).shape == (300, 3)
    assert model.score(x, y) > 0.9


def test_rows_that_weigh_more_are_fitted_better():
    x = np.array([[0.0], [0.0], [1.0], [1.0]] * 20)
    y = np.array([0.0, 1.0, 0.0, 1.0] * 20)
    weight = np.array([3.0, 1.0, 1.0, 3.0] * 20)
    options = {"optimizer": "adam", "lr": 0.02, "max_epochs": 60}
    predicted = small(**options).fit(x, y, sample_weight=weight).predict([[0.0], [1.0]])
    assert predicted == pytest.approx([0.25, 0.75], abs=0.06)
    labels = np.where(y > 0, "yes", "no")
    model = small(CMALightClassifier, early_stopping=True, **options).fit(x, labels, sample_weight=weight)
    assert model.predict_proba([[0.0], [1.0]])[:, 1] == pytest.approx([0.25, 0.75], abs=0.1)
    with pytest.raises(ValueError, match="sample_weight"):
        small().fit(x, y, sample_weight=weight[:3])


def test_classes_may_be_words():
    x, y = flowers()
    model = CMALightClassifier(20, max_epochs=30, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.93
    assert set(model.predict(x)) <= {"setosa", "versicolor", "virginica"}
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(x))


@pytest.mark.slow
def test_a_grid_search_tries_every_solver_on_two_processes():
    x, y = regression(120)
    grid = {"optimizer": ["cmalight", "cmalight-certified", "adam"], "lr": [0.05, 0.3]}
    search = GridSearchCV(small(), grid, cv=2, n_jobs=2).fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    again = GridSearchCV(small(), grid, cv=2).fit(x, y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"], rtol=1e-6)


def test_cross_validation_works():
    x, y = flowers()
    assert cross_val_score(small(CMALightClassifier, max_epochs=20), x, y, cv=3).mean() > 0.85


def through_a_file(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), through_a_file], ids=["pickle", "joblib"])
def test_a_copy_predicts_the_same(copied):
    x, y = regression(60)
    model = small().fit(x, y)
    np.testing.assert_array_equal(copied(model).predict(x), model.predict(x))


def test_a_copy_goes_on_as_the_original_does():
    x, y = regression(60)
    model = small(warm_start=True).fit(x, y)
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(weights(copy.fit(x, y)), weights(model.fit(x, y)))


def test_the_random_state_decides_everything_and_leaves_the_callers_alone():
    x, y = regression(60)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = small().fit(x, y)
    assert torch.rand(1) == expected
    torch.manual_seed(2)
    assert torch.equal(weights(small().fit(x, y)), weights(first))
    assert not torch.equal(weights(small(random_state=1).fit(x, y)), weights(first))


@pytest.mark.parametrize("optimizer", ["cmalight", "adam"])
def test_a_warm_start_goes_on_where_it_stopped(optimizer):
    x, y = regression(100)
    whole = small(optimizer=optimizer, max_epochs=12).fit(x, y)
    parts = small(optimizer=optimizer, max_epochs=6, warm_start=True).fit(x, y).fit(x, y)
    assert parts.n_iter_ == whole.n_iter_ == 12
    assert parts.loss_curve_ == whole.loss_curve_
    assert torch.equal(weights(parts), weights(whole))


def test_without_warm_start_it_begins_anew():
    x, y = regression(60)
    model = small().fit(x, y)
    once = weights(model)
    assert torch.equal(weights(model.fit(x, y)), once)
    assert model.n_iter_ == 10


def test_a_warm_start_on_other_data_takes_the_weights_as_its_start():
    x, y = regression(100)
    model = small(optimizer="cmalight", warm_start=True, max_epochs=3).fit(x, y)
    before = model.evaluations_
    model.fit(x, -y)
    assert model.evaluations_ > before
    assert model._optimizer.param_groups[0]["f_0"] > 1.0  # the loss of the old weights on the new targets


@pytest.mark.parametrize("change", [{"hidden_layer_sizes": 9}, {"activation": "relu"}], ids=str)
def test_a_warm_start_with_another_network_is_refused_and_leaves_the_one_there_is(change):
    x, y = regression(60)
    model = small(warm_start=True, max_epochs=3).fit(x, y)
    expected, kept = model.predict(x), {name: getattr(model, name) for name in change}
    with pytest.raises(
        ValueError, match=r"goes on with a network of layers \[.*\] and activation 'tanh', but .* needs"
    ):
        model.set_params(**change).fit(x, y)
    np.testing.assert_array_equal(model.predict(x), expected)
    assert model.set_params(**kept).fit(x, y).n_iter_ == 6
    other = model.set_params(**change, warm_start=False).fit(x, y)  # a new network is made where that is wanted
    assert torch.equal(weights(other), weights(small(**change, max_epochs=3).fit(x, y)))


@pytest.mark.parametrize(
    "change", [{"optimizer": "adam"}, {"lr": 0.01}, {"optimizer_options": {"theta": 0.5}}], ids=str
)
def test_a_warm_start_with_another_solver_or_other_options_uses_them(change):
    x, y = regression(100)
    model = small(optimizer="cmalight", warm_start=True, max_epochs=3).fit(x, y)
    before = weights(model)
    model.set_params(**change).fit(x, y)
    used = {"optimizer": type(model._optimizer).__name__.lower(), "lr": model.history_[0].lr}
    used["optimizer_options"] = {"theta": model._optimizer.param_groups[0].get("theta")}
    assert {name: used[name] for name in change} == change
    assert model.n_iter_ == 6
    assert not torch.equal(weights(model), before)


def test_a_warm_start_keeps_the_precision_of_the_network():
    x, y = regression(60)
    model = small(warm_start=True).fit(x.astype(np.float32), y)
    model.fit(x, y)
    assert model.n_iter_ == 20
    assert model.predict(x).dtype == np.float32
    assert small(warm_start=True).fit(x, y).fit(x.astype(np.float32), y).predict(x).dtype == np.float64


def test_whole_numbers_may_be_numpys():
    x, y = regression(60)
    numbers = {"batch_size": 8, "max_epochs": 4, "patience": 3, "early_stopping": True}
    numpys = {name: np.int64(n) if name != "early_stopping" else n for name, n in numbers.items()}
    assert torch.equal(weights(small(**numpys).fit(x, y)), weights(small(**numbers).fit(x, y)))


def test_a_warm_start_with_other_classes_is_refused():
    x, y = flowers()
    model = small(CMALightClassifier, warm_start=True, max_epochs=1).fit(x, y)
    with pytest.raises(ValueError, match="warm_start goes on with the classes"):
        model.fit(x, np.where(y == "setosa", "rose", y))


def test_early_stopping_ends_on_the_best_weights():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 10)), random.normal(size=60)  # nothing to learn: validation soon gets worse
    model = CMALightRegressor(
        50, max_epochs=300, early_stopping=True, patience=5, validation_fraction=0.3, random_state=0
    )
    model.fit(x, y)
    assert model.status_ == "patience"
    losses = [record.validation_loss for record in model.history_]
    assert model.n_iter_ == len(losses) == int(np.argmin(losses)) + 6
    x_flowers, y_flowers = flowers()
    assert small(CMALightClassifier, early_stopping=True).fit(x_flowers, y_flowers).score(x_flowers, y_flowers) > 0.6


def test_a_time_limit_ends_the_training():
    x, y = regression(2000)
    model = CMALightRegressor(max_epochs=None, time_limit=0.2, random_state=0).fit(x, y)
    assert model.status_ == "time_limit"


def test_a_training_that_stalls_stops_and_says_so():
    x, y = regression(60)
    with pytest.warns(ConvergenceWarning, match="stopped making progress"):
        model = small(
            optimizer="cmalight", lr=1e30, max_epochs=400, optimizer_options={"theta": 0.05, "early_rejection": False}
        ).fit(x, y)
    assert model.n_iter_ < 400


def test_precision_follows_the_inputs():
    x, y = regression(60)
    assert small().fit(x.astype(np.float32), y).predict(x.astype(np.float32)).dtype == np.float32
    assert small().fit(x, y).predict(x).dtype == np.float64


@pytest.mark.parametrize("optimizer", SOLVERS)
def test_every_solver_that_fit_knows_is_one(optimizer):
    x, y = regression(60)
    assert small(optimizer=optimizer, max_epochs=2).fit(x, y).n_iter_ == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamm"}, "did you mean 'adam'"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes"),
        ({"activation": "step"}, "activation"),
        ({"early_stopping": "yes"}, "early_stopping"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_epochs": None}, "Give a run an end"),
        ({"optimizer_options": {"speed": 1}}, "unexpected keyword argument 'speed'"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(options, message):
    x, y = regression(30)
    with pytest.raises(ValueError, match=message):
        small(**options).fit(x, y)


@pytest.mark.parametrize("kind", [CMALightRegressor, CMALightClassifier])
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_first_fit_that_fails_leaves_an_estimator_that_is_not_fitted(kind, warm_start):
    x, y = regression(60)
    y = y > 500 if kind is CMALightClassifier else y
    model = small(kind, optimizer="adamm", warm_start=warm_start)
    with pytest.raises(ValueError, match="did you mean 'adam'"):
        model.fit(x, y)
    with pytest.raises(NotFittedError):
        model.predict(x)
    model.set_params(optimizer="adam").fit(x, y)
    assert torch.equal(weights(model), weights(small(kind, optimizer="adam").fit(x, y)))


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize(
    "wrong", [{"optimizer": "adamm"}, {"optimizer": "sgd", "lr": 1e20}], ids=["at once", "in training"]
)
def test_a_refit_that_fails_leaves_the_old_model(wrong, warm_start):
    x, y = regression(60)
    model = small(activation="relu", warm_start=warm_start).fit(x, y)
    expected, right = model.predict(x), {name: getattr(model, name) for name in wrong}
    other = x if warm_start else x[:, :3]
    with pytest.raises(ValueError, match=r"did you mean|diverged"):
        model.set_params(**wrong).fit(other, -3 * y)
    np.testing.assert_array_equal(model.predict(x), expected)
    assert model.n_iter_ == len(model.loss_curve_) == 10
    untouched = small(activation="relu", warm_start=warm_start).fit(x, y).fit(x, y)
    assert torch.equal(weights(model.set_params(**right).fit(x, y)), weights(untouched))


def test_a_solver_that_diverges_is_an_error():
    x, y = regression(60)
    with pytest.raises(ValueError, match="Training diverged"):
        small(optimizer="sgd", lr=1e20, activation="relu").fit(x, y)


def test_one_class_is_refused_and_an_unfitted_estimator_too():
    x, _ = regression(30)
    with pytest.raises(ValueError, match="one class"):
        small(CMALightClassifier).fit(x, np.zeros(30))
    with pytest.raises(NotFittedError):
        clone(small(CMALightClassifier)).predict_proba(x)
