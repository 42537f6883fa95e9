"""The facts that theorems need of a network whose collapse is followed, noted while it runs.

A `Notebook` sets hooks on the sublayers of a Transformer: what enters each attention, the state and
the update of every write. Of these the facts of `theory.rank_collapse` are computed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from leadline.instruments.collapse.result import Collapse
from leadline.instruments.collapse.split.facts import (
    AttentionWeights,
    attention_facts,
    cosines,
    sizes,
)
from leadline.instruments.collapse.split.split import Split
from leadline.parts import Transformer
from leadline.theory import LayerFacts, StackFacts
from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

__all__ = ["Notebook", "by_head", "stack_facts"]

Tensor = torch.Tensor
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@dataclass
class _Write:
    """One sublayer as it ran."""

    layer: int
    part: Any
    raw: Any = None
    """The state as the connection holds it."""
    state: Split | None = None
    entered: Split | None = None
    update: Split | None = None


@dataclass
class Notebook:
    """Notes what enters and leaves the sublayers of a model; a context manager around one pass."""

    model: Transformer
    sites: list[Split] = field(default_factory=list[Split])
    _writes: list[_Write] = field(default_factory=list[_Write])
    _handles: list[Any] = field(default_factory=list[Any])

    def __enter__(self) -> Notebook:
        try:
            for layer, block in enumerate(self.model.blocks):
                for part in block.children():
                    write = _Write(layer, part)
                    self._writes.append(write)
                    self._watch(write)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def site(self, x: Split) -> None:
        """Note the tokens between two layers."""
        self.sites.append(x)

    def _watch(self, write: _Write) -> None:
        part = write.part

        def opened(_module: Any, arguments: tuple[Any, ...]) -> None:
            write.raw = state = arguments[0]
            write.state = state[0] if isinstance(state, tuple) else state

        def ran(_module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            write.entered, write.update = arguments[0], output

        def left(_module: Any, _arguments: tuple[Any, ...], output: Any) -> None:
            write.update = output

        self._handles.append(part.register_forward_pre_hook(opened))
        self._handles.append(part.branch.register_forward_hook(ran))
        if part.exit is not None:
            self._handles.append(part.exit.register_forward_hook(left))

    def facts(self, result: Collapse) -> StackFacts:
        """The facts of the pass, as the theorems take them."""
        recipe = self.model.recipe
        layers = [self._layer(number) for number in range(len(self.model.blocks))]
        parts = [write.part for write in self._writes]
        norms = any(n is not None for p in parts for n in (p.enter, p.exit, p.settle))
        keeps = [p.connection.keep for p in parts]
        plain = all(_is_plain(p.branch) for p in parts if hasattr(p.branch, "qkv"))
        biased = any(
            getattr(layer, "bias", None) is not None
            for p in parts
            if hasattr(p.branch, "qkv")
            for layer in (p.branch.qkv, p.branch.output)
        )
        skip = any(keep is None or keep != 0.0 for keep in keeps)
        return replace(
            stack_facts(result, self.sites, layers),
            skip=skip,
            keep=_kept(parts),
            norm=norms,
            turned=recipe.choice("positions").name == "rotary",
            biased=biased,
            plain=plain,
        )

    def _layer(self, number: int) -> LayerFacts:
        writes = [write for write in self._writes if write.layer == number]
        attends = next((w for w in writes if hasattr(w.part.branch, "qkv")), None)
        facts = LayerFacts(lipschitz=None)
        if attends is not None and attends.entered is not None:
            causal = bool(self.model.causal)
            facts = attention_facts(attends.entered, _multihead(attends.part.branch), causal=causal)
        mlps = [w.part.branch for w in writes if not hasattr(w.part.branch, "qkv")]
        angles = [
            # What is really added, with the connection's gain.
            cosines(w.state, w.part.connection.split(w.raw, w.update)[1])
            for w in writes
            if w.state is not None and w.update is not None
        ]
        return replace(
            facts,
            lipschitz=_lipschitz(mlps, self.model.recipe.choice("mlp").name),
            alignment=min(a for a, _ in angles),
            overlap=max(o for _, o in angles),
        )


def stack_facts(
    result: Collapse, sites: Sequence[Split], layers: Sequence[LayerFacts]
) -> StackFacts:
    """The facts of a stack of attention layers without skip, norm or positions."""
    measured = [sizes(x) for x in sites]
    return StackFacts(
        tokens=sites[0].tokens,
        layers=tuple(layers),
        mask="causal" if result.causal else "none",
        log10_composite=tuple(one.composite for one in measured),
        log10_smallest=tuple(one.smallest for one in measured),
        log10_frobenius=tuple(float(value) for value in result.log10_residual),
    )


def by_head(layer: Mapping[str, Tensor], heads: int) -> AttentionWeights:
    """Bare matrices, head by head."""

    def columns(name: str) -> Tensor:
        return layer[name].unflatten(1, (heads, -1)).transpose(0, 1)

    def pieces(name: str) -> Tensor | None:
        return layer[name].unflatten(0, (heads, -1)) if name in layer else None

    return AttentionWeights(
        columns("W_Q"),
        columns("W_K"),
        columns("W_V"),
        layer["W_O"].unflatten(0, (heads, -1)),
        pieces("b_Q"),
        pieces("b_K"),
    )


def _multihead(branch: Any) -> AttentionWeights:
    """The matrices of an attention of ours; grouped keys and values serve several heads."""
    times = branch.heads // branch.groups
    q, k, v = (w.detach().double() for w in branch.qkv.weight.split(branch.widths))

    def heads(weight: Tensor, repeated: int) -> Tensor:
        each = weight.unflatten(0, (-1, branch.size)).mT
        return each.repeat_interleave(repeated, 0)

    query_bias = key_bias = None
    if branch.qkv.bias is not None:
        both = branch.qkv.bias.detach().double().split(branch.widths)[:2]
        query_bias, key_bias = (
            bias.unflatten(0, (-1, branch.size)).repeat_interleave(repeated, 0)
            for bias, repeated in zip(both, (1, times), strict=True)
        )
    output = branch.output.weight.detach().double().mT.unflatten(0, (branch.heads, -1))
    return AttentionWeights(
        heads(q, 1),
        heads(k, times),
        heads(v, times),
        output,
        query_bias,
        key_bias,
        branch.scale,
    )


def _kept(parts: Sequence[Any]) -> float:
    """What every write keeps of the stream; a norm behind the addition keeps nothing as it is."""
    if any(part.settle is not None or part.connection.keep is None for part in parts):
        return 0.0
    return min(part.connection.keep for part in parts)


def _is_plain(branch: Any) -> bool:
    inside = (branch.query_norm, branch.key_norm, branch.value_norm, branch.mixed_norm)
    return all(one is None for one in (*inside, branch.head_scale, branch.share))


def _lipschitz(mlps: Sequence[Any], name: str) -> float | None:
    """lambda of the MLP of a layer: 1 without one, None where it has none or it is not known."""
    if not mlps:
        return 1.0
    mlp = mlps[0]
    plain = len(mlps) == 1 and name in _ACTIVATIONS and hasattr(mlp, "up")
    if not plain or mlp.hidden_norm is not None:
        return None
    up, down = mlp.up.weight.detach().double().mT, mlp.down.weight.detach().double().mT
    known = composite_lipschitz(name, *_norms(up), *_norms(down))
    return known if math.isfinite(known) else None


def _norms(matrix: Tensor) -> tuple[float, float]:
    return float(matrix.abs().sum(0).max()), float(matrix.abs().sum(1).max())
