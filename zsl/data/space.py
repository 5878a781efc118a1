"""Whether images and classes were embedded by one network, for models that compare both."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from zsl.errors import UserError

log = logging.getLogger(__name__)


def check_one_space(model: Any, provenance: Mapping[str, Any], n_features: int, n_attributes: int) -> None:
    """Refuse embeddings of different networks for a model that compares images with classes in one space.

    Parameters
    ----------
    model : estimator or its class
        Only models that say ``one_space`` are checked.
    provenance : mapping
        It has the record ``network`` of what embedded the images (:mod:`zsl.extract`), and the record ``encoder`` of
        what embedded the classes (:mod:`zsl.describe`), if these made the data.
    n_features, n_attributes : int
        The numbers of columns of images and of classes.

    Raises
    ------
    UserError
        If the records name different networks, or something that shares no space. A record that is missing costs a
        warning.
    """
    if not getattr(model, "one_space", False):
        return
    if isinstance(provenance.get("network"), list):
        raise UserError("features of several networks have no common space with texts; name one network, feature=NAME.")
    images, texts = (record(provenance.get(key)) for key in ("network", "encoder"))
    if texts.get("centred"):
        raise UserError(
            "the classes were described with --centre, which subtracts a mean over unseen classes too; describe them "
            "again without it."
        )
    if texts.get("name") and not texts.get("sha256"):
        raise UserError(
            f"the classes were described by {texts['name']}, which has no space in common with images; describe them "
            "again with the network of the images."
        )
    if images.get("pool", "own") != "own":
        raise UserError(
            f"the images were embedded with --pool {images['pool']}, and only a network's own output shares a space "
            "with texts; extract them again with --pool own."
        )
    if n_features != n_attributes:
        raise UserError(
            f"images have {n_features} features and classes {n_attributes} attributes, so they are not of one space; "
            "describe the classes by sentences alone, with the network of the images."
        )
    if not (images.get("sha256") and texts.get("sha256")):
        which = "the images" if not images.get("sha256") else "the classes"
        log.warning(
            "nothing says which network embedded %s, so zsl cannot tell whether images and classes are of one space, "
            "as this model needs; zsl extract and zsl describe write it into their files.", which,
        )  # fmt: skip
    elif images["sha256"] != texts["sha256"]:
        raise UserError(
            f"the images were embedded by {images.get('name')} (weights {images['sha256']}) and the classes by "
            f"{texts.get('name')} (weights {texts['sha256']}), so they are not of one space; describe the classes "
            "again with the network of the images."
        )


def record(text: Any) -> dict[str, Any]:
    """The record of a network or an encoder from its text, whoever wrote it; empty where there is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"description": found} if found else {}
