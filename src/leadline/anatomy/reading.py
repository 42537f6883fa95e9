"""Read a model's anatomy from the best source there is, and judge it by the balance.

Sources in order: the user's declaration when one is given, the model's own `anatomy()`, a family
file, discovery. Whatever the source, the anatomy is judged on every block of fresh inputs; one
that does not balance is refused with the worst layer, the size of the miss and the modules that
would balance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from leadline.anatomy._structure import Anatomy, Balance
from leadline.anatomy.declaration import Declaration
from leadline.anatomy.discover import discover, refit
from leadline.anatomy.families._family import FAMILIES, model_type
from leadline.anatomy.tap import Tap
from leadline.errors import AnatomyError, BalanceError

__all__ = ["TOLERANCE", "judge", "read_anatomy", "refuse_imbalance"]

Forward = Callable[[], object]

TOLERANCE = 4.0
"""Largest miss of any token, in eps of the stream, that is still taken for rounding."""


def read_anatomy(
    model: nn.Module,
    fit: Forward,
    fresh: Forward,
    *,
    declared: Anatomy | Declaration | None = None,
    families: bool = True,
) -> Anatomy:
    """The proved anatomy of a model. `fit` runs one batch, `fresh` another one to judge on."""
    anatomy = _source(model, fit, declared, families)
    balance = judge(model, anatomy, fresh)
    if balance.eps > TOLERANCE and anatomy.source == "discovery":
        # Equal modules do not make equal equations: gains may change from layer to layer.
        missed = {key for key, eps in balance.per_layer.items() if eps > TOLERANCE}
        stacks = tuple(
            refit(model, fit, stack, {layer for name, layer in missed if name == stack.name})
            for stack in anatomy.stacks
        )
        anatomy = replace(anatomy, stacks=stacks)
        balance = judge(model, anatomy, fresh)
    refuse_imbalance(model, anatomy, balance, fit)
    return anatomy.proved(balance)


def judge(model: nn.Module, anatomy: Anatomy, fresh: Forward) -> Balance:
    """The balance of every block on the inputs that `fresh` runs."""
    with Tap(model, anatomy) as tap, torch.no_grad():
        fresh()
    return tap.balance()


def refuse_imbalance(
    model: nn.Module, anatomy: Anatomy, balance: Balance, fit: Forward | None = None
) -> None:
    """Raise BalanceError when the books do not balance, with what would."""
    if balance.layers == 0:
        raise AnatomyError(
            f"No layer of {type(model).__name__} has a finite stream, so nothing can be judged. "
            "Look for NaN or infinite weights or inputs."
        )
    if balance.eps <= TOLERANCE:
        return
    block = next(b for b in anatomy.stack(balance.stack).blocks if b.layer == balance.layer)
    unit = torch.finfo(getattr(torch, balance.dtype)).eps
    read = ", ".join(s.module for s in block.sublayers)
    message = (
        f"The books do not balance ({anatomy.source}): worst at {balance.stack} layer "
        f"{balance.layer} ('{block.module}'), where the stream and what was read as its updates "
        f"({read}) miss the output by {balance.eps * unit:.3g} of the stream, "
        f"{balance.eps:.3g} eps; at most {TOLERANCE:g} are rounding."
    )
    if fit is not None and anatomy.source != "discovery":
        message += _what_would(model, fit, balance)
    elif fit is not None:
        message += " If the model is in training mode or uses dropout functions, try model.eval()."
    raise BalanceError(message)


def _what_would(model: nn.Module, fit: Forward, balance: Balance) -> str:
    try:
        found = discover(model, fit)
    except AnatomyError:
        return " Discovery finds no modules that balance either."
    named = [stack for stack in found.stacks if stack.name == balance.stack]
    for stack in named or found.stacks:
        for block in stack.blocks:
            if block.layer == balance.layer:
                good = ", ".join(
                    s.module if s.gain == 1.0 else f"{s.gain} x {s.module}" for s in block.sublayers
                )
                return f" These modules would balance: {good}."
    return ""


def _source(
    model: nn.Module, fit: Forward, declared: Anatomy | Declaration | None, families: bool
) -> Anatomy:
    if isinstance(declared, Declaration):
        return declared.resolve(model, fit)
    if declared is not None:
        return declared
    own = getattr(model, "anatomy", None)
    if callable(own):
        anatomy = own()
        if not isinstance(anatomy, Anatomy):
            raise AnatomyError(
                f"{type(model).__name__}.anatomy() returned {type(anatomy).__name__}, "
                "not a leadline Anatomy."
            )
        return anatomy
    name = model_type(model)
    if families and name in FAMILIES:
        stacks = FAMILIES.get(name)(model)
        if stacks:
            return Anatomy(tuple(stacks), f"family {name}")
    return discover(model, fit)
