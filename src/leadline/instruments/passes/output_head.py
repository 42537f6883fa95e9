"""What the output head of a model returns, where no table says it: found by small passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy
from leadline.errors import InputError, words_of
from leadline.instruments.passes.running import call, fit_batch
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import has_ids
from leadline.models.inputs.logits import HeadFacts, find_logits, moves_earlier, rolled
from leadline.models.inputs.losses import head_is_unknown
from leadline.models.inputs.model_facts import forward_names, ids_name, vocabulary_size

__all__ = ["head_of"]


def head_of(
    module: nn.Module,
    batch: Inputs,
    anatomy: Anatomy,
    loss: str | Callable[..., torch.Tensor],
    seed: int,
) -> tuple[HeadFacts | None, int]:
    """Find out about an unknown head by small passes; return its facts and the number of passes.

    The facts are None where no loss needs them. A model that returns the logits of the last token
    alone is run with targets, which may bring all of them. If its anatomy does not call it causal,
    one more pass shows whether its last token moves the logits before it.
    """
    flags = [stack.causal for stack in anatomy.stacks]
    ahead = False if flags == [False] else None
    if loss not in ("auto", "next-token") or not head_is_unknown(module, ahead):
        return None, 0
    if not has_ids(module, batch):
        return HeadFacts(), 0
    outputs: list[Any] = []

    def counted(which: Inputs) -> Any:
        with torch.no_grad():
            outputs.append(call(module, which))
        return outputs[-1]

    small = fit_batch(module, batch, seed, counted)
    if not has_ids(module, small):
        return HeadFacts(), len(outputs)
    ids = small.tensors[ids_name(module)]
    shape = (ids.shape[0], ids.shape[1])
    logits = find_logits(outputs[-1] if outputs else counted(small), module, shape)
    if logits is None:
        return HeadFacts(tokens=shape[1]), len(outputs)
    head = HeadFacts(tuple(logits.shape), shape[1])
    if head.last_only:
        head = _asked_for_all(module, small, head, counted)
        if head.targets is None:
            return head, len(outputs)
        small = replace(small, tensors={**small.tensors, head.targets: rolled(ids)})
        logits = find_logits(outputs[-1], module, shape)
    assert logits is not None
    causal = True
    if not flags or not all(flags):
        exchanged = ids.clone()
        exchanged[:, -1] = (ids[:, -1] + 1) % (vocabulary_size(module) or int(ids.max()) + 1)
        other = replace(small, tensors={**small.tensors, ids_name(module): exchanged})
        after = find_logits(counted(other), module, shape)
        causal = after is not None and not moves_earlier(logits, after)
    return replace(head, causal=causal), len(outputs)


def _asked_for_all(
    module: nn.Module, small: Inputs, head: HeadFacts, run_once: Callable[[Inputs], Any]
) -> HeadFacts:
    """The head with the argument under which the model returns all logits, or why there is none."""
    ids = small.tensors[ids_name(module)]
    names = [name for name in ("targets", "labels", "target") if name in forward_names(module)]
    if not names:
        return replace(head, refusal="and its forward takes no targets")
    try:
        output = run_once(replace(small, tensors={**small.tensors, names[0]: rolled(ids)}))
    except Exception as error:
        # Any error of the model, which `call` may have wrapped: it may want other targets.
        cause = error.__cause__ if isinstance(error, InputError) and error.__cause__ else error
        why = f"and with {names[0]} it raises {type(cause).__name__}: {words_of(cause)}"
        why = why.removesuffix(".")
        return replace(head, refusal=why)
    logits = find_logits(output, module, (ids.shape[0], ids.shape[1]))
    if logits is None or logits.shape[1] != ids.shape[1]:
        return replace(head, refusal=f"also with {names[0]}")
    return replace(head, targets=names[0])
