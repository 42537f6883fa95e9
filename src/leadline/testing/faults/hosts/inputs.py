"""What hosts are fed: random ids, or text of Python's standard library that none was trained on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["drawn_inputs", "text_inputs"]

EXAMPLES, TOKENS = 4, 24
BYTES = 64


def drawn_inputs(
    model: nn.Module, seed: int, *, examples: int = EXAMPLES, tokens: int = TOKENS
) -> Inputs:
    """Random inputs of the kind that the model takes: four examples of 24 tokens."""
    from leadline.models.inputs import random_inputs

    return random_inputs(model, examples=examples, length=tokens, seed=seed)


@functools.cache
def _standard_library(length: int) -> Any:
    from leadline.lab.tasks.stdlib import StandardLibrary

    return StandardLibrary(length=length)


def text_inputs(
    model: nn.Module,
    seed: int,
    *,
    name: str = "input_ids",
    masked: bool = False,
    examples: int = EXAMPLES,
    length: int = BYTES,
) -> Inputs:
    """Four windows of 64 bytes that no trained host has seen.

    A masked model gets 16 windows of 16 bytes, as it was trained on, with some bytes hidden.
    """
    import torch

    from leadline.models.inputs import Inputs

    if masked:
        length, examples = 16, 4 * EXAMPLES
    windows = _standard_library(length).validation(256).ids
    generator = torch.Generator().manual_seed(seed)
    ids = windows[torch.randperm(len(windows), generator=generator)[:examples]]
    preview = bytes(ids[0].tolist()).decode(errors="replace")[:60]
    if not masked:
        return Inputs({name: ids}, kind="text", preview=preview, made=True)
    from leadline.testing.faults.hosts.trained import MASK, hide

    hidden, labels = hide(ids, generator)
    return Inputs(
        {name: hidden}, kind="text", preview=preview, labels=labels, mask_token_id=MASK, made=True
    )
