"""One batch: tensors by name, the mask of real tokens, and where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from leadline.errors import InputError, as_whole_number, shown, words_of

__all__ = ["Inputs", "check_ids", "check_length", "pad_rows", "preview_of_ids", "shorten"]

_PREVIEW = 80


@dataclass(frozen=True)
class Inputs:
    """Arguments of `model.forward` by name, with the facts that a record keeps about them.

    `mask` and `decoder_mask` are [example, token], True where a token is real; None means that
    all are. `labels` are target ids in the sense of transformers: those of the tokens themselves,
    below 0 where nothing is asked. `targets` are those of the tokens that follow.
    `made` says that the tensors are Leadline's own work, drawn from a seed or made for the command
    line: then a model that refuses them is an input error, not an exception of the user's own.
    """

    tensors: Mapping[str, Tensor]
    mask: Tensor | None = None
    kind: str = "tensor"
    seed: int | None = None
    preview: str = ""
    labels: Tensor | None = None
    targets: Tensor | None = None
    decoder_mask: Tensor | None = None
    mask_token_id: int | None = None
    made: bool = False
    rows: tuple[int, int] | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, shapes, number types and contents."""
        total = hashlib.sha256()
        for name in sorted(self.tensors):
            tensor = self.tensors[name].detach().cpu().contiguous()
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return total.hexdigest()

    @property
    def main(self) -> Tensor:
        """The token ids where there are some, else the first tensor."""
        if "input_ids" in self.tensors:
            return self.tensors["input_ids"]
        return next(iter(self.tensors.values()))

    def drawn(self, draw: Callable[..., Tensor], shape: Sequence[int], seed: int) -> Tensor:
        """Random numbers for these examples: those that the larger batch would draw for them."""
        generator = torch.Generator().manual_seed(seed)
        if self.rows is None or not shape or shape[0] != self.main.shape[0]:
            return draw(tuple(shape), generator=generator)
        first, total = self.rows
        return draw((total, *shape[1:]), generator=generator)[first : first + shape[0]]

    def to(self, device: torch.device | str) -> Inputs:
        """The same inputs on another device."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(target)

        try:
            target = torch.device(device)
        except (RuntimeError, TypeError) as error:
            # torch's own words list every kind of device that it could be built for.
            raise InputError(
                f"The inputs cannot be put on the device {shown(device)}, which torch does not "
                "know; give one such as 'cpu', 'cuda:0' or 'mps'."
            ) from error
        try:
            return replace(
                self,
                tensors={name: tensor.to(target) for name, tensor in self.tensors.items()},
                mask=moved(self.mask),
                labels=moved(self.labels),
                targets=moved(self.targets),
                decoder_mask=moved(self.decoder_mask),
            )
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"The inputs cannot be put on the device '{target}': "
                f"{words_of(error, first_line=True)}"
            ) from error

    def summary(self) -> dict[str, Any]:
        """What a record's provenance says of the input; tokens are counted where there are ids."""
        is_tokens = not self.main.is_floating_point() and self.main.ndim == 2
        tokens = longest = None
        padded = 0
        if self.mask is not None:
            tokens, longest = int(self.mask.sum()), int(self.mask.sum(dim=1).max())
            padded = self.mask.numel() - tokens
        elif is_tokens:
            tokens, longest = self.main.numel(), self.main.shape[1]
        return {
            "kind": self.kind,
            "examples": self.main.shape[0] if self.main.ndim else 1,
            "tokens": tokens,
            "longest": longest,
            "padded": padded,
            "digest": self.digest,
            "seed": self.seed,
            "text_preview": self.preview,
        }


def check_ids(rows: Sequence[Sequence[int]], vocabulary: int | None) -> None:
    """Refuse an id that the vocabulary does not have, and say where it stands."""
    for example, row in enumerate(rows, start=1):
        for position, token in enumerate(row, start=1):
            if as_whole_number(token) is None:
                raise InputError(
                    f"{shown(token)} (example {example}, token {position}) is not a token id; ids "
                    "are whole numbers."
                )
            if token < 0 or (vocabulary is not None and token >= vocabulary):
                size = f" of {vocabulary} tokens (0 to {vocabulary - 1})" if vocabulary else ""
                raise InputError(
                    f"Token id {token} (example {example}, token {position}) is outside the "
                    f"vocabulary{size}; use the tokenizer that belongs to this model, or random "
                    "tokens (leadline.random_tokens, --random 4x128)."
                )


def check_length(longest: int, limit: int | None, *, what: str) -> None:
    """Refuse more tokens than the model has positions for."""
    if limit is not None and longest > limit:
        raise InputError(
            f"{what} has {longest} tokens and the model takes at most {limit}; shorten it, or cut "
            f"it with --truncate (in Python truncate=True, or ids[:, :{limit}])."
        )


def pad_rows(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor | None]:
    """Rows of ids as one tensor, padded on the right, and the mask if there is any padding."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])
    if all(len(row) == longest for row in rows):
        return ids, None
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(longest) < lengths[:, None]


def shorten(text: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW else line[: _PREVIEW - 1] + "…"


def preview_of_ids(ids: Tensor) -> str:
    """The first ids of the first example."""
    row = ids.reshape(-1, ids.shape[-1])[0] if ids.numel() else ids.reshape(-1)
    return " ".join(str(int(token)) for token in row[:12]) + (" …" if len(row) > 12 else "")
