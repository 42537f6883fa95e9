"""Measure a model that does not balance as far as possible.

The stream and its gradient are read before and after every block, updates and attention in the
blocks that do balance. What is left out stands in the coverage and in the remarks of the anatomy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from leadline.anatomy import TOLERANCE, Anatomy, Balance, untouched
from leadline.anatomy.find.unproved import Unproved, unproved_anatomy
from leadline.anatomy.find.unusual import layers_in_words
from leadline.instruments.passes.coverage import coverage_of
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.passes.provenance import loss_facts, model_facts, versions
from leadline.instruments.passes.running import call, fit_batch, run
from leadline.models.inputs import Inputs, choose_loss
from leadline.record import Record

__all__ = ["measure_unbalanced", "read_unproved"]


def read_unproved(module: nn.Module, batch: Inputs, seed: int) -> Unproved:
    """The blocks of a refused model; AnatomyError where it has none."""
    with torch.inference_mode(False), torch.enable_grad(), untouched(module):
        small = fit_batch(module, batch, seed, lambda one: call(module, one))
        return unproved_anatomy(module, lambda: call(module, small), lambda: call(module, batch))


def measure_unbalanced(
    module: nn.Module,
    batch: Inputs,
    unproved: Unproved,
    *,
    probes: str,
    seed: int,
    name: str | None,
    source: str,
) -> Record:
    """The record of a model some of whose blocks do not balance."""
    started = time.perf_counter()
    chosen = plan(probes)
    anatomy = unproved.anatomy
    with torch.inference_mode(False), torch.enable_grad(), untouched(module):
        frozen = sum(not parameter.requires_grad for parameter in module.parameters())
        head, _ = head_of(module, batch, anatomy, "auto", seed)
        loss, batch = choose_loss(module, batch, "auto", seed=seed, head=head)
        outcome = run(module, anatomy, chosen, batch, loss)
        # First the numbers: only they tell which of them there are none of.
        readings = outcome.collector.readings()
        coverage = coverage_of(module, batch, chosen, outcome, anatomy, frozen=frozen)
    record = Record()
    for quantity in chosen.quantities:
        if quantity.name in outcome.collector.measured:
            record.describe(quantity)
    record.append(readings)
    sentences = _missed_sentences(unproved)
    coverage["refused"] += [
        {"what": f"updates and attention in {layers} of the {stack}", "why": "no balance there"}
        for stack, layers in _missed_layers(unproved).items()
    ]
    notes: dict[str, Any] = {
        "anatomy": _anatomy_json(anatomy, outcome.balance, unproved, sentences),
        "input": batch.summary(),
        "loss": loss_facts(loss, outcome.loss),
        "passes": {"forward": 1, "backward": int(chosen.backward)},
        "probes": [str(choice) for choice in chosen.choices],
        "coverage": coverage,
        "model": model_facts(module, name, source),
        "versions": versions(),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if outcome.collector.attentions:
        notes["attention"] = outcome.collector.attentions
    for key, value in notes.items():
        record.note(key, value)
    for finding in outcome.collector.remarks:
        record.add_finding(finding)
    return record


def _missed_layers(unproved: Unproved) -> dict[str, str]:
    layers: dict[str, list[int]] = {}
    for stack, layer in unproved.missed:
        layers.setdefault(stack, []).append(layer)
    return {
        stack: layers_in_words(numbers, unproved.anatomy.stack(stack).depth)
        for stack, numbers in layers.items()
    }


def _missed_sentences(unproved: Unproved) -> list[str]:
    return [
        f"{layers.capitalize()} of the {stack} did not balance: no update was measured there."
        for stack, layers in _missed_layers(unproved).items()
    ]


def _anatomy_json(
    anatomy: Anatomy, balance: Balance, unproved: Unproved, sentences: list[str]
) -> dict[str, Any]:
    """The anatomy with the balance of the layers that do balance, and the others by name."""
    judged = {
        place: eps
        for place, eps in balance.per_layer.items()
        if place not in unproved.missed and eps <= TOLERANCE
    }
    remarks = (*anatomy.remarks, *sentences)
    anatomy = replace(anatomy, source=f"{anatomy.source}, not proved", remarks=remarks)
    out = anatomy.to_json() | {
        "balance_missed": [
            {"stack": stack, "layer": layer, "eps": None if eps == float("inf") else eps}
            for (stack, layer), eps in sorted(unproved.missed.items())
        ]
    }
    if judged:
        worst = max(judged, key=lambda place: judged[place])
        proved = replace(
            balance, eps=judged[worst], stack=worst[0], layer=worst[1], layers=len(judged)
        )
        out |= proved.to_json()
    return out
