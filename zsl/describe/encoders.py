"""Encoders of texts: word counts here, networks in :mod:`zsl.describe.networks`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, did_you_mean

log = logging.getLogger(__name__)

WORDS = ("tfidf", "hashed")
NETWORKS = ("open_clip/", "hf/", "sentence-transformers/")
# Terms that tfidf keeps at most, the commonest; long articles on many classes have hundreds of thousands.
_MOST_TERMS = 20_000
_HASHED = 1024
# Words of English that only join others. Longer lists hold words that tell classes apart (scikit-learn's: bill, fire).
_JOINING = """
an the and or but as if than then that this these those there it its they their them he his him she her
who whom whose which what where when while of in on at to from by with without for into onto about over under between is
are was were be been being has have had do does can may will so such also very often usually sometimes
"""


@dataclass(frozen=True)
class Encoder:
    """A function from texts to numbers, and what the record says about it."""

    name: str
    encode: Callable[[Sequence[str]], Array]
    """n texts -> (n, d) float"""
    pooling: str
    """How the words of a text become one vector"""
    about: dict[str, Any] = field(default_factory=dict)
    """Weights, their hash, versions of libraries"""
    terms: tuple[str, ...] = ()
    """d names of the columns, or none"""
    prompted: bool = False
    """Whether it was trained on captions of images, so that prompt templates for photographs suit it"""


def check_name(name: str) -> None:
    """Refuse the name of an encoder that does not exist."""
    if name in WORDS or any(name.startswith(kind) and name != kind for kind in NETWORKS):
        return
    forms = [*WORDS, "open_clip/NAME", "hf/REPOSITORY", "sentence-transformers/NAME"]
    hint = did_you_mean(name.partition("/")[0], [*WORDS, *(kind.rstrip("/") for kind in NETWORKS)])
    raise UserError(f"--encoder {name} does not exist{hint}; there are: {', '.join(forms)}.")


def tfidf(texts: Sequence[Sequence[str]], dimensions: int | None = None) -> Encoder:
    r"""Weights of words: a word :math:`w` has in a text :math:`t` of one of C classes

    .. math:: (1 + \ln n_{tw}) \left(1 + \ln \frac{1 + C}{1 + C_w}\right).

    :math:`n_{tw}` counts the word in the text, :math:`C_w` the classes that have it: scikit-learn's ``TfidfVectorizer``
    with ``sublinear_tf`` and a document per class. Capitals and accents do not count, and a word has two letters or
    more. Seventy English words that only join others (``the``, ``with``, ``often``) are left out; in other
    languages such words stay, and weigh least where all classes have them.

    Parameters
    ----------
    texts : C lists of texts
        The only thing that is fitted is the weight of each word, on these texts: no image and no label is needed.
    dimensions : int, optional
        The number of commonest words to keep; default 20,000.

    Raises
    ------
    UserError
        If no text has a word.
    """
    import sklearn
    from sklearn.feature_extraction.text import TfidfVectorizer

    limit = dimensions or _MOST_TERMS
    vectorizer = TfidfVectorizer(
        sublinear_tf=True, strip_accents="unicode", norm=None, max_features=limit,
        stop_words=_JOINING.split(),
    )  # fmt: skip
    try:
        vectorizer.fit(["\n".join(own) for own in texts])
    except ValueError:  # scikit-learn's sentence on an empty vocabulary speaks of its own settings
        raise UserError("--encoder tfidf: no text has a word of two letters or more; use --encoder hashed.") from None
    terms = tuple(vectorizer.get_feature_names_out().tolist())
    if len(terms) == limit:
        log.info("tfidf keeps the %d commonest words (--dimensions).", limit)

    def encode(some: Sequence[str]) -> Array:
        return vectorizer.transform(some).toarray()

    about = {
        "fitted_on": "the texts of all classes of the table, seen and unseen; no image, no label",
        "dimensions": len(terms), "versions": {"scikit-learn": sklearn.__version__},
    }  # fmt: skip
    return Encoder("tfidf", encode, "weights of words", about, terms)


def hashed(dimensions: int | None = None) -> Encoder:
    """Counts of words, pairs of words, and groups of 3 to 5 letters within words, hashed to few columns.

    Half of the columns hold the words and half the letters, each of unit length. Nothing is fitted, and a text has the
    same row in every table. Two terms may share a column; signs are by hash, so that inner products are right on
    average (Weinberger et al. 2009).

    Parameters
    ----------
    dimensions : int, optional
        Columns in all, 1024 by default; fewer make more terms share a column.
    """
    import sklearn
    from sklearn.feature_extraction.text import HashingVectorizer

    d = dimensions or _HASHED
    words, letters = (
        HashingVectorizer(n_features=n, strip_accents="unicode", **options)
        for n, options in (
            (d // 2, {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}),
            (d - d // 2, {"ngram_range": (3, 5), "analyzer": "char_wb"}),
        )
    )

    def encode(some: Sequence[str]) -> Array:
        return np.hstack([part.transform(some).toarray() for part in (words, letters)])

    about = {"dimensions": d, "versions": {"scikit-learn": sklearn.__version__}}
    return Encoder("hashed", encode, "hashed n-grams of words and of letters", about)
