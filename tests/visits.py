"""Models and visits for tests of a diagnosis: small hosts, and what rules say of them."""

from __future__ import annotations

import contextlib
import inspect
import textwrap
from typing import Any

import torch
from torch import nn

from leadline.instruments.visit.twin import NoTwin, build_twin
from leadline.instruments.visit.visit import visit
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record import Finding, Quantity, Reading, Record, Site

__all__ = ["findings", "gpt2", "language", "visited"]

_RMS = Quantity(
    name="weights.rms",
    title="Root mean square of a tensor",
    symbol="rms(W)",
    formula="root of the mean square of the entries",
    lives_on="layer",
    headline="value",
)


def gpt2(depth: int = 6, *, width: int = 32, spread: float = 0.02, seed: int = 0) -> Any:
    """A small GPT-2 as it is drawn."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(
        n_layer=depth, n_embd=width, n_head=4, vocab_size=200, n_positions=64,
        initializer_range=spread, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def language(examples: int = 2, length: int = 96) -> torch.Tensor:
    """Bytes of the source of a module of the standard library."""
    source = inspect.getsource(textwrap).encode()
    rows = [source[1500 + 700 * row : 1500 + 700 * row + length] for row in range(examples)]
    return torch.tensor([list(row) for row in rows])


def visited(model: nn.Module, inputs: Any = None, **options: Any) -> Record:
    """The record of a visit, with the spread of every tensor and of its twin's."""
    record = visit(model, inputs, **options)
    if "weights.rms" in record.quantities:
        return record
    models = {"value": model}
    with contextlib.suppress(NoTwin):
        models["twin"] = build_twin(model, 1)
    blocks = {
        path: (stack, layer)
        for stack, paths in record.provenance["visit"]["rows"].items()
        for layer, path in enumerate(paths, start=1)
    }
    record.describe(_RMS)
    record.append(
        Reading("weights.rms", _site(name, blocks), statistic, _rms(tensor))
        for statistic, one in models.items()
        for name, tensor in one.named_parameters()
    )
    return record


def findings(record: Record, *codes: str, **options: Any) -> dict[str, Finding]:
    """What these rules say of a record, by code."""
    diagnosis = diagnose_record(record, select=codes, **options)
    return {finding.code: finding for finding in diagnosis.findings}


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt())


def _site(name: str, blocks: dict[str, tuple[str, int]]) -> Site:
    for path, (stack, layer) in blocks.items():
        if name.startswith(f"{path}."):
            return Site(stack, layer, None, name[len(path) + 1 :])
    return Site("model", 0, None, name)
