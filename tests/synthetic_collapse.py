"""Self-attention networks computed here, in float64, by their definition, and what bounds ask of them.

`forward` returns the stream before and after every layer; `facts_of` reads every number of
`LayerFacts` and `StackFacts` off the weights and the streams with numpy, by its definition.
`collapse_record` is the record that probes would write of such a network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import LayerFacts, StackFacts
from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """W_Q, W_K [width, head width], W_V [width, value width], W_O [value width, width], b_Q."""

    w_q: Matrix
    w_k: Matrix
    w_v: Matrix
    w_o: Matrix
    b_q: Matrix

    @property
    def w_qk(self) -> Matrix:
        return self.w_q @ self.w_k.T

    @property
    def w(self) -> Matrix:
        return self.w_v @ self.w_o


@dataclass(frozen=True)
class Layer:
    """Heads, their scaling, the output's bias, and an MLP (activation, W1, b1, W2, b2) or none."""

    heads: tuple[Head, ...]
    scaling: float
    b_o: Matrix
    mlp: tuple[str, Matrix, Matrix, Matrix, Matrix] | None = None


@dataclass(frozen=True)
class Run:
    """The streams of a forward pass, depth + 1 of them, and for every layer what happened."""

    streams: list[Matrix]
    patterns: list[list[Matrix]] = field(default_factory=list)
    writes: list[list[tuple[Matrix, Matrix]]] = field(default_factory=list)


def one(matrix: Matrix) -> float:
    return float(np.abs(matrix).sum(0).max())


def inf(matrix: Matrix) -> float:
    return float(np.abs(matrix).sum(1).max())


def composite(matrix: Matrix) -> float:
    return math.sqrt(one(matrix) * inf(matrix))


def res(x: Matrix) -> Matrix:
    return x - x.mean(0)


def softmax(logits: Matrix) -> Matrix:
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


ACTS = {
    "relu": lambda z: np.maximum(z, 0.0),
    "gelu": lambda z: 0.5 * z * (1.0 + erf(z / math.sqrt(2.0))),
}


def random_layer(
    rng: np.random.Generator,
    *,
    width: int,
    heads: int = 1,
    head_width: int = 3,
    act: str = "",
    query_key: float = 1.0,
    value: float = 1.0,
) -> Layer:
    """A layer with normal weights; `query_key` and `value` are sizes of the two products."""

    def normal(*shape: int) -> Matrix:
        return rng.normal(size=shape) / math.sqrt(shape[0])

    def head() -> Head:
        root, gain = math.sqrt(query_key), value / heads
        return Head(
            root * normal(width, head_width), root * normal(width, head_width),
            normal(width, head_width), gain * normal(head_width, width), normal(head_width),
        )  # fmt: skip

    mlp = None
    if act:
        inner = 2 * width
        mlp = (act, normal(width, inner), normal(inner), normal(inner, width), normal(width))
    parts = tuple(head() for _ in range(heads))
    return Layer(parts, head_width**-0.5, 0.1 * normal(width), mlp)


def forward(x: Matrix, layers: Sequence[Layer], *, causal: bool = False, skip: bool = False) -> Run:
    """Run attention, then the MLP; with `skip` each adds to the stream, otherwise it replaces it."""
    run = Run([x])
    for layer in layers:
        patterns, update = [], np.zeros_like(x)
        for head in layer.heads:
            logits = layer.scaling * (x @ head.w_q + head.b_q) @ (x @ head.w_k).T
            if causal:
                logits = np.where(np.tri(len(x), dtype=bool), logits, -np.inf)
            patterns.append(softmax(logits))
            update = update + patterns[-1] @ x @ head.w
        updates = [update + layer.b_o]
        writes = [(x, updates[0])]
        x = skip * x + updates[0]
        if layer.mlp is not None:
            act, up, b_up, down, b_down = layer.mlp
            u = ACTS[act](x @ up + b_up) @ down + b_down
            writes.append((x, u))
            x = skip * x + u
        run.streams.append(x)
        run.patterns.append(patterns)
        run.writes.append(writes)
    return run


def differences(x: Matrix, layer: Layer) -> list[Matrix]:
    """E_h of every head, about the mean."""
    r = res(x)
    return [layer.scaling * r @ head.w_qk @ r.T for head in layer.heads]


def gammas(found: Sequence[Matrix]) -> tuple[tuple[float, ...], float]:
    """gamma of every head, and the joint one."""
    osc = [e.max(1) - e.min(1) for e in found]
    sums, tops = [float(o.sum()) for o in osc], [float(o.max()) for o in osc]
    sizes = [one(e) for e in found]
    each = [
        math.sqrt(s * t) / (2 * e) if e else 0.0 for s, t, e in zip(sums, tops, sizes, strict=True)
    ]
    whole = sum(sizes)
    return tuple(each), math.sqrt(sum(sums) * sum(tops)) / (2 * whole) if whole else 0.0


def cosine(a: Matrix, b: Matrix) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / size if size else 0.0


def smallest_composite(x: Matrix) -> float:
    """An upper estimate: the least over the mean, the median, the middle and the tokens."""
    centres = [x.mean(0), np.median(x, 0), 0.5 * (x.max(0) + x.min(0)), *x]
    return min(composite(x - centre) for centre in centres)


def log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf


def layer_facts(x: Matrix, layer: Layer, run: Run, at: int) -> LayerFacts:
    found = differences(x, layer)
    each, joint = gammas(found)
    r = res(x)
    law = sum(
        (e @ r @ head.w for e, head in zip(found, layer.heads, strict=True)), np.zeros_like(x)
    ) / len(x)
    lipschitz = 1.0
    if layer.mlp is not None:
        act, up, _, down, _ = layer.mlp
        lipschitz = composite_lipschitz(act, one(up), inf(up), one(down), inf(down))
    return LayerFacts(
        query_key=tuple(one(head.w_qk) for head in layer.heads),
        value_output_1=tuple(one(head.w) for head in layer.heads),
        value_output_inf=tuple(inf(head.w) for head in layer.heads),
        scaling=layer.scaling,
        gamma=each,
        joint_gamma=joint,
        lipschitz=lipschitz,
        alignment=min(cosine(res(before), res(u)) for before, u in run.writes[at]),
        overlap=max(abs(cosine(before, u)) for before, u in run.writes[at]),
        diagonal=max(float(np.diag(p)[1:].max()) for p in run.patterns[at]),
        value_gain=float(np.linalg.norm(sum(head.w for head in layer.heads), 2)),
        cubic_law=log10(float(np.linalg.norm(law))),
    )


def facts_of(
    run: Run, layers: Sequence[Layer], *, causal: bool = False, skip: bool = False
) -> StackFacts:
    """Everything that bounds ask of a run."""
    return StackFacts(
        tokens=len(run.streams[0]),
        layers=tuple(
            layer_facts(x, layer, run, at)
            for at, (x, layer) in enumerate(zip(run.streams, layers, strict=False))
        ),
        mask="causal" if causal else "none",
        skip=skip,
        biased=True,
        log10_composite=tuple(log10(composite(res(x))) for x in run.streams),
        log10_smallest=tuple(log10(smallest_composite(x)) for x in run.streams),
        log10_frobenius=tuple(log10(float(np.linalg.norm(res(x)))) for x in run.streams),
    )


def two_tokens(tau: float, w: float) -> Layer:
    """One head of width one, scaling 1: tokens +a, -a become +-w a tanh(tau a^2)."""
    number = lambda value: np.array([[float(value)]])  # noqa: E731
    head = Head(number(tau), number(1.0), number(w), number(1.0), np.zeros(1))
    return Layer((head,), 1.0, np.zeros(1))


def collapse_record(
    run: Run,
    layers: Sequence[Layer],
    *,
    causal: bool = False,
    skip: bool = False,
    placement: str = "none",
    settle: str | None = None,
    stack: str = "encoder",
    statistic: str = "mean",
    examples: int = 1,
    eps: float = 2.0**-52,
    probes: tuple[str, ...] = ("residual", "collapse"),
    record: Record | None = None,
) -> Record:
    """What the probes `tokens`, `residual` and `collapse` write of a run, and its provenance."""
    record = Record() if record is None else record
    facts = facts_of(run, layers, causal=causal, skip=skip)
    described = {
        *(f"tokens.{name}" for name in ("residual", "composite_residual")),
        "tokens.smallest_composite_residual",
        *(f"collapse.{name}" for name in INGREDIENTS),
    }
    for name in sorted(described):
        lives_on = "stream" if name.startswith("tokens.") else "sublayer"
        record.describe(Quantity(name, name, name, name, lives_on=lives_on, scale="log"))
    record.append(_residual_readings(run, stack, statistic, eps, probes))
    if "collapse" in probes:
        for at, (one_layer, layer) in enumerate(zip(facts.layers, layers, strict=True), start=1):
            record.append(_ingredient_readings(one_layer, stack, at, mlp=layer.mlp is not None))
    record.note("model", {"name": "san", "class": "San", "parameters": 12})
    record.note("input", {"examples": examples, "longest": len(run.streams[0])})
    blocks = [
        _block(stack, at, layer, skip=skip, placement=placement, settle=settle)
        for at, layer in enumerate(layers, start=1)
    ]
    record.note("anatomy", {"layers": blocks, "stacks": {stack: {"depth": len(layers)}}})
    if "collapse" in probes:
        seen = [
            _seen(stack, at, layer, tokens=len(run.streams[0]), causal=causal, examples=examples)
            for at, layer in enumerate(layers, start=1)
        ]
        record.note("attention", seen)
    return record


INGREDIENTS = (
    "query_key", "value_output_1", "value_output_inf", "gamma", "joint_gamma", "lipschitz",
    "alignment", "overlap", "diagonal", "value_gain", "cubic_law",
)  # fmt: skip


def _residual_readings(
    run: Run, stack: str, statistic: str, eps: float, probes: tuple[str, ...]
) -> Iterator[Reading]:
    for layer, x in enumerate(run.streams):
        site = Site(stack, layer)
        yield Reading("tokens.residual", site, "mean", float(np.linalg.norm(res(x))))
        if "residual" not in probes:
            continue
        away = 8 * eps * composite(x)
        mean, least = composite(res(x)), smallest_composite(x)
        surely = mean / (2 * (1 - 1 / len(x)))
        for name, value, lower in (
            ("tokens.composite_residual", mean, mean),
            ("tokens.smallest_composite_residual", least, surely),
        ):
            ends = max(lower - away, 0.0), value + away
            yield Reading(name, site, statistic, value, *ends)


def _ingredient_readings(
    facts: LayerFacts, stack: str, layer: int, *, mlp: bool
) -> Iterator[Reading]:
    site = Site(stack, layer, 1, "attention")
    for name in ("query_key", "value_output_1", "value_output_inf", "gamma"):
        for head, value in enumerate(getattr(facts, name), start=1):
            place = Site(stack, layer, 1, "attention", head=head)
            kind = "max" if name == "gamma" else "value"
            yield Reading(f"collapse.{name}", place, kind, value)
            if name == "gamma":  # as the probe does: the mean over the examples stands beside it
                yield Reading("collapse.gamma", place, "mean", 0.5 * value)
    for name, kind in (
        ("joint_gamma", "max"), ("diagonal", "max"), ("value_gain", "value"), ("cubic_law", "max"),
    ):  # fmt: skip
        yield Reading(f"collapse.{name}", site, kind, getattr(facts, name))
    places = [site, Site(stack, layer, 2, "mlp")] if mlp else [site]
    if mlp:
        yield Reading("collapse.lipschitz", places[1], "value", facts.lipschitz)
    for place in places:
        yield Reading("collapse.alignment", place, "min", facts.alignment)
        yield Reading("collapse.overlap", place, "max", facts.overlap)


def _block(
    stack: str, at: int, layer: Layer, *, skip: bool, placement: str, settle: str | None
) -> dict[str, Any]:
    roles = ("attention", "mlp") if layer.mlp is not None else ("attention",)
    return {
        "stack": stack,
        "layer": at,
        "module": f"blocks.{at - 1}",
        "placement": placement,
        "parallel": False,
        "opening": None,
        "sublayers": [
            {
                "sublayer": number,
                "role": role,
                "module": f"blocks.{at - 1}.{role}",
                "gain": 1.0,
                "keep": float(skip),
                "settle": settle,
                "parallel": False,
                "placement": placement,
                "law": None,
            }
            for number, role in enumerate(roles, start=1)
        ],
    }


def _seen(
    stack: str, at: int, layer: Layer, *, tokens: int, causal: bool, examples: int
) -> dict[str, Any]:
    return {
        "stack": stack,
        "layer": at,
        "sublayer": 1,
        "point": "attention",
        "module": f"blocks.{at - 1}.attention",
        "heads": len(layer.heads),
        "groups": len(layer.heads),
        "scaling": layer.scaling,
        "mask": "causal" if causal else "none",
        "positions": "none",
        "stochastic": True,
        "qk_norm": False,
        "altered": False,
        "seen": "kernel",
        "proof_eps": 1.0,
        "shapes": [{"queries": tokens, "keys": tokens, "examples": examples, "allowed": []}],
    }
