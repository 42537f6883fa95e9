"""Report which attention could not be measured, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from leadline.anatomy import Anatomy
from leadline.instruments.passes.running import PassOutcome

__all__ = ["nothing_seen", "unseen"]

_PLAIN = ("sdpa", "eager")


def unseen(module: nn.Module, anatomy: Anatomy, outcome: PassOutcome) -> Iterator[tuple[str, str]]:
    """(what, why) of every attention without numbers; layers of one reason together."""
    measured_places = {
        (one["stack"], one["layer"], one["sublayer"]) for one in outcome.collector.attentions
    }
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for stack in anatomy.stacks:
        for block in stack.blocks:
            for s in block.sublayers:
                place = (stack.name, block.layer, s.sublayer)
                if place in measured_places or s.role not in ("attention", "cross-attention"):
                    continue
                why = outcome.foreign.get(place) or _unproved(outcome, place) or _why(module)
                groups.setdefault((f"{s.role} of the {stack.name}", why), []).append(
                    (block.layer, s.module)
                )
    for (what, why), places in groups.items():
        first, path = places[0]
        layers = f"layer {first}" if len(places) == 1 else f"layers {first} to {places[-1][0]}"
        yield f"{what}, {layers} ('{path}')", why


def nothing_seen(module: nn.Module, anatomy: Anatomy, outcome: PassOutcome) -> str:
    """The sentence for a model none of whose attention could be seen."""
    reasons = [f"{what}: {why}" for what, why in unseen(module, anatomy, outcome)]
    if not reasons:
        roles = sorted({s.role for st in anatomy.stacks for b in st.blocks for s in b.sublayers})
        return (
            "The probe 'attention' was asked for and this model has no attention; its branches "
            f"are: {', '.join(roles)}. Measure it with the default probes."
        )
    return f"No attention could be measured: {'; '.join(reasons)}."


def _unproved(outcome: PassOutcome, place: tuple[str, int, int]) -> str | None:
    if place not in outcome.collector.unproved:
        return None
    proof = outcome.collector.unproved[place]
    if proof is None:
        return "how its weights multiply the values could not be followed, so nothing is proved"
    return (
        "the matrix computed from queries, keys and mask, times the values, misses the "
        f"attention's own output by {proof:.3g} eps, so it is not the matrix that was used"
    )


def _why(module: nn.Module) -> str:
    kernel = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if isinstance(kernel, str) and kernel not in _PLAIN:
        return (
            f"it runs in the kernel {kernel!r}, which shows no weights; call "
            "model.set_attn_implementation('sdpa') (or 'eager') and measure again"
        )
    return (
        "neither scaled_dot_product_attention nor a softmax whose weights multiply values was "
        "called there: a fused or custom kernel, or attention without softmax; compute it with "
        "torch.nn.functional.scaled_dot_product_attention to have it measured"
    )
