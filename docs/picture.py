"""The pictures of README and docs: python docs/picture.py [OVERRIDES].

Writes digits.png from a run that this makes, and sparse-coding.png from the times in sparse-coding.csv, which
`zsl bench` measured (its bench_encode.csv has them by rows).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import zsl
from zsl.linalg import unit_rows
from zsl.report.figures import embedding, figure_of, relative_times
from zsl.report.figures.scatter import handles_of, plane
from zsl.report.figures.style import TEXT, legend_below

docs = Path(__file__).parent
overrides = ("dataset=digits", "tracking=none", f"output_dir={docs.parent / 'multirun'}", *sys.argv[1:])
data, result = zsl.load_dataset("digits", overrides=overrides), zsl.run(zsl.compose(overrides))
stages = {s.name: s for s in result.prediction.stages}
Z, Z_hat, names = data.Z_unseen, stages["taaw"].Z_hat, data.unseen_names
points = plane(np.vstack([unit_rows(Z), unit_rows(Z_hat)]))
figure = Figure(figsize=(7.0, 2.75), layout="constrained")
axes = figure.subplots(1, 3)
embedding(points[len(Z) :], points[: len(Z)], data.y_unseen, names=names, legend=False, ax=axes[0])
axes[0].set_title("true classes", fontsize=TEXT)
for ax, (name, words) in zip(axes[1:], {"aag": "AAg: nearest class", "taaw": "TAAw: labels spread"}.items()):
    guess = stages[name].scores.argmax(axis=1)
    embedding(points[len(Z) :], points[: len(Z)], data.y_unseen, guess, names, colour="predicted", legend=False, ax=ax)
    ax.set_title(f"{words}, {result.metrics[f'{name}/acc_class']:.0%} right", fontsize=TEXT)
handles = handles_of(names, wrong=True, unknown=False)
legend_below(figure, handles, [handle.get_label() for handle in handles], columns=8)
figure.savefig(docs / "digits.png", dpi=160)

ratios = pd.read_csv(docs / "sparse-coding.csv", index_col=0)
figure_of(relative_times(ratios)).savefig(docs / "sparse-coding.png", dpi=160)
print("written:", docs / "digits.png", docs / "sparse-coding.png")
