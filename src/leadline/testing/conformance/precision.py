"""How a part keeps its numbers: in float64 and bfloat16, under autocast, compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException

from leadline.numerics.half_precision import prepare_half_products
from leadline.testing.conformance._case import PartCase, gradients, leaves
from leadline.testing.conformance._check import Failed, Question, closeness, require
from leadline.testing.conformance.running import require_gradients

__all__ = ["questions"]

HALF = 0.1
"""How far bfloat16 may be from float32: eight bits, through six sublayers."""
COMPILED = 1e-5
"""How far a compiled block may be from the same block run as it is written."""


def questions(case: PartCase) -> list[Question]:
    """The checks of precision."""
    return [
        ("float64", lambda: _precision(case, torch.float64, 1e-4)),
        ("bfloat16", lambda: _precision(case, torch.bfloat16, HALF)),
        ("autocast", lambda: _autocast(case)),
        ("compile", lambda: _compile(case)),
    ]


def _precision(case: PartCase, dtype: torch.dtype, tolerance: float) -> str:
    if dtype == torch.bfloat16:
        prepare_half_products()
    worst = 0.0
    for stirred in (False, True):
        model = case.build(stirred=stirred)
        inputs = case.inputs(2, 5)
        with torch.no_grad():
            expected = model(inputs)
        model.to(dtype)
        out = model(case.as_inputs(model, inputs))
        name = str(dtype).removeprefix("torch.")
        output_name = str(out.dtype).removeprefix("torch.")
        require(out.dtype == dtype, f"a {name} model returns {output_name}")
        require_gradients(gradients(model, out), f"in {name}")
        worst = max(
            worst, _root_mean_square(out - expected.to(dtype)) / _root_mean_square(expected)
        )
    require(worst <= tolerance, f"{worst:.2g} away from float32, more than {tolerance:g}")
    return f"{worst:.1g} away from float32"


def _autocast(case: PartCase) -> str:
    prepare_half_products()
    worst = 0.0
    for stirred in (False, True):
        model = case.build(stirred=stirred)
        inputs = case.inputs(2, 5)
        with torch.no_grad():
            expected = model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(inputs)
        require(bool(out.isfinite().all()), "values are not finite under autocast")
        require_gradients(gradients(model, out), "under autocast")
        worst = max(worst, _root_mean_square(out - expected) / _root_mean_square(expected))
    require(worst <= HALF, f"{worst:.2g} away from float32, more than {HALF:g}")
    return f"bfloat16, {worst:.1g} away from float32"


def _root_mean_square(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def _compile(case: PartCase) -> str:
    """One block through torch.compile, forward and backward, traced but not turned into C++."""
    model = case.build(stirred=True)
    block = model.blocks[1]
    calls: list[Any] = []
    handle = block.register_forward_pre_hook(lambda _, arguments: calls.append(arguments))
    with torch.no_grad():
        model(case.inputs(2, 5))
    handle.remove()
    state, run = calls[0]
    expected = _through(block, block, state, run)
    one_graph = True
    try:
        compiled = _through(_compiled(block, fullgraph=True), block, state, run)
    except TorchDynamoException:
        one_graph = False
        compiled = _through(_compiled(block, fullgraph=False), block, state, run)
    finally:
        torch._dynamo.reset()
    for name, tensor in expected.items():
        miss = closeness(compiled[name], tensor)
        require(miss <= COMPILED, f"{name} differs by {miss:.2g} of the largest value")
    pieces = "one graph" if one_graph else "with graph breaks"
    return f"a block, {pieces}, {len(expected)} tensors forward and backward"


def _compiled(block: nn.Module, *, fullgraph: bool) -> Any:
    torch._dynamo.reset()
    return torch.compile(block, backend="aot_eager", fullgraph=fullgraph)


def _through(function: Any, block: nn.Module, state: Any, run: Any) -> dict[str, Tensor]:
    """What a block returns, and the gradients of what goes in and of its weights."""
    state = _mapped(state)
    output = function(state, replace(run, shared=dict(run.shared)))
    out = [tensor for tensor in leaves(output) if tensor.is_floating_point()]
    require(bool(out), "the block returns no tensor")
    flat = torch.cat([tensor.flatten() for tensor in out])
    by_name = {f"gradient of {n}": g for n, g in gradients(block, flat).items() if g is not None}
    entering = {f"state {i}": t for i, t in enumerate(leaves(state)) if t.grad is not None}
    by_name |= {f"gradient of {name}": t.grad for name, t in entering.items() if t.grad is not None}
    return {**{f"output {i}": t.detach() for i, t in enumerate(out)}, **by_name}


def _mapped(state: Any) -> Any:
    """The same state of new leaves, so that gradients end there."""
    if isinstance(state, Tensor):
        fresh = state.detach().clone()
        return fresh.requires_grad_() if fresh.is_floating_point() else fresh
    if isinstance(state, tuple | list):
        parts = [_mapped(part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if isinstance(state, dict):
        return {key: _mapped(part) for key, part in state.items()}
    if state is None or isinstance(state, int | float | str):
        return state
    raise Failed(f"a state is made of tensors and tuples; this one holds a {type(state).__name__}")
