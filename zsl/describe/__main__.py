"""Class descriptions to class rows: ``zsl describe CLASSES --encoder NAME``.

CLASSES is a YAML or CSV file of class names with sentences, named attributes or both. The ``.npz`` that is written
holds ``attributes`` (C, d), ``class_names``, ``attribute_names``, ``texts`` (what was encoded), ``blocks`` (names and
widths of blocks of columns, as JSON) and ``encoder`` (the record, as JSON); ``dataset=tabular`` reads it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zsl.errors import Parser, UserError, exit_status

if TYPE_CHECKING:
    from zsl.describe.rows import ClassRows

log = logging.getLogger(__name__)

# The least and the most columns that --dimensions may set.
_DIMENSIONS = (16, 65_536)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl describe", description="Class descriptions to class rows.")
    parser.add_argument("classes", metavar="CLASSES", type=Path, help="a .yaml or .csv of class names and descriptions")
    parser.add_argument("--encoder", metavar="NAME",
                        help="tfidf, hashed, open_clip/NAME[:TAG], hf/REPOSITORY or sentence-transformers/NAME; "
                        "not needed for named attributes alone")  # fmt: skip
    parser.add_argument("--weights", metavar="FILE|FOLDER", type=Path, help="weights of the network")
    parser.add_argument("--pickled", action="store_true", help="read tensors out of a pickle, and nothing else")
    parser.add_argument("--prompts", metavar="FILE|none", help="templates, one per line, {} the name and "
                        "{description} a sentence; default: ours for photographs, where the network also reads images; "
                        "none: sentences as they are")  # fmt: skip
    parser.add_argument("--to", metavar="FILE.npz", type=Path, help="default: CLASSES with .npz; .csv has no record")
    parser.add_argument("--no-l2", dest="l2", action="store_false", help="leave the lengths of embeddings")
    parser.add_argument("--centre", action="store_true", help="subtract the mean over all classes, unseen ones too "
                        "(runs centre by themselves, by seen classes only)")  # fmt: skip
    parser.add_argument("--dimensions", type=int, metavar="N", help="columns of hashed (1024); words of tfidf at most")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="texts at once (32)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or what torch calls an accelerator, as cuda")
    # The libraries of networks tell of every step, some of them as the root logger.
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("zsl").setLevel(logging.INFO)
    return exit_status("zsl describe", lambda: _work(parser.parse_args(argv)))


def describe(
    source: Path,
    target: Path,
    name: str | None,
    *,
    weights: Path | None = None,
    pickled: bool = False,
    prompts: str | None = None,
    l2: bool = True,
    centre: bool = False,
    dimensions: int | None = None,
    batch_size: int = 32,
    device: str = "cpu",
) -> ClassRows:
    """Write the class rows of a file of descriptions, see :mod:`zsl.describe`; the parameters are those of the command.

    Parameters
    ----------
    source, target : Path
        The descriptions, and the ``.npz`` or ``.csv`` to write, which must not exist.
    name : str, optional
        The encoder; None where there are named attributes alone.

    Returns
    -------
    ClassRows

    Raises
    ------
    UserError
        For a file, an encoder or weights that cannot be used.
    """
    from zsl.describe.classes import read_descriptions
    from zsl.describe.encoders import check_name, hashed, tfidf
    from zsl.describe.networks import text_network
    from zsl.describe.prompts import PHOTOGRAPHS, read_prompts, texts_of
    from zsl.describe.rows import check_target, class_rows, no_word_in_common, same_descriptions, save

    if name is not None:
        check_name(name)
    check_target(target)
    descriptions = read_descriptions(source)
    if descriptions.has_text and name is None:
        raise UserError(f"{source} holds texts; say what encodes them, such as --encoder tfidf.")
    if not descriptions.has_text and name is not None:
        raise UserError(f"{source} holds named attributes only; leave --encoder out.")
    templates = read_prompts(Path(prompts).expanduser()) if prompts not in (None, "none") else ()
    encoder = None
    if name == "hashed":
        encoder = hashed(dimensions)
    elif name not in (None, "tfidf"):
        encoder = text_network(name, weights, pickled=pickled, device=device, batch_size=batch_size)
        templates = read_prompts(PHOTOGRAPHS) if prompts is None and encoder.prompted else templates
    texts = texts_of(descriptions, templates)
    if name == "tfidf":
        encoder = tfidf(texts, dimensions)
    rows = class_rows(descriptions, texts, encoder, prompts=templates, l2=l2, centre=centre)
    for sentence in (*same_descriptions(rows), *no_word_in_common(rows)):
        log.warning("%s", sentence)
    save(rows, target, source)
    return rows


def _work(arguments: argparse.Namespace) -> None:
    from zsl.describe.rows import summary

    _check(arguments)
    source = arguments.classes.expanduser()
    target = (arguments.to or source.with_suffix(".npz")).expanduser()
    rows = describe(
        source, target, arguments.encoder, weights=arguments.weights and arguments.weights.expanduser(),
        pickled=arguments.pickled, prompts=arguments.prompts, l2=arguments.l2, centre=arguments.centre,
        dimensions=arguments.dimensions, batch_size=arguments.batch_size, device=arguments.device,
    )  # fmt: skip
    print(f"{target}: " + "\n".join(summary(rows)))


def _check(arguments: argparse.Namespace) -> None:
    from zsl.describe.encoders import NETWORKS

    name = arguments.encoder or ""
    if (arguments.weights or arguments.pickled) and not name.startswith(NETWORKS):
        raise UserError(f"--weights and --pickled are for networks, not for --encoder {name or '(none)'}; remove them.")
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size must be at least 1, not {arguments.batch_size}.")
    if arguments.dimensions is not None:
        if name not in ("tfidf", "hashed"):
            raise UserError(f"--dimensions is for tfidf and hashed, not for --encoder {name or '(none)'}; remove it.")
        low, high = _DIMENSIONS
        if not low <= arguments.dimensions <= high:
            raise UserError(f"--dimensions must be from {low} to {high}, not {arguments.dimensions}.")


if __name__ == "__main__":
    sys.exit(main())
