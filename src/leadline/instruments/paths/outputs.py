"""Read what a carried pass returned: shares, counts, logits, and remarks about them."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import nn

from leadline.anatomy.tensors import first_tensor
from leadline.instruments.paths.carried.carried import Carried, Journey
from leadline.instruments.paths.carried.model_pass import Passed
from leadline.instruments.paths.carried.plans import counted_paths
from leadline.instruments.paths.carried.shares import Spread
from leadline.instruments.paths.result import Shares, path_counts
from leadline.models.inputs import Loss

__all__ = [
    "Counted",
    "counts_of",
    "joined_remarks",
    "logits_of",
    "no_residual",
    "raw_logits",
    "shares_of",
    "with_logits",
]


def shares_of(spread: Spread, eps: float, lengths: int) -> Shares:
    """Norms and products as shares; a length that nothing reached has 0."""

    def of(values: tuple[float, ...], size: float) -> tuple[float, ...]:
        return tuple(value / size for value in values) + (0.0,) * (lengths - len(values))

    biased = any(spread.sources)
    return Shares(
        norm=spread.norm,
        norm_share=of(spread.inputs, spread.norm),
        share=of(spread.along, spread.norm),
        bias_norm_share=of(spread.sources, spread.norm) if biased else (),
        bias_share=of(spread.sources_along, spread.norm) if biased else (),
        remainder=spread.remainder,
        remainder_eps=spread.remainder / eps,
    )


class Counted(NamedTuple):
    """The number of paths of every length, remarks, and whether single paths can be drawn."""

    counts: tuple[int, ...] | None
    remarks: tuple[str, ...] = ()
    drawable: bool = False


def counts_of(passed: Passed, output: Shares) -> Counted:
    """Count the paths of every length, and say where that cannot be done."""
    doubt = next((layer.doubt for layer in passed.attentions if layer.doubt), None)
    if doubt is not None:
        return Counted(None, (f"Counts: left out, because {doubt}.",))
    assert passed.stream.parts is not None
    counts = counted_paths(passed.stream.parts.inputs.ways, passed.attentions)
    if counts is None:
        words = "Counts: left out, because heads of one layer have values of several layers."
        return Counted(None, (words,))
    remarks: list[str] = []
    silent = [n for n, size in enumerate(output.norm_share) if size == 0 and counts[n]]
    if silent:
        remarks.append(
            f"All paths of length {silent[0]} give exactly nothing: a weight on them is zero."
        )
    heads = [layer.heads or 0 for layer in passed.attentions]
    if counts != path_counts(heads, [layer.skip for layer in passed.attentions]):
        remarks.append("Layers share values, so there are other paths than C(L, l) H^l.")
        return Counted(counts, tuple(remarks))
    if any(layer.held is None for layer in passed.attentions):
        remarks.append("Which rows of the products belong to one head is not known.")
        return Counted(counts, tuple(remarks))
    return Counted(counts, tuple(remarks), drawable=True)


def raw_logits(output: Any, module: nn.Module, loss: Loss) -> Any:
    """The logits among what a model returned, or else its first tensor."""
    logits: Any = getattr(output, "logits", None)
    if logits is not None:
        return logits
    if speaks(module, loss):
        return output[0] if isinstance(output, list | tuple) else output
    return first_tensor(output)


def speaks(module: nn.Module, loss: Loss) -> bool:
    """Whether the output of a model is logits without saying so."""
    return loss.kind in ("next-token", "masked") or bool(getattr(module, "objective", None))


def logits_of(output: Any, module: nn.Module, loss: Loss) -> Carried | str:
    """The logits that the model returned, or why there are none to take apart."""
    has = getattr(output, "logits", None) is not None or speaks(module, loss)
    logits: Any = raw_logits(output, module, loss) if has else None
    if not isinstance(logits, Carried):
        return "Logits: the model has no head that gives any."
    if logits.parts is None:
        assert logits.origin is not None
        return (
            "Logits: left out, they are not affine when frozen: the operation "
            f"'{logits.origin.operation}' in '{logits.origin.module or type(module).__name__}' "
            "(a soft cap, perhaps) stands between the stream and them."
        )
    return logits


def with_logits(output: Any, logits: torch.Tensor) -> Any:
    """The model's output with other logits."""
    if hasattr(output, "logits"):
        changed = copy.copy(output)
        changed.logits = logits
        return changed
    if isinstance(output, list | tuple):
        return (logits, *output[1:])
    return logits


def no_residual(stream: Carried, axis: int) -> str:
    """Say why there is no residual to share out."""
    if stream.value.shape[0 if stream.ndim == 2 else axis] == 1:
        return "Residual: undefined, because one token is its own mean."
    return "Residual: undefined, because after the last layer all tokens are equal up to rounding."


def joined_remarks(journey: Journey) -> list[str]:
    """A remark on tensors as large as the stream that joined it from outside."""
    where = sorted(journey.joined)
    if not where:
        return []
    first = where[0] or "the model"
    more = f" and {len(where) - 1} more modules" if len(where) > 1 else ""
    return [
        f"In '{first}'{more} a tensor as large as the stream joined it that was not computed from "
        "it behind the first layer's entry; it is counted among the biases."
    ]
