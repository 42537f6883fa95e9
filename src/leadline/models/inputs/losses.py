"""The number that is differentiated.

    next-token         mean cross-entropy of token t+1 given the tokens up to t
    masked             mean cross-entropy of 15 % of the tokens, which a mask token replaced
    random cotangent   sum of c y / sqrt(number of terms), c standard normal from a seed, y the
                       main output: a gradient for models that have no such head
    user               what a function of the user returns

Padding is left out of all but the last. The choice under "auto" follows the head of the model: what
transformers says of its class; for other models, what a forward pass showed (`HeadFacts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leadline.anatomy import configured_model
from leadline.anatomy.tensors import check_dense
from leadline.errors import InputError, check_function, shown
from leadline.models.inputs.batch import Inputs
from leadline.models.inputs.logits import HeadFacts, find_logits, real_tensors, rolled
from leadline.models.inputs.model_facts import (
    ids_name,
    is_pair,
    special_ids,
    text_configuration,
    vocabulary_size,
)

__all__ = ["Loss", "choose_loss", "head_is_unknown"]

MASKED_SHARE = 0.15
"""The share of tokens that the masked loss replaces."""
_IGNORED = -100
_ASK_FOR_RANDOM = "ask for the random cotangent (loss='random', --loss random)"


@dataclass(frozen=True)
class Loss:
    """What is differentiated: its kind, why it was chosen, and how it is computed.

    That of a batch is the sum of those of its parts, each times (terms of the part / all terms) to
    the power of `power`.
    """

    kind: str
    reason: str
    compute: Callable[[Any, Inputs], Tensor]
    seed: int | None = None
    terms: Callable[[Any, Inputs], int] = lambda output, inputs: 1
    power: float = 1.0


def choose_loss(
    model: nn.Module,
    inputs: Inputs,
    loss: str | Callable[..., Tensor] = "auto",
    *,
    seed: int = 0,
    mask_token_id: int | None = None,
    head: HeadFacts | None = None,
) -> tuple[Loss, Inputs]:
    """The loss, and the inputs it goes with: the masked loss replaces some tokens.

    `head` is what a pass showed of a model for which `head_is_unknown`. The mask token is
    `mask_token_id`, else the tokenizer's or the configuration's. For random tokens, where none is
    known, the last id of the vocabulary stands for it.
    """
    if callable(loss):
        check_function(loss, "loss", ("output", "inputs"))
        return Loss("user", "a function was given", _user(loss)), inputs
    names = ("auto", "next-token", "masked", "random")
    if loss not in names:
        raise InputError(
            f"No loss is called {loss!r}. Known: {', '.join(names)}; in Python also a function of "
            "output and inputs."
        )
    if loss == "auto":
        loss, reason = _by_head(model, inputs, mask_token_id, head)
    else:
        reason = "it was asked for"
    if loss == "next-token":
        _targets(inputs, pair=is_pair(model), name=ids_name(model))
        compute, terms = _next_token(model)
        return Loss("next-token", reason, compute, terms=terms), _with_targets(model, inputs, head)
    if loss == "masked":
        compute, terms = _masked(model)
        return Loss("masked", reason, compute, seed, terms), _with_masks(
            model, inputs, seed=seed, mask_token_id=mask_token_id
        )
    compute, terms = _random_cotangent(seed)
    # Numbers of random signs add up to the root of how many there are.
    return Loss("random cotangent", reason, compute, seed, terms, power=0.5), inputs


def head_is_unknown(model: nn.Module, causal: bool | None = None) -> bool:
    """Whether only a forward pass can tell what the model predicts.

    True where neither the model nor the tables of transformers name its head, and where the tables
    name a causal head of a model that looks ahead (`causal` is False): BERT has such a class.
    """
    inner = configured_model(model)
    if getattr(inner, "objective", None) is not None:
        return False
    heads = _heads(inner)
    return not heads or (heads == {"causal"} and causal is False and not is_pair(model))


def _by_head(
    model: nn.Module, inputs: Inputs, mask_token_id: int | None, head: HeadFacts | None
) -> tuple[str, str]:
    inner = configured_model(model)
    objective = getattr(inner, "objective", None)
    if objective in ("next-token", "masked"):
        if objective == "masked" and not _masks(model, inputs, mask_token_id):
            return "random", "the model predicts masked words, but no mask token is known"
        if objective == "next-token" and inputs.labels is None and _length(inputs) < 2:
            return "random", "one token has no next one"
        return objective, "the model says so itself"
    heads = _heads(inner)
    if not heads:
        return _by_output(model, inputs, head)
    ids = inputs.tensors.get("decoder_input_ids" if is_pair(model) else "input_ids")
    if ids is None:
        return "random", "the model is not fed with token ids"
    if ids.ndim != 2:
        return "random", "the model predicts several ids at every place"
    if is_pair(model) or heads == {"causal"}:
        looks_ahead = head is not None and head.causal is False
        if looks_ahead or getattr(text_configuration(model), "attn_type", None) == "bi":
            return "random", "the model sees the tokens that it would have to predict"
        if ids.shape[1] < 2 and inputs.labels is None:
            return "random", "one token has no next one"
        return "next-token", "the model has a causal language head"
    if inputs.labels is not None or _mask_token(model, inputs, mask_token_id) is not None:
        return "masked", "the model has a masked language head"
    if inputs.kind == "random tokens":
        return "masked", "the model has a masked language head; the last id stands for the mask"
    return "random", "the model has a masked language head, but no mask token is known"


def _by_output(model: nn.Module, inputs: Inputs, head: HeadFacts | None) -> tuple[str, str]:
    """The choice for an unknown class, by what a forward pass returned."""
    ids = inputs.tensors.get(ids_name(model))
    if ids is None or ids.is_floating_point() or ids.ndim != 2:
        return "random", "the model is not fed with token ids"
    if head is None or head.shape is None:
        size = vocabulary_size(model)
        over = "a vocabulary" if size is None else f"its vocabulary of {size:,} tokens"
        return "random", f"the model has no language head: it returns no logits over {over}"
    if head.last_only and head.targets is None:
        return "random", (
            f"the model returns the logits of the last token only, {list(head.shape)} for "
            f"{head.tokens} tokens, {head.refusal}"
        )
    if head.causal is False:
        return "random", (
            "the model returns logits over its vocabulary, but sees the tokens that it would have "
            "to predict; if it predicts masked words, ask for loss='masked' (--loss masked)"
        )
    if ids.shape[1] < 2 and inputs.labels is None and inputs.targets is None:
        return "random", "one token has no next one"
    return "next-token", "the model is causal and returns logits over its vocabulary"


def _masks(model: nn.Module, inputs: Inputs, mask_token_id: int | None) -> bool:
    """Whether there is something to mask words with; for random tokens the last id will do."""
    has_mask_token = _mask_token(model, inputs, mask_token_id) is not None
    return has_mask_token or inputs.labels is not None or inputs.kind == "random tokens"


def _length(inputs: Inputs) -> int:
    ids = inputs.tensors.get("input_ids")
    return 0 if ids is None else ids.shape[1]


def _heads(model: nn.Module) -> set[str]:
    """Whether transformers lists a model's class among causal, masked and paired language models."""
    name = type(model).__name__
    if not hasattr(model, "config") or not type(model).__module__.startswith("transformers"):
        return set()
    from transformers.models.auto import modeling_auto

    tables = {
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "causal",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": "causal",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "causal",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "causal",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked",
    }
    return {
        head
        for table, head in tables.items()
        for names in getattr(modeling_auto, table, {}).values()
        if name in ((names,) if isinstance(names, str) else names)
    }


# Next token ---------------------------------------------------------------------------------------


_Compute = Callable[[Any, Inputs], Tensor]
_Terms = Callable[[Any, Inputs], int]


def _next_token(model: nn.Module) -> tuple[_Compute, _Terms]:
    pair, name = is_pair(model), ids_name(model)

    def compute(output: Any, inputs: Inputs) -> Tensor:
        targets = _targets(inputs, pair=pair, name=name)
        return _mean_cross_entropy(_logits(output, model, targets), targets)

    def terms(output: Any, inputs: Inputs) -> int:
        return int((_targets(inputs, pair=pair, name=name) >= 0).sum())

    return compute, terms


def _with_targets(model: nn.Module, inputs: Inputs, head: HeadFacts | None) -> Inputs:
    """Add targets for a model that returns all logits only then; its own loss is not used."""
    if head is None or head.targets is None or head.targets in inputs.tensors:
        return inputs
    following = rolled(inputs.tensors[ids_name(model)])
    return replace(inputs, tensors={**inputs.tensors, head.targets: following})


def _targets(inputs: Inputs, *, pair: bool, name: str) -> Tensor:
    """For each real position the real id that follows it, -100 elsewhere."""
    if inputs.labels is not None and pair:
        return _target_ids(inputs.labels)
    if inputs.targets is not None:
        return _target_ids(inputs.targets)
    ids = inputs.tensors.get("decoder_input_ids" if pair else name)
    if ids is None or ids.is_floating_point() or ids.ndim != 2:
        raise InputError(f"The next-token loss needs token ids; {_ASK_FOR_RANDOM}.")
    labels = (ids if inputs.labels is None else inputs.labels).long()  # -100 is no byte
    if labels.shape != ids.shape:
        raise InputError(
            f"The labels have the shape {list(labels.shape)} and the token ids {list(ids.shape)}; "
            "both must be [example, token]."
        )
    mask = inputs.decoder_mask if pair else inputs.mask
    if mask is not None:
        labels = labels.masked_fill(~mask, _IGNORED)
    targets = torch.full_like(labels, _IGNORED)
    targets[:, :-1] = labels[:, 1:]
    if mask is not None:
        # With padding on the left the first real token would be predicted from a padded one.
        targets = targets.masked_fill(~mask, _IGNORED)
    if ids.shape[1] < 2 or (inputs.labels is None and not bool((targets != _IGNORED).any())):
        raise InputError(
            "The next-token loss needs an example of at least two tokens; give a longer text "
            f"(--text, --text-file, --tokens-file), or {_ASK_FOR_RANDOM}."
        )
    return _target_ids(targets)


def _target_ids(targets: Tensor) -> Tensor:
    """The targets with -100 where nothing is to be predicted: any number below zero may mean that."""
    targets = targets.long()
    if not bool((targets >= 0).any()):
        raise InputError(
            "No label is an id, so there is nothing to predict; give labels of at least one token, "
            f"or {_ASK_FOR_RANDOM}."
        )
    return targets.masked_fill(targets < 0, _IGNORED)


def _mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != 3 or logits.shape[:2] != targets.shape:
        raise InputError(
            f"The model returned logits of shape {list(logits.shape)} for tokens of shape "
            f"{list(targets.shape)}; {_ASK_FOR_RANDOM}."
        )
    if int(targets.max()) >= logits.shape[2]:
        raise InputError(
            f"The model returned {logits.shape[2]} numbers for each token, and the ids to predict "
            f"go up to {int(targets.max())}, so they are no logits over these ids; give labels of "
            f"the model's own vocabulary, or {_ASK_FOR_RANDOM}."
        )
    # In float32 also for half-precision models: the sum runs over the whole vocabulary.
    return cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten().long(), ignore_index=_IGNORED
    )


def _logits(output: Any, model: nn.Module, targets: Tensor) -> Tensor:
    logits = find_logits(output, model, tuple(targets.shape))
    if logits is None:
        # Not over the vocabulary that the model names: what is called logits, or comes first.
        logits = getattr(output, "logits", None)
    if logits is None:
        logits = output[0] if isinstance(output, list | tuple) and output else output
    if not isinstance(logits, Tensor):
        raise InputError(f"The model returned no logits; {_ASK_FOR_RANDOM}.")
    return logits


# Masked tokens ------------------------------------------------------------------------------------


def _masked(model: nn.Module) -> tuple[_Compute, _Terms]:
    def compute(output: Any, inputs: Inputs) -> Tensor:
        if inputs.labels is None:
            raise InputError("The masked loss needs the inputs that choose_loss returned with it.")
        targets = _target_ids(inputs.labels)
        return _mean_cross_entropy(_logits(output, model, targets), targets)

    def terms(output: Any, inputs: Inputs) -> int:
        return 0 if inputs.labels is None else int((inputs.labels >= 0).sum())

    return compute, terms


def _mask_token(model: nn.Module, inputs: Inputs, mask_token_id: int | None) -> int | None:
    config = text_configuration(model)
    size = vocabulary_size(model)
    for value in (mask_token_id, inputs.mask_token_id, getattr(config, "mask_token_id", None)):
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
        raise InputError(f"The masked loss needs token ids; {_ASK_FOR_RANDOM}.")
    token = _mask_token(model, inputs, mask_token_id)
    if token is None and inputs.kind == "random tokens":
        # Random tokens mean nothing, so any id can stand where a tokenizer would put its own.
        token = (vocabulary_size(model) or 1) - 1
    if token is None:
        raise InputError(
            "The masked loss needs a mask token, and neither tokenizer nor configuration names "
            f"one; use a tokenizer that has one, random tokens (leadline.random_tokens, --random "
            f"4x128), or {_ASK_FOR_RANDOM}."
        )
    ids = ids.cpu()
    eligible = torch.ones_like(ids, dtype=torch.bool) if inputs.mask is None else inputs.mask.cpu()
    special = torch.tensor(sorted(special_ids(model) | {token}))
    ordinary = eligible & ~torch.isin(ids, special)
    # An example of special tokens only still has to give something to predict.
    eligible = torch.where(ordinary.any(dim=1, keepdim=True), ordinary, eligible)
    score = inputs.drawn(torch.rand, ids.shape, seed)
    rank = score.masked_fill(~eligible, 2.0).argsort(dim=1).argsort(dim=1)
    count = (MASKED_SHARE * eligible.sum(dim=1, keepdim=True)).round().clamp(min=1)
    masked = (rank < count) & eligible
    labels = ids.masked_fill(~masked, _IGNORED)
    replaced = ids.masked_fill(masked, token)
    device = inputs.tensors[name].device
    return replace(
        inputs,
        tensors={**inputs.tensors, name: replaced.to(device)},
        labels=labels.to(device),
    )


# Random cotangent and user ------------------------------------------------------------------------


def _random_cotangent(seed: int) -> tuple[_Compute, _Terms]:
    def compute(output: Any, inputs: Inputs) -> Tensor:
        main = main_output(output)
        weights = inputs.drawn(torch.randn, main.shape, seed).to(main.device)
        mask = _mask_of(main, inputs)
        if mask is not None:
            weights = weights * mask.reshape(*mask.shape, *[1] * (main.ndim - 2))
        return (weights * main.float()).sum() / math.sqrt(terms(output, inputs))

    def terms(output: Any, inputs: Inputs) -> int:
        main = main_output(output)
        mask = _mask_of(main, inputs)
        return main.numel() if mask is None else int(mask.sum()) * math.prod(main.shape[2:])

    return compute, terms


def _mask_of(main: Tensor, inputs: Inputs) -> Tensor | None:
    """The mask of the real tokens of an output."""
    masks = (inputs.decoder_mask, inputs.mask)
    return next((m for m in masks if m is not None and main.shape[:2] == m.shape), None)


def main_output(output: Any) -> Tensor:
    """The last hidden state, else the logits, else the first tensor of real numbers."""
    for name in ("last_hidden_state", "logits"):
        named = getattr(output, name, None)
        if isinstance(named, Tensor):
            return named
    first = next(real_tensors(output), None)
    if first is None:
        raise InputError(
            f"The model returned a {type(output).__name__} without a tensor of real numbers; in "
            "Python, give a function of output and inputs as the loss."
        )
    return first[1]


def _user(function: Callable[..., Tensor]) -> Callable[[Any, Inputs], Tensor]:
    def compute(output: Any, inputs: Inputs) -> Tensor:
        value = function(output, inputs)
        if not isinstance(value, Tensor) or value.numel() != 1:
            what = (
                f"a tensor of shape {list(value.shape)}"
                if isinstance(value, Tensor)
                else shown(value)
            )
            raise InputError(
                f"The loss function returned {what}; it must return a tensor with one number."
            )
        check_dense(value, "What the loss function returned")
        if value.is_complex():
            raise InputError("The loss function returned a complex number; it must return a real.")
        return value.reshape(())

    return compute
