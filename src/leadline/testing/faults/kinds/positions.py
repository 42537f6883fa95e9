"""Faults of positions: not used, used on one side only, rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.weights import frequencies
from leadline.testing.faults.rewriting import Edit, rewrite
from leadline.testing.faults.subject import Subject


@fault(
    "positions-all-equal",
    "positions-unused",
    fits=lambda host: bool(host.layout.outer.positions),
)
def positions_all_equal(subject: Subject) -> FaultSite:
    """Every token gets the vector of the first position."""

    def first_of_all(
        forward: Callable[..., Tensor], _module: nn.Module, *ids: Any, **k: Any
    ) -> Tensor:
        vectors = forward(*ids, **k)
        return vectors[..., :1, :].expand_as(vectors)

    subject.wrap(subject.outer("positions"), first_of_all)
    return FaultSite(parameter=subject.layout.outer.positions)


def _is_rotary(host: Host) -> bool:
    return host.has("rotary")


@fault("rotation-lost", "positions-unused", fits=_is_rotary)
def rotation_lost(subject: Subject) -> FaultSite:
    """Neither queries nor keys are turned."""
    if subject.host.has("recipe"):
        for layer in subject.layers:
            rewrite(
                subject.module(layer, subject.layout.attention),
                Edit("run.rotate(q)", "q"),
                Edit("run.rotate(k)", "k"),
            )
        return FaultSite(sublayer="attention")

    def unturned(forward: Callable[..., Any], _module: nn.Module, *args: Any, **k: Any) -> Any:
        cos, sin = forward(*args, **k)
        return torch.ones_like(cos), torch.zeros_like(sin)

    subject.wrap(subject.outer("rotary"), unturned)
    return FaultSite(parameter=subject.layout.outer.rotary)


@fault("keys-not-rotated", "positions-wrong", fits=_is_rotary)
def keys_not_rotated(subject: Subject) -> FaultSite:
    """Queries are turned by their positions and keys are not."""
    for layer in subject.layers:
        attention = subject.module(layer, subject.layout.attention)
        if subject.host.has("recipe"):
            rewrite(attention, Edit("run.rotate(k)", "k"))
        elif subject.layout.is_hf:
            both: Any = type(attention).forward.__globals__["apply_rotary_pos_emb"]
            names = {"rotate_queries": _queries_only(both)}
            edit = Edit("apply_rotary_pos_emb", "rotate_queries", kind="callee")
            rewrite(attention, edit, names=names)
        else:
            key = subject.layout.rotated_key
            rewrite(attention, Edit(f"_rotated({key}, cos, sin)", key))
    return FaultSite(sublayer="attention")


def _queries_only(both: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    def turned(q: Tensor, k: Tensor, *args: Any, **more: Any) -> tuple[Tensor, Tensor]:
        return both(q, k, *args, **more)[0], k

    return turned


@fault(
    "frequencies-in-bfloat16",
    "rotary-precision",
    "buffer-wrong",
    "positions-wrong",
    fits=_is_rotary,
)
def frequencies_in_bfloat16(subject: Subject) -> FaultSite:
    """The rotary frequencies went through bfloat16 with the rest of the model, and back."""
    for _, buffer in frequencies(subject):
        buffer.copy_(buffer.bfloat16().float())
    return FaultSite(parameter=frequencies(subject)[0][0])
