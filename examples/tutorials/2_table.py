"""
A table: from CSV to predictions
================================

A file with columns, a network trained on it, and predictions for new rows, in Python. On the
command line the same is ``cmalight train``, ``cmalight predict`` and ``cmalight evaluate``
(:doc:`/guides/tables`).
"""

# %%
# A file such as a colleague might send: numbers, a category, a date, an id that means nothing.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas

from cmalight.integrations.tables import load_model, train_table

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
rows = 600
houses = pandas.DataFrame(
    {
        "id": np.arange(rows) + 1000,
        "sold": random.choice(pandas.date_range("2024-01-01", periods=700), rows),
        "city": random.choice(["Oslo", "Bergen", "Bodo"], rows, p=[0.5, 0.3, 0.2]),
        "size": random.uniform(25, 160, rows).round(1),
        "age": random.integers(0, 90, rows),
    }
)
place = houses["city"].map({"Oslo": 1.6, "Bergen": 1.2, "Bodo": 0.8})
price = place * houses["size"] * (4000 - 20 * houses["age"])
houses["price"] = (price * random.normal(1, 0.05, rows)).round()
houses.iloc[:500].to_csv(folder / "houses.csv", index=False)
houses.iloc[500:].drop(columns="price").to_csv(folder / "new.csv", index=False)
print(pandas.read_csv(folder / "houses.csv").head(3).to_string(index=False))

# %%
# Training
# --------
# One call reads the file, decides what its columns are, keeps test rows aside, encodes, trains and
# scores. On the command line: ``cmalight train houses.csv --target price --save houses.model``.

result = train_table(
    folder / "houses.csv", "price", drop=["id"], save=folder / "houses.model"
)
print(result.scores)

# %%
# A score means little by itself, so a linear model and a guess are always scored beside it.
#
# Predicting
# ----------
# The model file has the column types and the encoding with it, so new rows go in as they are.

model = load_model(folder / "houses.model")
new = pandas.read_csv(folder / "new.csv")
predictions = model.predict(new)
print(predictions.head(3))

# %%
# Here the true prices are known, because we made them.

truth = houses["price"].iloc[500:].to_numpy()
figure, axes = plt.subplots(figsize=(4.2, 4), layout="constrained")
axes.scatter(truth, predictions["prediction"], s=12)
axes.axline((truth.mean(), truth.mean()), slope=1, linewidth=1, color="tab:gray")
axes.set(xlabel="price", ylabel="predicted price", title="100 new rows")
plt.show()
