"""The two trained models of `leadline.lab.pair` on windows of text: what their attention does.

One trial per seed; the seed draws the windows. All numbers come from the probes `attention` and
`attention_product`, bounds from the catalog of theory at the facts of every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["TRAINED", "text_windows"]

LENGTH, EXAMPLES = 64, 8
BOUNDS_TOLD = ("pre-norm-as-written", "causal", "causal-measured", "sqrt-queries")
TOLD = (
    "spectral_norm",
    "column_sum",
    "distance",
    "head_divergence",
    "norm_gain",
    "norm_shift",
    "query_weight",
    "key_weight",
    "scaling",
    "logit_span",
)


def text_windows(seed: int, *, length: int, examples: int) -> Any:
    """Windows of Python's standard library, [example, token]."""
    from leadline.lab.tasks import build_task

    return build_task(f"stdlib(length={length})").train(0, examples, seed=1000 + seed).ids


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.lab import pair

    ids = text_windows(seed, length=LENGTH, examples=EXAMPLES)
    return {
        "tokens": LENGTH,
        "pre": _measured(pair.pre()[0], ids, seed),
        "post": _measured(pair.post()[0], ids, seed),
    }


def _measured(model: Any, ids: Any, seed: int) -> dict[str, Any]:
    """Lists by layer (the mean over the heads, or the largest), and by layer and head."""
    from leadline.instruments.passes.measurement import measure
    from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of, head_readings
    from leadline.theory import BOUNDS

    record = measure(model, ids, probes="attention,attention_product", seed=seed)
    sublayers = attention_sublayers(record)
    found: dict[str, Any] = {}
    for name in TOLD:
        quantity = f"attention.{name}"
        readings = head_readings(record, quantity, record.quantities[quantity].headline)
        heads = [
            [one.value for head in seen.head_numbers for one in readings.at(seen.address, head)]
            for seen in sublayers
        ]
        whole = [[one.value for one in readings.at(seen.address, None)] for seen in sublayers]
        found[name] = [
            max(alone or each, default=None) for alone, each in zip(whole, heads, strict=True)
        ]
        found[f"{name}_by_head"] = heads
    facts = facts_of(record, sublayers)
    for name in BOUNDS_TOLD:
        bound = BOUNDS.get(name)()
        found[name] = [
            max(_known(bound.value(one)) for one in facts[seen.address, None]) for seen in sublayers
        ]
    found["normed"] = [facts[seen.address, None][0].gain is not None for seen in sublayers]
    for name in ("product_norm", "product_of_norms"):
        profile = record.by_layer(f"attention.{name}", point="attention")
        found[name] = [float(value) for value in profile.values]
    found["width"] = sublayers[0].width
    return found


def _known(value: float | None) -> float:
    return float("inf") if value is None else value


TRAINED = Trial("attention-trained-pair", _run, seconds=1.5)
