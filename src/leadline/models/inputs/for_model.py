"""The inputs that a model is called with: the caller's own, checked against `forward`, or random ones."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from leadline.errors import InputError
from leadline.models.inputs import Inputs, as_inputs, context_limit, random_inputs
from leadline.models.inputs.model_facts import ids_name

__all__ = ["batch_for", "has_ids"]


def batch_for(module: nn.Module, inputs: Any, seed: int, *, tokenizer: Any = None) -> Inputs:
    """The caller's inputs as Inputs; without any, four random examples of at most 128 tokens."""
    # Whatever mode the caller is in: autograd cannot keep what inference mode made.
    with torch.inference_mode(False):
        if inputs is None:
            length = min(128, context_limit(module) or 128)
            return random_inputs(module, length=length, seed=seed)
        batch = as_inputs(inputs, module, tokenizer=tokenizer)
        _check_names(module, batch)
        # The caller's own tensors must not collect gradients.
        return replace(
            batch,
            tensors={name: _apart(tensor) for name, tensor in batch.tensors.items()},
            mask=None if batch.mask is None else _apart(batch.mask),
            labels=None if batch.labels is None else _apart(batch.labels),
            targets=None if batch.targets is None else _apart(batch.targets),
            decoder_mask=None if batch.decoder_mask is None else _apart(batch.decoder_mask),
        )


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _check_names(module: nn.Module, batch: Inputs) -> None:
    """Refuse tensors that `forward` does not take, and too few of them.

    Decorators may take more than what they decorate says, and hooks may add to what is given.
    """
    if module._forward_pre_hooks:
        return
    try:
        inspect.signature(module.forward, follow_wrapped=False).bind(**batch.tensors)
    except TypeError as error:
        raise InputError(
            f"{type(module).__name__}.forward cannot be called with {', '.join(batch.tensors)}: "
            f"{error}. {_complete_call(module, batch)}"
        ) from error


def _complete_call(module: nn.Module, batch: Inputs) -> str:
    """The call to make instead, with the arguments that were given and those `forward` needs."""
    takes = {
        name: parameter
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    needed = [
        name
        for name, parameter in takes.items()
        if name in batch.tensors or parameter.default is parameter.empty
    ]
    ids = ids_name(module)
    values = [
        f"'{name}': {'ids' if name == ids and has_ids(module, batch) else 'tensor'}"
        for name in needed or list(takes)[:1]
    ]
    return (
        f"Give it what it takes in Python, leadline.measure(model, {{{', '.join(values)}}}); the "
        "command line can give tokens alone (--text, --tokens-file, --random 4x128)."
    )


def has_ids(module: nn.Module, batch: Inputs) -> bool:
    """Whether the batch gives the model token ids, [example, token]."""
    ids = batch.tensors.get(ids_name(module))
    return ids is not None and not ids.is_floating_point() and ids.ndim == 2
