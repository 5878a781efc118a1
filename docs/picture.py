"""The picture of the README, from a real run: python docs/picture.py [OVERRIDES]; writes docs/digits.png."""

import sys
from pathlib import Path

import zsl
from zsl.report.figures import embedding

overrides = ("tracking=none", *sys.argv[1:])
data, result = zsl.load_dataset("digits", overrides=overrides), zsl.run(zsl.compose(overrides))
stages = {s.name: s for s in result.prediction.stages}
panels = {"truth": data.y_unseen}
for name, words in (("aag", "AAg: nearest class"), ("taaw", "TAAw: labels spread")):
    accuracy = result.metrics[f"{name}/acc_class"]
    panels[f"{words}, {accuracy:.0%}"] = stages[name].scores.argmax(axis=1)
figure = embedding(stages["taaw"].Z_hat, data.Z_unseen, panels, data.unseen_names)
figure.savefig(Path(__file__).with_name("digits.png"), dpi=110)
