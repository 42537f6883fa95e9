"""Isolation of examples, reach of tokens, use of positions, heads, masks: passes on small inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.anatomy import MIXING
from leadline.instruments.visit.check import CouldNot, VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.tokens.calls import AttentionCalls
from leadline.instruments.visit.tokens.intention import (
    causal_reasons,
    from_library,
    is_of_positions,
    position_parts,
    takes_tokens_first,
    windows,
)
from leadline.instruments.visit.tokens.isolation import NotApart, isolation
from leadline.instruments.visit.tokens.panel import order_told, run_local, run_panel
from leadline.instruments.visit.tokens.rows import TokenRows, token_rows
from leadline.models.inputs.model_facts import token_embedding

_PASSES = 1.2
"""Three passes over up to 10 rows of 32 tokens: about one over a usual batch, and what is read of it."""


@check(
    "tokens",
    facts=(
        "isolation",
        "attention_calls",
        "token_panels",
        "intention",
        "positions",
        "softmax_axes",
    ),
    pass_cost=_PASSES,
)
def tokens(patient: Patient) -> Iterator[VisitFact | CouldNot]:
    """Find out what moves when a token, an example or the order of tokens changes."""
    yield VisitFact(
        "intention",
        {
            "causal": causal_reasons(patient.model),
            "library": from_library(patient.model),
            "windows": windows(patient.model),
        },
    )
    seen = patient.attention()
    for one in seen.entries:
        one.update(_place(patient, one["module"]))
    yield VisitFact("attention_calls", seen.entries)
    yield VisitFact(
        "softmax_axes", [one | _place(patient, one["module"]) for one in seen.odd_softmax]
    )
    tables = _position_tables(patient, seen)
    twins = None
    if patient.twin is not None:
        twins = patient.attention(patient.twin)
        yield VisitFact("twin_attention_calls", twins.entries)
    yield VisitFact(
        "positions",
        {
            "parts": position_parts(patient.model),
            "tables": tables,
            "twin_tables": {}
            if twins is None
            else {path: twins.lookups.get(path) for path in tables},
        },
    )
    if takes_tokens_first(patient.model):
        why = "the model takes [token, example, width] (batch_first=False), so no axis is sure"
        yield CouldNot(("isolation", "token_panels"), why)
        return
    apart: dict[str, Any] = {"random": 0.0, "mixed": 0.0}
    try:
        apart = isolation(patient)
        yield VisitFact("isolation", apart)
    except NotApart as error:
        yield CouldNot(("isolation",), str(error))
    if apart["random"] or apart["mixed"]:
        why = "the passes are random" if apart["random"] else "examples are mixed"
        yield CouldNot(("token_panels",), f"{why}, so variants in one batch tell nothing")
        return
    panels = _panels(patient, seen)
    if not panels:
        yield CouldNot(("token_panels",), "the inputs have no row of at least six plain tokens")
        return
    yield VisitFact("token_panels", panels)


def _panels(patient: Patient, seen: AttentionCalls) -> list[dict[str, Any]]:
    mixers = _mixers(patient, seen)
    panels: list[dict[str, Any]] = []
    for rows in token_rows(patient):
        panel = run_panel(patient.model, rows, mixers).to_json()
        for path, entry in panel["mixers"].items():
            entry.update(_place(patient, path))
        panel |= {
            "input": rows.name,
            "tokens": rows.tokens,
            "middle": rows.middle,
            "first": rows.first,
            "last": rows.last,
            "pair": list(rows.pair),
        }
        if panel["rows_differ"]:
            panel["order_told"] = order_told(patient.model, rows)
        if patient.twin is not None:
            # Where places are told before the first mixer and no output looks ahead, rules ask of the
            # twin only what its mixers do alone.
            run_twin = run_local if _is_plain(panel, rows) else run_panel
            panel["twin"] = run_twin(patient.twin, rows, mixers).to_json()
        panels.append(panel)
    return panels


def _is_plain(panel: dict[str, Any], rows: TokenRows) -> bool:
    output = panel["output"]
    if not output or panel["rows_differ"] or panel["swapped"] is not False:
        return False
    if "1" in output["middle"][: rows.middle] or "1" in output["last"][: rows.last]:
        return False
    # A mixer that looks ahead asks the twin's output for the intention.
    return not any(
        "1" in entry["middle"][: rows.middle] + entry["last"][: rows.last]
        for entry in panel["mixers"].values()
        if "first" in entry
    )


def _mixers(patient: Patient, seen: AttentionCalls) -> list[str]:
    """The modules that get tokens and run an attention, and those of other mixers of tokens."""
    paths: dict[str, None] = {}
    for entry in seen.entries:
        path = entry["module"]
        while path and path not in seen.takes_tokens:
            path = path.rpartition(".")[0]
        if path:
            paths[path] = None
            entry["mixer"] = path
    attention = set(paths)
    if patient.anatomy is not None:
        for stack in patient.anatomy.stacks:
            for block in stack.blocks:
                if any(path == block.module or path.startswith(f"{block.module}.")
                       for path in attention):  # fmt: skip
                    continue
                for sublayer in block.sublayers:
                    if sublayer.role in MIXING:
                        paths[sublayer.module] = None
    return list(paths)


def _position_tables(patient: Patient, seen: AttentionCalls) -> dict[str, list[int]]:
    """What the tables of positions were asked for: tables other than that of the tokens."""
    tokens = token_embedding(patient.model)
    modules = dict(patient.model.named_modules(remove_duplicate=False))
    return {
        path: rows
        for path, rows in seen.lookups.items()
        if modules[path] is not tokens and is_of_positions(path)
    }


def _place(patient: Patient, path: str) -> dict[str, Any]:
    """The stack and layer of a module."""
    site = patient.site(f"{path}.")
    return {"stack": site.stack, "layer": site.layer}
