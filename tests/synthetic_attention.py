"""A record of attention heads that are computed here, in float64, by their definition.

Every layer has a norm with gain and shift, every head its own W_Q, W_K and b_Q; the logits of
later layers are larger. The numbers that a probe would read from weights and matrices are read
from them with numpy, so that every theorem must hold of the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.record import Quantity, Reading, Record, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

MEASURED = {
    "attention.spectral_norm": ("Spectral norm of an attention matrix", "‖A‖_2"),
    "attention.column_sum": ("Largest column sum", "c_max"),
    "attention.logit_span": ("Span of the logits", "Δ"),
    "attention.entropy": ("Entropy of attention", "H"),
}
INGREDIENTS = (
    "norm_gain",
    "norm_shift",
    "query_weight",
    "key_weight",
    "query_bias",
    "key_bias",
    "scaling",
)
EXAMPLES = 2


@dataclass(frozen=True, slots=True)
class Head:
    """What is read of one head: of its weights, and of its matrix on every example."""

    weights: dict[str, float]
    measured: dict[str, list[float]]
    matrices: list[NDArray[np.float64]]


def attention_record(
    *,
    layers: int = 12,
    heads: int = 8,
    tokens: int = 48,
    causal: bool = True,
    stack: str = "decoder",
    point: str = "attention",
    name: str = "tiny",
    seed: int = 0,
) -> Record:
    """A model of `layers` attention sublayers on `EXAMPLES` examples of `tokens` tokens."""
    record = Record()
    for quantity, (title, symbol) in MEASURED.items():
        record.describe(Quantity(quantity, title, symbol, symbol, lives_on="sublayer"))
    record.describe(
        Quantity(
            "attention.product_norm",
            "Norm of the product",
            "‖A_l ⋯ A_1‖_2",
            "p",
            lives_on="sublayer",
        )
    )
    for part in INGREDIENTS:
        record.describe(
            Quantity(
                f"attention.{part}",
                part,
                part,
                part,
                lives_on="sublayer",
                headline="value",
                ingredient_of="attention",
            )
        )
    rng = np.random.default_rng(seed)
    products = [np.eye(tokens) for _ in range(EXAMPLES)]
    for layer in range(1, layers + 1):
        site = (stack, layer, 1, point)
        found = _layer(rng, layer=layer, heads=heads, tokens=tokens, causal=causal)
        record.append(_readings(site, found))
        means = [np.mean([h.matrices[e] for h in found], axis=0) for e in range(EXAMPLES)]
        products = [m @ p for m, p in zip(means, products, strict=True)]
        norms = [float(np.linalg.norm(p, 2)) for p in products]
        record.append(_statistics("attention.product_norm", Site(*site), norms))
    record.note("model", {"name": name, "class": "Tiny", "parameters": 12345})
    record.note(
        "attention",
        [
            seen(stack, layer, point=point, heads=heads, tokens=tokens, causal=causal)
            for layer in range(1, layers + 1)
        ],
    )
    return record


def seen(
    stack: str,
    layer: int,
    *,
    point: str = "attention",
    heads: int = 8,
    tokens: int = 48,
    causal: bool = True,
) -> dict[str, object]:
    """What the provenance says of one attention sublayer."""
    return {
        "stack": stack,
        "layer": layer,
        "sublayer": 1,
        "point": point,
        "module": f"model.layers.{layer - 1}.attn",
        "heads": heads,
        "groups": heads,
        "width": WIDTH,
        "head_width": HEAD_WIDTH,
        "mask": "causal" if causal else "none",
        "positions": "none",
        "stochastic": True,
        "qk_norm": False,
        "seen": "kernel",
        "proof_eps": 1.3,
        "shapes": [{"queries": tokens, "keys": tokens, "examples": EXAMPLES, "allowed": []}],
    }


WIDTH, HEAD_WIDTH = 32, 4


def _layer(
    rng: np.random.Generator, *, layer: int, heads: int, tokens: int, causal: bool
) -> list[Head]:
    gain = rng.uniform(0.2, 0.5, WIDTH)
    shift = rng.normal(0, 0.05, WIDTH)
    streams = [rng.normal(size=(tokens, WIDTH)) for _ in range(EXAMPLES)]
    normed = [x / np.sqrt((x**2).mean(1, keepdims=True)) * gain + shift for x in streams]
    return [
        _head(
            rng,
            normed,
            gain=gain,
            shift=shift,
            size=0.02 + 0.012 * layer + 0.03 * at,
            causal=causal,
        )
        for at in range(heads)
    ]


def _head(
    rng: np.random.Generator,
    inputs: Sequence[NDArray[np.float64]],
    *,
    gain: NDArray[np.float64],
    shift: NDArray[np.float64],
    size: float,
    causal: bool,
) -> Head:
    w_q, w_k = rng.normal(0, size**0.5, (2, WIDTH, HEAD_WIDTH))
    b_q = rng.normal(0, 0.1, HEAD_WIDTH)
    measured: dict[str, list[float]] = {quantity: [] for quantity in MEASURED}
    matrices: list[NDArray[np.float64]] = []
    scaling = HEAD_WIDTH**-0.5
    for z in inputs:
        logits = scaling * (z @ w_q + b_q) @ (z @ w_k).T
        allowed = np.tri(len(z), dtype=bool) if causal else np.ones(logits.shape, dtype=bool)
        high = np.where(allowed, logits, -np.inf)
        a = np.exp(high - high.max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        low = np.where(allowed, logits, np.inf)
        measured["attention.spectral_norm"].append(float(np.linalg.norm(a, 2)))
        measured["attention.column_sum"].append(float(a.sum(0).max()))
        measured["attention.logit_span"].append(float((high.max(1) - low.min(1)).max()))
        entropy = -(a * np.log(a, out=np.zeros_like(a), where=a > 0)).sum(1).mean()
        measured["attention.entropy"].append(float(entropy))
        matrices.append(a)
    weights = {
        "norm_gain": float(np.abs(gain).max()),
        "norm_shift": float(np.linalg.norm(shift)),
        "query_weight": float(np.linalg.norm(w_q, 2)),
        "key_weight": float(np.linalg.norm(w_k, 2)),
        "query_bias": float(np.linalg.norm(b_q)),
        "key_bias": 0.0,
        "scaling": scaling,
    }
    return Head(weights, measured, matrices)


def _readings(site: tuple[str, int, int, str], heads: Sequence[Head]) -> Iterator[Reading]:
    for part in ("norm_gain", "norm_shift", "scaling"):
        yield Reading(f"attention.{part}", Site(*site), "value", heads[0].weights[part])
    for at, head in enumerate(heads, start=1):
        place = Site(*site, head=at)
        for part in ("query_weight", "key_weight", "query_bias", "key_bias"):
            yield Reading(f"attention.{part}", place, "value", head.weights[part])
        for quantity, values in head.measured.items():
            yield from _statistics(quantity, place, values)
    for quantity in MEASURED:
        means = [float(np.mean(head.measured[quantity])) for head in heads]
        yield from _statistics(
            quantity, Site(*site), means, largest=max(max(h.measured[quantity]) for h in heads)
        )


def _statistics(
    quantity: str, site: Site, values: Sequence[float], *, largest: float | None = None
) -> Iterator[Reading]:
    certified = quantity == "attention.spectral_norm"
    top = max(values) if largest is None else largest
    for statistic, value in (("mean", float(np.mean(values))), ("max", top)):
        ends = (value * (1 - 1e-7), value * (1 + 1e-7)) if certified else (None, None)
        yield Reading(quantity, site, statistic, value, *ends)
