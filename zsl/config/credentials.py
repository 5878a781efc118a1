"""User names and passwords in the address of a tracking store: no log, record, file or printed line shows them.

The command takes them out of ``tracking.uri`` before Hydra sees it, and keeps them in an environment variable, which
jobs in other processes inherit. :mod:`zsl.tracking.opening` alone puts them back, for the same server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from zsl.errors import UserError, atomic

VARIABLE = "ZSL_TRACKING_LOGIN"
"""The environment variable: an address with its user and password, such as ``https://USER:PASSWORD@HOST``"""

_LOGIN = re.compile(r"(\b[\w+.-]+://)([^\s'\"]*@)")
_SECRET = re.compile(r"([?&][^=&\s'\"]*(?:pass|pwd|token|secret|key|credential)[^=&\s'\"]*=)[^&\s'\"]+", re.I)


def masked(text: str) -> str:
    """Text with the logins and secrets of addresses left out.

    Examples
    --------
    >>> masked("no answer from http://me:word@host:5000/x?token=abc")
    'no answer from http://host:5000/x?token=...'
    """
    return _SECRET.sub(r"\1...", _LOGIN.sub(r"\1", text))


def taken(uri: str) -> str:
    """The address of a store without its login, which is kept for :func:`completed`.

    Raises
    ------
    UserError
        If a parameter of the address is a secret, which cannot be kept apart.
    """
    secret = _SECRET.search(uri)
    if secret:
        raise UserError(
            f"tracking.uri holds a secret ({secret[1][1:]}...), which records would show; set "
            "MLFLOW_TRACKING_TOKEN, or write USER:PASSWORD@HOST, which zsl keeps apart."
        )
    login = _LOGIN.search(uri)
    if (login and re.search("[/?#]", login[2])) or ("#" in uri and not uri.strip("'\"").startswith("sqlite:")):
        raise UserError(
            "tracking.uri has /, ? or # before its @, or a #, so that a password cannot be told from the rest; write "
            "%2F for /, %3F for ? and %23 for # in the password."
        )
    if login:
        os.environ[VARIABLE] = re.match(r"[^'\"]*", uri[login.start() :])[0]  # type: ignore[index]
    return _LOGIN.sub(r"\1", uri)


def completed(uri: str) -> str:
    """The address with the login that :func:`taken` kept, if that was for the same server.

    Examples
    --------
    >>> taken("mysql://me:word@host/runs"), completed("mysql://host/runs"), completed("mysql://other/runs")
    ('mysql://host/runs', 'mysql://me:word@host/runs', 'mysql://other/runs')
    """
    known, wanted = urlsplit(os.environ.get(VARIABLE, "")), urlsplit(uri)
    login, _, server = known.netloc.rpartition("@")
    if not login or (known.scheme, server) != (wanted.scheme, wanted.netloc):
        return uri
    return wanted._replace(netloc=known.netloc).geturl()


def taken_from(argv: Iterable[str]) -> list[str]:
    """The arguments of a command without the login in ``tracking.uri=...``."""
    found = []
    for argument in argv:
        key, equals, value = argument.partition("=")
        found.append(key + equals + taken(value) if key.lstrip("+") == "tracking.uri" else argument)
    return found


def mask_files(folder: Path) -> None:
    """Remove logins from the YAML files that Hydra wrote into a folder; they come from a configuration file."""
    for path in (*folder.glob("*.yaml"), *folder.glob(".hydra/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if masked(text) != text:
            with atomic(path) as part:
                part.write_text(masked(text), encoding="utf-8")
