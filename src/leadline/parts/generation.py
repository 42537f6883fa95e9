"""Text, token by token: greedy or sampled, with the keys and values of earlier tokens kept.

    probability of a token ~ exp(logit / temperature)

Temperature 0 takes the largest logit. `top_k` leaves the k largest logits (and those equal to the
k-th), `top_p` then the fewest tokens whose probabilities reach p together (Holtzman et al. 2019,
arXiv 1904.09751). Each call draws from a generator of its own.

With a cache a step costs one token's work and the attention over all earlier ones; without it,
the whole text is computed again. Both give the same text. Padding stands on the left, where
`attention_mask` is 0: positions then count from the first real token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.parts.transformer import Transformer

__all__ = ["Cache", "generate", "probabilities"]


class Cache:
    """Keys and values of every layer, [example, group, token, head width], `size` tokens at most.

    `length` tokens are held; the model itself counts it up after each pass. For inference only:
    gradients do not pass through.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.length = 0
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the new tokens of a layer; return its keys and values so far."""
        end = self.length + key.shape[2]
        if end > self.size:
            raise InputError(
                f"The cache holds {self.size} tokens and was given {end}; make a larger one."
            )
        if layer not in self.layers:
            self.layers[layer] = (self._empty(key), self._empty(value))
        keys, values = self.layers[layer]
        keys[:, :, self.length : end] = key.detach()
        values[:, :, self.length : end] = value.detach()
        return keys[:, :, :end], values[:, :, :end]

    def _empty(self, like: Tensor) -> Tensor:
        examples, groups, _, width = like.shape
        return like.new_empty(examples, groups, self.size, width)


def generate(
    model: Transformer,
    ids: Tensor,
    *,
    steps: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop: int | Sequence[int] | None = None,
    attention_mask: Tensor | None = None,
    cache: bool = True,
) -> Tensor:
    """The ids [example, token] followed by `steps` new ones, fewer where all examples stopped.

    An example ends with the first token of `stop` that it generates, and is filled up with it.
    """
    _check_model(model)
    _check_ids(model, ids, steps, attention_mask)
    _check_sampling(temperature, top_k, top_p)
    attention_mask = None if attention_mask is None else attention_mask.long()
    stops = torch.tensor([] if stop is None else stop, dtype=ids.dtype, device=ids.device)
    generator = torch.Generator(device=ids.device).manual_seed(seed)
    past = Cache(ids.shape[1] + steps) if cache else None
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    with torch.no_grad(), _evaluating(model):
        for _ in range(steps):
            logits = _last_logits(model, ids, attention_mask, past)
            next_ids = _choose(logits, temperature, top_k=top_k, top_p=top_p, generator=generator)
            next_ids = torch.where(ended, ids[:, -1], next_ids.to(ids.dtype))
            ids = torch.cat((ids, next_ids[:, None]), 1)
            if attention_mask is not None:
                attention_mask = torch.cat(
                    (attention_mask, attention_mask.new_ones(len(ids), 1)), 1
                )
            ended = ended | torch.isin(next_ids, stops)
            if bool(ended.all()):
                break
    return ids


def probabilities(
    logits: Tensor, temperature: float, *, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Return what is sampled from: softmax(logits / temperature) over the remaining tokens."""
    # Relative to the largest: a tiny temperature then gives minus infinity, not NaN.
    wide = logits.double()
    scaled = ((wide - wide.amax(-1, keepdim=True)) / temperature).float()
    if top_k is not None and top_k < scaled.shape[-1]:
        least = scaled.topk(top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, -math.inf)
    shares = scaled.softmax(-1)
    if top_p is not None and top_p < 1.0:
        ordered, order = shares.sort(dim=-1, descending=True, stable=True)
        # A token stays while those before it do not reach p.
        before = ordered.cumsum(-1) - ordered
        nucleus = torch.empty_like(ordered).scatter_(
            -1, order, ordered.masked_fill(before >= top_p, 0.0)
        )
        shares = nucleus / nucleus.sum(-1, keepdim=True)
    return shares


def _last_logits(
    model: Transformer, ids: Tensor, mask: Tensor | None, past: Cache | None
) -> Tensor:
    """The logits of the next token, [example, vocabulary]."""
    start = 0 if past is None else past.length
    positions = None
    if mask is not None:
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, start:]
    x = model.stream(ids[:, start:], mask, cache=past, positions=positions)
    logits = model.head(x[:, -1:], model._table())[:, 0]
    if not bool(torch.isfinite(logits).all()):
        raise InputError(
            f"The logits after {ids.shape[1]} tokens are not finite, so no token can be chosen; "
            "check the weights, or use float32."
        )
    return logits


def _choose(
    logits: Tensor,
    temperature: float,
    *,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator,
) -> Tensor:
    if temperature == 0.0:
        return logits.argmax(-1)
    shares = probabilities(logits, temperature, top_k=top_k, top_p=top_p)
    return torch.multinomial(shares, 1, generator=generator)[:, 0]


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_model(model: Transformer) -> None:
    if model.causal is False:
        raise InputError(
            "A bidirectional model cannot generate: its tokens see those after them; build it "
            "with attention multihead(causal=true)."
        )
    for exists, part in (
        (model.head.gives_logits, "head"),
        (model.embedding.takes_ids, "embedding"),
    ):
        if not exists:
            raise InputError(f"A model without {part} cannot generate: its {part} is none.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_ids(model: Transformer, ids: Tensor, steps: int, mask: Tensor | None) -> None:
    if not isinstance(ids, Tensor):
        raise InputError(f"The ids are a {type(ids).__name__}; give a tensor [example, token].")
    if (
        ids.ndim != 2
        or len(ids) == 0
        or ids.shape[1] == 0
        or ids.dtype not in (torch.int32, torch.int64)
    ):
        raise InputError(
            f"The ids are {list(ids.shape)} of {ids.dtype}; give whole numbers [example, token], "
            "one example and one token at least."
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise InputError(f"steps is {steps!r}; give a whole number from 0 on.")
    size = model.recipe.vocabulary
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise InputError(
            f"The ids reach from {int(ids.min())} to {int(ids.max())}, and the vocabulary from 0 "
            f"to {size - 1}; use the tokenizer of this model."
        )
    limit = model.context_limit
    if limit is not None and ids.shape[1] + steps > limit:
        raise InputError(
            f"The model has positions for {limit} tokens, and {ids.shape[1]} with {steps} more "
            f"were asked for; ask for at most {max(0, limit - ids.shape[1])} more."
        )
    if mask is None:
        return
    if mask.shape != ids.shape or not bool((mask[:, -1] == 1).all()):
        raise InputError(
            "The attention mask must have the shape of the ids and hold 0 at padding on the left "
            "only: each text ends at the last column, where the new tokens follow."
        )
    if bool((mask[:, 1:] < mask[:, :-1]).any()):
        raise InputError("The attention mask has a 0 after a 1; padding stands on the left only.")


def _check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not _is_number(temperature) or not (math.isfinite(temperature) and temperature >= 0.0):
        raise InputError(
            f"The temperature is {temperature!r}; give 0 (greedy) or a number above it."
        )
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise InputError(f"top_k is {top_k!r}; give a whole number from 1 on, or none.")
    if top_p is not None and (not _is_number(top_p) or not 0.0 < top_p <= 1.0):
        raise InputError(f"top_p is {top_p!r}; give a number above 0 and up to 1, or none.")
