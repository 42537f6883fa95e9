"""A visit of a model that refuses something unusual says so, and goes on with what it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leadline.instruments.visit.diagnose import diagnose
from leadline.instruments.visit.patient import Patient, takes_shorter_rows
from leadline.instruments.visit.tokens.isolation import shift_of
from leadline.instruments.visit.visit import visit
from leadline.models.inputs.for_model import batch_for
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rules.weights.weights_foreign import weights_foreign
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic_blocks import VOCABULARY, PlainBlock, plain_gpt

LENGTH, WIDTH = 40, 16


class FixedLength(nn.Module):
    """A plain model that takes rows of one length alone: it adds or asserts it."""

    def __init__(self, refusal: str) -> None:
        super().__init__()
        self.refusal = refusal
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(1, LENGTH, WIDTH))
        self.blocks = nn.ModuleList(PlainBlock(WIDTH, None) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        if self.refusal == "assert":
            assert ids.shape[1] == LENGTH
        x = self.table(ids) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _ids(examples: int = 4, length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (examples, length), generator=generator)


@pytest.mark.parametrize("refusal", ["add", "assert"])
def test_a_model_of_one_length_is_visited_at_that_length(refusal: str) -> None:
    torch.manual_seed(0)
    record = visit(FixedLength(refusal), _ids(), checks=("use", "alignment"), twin=False)
    facts = record.provenance["visit"]
    assert "refusal" not in facts
    # Nothing that the checks give is missing: only the twin, and lanes that the model has not.
    assert not {"use", "gradients", "alignment.forward"} & set(facts["could_not"])
    assert facts["small_tokens"] == 2 * LENGTH
    assert record.select("alignment.forward")


def test_rows_are_cut_where_the_model_takes_shorter_ones() -> None:
    model = plain_gpt(depth=2)
    batch = batch_for(model, _ids(), 0)
    assert takes_shorter_rows(model, batch)
    patient = Patient(model, batch, None)
    assert patient.small.main.shape == (2, 32)
    assert patient.small_tokens == 64


def _raising() -> nn.Module:
    raise ValueError("no such file")


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (_raising, "ValueError: no such file"),
        (lambda: None, "returned NoneType"),
        (lambda: nn.Linear(torch.randint(2, 3, ()).item(), 2), "other parameters"),
    ],
)
def test_a_function_that_builds_no_twin_is_a_reason(build: Any, why: str) -> None:
    model = plain_gpt(depth=2)
    before = torch.random.get_rng_state()
    facts = visit(model, _ids(2, 8), twin=build, checks=()).provenance["visit"]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not facts["twin"]["built"]
    assert facts["could_not"]["twin"].startswith("no twin: ")
    assert why in facts["could_not"]["twin"]


def test_a_function_that_builds_a_twin_leaves_the_random_numbers() -> None:
    model = plain_gpt(depth=2)
    before = torch.random.get_rng_state()

    def build() -> nn.Module:
        torch.randn(5)
        return plain_gpt(depth=2)

    facts = visit(model, _ids(2, 8), twin=build, checks=()).provenance["visit"]
    assert facts["twin"]["built"]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nothing_finite_is_no_shift() -> None:
    nothing = torch.full((2, 3), torch.nan)
    assert shift_of(nothing, nothing, nothing) == 0.0
    assert shift_of(torch.zeros(2), torch.ones(2), nothing) == 0.0


def _aligned(tokens: int | None) -> Case:
    """Six layers of one matrix that knows its input, but for layer 4."""
    record = Record()
    quantity = Quantity(
        name="alignment.forward", title="Alignment", symbol="a", formula="a", lives_on="layer",
        headline="value",
    )  # fmt: skip
    record.describe(quantity)
    record.append(
        Reading(quantity.name, Site("decoder", layer, None, "up.weight"), "value", value)
        for layer, value in enumerate((2.5, 2.4, 2.6, 1.01, 2.5, 2.7), start=1)
    )
    paths = [f"blocks.{at}" for at in range(6)]
    facts: dict[str, Any] = {
        "rows": {"decoder": paths},
        "tensors": {f"{path}.up.weight": {"shape": [64, 64], "kind": "linear"} for path in paths},
    }
    if tokens is not None:
        facts["small_tokens"] = tokens
    record.note("visit", facts)
    return Case(record)


@pytest.mark.parametrize(("tokens", "layers"), [(None, [4]), (16, [4]), (15, []), (4, [])])
def test_alignment_of_a_handful_of_tokens_accuses_nothing(
    tokens: int | None, layers: list[int]
) -> None:
    findings = weights_foreign.look(_aligned(tokens))
    assert [layer for finding in findings for layer in finding.layers] == layers


class Saved(nn.Module):
    """A module beside its trained copy, as PEFT keeps both."""

    def __init__(self, module: nn.Module, copies: str) -> None:
        super().__init__()
        self.original_module = module
        self.add_module(copies, nn.ModuleDict({"default": nn.Linear(32, VOCABULARY, bias=False)}))
        self.copies = copies

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, self.copies)["default"](x)


@pytest.mark.parametrize(("copies", "count"), [("modules_to_save", 0), ("others", 1)])
def test_the_original_of_a_saved_module_is_meant_to_rest(copies: str, count: int) -> None:
    model: Any = plain_gpt(depth=2)
    head = next(n for n, m in model.named_children() if isinstance(m, nn.Linear))
    setattr(model, head, Saved(getattr(model, head), copies))
    assert len(diagnose(model, _ids(2, 8), select=("S01",)).findings) == count


def test_a_parameter_that_belongs_to_the_model_itself_is_never_used() -> None:
    model: Any = plain_gpt(depth=2)
    model.ex = nn.Parameter(torch.ones(3))
    (finding,) = diagnose(model, _ids(2, 8), select=("S01",)).findings
    assert finding.verdict == "ex of the model is never used: no output depends on ex."
