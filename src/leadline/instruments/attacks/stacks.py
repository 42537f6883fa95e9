"""Self-attention networks for the search for violations of the bounds on rank collapse.

A batch of networks of one shape, in float64. The stream is held as X = 1c' + R, a centre and what
is left, and every layer carries both, so that a residual far below the rounding of the stream is
as exact as a large one. With the patterns P and p of `steps`:

    attention:  1 (sum_h (c + p_h'R) W_h + b)'  +  sum_h (P_h - 1p_h') R W_h

With the mean as the centre the facts of the bounds are those of this state. A second state starts
at the best centre that was found, is carried without centring (as in the proof of the bound on the
smallest residual) and takes a better centre where one is found; so its residual is an upper
estimate that the proof covers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leadline.instruments.attacks.shapes import RANGES, StackKind, StackShape, structured
from leadline.instruments.attacks.steps import (
    TINY,
    CentredStream,
    better_centre,
    columns,
    composite,
    gelu_step,
    length,
    over,
    pattern_shift,
    relu_step,
    rows,
)
from leadline.theory.rank_collapse.lipschitz import lip

__all__ = ["FactTensors", "Stacks"]


@dataclass(frozen=True)
class FactTensors:
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


class Stacks:
    """A batch of networks: free tensors and free logarithms of their sizes."""

    def __init__(
        self, kind: StackKind, batch: int, shape: StackShape, *, generator: torch.Generator
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
            name: structured((batch, *size), generator=generator).requires_grad_()
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
        tensor = self.tensor(name, layer)
        assert tensor is not None
        return tensor

    # --- running ---------------------------------------------------------------------------

    def run(self, *, smallest: bool = True) -> FactTensors:
        """Carry the stream through all layers and return the facts of every layer.

        Without `smallest` the residual about the mean stands for the smallest one, which saves
        half of the work.
        """
        state = CentredStream(self._known("centre"), self._known("tokens")).at_mean()
        states, smaller = [state], [better_centre(state)] if smallest else []
        logits: list[Tensor] = []
        writes: list[tuple[Tensor, Tensor]] = []
        for layer in range(self.shape.depth):
            state, scores, write = self._layer(state, layer)
            if smallest:
                # Both images are of one stream: proofs about the smallest residual end at either.
                smaller.append(better_centre(self._layer(smaller[-1], layer)[0], state))
            state = state.at_mean()
            logits.append(scores)
            writes.append(write)
            states.append(state)
        return self._facts(states, smaller, logits, writes)

    def _layer(
        self, state: CentredStream, layer: int
    ) -> tuple[CentredStream, Tensor, tuple[Tensor, Tensor]]:
        """Return the state after the layer, its E [network, head, token, token], and the writes'
        smallest alignment and largest overlap."""
        update, scores = self._attention(state, layer)
        state, alignment, overlap = self._written(state, update)
        if self.shape.activation != "none":
            state, second, other = self._written(state, self._mlp(state, layer))
            alignment, overlap = torch.minimum(alignment, second), torch.maximum(overlap, other)
        return state, scores, (alignment, overlap)

    def _written(
        self, state: CentredStream, update: CentredStream
    ) -> tuple[CentredStream, Tensor, Tensor]:
        nothing = state.rest.new_zeros(self.batch)
        if not self.kind.skip:
            return update, nothing, nothing
        here, there = state.at_mean(), update.at_mean()
        along = (here.rest * there.rest).sum((-2, -1), keepdim=True)
        if self.kind.turned:
            sign = torch.where(along * self.kind.turned < 0, -1.0, 1.0).detach()
            there, along = CentredStream(sign * there.centre, sign * there.rest), sign * along
        n = self.shape.tokens
        if self.kind.orthogonal:
            across = n * (here.centre * there.centre).sum(-1, keepdim=True) + along
            square = here.centre.square().sum(-1, keepdim=True).clamp_min(TINY)
            bias = across / (n * square) * here.centre
            there = CentredStream(there.centre - bias, there.rest)
        across = n * (here.centre * there.centre).sum(-1, keepdim=True) + along
        sizes = (length(here.rest), length(there.rest))
        lengths = [
            torch.sqrt(n * length(part.centre) ** 2 + size**2)
            for part, size in zip((here, there), sizes, strict=True)
        ]
        alignment = along.flatten() / (sizes[0] * sizes[1]).clamp_min(TINY)
        overlap = across.abs().flatten() / (lengths[0] * lengths[1]).clamp_min(TINY)
        return CentredStream(here.centre + there.centre, here.rest + there.rest), alignment, overlap

    def _attention(self, state: CentredStream, layer: int) -> tuple[CentredStream, Tensor]:
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
            moved = (pattern_shift(p, even, scores) @ rest @ mixed).sum(1)
            kept = ((centre + p @ rest) @ mixed).sum(1)
        if (bias := self.tensor("output_bias", layer)) is not None:
            kept = kept + bias
        return CentredStream(kept, moved), scores

    def _mlp(self, state: CentredStream, layer: int) -> CentredStream:
        up, down = self._known("up", layer), self._known("down", layer)
        here, step = state.centre @ up, state.rest @ up
        if (bias := self.tensor("up_bias", layer)) is not None:
            here = here + bias
        relu = self.shape.activation == "relu"
        activated = torch.relu(here) if relu else torch.nn.functional.gelu(here)
        kept = activated @ down
        if (bias := self.tensor("down_bias", layer)) is not None:
            kept = kept + bias
        return CentredStream(
            kept, (relu_step(here, step) if relu else gelu_step(here, step)) @ down
        )

    # --- facts -----------------------------------------------------------------------------

    def _facts(
        self,
        states: list[CentredStream],
        smaller: list[CentredStream],
        logits: list[Tensor],
        writes: list[tuple[Tensor, Tensor]],
    ) -> FactTensors:
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
        total, top, size = reach.sum(-1), reach.amax(-1), columns(scores)
        skip = self.kind.skip
        return FactTensors(
            query_key=torch.stack([columns(pair[0]) for pair in products], 1),
            value_output_1=torch.stack([columns(pair[1]) for pair in products], 1),
            value_output_inf=torch.stack([rows(pair[1]) for pair in products], 1),
            gamma=over(total.sqrt() * top.sqrt(), 2.0 * size),
            joint_gamma=over(total.sum(-1).sqrt() * top.sum(-1).sqrt(), 2.0 * size.sum(-1)),
            lipschitz=torch.stack([self._lipschitz(l) for l in layers], 1),
            alignment=torch.stack([pair[0] for pair in writes], 1) if skip else None,
            overlap=torch.stack([pair[1] for pair in writes], 1) if skip else None,
            log_composite=torch.stack([composite(s.rest).log() for s in states], 1),
            log_smallest=torch.stack([composite(s.rest).log() for s in smaller or states], 1),
            log_frobenius=torch.stack([length(s.rest).log() for s in states], 1),
        )

    def _lipschitz(self, layer: int) -> Tensor:
        if self.shape.activation == "none":
            return torch.ones(self.batch, dtype=torch.float64)
        up, down = self._known("up", layer), self._known("down", layer)
        return lip(self.shape.activation) * composite(up) * composite(down)
