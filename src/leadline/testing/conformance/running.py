"""How a part runs: in a tiny Transformer, forward and backward, with and without a cache.

Numbers are compared at the start and with stirred weights: at the start many gains are zero or
one, which hides mistakes in the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from leadline.instruments.passes.measurement import anatomy_of
from leadline.parts import Transformer
from leadline.testing.conformance._case import VOCABULARY, PartCase, gradients
from leadline.testing.conformance._check import Question, closeness, require, some, within

__all__ = ["questions", "require_gradients"]

SHAPES = ((2, 5), (1, 1), (3, 1), (1, 12))
"""Examples and tokens; the last one is the whole context."""
ROUNDING = 1e-5
"""How far float32 results may differ that should be the same, of the largest value."""


def questions(case: PartCase) -> list[Question]:
    """The checks of running."""
    return [
        ("shapes", lambda: _shapes(case)),
        ("gradients", lambda: _gradients(case)),
        ("training mode", lambda: _training_mode(case)),
        ("examples apart", lambda: _examples_apart(case)),
        ("padding hidden", lambda: _padding_hidden(case)),
        ("causality", lambda: _causality(case)),
        ("token by token", lambda: _token_by_token(case)),
        ("no state", lambda: _no_state(case)),
        ("balance", lambda: _balance(case)),
    ]


def _shapes(case: PartCase) -> str:
    for where, model in case.both:
        for examples, tokens in SHAPES:
            inputs = case.inputs(examples, tokens)
            with torch.no_grad():
                out = model(inputs)
            last = model.recipe.vocabulary if model.head.gives_logits else model.recipe.width
            expected = [examples, tokens, last]
            require(
                list(out.shape) == expected,
                f"{examples} examples of {tokens} tokens give {list(out.shape)}, not {expected}",
            )
            require(
                bool(out.isfinite().all()),
                f"{examples} examples of {tokens} tokens give values that are not finite {where}",
            )
    return ", ".join(f"{e}x{t}" for e, t in SHAPES)


def _gradients(case: PartCase) -> str:
    zero: set[str] = set()
    for where, model in case.both:
        by_name = gradients(model, model(case.inputs(2, 5)))
        require_gradients(by_name, where)
        zero = {name for name, g in by_name.items() if g is not None and not g.any()}
    note = f"; zero even with stirred weights: {some(sorted(zero))}" if zero else ""
    return f"{len(list(case.fresh.parameters()))} tensors, all finite{note}"


def require_gradients(by_name: dict[str, Tensor | None], where: str) -> None:
    """Fail where a parameter has no gradient, or one that is not finite."""
    without = [name for name, g in by_name.items() if g is None]
    require(not without, f"{some(without)} get no gradient at all; remove what is never used")
    broken = [name for name, g in by_name.items() if g is not None and not g.isfinite().all()]
    require(not broken, f"{some(broken)} get gradients that are not finite {where}")


def _training_mode(case: PartCase) -> str:
    model = case.build(stirred=True).train()
    inputs = case.inputs(4, 5)
    outputs: list[Tensor] = []
    for _ in range(2):
        torch.manual_seed(7)
        out = model(inputs)
        require(bool(out.isfinite().all()), "values are not finite in training mode")
        outputs.append(out)
    require(
        torch.equal(*outputs),
        "two passes in training mode with the same seed differ: it keeps state",
    )
    # What chance left out of a pass has no gradient in it, so only broken ones are a fault.
    by_name = gradients(model, outputs[0])
    require_gradients({n: g for n, g in by_name.items() if g is not None}, "in training mode")
    return "finite, and the same for the same seed"


def _examples_apart(case: PartCase) -> str:
    model, inputs = case.stirred, case.inputs(3, 5)
    with torch.no_grad():
        together = model(inputs)
        alone = torch.cat([model(example) for example in inputs.split(1)])
    miss = closeness(together, alone)
    require(
        miss <= ROUNDING,
        f"an example gives another result beside other examples ({miss:.2g} of the largest value)",
    )
    return f"alone and together {within(miss)}"


def _padding_hidden(case: PartCase) -> str:
    model, inputs = case.stirred, case.inputs(2, 6)
    mask = torch.ones(2, 6)
    mask[:, 4:] = 0
    with torch.no_grad():
        padded, cut = model(inputs, mask)[:, :4], model(inputs[:, :4])
    miss = closeness(padded, cut)
    require(miss <= ROUNDING, f"padding is seen by real tokens ({miss:.2g} of the largest value)")
    return f"with and without it {within(miss)}"


def _causality(case: PartCase) -> str:
    model, inputs, noise = case.stirred, case.inputs(2, 6), case.inputs(2, 6, seed=1)
    changed = inputs.clone()
    changed[:, 3] = (
        (inputs[:, 3] + 1) % VOCABULARY if not inputs.is_floating_point() else noise[:, 3]
    )
    with torch.no_grad():
        before, after = model(inputs), model(changed)
    moved = ((after - before).abs().amax((0, 2)) / before.abs().max()).tolist()
    require(moved[3] > ROUNDING, "a changed token does not change its own output")
    earlier, later = max(moved[:3]), max(moved[4:])
    if model.causal is False:
        require(earlier > ROUNDING, "causal is False, and yet earlier tokens do not see later ones")
        return "earlier tokens see later ones, as declared"
    require(
        earlier <= ROUNDING, f"earlier tokens see a later one ({earlier:.2g} of the largest value)"
    )
    if model.causal is None:
        require(later <= ROUNDING, "causal is None, and yet tokens see each other")
        return "tokens do not see each other, as declared"
    require(later > ROUNDING, "causal is True, and yet later tokens do not see earlier ones")
    return "a later token changes nothing before it"


@dataclass
class _PlainCache:
    """The plainest cache of keys and values."""

    length: int = 0
    layers: dict[int, tuple[Tensor, Tensor]] = field(
        default_factory=dict[int, tuple[Tensor, Tensor]]
    )

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self.layers:
            old_key, old_value = self.layers[layer]
            key, value = torch.cat((old_key, key), 2), torch.cat((old_value, value), 2)
        self.layers[layer] = key, value
        return key, value


def _token_by_token(case: PartCase) -> str:
    model, inputs = case.stirred, case.inputs(2, 6)
    if model.causal is False:
        return "not causal, so it reads all tokens at once"
    cache = _PlainCache()
    with torch.no_grad():
        at_once = model(inputs)
        steps = [model(part, cache=cache) for part in (inputs[:, :3], *inputs[:, 3:].split(1, 1))]
    miss = closeness(torch.cat(steps, 1), at_once)
    require(
        miss <= ROUNDING,
        f"one token at a time, with a cache, differs from all at once ({miss:.2g} of the largest "
        "value)",
    )
    return f"with a cache and all at once {within(miss)}"


def _no_state(case: PartCase) -> str:
    model, twin = case.build(stirred=True), case.stirred
    inputs, other_inputs = case.inputs(2, 5), case.inputs(3, 4, seed=1)
    before = _attributes(model)
    with torch.no_grad():
        outputs = [model(inputs), model(inputs)]
        model(other_inputs)
        twin(other_inputs)
        outputs.append(model(inputs))
    require(torch.equal(outputs[0], outputs[1]), "the same inputs twice give two results")
    require(torch.equal(outputs[0], outputs[2]), "inputs in between change the result")
    changed = sorted(k for k, v in _attributes(model).items() if before.get(k) != v)
    require(
        not changed,
        f"{some(changed)} changed in a pass: a module must keep nothing between calls; "
        "what must travel goes with the state",
    )
    return "the same inputs give the same bits"


def _attributes(model: Transformer) -> dict[str, tuple[int, int]]:
    """What the modules hold, by name: which object, and how long it is."""
    holders: list[tuple[str, object]] = [*model.named_modules(), ("placement", model.placement)]
    by_name: dict[str, tuple[int, int]] = {}
    for path, holder in holders:
        for name, value in vars(holder).items():
            length = len(value) if isinstance(value, list | dict | set) else 0
            by_name[f"{path}.{name}" if path else name] = id(value), length
    return by_name


def _balance(case: PartCase) -> str:
    worst = 0.0
    for _, model in case.both:
        anatomy = anatomy_of(model, {"input_ids": case.inputs(2, 5)})
        assert anatomy.balance is not None
        worst = max(worst, anatomy.balance.eps)
    return f"{worst:.2g} eps"
