"""N03: one was added to, or taken from, the gains of norms once too often.

Some classes store a gain around 1, others what is added to 1 (Gemma). A conversion between the two that
forgets or repeats the 1 shifts every gain.

Thresholds: in a fresh model the shift is 1 to within 0.05 of the twin, in 9 of 10 layers of one norm. In a
trained one no gain is below 1.2 in 9 of 10 norms of the blocks, those of queries and keys left out; in the embedded pair the least gain of 23 of 24 norms is below
1.1 and that of the last 1.12, in MiniLM it is below 0.5 in all, in a small trained Llama below 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import site_text
from leadline.record.rows.finding import Finding

LEAST_SHIFTED = 0.2
"""How far above its start no gain may lie."""
NEAR = 0.05
SHARE = 0.9
_OF_HEADS = ("q_", "k_", "qk", "query", "key")


@rule(
    "N03",
    "norm-gain-shifted",
    severity="serious",
    basis="twin",
    needs=("norm.gain",),
    summary="The gains of norms lie one above where they should.",
    why="Every branch reads a stream that is twice too large, and writes accordingly.",
    is_not="Gains that training has moved: these spread, and some stay below where they started.",
    false_alarms="A trained model in which every gain has grown.",
    remedy="Subtract 1 and convert again.",
    sources=(
        "https://github.com/Blaizzy/mlx-vlm/issues/2114",
        "https://github.com/ml-explore/mlx-lm/issues/1623",
    ),
    explains=(
        "norm-gain-odd", "norm-gain-small", "attention-saturated", "loss-worse-than-uniform",
        "loss-worse-than-unigram", "weights-foreign", "writes-drowned", "attention-scale-wrong",
        "stream-exploding", "gradient-exploding", "output-head-too-large", "logit-drift",
    ),
    example="gain-plus-one",
)  # fmt: skip
def norm_gain_shifted(case: Case, rule: Rule) -> Iterator[Finding]:
    """Look at every norm over the layers of a stack, beside its start: that of the twin, or 1."""
    by_stack: defaultdict[str, list[CasePlace]] = defaultdict(list)
    for place in case.values("norm.gain"):
        by_stack[place.stack].append(place)
    for stack, inside in by_stack.items():
        places = [] if stack == OUTSIDE else _shifted(case, inside)
        if not places:
            continue
        layers = sorted({place.layer for place in places})
        name = _name(case, places[0])
        start = _start(case, places[0])
        at = site_text(case, stack, layers)
        outside = [place for place in by_stack.get(OUTSIDE, ()) if _is_shifted(case, place)]
        with_final = f", and {_name(case, outside[0])} with them" if outside else ""
        yield rule.finding(
            f"The gains of the norms of {at} lie one above where they should{with_final}: "
            f"{name} is centred at {case.values('norm.gain')[places[0]]:.3g}.",
            stack=stack,
            layers=layers,
            parameter=name,
            evidence=[
                Evidence(f"mean gain of {name}", case.values("norm.gain")[places[0]], start,
                         "the twin" if case.has_twin else "a norm as it is drawn"),
                Evidence(f"least gain of {name}", case.values("norm.least")[places[0]]),
            ],
            ruled_out=["training: it leaves some gains where they started"],
            cause="a conversion between gains around 1 and gains around 0 that added 1 twice, or "
            "not at all",
            remedy=Remedy(
                "Subtract 1 from these gains.",
                edit={"edit": "shift-tensors", "by": -1.0,
                      "parameters": [f"{_name(case, p)}.weight" for p in [*places, *outside]]},
            ),
            quantity="norm.gain",
        )  # fmt: skip


def _start(case: Case, place: CasePlace) -> float:
    """Where a gain starts: at the twin's, else at 1."""
    return case.values("norm.gain", "twin").get(place, 1.0)


def _is_shifted(case: Case, place: CasePlace) -> bool:
    return case.values("norm.least")[place] > _start(case, place) + LEAST_SHIFTED


def _shifted(case: Case, places: list[CasePlace]) -> list[CasePlace]:
    """The norms of a stack that lie one too high: by name where it is exact, else all together."""
    # Gains that start at neither 0 nor 1 are no norm's usual start.
    usual = [
        place for place in places if min(abs(_start(case, place) - at) for at in (0, 1)) < NEAR
    ]
    names = dict.fromkeys(place.point for place in usual)
    columns = {name: [place for place in usual if place.point == name] for name in names}
    exact = [places for places in columns.values() if _share(map(partial(_is_exact, case), places))]
    if exact:
        return [place for column in exact for place in column]
    # Norms of queries and keys have scales of their own, which training moves far.
    outer = [place for place in usual if not place.point.rpartition(".")[2].startswith(_OF_HEADS)]
    off = sorted(case.values("norm.gain")[place] - _start(case, place) for place in outer)
    if not off or len(usual) < len(places) or not 0.5 < off[len(off) // 2] < 3.0:
        return []
    return outer if _share(_is_shifted(case, place) for place in outer) else []


def _is_exact(case: Case, place: CasePlace) -> bool:
    """Whether a gain is drawn, and lies one above its start. One below it is norm-gain-small."""
    off = case.values("norm.gain")[place] - _start(case, place)
    return abs(off - 1) < NEAR and case.values("norm.spread")[place] < NEAR


def _share(answers: Iterable[bool]) -> bool:
    every = list(answers)
    return sum(every) >= SHARE * len(every)


def _name(case: Case, place: CasePlace) -> str:
    return case.parameter(place)
