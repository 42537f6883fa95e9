"""Does a weight matrix know what enters it, and what is asked of it?

For inputs z of a matrix W with n inputs and m outputs, and gradients g at its outputs:

    forward  = |W z|^2 n / (|W|^2 |z|^2)        backward = |W^T g|^2 m / (|W|^2 |g|^2)

summed over tokens. Both are about 1 for a matrix that was drawn independently of z and g, and larger
where training has turned it towards them: a redrawn, transposed or foreign matrix among trained ones
stands out by being near 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import check
from leadline.instruments.visit.checks.weights import kind_of
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs.logits import find_logits, real_tensors
from leadline.record import Quantity, Reading

__all__ = ["alignment"]


def _quantity(side: str, formula: str, meaning: str) -> Quantity:
    return Quantity(
        f"alignment.{side}",
        f"Alignment of a weight, {side}",
        "a",
        formula,
        lives_on="layer",
        headline="value",
        scale="log",
        meaning=meaning,
        ingredient_of="diagnosis",
    )


QUANTITIES = (
    _quantity("forward", "|W z|^2 n / (|W|^2 |z|^2)",
              "how much more of its input a matrix passes on than an independent one would"),
    _quantity("backward", "|W^T g|^2 m / (|W|^2 |g|^2)",
              "how much more of the gradient a matrix passes back than an independent one would"),
)  # fmt: skip


@check("alignment", quantities=QUANTITIES, pass_cost=0.5)
def alignment(patient: Patient) -> Iterator[Reading]:
    """Two numbers per linear map, from one small forward and backward pass."""
    sums: dict[str, list[float]] = {}
    with ExitStack() as hooks, torch.enable_grad():
        for parameter in patient.model.parameters():
            if parameter.is_floating_point():
                parameter.requires_grad_(False)
        for path, module in patient.model.named_modules():
            if kind_of(module) in ("linear", "conv1d") and isinstance(
                getattr(module, "weight", None), Tensor
            ):
                hook = module.register_forward_hook(
                    lambda m, a, y, path=path: _watch(sums, path, m, a, y)
                )
                hooks.callback(hook.remove)
        for root in _roots(patient.model):
            hooks.callback(root.remove)
        output = call(patient.model, patient.small)
        loss = _loss(patient, output)
        if loss.requires_grad:
            loss.backward()
    for path, (asked, passed, pulled, reached) in sums.items():
        site = patient.site(f"{path}.weight")
        if asked > 0:
            yield Reading("alignment.forward", site, "value", passed / asked)
        if pulled > 0:
            yield Reading("alignment.backward", site, "value", reached / pulled)


def _roots(model: nn.Module) -> Iterator[Any]:
    """Let the graph begin where inputs enter: the weights themselves need no gradient."""

    def begin(_module: nn.Module, _arguments: Any, output: Any) -> Any:
        if isinstance(output, Tensor) and output.is_floating_point() and output.is_leaf:
            output.requires_grad_(True)
        return output

    kinds = nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d
    entries = [module for module in model.modules() if isinstance(module, kinds)]
    for module in entries or [m for m in model.modules() if isinstance(m, nn.Linear)][:1]:
        yield module.register_forward_hook(begin)


def _watch(
    sums: dict[str, list[float]], path: str, module: nn.Module, arguments: Any, output: Any
) -> None:
    if not arguments or not isinstance(output, Tensor) or not isinstance(arguments[0], Tensor):
        return
    weight = _matrix(module)
    # By the rows as stored first: one long float32 sum is biased.
    stored = weight.T if kind_of(module) == "conv1d" else weight
    square = float(torch.linalg.vector_norm(stored, dim=-1).double().square().sum())
    inputs = arguments[0].detach().float()
    if weight.ndim != 2 or inputs.shape[-1] != weight.shape[1]:
        return
    passed = float(_product(module, inputs, weight, output).square().sum())
    asked = square * float(inputs.square().sum()) / weight.shape[1]
    entry = sums.setdefault(path, [0.0, 0.0, 0.0, 0.0])
    entry[0] += asked
    entry[1] += passed

    def back(gradient: Tensor) -> None:
        weight = _matrix(module)  # again: kept until now, they would be a copy of the model
        gradient = gradient.detach().float()
        # Scaled: squares of small gradients leave float32.
        gradient = gradient / gradient.abs().max().clamp_min(1e-38)
        entry[2] += square * float(gradient.square().sum()) / weight.shape[0]
        entry[3] += float((gradient @ weight).square().sum())

    if output.requires_grad and entry[2] == 0:
        output.register_hook(back)


def _matrix(module: nn.Module) -> Tensor:
    """The weights as (out, in), in float32."""
    weight: Tensor = module.weight.detach().float()  # pyright: ignore[reportAssignmentType, reportCallIssue, reportAttributeAccessIssue]
    return weight.T if kind_of(module) == "conv1d" else weight


def _product(module: nn.Module, inputs: Tensor, weight: Tensor, output: Tensor) -> Tensor:
    """W z: what a plain layer returned without its bias; else it is computed."""
    plain = type(module) is nn.Linear or type(module).__name__ == "Conv1D"
    # One hook is this check's own; another may have changed the output.
    changed = "forward" in vars(module) or len(module._forward_hooks) > 1  # pyright: ignore[reportPrivateUsage]
    if not plain or changed or output.dtype != torch.float32:
        return F.linear(inputs, weight)
    bias = module.bias
    return output.detach() - bias.detach() if isinstance(bias, Tensor) else output.detach()


def _loss(patient: Patient, output: Any) -> Tensor:
    """The loss of the next token where there are logits of a causal model, of the tokens themselves
    where it is not causal, else a random cotangent."""
    ids = patient.ids
    logits = find_logits(output, patient.model, tuple(ids.shape)) if ids is not None else None
    if ids is not None and logits is not None and logits.shape[:2] == ids.shape:
        stacks = patient.anatomy.stacks if patient.anatomy is not None else ()
        shift = 0 if any(stack.causal is False for stack in stacks) else 1
        length = ids.shape[1] - shift
        if length > 0:
            targets = ids[:, shift:].reshape(-1)
            return F.cross_entropy(
                logits[:, :length].reshape(-1, logits.shape[-1]).float(), targets
            )
    generator = torch.Generator().manual_seed(0)
    parts = [
        (one.float() * torch.randn(one.shape, generator=generator).to(one.device)).mean()
        for _, one in real_tensors(output)
    ]
    return torch.stack(parts).sum()
