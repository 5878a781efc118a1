"""Prompt templates, and the texts that they make of a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zsl.data.readers.files import read_lines
from zsl.describe.classes import Descriptions, spoken
from zsl.errors import UserError

PHOTOGRAPHS = Path(__file__).with_name("prompts.txt")
_NAME, _SENTENCE = "{}", "{description}"


def read_prompts(path: Path) -> tuple[str, ...]:
    """The templates of a file, one per line; comments begin with ``# ``.

    Raises
    ------
    UserError
        For a file without templates, and a template that has neither ``{}`` nor ``{description}``, or other braces.
    """
    found = tuple(read_lines(path))
    if not found:
        raise UserError(f"{path} holds no template; write one per line, such as: a photo of a {{}}.")
    for template in found:
        rest = template.replace(_NAME, "").replace(_SENTENCE, "")
        if rest == template or "{" in rest or "}" in rest:
            raise UserError(
                f"{path}: the template {template!r} must hold {{}} (the name) or {{description}}, and no other braces."
            )
    return found


def texts_of(descriptions: Descriptions, prompts: Sequence[str] = ()) -> list[list[str]]:
    """The texts that are encoded for each class.

    Names are put into templates, with ``_`` and ``+`` as blanks. Sentences are taken as they are, unless a template has
    a place for them. Without templates, the name is a text only where a class has no sentence.

    Parameters
    ----------
    prompts : templates with ``{}`` for the name and ``{description}`` for a sentence

    Examples
    --------
    >>> attributes = np.empty((2, 0))
    >>> two = Descriptions(("ox", "sea_lion"), (("Big.", "It pulls."), ()), (), attributes, True)
    >>> texts_of(two)
    [['Big.', 'It pulls.'], ['sea lion']]
    >>> texts_of(two, ["a photo of a {}."])
    [['a photo of a ox.', 'Big.', 'It pulls.'], ['a photo of a sea lion.']]
    >>> texts_of(two, ["{}: {description}"])
    [['ox: Big.', 'ox: It pulls.'], ['sea lion']]
    """
    with_sentence = [p for p in prompts if _SENTENCE in p]
    found = []
    for name, sentences in zip(descriptions.names, descriptions.sentences, strict=True):
        texts = [p.replace(_NAME, spoken(name)) for p in prompts if _SENTENCE not in p]
        # The sentence is put in last, since it may hold braces of its own.
        texts += [p.replace(_NAME, spoken(name)).replace(_SENTENCE, s) for p in with_sentence for s in sentences]
        texts += [] if with_sentence else sentences
        found.append(texts or [spoken(name)])
    return found
