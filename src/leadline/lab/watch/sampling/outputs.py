"""What a model returns: its loss, and its logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LOGIT_TOKENS", "log_z", "logits_in", "loss_in", "vocabulary_sizes"]

LOGIT_TOKENS = 64
"""log Z is the mean over about so many evenly spaced tokens."""


def loss_in(output: Any) -> Tensor | None:
    """The loss among what a model returns."""
    loss = _named(output, "loss")
    if loss is None and isinstance(output, Tensor) and output.numel() == 1:
        loss = output
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 else None


def logits_in(output: Any, sizes: set[int]) -> Tensor | None:
    """The logits [example, token, word] among what a model returns.

    They are called so, or they have as many numbers per token as there are words (`sizes`). What a
    model without a head returns are hidden states, and no logits.
    """
    named = _named(output, "logits")
    if named is not None:
        return named if _is_grid(named) else None
    return next(
        (one for one in _returned(output) if _is_grid(one) and one.shape[-1] in sizes), None
    )


def vocabulary_sizes(module: nn.Module, widths: set[int]) -> set[int]:
    """How many words a model may have: the lengths of its embeddings, but no width of a stream."""
    tables = {one.num_embeddings for one in module.modules() if isinstance(one, nn.Embedding)}
    configured = getattr(getattr(module, "config", None), "vocab_size", None)
    return (tables | ({configured} if isinstance(configured, int) else set())) - widths


def log_z(logits: Tensor) -> tuple[Tensor, int]:
    """The mean of log Z over evenly spaced tokens, still on its device, and over how many."""
    with torch.no_grad():
        rows = logits.detach().flatten(0, 1)
        rows = rows[:: max(1, rows.shape[0] // LOGIT_TOKENS)].float()
        return torch.logsumexp(rows, -1).mean(), rows.shape[0]


def _named(output: Any, name: str) -> Any:
    if isinstance(output, Mapping):
        return output.get(name)
    return getattr(output, name, None)


def _returned(output: Any) -> Iterator[Any]:
    """Tensors that are returned, and those of a tuple, a list or a mapping that is."""
    if isinstance(output, Mapping):
        yield from output.values()
    elif isinstance(output, tuple | list):
        yield from output
    else:
        yield output


def _is_grid(one: Any) -> bool:
    return isinstance(one, Tensor) and one.ndim == 3 and one.is_floating_point()
