"""N03: one was added to, or taken from, the gains of norms once too often.

Some classes store a gain around 1, others what is added to 1 (Gemma). A conversion between the two that
forgets or repeats the 1 shifts every gain.

Thresholds: in a fresh model the shift is 1 to within 0.05 of the twin. In a trained one no gain is
below 1.2 in 9 of 10 norms of the blocks; in the embedded pair the least gain of 23 of 24 norms is below
1.1 and that of the last 1.12, in MiniLM it is below 0.5 in all, in a small trained Llama below 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import site_text
from leadline.record.rows.finding import Finding

LEAST_SHIFTED = 0.2
"""How far above its start no gain may lie."""
NEAR = 0.05
SHARE = 0.9


@rule(
    "N03",
    "norm-gain-shifted",
    severity="serious",
    basis="twin",
    needs=("norm.gain",),
    summary="The gains of norms lie one above, or one below, where they should.",
    why="Every branch reads a stream that is twice too large, and writes accordingly.",
    is_not="Gains that training has moved: these spread, and some stay below where they started.",
    false_alarms="A trained model in which every gain has grown.",
    remedy="Subtract (or add) 1 and convert again.",
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
    """Look at all norms of a stack with one start: that of the twin, or 1."""
    by_stack: defaultdict[str, list[CasePlace]] = defaultdict(list)
    for place in case.values("norm.gain"):
        by_stack[place.stack].append(place)
    for stack, places in by_stack.items():
        shift = 0.0 if stack == OUTSIDE else _shift(case, places)
        if not shift:
            continue
        layers = sorted({place.layer for place in places})
        name = _name(case, places[0])
        start = _start(case, places[0])
        at = site_text(case, stack, layers)
        outside = [place for place in by_stack.get(OUTSIDE, ()) if _is_shifted(case, place, shift)]
        with_final = f", and {_name(case, outside[0])} with them" if outside else ""
        direction = "above" if shift > 0 else "below"
        yield rule.finding(
            f"The gains of the norms of {at} lie one {direction} where they should{with_final}: "
            f"{name} is centred at {case.values('norm.gain')[places[0]]:.3g}.",
            stack=stack,
            layers=layers,
            parameter=name,
            evidence=[
                Evidence(f"mean gain of {name}", case.values("norm.gain")[places[0]], start,
                         "the twin" if case.has_twin else "a norm as it is drawn"),
                Evidence(f"least gain of {name}", case.values("norm.least")[places[0]]),
            ],
            ruled_out=["training: it leaves some gains where they started"] if shift > 0 else [],
            cause="a conversion between gains around 1 and gains around 0 that added 1 twice, or "
            "not at all",
            remedy=Remedy(
                f"{'Subtract 1 from' if shift > 0 else 'Add 1 to'} these gains.",
                edit={"edit": "shift-tensors", "by": -shift,
                      "parameters": [f"{_name(case, p)}.weight" for p in [*places, *outside]]},
            ),
            quantity="norm.gain",
        )  # fmt: skip


def _start(case: Case, place: CasePlace) -> float:
    """Where a gain starts: at the twin's, else at 1."""
    return case.values("norm.gain", "twin").get(place, 1.0)


def _is_shifted(case: Case, place: CasePlace, shift: float) -> bool:
    start = _start(case, place)
    if shift > 0:
        return case.values("norm.least")[place] > start + LEAST_SHIFTED
    return case.values("norm.gain")[place] < start - 0.5


def _shift(case: Case, places: list[CasePlace]) -> float:
    """1, -1, or 0 where gains are where they should be."""
    gains, spreads = case.values("norm.gain"), case.values("norm.spread")
    starts = {place: _start(case, place) for place in places}
    # Gains that start at 0 by design (a zero-init branch) are no norm's usual start.
    if any(
        not -NEAR < start < NEAR and not 1 - NEAR < start < 1 + NEAR for start in starts.values()
    ):
        return 0.0
    off = [gains[place] - starts[place] for place in places]
    exact = [abs(abs(one) - 1) < NEAR and spreads[p] < NEAR
             for one, p in zip(off, places, strict=True)]  # fmt: skip
    if sum(exact) >= SHARE * len(places) and len({one > 0 for one in off}) == 1:
        # A gain of exactly 0 is for norm-gain-small: it shuts the branch.
        return 1.0 if off[0] > 0 else 0.0
    above = [case.values("norm.least")[place] > starts[place] + LEAST_SHIFTED for place in places]
    if sum(above) >= SHARE * len(places):
        middle = sorted(off)[len(off) // 2]
        return 1.0 if 0.5 < middle < 3.0 else 0.0
    return 0.0


def _name(case: Case, place: CasePlace) -> str:
    return case.parameter(place)
