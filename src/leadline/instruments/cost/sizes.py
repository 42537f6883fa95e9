"""The model, its passes and its stacks as sizes: what every instrument's estimate starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, model_pass
from leadline.instruments.cost.counting import Gradients, PassCount, StackCount, count_pass
from leadline.instruments.cost.work import BlockWork, Size
from leadline.models.inputs import Inputs
from leadline.models.inputs.model_facts import forward_names

__all__ = ["CountedModel", "rows_of"]

Tensor = torch.Tensor


@dataclass(eq=False)
class CountedModel:
    """A model and its inputs, whose passes are counted when somebody asks for them."""

    module: nn.Module
    batch: Inputs
    loss: Callable[[Any, Inputs], Tensor] | None = None
    rows: Mapping[str, tuple[str, ...]] | None = None

    def count(self, gradients: Gradients, *, plain: bool = False) -> PassCount:
        """One forward pass, and one backward pass unless `gradients` is "none"."""
        tensors = dict(self.batch.tensors)
        loss = self.loss

        def of_output(output: Any) -> Tensor:
            assert loss is not None
            return loss(output, self.batch)

        return count_pass(
            self.module,
            _call,
            tensors,
            loss=None if loss is None or gradients == "stream" else of_output,
            gradients=gradients,
            plain=plain,
            rows=self.rows,
        )

    @cached_property
    def forward(self) -> PassCount:
        """A pass without gradients."""
        return self.count("none")

    @cached_property
    def measuring(self) -> PassCount:
        """Forward and backward, with gradients of the weights of blocks, as `measure` does it."""
        return self.count("blocks")

    @cached_property
    def linearised(self) -> tuple[PassCount, PassCount]:
        """Forward, and backward to the stream alone: under the model's kernel and the plain one."""
        return self.count("stream"), self.count("stream", plain=True)

    @property
    def weights(self) -> int:
        """Bytes of all parameters and buffers; shared ones once."""
        tensors = {id(t): t for t in (*self.module.parameters(), *self.module.buffers())}
        return sum(t.numel() * t.element_size() for t in tensors.values())

    def sizes(self, *, linear: bool = False) -> list[Size]:
        """The size of every stack; with `linear` what a product J' u through a block takes."""
        stacks = self.forward.stacks
        if not linear:
            return [self._size(shape) for shape in stacks]
        own, plain = self.linearised
        depth = sum(len(shape.paths) for shape in stacks) or 1
        return [
            replace(
                self._size(shape),
                block=BlockWork(
                    forward=_share(shape.work, shape),
                    # The stacks share the pass by their depth: what is outside of blocks is the head.
                    backward=own.backward * (1 / depth),
                    plain_forward=_share(_shape(plain, shape.name).work, shape),
                    plain_backward=plain.backward * (1 / depth),
                    held=own.held / depth,
                    plain_held=plain.held / depth,
                ),
            )
            for shape in stacks
        ]

    def _size(self, shape: StackCount) -> Size:
        parameters = sum(
            parameter.numel()
            for path in dict.fromkeys(shape.paths)
            for parameter in self.module.get_submodule(path).parameters()
        )
        return Size(
            name=shape.name,
            depth=len(shape.paths),
            width=shape.width,
            tokens=shape.tokens,
            examples=shape.examples,
            writes=shape.writes,
            heads=shape.heads,
            head_width=shape.head_width,
            keys=shape.keys or shape.tokens,
            attentions=shape.attentions,
            inner=shape.inner,
            parameters=parameters,
            output=self.forward.output,
        )


def rows_of(anatomy: Anatomy | None) -> dict[str, tuple[str, ...]] | None:
    """The blocks of every stack, where the anatomy is known."""
    if anatomy is None:
        return None
    return {stack.name: tuple(block.module for block in stack.blocks) for stack in anatomy.stacks}


def _call(module: nn.Module, tensors: Mapping[str, Tensor]) -> Any:
    extra = {}
    if "use_cache" in forward_names(module) and "use_cache" not in tensors:
        extra["use_cache"] = False
    with model_pass():
        return module(**tensors, **extra)


def _share(work: Any, shape: StackCount) -> Any:
    return work * (1 / max(len(shape.paths), 1))


def _shape(count: PassCount, name: str) -> StackCount:
    return next(shape for shape in count.stacks if shape.name == name)
