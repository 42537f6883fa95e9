"""What the provenance and the findings say of attention, put together from parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.processes.convoy import Convoy
from leadline.instruments.passes.processes.shares import BatchShares
from leadline.record import Finding, Site

__all__ = ["finding_of", "join_attention"]

Facts = dict[str, Any]
_LARGEST = ("proof_eps", "iterations")


def join_attention(collector: Collector, shares: BatchShares, convoy: Convoy) -> None:
    """Give the collector the facts, the findings and the unread masks of all parts."""
    own = {
        "attentions": collector.attentions,
        "remarks": [asdict(finding) for finding in collector.remarks],
        "unmasked": sorted(collector.unmasked),
    }
    told = convoy.exchange("the attention", own)
    parts = [told[part] for part in shares.parts]
    collector.unmasked = {name for part in parts for name in part["unmasked"]}
    places: dict[tuple[Any, ...], list[Facts]] = {}
    for part in parts:
        for one in part["attentions"]:
            key = tuple(one[name] for name in ("stack", "layer", "sublayer", "first_head"))
            places.setdefault(key, []).append(one)
    collector.attentions = [_joined(facts) for facts in places.values()]
    remarks = {repr(one): one for part in parts for one in part["remarks"]}
    collector.remarks = [finding_of(one) for one in remarks.values()]


def _joined(facts: Sequence[Facts]) -> Facts:
    whole = dict(facts[0])
    for name in _LARGEST:
        numbers = [one[name] for one in facts if one[name] is not None]
        whole[name] = max(numbers, default=None)
    whole["loose"] = sum(one["loose"] for one in facts)
    for name in ("stochastic", "substochastic"):
        whole[name] = all(one[name] for one in facts)
    whole["altered"] = any(one["altered"] for one in facts)
    masks = {one["mask"] for one in facts}
    whole["mask"] = masks.pop() if len(masks) == 1 else "other"
    shapes: dict[str, Facts] = {}
    for shape in (shape for one in facts for shape in one["shapes"]):
        key = repr([shape[name] for name in ("queries", "keys", "allowed")])
        before = shapes.get(key, {"examples": 0})
        shapes[key] = shape | {"examples": before["examples"] + shape["examples"]}
    whole["shapes"] = list(shapes.values())
    return whole


def finding_of(facts: Facts) -> Finding:
    """The finding that was told as facts."""
    site: Any = facts["site"]
    values: Facts = facts | {"site": None if site is None else Site(**site)}
    return Finding(**values)
