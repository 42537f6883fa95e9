"""Read a model's anatomy from the best source there is, and judge it by the balance.

Sources in order: the user's declaration when one is given, the model's own `anatomy()`, a family
file, discovery. Whatever the source, the anatomy is judged on every block of fresh inputs; one
that does not balance is refused with the worst layer, what its output is instead (`imbalance`),
and the equation that would balance where there is one. Writes whose module never ran are left
out: they would balance whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from leadline.anatomy.families.family import FAMILIES, model_type
from leadline.anatomy.find.declaration import Declaration
from leadline.anatomy.find.discover import block_calls, discover, refit
from leadline.anatomy.find.imbalance import DECLARE, causes_in_words, explain_blocks
from leadline.anatomy.find.trace import trace_calls
from leadline.anatomy.find.unusual import layers_in_words
from leadline.anatomy.structure import Anatomy, Balance, Block, Stack, equation, relative
from leadline.anatomy.tap.tap import Tap
from leadline.errors import AnatomyError, BalanceError

__all__ = ["TOLERANCE", "judge", "read_anatomy", "refuse_imbalance"]

Forward = Callable[[], object]

TOLERANCE = 4.0
"""Largest miss of any token, in eps of the stream, that is still taken for rounding."""

_NEARLY = 100.0
"""Up to this miss a wider number type may help; a wrong anatomy misses by far more."""


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
        anatomy = replace(
            anatomy,
            stacks=tuple(
                refit(model, fit, stack, _missed(balance, stack)) for stack in anatomy.stacks
            ),
        )
        balance = judge(model, anatomy, fresh)
    refuse_imbalance(model, anatomy, balance, fit, fresh)
    if balance.uncalled:
        if anatomy.source == "user":
            _refuse_idle(anatomy, balance)
        anatomy = _without(anatomy, balance.uncalled)
        balance = judge(model, anatomy, fresh)
    return anatomy.proved(balance)


def judge(model: nn.Module, anatomy: Anatomy, fresh: Forward) -> Balance:
    """The balance of every block on the inputs that `fresh` runs."""
    with Tap(model, anatomy) as tap, torch.no_grad():
        fresh()
    return tap.balance()


def refuse_imbalance(
    model: nn.Module,
    anatomy: Anatomy,
    balance: Balance,
    forward: Forward | None = None,
    fresh: Forward | None = None,
) -> None:
    """Raise BalanceError when the books do not balance, with what is wrong or what would balance.

    `forward` runs a batch on which the worst block is looked at again, `fresh` another one: only
    what balances on that, too, is said to balance.
    """
    if balance.layers == 0:
        raise AnatomyError(
            f"No layer of {type(model).__name__} has a finite stream, so nothing can be judged. "
            "Look for NaN or infinite weights or inputs."
        )
    if balance.eps <= TOLERANCE:
        return
    stack = anatomy.stack(balance.stack)
    block = next(b for b in stack.blocks if b.layer == balance.layer)
    books = _BOOKS.get(anatomy.source, f"The books do not balance ({anatomy.source}).")
    miss = _the_miss(stack, block, balance)
    if forward is None:
        raise BalanceError(f"{books} {miss}")
    if anatomy.source == "discovery":
        why = _causes(model, forward, stack, balance) or f"{miss} {_unexplained(balance)}"
        raise BalanceError(f"{books} {why}")
    where = f"In layer {balance.layer}"
    if fresh is None:
        why = _causes(model, forward, stack, balance, where=where) or _unexplained(balance)
    else:
        why = (
            _what_would(model, forward, fresh, anatomy, balance)
            or _causes(model, forward, stack, balance, where=where)
            or "Discovery finds nothing that balances there either."
        )
    raise BalanceError(f"{books} {miss} {why}")


_BOOKS = {
    "discovery": "The books do not balance.",
    "user": "The books of the declared anatomy do not balance.",
}


def _unexplained(balance: Balance) -> str:
    """Advice for a miss whose cause is not known."""
    if balance.eps <= _NEARLY and balance.dtype == "float64":
        return (
            "So small a miss may be rounding inside the block, or a coefficient that could not be "
            f"read exactly. If you know it, declare it: {DECLARE}, with gains=[...]."
        )
    if balance.eps <= _NEARLY:
        return (
            "So small a miss may be rounding inside the block: measure in float64, with "
            "model.double() or --dtype float64."
        )
    return (
        "No sum of the stream and outputs of its modules is what comes out. If you know which "
        f"modules write there, declare them: {DECLARE}."
    )


def _the_miss(stack: Stack, block: Block, balance: Balance) -> str:
    unit = torch.finfo(getattr(torch, balance.dtype)).eps
    writes = ", then ".join(_equations(block)) or "x <- x"
    others = _missed(balance, stack) - {block.layer}
    verb = "misses" if len(others) == 1 else "miss"
    more = f" {layers_in_words(others, stack.depth).capitalize()} {verb} as well." if others else ""
    return (
        f"It is worst at {balance.stack} layer {balance.layer} ('{block.module}'): {writes} misses "
        f"the output by {balance.eps * unit:.3g} of the stream, {balance.eps:.3g} eps; at most "
        f"{TOLERANCE:g} are rounding.{more}"
    )


def _missed(balance: Balance, stack: Stack) -> set[int]:
    """The layers of a stack that do not balance."""
    return {
        layer
        for (name, layer), eps in balance.per_layer.items()
        if name == stack.name and eps > TOLERANCE
    }


def _causes(
    model: nn.Module,
    forward: Forward,
    stack: Stack,
    balance: Balance,
    *,
    where: str | None = None,
) -> str | None:
    """What is wrong with the worst layer and with those that miss as well; None if unknown."""
    missed = _missed(balance, stack) or {balance.layer}
    calls = [call for call in block_calls(stack) if call.layer in missed]
    calls.sort(key=lambda call: call.layer != balance.layer)
    traced = next((c for c in trace_calls(model, forward) if c.path == calls[0].path), None)
    if traced is None or traced.returned is None:
        return None
    updates = {
        relative(s.module, block.module)
        for block in stack.blocks
        if block.layer not in missed
        for s in block.sublayers
    }
    causes = explain_blocks(model, forward, calls, traced.returned.shape, updates=updates)
    if not causes or causes[0].call != calls[0]:
        return None
    where = where or f"In {stack.name} layer {balance.layer} ('{calls[0].path}')"
    return causes_in_words(causes, where=where, missed=len(missed), depth=stack.depth)


def _what_would(
    model: nn.Module, fit: Forward, fresh: Forward, anatomy: Anatomy, balance: Balance
) -> str | None:
    """The equation that discovery reads in the worst layer, if it balances there on fresh inputs."""
    stack = anatomy.stack(balance.stack)
    other = refit(model, fit, stack, {balance.layer})
    block, fitted = (next(b for b in s.blocks if b.layer == balance.layer) for s in (stack, other))
    if _equations(fitted) == _equations(block):
        return None
    again = replace(anatomy, stacks=tuple(other if s is stack else s for s in anatomy.stacks))
    if judge(model, again, fresh).per_layer[stack.name, balance.layer] > TOLERANCE:
        return None
    modules = [s.module for s in fitted.sublayers]
    same = modules == [s.module for s in block.sublayers]
    which = "With other factors or norms the same modules" if same else "These modules"
    module_names = ", ".join(
        s.module if s.gain == 1.0 or same else f"{s.gain} x {s.module}" for s in fitted.sublayers
    )
    how = f" as {', then '.join(_equations(fitted))}" if same else ""
    text = f"{which} would balance: {module_names}{how}."
    others = stack.depth - len(_missed(balance, stack))
    if anatomy.source != "user":
        return text
    if others:
        rest = f"{others} layers balance" if others > 1 else "layer balances"
        return (
            f"{text} The other {rest} as declared; without a declaration every layer is read by "
            "itself."
        )
    return f"{text} {_as_declared(fitted)}".rstrip()


def _as_declared(block: Block) -> str:
    """How an equation is declared, in Python and in the file that --declare takes alike."""
    if block.opening is not None or any(
        s.law is not None or isinstance(s.gain, str) for s in block.sublayers
    ):
        return ""
    fields: dict[str, list[object]] = {
        "writes": [relative(s.module, block.module) for s in block.sublayers],
        "settle": [s.settle and relative(s.settle, block.module) for s in block.sublayers],
        "gains": [s.gain for s in block.sublayers],
        "keeps": [s.keep for s in block.sublayers],
    }
    usual = {"settle": None, "gains": 1.0, "keeps": 1.0}
    return (
        "Declare "
        + ", ".join(
            f"{name}={values}"
            for name, values in fields.items()
            if name == "writes" or any(value != usual[name] for value in values)
        )
        + "."
    )


def _equations(block: Block) -> list[str]:
    opening = [] if block.opening is None else [f"x <- {relative(block.opening, block.module)}(x)"]
    return [*opening, *(equation(s, block) for s in block.sublayers)]


def _refuse_idle(anatomy: Anatomy, balance: Balance) -> None:
    """Refuse a declared write that happens in no layer."""
    for stack in anatomy.stacks:
        for s in stack.blocks[0].sublayers:
            if all((stack.name, b.layer, s.sublayer) in balance.uncalled for b in stack.blocks):
                name = relative(s.module, stack.blocks[0].module)
                raise AnatomyError(
                    f"'{name}' was declared to write to the stream, but it does not run in any of "
                    f"the {stack.depth} layers of the {stack.name}; leave it out of the writes."
                )


def _without(anatomy: Anatomy, uncalled: tuple[tuple[str, int, int], ...]) -> Anatomy:
    """The anatomy without the writes that did not happen."""

    def cut(stack: Stack, block: Block) -> Block:
        remaining = [
            s for s in block.sublayers if (stack.name, block.layer, s.sublayer) not in uncalled
        ]
        return replace(
            block,
            sublayers=tuple(
                replace(s, sublayer=i + 1, parallel=s.parallel and i > 0)
                for i, s in enumerate(remaining)
            ),
        )

    return replace(
        anatomy,
        stacks=tuple(
            replace(stack, blocks=tuple(cut(stack, block) for block in stack.blocks))
            for stack in anatomy.stacks
        ),
    )


def _source(
    model: nn.Module, fit: Forward, declared: Anatomy | Declaration | None, families: bool
) -> Anatomy:
    if isinstance(declared, Declaration):
        return declared.resolve(model, fit)
    if declared is not None:
        return declared
    method = getattr(model, "anatomy", None)
    if callable(method):
        anatomy = method()
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
