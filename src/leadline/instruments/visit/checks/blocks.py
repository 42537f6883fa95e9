"""Every block by itself: what its output is, where norms stand, what happens between and after blocks.

Facts:
    block_survey   by stack, one report per layer (`anatomy.find.block_survey.BlockReport`)
    block_faults   what is wrong inside blocks, with stack, layer, module, role, formula, miss in eps
    between_blocks by stack, layers whose input is not the output of the layer before, as a sum
    final_norm     by stack, the norm behind the last block, or None
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Stack
from leadline.anatomy.find.block_report import BlockReport
from leadline.anatomy.find.block_survey import survey_blocks
from leadline.anatomy.find.discover import block_calls
from leadline.anatomy.find.trace import ModuleCall, trace_calls
from leadline.anatomy.find.unproved import stacks_beside
from leadline.instruments.passes.running import call, fit_batch
from leadline.instruments.visit.check import CouldNot, VisitFact, check
from leadline.instruments.visit.checks.norms import eps_of, gain_of
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import Inputs, random_inputs

FEW_TOKENS = 16
WIDE = 256
"""Streams of this width are surveyed on fewer tokens: numbers are fitted to tokens times width."""
FACTS = ("block_survey", "block_faults", "between_blocks", "final_norm")


@check("blocks", facts=FACTS, pass_cost=0.6)
def blocks(patient: Patient) -> Iterator[VisitFact | CouldNot]:
    """Survey every block on a small batch."""
    small, traced = _survey_batch(patient)

    def forward() -> object:
        return call(patient.model, small)

    stacks = list(_stacks(patient, forward))
    if not stacks:
        yield CouldNot(FACTS, "no row of blocks was found in the model")
        return
    by_address = {(one.path, one.number): one for one in traced}
    survey: dict[str, list[dict[str, Any]]] = {}
    faults: list[dict[str, Any]] = []
    between: dict[str, list[dict[str, Any]]] = {}
    final: dict[str, str | None] = {}
    for stack in stacks:
        addresses = block_calls(stack)
        calls = [by_address.get((one.path, one.number)) for one in addresses]
        passed = [one for one in calls if one is not None and one.returned is not None]
        if len(passed) != len(calls):
            continue
        assert passed[0].returned is not None
        reports = survey_blocks(patient.model, forward, addresses, passed[0].returned.shape)
        roles = _roles(stack)
        survey[stack.name] = [_report_json(patient.model, one, roles) for one in reports]
        between[stack.name] = list(_between(passed))
        outside = {one["layer"] for one in between[stack.name] if one["skip_outside"]}
        # Nothing follows the last layer inside the stack: it is taken as the one before it is.
        outside |= {len(passed)} if len(passed) - 1 in outside else set()
        faults += _faults(patient, stack, reports, roles, outside)
        final[stack.name] = _final_norm(traced, passed)
    yield VisitFact("block_survey", survey)
    yield VisitFact("block_faults", faults)
    yield VisitFact("between_blocks", between)
    yield VisitFact("final_norm", final)


def _survey_batch(patient: Patient) -> tuple[Inputs, list[ModuleCall]]:
    """Few random tokens with a trace of their pass: the equation of a block holds for each token."""
    traces: list[list[ModuleCall]] = []

    def run_once(inputs: Inputs) -> None:
        traces.append(trace_calls(patient.model, lambda: call(patient.model, inputs)))

    width = max((stack.width for stack in patient.stacks), default=0)
    if width >= WIDE:
        try:
            small = random_inputs(patient.model, examples=2, length=FEW_TOKENS, seed=1)
            run_once(small)
        except Exception:  # whatever a foreign model has against so few tokens
            traces.clear()
        else:
            return small, traces[-1]
    small = fit_batch(patient.model, patient.batch, 0, run_once)
    if not traces:  # the model refused random inputs
        run_once(small)
    return small, traces[-1]


def _stacks(patient: Patient, forward: Callable[[], object]) -> Iterator[Stack]:
    """The stacks of the anatomy, and rows of blocks that discovery could not read."""
    stacks = patient.stacks
    yield from stacks
    claimed = {block.module for stack in stacks for block in stack.blocks}
    names = {stack.name for stack in stacks}
    if not _attends_beside(patient, claimed):
        return
    for stack in stacks_beside(patient.model, forward, claimed):
        if stack.name not in names:
            yield stack


def _attends_beside(patient: Patient, claimed: set[str]) -> bool:
    """Whether a module called attention stands outside of the claimed blocks."""
    return any(
        "att" in f"{path} {type(module).__name__}".lower()
        and not any(path == one or path.startswith(f"{one}.") for one in claimed)
        for path, module in patient.model.named_modules()
        if path
    )


def _roles(stack: Stack) -> dict[str, str]:
    """The role of each branch by its name as seen from its block, as most layers have it."""
    roles: dict[str, str] = {}
    for block in stack.blocks:
        for write in block.sublayers:
            name = write.module.removeprefix(f"{block.module}.")
            roles.setdefault(name, write.role)
    return roles


def _role(name: str, roles: Mapping[str, str]) -> str | None:
    """The role of a branch: that of the same branch in other layers, else what its name says.

    An MLP that reads another branch's update moves tokens through it; its name says what it is.
    """
    if name.lower().split(".")[0] in ("mlp", "ffn", "feed_forward", "ff"):
        return "mlp"
    if name in roles:
        return roles[name]
    child = name.split(".", maxsplit=1)[0]
    kin = {role for other, role in roles.items() if other.split(".")[0] == child}
    if len(kin) == 1:
        return kin.pop()
    lowered = name.lower()
    if "cross" in lowered or "encdec" in lowered:
        return "cross-attention"
    if "att" in lowered or lowered in ("sa", "mha"):
        return "attention"
    words = ("mlp", "ff", "feed", "dense", "expert", "moe", "linear", "fc", "output")
    return "mlp" if any(word in lowered for word in words) else None


def _report_json(model: nn.Module, report: BlockReport, roles: Mapping[str, str]) -> dict[str, Any]:
    out = report.to_json()
    # DeepNorm is a connection: what has neither gain nor eps does not norm, whatever its name is.
    idle = {name: model.get_submodule(f"{report.module}.{name}") for name in report.idle_norms}
    out["idle_norms"] = [
        name
        for name, module in idle.items()
        if eps_of(module) is not None or gain_of(module) is not None
    ]
    for write in out["writes"]:
        write["role"] = _role(write["module"], roles)
    del out["faults"]
    return out


def _faults(
    patient: Patient,
    stack: Stack,
    reports: Sequence[BlockReport],
    roles: Mapping[str, str],
    outside: set[int],
) -> Iterator[dict[str, Any]]:
    missed = {} if patient.unproved is None else patient.unproved.missed
    for report in reports:
        eps = missed.get((stack.name, report.layer))
        for fault in report.faults:
            if fault.kind == "skip-missing" and report.layer in outside:
                continue  # the model adds the stream itself
            yield {
                "kind": fault.kind,
                "stack": stack.name,
                "layer": report.layer,
                "module": report.module,
                "class": report.class_name,
                "branch": f"{report.module}.{fault.branch}" if fault.branch else "",
                "role": _role(fault.branch, roles) if fault.branch else None,
                "source": fault.source,
                "formula": fault.formula,
                "output": report.formula,
                "number": fault.number,
                "eps": None if eps is None or eps == float("inf") else eps,
                "reads": f"{report.module}.{fault.reads}" if fault.reads else "",
                "certain": fault.certain,
                "gates": list(report.gates),
                "largest_share": report.largest_share,
            }


def _between(calls: Sequence[ModuleCall]) -> Iterator[dict[str, Any]]:
    """Layers whose successor does not take in what they returned, with the sum that it takes in."""
    for index in range(len(calls) - 1):
        entered, returned = calls[index].entered, calls[index].returned
        following = calls[index + 1].entered
        if entered is None or returned is None or following is None:
            continue
        if following.shape != returned.shape or torch.equal(following, returned):
            continue
        keep, gain, fits = _sum_of_two(entered, returned, following)
        yield {
            "layer": index + 1,
            "keep": keep if fits else None,
            "gain": gain if fits else None,
            "skip_outside": fits and abs(keep) > 0.05,
        }


def _sum_of_two(
    first: torch.Tensor, second: torch.Tensor, total: torch.Tensor
) -> tuple[float, float, bool]:
    """Coefficients of total = a first + b second, and whether it holds to rounding."""
    a, b, c = (tensor.detach().double().flatten() for tensor in (first, second, total))
    matrix = torch.stack([a, b], dim=1)
    if not bool(torch.isfinite(matrix).all()) or not bool(torch.isfinite(c).all()):
        return 0.0, 0.0, False
    solution = torch.linalg.lstsq(matrix, c[:, None]).solution[:, 0]
    miss = float((matrix @ solution - c).norm() / c.norm().clamp_min(1e-300))
    keep, gain = (round(float(value), 6) for value in solution)
    return keep, gain, miss < 64 * torch.finfo(total.dtype).eps


def _final_norm(traced: Sequence[ModuleCall], blocks_run: Sequence[ModuleCall]) -> str | None:
    """The first norm that runs after the last block, outside of blocks; None where none does."""
    ids = {id(one) for one in blocks_run}
    last = next(i for i, one in enumerate(traced) if one is blocks_run[-1])
    for one in traced[last + 1 :]:
        if id(one) in ids or one.inside(ids):
            continue
        if "norm" in type(one.module).__name__.lower():
            return one.path
    return None
