"""What a measurement prints as JSON is strict, complete and documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import leadline
from leadline.reading.page import as_json

DOCS = Path(__file__).parents[2] / "docs" / "json.md"
# Mappings whose keys are names of things, not words of the schema.
NAMED = ("quantities", "definitions", "stacks", "versions", "passes")


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4,
        n_embd=16,
        n_head=2,
        vocab_size=50,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    record = leadline.measure(model, inputs, name="tiny")
    return json.loads(json.dumps(as_json(record), allow_nan=False))


def keys_of(value: Any, *, under: str = "") -> set[str]:
    if isinstance(value, list):
        return set().union(*(keys_of(item, under=under) for item in value))
    if not isinstance(value, dict):
        return set()
    chosen = set() if under in NAMED else set(value)
    return chosen.union(
        *(keys_of(item, under="" if under in NAMED else key) for key, item in value.items())
    )


def test_every_key_of_a_measurement_is_documented(measured: dict[str, Any]) -> None:
    coverage = measured["provenance"].pop("coverage")
    assert {"measured", "refused"} <= set(coverage)
    documented = set(re.findall(r"`([^`\s]+)`", DOCS.read_text(encoding="utf-8")))
    assert keys_of(measured) - documented == set()


def test_measurement_tells_what_the_schema_promises(measured: dict[str, Any]) -> None:
    anatomy = measured["anatomy"]
    assert (anatomy["layers"], anatomy["sublayers"]) == (4, 8)
    assert 0 <= anatomy["balance_eps"] <= 4
    assert anatomy["source"] == "discovery"
    assert len(measured["quantities"]["stream.norm"]) == 5
    assert len(measured["quantities"]["update.norm"]) == 4
    assert len(measured["quantities"]["update.norm[attention]"]) == 4
    assert measured["passes"]["forward"] == measured["passes"]["backward"] == 1
    assert measured["input"]["tokens"] == 16
    assert set(measured["definitions"]) == {entry["quantity"] for entry in measured["series"]}
