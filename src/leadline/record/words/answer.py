"""What a record answers: how signal and gradient travel through depth, and what a run has learned.

Does anything vanish, explode, jump, become equal, or stop being finite, and where? Sentences are
made from the quantities that lead their topics. The norm of the first token is not stored by
itself. It follows from two means: with N tokens in E examples,
N mean = E first + (N - E) mean_without_first, where `first` is the mean over the first tokens of
the examples.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.provenance import number_at
from leadline.record.run.curve import curves_of
from leadline.record.run.ending import ending_of, ending_text
from leadline.record.run.training import GAUGES, VALIDATION_LOSS
from leadline.record.words.numbers import format_number
from leadline.record.words.places import places_text
from leadline.record.words.shape import FAR, STEADY, course_of
from leadline.record.words.summary import cotangent_text, leading_lines, leading_quantity
from leadline.record.words.unfinished import unfinished_sentence

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

EQUAL = 0.1
"""Tokens count as nearly equal below this share of their size in which they differ: cosines above
0.99."""
MASSIVE = 10.0
"""From this ratio to the median of the others on, the first token counts as massive."""
LEARNED = 0.3
"""A run has learned from so many nats below the unigram entropy on: chance differences between
runs that only know the frequencies of the symbols are a few hundredths of a nat."""
MOVED = 0.1
"""A cosine that a run changes by less than this is not told."""
ROBUST = "median_without_first"
PARTIAL = "jacobian.partial"
"""What becomes of a random gradient between the end of the stack and a site: it tells how gradients
travel where none was measured."""
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
        robust = bool(heavy) and topic == "stream"
        subject, lines = _telling_lines(record, topic, ROBUST if robust else "")
        courses = [course_of(line, backward=topic in BACKWARD) for line in lines]
        known = [(line, course) for line, course in zip(lines, courses, strict=True) if course]
        if not known:
            continue
        steady[noun] = all(course.size < FAR and course.is_sound for _, course in known)
        told.append(_travel(subject, topic, known))
    tokens, apart = _tokens(record)
    calm = steady and all(steady.values()) and apart is not False
    lines_of_text = [
        unfinished_sentence(record),
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
    return [] if curve is None else [*_loss_sentences(record, curve), *_gauge_sentences(record)]


def _loss_sentences(record: Record, curve: Curve) -> list[str]:
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


def _gauge_sentences(record: Record) -> list[str]:
    """Say which gauges of a run moved between their first and their last reading."""
    told: list[str] = []
    for gauge in GAUGES:
        curve = next(iter(curves_of(record, gauge.name)), None) if gauge.name in record else None
        if curve is None or len(curve) < 2:
            continue
        first, last = curve.first, curve.last
        if gauge.scale == "log":
            still = 0 < first < math.inf and first / STEADY < last < first * STEADY
        else:
            still = abs(last - first) < MOVED
        if not still:
            ends = " to ".join(format_number(value, digits=3) for value in (first, last))
            steps = f"between steps {curve.steps[0]} and {curve.steps[-1]}"
            told.append(f"{opening(gauge.title)} from {ends} {steps}")
    return [f"Gauges that moved: {'; '.join(told)}."] if told else []


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
    where = places_text(heavy, ratio.layers, onward=True)
    peak = f"{float(f'{max(finite.values()):.2g}'):g}"
    return f"The first token carries up to {peak} times the median norm of the others {where}."


def _telling_lines(record: Record, topic: str, statistic: str) -> tuple[str, list[Profile]]:
    """Return what is told of a topic as the subject of a sentence, and its line in each stack."""
    quantity = leading_quantity(record, topic)
    if quantity is not None:
        without = " (median without the first token)" if statistic == ROBUST else ""
        return opening(quantity.title) + without, leading_lines(record, topic, statistic)
    if topic != "gradient" or PARTIAL not in record.quantities:
        return "", []
    quantity = record.quantities[PARTIAL]
    lines = {line.stack: line for line in reversed(record.profiles(PARTIAL))}
    return opening(quantity.title), [
        _from_the_end(lines[stack], record.depth(stack))
        for stack in record.stacks
        if stack in lines
    ]


def _from_the_end(line: Profile, depth: int) -> Profile:
    """Add the end of the stack to a line of partial Jacobians: from there to there it is 1."""
    if line.layers[-1] >= depth:
        return line
    return replace(line, layers=(*line.layers, depth), values=np.append(line.values, 1.0))


def _travel(subject: str, topic: str, known: Sequence[tuple[Profile, Course]]) -> str:
    """Say how the line of a topic travels, in each stack."""
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
    """Say where tokens are nearly equal, and whether they stay apart; None where nobody knows."""
    quantity = leading_quantity(record, "tokens")
    lines = leading_lines(record, "tokens")
    told: list[str] = []
    known = False
    for line in lines:
        apart = None if quantity is None else _apartness(quantity, line)
        if quantity is None or apart is None:
            continue
        known = True
        equal = [layer for layer, share in zip(line.layers, apart, strict=True) if share < EQUAL]
        if not equal:
            continue
        # What becomes equal stays so up to the last layer; then a dip on the way is not worth a word.
        unequal = np.flatnonzero(~(apart < EQUAL))
        lasting = line.layers[int(unequal[-1]) + 1 :] if len(unequal) else line.layers
        if len(lasting) == len(line):
            verdict = "Tokens are nearly equal from the first layer on"
        elif lasting:
            verdict = "Tokens become nearly equal"
        else:
            verdict = "Tokens are nearly equal on the way, but not at the end"
        place = f"in the {line.stack} " if len(lines) > 1 else ""
        bound = f"below {EQUAL:g}" if quantity.better == "high" else f"above {1 - EQUAL**2:g}"
        where = places_text(lasting or equal, line.layers, onward=True)
        told.append(f"{verdict}: {place}{opening(quantity.title)} is {bound} {where}.")
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
    """Say where the values of the first quantity are not finite, and how many others have such."""
    lost = _lost(record)
    if not lost:
        return ""
    (title, stack), (where, _) = min(lost.items(), key=lambda entry: entry[1][1])
    inside = f" in the {stack}" if len(record.stacks) > 1 else ""
    others = len({name for name, _ in lost} - {title})
    more = f"; so do values of {others} other {'quantity' if others == 1 else 'quantities'}"
    return f"Values that are not finite appear{inside} {where} ({title}{more if others else ''})."


def _lost(record: Record) -> dict[tuple[str, str], tuple[str, int]]:
    """Say where there is a value that is not finite, by the title of the quantity and the stack.

    Beside the words stands the first of these layers.
    """
    where: dict[tuple[str, str], tuple[str, int]] = {}
    for name, quantity in record.quantities.items():
        if quantity.over == "step":
            continue
        layers: dict[str, set[int]] = {}
        bad: dict[str, set[int]] = {}
        for line in record.profiles(name):
            layers.setdefault(line.stack, set()).update(line.layers)
            lost = np.asarray(line.layers)[~np.isfinite(line.values)].tolist()
            bad.setdefault(line.stack, set()).update(lost)
        for stack, lost in bad.items():
            if lost:
                words = places_text(sorted(lost), sorted(layers[stack]), onward=True)
                where[quantity.title, stack] = words, min(lost)
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
