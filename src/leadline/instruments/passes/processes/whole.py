"""What all processes measured together: the outcome of the whole batch, and the record for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Balance
from leadline.errors import AnatomyError, ProbeError
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.processes.attention import finding_of
from leadline.instruments.passes.processes.convoy import Convoy
from leadline.instruments.passes.processes.gathered import (
    anatomy_facts,
    anatomy_from_facts,
    gathered,
    memory_hindrance,
)
from leadline.instruments.passes.processes.joining import difference, joined_readings
from leadline.instruments.passes.processes.mailbox import Message
from leadline.instruments.passes.processes.part import PartCollector, pieces_in, pieces_message
from leadline.instruments.passes.processes.sharding import fsdp_modules
from leadline.instruments.passes.processes.shares import BatchShares
from leadline.record import Quantity, Reading, Record, Site

__all__ = [
    "handed_out",
    "process_facts",
    "prove_together",
    "refuse_alone",
    "whole_balance",
    "whole_readings",
]


def refuse_alone(plan: Plan, convoy: Convoy) -> None:
    """Refuse by name the probes that need a whole model in one process."""
    if plan.linear:
        names = [str(choice) for choice, probe in zip(plan.choices, plan.probes, strict=True)]
        linear = [n for n, probe in zip(names, plan.probes, strict=True) if probe in plan.linear]
        raise ProbeError(
            f"{', '.join(linear)} goes through single blocks by functional calls, which the hooks of "
            "DDP, FSDP2 and tensor parallelism do not allow; measure it in one process, on the plain "
            "model."
        )
    if convoy.sharding == "tensor" and plan.attention:
        names = [
            str(choice)
            for choice, probe in zip(plan.choices, plan.probes, strict=True)
            if {"attention", "heads", "perceptron"} & set(probe.sees)
        ]
        raise ProbeError(
            f"Under tensor parallelism each process has some of the heads and some of the hidden "
            f"neurons, so {', '.join(names)} cannot be measured; leave it out, or measure the plain "
            "model in one process."
        )


# --- the anatomy -----------------------------------------------------------------------------------


def prove_together(module: nn.Module, prove: Any, convoy: Convoy) -> tuple[Anatomy, int]:
    """The anatomy, the same in all processes, and how many passes it took.

    FSDP2: the first process proves alone, on weights that all have gathered once.
    """
    if convoy.sharding != "fsdp":
        with convoy.guarded():
            anatomy, passes = prove()
        told = convoy.exchange("the anatomy", {"stacks": repr(anatomy.stacks)})
        for rank, one in enumerate(told):
            if one["stacks"] != told[0]["stacks"]:
                raise AnatomyError(
                    f"Processes 0 and {rank} found different anatomies, so they do not have the same "
                    "model; give anatomy=leadline.anatomy_of(model, inputs) in every process."
                )
        return anatomy, passes
    hindrances = convoy.exchange("the memory", {"why": memory_hindrance(module)})
    why = next((one["why"] for one in hindrances if one["why"]), "")
    if why:
        raise AnatomyError(why)
    with convoy.guarded():
        for part in fsdp_modules(module):
            part.unshard()
    if convoy.main:
        with gathered(module):
            anatomy, passes = prove()
        facts = {"anatomy": anatomy_facts(anatomy), "passes": passes}
        convoy.hand_out("the anatomy", Message(facts))
        return anatomy, passes
    for part in fsdp_modules(module):
        part.reshard()
    facts = convoy.hand_out("the anatomy", None).facts
    return anatomy_from_facts(facts["anatomy"]), facts["passes"]


# --- the numbers -----------------------------------------------------------------------------------


def whole_readings(
    collector: PartCollector, shares: BatchShares, convoy: Convoy, plan: Plan
) -> tuple[list[Reading], list[str]] | None:
    """The readings of the whole batch and what cannot be joined, in the first process."""
    pieces = collector.pieces()
    messages = convoy.gather("the readings", pieces_message(pieces))
    if not messages:
        return None
    parts = [pieces, *(pieces_in(message) for message in messages[1:])]
    for rank, first in enumerate(shares.first):
        if rank != first and (where := difference(parts[first], parts[rank])):
            raise AnatomyError(
                f"Processes {first} and {rank} have the same inputs and read different numbers: "
                f"{where}. Their weights differ, or a stream is spread over them in a form that is "
                "not read (such as local tensors of sequence parallelism)."
            )
    quantities = {quantity.name: quantity for quantity in plan.quantities}
    readings, unjoined = joined_readings([parts[one] for one in shares.parts], quantities)
    collector.measured = {reading.quantity for reading in readings}
    return readings, [name for name in unjoined if name not in collector.measured]


def whole_balance(balance: Balance, convoy: Convoy) -> Balance:
    """The worst balance of all processes; a write is idle or zero if it is so in all of them."""
    own = {
        "eps": balance.eps,
        "place": [balance.stack, balance.layer],
        "layers": [[*key, eps] for key, eps in balance.per_layer.items()],
        "unjudged": [list(key) for key in balance.unjudged],
        "faintest": balance.faintest,
        "uncalled": [list(key) for key in balance.uncalled],
        "zero": [list(key) for key in balance.zero],
    }
    told = convoy.exchange("the balance", own)
    worst = max(told, key=lambda one: (one["eps"] == one["eps"], one["eps"]))
    per_layer: dict[tuple[str, int], float] = {}
    layers: list[tuple[str, int, float]] = [tuple(row) for one in told for row in one["layers"]]
    for stack, layer, eps in layers:
        before = per_layer.get((stack, layer), 0.0)
        per_layer[stack, layer] = eps if eps != eps or eps > before else before
    unjudged = [tuple(key) for one in told for key in one["unjudged"]]
    faint = [one["faintest"] for one in told if one["faintest"] == one["faintest"]]
    return replace(
        balance,
        eps=worst["eps"],
        stack=worst["place"][0],
        layer=worst["place"][1],
        layers=sum(eps == eps for eps in per_layer.values()),
        per_layer=per_layer,
        unjudged=tuple(dict.fromkeys(unjudged)),
        faintest=min(faint, default=float("nan")),
        uncalled=_in_all([one["uncalled"] for one in told]),
        zero=_in_all([one["zero"] for one in told]),
    )


def _in_all(tables: Sequence[Sequence[Sequence[Any]]]) -> tuple[Any, ...]:
    sets = [{tuple(key) for key in one} for one in tables]
    return tuple(tuple(key) for key in tables[0] if all(tuple(key) in one for one in sets))


def process_facts(convoy: Convoy, shares: BatchShares) -> dict[str, Any]:
    """What the record says about the processes."""
    return {
        "count": convoy.count,
        "sharding": convoy.sharding,
        "parts": len(shares.parts),
        "whole": "every number is that of the whole model on the whole batch",
    }


# --- the record ------------------------------------------------------------------------------------


def handed_out(record: Record | None, convoy: Convoy) -> Record:
    """The record of the first process in all of them."""
    if record is not None:
        convoy.hand_out("the record", _as_message(record))
        return record
    return _from_message(convoy.hand_out("the record", None))


def _as_message(record: Record) -> Message:
    readings = record.select()
    ends = [(one.value, one.lower, one.upper) for one in readings]
    facts = {
        "rows": [[one.quantity, astuple(one.site), one.statistic] for one in readings],
        "known": [[end is not None for end in one] for one in ends],
        "quantities": [asdict(quantity) for quantity in record.quantities.values()],
        "notes": record.provenance,
        "findings": [asdict(finding) for finding in record.findings],
    }
    return Message(facts, [0.0 if end is None else end for one in ends for end in one])


def _from_message(message: Message) -> Record:
    facts, numbers = message.facts, iter(message.numbers)
    record = Record()
    for one in facts["quantities"]:
        tables = {name: tuple(value) for name, value in one.items() if isinstance(value, list)}
        record.describe(Quantity(**(one | tables)))
    readings: list[Reading] = []
    for (name, site, statistic), is_known in zip(facts["rows"], facts["known"], strict=True):
        ends = [next(numbers) for _ in is_known]
        value, lower, upper = (
            end if has else None for end, has in zip(ends, is_known, strict=True)
        )
        assert value is not None
        readings.append(Reading(name, Site(*site), statistic, value, lower, upper))
    record.append(readings)
    for key, value in facts["notes"].items():
        record.note(key, value)
    for one in facts["findings"]:
        record.add_finding(finding_of(one))
    return record
