"""The configuration: where it lies, composing it, and building the objects that it names.

Nothing heavy is imported here, so that ``--help`` answers at once; :mod:`zsl.config.objects` builds objects.
"""

from zsl.config.argv import ESTIMATE, check_flags, normalise_argv, quote_options
from zsl.config.bounds import check_own_files
from zsl.config.composition import MOVED, check_nodes, compose, explain, is_sweep, n_values, resolve, swept_values
from zsl.config.manual import asked_for, manual
from zsl.config.registry import (
    DATA,
    OF_A_MODEL,
    PLACES,
    TUNABLE,
    conf_dir,
    groups,
    inference_arguments,
    inference_preset,
    options,
    without_package,
)
from zsl.config.trust import check_allowed

__all__ = [
    "DATA",
    "ESTIMATE",
    "MOVED",
    "OF_A_MODEL",
    "PLACES",
    "TUNABLE",
    "asked_for",
    "check_allowed",
    "check_flags",
    "check_nodes",
    "check_own_files",
    "compose",
    "conf_dir",
    "explain",
    "groups",
    "inference_arguments",
    "inference_preset",
    "is_sweep",
    "manual",
    "n_values",
    "normalise_argv",
    "options",
    "quote_options",
    "resolve",
    "swept_values",
    "without_package",
]
