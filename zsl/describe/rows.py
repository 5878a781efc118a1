"""Class rows: texts encoded, one row per class, beside named attributes; their file, and what is printed about them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import file_hash
from zsl.data.readers.tables import write_class_csv
from zsl.describe.classes import Descriptions
from zsl.describe.encoders import Encoder
from zsl.errors import UserError, atomic, writing
from zsl.linalg import unit_rows

log = logging.getLogger(__name__)

# Classes whose heaviest words are shown.
_SHOWN = 5
# Rows of the table of cosines that are computed at once, so that memory does not grow with the square of the classes.
_BLOCK = 512


@dataclass(frozen=True)
class ClassRows:
    """What ``zsl describe`` writes, for C classes."""

    class_names: tuple[str, ...]
    attributes: Array
    """(C, q + d) float64: named attributes (NaN is unknown), then the rows of texts"""
    attribute_names: tuple[str, ...]
    blocks: tuple[tuple[str, int], ...]
    """Names and widths of the blocks of columns: ``attributes``, ``text``"""
    texts: tuple[tuple[str, ...], ...]
    """The texts that were encoded of each class"""
    encoder: dict[str, Any] = field(default_factory=dict)
    """The record: the encoder, its weights, prompts and settings; empty without texts"""

    @property
    def text_rows(self) -> Array:
        """(C, d) the columns that come from texts; d is 0 without an encoder."""
        return self.attributes[:, len(self.attribute_names) - dict(self.blocks).get("text", 0) :]


def class_rows(
    descriptions: Descriptions, texts: Sequence[Sequence[str]], encoder: Encoder | None, *,
    prompts: Sequence[str] = (), l2: bool = True, centre: bool = False,
) -> ClassRows:  # fmt: skip
    r"""One row per class: the mean of its texts' embeddings, each of unit length, brought to unit length again.

    .. math:: z_c = \bar z_c / \|\bar z_c\|, \qquad \bar z_c = \frac{1}{n_c} \sum_i e(t_{ci}) / \|e(t_{ci})\|

    as CLIP averages prompts (Radford et al. 2021).

    Parameters
    ----------
    texts : C lists of texts, from :func:`zsl.describe.prompts.texts_of`
    encoder : Encoder, optional
        None where there are named attributes only.
    prompts : what ``texts`` were made with, for the record
    l2 : bool
        Without it, ``z_c`` is the plain mean of the embeddings.
    centre : bool
        Whether the mean over all classes of the table, unseen ones included, is subtracted at the end. Runs centre by
        themselves (``dataset.semantics.centre``), by the seen classes only.

    Raises
    ------
    UserError
        If a class has a row of zeros: no word of its texts is known.
    """
    found: Array = np.zeros((len(texts), 0))
    names: tuple[str, ...] = ()
    record: dict[str, Any] = {}
    if encoder is not None:
        flat = list(dict.fromkeys(text for own in texts for text in own))
        place = {text: i for i, text in enumerate(flat)}
        rows = np.asarray(encoder.encode(flat), dtype=np.float64)
        rows = unit_rows(rows) if l2 else rows
        # Texts in one order, so that the order in which a user writes them does not count, not even in the last digit.
        found = np.array([rows[[place[t] for t in sorted(own)]].mean(axis=0) for own in texts])
        _check_rows(found, descriptions.names, encoder.name)
        found = unit_rows(found) if l2 else found
        found = found - found.mean(axis=0) if centre else found
        names = encoder.terms or tuple(f"{encoder.name}:{i}" for i in range(found.shape[1]))
        record = {
            "name": encoder.name, **encoder.about, "prompts": list(prompts), "pooling": encoder.pooling,
            "l2": l2, "centred": centre,
        }  # fmt: skip
    q = len(descriptions.attribute_names)
    blocks = tuple((name, size) for name, size in (("attributes", q), ("text", found.shape[1])) if size)
    if q and encoder is not None and set(descriptions.attribute_names) & set(names):
        names = tuple(f"{encoder.name}:{name}" for name in names)  # an attribute "stripes" beside the word
    return ClassRows(
        descriptions.names, np.hstack([descriptions.attributes, found]), (*descriptions.attribute_names, *names),
        blocks, tuple(tuple(own) for own in texts) if encoder is not None else (), record,
    )  # fmt: skip


def _check_rows(rows: Array, names: Sequence[str], encoder: str) -> None:
    bad = ~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1)
    if bad.any():
        raise UserError(
            f"--encoder {encoder}: nothing is left of the texts of the class {names[int(bad.argmax())]!r}; write words "
            "that the encoder knows (tfidf: of two letters or more, other than the, and, of, ...)."
        )


def same_descriptions(rows: ClassRows) -> list[str]:
    """A sentence for each class whose texts and attributes are those of an earlier one; capitals do not count."""
    first: dict[Any, str] = {}
    found = []
    q = dict(rows.blocks).get("attributes", 0)
    for i, name in enumerate(rows.class_names):
        own = sorted(" ".join(text.casefold().split()) for text in rows.texts[i]) if rows.texts else []
        other = first.setdefault((tuple(own), (rows.attributes[i, :q] + 0.0).tobytes()), name)
        if other != name:
            found.append(f"the classes {other!r} and {name!r} have the same description, so both get the same scores.")
    return found


def no_word_in_common(rows: ClassRows) -> list[str]:
    """A sentence where tfidf can carry nothing from one class to another, because no word occurs in two classes."""
    text = rows.text_rows
    if rows.encoder.get("name") != "tfidf" or (np.count_nonzero(text, axis=0) > 1).any():
        return []
    return [
        "no word occurs in the descriptions of two classes, so that they say nothing of each other; use the same words "
        "for the same things, or an encoder that knows words of like meaning (sentence-transformers/NAME)."
    ]


def save(rows: ClassRows, target: Path, source: Path) -> None:
    """Write class rows as ``.npz``, or as ``.csv``, which has no room for the record.

    Raises
    ------
    UserError
        For several blocks in a ``.csv``, and a place that cannot be written.
    """
    if target.suffix == ".csv" and len(rows.blocks) > 1:
        raise UserError(f"--to {target}: a .csv keeps no blocks of columns (attributes, text); write .npz.")
    with writing(target, "choose another place with --to"), atomic(target) as part:
        if target.suffix == ".csv":
            write_class_csv(part, rows.class_names, rows.attribute_names, rows.attributes)
            log.info("%s does not say which encoder made it; .npz does.", target)
            return
        record = {**rows.encoder, "descriptions": {"file": source.name, "sha256": file_hash(source)[:16]}}
        np.savez(
            part, attributes=rows.attributes, class_names=np.array(rows.class_names, dtype=str),
            attribute_names=np.array(rows.attribute_names, dtype=str), blocks=np.array(json.dumps(rows.blocks)),
            texts=np.array(["\n".join(own) for own in rows.texts] or [""] * len(rows.class_names), dtype=str),
            encoder=np.array(json.dumps(record)),
        )  # fmt: skip


def check_target(target: Path) -> None:
    """Refuse a target of another suffix, or one that exists."""
    if target.suffix not in {".npz", ".csv"}:
        raise UserError(f"--to {target}: the name must end in .npz or .csv.")
    if target.exists():
        raise UserError(f"{target} exists already and is not overwritten; remove it or choose another name.")


def most_similar(rows: Array, n: int = 2) -> list[tuple[int, int, float]]:
    """The n pairs of rows (C, d) with the largest cosine, and it, largest first.

    Examples
    --------
    >>> most_similar(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), 1)
    [(0, 2, 1.0)]
    """
    unit = unit_rows(rows)
    found: list[tuple[int, int, float]] = []
    for start in range(0, len(unit), _BLOCK):
        cosines = unit[start : start + _BLOCK] @ unit.T
        i, j = np.nonzero(np.arange(len(unit)) > np.arange(start, start + len(cosines))[:, None])
        best = np.argsort(-cosines[i, j], kind="stable")[:n]
        found += [(int(i[k]) + start, int(j[k]), float(cosines[i[k], j[k]])) for k in best]
    return sorted(found, key=lambda pair: -pair[2])[:n]


def summary(rows: ClassRows) -> list[str]:
    """Lines for the terminal: counts, the most similar pairs of classes, and the heaviest words of tfidf."""
    names = rows.class_names
    blocks = ", ".join(f"{size} of {name}" for name, size in rows.blocks)
    n_texts = sum(len(own) for own in rows.texts)
    lines = [f"{len(names)} classes, {n_texts} texts, {rows.attributes.shape[1]} columns ({blocks})"]
    text = rows.text_rows
    compared, what = (text, "text") if text.size else (np.nan_to_num(rows.attributes), "attributes")
    for i, j, cosine in most_similar(compared):
        lines.append(f"most similar by {what}: {names[i]} and {names[j]}, cosine {cosine:.3f}")
    if rows.encoder.get("name") == "tfidf":
        terms = rows.attribute_names[-text.shape[1] :]
        for name, row in list(zip(names, text))[:_SHOWN]:
            heaviest = np.argsort(-row, kind="stable")[:3]
            lines.append(f"  {name}: {', '.join(terms[k] for k in heaviest if row[k] > 0)}")
    return lines
