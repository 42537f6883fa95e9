"""Variants of one example as the rows of one batch: what each row changes, and what moved.

    base, copy                   the example, twice
    middle, first, last          one token exchanged
    swap                         two neighbours near the end change places
    local middle, first, last    the same at the input of every attention module, one by one
    local swap                   likewise

A local row has the base's own values wherever an attention module begins, but for the token that is
changed there; so every layer is judged by itself, whatever the layers before it do. A row counts as
moved where it differs from the base by more than rounding: 32 eps of the largest value (4 eps in half
precision, where eps is large), or eight times what the copy differs by. 32 eps are also above what
convolutions by Fourier transforms leave before the token that was changed (about 25 eps).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.tokens.rounding import rounding
from leadline.models.inputs import Inputs
from leadline.models.inputs.model_facts import ids_name, is_pair, special_ids, vocabulary_size

__all__ = ["ROWS", "TokenRows", "moved", "token_rows"]

ROWS = (
    "base",
    "copy",
    "middle",
    "first",
    "last",
    "swap",
    "local middle",
    "local first",
    "local last",
    "local swap",
)
FEWEST_TOKENS = 6
"""Fewer tokens leave no room for a middle, two neighbours and an end."""
NOISE = 8.0


@dataclass(frozen=True)
class TokenRows:
    """The batch of variants of one input with tokens, and the places that they change."""

    name: str
    inputs: Inputs
    tokens: int
    middle: int
    first: int
    last: int
    pair: tuple[int, int]
    """The two neighbours that change places."""
    count: int
    """The number of rows, copies at the end included: never the number of tokens."""
    rows: tuple[str, ...] = ROWS
    """What the rows change, in their order."""

    def at(self, row: str) -> int:
        """The place of a row."""
        return self.rows.index(row)

    def local(self) -> TokenRows:
        """Only the rows that show what modules do alone."""
        rows = tuple(row for row in self.rows if row in ("base", "copy") or "local" in row)
        lengths = {value.shape[1] for value in self.inputs.tensors.values() if value.ndim > 1}
        count = next(n for n in range(len(rows), self.count + 1) if n not in lengths)
        places = [self.at(row) for row in rows] + [0] * (count - len(rows))
        tensors = {
            name: value[places] if value.ndim and value.shape[0] == self.count else value
            for name, value in self.inputs.tensors.items()
        }
        return replace(self, inputs=replace(self.inputs, tensors=tensors), count=count, rows=rows)


def token_rows(patient: Patient) -> Iterator[TokenRows]:
    """The variants for every input with tokens: of an encoder with a decoder, one for each."""
    small = patient.small
    names = [ids_name(patient.model)]
    if is_pair(patient.model):
        names = ["decoder_input_ids", *(name for name in names if name != "decoder_input_ids")]
    for name in names:
        tensor = small.tensors.get(name)
        if tensor is None or not _has_tokens(tensor):
            continue
        rows = _rows(patient, small, name, tensor)
        if rows is not None:
            yield rows


def _has_tokens(tensor: Tensor) -> bool:
    return tensor.ndim == (3 if tensor.is_floating_point() else 2)


def _rows(patient: Patient, small: Inputs, name: str, tensor: Tensor) -> TokenRows | None:
    examples, tokens = tensor.shape[:2]
    mask = small.decoder_mask if name == "decoder_input_ids" else small.mask
    example, places = 0, list(range(tokens))
    if mask is not None and mask.shape == tensor.shape[:2]:
        example = int(mask.sum(1).argmax())
        places = mask[example].nonzero().flatten().tolist()
    generator = torch.Generator().manual_seed(11)
    if tensor.is_floating_point():
        base = tensor[example].clone()
        fresh = base + torch.randn(base.shape, generator=generator).to(base) * base.std()
    else:
        special = special_ids(patient.model)
        places = [at for at in places if int(tensor[example, at]) not in special]
        base, fresh = _ids(patient, tensor[example], places, special, generator)
    if len(places) < FEWEST_TOKENS:
        return None
    middle, first, last = places[len(places) // 2], places[0], places[-1]
    pair = (places[-4], places[-3])
    lengths = {value.shape[1] for value in small.tensors.values() if value.ndim > 1}
    # More copies of the base follow until rows and tokens cannot be taken for each other.
    count = next(n for n in range(len(ROWS), 2 * len(ROWS)) if n not in lengths | {tokens})
    variants = [base.clone() for _ in range(count)]
    for row, at in ((2, middle), (3, first), (4, last)):
        variants[row][at] = fresh[at]
    variants[5][list(pair)] = base[list(reversed(pair))]

    other = _other_half(small, name, tokens)

    def spread(key: str, value: Tensor) -> Tensor:
        if key == name:
            return torch.stack(variants)
        if value.ndim == 0 or value.shape[0] != examples:
            return value
        one = value[example : example + 1]
        # Tensors of the two halves of a pair must not be taken for each other by their lengths.
        one = one[:, :-1] if key in other else one
        return one.expand(count, *one.shape[1:])

    tensors: Mapping[str, Any] = {key: spread(key, value) for key, value in small.tensors.items()}
    inputs = replace(
        small, tensors=tensors, mask=None, decoder_mask=None, labels=None, targets=None
    )
    return TokenRows(name, inputs, tokens, middle, first, last, pair, count)


def _other_half(small: Inputs, name: str, tokens: int) -> tuple[str, ...]:
    """The inputs of the other half of a pair, where they are as long as those of this one."""
    halves = ("decoder_input_ids", "decoder_attention_mask"), ("input_ids", "attention_mask")
    if "decoder_input_ids" not in small.tensors or name not in halves[0] + halves[1]:
        return ()
    names = halves[1] if name in halves[0] else halves[0]
    ids = small.tensors.get(names[0])
    return names if ids is not None and ids.ndim == 2 and ids.shape[1] == tokens else ()


def _ids(
    patient: Patient, ids: Tensor, places: list[int], special: set[int], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Drawn ids at the places, all different as far as the vocabulary goes, and others for them.

    The inputs' own ids may all be equal, and then an exchange changes nothing.
    """
    size = vocabulary_size(patient.model) or int(ids.max()) + 1
    allowed = torch.tensor([one for one in range(min(size, 4096)) if one not in special])
    if len(allowed) < 2:
        return ids, ids
    order = allowed[torch.randperm(len(allowed), generator=generator)].to(ids)
    base, fresh = ids.clone(), ids.clone()
    for count, at in enumerate(places):
        base[at] = order[count % len(order)]
        fresh[at] = order[(count + 1 + len(places)) % len(order)]
        if fresh[at] == base[at]:
            fresh[at] = order[(count + 1) % len(order)]
    return base, fresh


def moved(tensor: Tensor, rows: int, tokens: int) -> Tensor | None:
    """Where each row differs from the base, [row, token]; None for tensors without these axes."""
    part = by_row(tensor, rows, tokens)
    if part is None:
        return None
    part = part.detach().flatten(2)
    if part.dtype.itemsize < 4:  # differences of neighbours in half precision need more digits
        part = part.float()
    apart = (part - part[0]).abs_().amax(2).nan_to_num(0.0, 0.0, 0.0)
    size = part[0].abs().nan_to_num(0.0, 0.0, 0.0).amax()
    eps = torch.finfo(tensor.dtype).eps
    limit = size * rounding(eps)
    noise = apart[1].amax()
    # A copy that differs by more depends on its place in the batch: no measure of rounding.
    if noise < 1e-3 * size:
        limit = torch.maximum(limit, NOISE * noise)
    return (apart > limit).cpu()


def by_row(tensor: Tensor, rows: int, tokens: int) -> Tensor | None:
    """The tensor as [row, token, ...] where it has these axes in some order at its beginning."""
    if not tensor.is_floating_point() or tensor.ndim < 2 or tensor.numel() == 0:
        return None
    if tensor.ndim > 2 and tensor.shape[:2] == (rows, tokens):
        return tensor
    if tensor.ndim > 2 and tensor.shape[:2] == (tokens, rows):
        return tensor.transpose(0, 1)
    if tensor.ndim == 2 and tensor.shape[0] == rows * tokens:
        return tensor.unflatten(0, (rows, tokens))
    if tensor.shape[:2] == (1, rows * tokens) and tensor.ndim == 3:
        return tensor[0].unflatten(0, (rows, tokens))
    return None
