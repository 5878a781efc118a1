"""The picture of the README, from a real run: python docs/picture.py [OVERRIDES]; writes docs/digits.png."""

import sys
from pathlib import Path

import zsl
from zsl.experiment.loading import load_data
from zsl.experiment.run import resolve
from zsl.report.figures import embedding

cfg = zsl.compose(["tracking=none", *sys.argv[1:]])
data, result = load_data(resolve(cfg)), zsl.run(cfg)
stages = {s.name: s for s in result.stages}
panels = {"truth": data.y_unseen}
for name, words in (("aag", "AAg: nearest class"), ("taaw", "TAAw: labels spread")):
    accuracy = result.metrics[f"{name}/acc_class"]
    panels[f"{words}, {accuracy:.0%}"] = stages[name].scores.argmax(axis=1)
figure = embedding(stages["taaw"].Z_hat, data.Z_unseen, panels, data.unseen_names)
figure.savefig(Path(__file__).with_name("digits.png"), dpi=110)
