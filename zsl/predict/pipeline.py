"""The fitted pipeline as arrays and text: pre-processing, model, class attributes, inference rule. No pickle.

``model.npz`` holds arrays, and under ``pipeline`` a JSON text that says what they are.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array, as_matrix
from zsl.config import build
from zsl.data.table import near
from zsl.errors import UserError
from zsl.inference.statistics import Seen

MODEL = "model.npz"
_FORMAT = 1
# Names that `classes` may have apart from a table of them.
UNSEEN, SEEN, ALL = "unseen", "seen", "all"


class CannotBeSaved(UserError):
    """A fitted model holds something that is neither arrays nor numbers nor text."""


@dataclass
class Pipeline:
    """From raw features to scores of classes, as fitted in a run."""

    config: dict[str, Any]
    """The groups ``model``, ``inference``, ``feature``, ``dataset``, and ``allow_targets``, resolved"""
    model: Any
    feature: Any
    """Pre-processing of features, fitted"""
    semantics: Any
    """Pre-processing of attributes, fitted"""
    class_names: list[str]
    """C names: the seen classes, then the unseen ones"""
    attributes: Array
    """(C, q) their attributes as they were read, before pre-processing"""
    n_seen: int
    example: Array
    """(k, p) a few raw test images, as an example of what goes in"""
    attribute_names: list[str] = field(default_factory=list)
    """q names, or none"""
    seen: Seen | None = None
    """Statistics of the seen classes, where the inference rule asks for them"""
    about: dict[str, Any] = field(default_factory=dict)
    """Dataset, digest, network that made the features, versions"""

    @property
    def n_features(self) -> int:
        """Columns of raw features."""
        return int(self.about["n_features"])

    @property
    def seen_names(self) -> list[str]:
        return self.class_names[: self.n_seen]

    @property
    def unseen_names(self) -> list[str]:
        return self.class_names[self.n_seen :]

    def classes(
        self, which: str = UNSEEN, added: Mapping[str, Sequence[float]] | None = None
    ) -> tuple[list[str], Array]:
        """Names, and pre-processed attributes (C, q), of the classes to choose from.

        Parameters
        ----------
        which : "unseen", "seen", "all" or "none"
            Of the classes known from training.
        added : mapping, optional
            New classes: name -> q raw attributes, in the order and units of training's table; NaN takes the mean of the
            seen classes.

        Raises
        ------
        UserError
            For names that are taken, a wrong number of attributes, or no class at all.
        """
        parts = {UNSEEN: slice(self.n_seen, None), SEEN: slice(self.n_seen), ALL: slice(None), "none": slice(0)}
        if which not in parts:
            raise UserError(f"classes={which} does not exist; it may be: {', '.join(parts)}.")
        names, rows = list(self.class_names[parts[which]]), self.attributes[parts[which]]
        if added:
            taken = next((name for name in added if name in names), None)
            if taken is not None:
                raise UserError(f"the new class {taken!r} is known already; give it another name.")
            rows = np.vstack([rows, self._new(added)])
            names += list(added)
        if not names:
            raise UserError("there is no class to choose from; add some, or take those of training.")
        return names, self.semantics.transform(rows)

    def _new(self, added: Mapping[str, Sequence[float]]) -> Array:
        q = self.attributes.shape[1]
        for name, row in added.items():
            if len(row) != q:
                raise UserError(f"the new class {name!r} has {len(row)} attributes where {q} are needed.")
        try:
            rows = np.array([[np.nan if v is None else float(v) for v in row] for row in added.values()])
        except (TypeError, ValueError):
            raise UserError("attributes of new classes must be numbers; leave out or null what is unknown.") from None
        return as_matrix(
            np.where(np.isnan(rows), self.attributes[: self.n_seen].mean(axis=0), rows), "attributes of new classes"
        )

    def rows_of(self, names: Sequence[str], attribute_names: Sequence[str], table: Array, where: str) -> dict[str, Any]:
        """New classes from a table (C, k): its columns by name where training's attributes have names, else in order.

        Raises
        ------
        UserError
            For an attribute of training that the table has not, or another number of columns.
        """
        wanted = self.attribute_names
        if wanted and set(wanted) & set(attribute_names):
            lacking = [a for a in wanted if a not in attribute_names]
            if lacking:
                raise UserError(
                    f"{where} has no column {lacking[0]!r}{near(lacking[0], tuple(attribute_names))}; every attribute "
                    "of training needs one (an empty field is unknown)."
                )
            table = table[:, [list(attribute_names).index(a) for a in wanted]]
        elif table.shape[1] != self.attributes.shape[1]:
            raise UserError(
                f"{where} has {table.shape[1]} attributes where training had {self.attributes.shape[1]}; give the "
                "same, in the same order."
            )
        return dict(zip(names, table.tolist()))

    def scores(self, X: Array, Z: Array, infer: Callable[..., Sequence[Any]]) -> Array:
        """(L, C) scores of raw features X (L, p) for pre-processed attributes Z (C, q) by the run's inference rule.

        ``infer`` is :func:`zsl.inference.prediction.infer`. A transductive rule uses all rows of X at once.
        """
        X = as_matrix(X, "features", n_columns=self.n_features)
        kept = self.seen
        seen = None if kept is None else (lambda: kept)
        scores = infer(self.config, self.model, self.feature.transform(X), Z, seen)[-1].scores
        return np.asarray(scores)

    # --- the file -----------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write ``path`` whole or not at all; :class:`CannotBeSaved` names what has no form as arrays."""
        arrays: dict[str, Array] = {"attributes": self.attributes, "example": self.example}
        text = {
            "format": _FORMAT,
            "config": self.config,
            "class_names": self.class_names,
            "n_seen": self.n_seen,
            "attribute_names": self.attribute_names,
            "about": self.about,
            "seen": _encode(self.seen, "seen", arrays),
        }
        for name, node in (("model", self.config["model"]), ("feature", {}), ("semantics", {})):
            text[name] = _state(getattr(self, name), node, name, arrays)
        arrays["pipeline"] = np.array(json.dumps(text, ensure_ascii=False))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as f:
            np.savez(f, **arrays)  # type: ignore[arg-type]
        part.replace(path)

    @classmethod
    def load(cls, path: Path, *, allow_targets: Iterable[str] = ()) -> Pipeline:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        allow_targets : packages outside ``zsl`` whose classes the file may name. The file itself cannot permit any.

        Raises
        ------
        UserError
            If it is no such file, or names something outside the permitted packages.
        """
        allow = tuple(allow_targets)
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {k: stored[k] for k in stored.files}
            text = json.loads(str(arrays["pipeline"]))
            if text["format"] != _FORMAT:
                raise UserError(
                    f"{path} was written by another version of zsl (format {text['format']}); run it again."
                )
        except UserError:
            raise
        except FileNotFoundError:
            raise UserError(f"{path} does not exist; runs write it with save_model=true.") from None
        except Exception as error:
            # Zip, NumPy, JSON and missing entries: it is another file, or half of one.
            raise UserError(f"{path} is not a fitted pipeline of zsl ({error}).") from None
        config = {**text["config"], "allow_targets": list(allow)}
        model = build(config["model"], "model", allow_targets=allow)
        skip = ("source", "missing")
        target = config["feature"]["_target_"]
        chosen = {k: v for k, v in config["dataset"]["semantics"].items() if k not in skip}
        feature = build(config["feature"], "feature", allow_targets=allow)
        semantics = build({"_target_": target, **chosen}, "dataset.semantics", allow_targets=allow)
        for instance, name in ((model, "model"), (feature, "feature"), (semantics, "semantics")):
            for key, value in text[name].items():
                setattr(instance, key, _decode(value, arrays, allow, path))
        return cls(
            config, model, feature, semantics, text["class_names"], arrays["attributes"], text["n_seen"],
            arrays["example"], text["attribute_names"], _decode(text["seen"], arrays, allow, path), text["about"],
        )  # fmt: skip


def _state(instance: Any, node: Mapping[str, Any], name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """What ``fit`` set: every attribute that is neither an argument of the constructor nor for training alone."""
    given = (
        {f.name for f in dataclasses.fields(instance) if f.init} if dataclasses.is_dataclass(instance) else set(node)
    )
    skip = given | set(getattr(instance, "training_only", ()))
    return {k: _encode(v, f"{name}.{k}", arrays) for k, v in vars(instance).items() if k not in skip}


def _encode(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "biufcUS":
        arrays[path] = np.asarray(value)
        return {"scalar" if isinstance(value, np.generic) else "array": path}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if sp.issparse(value):
        matrix = sp.csr_array(value)
        for part in ("data", "indices", "indptr"):
            arrays[f"{path}.{part}"] = getattr(matrix, part)
        return {"csr": path, "shape": list(matrix.shape)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return {"named": kind, "fields": [_encode(v, f"{path}.{k}", arrays) for k, v in zip(value._fields, value)]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(v, f"{path}.{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        return {"dict": {k: _encode(v, f"{path}.{k}", arrays) for k, v in value.items()}}
    raise CannotBeSaved(
        f"{path} is a {type(value).__name__}, which has no form as arrays, so the fitted model cannot be saved for "
        "prediction; list it in the model's training_only if scores do not need it."
    )


def _decode(value: Any, arrays: Mapping[str, Array], allow: tuple[str, ...], file: Path) -> Any:
    def inner(v: Any) -> Any:
        return _decode(v, arrays, allow, file)

    if not isinstance(value, dict):
        return value
    kind = next(iter(value))
    content = value[kind]
    if kind == "float":
        return float(content)
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "dtype":
        return np.dtype(content)
    if kind == "csr":
        parts = tuple(arrays[f"{content}.{part}"] for part in ("data", "indices", "indptr"))
        return sp.csr_array(parts, shape=tuple(value["shape"]))
    if kind == "named":
        module, _, name = content.rpartition(".")
        if module.split(".")[0] not in {"zsl", *allow}:
            raise UserError(f"{file} names {content}, which is outside zsl; if you trust it, allow its package.")
        found = getattr(importlib.import_module(module), name, None)
        # Nothing else may be called because a file says so.
        if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
            raise UserError(f"{file} names {content}, which is no named tuple.")
        return found(*(inner(v) for v in value["fields"]))
    if kind == "list":
        return [inner(v) for v in content]
    if kind == "tuple":
        return tuple(inner(v) for v in content)
    return {k: inner(v) for k, v in content.items()}
