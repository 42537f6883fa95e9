"""Self-attention networks for the search for violations of the bounds on rank collapse.

A batch of networks of one shape, in float64. The stream is held as X = 1c' + R, a centre and what
is left, and every layer carries both, so that a residual far below the rounding of the stream is
as exact as a large one. With u_j = scaling <q(c), R_j W_K> and E = scaling R W_QK R':

    p = softmax(u),   P - 1p' = p_j (e_ij - ebar_i) / (1 + ebar_i),   e = expm1(E), ebar = e p
    attention:  1 (sum_h (c + p_h'R) W_h + b)'  +  sum_h (P_h - 1p_h') R W_h
    MLP:        1 f(c)'  +  (act(h + R W_1) - act(h)) W_2,   h = c W_1 + b_1

ReLU's difference is a case split, GELU's an integral of its slope. With the mean as the centre the
facts of the bounds are those of this state. A second state starts at the best centre that was
found, is carried without centring (as in the proof of the bound on the smallest residual) and takes
a better centre where one is found; so its residual is an upper estimate that the proof covers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from leadline.theory.rank_collapse.lipschitz import lip

__all__ = [
    "STACK_KINDS",
    "Seen",
    "Shape",
    "StackKind",
    "Stacks",
    "better_centre",
    "composite",
    "draw_shape",
    "gelu_step",
    "relu_step",
]

Activation = Literal["none", "relu", "gelu"]

SMALL = 0.1
"""Below this size of E the difference of two patterns is computed without cancellation."""
NODES = 8
"""Gauss-Legendre nodes for the mean slope of GELU over a step of at most 1."""
_GAUSS = tuple(zip(*(row.tolist() for row in leggauss(NODES)), strict=True))
TINY = torch.finfo(torch.float64).tiny
SPARSITY = 0.3
"""The share of entries that a sparse tensor keeps."""


@dataclass(frozen=True, slots=True)
class StackKind:
    """The hypotheses that the networks of an attack keep to."""

    heads: tuple[int, ...] = (1,)
    mlp: tuple[Activation, ...] = ("none",)
    biased: bool = False
    mask: Literal["none", "causal"] = "none"
    skip: bool = False
    turned: int = 0
    """With a skip: 1 turns every update so that <res X, res U> >= 0, -1 so that it is <= 0."""
    orthogonal: bool = False
    """With a skip: an output bias makes <X, U> = 0, which leaves res U as it is."""


_ALL = (1, 2, 3, 4)
_MLPS: tuple[Activation, ...] = ("relu", "gelu")
STACK_KINDS: dict[str, StackKind] = {
    "one-head": StackKind(),
    "one-head-mlp": StackKind(mlp=_MLPS, biased=True),
    "heads": StackKind(heads=_ALL[1:], biased=True),
    "heads-mlp": StackKind(heads=_ALL[1:], mlp=_MLPS),
    "causal": StackKind(heads=_ALL, mask="causal"),
    "skip-aligned": StackKind(heads=_ALL, biased=True, skip=True, turned=1),
    "skip-aligned-mlp": StackKind(heads=_ALL, mlp=_MLPS, skip=True, turned=1),
    "skip": StackKind(heads=_ALL, mlp=("none", *_MLPS), skip=True),
    "skip-orthogonal": StackKind(heads=_ALL, biased=True, skip=True, turned=-1, orthogonal=True),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the networks of a batch have in common. `shared`: one layer's weights in all layers."""

    tokens: int
    width: int
    heads: int
    head_width: int
    depth: int
    hidden: int
    activation: Activation
    shared: bool


def draw_shape(kind: StackKind, *, generator: torch.Generator) -> Shape:
    """Draw the shape of a batch: 2 to 10 tokens, width 1 to 12, 1 to 3 layers.

    Two tokens and width one come more often: there the bounds are nearest.
    """

    def pick(low: int, high: int) -> int:
        return low + int(torch.randint(high - low + 1, (), generator=generator))

    width = 1 if pick(1, 3) == 1 else pick(1, 12)
    return Shape(
        tokens=2 if pick(1, 3) == 1 else pick(2, 10),
        width=width,
        heads=kind.heads[pick(0, len(kind.heads) - 1)],
        head_width=(1, 2, width)[pick(0, 2)],
        depth=pick(1, 3),
        hidden=pick(1, 2 * width),
        activation=kind.mlp[pick(0, len(kind.mlp) - 1)],
        shared=pick(1, 4) == 1,
    )


class Split(NamedTuple):
    """A stream X = 1 centre' + rest: [network, 1, width] and [network, token, width]."""

    centre: Tensor
    rest: Tensor

    def moved(self, by: Tensor) -> Split:
        """The same stream with its centre moved."""
        return Split(self.centre + by, self.rest - by)

    def at_mean(self) -> Split:
        """The same stream around the mean of its tokens."""
        return self.moved(self.rest.mean(-2, keepdim=True))


@dataclass(frozen=True)
class Seen:
    """The facts of a batch as tensors, through which gradients pass; logarithms are natural.

    [network, layer, head] query_key, value_output_1, value_output_inf, gamma; [network, layer]
    joint_gamma, lipschitz, alignment, overlap (None without a skip); [network, depth + 1] the
    residuals.
    """

    query_key: Tensor
    value_output_1: Tensor
    value_output_inf: Tensor
    gamma: Tensor
    joint_gamma: Tensor
    lipschitz: Tensor
    alignment: Tensor | None
    overlap: Tensor | None
    log_composite: Tensor
    log_smallest: Tensor
    log_frobenius: Tensor


RANGES = {
    "centre": (1e-2, 1e1),
    "tokens": (1e-3, 1e1),
    "query": (1e-1, 1e1),
    "key": (1e-1, 1e1),
    "value": (1e-1, 1e1),
    "output": (1e-1, 1e1),
    "up": (1e-1, 1e1),
    "down": (1e-1, 1e1),
    "query_bias": (1e-2, 1e1),
    "output_bias": (1e-2, 1e1),
    "up_bias": (1e-2, 1e1),
    "down_bias": (1e-2, 1e1),
}
"""Between which sizes a tensor is drawn, evenly in the logarithm, for every network and layer."""


class Stacks:
    """A batch of networks: free tensors and free logarithms of their sizes."""

    def __init__(
        self, kind: StackKind, batch: int, shape: Shape, *, generator: torch.Generator
    ) -> None:
        self.kind, self.batch, self.shape = kind, batch, shape
        self._generator = generator
        self.scaling = 1.0 / math.sqrt(shape.head_width)
        n, d, k, m = shape.tokens, shape.width, shape.head_width, shape.hidden
        heads, layers = shape.heads, 1 if shape.shared else shape.depth
        shapes = {
            "centre": (1, d),
            "tokens": (n, d),
            "query": (layers, heads, d, k),
            "key": (layers, heads, d, k),
            "value": (layers, heads, d, k),
            "output": (layers, heads, k, d),
        }
        if kind.biased:
            shapes |= {"query_bias": (layers, heads, 1, k), "output_bias": (layers, 1, d)}
        if shape.activation != "none":
            shapes |= {"up": (layers, d, m), "down": (layers, m, d)}
        if shape.activation != "none" and kind.biased:
            shapes |= {"up_bias": (layers, 1, m), "down_bias": (layers, 1, d)}
        self.free = {
            name: _structured((batch, *size), generator=generator).requires_grad_()
            for name, size in shapes.items()
        }
        self.sizes = {name: self._log_size(name, size) for name, size in shapes.items()}

    def _log_size(self, name: str, shape: tuple[int, ...]) -> Tensor:
        low, high = map(math.log, RANGES[name])
        lead = shape[:-2]
        share = torch.rand(self.batch, *lead, 1, 1, generator=self._generator, dtype=torch.float64)
        return (low + (high - low) * share).requires_grad_()

    def parameters(self) -> list[Tensor]:
        """What an ascent may move: inputs, weights and their sizes."""
        return [*self.free.values(), *self.sizes.values()]

    def tensor(self, name: str, layer: int | None = None) -> Tensor | None:
        """A tensor at its size, of one layer where it has layers; None where it is not there."""
        if name not in self.free:
            return None
        sized = self.free[name] * self.sizes[name].exp()
        if layer is None:
            return sized
        return sized[:, 0 if self.shape.shared else layer]

    def _known(self, name: str, layer: int | None = None) -> Tensor:
        found = self.tensor(name, layer)
        assert found is not None
        return found

    # --- running ---------------------------------------------------------------------------

    def run(self, *, smallest: bool = True) -> Seen:
        """Carry the stream through all layers and see the facts on the way.

        Without `smallest` the residual about the mean stands for the smallest one, which saves
        half of the work.
        """
        state = Split(self._known("centre"), self._known("tokens")).at_mean()
        states, smaller = [state], [better_centre(state)] if smallest else []
        logits: list[Tensor] = []
        writes: list[tuple[Tensor, Tensor]] = []
        for layer in range(self.shape.depth):
            state, scores, seen = self._layer(state, layer)
            if smallest:
                # Both images are of one stream: proofs about the smallest residual end at either.
                smaller.append(better_centre(self._layer(smaller[-1], layer)[0], state))
            state = state.at_mean()
            logits.append(scores)
            writes.append(seen)
            states.append(state)
        return self._seen(states, smaller, logits, writes)

    def _layer(self, state: Split, layer: int) -> tuple[Split, Tensor, tuple[Tensor, Tensor]]:
        """Return the state after the layer, its E [network, head, token, token], and the writes'
        smallest alignment and largest overlap."""
        update, scores = self._attention(state, layer)
        state, alignment, overlap = self._written(state, update)
        if self.shape.activation != "none":
            state, second, other = self._written(state, self._mlp(state, layer))
            alignment, overlap = torch.minimum(alignment, second), torch.maximum(overlap, other)
        return state, scores, (alignment, overlap)

    def _written(self, state: Split, update: Split) -> tuple[Split, Tensor, Tensor]:
        nothing = state.rest.new_zeros(self.batch)
        if not self.kind.skip:
            return update, nothing, nothing
        here, there = state.at_mean(), update.at_mean()
        along = (here.rest * there.rest).sum((-2, -1), keepdim=True)
        if self.kind.turned:
            sign = torch.where(along * self.kind.turned < 0, -1.0, 1.0).detach()
            there, along = Split(sign * there.centre, sign * there.rest), sign * along
        n = self.shape.tokens
        if self.kind.orthogonal:
            across = n * (here.centre * there.centre).sum(-1, keepdim=True) + along
            square = here.centre.square().sum(-1, keepdim=True).clamp_min(TINY)
            bias = across / (n * square) * here.centre
            there = Split(there.centre - bias, there.rest)
        across = n * (here.centre * there.centre).sum(-1, keepdim=True) + along
        sizes = (_length(here.rest), _length(there.rest))
        lengths = [
            torch.sqrt(n * _length(part.centre) ** 2 + size**2)
            for part, size in zip((here, there), sizes, strict=True)
        ]
        alignment = along.flatten() / (sizes[0] * sizes[1]).clamp_min(TINY)
        overlap = across.abs().flatten() / (lengths[0] * lengths[1]).clamp_min(TINY)
        return Split(here.centre + there.centre, here.rest + there.rest), alignment, overlap

    def _attention(self, state: Split, layer: int) -> tuple[Split, Tensor]:
        """The update of attention and E, both relative to the centre of the state."""
        rest, centre = state.rest[:, None], state.centre[:, None]
        query, key = (self._known(name, layer) for name in ("query", "key"))
        central = centre @ query
        if (bias := self.tensor("query_bias", layer)) is not None:
            central = central + bias
        even = self.scaling * central @ (rest @ key).mT
        # From W_QK itself, so that rounding is relative to what the bounds know of it.
        scores = self.scaling * rest @ (query @ key.mT) @ rest.mT
        mixed = self._known("value", layer) @ self._known("output", layer)
        if self.kind.mask == "causal":
            hidden = torch.ones(rest.shape[-2], rest.shape[-2], dtype=torch.bool).triu(1)
            weights = (even + scores).masked_fill(hidden, -math.inf).softmax(-1)
            moved, kept = (weights @ rest @ mixed).sum(1), (centre @ mixed).sum(1)
        else:
            p = even.softmax(-1)
            moved = (_pattern_shift(p, even, scores) @ rest @ mixed).sum(1)
            kept = ((centre + p @ rest) @ mixed).sum(1)
        if (bias := self.tensor("output_bias", layer)) is not None:
            kept = kept + bias
        return Split(kept, moved), scores

    def _mlp(self, state: Split, layer: int) -> Split:
        up, down = self._known("up", layer), self._known("down", layer)
        here, step = state.centre @ up, state.rest @ up
        if (bias := self.tensor("up_bias", layer)) is not None:
            here = here + bias
        relu = self.shape.activation == "relu"
        activated = torch.relu(here) if relu else torch.nn.functional.gelu(here)
        kept = activated @ down
        if (bias := self.tensor("down_bias", layer)) is not None:
            kept = kept + bias
        return Split(kept, (relu_step(here, step) if relu else gelu_step(here, step)) @ down)

    # --- facts -----------------------------------------------------------------------------

    def _seen(
        self,
        states: list[Split],
        smaller: list[Split],
        logits: list[Tensor],
        writes: list[tuple[Tensor, Tensor]],
    ) -> Seen:
        layers = range(self.shape.depth)
        products = [
            (
                self._known("query", l) @ self._known("key", l).mT,
                self._known("value", l) @ self._known("output", l),
            )
            for l in layers
        ]
        scores = torch.stack(logits, 1)
        reach = scores.amax(-1) - scores.amin(-1)
        # Roots before products: squares of logits of 1e-176 would be zero, and gamma with them.
        total, top, size = reach.sum(-1), reach.amax(-1), _columns(scores)
        skip = self.kind.skip
        return Seen(
            query_key=torch.stack([_columns(pair[0]) for pair in products], 1),
            value_output_1=torch.stack([_columns(pair[1]) for pair in products], 1),
            value_output_inf=torch.stack([_rows(pair[1]) for pair in products], 1),
            gamma=_over(total.sqrt() * top.sqrt(), 2.0 * size),
            joint_gamma=_over(total.sum(-1).sqrt() * top.sum(-1).sqrt(), 2.0 * size.sum(-1)),
            lipschitz=torch.stack([self._lipschitz(l) for l in layers], 1),
            alignment=torch.stack([pair[0] for pair in writes], 1) if skip else None,
            overlap=torch.stack([pair[1] for pair in writes], 1) if skip else None,
            log_composite=torch.stack([composite(s.rest).log() for s in states], 1),
            log_smallest=torch.stack([composite(s.rest).log() for s in smaller or states], 1),
            log_frobenius=torch.stack([_length(s.rest).log() for s in states], 1),
        )

    def _lipschitz(self, layer: int) -> Tensor:
        if self.shape.activation == "none":
            return torch.ones(self.batch, dtype=torch.float64)
        up, down = self._known("up", layer), self._known("down", layer)
        return lip(self.shape.activation) * composite(up) * composite(down)


# --- pieces --------------------------------------------------------------------------------


def composite(x: Tensor) -> Tensor:
    """sqrt(|x|_1 |x|_inf) of the matrices of a batch."""
    return _columns(x).sqrt() * _rows(x).sqrt()


def _columns(x: Tensor) -> Tensor:
    return x.abs().sum(-2).amax(-1)


def _rows(x: Tensor) -> Tensor:
    return x.abs().sum(-1).amax(-1)


def _length(x: Tensor) -> Tensor:
    """The Frobenius norm, also where squares would underflow."""
    top = x.detach().abs().amax((-2, -1), keepdim=True)
    scale = torch.where(top > 0, top, 1.0)
    square = (x / scale).square().sum((-2, -1))
    return torch.where(square > 0, scale.flatten() * square.clamp_min(TINY).sqrt(), 0.0)


def _over(above: Tensor, below: Tensor) -> Tensor:
    """The ratio, 0 where there is nothing below."""
    there = below > 0
    return torch.where(there, above / torch.where(there, below, 1.0), 0.0)


def _pattern_shift(p: Tensor, even: Tensor, scores: Tensor) -> Tensor:
    """P - 1p' with P = softmax(even + scores): without cancellation where the scores are small."""
    small = scores.abs().amax(-1, keepdim=True) < SMALL
    grown = torch.expm1(torch.where(small, scores, 0.0))
    mean = (grown * p).sum(-1, keepdim=True)
    plain = (even + scores).softmax(-1) - p
    return torch.where(small, p * (grown - mean) / (1.0 + mean), plain)


def relu_step(here: Tensor, step: Tensor) -> Tensor:
    """relu(here + step) - relu(here), exactly."""
    return torch.where(here > 0, torch.maximum(step, -here), torch.relu(here + step))


def gelu_step(here: Tensor, step: Tensor) -> Tensor:
    """gelu(here + step) - gelu(here): over a short step the integral of the slope."""
    gelu = torch.nn.functional.gelu
    short = step.abs() <= 1.0
    bounded = torch.where(short, step, 0.0)
    mean = sum(
        0.5 * weight * _gelu_slope(here + (0.5 + 0.5 * node) * bounded) for node, weight in _GAUSS
    )
    return torch.where(short, bounded * mean, gelu(here + step) - gelu(here))


def _gelu_slope(x: Tensor) -> Tensor:
    normal = torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * normal


def better_centre(*states: Split) -> Split:
    """Return one stream, held about one or several centres, about a centre where the composite
    measure is small.

    Tried are the centres themselves, mean, median and middle of the tokens, and their means by
    twos.
    """
    places: list[Split] = []
    for state in states:
        rest = state.rest
        mean, median = rest.mean(-2, keepdim=True), rest.median(-2, keepdim=True).values
        middle = 0.5 * (rest.amax(-2, keepdim=True) + rest.amin(-2, keepdim=True))
        ends = (torch.zeros_like(mean), mean, median, middle)
        places += [state.moved(0.5 * (a + b)) for i, a in enumerate(ends) for b in ends[i:]]
    centres, rests = (torch.stack(parts) for parts in zip(*places, strict=True))
    with torch.no_grad():
        best = composite(rests).argmin(0), torch.arange(rests.shape[1])
    return Split(centres[best], rests[best])


def _structured(shape: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """Draw matrices each of which is Gaussian, sparse, of rank one, a single entry, rows of a
    signed permutation, or signs."""

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    *lead, rows, columns = shape
    gaussian = normal(*shape)
    kept = torch.rand(shape, generator=generator, dtype=torch.float64) < SPARSITY
    signs = torch.where(normal(*shape) < 0, -1.0, 1.0).to(torch.float64)
    places = torch.rand(*lead, rows * columns, generator=generator, dtype=torch.float64)
    single = (places == places.amax(-1, keepdim=True)).reshape(shape)
    longer = max(rows, columns)
    order = torch.rand(*lead, longer, generator=generator, dtype=torch.float64).argsort(-1)
    permutation = torch.nn.functional.one_hot(order, longer)[..., :rows, :columns]
    variants = torch.stack(
        [
            gaussian,
            gaussian * kept,
            normal(*lead, rows, 1) * normal(*lead, 1, columns),
            signs * single,
            signs * permutation,
            signs,
        ]
    )
    choice = torch.randint(len(variants), (*lead, 1, 1), generator=generator)
    return variants.gather(0, choice.expand(shape)[None])[0]
