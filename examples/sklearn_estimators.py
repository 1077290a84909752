"""The estimators in scikit-learn's own tools: a pipeline, a grid search, a cross validation."""

from __future__ import annotations

from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmalight import WatchedClassifier, WatchedRegressor


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    classifier = make_pipeline(StandardScaler(), WatchedClassifier((40,), max_epochs=10, random_state=0))
    classifier.fit(x_train, y_train)
    print(f"digits: {classifier.score(x_test, y_test):.3f} of the test rows right")

    x, y = load_diabetes(return_X_y=True)
    regressor = make_pipeline(StandardScaler(), WatchedRegressor((10,), max_epochs=15, random_state=0))
    grid = {"watchedregressor__weight_decay": [0.0, 0.01], "watchedregressor__lr": [0.003, 0.03]}
    search = GridSearchCV(regressor, grid, cv=3).fit(x, y)
    print(f"diabetes: R² {search.best_score_:.3f} with {search.best_params_}")
    scores = cross_val_score(search.best_estimator_, x, y, cv=3)
    print(f"diabetes: R² {scores.mean():.3f} ± {scores.std():.3f} over three folds")


if __name__ == "__main__":
    main()
