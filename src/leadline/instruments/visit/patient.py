"""The model that is visited: its blocks, its inputs, small inputs for extra passes, its twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, Stack, untouched
from leadline.anatomy.find.unproved import Unproved
from leadline.instruments.passes.running import call
from leadline.instruments.visit.small_pass import SmallPass, run_small
from leadline.instruments.visit.tokens.calls import AttentionCalls, attention_calls
from leadline.models.inputs import Inputs
from leadline.models.inputs.logits import find_logits, real_tensors
from leadline.models.inputs.model_facts import ids_name
from leadline.record import Site

__all__ = ["OUTSIDE", "Patient", "VisitOptions", "block_rows", "cut", "takes_shorter_rows"]

OUTSIDE = "model"
"""The stack of tensors that belong to no block; the same word as in `reading.diagnosis.case`."""
MOST_EXAMPLES = 2
MOST_TOKENS = 32
"""Extra passes run on so many examples and tokens at most."""
FEWEST_TOKENS = 16
"""The shortest rows that a visit makes of longer ones: those on which the anatomy is proved."""


@dataclass(frozen=True, slots=True)
class VisitOptions:
    """What a visit does beyond the usual, where it is asked for.

    A check that is an option looks here first, and yields `CouldNot` with "not asked for: --train N"
    where it was not.
    """

    intended: str = ""
    """What the model is meant to be, such as "pre-norm, causal, gpt2"."""
    train: int = 0
    """So many steps a copy is trained on a small task."""
    ablate: bool = False
    """Whether every write is left out once."""
    seed: int = 0


@dataclass
class Patient:
    """A model in evaluation mode, untouched, with everything that checks ask of it.

    `anatomy` is None where the model was refused; then `rows` still names its blocks.
    """

    model: nn.Module
    batch: Inputs
    anatomy: Anatomy | None
    unproved: Unproved | None = None
    """The blocks of a model that was refused, with the writes of those that balance."""
    twin: nn.Module | None = None
    loaded_missing: tuple[str, ...] = ()
    """Parameters that the file of the model did not hold."""
    gradients: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Norm of the loss gradient by parameter; None where it got none."""
    loss_kind: str = ""
    loss_value: float | None = None
    options: VisitOptions = VisitOptions()
    rows_may_shrink: bool = True
    """False where the model takes rows of tokens of one length alone (`takes_shorter_rows`)."""
    _small_passes: dict[int, SmallPass] = field(default_factory=dict[int, SmallPass])
    """By the identity of the model: this one or its twin."""
    _attentions: dict[int, AttentionCalls] = field(default_factory=dict[int, AttentionCalls])

    @property
    def train(self) -> int:
        """Steps of the short training run on a copy; 0 for none."""
        return self.options.train

    @property
    def ablate(self) -> bool:
        """Whether every write is left out in turn."""
        return self.options.ablate

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of the anatomy, proved or not; none where nothing was found."""
        anatomy = self.anatomy
        if anatomy is None and self.unproved is not None:
            anatomy = self.unproved.anatomy
        return () if anatomy is None else anatomy.stacks

    @cached_property
    def rows(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of the blocks by stack, from the anatomy, else from the tree of modules."""
        if self.anatomy is None and self.unproved is None:
            return block_rows(self.model)
        return {stack.name: tuple(block.module for block in stack.blocks) for stack in self.stacks}

    @cached_property
    def small(self) -> Inputs:
        """The first examples and tokens of the batch: extra passes are short."""
        length = self.batch.main.shape[-1] if self.batch.main.ndim else 1
        return cut(self.batch, MOST_EXAMPLES, MOST_TOKENS if self.rows_may_shrink else length)

    @property
    def small_tokens(self) -> int | None:
        """The number of tokens in the small inputs without padding; None where they are no ids."""
        main, mask = self.small.main, self.small.mask
        if main.ndim != 2 or main.is_floating_point():
            return None
        return main.numel() if mask is None or mask.shape != main.shape else int(mask.sum())

    @property
    def ids(self) -> Tensor | None:
        """The token ids of the small inputs, [example, token]; None where the model takes none."""
        ids = self.small.tensors.get(ids_name(self.model))
        return ids if ids is not None and not ids.is_floating_point() and ids.ndim == 2 else None

    def with_ids(self, ids: Tensor) -> Inputs:
        """The small inputs with other token ids."""
        return replace(self.small, tensors={**self.small.tensors, ids_name(self.model): ids})

    def small_pass(self, model: nn.Module | None = None) -> SmallPass:
        """The pass of this model or its twin over the small inputs, run once for all checks."""
        module = self.model if model is None else model
        if id(module) not in self._small_passes:
            passes: list[SmallPass] = []

            def forward() -> None:
                passes.append(run_small(module, self.small))

            try:
                seen = attention_calls(module, self.small, self.small.mask, forward=forward)
            except Exception:  # what the pass itself raises comes again; its attention is not known
                forward()
            else:
                self._attentions[id(module)] = seen
            self._small_passes[id(module)] = passes[-1]
        return self._small_passes[id(module)]

    def attention(self, model: nn.Module | None = None) -> AttentionCalls:
        """What was seen of the attention in the small pass; what went wrong there is raised here."""
        module = self.model if model is None else model
        self.small_pass(module)
        if id(module) not in self._attentions:
            return attention_calls(module, self.small, self.small.mask)
        return self._attentions[id(module)]

    def result(self, inputs: Inputs, model: nn.Module | None = None, *, again: bool = False) -> Any:
        """What the model returns without gradients; of the small inputs, what it returned before.

        `again` runs the model in any case.
        """
        module = self.model if model is None else model
        if not again and _same_tensors(inputs, self.small):
            return self.small_pass(module).result
        with torch.no_grad():
            return call(module, inputs)

    def output(
        self, inputs: Inputs, model: nn.Module | None = None, *, again: bool = False
    ) -> Tensor:
        """The main output of one pass without gradients: logits where there are some."""
        module = self.model if model is None else model
        result = self.result(inputs, module, again=again)
        ids = inputs.tensors.get(ids_name(self.model))
        shape = tuple(ids.shape) if ids is not None else ()
        logits = find_logits(result, module, shape)
        if logits is not None:
            return logits.float()
        return next(tensor for _, tensor in real_tensors(result)).float()

    def site(self, parameter: str) -> Site:
        """Where a tensor stands: its block and its name in it, or its full name outside of blocks."""
        for stack, paths in self.rows.items():
            for layer, path in enumerate(paths, start=1):
                if parameter.startswith(f"{path}."):
                    return Site(stack, layer, None, parameter[len(path) + 1 :])
        return Site(OUTSIDE, 0, None, parameter)


def takes_shorter_rows(model: nn.Module, batch: Inputs) -> bool:
    """Whether the model runs on the first tokens of its rows, from one short pass.

    A learnt table of positions that is added whole, or an assertion, fixes the length.
    """
    ids = batch.main
    if ids.ndim != 2 or ids.is_floating_point() or ids.shape[1] <= FEWEST_TOKENS:
        return True
    try:
        with untouched(model), torch.inference_mode(False), torch.no_grad():
            call(model, cut(batch, MOST_EXAMPLES, FEWEST_TOKENS))
    except Exception:  # whatever a model raises; what it raises on all tokens comes in measuring
        return False
    return True


def cut(batch: Inputs, examples: int, tokens: int) -> Inputs:
    """The first examples and tokens of every tensor that has these axes."""
    shape = batch.main.shape
    if batch.main.ndim < 2 or batch.main.is_floating_point():
        pieces = {name: t[:examples] if t.ndim and t.shape[0] == shape[0] else t
                  for name, t in batch.tensors.items()}  # fmt: skip
        return replace(batch, tensors=pieces, labels=None, targets=None)

    def piece(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.ndim == 0 or tensor.shape[0] != shape[0]:
            return tensor
        tensor = tensor[:examples]
        return tensor[:, :tokens] if tensor.ndim > 1 and tensor.shape[1] == shape[1] else tensor

    return replace(
        batch,
        tensors={name: piece(tensor) for name, tensor in batch.tensors.items()},  # pyright: ignore[reportArgumentType]
        mask=piece(batch.mask),
        labels=piece(batch.labels),
        targets=piece(batch.targets),
        decoder_mask=piece(batch.decoder_mask),
    )


def _same_tensors(one: Inputs, two: Inputs) -> bool:
    return one.tensors.keys() == two.tensors.keys() and all(
        tensor is two.tensors[name]
        or (tensor.shape == two.tensors[name].shape and torch.equal(tensor, two.tensors[name]))
        for name, tensor in one.tensors.items()
    )


def block_rows(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Rows of modules of one class in a container: what is most likely a stack of blocks.

    Only for models whose anatomy was refused. Rows inside of rows are parts of blocks.
    """
    rows: dict[str, tuple[str, ...]] = {}
    for path, module in _containers(model):
        children = list(module.named_children())
        kinds = {type(child) for _, child in children}
        if len(children) < 2 or len(kinds) != 1 or next(children[0][1].parameters(), None) is None:
            continue
        if any(path.startswith(f"{block}.") for paths in rows.values() for block in paths):
            continue
        name = "decoder" if not rows else f"decoder-{len(rows) + 1}"
        rows[name] = tuple(f"{path}.{name_}" if path else name_ for name_, _ in children)
    return rows


def _containers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            yield path, module
