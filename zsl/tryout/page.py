"""The page that ``zsl try`` writes: one HTML file with small copies of the images in it."""

from __future__ import annotations

import base64
import html
import io
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.errors import reason
from zsl.extract.pixels import open_image
from zsl.tryout.choice import Chosen
from zsl.tryout.evidence import Answers, nearest_described, nearest_seen, telling_attributes

# The side in pixels of the small copies, and how many are shown.
_SIDE = 144
_OF_A_CLASS, _LEAST_CERTAIN = 12, 24


@dataclass
class Story:
    """Everything that the page tells."""

    photos: Path
    data: ZeroShotData
    """Before pre-processing, with the images to be recognised as test images"""
    classifier: ZeroShotClassifier
    answers: Answers
    chosen: Chosen
    texts: Mapping[str, str]
    """By class: the description"""
    network: str
    encoder: str
    run: Path
    """The run's folder"""
    skipped: Sequence[str] = ()
    """Images that could not be read"""
    notices: Sequence[str] = ()
    """What is odd about the descriptions, a sentence each"""
    flags: str = ""
    """What ``zsl predict`` needs besides, to read images by the same network"""


def page(story: Story) -> str:
    """The page as HTML; it needs no other file and no network."""
    parts = [_summary(story), *(_of_class(story, m) for m in range(len(story.data.unseen))), _least_certain(story),
             _how_to_go_on(story)]  # fmt: skip
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=_text(f"zsl try {story.photos.name}"), body="\n".join(parts))


def expectation(chosen: Chosen) -> str:
    """What accuracy may be expected, in a sentence or two."""
    if not len(chosen.expected):
        return (
            "How often the answers are right is unknown: with so few kinds that have photographs, none can be held out "
            "to find out."
        )
    mean = chosen.expected.mean()
    spread = chosen.expected.std(ddof=1)
    return (
        f"On average over kinds with photographs that were held out, {chosen.n_held} at a time, {100 * mean:.0f} of "
        f"100 answers were right (standard deviation {100 * spread:.0f} over {len(chosen.expected)} draws of kinds); "
        f"guessing is right for {100 / chosen.n_held:.0f}."
    )


def _summary(story: Story) -> str:
    data, chosen = story.data, story.chosen
    n_images = len(data.X_unseen)
    n_unseen, left_out = len(data.unseen), f"Left out, because they cannot be read: {', '.join(story.skipped)}."
    other = (
        ""
        if not chosen.n_held or chosen.n_held == n_unseen
        else f" Among the {n_unseen} kinds here, guessing is right for {100 / n_unseen:.0f} of 100, so that "
        f"{'fewer' if n_unseen > chosen.n_held else 'more'} answers may be right."
    )
    ties = int((story.answers.margin <= 0).sum())
    tied = f"For {ties} of the {n_images} images several kinds have the same score, so that their answer says nothing."
    notices = [*story.notices, *([tied] if ties else []), *([left_out] if story.skipped else [])]
    return f"""<h1>{n_images} images, recognised among {n_unseen} kinds without photographs</h1>
<p>The method learned from {len(data.X)} of the photographs of {len(data.seen)} kinds in {_text(str(story.photos))} (a
fifth of each kind is kept for tests), and from the descriptions of all {len(data.seen) + n_unseen} kinds. Every answer
below is one of the {n_unseen} kinds that are described but have no photographs, even where an image shows something
else.</p>
<p><b>{expectation(chosen)}</b>{other} Nothing is known of images that are unlike the photographs.</p>
{"".join(f"<p>{_text(sentence[0].upper() + sentence[1:])}</p>" for sentence in notices)}
{_compared(chosen)}
<p class=quiet>Images were read by {_text(story.network)}. {_described(story.encoder)}</p>"""


def _compared(chosen: Chosen) -> str:
    """The methods with their accuracy on held-out kinds, and how one was chosen."""
    best = _text(chosen.methods[chosen.best].title)
    if not chosen.n_held:
        return f"<p>The method is {best}; with so few kinds, methods could not be compared.</p>"
    rows = "".join(
        f"<tr><td>{f'<b>{best}</b> (chosen)' if i == chosen.best else _text(method.title)}</td>"
        f"<td class=number>{_percent(chosen.accuracy[i])}</td></tr>"
        for i, method in enumerate(chosen.methods)
    )
    return f"""<table><tr><th>method</th><th>accuracy on held-out kinds</th></tr>{rows}</table>
<p class=quiet>± is the standard deviation over draws of kinds. The method highest in this table whose accuracy is
within one standard error of the best was chosen; the standard error is that of the difference, draw by draw. For the
sentence in bold, each draw was tested with the method that the other draws choose.</p>"""


def _described(encoder: str) -> str:
    return f"Descriptions were read by {_text(encoder)}." if encoder else "Kinds were described by their attributes."


def _percent(accuracy: Array) -> str:
    return f"{100 * accuracy.mean():.0f} ± {100 * accuracy.std(ddof=1):.0f} %" if len(accuracy) > 1 else (
        f"{100 * accuracy.mean():.0f} %")  # fmt: skip


def _of_class(story: Story, m: int) -> str:
    name = story.data.class_names[story.data.unseen[m]]
    n = int((story.answers.best == m).sum())
    shown = story.answers.most_certain(m, _OF_A_CLASS)
    X = story.data.X_unseen[shown]
    attributes = telling_attributes(story.classifier, X, m)
    lines = [
        f"<p>{_text(story.texts.get(name, ''))}</p>",
        f"<p class=quiet>{n} image{'s' * (n != 1)} {'is' if n == 1 else 'are'} called {_text(name)}"
        f"{'; the most certain are shown.' if n > len(shown) else '.'}</p>",
    ]
    if attributes:
        lines.append(f"<p class=quiet>What speaks most for it: {_text(', '.join(attributes))}.</p>")
    lines.append(
        f"<p class=quiet>Kinds with photographs whose description is nearest: "
        f"{_near(nearest_described(story.classifier, m))}.</p>"
    )
    if len(shown):
        lines.append(
            f"<p class=quiet>Kinds with photographs that the shown images look most like: "
            f"{_near(nearest_seen(story.classifier, story.data, X))}.</p>"
        )
    images = _images(story, shown, lambda i: f"second: {_name(story, int(story.answers.second[i]))}")
    return f"<section><h2>{_text(name)}</h2>{''.join(lines)}{images}</section>"


def _least_certain(story: Story) -> str:
    rows = story.answers.least_certain(_LEAST_CERTAIN)
    images = _images(
        story,
        rows,
        lambda i: f"{_name(story, int(story.answers.best[i]))} or {_name(story, int(story.answers.second[i]))}",
    )
    return (
        "<section><h2>The least certain images</h2><p class=quiet>Their first two kinds have nearly the same score. "
        f"Look here first for images that show none of the kinds.</p>{images}</section>"
    )


def _how_to_go_on(story: Story) -> str:
    run = _text(shlex.quote(str(story.run)))
    return f"""<section><h2>How to go on</h2>
<p>All answers are in <code>{_text(str(story.run))}/predictions.csv</code>, a line per image. These commands go on from
here:</p>
<table>
<tr><td><code>zsl ask {run} --images {_text(shlex.quote(str(story.photos)))}</code></td>
<td>asks for the names of a few typical images, and answers again</td></tr>
<tr><td><code>zsl predict {run} FOLDER{_text(story.flags)}</code></td><td>recognises other images</td></tr>
</table></section>"""


def _name(story: Story, m: int) -> str:
    return _text(story.data.class_names[story.data.unseen[m]])


def _images(story: Story, rows: Array, caption: Callable[[int], str]) -> str:
    figures = []
    for i in rows:
        file = story.data.names_unseen[i]
        figures.append(f'<figure><img src="{_small(story.photos / file)}" alt="{_text(file)}">{caption(i)}</figure>')
    return f"<div class=images>{''.join(figures)}</div>"


def _near(named: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{_text(name)} ({value:.2f})" for name, value in named)


def _small(path: Path) -> str:
    """A small copy of an image as a data URI; an empty one where the image cannot be read any more."""
    try:
        image = open_image(path)
        image.thumbnail((_SIDE, _SIDE))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=80)
    except Exception as error:  # Pillow raises all kinds; a page without one image is better than none
        return f"data:,{html.escape(reason(error))[:40]}"
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def _text(text: str) -> str:
    return html.escape(text)
