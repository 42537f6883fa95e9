"""What theory says of a design, as curves in the units of what was measured.

    stream.norm                 laws of depth (`theory.depth`), a band for the mean square, drawn as
                                sqrt(width x mean square)
    stream.norm, gradient       what the skip alone carries, where it keeps a fixed share
    attention.spectral_norm     bounds on the attention matrix (`theory.attention`): the least that
                                any has, and the smallest upper bound that applies, from the weights
                                and from the measured range of the logits
    tokens.relative_residual    bounds and laws of rank collapse (`theory.rank_collapse`) for pure
                                attention without skip, norm and MLP, over the measured size

Labels are in plain words; the formula stands beside them. Only where every assumption holds. A gain other than 1 is a draw of no init that a law knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from leadline.catalog import Choice
from leadline.reading.bounds.depth.facts import depth_stacks
from leadline.reading.show.wording import number
from leadline.theory import BOUNDS, COLLAPSE_BOUNDS, LAWS, AttentionFacts
from leadline.web.playground.curves import CurveLine, of_logs, of_values
from leadline.web.playground.gauge_record import gauge_record

if TYPE_CHECKING:
    from leadline.theory import Bound
    from leadline.web.playground.curves import DesignCurves

__all__ = ["LawCurve", "law_labels", "laws_beside"]

LawKind = Literal["law", "upper", "lower"]
SKIP_ALONE = "the shortcut alone"
BY_WEIGHTS = "at most, by the weights"
BY_SCORES = "at most, by the measured scores"
PLAIN_LABELS = {
    "one": "least of any attention",
    "any-mask": BY_WEIGHTS,
    "bidirectional": BY_WEIGHTS,
    "causal": BY_WEIGHTS,
    "cosh": BY_WEIGHTS,
    "any-mask-measured": BY_SCORES,
    "bidirectional-measured": BY_SCORES,
    "causal-measured": BY_SCORES,
    "cosh-measured": BY_SCORES,
    "column-sum": "at most, by the column sums",
    "pre-norm-as-written": "at most, as often published",
    "sqrt-queries": "at most, for so many tokens",
}
"""What the bounds on attention say, for who does not read formulas."""


@dataclass(frozen=True)
class LawCurve:
    """One law or bound, drawn beside a quantity."""

    quantity: str
    name: str
    label: str
    kind: LawKind
    source: str
    series: CurveLine
    formula: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        line = {name: value for name, value in self.series.to_json().items() if name != "label"}
        head = {"quantity": self.quantity, "name": self.name, "label": self.label}
        return head | line | {"kind": self.kind, "formula": self.formula, "source": self.source}


def laws_beside(measured: DesignCurves) -> list[LawCurve]:
    """Return every law and bound that applies to a design."""
    curves = [*_of_depth(measured), *_of_skip(measured), *_of_attention(measured)]
    return [*curves, *_of_collapse(measured)]


def law_labels() -> set[str]:
    """Return every label that a law of the package may have, for those who translate them."""
    laws = [LAWS.build(name) for name in LAWS.names()]
    bands = [
        label
        for law in laws
        if law.quantity == "stream.variance" and law.along == "layers"
        for label in _band_labels(law.title)
    ]
    collapse = [COLLAPSE_BOUNDS.build(name) for name in COLLAPSE_BOUNDS.names()]
    titles = [bound.title for bound in collapse if bound.measure == "frobenius"]
    return {SKIP_ALONE, *PLAIN_LABELS.values(), *bands, *titles}


# --- the stream ----------------------------------------------------------------------------------


def _of_depth(measured: DesignCurves) -> Iterator[LawCurve]:
    record = gauge_record(measured.gauges, measured.provenance)
    root = measured.design.width**0.5
    for stack in depth_stacks(record, initial=measured.design.gain == 1.0):
        for name in LAWS.names():
            law = LAWS.build(name)
            if law.quantity != "stream.variance" or law.along != "layers":
                continue
            bands = law.predicted(stack.facts)
            if bands is None or not law.applies(stack.facts):
                continue
            for at, label in enumerate(_band_labels(law.title)):
                ends = [root * math.sqrt(band[at]) for band in bands]
                yield LawCurve(
                    "stream.norm", name, label, "law", law.source,
                    of_values("", range(len(ends)), ends), f"{law.statement}, m = |x|²/width",
                )  # fmt: skip


def _band_labels(title: str) -> tuple[str, str]:
    return f"{title}, at least", f"{title}, at most"


def _of_skip(measured: DesignCurves) -> Iterator[LawCurve]:
    """|x_0| k^n after n writes that keep k, and the gradient that goes back the same way."""
    gauges = measured.gauges
    writes = [
        one for layer in measured.provenance["anatomy"]["layers"] for one in layer["sublayers"]
    ]
    keeps = {one["keep"] for one in writes}
    keep = next(iter(keeps))
    settled = any(one["settle"] for one in writes)
    if settled or len(keeps) > 1 or not isinstance(keep, float) or keep in (0.0, 1.0):
        return
    per_layer = len({one["sublayer"] for one in writes if not one["parallel"]}) * math.log10(
        abs(keep)
    )
    layers = range(gauges.depth + 1)
    formula = f"{number(abs(keep))} per write"
    for quantity, start, steps in (
        ("stream.norm", gauges.stream_norm[0], layers),
        ("gradient.stream", gauges.gradient[-1], [gauges.depth - layer for layer in layers]),
    ):
        if not (math.isfinite(start) and start > 0):
            continue
        logs = [math.log10(start) + per_layer * step for step in steps]
        yield LawCurve(
            quantity, "skip-alone", SKIP_ALONE, "law",
            "the write keep x + gain u with u = 0", of_logs("", layers, logs), formula,
        )  # fmt: skip


# --- attention -----------------------------------------------------------------------------------


def _of_attention(measured: DesignCurves) -> Iterator[LawCurve]:
    if not measured.gauges.attention_norm:
        return
    facts = _attention_facts(measured)
    layers = range(1, measured.gauges.depth + 1)
    bounds = {name: BOUNDS.build(name) for name in BOUNDS.names()}
    bounds = {
        name: one for name, one in bounds.items() if one.quantity == "attention.spectral_norm"
    }
    lower = {name: one for name, one in bounds.items() if one.side == "lower"}
    upper = {name: one for name, one in bounds.items() if one.side == "upper"}
    by_weights = {name: one for name, one in upper.items() if not name.endswith("-measured")}
    by_logits = {name: one for name, one in upper.items() if name.endswith("-measured")}
    for family in (lower, by_weights, by_logits):
        drawn: dict[str, list[float]] = {}
        for name, bound in family.items():
            values = _along_layers(bound, facts)
            if values is not None:
                drawn[name] = values
        if not drawn:
            continue
        # The sharpest one of a family; several would lie on top of each other.
        choose = max if family is lower else min
        best = choose(drawn, key=lambda one: sum(drawn[one]))
        bound = family[best]
        label = ({best: bound.statement} | PLAIN_LABELS)[best]
        yield LawCurve(
            "attention.spectral_norm", best, label, bound.side, bound.source,
            of_values("", layers, drawn[best]), bound.statement,
        )  # fmt: skip


def _along_layers(bound: Bound, facts: list[AttentionFacts]) -> list[float] | None:
    """The bound of every layer; None where it does not apply everywhere."""
    # Asked one by one: `applies` would compute every value a second time.
    if not all(condition.holds for one in facts for condition in bound.conditions(one)):
        return None
    values = [bound.value(one) for one in facts]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if len(known) == len(values) else None


def _attention_facts(measured: DesignCurves) -> list[AttentionFacts]:
    """One entry per layer, of its worst head: bounds grow with the range that logits may have."""
    design, gauges = measured.design, measured.gauges
    head_width = design.width // design.heads
    facts: list[AttentionFacts] = []
    for spans, weights in zip(gauges.logit_span, measured.attention_weights, strict=True):
        pairs = [(q, k) for q, k in zip(weights.query, weights.key, strict=True) if q and k]
        query, key = max(pairs, key=lambda pair: pair[0] * pair[1], default=(None, None))
        facts.append(
            AttentionFacts(
                queries=design.tokens,
                keys=design.tokens,
                mask="causal" if design.mask == "causal" else "none",
                positions="rotary" if Choice.parse(design.positions).name == "rotary" else "none",
                scaling=head_width**-0.5,
                head_width=head_width,
                width=design.width,
                gain=weights.gain,
                shift=weights.shift,
                query_weight=query,
                key_weight=key,
                query_bias=0.0,
                key_bias=0.0,
                logit_span=math.nan if any(map(math.isnan, spans)) else max(spans),
            )
        )
    return facts


# --- rank collapse -------------------------------------------------------------------------------


def _of_collapse(measured: DesignCurves) -> Iterable[LawCurve]:
    from leadline.errors import InputError
    from leadline.instruments.collapse.measure import compute_collapse

    design = measured.design
    pure = design.mlp == "none" and Choice.parse(design.connection).name == "none"
    if not pure or (design.norm != "none" and design.placement != "none"):
        return
    try:
        collapse = compute_collapse(design.model(), design.inputs(), facts=True)
    except InputError:
        return  # what cannot be followed has no exact residual to set a bound beside
    if collapse.facts is None:
        return
    for name in COLLAPSE_BOUNDS.names():
        bound = COLLAPSE_BOUNDS.build(name)
        if bound.measure != "frobenius" or not bound.applies(collapse.facts):
            continue
        predicted = bound.log10_values(collapse.facts)
        if predicted is None:
            continue
        logs = [one - norm for one, norm in zip(predicted, collapse.log10_norm, strict=True)]
        yield LawCurve(
            "tokens.relative_residual", name, bound.title, bound.side, bound.source,
            of_logs("", range(len(logs)), logs), bound.statement,
        )  # fmt: skip
