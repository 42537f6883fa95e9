"""Small trained parts on a model whose own weights stay as they are.

    bottleneck:   u' = u + W_up f(W_down u + b_down) + b_up        after every branch
    LoRA:         y = W x + b + (scale / rank) B A x               beside every map of a branch

Bottleneck adapters: Houlsby et al. 2019, arXiv 1902.00751; u is the update, f is GELU, W_up and
b_up start at zero, so the model begins as it was. They stand where a norm on the branch's output
stands, after it where there is one. LoRA: Hu et al. 2021, arXiv 2106.09685, done by PEFT; B starts
at zero, and scale is the rank unless given, so that a rank changes how many directions there are
and not how loud they are; the maps of a connection are not adapted. Both freeze every other
weight of the model. `switched_off` leaves all adapters out for a moment.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.errors import LabError, check_count, require
from leadline.parts import Transformer
from leadline.parts.branches.branch import linear

__all__ = [
    "Bottleneck",
    "adapter_parameters",
    "add_bottlenecks",
    "add_lora",
    "switched_off",
]

DOWN_STD = 0.02
"""The standard deviation of W_down at the start."""


class Bottleneck(nn.Module):
    """u + W_up f(W_down u); `after` is a norm that stands before it, or None."""

    def __init__(
        self, width: int, size: int, *, after: nn.Module | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.after = after
        self.down = linear(width, size, bias=True)
        self.up = linear(size, width, bias=True)
        self.on = True
        with torch.no_grad():
            self.down.weight.normal_(std=DOWN_STD, generator=generator)
            self.up.weight.zero_()

    def forward(self, u: Tensor) -> Tensor:
        if self.after is not None:
            u = self.after(u)
        return u + self.up(F.gelu(self.down(u))) if self.on else u


def add_bottlenecks(model: Transformer, size: int, *, seed: int = 0) -> Transformer:
    """Put an adapter of so many features after every branch, and let only adapters be trained."""
    size = check_count(size, "The size of an adapter", error=LabError)
    _refuse_adapted(model)
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    reference = next(model.parameters())
    for sublayer in model.sublayers():
        adapter = Bottleneck(model.recipe.width, size, after=sublayer.exit, generator=generator)
        sublayer.exit = adapter.to(device=reference.device, dtype=reference.dtype)
        for part in (adapter.down, adapter.up):
            part.requires_grad_(True)
    return model.train(model.training)


def add_lora(
    model: Transformer, rank: int, *, scale: float | None = None, seed: int = 0
) -> Transformer:
    """Put a LoRA of a rank beside every linear map of the branches, and let only them be trained."""
    rank = check_count(rank, "The rank of an adapter", error=LabError)
    _refuse_adapted(model)
    peft = require("peft", extra="tune")
    inside = {part for sublayer in model.sublayers() for part in sublayer.branch.modules()}
    names = [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and part in inside
    ]
    config = peft.LoraConfig(
        r=rank, lora_alpha=rank if scale is None else scale, target_modules=names
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT looks for a Hugging Face configuration, which a model of ours has not.
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(seed)
        peft.inject_adapter_in_model(config, model)
    return model.train(model.training)


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """Run the model without its adapters inside."""
    parts = [part for part in model.modules() if _is_adapter(part)]
    for part in parts:
        _switch(part, on=False)
    try:
        yield
    finally:
        for part in parts:
            _switch(part, on=True)


def _is_adapter(part: nn.Module) -> bool:
    return isinstance(part, Bottleneck) or hasattr(part, "lora_A")


def _switch(part: Any, *, on: bool) -> None:
    if isinstance(part, Bottleneck):
        part.on = on
    else:
        part.enable_adapters(on)


def _refuse_adapted(model: nn.Module) -> None:
    if any(map(_is_adapter, model.modules())):
        raise LabError(
            "The model has adapters already; add them to a fresh copy of the trained model."
        )
