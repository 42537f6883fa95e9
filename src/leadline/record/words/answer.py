"""What a record answers: first what a run has learned, then how signal and gradient travel.

Does anything vanish, explode, jump, become equal, or stop being finite, and where? Sentences are
made from the quantities that lead their topics.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.provenance import number_at
from leadline.record.run.watching import is_watched
from leadline.record.words.course import FAR, course_of, fold_text
from leadline.record.words.first_token import first_token_sentence
from leadline.record.words.places import opening, places_text
from leadline.record.words.run_answer import run_answer
from leadline.record.words.summary import ROBUST, cotangent_text, leading_lines, leading_quantity
from leadline.record.words.unfinished import unfinished_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.record.record import Record
    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import Quantity
    from leadline.record.words.course import Course

__all__ = [
    "BACKWARD",
    "EQUAL",
    "answer",
    "depth_answer",
    "depth_sentences",
    "outcome_of",
]

EQUAL = 0.1
"""Tokens count as nearly equal below this share of their size in which they differ: cosines above
0.99."""
PARTIAL = "jacobian.partial"
"""What becomes of a random gradient between the end of the stack and a site: it tells how gradients
travel where none was measured."""
PER_BLOCK = "nats per block"
"""The unit of exponents: the logarithm of the growth of directions, over the blocks behind a site."""
HARDLY = 1.5
"""Below this factor gradients hardly change on their way through all blocks."""
BACKWARD = ("gradient",)
"""The topics whose lines are followed from the last layer to the first."""


def answer(record: Record) -> list[str]:
    """Say in a few sentences what a record answers; nothing where it holds no line and no run."""
    return [*run_answer(record), *depth_answer(record)]


def depth_answer(record: Record) -> list[str]:
    """Say how signal and gradient travel through depth; of a watched run, in its last sample.

    Nothing of a run that warnings speak of: one sample says little about it.
    """
    if not is_watched(record):
        return depth_sentences(record)
    told = [] if record.findings else depth_sentences(record)
    step = number_at(record.provenance, "watch", "steps")
    if not told or step is None:
        return told
    return [f"At step {int(step):,}: {told[0][:1].lower()}{told[0][1:]}", *told[1:]]


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
    if "gradient" not in steady:
        told += _growth_of_gradients(record)
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


def outcome_of(course: Course, topic: str) -> str:
    """Say in two words that a line vanishes or explodes; empty where it does neither."""
    if course.size < FAR:
        return ""
    noun = "gradients" if topic == "gradient" else "the signal"
    plural = topic == "gradient"
    verb = "vanish" if course.shrinks else "explode"
    return f"{noun} {verb if plural else f'{verb}es' if verb == 'vanish' else f'{verb}s'}"


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


def _growth_of_gradients(record: Record) -> list[str]:
    """Say by how much gradients change through all blocks, where their growth per block leads."""
    exponents = [
        quantity
        for quantity in record.quantities.values()
        if quantity.leads and quantity.lives_on == "stream" and quantity.unit == PER_BLOCK
    ]
    told: list[str] = []
    for line in record.profiles(exponents[0].name) if exponents else []:
        # From site 0 on all blocks are behind it; a line without that site tells a part of them.
        if line.statistic != exponents[0].headline or line.layers[0] != 0:
            continue
        depth = record.depth(line.stack)
        blocks = "the one block" if depth == 1 else f"all {depth} blocks"
        inside = f" of the {line.stack}" if len(record.stacks) > 1 else ""
        log = depth * line.first
        if log == -math.inf or math.isfinite(log):  # all else is told as not finite
            told.append(_growth_sentence(log, f"on their way through {blocks}{inside}"))
    return told


def _growth_sentence(log: float, way: str) -> str:
    """Say that gradients grow, shrink or hardly change by a factor with this logarithm."""
    if log == -math.inf:
        return f"Gradients vanish: nothing of them is left {way}."
    if abs(log) < math.log(HARDLY):
        times = f"multiplied by {math.exp(log):.3g} in the direction that grows most"
        return f"Gradients hardly change: {way} they are {times}."
    verb, verdict, most = (
        ("shrink", "vanish", "even in the direction that shrinks least")
        if log < 0
        else ("grow", "explode", "in the direction that grows most")
    )
    subject = f"Gradients {verdict}: they" if abs(log) >= math.log(FAR) else "Gradients"
    return f"{subject} {verb} {fold_text(abs(log))} {way}, {most}."


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
