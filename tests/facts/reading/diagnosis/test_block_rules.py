"""Rules about residuals, norms, lanes and gradients name a fault in every host, and what it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leadline.instruments.visit.diagnose import diagnose
from leadline.instruments.visit.visit import visit
from leadline.parts import Transformer
from leadline.reading.diagnosis.diagnosis import Diagnosis
from leadline.testing.faults import make
from leadline.testing.faults.wild import wild_faults
from tests.synthetic_blocks import VOCABULARY, PlainBlock, plain_gpt

pytest.importorskip("transformers")
RULES = ("R", "N", "L", "S01", "S04", "D04", "A03", "A06", "X03")

CASES = {
    ("alpha-exponent-half", "recipe-deepnorm"): "residual-scale-wrong",
    ("stream-halved-everywhere", "gpt2"): "residual-scale-wrong",
    ("norm-before-branch", "recipe-post"): "norm-misplaced",
    ("norms-missing-everywhere", "starcoder2"): "norm-missing",
    ("module-unused", "llama"): "parameters-unused",
    ("module-unused", "recipe-pre"): "parameters-unused",
    ("write-lost-mlp", "bert"): "write-lost",
    ("stream-added-to-itself", "recipe-post"): "write-lost",
    ("gain-plus-one", "olmo2"): "norm-gain-shifted",
    ("lanes-doubled-one-layer", "recipe-hyper"): "lanes-gain",
}


@pytest.mark.parametrize(("fault", "host"), CASES)
def test_the_cause_stands_first_and_alone(fault: str, host: str) -> None:
    case = make(fault, host, 11)
    findings = diagnose(case.model, case.inputs, select=RULES).findings
    assert {finding.name for finding in findings} == {CASES[fault, host]}
    if case.answer.layers:
        assert {finding.layers for finding in findings} == {case.answer.layers}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cross-skip-from-the-encoder", "residual-from-wrong-point"),
        ("gain-and-bias-exchanged", "norm-gain-small"),
    ],
)
def test_a_fault_of_a_thread_is_named(name: str, cause: str) -> None:
    fault = next(one for one in wild_faults("sealed") if one.name == name)
    model, inputs, _ = fault.build()
    assert {f.name for f in diagnose(model, inputs, select=RULES).findings} == {cause}


def _looked_at(model: nn.Module) -> Diagnosis:
    ids = torch.randint(0, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(1))
    return diagnose(model, ids, select=RULES, twin=False)


def _weighted(keep: float, gain: float) -> Callable[[PlainBlock, Tensor], Tensor]:
    def law(block: PlainBlock, x: Tensor) -> Tensor:
        x = keep * x + gain * block.a(x)
        return keep * x + gain * block.m(x)

    return law


@pytest.mark.parametrize(
    ("keep", "gain", "codes"),
    [(0.8, 1.0, ["R06"]), (0.8, 0.6, []), (0.7, 0.3, []), (0.99, 1.0, [])],
    ids=["shrinks the stream", "keeps the variance", "keeps the mean", "leaves nearly all"],
)
def test_a_constant_on_the_stream_is_wrong_where_it_takes_the_embedding_away(
    keep: float, gain: float, codes: list[str]
) -> None:
    findings = _looked_at(plain_gpt(_weighted(keep, gain))).findings
    assert [finding.code for finding in findings] == codes


class AddingMLP(nn.Module):
    """An MLP that adds the stream itself, as that of Bloom does."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, stream: Tensor) -> Tensor:
        return stream + self.inner(x)


def _adding_gpt(law: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    """A model whose MLPs add the stream, with another law in layer 3."""

    def adding(block: Any, x: Tensor) -> Tensor:
        x = x + block.a(x)
        return block.mlp(block.ln_2(x), x)

    model: Any = plain_gpt(adding)
    for block in model.h:
        block.mlp = AddingMLP(block.mlp)
    model.h[2].law = lambda block, x: law(adding(block, x), x)
    return model


@pytest.mark.parametrize(
    ("law", "codes"),
    [
        (lambda out, x: out, []),
        (lambda out, x: out + x, ["R02"]),
        (lambda out, x: out - x, ["R05"]),
        (lambda out, x: out.round(decimals=1), ["R03"]),
    ],
    ids=["healthy", "added again", "taken away", "no sum of stream and updates"],
)
def test_a_block_unlike_its_neighbours_is_named_where_a_branch_adds_the_stream_inside(
    law: Callable[[Any, Tensor], Tensor], codes: list[str]
) -> None:
    findings = _looked_at(_adding_gpt(law)).findings
    assert [(finding.code, finding.layers) for finding in findings] == [(c, (3,)) for c in codes]


def test_a_branch_that_is_saturated_is_not_parallel() -> None:
    model: Any = plain_gpt()
    with torch.no_grad():
        model.h[2].mlp.c_fc.bias.fill_(-50.0)
    assert all(finding.code not in ("R03", "X03") for finding in _looked_at(model).findings)


def test_a_model_without_any_gradient_is_named_as_a_whole() -> None:
    model: Any = plain_gpt()
    forward = model.forward
    model.forward = torch.no_grad()(forward)
    (finding,) = _looked_at(model).findings
    assert (finding.code, finding.layers) == ("S04", ())
    assert "none of the" in finding.verdict


def test_a_connection_called_deepnorm_is_no_norm_that_never_runs() -> None:
    model = Transformer(depth=3, width=16, heads=2, connection="deepnorm", placement="post")
    record = visit(model, twin=False, checks=("blocks",))
    reports = record.provenance["visit"]["block_survey"]["decoder"]
    assert [report["idle_norms"] for report in reports] == [[], [], []]
