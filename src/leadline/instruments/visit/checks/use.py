"""Which parameters a pass uses, and which of them a gradient reaches.

Loss: a random cotangent over every tensor that the model returns, so that a head or a pooled output
that no training loss reads counts as used. A parameter without a gradient is changed in a further
pass: where the output moves although no gradient came, the gradient is cut; where it does not move,
the parameter is not used.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, configured_model
from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.checks.weights import owners_of
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import Inputs
from leadline.models.inputs.logits import real_tensors
from leadline.models.inputs.model_facts import forward_names
from leadline.models.streaming.recomputing import recomputed

__all__ = ["use"]

MOST_GROUPS = 24
"""So many groups of parameters are changed on their own; the rest all at once."""
SMALLEST = 1e-15
"""Squares of numbers from here on, and sums of them, are within the range of float32."""
_FACTOR = re.compile(r"lora_(A|a|down)(?=[._]|$)")
_SECOND = {"A": "B", "a": "b", "down": "up"}


@check("use", facts=("gradients", "adapters", "library"), pass_cost=0.7)
def use(patient: Patient) -> Iterator[VisitFact]:
    """Parameters without gradient, with gradient 0, unused, and the state of adapters."""
    model = patient.model
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    gradients, called = gradients_of(model, patient.small, patient.anatomy)
    missing = [name for name, gradient in gradients.items() if gradient is None]
    twins: Mapping[str, float | None] = {}
    # Where every parameter gets a gradient, there is nothing to ask the twin.
    if patient.twin is not None and not all(gradients.values()):
        twins, _ = gradients_of(patient.twin, patient.small)
    moves = _moves(patient, missing)
    owners = owners_of(model)
    paths = {id(module): path for path, module in model.named_modules()}
    yield VisitFact(
        "gradients",
        {
            "loss": "a random cotangent over all outputs",
            "none": [
                {
                    "name": name,
                    "module": type(owners[name]).__name__,
                    "called": id(owners[name]) in called,
                    "moves": moves.get(name),
                    "twin": name in twins and twins[name] is None,
                    "expert": _is_choice(model, paths[id(owners[name])], called),
                }
                for name in missing
            ],
            "zero": [name for name, gradient in gradients.items() if gradient == 0.0],
            "twin_zero": [name for name, gradient in twins.items() if gradient == 0.0],
            "parameters": len(gradients),
        },
    )
    yield VisitFact("adapters", _adapters(model, gradients, trainable))
    home = type(configured_model(model)).__module__
    # Models of the tests stand for models of users.
    library = "" if home.startswith("leadline.testing") else home.partition(".")[0]
    yield VisitFact("library", library)


def gradients_of(
    model: nn.Module, inputs: Inputs, anatomy: Anatomy | None = None
) -> tuple[dict[str, float | None], set[int]]:
    """The norm of every parameter's gradient, None where it has none; and the modules called, by id."""
    named = [(n, p) for n, p in model.named_parameters() if p.is_floating_point()]
    called: set[int] = set()
    with ExitStack() as stack, torch.enable_grad():
        for _, parameter in named:
            stack.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(True)
        for module in model.modules():
            stack.callback(module.register_forward_pre_hook(lambda m, _: called.add(id(m))).remove)
        norms: dict[str, float | None] = dict.fromkeys((name for name, _ in named), None)
        for name, parameter in named:
            reduce = _reducing(name, norms)
            stack.callback(parameter.register_post_accumulate_grad_hook(reduce).remove)
        if anatomy is not None:
            stack.enter_context(recomputed(model, anatomy))
        loss = _projected(call(model, inputs))
        if loss is not None:
            loss.backward()
    return norms, called


def _reducing(name: str, norms: dict[str, float | None]) -> Callable[[Tensor], None]:
    """A hook that keeps the norm of a complete gradient and lets the gradient go."""

    def reduce(parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        norms[name] = None if gradient is None else _norm(gradient)

    return reduce


def _norm(gradient: Tensor) -> float:
    """The norm, in double precision only where squares leave the range of the numbers."""
    # By rows first: one long float32 sum is biased.
    norm = float(torch.linalg.vector_norm(torch.atleast_1d(gradient), dim=-1).double().norm())
    if SMALLEST < norm < 1 / SMALLEST:
        return norm
    return float(torch.linalg.vector_norm(gradient, dtype=torch.float64))


def _projected(output: Any) -> Tensor | None:
    """The sum of all outputs against random numbers; None where none of them carries a gradient."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        (one.float() * torch.randn(one.shape, generator=generator).to(one.device)).mean()
        for _, one in real_tensors(output)
        if one.requires_grad and one.numel()
    ]
    return torch.stack(parts).sum() if parts else None


def _moves(patient: Patient, names: Sequence[str]) -> dict[str, bool]:
    """Whether an output moves when the parameters of a group change, for parameters by name."""
    if not names:
        return {}
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        site = patient.site(name)
        at = f"{site.stack} {site.layer}" if site.layer else name.rpartition(".")[0]
        groups[at].append(name)
    chosen = list(groups.values())
    if len(chosen) > MOST_GROUPS:
        chosen = [*chosen[: MOST_GROUPS - 1], [n for g in chosen[MOST_GROUPS - 1 :] for n in g]]
    parameters = dict(patient.model.named_parameters())
    before = _outputs(patient, {})
    answers: dict[str, bool] = {}
    for group in chosen:
        changed = {
            name: parameters[name].detach()
            + torch.randn_like(parameters[name]) * (0.1 + parameters[name].detach().abs())
            for name in group
        }
        after = _outputs(patient, changed)
        moved = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        answers |= dict.fromkeys(group, moved)
    return answers


def _outputs(patient: Patient, changed: Mapping[str, Tensor]) -> list[Tensor]:
    """All outputs of a pass with other values for some parameters; the model keeps its own."""
    arguments: dict[str, Any] = dict(patient.small.tensors)
    if "use_cache" in forward_names(patient.model):
        arguments.setdefault("use_cache", False)
    with torch.no_grad():
        output = torch.func.functional_call(patient.model, dict(changed), (), arguments)
    return [tensor for _, tensor in real_tensors(output)]


def _is_choice(model: nn.Module, path: str, called: set[int]) -> bool:
    """Whether a module stands in a list inside a block of which others were called: an expert.

    A router leaves experts out, and other inputs choose others.
    """
    names = path.split(".")
    for at in range(len(names) - 1, 0, -1):
        parent = model.get_submodule(".".join(names[:at]))
        if not isinstance(parent, nn.ModuleList | nn.ModuleDict):
            continue
        child = model.get_submodule(".".join(names[: at + 1]))
        siblings = [one for one in parent.children() if type(one) is type(child)]
        depth = sum(name.isdigit() for name in names[:at])
        chosen = any(id(one) in called for one in siblings)
        if depth and chosen and id(child) not in called:
            return True
    return False


def _adapters(
    model: nn.Module, gradients: Mapping[str, float | None], trainable: set[str]
) -> list[dict[str, Any]]:
    """Pairs of low-rank factors: whether each is 0, its gradient, and whether it may be trained."""
    parameters = dict(model.named_parameters())
    pairs: list[dict[str, Any]] = []
    for first, factor in parameters.items():
        match = _FACTOR.search(first)
        if match is None:
            continue
        second = f"{first[: match.start(1)]}{_SECOND[match[1]]}{first[match.end(1) :]}"
        if second not in parameters:
            continue
        pairs.append(
            {
                "first": first,
                "second": second,
                "first_zero": not bool(factor.detach().any()),
                "second_zero": not bool(parameters[second].detach().any()),
                "first_gradient": gradients.get(first),
                "second_gradient": gradients.get(second),
                "trainable": first in trainable or second in trainable,
            }
        )
    return pairs
