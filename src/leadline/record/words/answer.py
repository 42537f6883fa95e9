"""What a record answers: how signal and gradient travel through depth, and what a run has learned.

Does anything vanish, explode, jump, become equal, or stop being finite, and where? Sentences are
made from the quantities that lead their topics. The norm of the first token is not stored by
itself. It follows from two means: with N tokens in E examples,
N mean = E first + (N - E) mean_without_first, where `first` is the mean over the first tokens of
the examples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.provenance import number_at
from leadline.record.run.curve import curves_of
from leadline.record.run.ending import ending_of, ending_text
from leadline.record.run.training import VALIDATION_LOSS
from leadline.record.words.numbers import format_number
from leadline.record.words.shape import course_of
from leadline.record.words.summary import cotangent_text, leading_lines, leading_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.record.record import Record
    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import Quantity
    from leadline.record.run.curve import Curve
    from leadline.record.words.shape import Course

__all__ = [
    "EQUAL",
    "FAR",
    "LEARNED",
    "answer",
    "depth_sentences",
    "first_token_ratio",
    "loss_curve",
    "opening",
    "outcome_of",
    "run_answer",
]

FAR = 100.0
"""From this factor on a signal or a gradient vanishes or explodes. Gradients of pre-norm models
with 96 layers, which train, grow about 11-fold before training; those of models that do not train
for this reason change by 10^6 and more. Two orders of magnitude lie between both."""
EQUAL = 0.1
"""Tokens count as equal below this share of their size in which they differ: cosines of 0.99."""
MASSIVE = 10.0
"""From this ratio to the median of the others on, the first token counts as massive."""
LEARNED = 0.3
"""A run has learned from so many nats below the unigram entropy on: chance differences between
runs that only know the frequencies of the symbols are a few hundredths of a nat."""
ROBUST = "median_without_first"
BACKWARD = ("gradient",)
"""The topics whose lines are followed from the last layer to the first."""


def answer(record: Record) -> list[str]:
    """Say in a few sentences what a record answers; nothing where it holds no line and no run."""
    return [*run_answer(record), *depth_sentences(record)]


def depth_sentences(record: Record) -> list[str]:
    """Say how signal and gradient travel through depth; what is wrong comes first."""
    if not record.stacks:
        return []
    heavy = first_token_sentence(record)
    told: list[str] = []
    steady: dict[str, bool] = {}
    for topic, noun in (("gradient", "gradient"), ("stream", "signal")):
        statistic = ROBUST if heavy and topic == "stream" else ""
        lines = leading_lines(record, topic, statistic)
        courses = [course_of(line, backward=topic in BACKWARD) for line in lines]
        known = [(line, course) for line, course in zip(lines, courses, strict=True) if course]
        if not known:
            continue
        steady[noun] = all(course.size < FAR for _, course in known)
        told.append(_travel(record, topic, known, without_first=bool(statistic)))
    tokens, apart = _tokens(record)
    calm = steady and all(steady.values()) and apart is not False
    lines_of_text = [
        cotangent_text(record),
        _not_finite(record),
        _nothing_wrong(list(steady), apart) if calm and not _lost(record) else "",
        *sorted(told, key=lambda sentence: ": " not in sentence),  # a verdict stands before a colon
        tokens,
        heavy,
    ]
    return [sentence for sentence in lines_of_text if sentence]


def run_answer(record: Record) -> list[str]:
    """Say whether a training run has learned, and how it ended; nothing without a run."""
    curve = loss_curve(record)
    if curve is None:
        return []
    ending = ending_of(record)
    if ending is not None and ending.diverged:
        read = (
            f"The last validation loss, {format_number(curve.last, digits=3)} nats, was read before, "
            f"at step {curve.steps[-1]}."
        )
        return [ending.sentence, *([read] if math.isfinite(curve.last) else [])]
    if not math.isfinite(curve.last):
        return [f"The validation loss is not a number at step {curve.steps[-1]}: the run diverged."]
    steps = curve.steps[-1] if ending is None else ending.steps
    first, last = (format_number(value, digits=3) for value in (curve.first, curve.last))
    sentence = f"The validation loss went from {first} to {last} nats in {steps} steps"
    unigram = number_at(record.provenance, "task", "unigram")
    if unigram is not None:
        below = unigram - curve.last
        side = "below" if below >= 0 else "above"
        apart = format_number(abs(below), digits=3)
        sentence = f"{_learned(below)}: {sentence[:1].lower()}{sentence[1:]}"
        sentence += f", {apart} {side} the unigram entropy of its task"
    finished = ending is not None and ending.status == "finished"
    ended = "" if finished else ending_text(record.provenance)
    return [f"{sentence}.", *([ended] if ended else [])]


def loss_curve(record: Record) -> Curve | None:
    """Return the validation loss of a record that holds one run."""
    if VALIDATION_LOSS.name not in record.quantities or len(record.runs) != 1:
        return None
    return next(iter(curves_of(record, VALIDATION_LOSS.name)), None)


def opening(title: str) -> str:
    """Return a title as the subject of a sentence."""
    return f"the {title[:1].lower()}{title[1:]}"


def outcome_of(course: Course, topic: str) -> str:
    """Say in two words that a line vanishes or explodes; empty where it does neither."""
    if course.size < FAR:
        return ""
    noun = "gradients" if topic == "gradient" else "the signal"
    plural = topic == "gradient"
    verb = "vanish" if course.shrinks else "explode"
    return f"{noun} {verb if plural else f'{verb}es' if verb == 'vanish' else f'{verb}s'}"


def first_token_ratio(record: Record) -> Profile | None:
    """Return the norm of the first token over the median norm of the others, by layer."""
    tokens = number_at(record.provenance, "input", "tokens")
    examples = number_at(record.provenance, "input", "examples")
    quantity = leading_quantity(record, "stream")
    if not tokens or not examples or examples >= tokens or len(record.stacks) != 1 or not quantity:
        return None
    lines = {profile.statistic: profile for profile in record.profiles(quantity.name)}
    wanted = ("mean", "mean_without_first", ROBUST)
    if any(one not in lines for one in wanted):
        return None
    mean, others, median = (lines[one] for one in wanted)
    if not mean.layers == others.layers == median.layers:
        return None
    with np.errstate(all="ignore"):
        first = (tokens * mean.values - (tokens - examples) * others.values) / examples
        ratio = first / median.values
    return type(mean)(
        quantity="first token over median",
        statistic="value",
        stack=mean.stack,
        point=mean.point,
        sublayer=None,
        layers=mean.layers,
        values=ratio,
    )


def first_token_sentence(record: Record) -> str:
    """Say where the first token is massive; empty where it is nowhere."""
    ratio = first_token_ratio(record)
    if ratio is None:
        return ""
    finite = {
        layer: float(value)
        for layer, value in zip(ratio.layers, ratio.values, strict=True)
        if math.isfinite(value)
    }
    heavy = [layer for layer, value in finite.items() if value >= MASSIVE]
    if not heavy:
        return ""
    if len(heavy) == 1:
        where = f"at layer {heavy[0]}"
    elif heavy[-1] == ratio.layers[-1]:
        where = f"from layer {heavy[0]} on"
    else:
        where = f"between layers {heavy[0]} and {heavy[-1]}"
    peak = f"{float(f'{max(finite.values()):.2g}'):g}"
    return f"The first token carries up to {peak} times the median norm of the others {where}."


def _travel(
    record: Record, topic: str, known: Sequence[tuple[Profile, Course]], *, without_first: bool
) -> str:
    """Say how the line of a topic travels, in each stack."""
    quantity = leading_quantity(record, topic)
    assert quantity is not None
    subject = opening(quantity.title) + (
        " (median without the first token)" if without_first else ""
    )
    several = len(known) > 1
    told = [
        f"in the {line.stack} {subject if at == 0 else 'it'} {course.words}"
        if several
        else f"{subject} {course.words}"
        for at, (line, course) in enumerate(known)
    ]
    verdicts = dict.fromkeys(outcome_of(course, topic) for _, course in known)
    verdict = " and ".join(word for word in verdicts if word)
    sentence = f"{verdict}: {'; '.join(told)}." if verdict else f"{'; '.join(told)}."
    return sentence[:1].upper() + sentence[1:]


def _tokens(record: Record) -> tuple[str, bool | None]:
    """Say where tokens become equal, and whether they stay apart; None where nobody knows."""
    quantity = leading_quantity(record, "tokens")
    lines = leading_lines(record, "tokens")
    told: list[str] = []
    known = False
    for line in lines:
        apart = None if quantity is None else _apartness(quantity, line)
        if quantity is None or apart is None:
            continue
        known = True
        # What becomes equal stays so up to the last layer; a dip on the way is none.
        unequal = np.flatnonzero(~(apart < EQUAL))
        start = int(unequal[-1]) + 1 if len(unequal) else 0
        if start < len(apart):
            place = f"in the {line.stack} " if len(lines) > 1 else ""
            value = format_number(float(line.values[start]), digits=2)
            told.append(
                f"Tokens become equal: {place}{opening(quantity.title)} is {value} at layer "
                f"{line.layers[start]} and stays there or beyond."
            )
    return " ".join(told), not told if known else None


def _apartness(quantity: Quantity, line: Profile) -> NDArray[np.float64] | None:
    """Return the share of their size in which tokens differ; None of a quantity that is no share.

    A quantity that is better high is such a share. One that is better low is a cosine c between
    tokens, and tokens of one size then differ from their mean in a share of sqrt(1 - c).
    """
    values = line.values[np.isfinite(line.values)]
    if quantity.better not in ("high", "low") or bool(np.any(values > 1 + 1e-6)):
        return None
    if quantity.better == "high":
        return None if bool(np.any(values < 0)) else line.values
    return np.sqrt(np.clip(1 - line.values, 0, None))


def _not_finite(record: Record) -> str:
    """Say where values are not finite, the first layer and its quantity."""
    where = _lost(record)
    if not where:
        return ""
    first = min(where, key=lambda title: where[title])
    more = f" and {len(where) - 1} other quantities" if len(where) > 2 else ""
    return f"Values that are not finite appear from layer {where[first]} on ({first}{more})."


def _lost(record: Record) -> dict[str, int]:
    """Return the first layer without a finite value, by the title of the quantity."""
    where: dict[str, int] = {}
    for name, quantity in record.quantities.items():
        if quantity.over == "step":
            continue
        for profile in record.profiles(name):
            bad = np.flatnonzero(~np.isfinite(profile.values))
            if len(bad):
                layer = profile.layers[int(bad[0])]
                where[quantity.title] = min(layer, where.get(quantity.title, layer))
    return where


def _nothing_wrong(nouns: list[str], apart: bool | None) -> str:
    tokens = ", and tokens stay apart" if apart else ""
    if len(nouns) == 2:
        return f"Neither signal nor gradient vanishes or explodes{tokens}."
    return f"The {nouns[0]} neither vanishes nor explodes{tokens}."


def _learned(below: float) -> str:
    if below >= LEARNED:
        return "The model has learned"
    return "The model has learned no more than how frequent the symbols are"
