"""Faults of positions: scaled, partly lost, shifted, clamped, drawn too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.testing.faults.fault import FaultSite, fresh_fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.weights import frequencies
from leadline.testing.faults.subject import Subject

LAST = 7
"""The last position that is told apart where positions are clamped."""
SHIFT = 2
"""By how many rows the table of positions is shifted."""


def _is_rotary(host: Host) -> bool:
    return host.has("rotary")


@fresh_fault(
    "rope-scaling-doubled",
    "positions-wrong",
    "buffer-wrong",
    fits=lambda host: host.trained and _is_rotary(host),
)
def rope_scaling_doubled(subject: Subject) -> FaultSite:
    """Positions are interpolated by two, as for a longer context that the model never had."""
    for _, buffer in frequencies(subject):
        buffer.mul_(0.5)
    return FaultSite(parameter=frequencies(subject)[0][0])


@fresh_fault("partial-rotary-lost", "buffer-wrong", "positions-wrong", fits=_is_rotary)
def partial_rotary_lost(subject: Subject) -> FaultSite:
    """The second half of the rotary frequencies is zero: half of the features are not turned."""
    for _, buffer in frequencies(subject):
        buffer[len(buffer) // 2 :] = 0.0
    return FaultSite(parameter=frequencies(subject)[0][0])


def _has_table(host: Host) -> bool:
    return bool(host.layout.outer.positions)


def _table(subject: Subject) -> Tensor:
    weight = subject.outer("positions").weight
    assert isinstance(weight, Tensor)
    return weight


@fresh_fault(
    "positions-shifted",
    "positions-wrong",
    "weights-foreign",
    fits=lambda host: host.trained and _has_table(host),
)
def positions_shifted(subject: Subject) -> FaultSite:
    """The table of positions was stored with two rows in front that the code does not skip."""
    table = _table(subject)
    table.copy_(table.roll(SHIFT, 0))
    return FaultSite(parameter=f"{subject.layout.outer.positions}.weight")


@fresh_fault("positions-clamped", "positions-wrong", "positions-unused", fits=_has_table)
def positions_clamped(subject: Subject) -> FaultSite:
    """All tokens from the eighth on get the same position."""

    def clamped(forward: Callable[..., Tensor], _module: nn.Module, *ids: Any, **k: Any) -> Tensor:
        vectors = forward(*ids, **k)
        places = torch.arange(vectors.shape[-2]).clamp(max=LAST)
        return vectors[..., places, :]

    subject.wrap(subject.outer("positions"), clamped)
    return FaultSite(parameter=subject.layout.outer.positions)


@fresh_fault(
    "positions-drawn-large",
    "embedding-scale-wrong",
    "init-too-large",
    "weights-scale-odd",
    "writes-drowned",
    fits=lambda host: (
        _has_table(host)
        and not host.trained
        and not host.has("lanes")
        and host.kind == "decoder"
        and host.layout.placement == "pre"
    ),
)
def positions_drawn_large(subject: Subject) -> FaultSite:
    """Positions are fifty times too large: they start at one where tokens start at 0.02."""
    _table(subject).mul_(50.0)
    return FaultSite(parameter=f"{subject.layout.outer.positions}.weight")
