"""Find the logits in what a model returns, by their shape.

Logits over the vocabulary are [example, token, vocabulary], or the same with the first two axes
flattened. Models return them alone, in tuples, lists and mappings, and as attributes of objects. The
last axis is as long as the table of token ids, as the configuration says, or as a head whose rows
were padded to a multiple of a power of two. Where the stream is as wide as the vocabulary, only a
tensor with logits in its name counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import configured_model
from leadline.models.inputs.model_facts import token_embedding, virtual_tokens, vocabulary_size

__all__ = ["HeadFacts", "find_logits", "moves_earlier", "real_tensors", "rolled"]

_MULTIPLES = tuple(2**power for power in range(3, 11))
"""Heads may be padded to a multiple of one of these."""
_MOST_PADDING = 1.3
"""A padded head has at most this many times as many rows as the vocabulary has tokens."""
_DEEPEST = 4
"""Containers nested deeper than this are not searched."""


@dataclasses.dataclass(frozen=True)
class HeadFacts:
    """What a forward pass shows about the head of a model whose class does not name it.

    `shape` is that of the logits over the vocabulary, None without any; `tokens` says how many
    tokens were fed. `targets` is the argument of `forward` without which only the logits of the
    last token are returned, and `refusal` is why there is none that helps.
    """

    shape: tuple[int, ...] | None = None
    tokens: int = 0
    causal: bool | None = None
    targets: str | None = None
    refusal: str = ""

    @property
    def last_only(self) -> bool:
        """Whether there are logits, but of the last token alone."""
        return self.shape is not None and self.shape[1] == 1 and self.tokens > 1


def find_logits(output: Any, model: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
    """The logits for token ids of that shape, [example, token, vocabulary] or [example, 1, ...].

    A model with tuned prompts before the text returns logits for these, too; they are left out.
    """
    if len(shape) != 2:
        return None
    examples, tokens = shape
    table = token_embedding(model)
    size = vocabulary_size(model)
    widths = {one for one in (size, table and table.num_embeddings) if one}
    possible: list[tuple[int, Tensor]] = []
    for name, tensor in real_tensors(output):
        flat = tensor.ndim == 2 and tokens > 1 and tensor.shape[0] == examples * tokens
        rows = tensor.unflatten(0, (examples, tokens)) if flat else tensor
        if rows.ndim != 3 or rows.shape[0] != examples:
            continue
        # All modules are walked through only where the table does not say it.
        if rows.shape[2] not in widths and not _is_vocabulary(rows.shape[2], size, model):
            continue
        rank = _rank(name)
        if rank == _NAMELESS and table is not None and rows.shape[2] == table.embedding_dim:
            continue
        if rows.shape[1] == tokens + virtual_tokens(model):
            possible.append((rank, rows[:, -tokens:]))
        elif rows.shape[1] in (tokens, 1):
            possible.append((rank, rows))
    # Those for all tokens before those for the last one, and those with the name before others.
    possible.sort(key=lambda one: (one[1].shape[1] != tokens, one[0]))
    return possible[0][1] if possible else None


_NAMELESS = 3


def _rank(name: str) -> int:
    """How surely a name says that a tensor holds the logits: other heads are called so, too."""
    for rank, logits_name in enumerate(("logits", "lm_logits")):
        if name == logits_name:
            return rank
    return _NAMELESS - 1 if "logits" in name else _NAMELESS


def real_tensors(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of real numbers in what a model returned, with the name it has there."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name, value
        return
    if depth >= _DEEPEST or value is None or isinstance(value, nn.Module | str | bytes):
        return
    if isinstance(value, Mapping):
        parts = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list | tuple):
        fields = getattr(value, "_fields", None) or [name] * len(value)
        parts = list(zip(fields, value, strict=True))
    elif isinstance(value, type) or callable(value):
        return
    else:
        dataclass_fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        names = [field.name for field in dataclass_fields] or list(getattr(value, "__dict__", {}))
        parts = [(one, getattr(value, one)) for one in names]
    for key, inner in parts:
        yield from real_tensors(inner, key, depth + 1)


def _is_vocabulary(width: int, size: int | None, model: nn.Module) -> bool:
    """Whether a head has so many rows, those of the vocabulary and padding."""
    if not size or not size <= width <= _MOST_PADDING * size:
        return False
    if all(width != -(-size // multiple) * multiple for multiple in _MULTIPLES):
        return False
    modules = configured_model(model).modules()
    return any(isinstance(one, nn.Linear) and one.out_features == width for one in modules)


def moves_earlier(before: Tensor, after: Tensor) -> bool:
    """Whether logits differ before the last token, which is the only one that was exchanged."""
    first, second = before[:, :-1].float(), after[:, :-1].float()
    # Rounding of convolutions by Fourier transforms stays below; one token of many stays above.
    return bool((first - second).abs().max() > 3e-6 * first.abs().max().clamp_min(1e-30))


def rolled(ids: Tensor) -> Tensor:
    """Each id's successor, with the first id for the last token: ids that any model can take."""
    return torch.roll(ids, -1, dims=1)
