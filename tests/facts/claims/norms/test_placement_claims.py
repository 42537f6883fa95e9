"""Where the norms of model types stand: read from the tensors, and ruled on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("transformers")

from leadline.anatomy.find import sublayer_roles as roles
from leadline.claims import CLAIMS
from leadline.claims.measure.placements import (
    BERT_FAMILY,
    GPT_FAMILY,
    PLACEMENTS,
    read_placements,
    share,
)
from leadline.claims.ruling import Ruling, rule

FEW = (*BERT_FAMILY, *GPT_FAMILY, "openai-gpt", "t5", "llama", "opt-post", "gemma2", "olmo2")
BY_HAND = {
    "bert": ["post"],
    "gpt2": ["pre"],
    "openai-gpt": ["post"],
    "llama": ["pre"],
    "t5": ["pre"],
    "opt-post": ["post"],
    "gemma2": ["sandwich"],
    "olmo2": ["output"],
}
"""By reading the source of transformers."""


@pytest.fixture(scope="module")
def few() -> Mapping[str, Any]:
    return {"placements": read_placements(FEW, seed=0), "decoders": [*GPT_FAMILY, "olmo2"]}


def _ruled(name: str, kept: Mapping[str, Any]) -> Ruling:
    entry = CLAIMS.get(name)
    numbers = entry.run(0, {PLACEMENTS.name: kept}).numbers
    return rule(entry.claim, {key: [value] for key, value in numbers.items()}, seeds=(0,))


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_the_placement_is_that_of_the_source_code(name: str, few: Mapping[str, Any]) -> None:
    assert sorted(set(few["placements"][name])) == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("gpt-and-bert-pre-norm", "false as stated"),
        ("pre-norm-in-gpt-llama-t5", "holds under conditions"),
        ("all-pre-norm-since-gpt2", "false as stated"),
        ("two-placements", "holds"),
    ],
)
def test_the_placements_rule(name: str, verdict: str, few: Mapping[str, Any]) -> None:
    found = _ruled(name, few)
    assert found.verdict == verdict
    assert found.correction in ("holds", None)


@pytest.mark.slow
def test_nearly_all_decoders_leave_the_stream_without_a_norm() -> None:
    kept = PLACEMENTS.run(0)
    found = _ruled("nearly-all-pre-norm", kept)
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    assert kept["refused"] == ["gemma3n_text"]
    assert found.numbers is not None
    assert found.numbers["types"][0] == len(kept["decoders"]) - 1


def test_a_type_counts_where_all_its_writes_fit() -> None:
    found: dict[str, Sequence[str]] = {"a": ["pre", "pre"], "b": ["pre", "post"]}
    assert share(found, ("a", "b"), "pre") == 0.5
    assert share(found, ("a", "b"), "pre", "post") == 1.0


def test_an_anatomy_that_takes_post_for_pre_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = roles.placement_name

    def mutant(enters: bool, exits: bool, settles: bool) -> str:
        found = real(enters, exits, settles)
        return {"post": "pre", "pre": "post"}.get(found, found)

    monkeypatch.setattr(roles, "placement_name", mutant)
    kept = {"placements": read_placements(FEW, seed=0), "decoders": ["gpt2"]}
    assert _ruled("gpt-and-bert-pre-norm", kept).correction == "fails"
    assert _ruled("two-placements", kept).verdict == "false as stated"
    assert _ruled("pre-norm-in-gpt-llama-t5", kept).verdict == "false as stated"
