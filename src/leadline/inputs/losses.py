"""The number that is differentiated.

    next-token         mean cross-entropy of token t+1 given the tokens up to t
    masked             mean cross-entropy of 15 % of the tokens, which a mask token replaced
    random cotangent   sum of c y / sqrt(number of terms), c standard normal from a seed, y the
                       main output: a gradient for models that have no such head
    user               what a function of the user returns

Padding is left out of all but the last. The choice under "auto" follows the head of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leadline.errors import InputError
from leadline.inputs.batch import Inputs
from leadline.inputs.model_facts import (
    ids_name,
    is_pair,
    special_ids,
    text_configuration,
    unwrapped,
    vocabulary_size,
)

__all__ = ["Loss", "choose_loss"]

MASKED_SHARE = 0.15
_IGNORED = -100


@dataclass(frozen=True)
class Loss:
    """What is differentiated: its kind, why it was chosen, and how it is computed."""

    kind: str
    reason: str
    compute: Callable[[Any, Inputs], Tensor]
    seed: int | None = None


def choose_loss(
    model: nn.Module,
    inputs: Inputs,
    loss: str | Callable[..., Tensor] = "auto",
    *,
    seed: int = 0,
    mask_token_id: int | None = None,
) -> tuple[Loss, Inputs]:
    """The loss, and the inputs it goes with: the masked loss replaces some tokens.

    The mask token is `mask_token_id`, else the tokenizer's or the configuration's. For random
    tokens, where none is known, the last id of the vocabulary stands for it.
    """
    if callable(loss):
        return Loss("user", "a function was given", _user(loss)), inputs
    known = ("auto", "next-token", "masked", "random")
    if loss not in known:
        raise InputError(f"No loss is called {loss!r}. Known: {', '.join(known)}, or a function.")
    if loss == "auto":
        loss, reason = _by_head(model, inputs, mask_token_id)
    else:
        reason = "it was asked for"
    if loss == "next-token":
        _targets(inputs, pair=is_pair(model), name=ids_name(model))
        return Loss("next-token", reason, _next_token(model)), inputs
    if loss == "masked":
        return Loss("masked", reason, _masked, seed), _with_masks(
            model, inputs, seed=seed, mask_token_id=mask_token_id
        )
    return Loss("random cotangent", reason, _random_cotangent(seed), seed), inputs


def _by_head(model: nn.Module, inputs: Inputs, mask_token_id: int | None) -> tuple[str, str]:
    inner = unwrapped(model)
    own = getattr(inner, "objective", None)
    if own in ("next-token", "masked"):
        if own == "masked" and not _masks(model, inputs, mask_token_id):
            return "random", "the model predicts masked words, but no mask token is known"
        if own == "next-token" and inputs.labels is None and _length(inputs) < 2:
            return "random", "one token has no next one"
        return own, "the model says so itself"
    if not hasattr(inner, "config") or not type(inner).__module__.startswith("transformers"):
        return "random", "the model is not of transformers, so its head is not known"
    ids = inputs.tensors.get("decoder_input_ids" if is_pair(model) else "input_ids")
    heads = _heads(type(inner).__name__)
    if ids is None or not heads:
        return "random", "the model has no language head"
    if ids.ndim != 2:
        return "random", "the model predicts several ids at every place"
    if is_pair(model) or heads == {"causal"}:
        if getattr(inner.config, "attn_type", None) == "bi":
            return "random", "the model sees the tokens that it would have to predict"
        if ids.shape[1] < 2 and inputs.labels is None:
            return "random", "one token has no next one"
        return "next-token", "the model has a causal language head"
    if inputs.labels is not None or _mask_token(model, inputs, mask_token_id) is not None:
        return "masked", "the model has a masked language head"
    if inputs.kind == "random tokens":
        return "masked", "the model has a masked language head; the last id stands for the mask"
    return "random", "the model has a masked language head, but no mask token is known"


def _masks(model: nn.Module, inputs: Inputs, mask_token_id: int | None) -> bool:
    """Whether there is something to mask words with; for random tokens the last id will do."""
    known = _mask_token(model, inputs, mask_token_id) is not None
    return known or inputs.labels is not None or inputs.kind == "random tokens"


def _length(inputs: Inputs) -> int:
    ids = inputs.tensors.get("input_ids")
    return 0 if ids is None else ids.shape[1]


def _heads(class_name: str) -> set[str]:
    """Whether transformers lists a class among causal, masked and paired language models."""
    from transformers.models.auto import modeling_auto

    tables = {
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "causal",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": "causal",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "causal",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "causal",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked",
    }
    found: set[str] = set()
    for table, head in tables.items():
        for names in getattr(modeling_auto, table, {}).values():
            if class_name in ((names,) if isinstance(names, str) else names):
                found.add(head)
    return found


# Next token ---------------------------------------------------------------------------------------


def _next_token(model: nn.Module) -> Callable[[Any, Inputs], Tensor]:
    pair, name = is_pair(model), ids_name(model)

    def compute(output: Any, inputs: Inputs) -> Tensor:
        targets = _targets(inputs, pair=pair, name=name)
        return _mean_cross_entropy(_logits(output), targets)

    return compute


def _targets(inputs: Inputs, *, pair: bool, name: str) -> Tensor:
    """For each real position the real id that follows it, -100 elsewhere."""
    if inputs.labels is not None and pair:
        return inputs.labels
    ids = inputs.tensors.get("decoder_input_ids" if pair else name)
    if ids is None or ids.is_floating_point() or ids.ndim != 2:
        raise InputError("The next-token loss needs token ids; ask for the random cotangent.")
    given = ids if inputs.labels is None else inputs.labels
    mask = inputs.decoder_mask if pair else inputs.mask
    if mask is not None:
        given = given.masked_fill(~mask, _IGNORED)
    targets = torch.full_like(given, _IGNORED)
    targets[:, :-1] = given[:, 1:]
    if mask is not None:
        # With padding on the left the first real token would be predicted from a padded one.
        targets = targets.masked_fill(~mask, _IGNORED)
    if not bool((targets != _IGNORED).any()):
        raise InputError(
            "The next-token loss needs an example of at least two tokens; give a longer text."
        )
    return targets


def _mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != 3 or logits.shape[:2] != targets.shape:
        raise InputError(
            f"The model returned logits of shape {list(logits.shape)} for tokens of shape "
            f"{list(targets.shape)}; ask for the random cotangent."
        )
    # In float32 also for half-precision models: the sum runs over the whole vocabulary.
    return cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=_IGNORED)


def _logits(output: Any) -> Tensor:
    found = getattr(output, "logits", None)
    if found is None:
        found = output[0] if isinstance(output, list | tuple) else output
    if not isinstance(found, Tensor):
        raise InputError("The model returned no logits; ask for the random cotangent.")
    return found


# Masked tokens ------------------------------------------------------------------------------------


def _masked(output: Any, inputs: Inputs) -> Tensor:
    if inputs.labels is None:
        raise InputError("The masked loss needs the inputs that choose_loss returned with it.")
    return _mean_cross_entropy(_logits(output), inputs.labels)


def _mask_token(model: nn.Module, inputs: Inputs, given: int | None) -> int | None:
    config = text_configuration(model)
    size = vocabulary_size(model)
    for value in (given, inputs.mask_token_id, getattr(config, "mask_token_id", None)):
        if isinstance(value, int) and (size is None or 0 <= value < size):
            return value
    return None


def _with_masks(
    model: nn.Module, inputs: Inputs, *, seed: int, mask_token_id: int | None
) -> Inputs:
    """Replace 15 % of each example's tokens, at least one; labels are the ids that stood there."""
    if inputs.labels is not None:
        return inputs
    name = ids_name(model)
    ids = inputs.tensors.get(name)
    if ids is None or ids.is_floating_point() or ids.ndim != 2:
        raise InputError("The masked loss needs token ids; ask for the random cotangent.")
    token = _mask_token(model, inputs, mask_token_id)
    if token is None and inputs.kind == "random tokens":
        # Random tokens mean nothing, so any id can stand where a tokenizer would put its own.
        token = (vocabulary_size(model) or 1) - 1
    if token is None:
        raise InputError(
            "The masked loss needs a mask token, and neither tokenizer nor configuration names "
            "one; give mask_token_id or ask for the random cotangent."
        )
    ids = ids.cpu()
    eligible = torch.ones_like(ids, dtype=torch.bool) if inputs.mask is None else inputs.mask.cpu()
    special = torch.tensor(sorted(special_ids(model) | {token}))
    ordinary = eligible & ~torch.isin(ids, special)
    # An example of special tokens only still has to give something to predict.
    eligible = torch.where(ordinary.any(dim=1, keepdim=True), ordinary, eligible)
    score = torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed))
    rank = score.masked_fill(~eligible, 2.0).argsort(dim=1).argsort(dim=1)
    count = (MASKED_SHARE * eligible.sum(dim=1, keepdim=True)).round().clamp(min=1)
    chosen = (rank < count) & eligible
    labels = ids.masked_fill(~chosen, _IGNORED)
    replaced = ids.masked_fill(chosen, token)
    device = inputs.tensors[name].device
    return replace(
        inputs,
        tensors={**inputs.tensors, name: replaced.to(device)},
        labels=labels.to(device),
    )


# Random cotangent and user ------------------------------------------------------------------------


def _random_cotangent(seed: int) -> Callable[[Any, Inputs], Tensor]:
    def compute(output: Any, inputs: Inputs) -> Tensor:
        main = main_output(output)
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(main.shape, generator=generator).to(main.device)
        terms = main.numel()
        for mask in (inputs.decoder_mask, inputs.mask):
            if mask is not None and main.shape[:2] == mask.shape:
                weights = weights * mask.reshape(*mask.shape, *[1] * (main.ndim - 2))
                terms = int(mask.sum()) * math.prod(main.shape[2:])
                break
        return (weights * main.float()).sum() / math.sqrt(terms)

    return compute


def main_output(output: Any) -> Tensor:
    """The last hidden state, else the logits, else the first tensor of real numbers."""
    for name in ("last_hidden_state", "logits"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    found = _first_real(output)
    if found is None:
        raise InputError(
            f"The model returned a {type(output).__name__} without a tensor of real numbers."
        )
    return found


def _first_real(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if hasattr(value, "values"):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            found = _first_real(item)
            if found is not None:
                return found
    return None


def _user(function: Callable[..., Tensor]) -> Callable[[Any, Inputs], Tensor]:
    def compute(output: Any, inputs: Inputs) -> Tensor:
        value = function(output, inputs)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"The loss function returned {shape}; it must return one number.")
        return value.reshape(())

    return compute
