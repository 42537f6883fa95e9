"""Sick attention is named with its layer and its cause; what only looks alike is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.instruments.visit.visit import visit
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record.rows.finding import Finding
from leadline.testing.zoo import ZOO
from tests.plain_gpt import PlainGPT

OURS = ("A", "S03", "P05", "T01")


def findings(model: nn.Module, inputs: object = None) -> list[Finding]:
    """What the rules of this slice say, without notes."""
    if inputs is None:
        inputs = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
    record = visit(model.eval(), inputs, checks=("tokens", "rotary"))
    return [one for one in diagnose_record(record, select=OURS).findings if one.severity != "note"]


def plain(*faults: str, positions: str = "learned") -> PlainGPT:
    torch.manual_seed(0)
    return PlainGPT(faults, positions)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("leak", "future-leaks"),
        ("ahead", "future-leaks"),
        ("strict", "past-unreached"),
        ("window", "past-unreached"),
        ("view", "heads-split-wrong"),
        ("merge", "heads-split-wrong"),
        ("no scale", "attention-scale-wrong"),
        ("queries", "softmax-axis-wrong"),
        ("dropout", "random-in-evaluation"),
        ("empty", "mask-row-empty"),
        ("undercut", "future-leaks"),
        ("flags", "attention-uniform"),
    ],
)
def test_one_sick_layer_is_named_alone(fault: str, name: str) -> None:
    [finding] = findings(plain("", "", fault, ""))
    assert (finding.name, finding.layers) == (name, (3,))
    assert finding.parameter == "h.2.attn"


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("leak", "future-leaks"),
        ("view", "heads-split-wrong"),
        ("over heads", "heads-split-wrong"),
        ("no scale", "attention-scale-wrong"),
        ("model width", "attention-scale-wrong"),
    ],
)
def test_a_fault_of_every_layer_is_named_without_healthy_neighbours(fault: str, name: str) -> None:
    [finding] = findings(plain(*[fault] * 4))
    assert (finding.name, finding.layers) == (name, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("positions", "name", "parameter"),
    [
        ("constant", "positions-unused", "wpe"),
        ("reverse", "positions-wrong", "wpe"),
        ("by example", "positions-wrong", None),
    ],
)
def test_faulty_positions_are_named(positions: str, name: str, parameter: str | None) -> None:
    [finding] = findings(plain("", "", positions=positions))
    assert (finding.name, finding.parameter) == (name, parameter)


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_healthy_decoders_have_no_finding(positions: str) -> None:
    assert findings(plain("", "", "", "", positions=positions)) == []


@pytest.mark.parametrize(
    ("fault", "name", "words"),
    [
        ("turn queries", "positions-wrong", "Only the queries are turned"),
        ("turn keys", "positions-wrong", "Only the keys are turned"),
        ("turn by head", "positions-unused", "Positions do not enter"),
        ("turn back", "positions-wrong", "Queries and keys are turned apart"),
        ("turn values", "positions-wrong", "Values are turned by positions too"),
    ],
)
def test_a_rotation_of_one_side_is_told_from_one_that_counts_no_tokens(
    fault: str, name: str, words: str
) -> None:
    [finding] = findings(plain(*[fault] * 3, positions="none"))
    assert (finding.name, finding.layers) == (name, (1, 2, 3))
    assert finding.verdict.startswith(words)
    assert findings(plain(*["turn"] * 3, positions="none")) == []


def test_a_rotation_below_rounding_is_not_lost() -> None:
    model = plain(*["turn"] * 3, positions="none")
    with torch.no_grad():
        for block in model.h:
            # Logits so small that the weights do not show them: queries and keys are turned all the same.
            for tensor in (block.attn.q.weight, block.attn.q.bias):  # pyright: ignore
                tensor.mul_(1e-12)  # pyright: ignore
    assert "positions-unused" not in [one.name for one in findings(model)]


def test_a_layer_that_attends_to_the_first_token_is_noted_alone() -> None:
    inputs = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
    model = plain("", "", "sink", "").eval()
    [finding] = diagnose_record(visit(model, inputs, checks=())).findings
    assert (finding.name, finding.severity, finding.layers) == ("attention-sinks", "note", (3,))
    # e^8 beside at most 23 keys with logits near 0 leaves the first key 99 % and more.
    assert finding.evidence[0]["value"] > 0.95


def test_wide_logits_hide_no_key() -> None:
    names = [one.name for one in findings(plain("", "", "wide", ""))]
    assert "past-unreached" not in names and "mask-row-empty" not in names


def test_repeated_tokens_single_examples_and_short_inputs_raise_no_alarm() -> None:
    model = plain("", "", "")
    for inputs in (
        torch.full((2, 24), 7),
        torch.arange(3, 27)[None],
        torch.tensor([[5, 6, 7]] * 2),
    ):
        assert findings(model, inputs) == []


def test_equal_heads_are_counted() -> None:
    model = plain("", "", "")
    with torch.no_grad():
        for layer in (model.h[1].attn.q, model.h[1].attn.k, model.h[1].attn.v):  # pyright: ignore
            for tensor in (layer.weight.view(4, 12, 48), layer.bias.view(4, 12)):
                tensor[2] = tensor[0]
    [finding] = findings(model)
    assert (finding.name, finding.layers, finding.head) == ("heads-equal", (2,), 3)
    assert "heads 1, 3" in finding.verdict


class Encoder(nn.Module):
    """torch's own encoder over ids; with batch_first=False it attends over the examples."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(97, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first)
        self.encoder, self.out = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            nn.Linear(32, 97),
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.out(self.encoder(x))


def test_examples_and_tokens_exchanged_is_named_with_its_first_module() -> None:
    torch.manual_seed(0)
    [finding] = findings(Encoder(batch_first=False))
    assert (finding.name, finding.parameter) == ("examples-mixed", "encoder.layers.0.self_attn")
    assert "batch_first" in finding.cause
    assert findings(Encoder(batch_first=True)) == []


class Pooled(Encoder):
    """Gives the first token alone, which sees only first tokens and is equal in all examples."""

    def forward(self, ids: Tensor) -> Tensor:
        first = torch.zeros(len(ids), 1, dtype=torch.long)
        return super().forward(torch.cat([first, ids], 1))[:, 0]


def test_examples_are_mixed_behind_an_output_that_follows_no_input() -> None:
    torch.manual_seed(0)
    [finding] = findings(Pooled(batch_first=False))
    assert (finding.name, finding.parameter) == ("examples-mixed", "encoder.layers.0.self_attn")
    assert findings(Pooled(batch_first=True)) == []


def test_a_model_in_training_mode_is_told_to_be_so() -> None:
    model = Encoder(batch_first=True).train()
    record = visit(model, torch.randint(3, 97, (2, 12)), checks=("tokens",))
    [finding] = diagnose_record(record, select=("T01",)).findings
    assert finding.remedy["edit"] == {"edit": "eval-mode"}
    assert finding.severity == "warning"


def test_batch_norm_without_running_statistics_mixes_examples() -> None:
    class Normed(Encoder):
        def __init__(self) -> None:
            super().__init__(batch_first=True)
            self.norm = nn.BatchNorm1d(32, track_running_stats=False)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
            return self.out(self.encoder(self.norm(x.mT).mT))

    [finding] = findings(Normed())
    assert (finding.name, finding.parameter) == ("examples-mixed", "norm")


def test_a_rotation_by_constant_positions_is_found_against_the_twin() -> None:
    specimen = ZOO["llama"]
    model = specimen.build(0)
    rotary = model.model.rotary_emb  # pyright: ignore
    forward = rotary.forward
    rotary.forward = lambda x, position_ids: forward(x, position_ids * 0)
    [finding] = findings(model, specimen.inputs(model, 1))
    assert (finding.name, finding.layers) == ("positions-unused", (1, 2, 3))


def test_shifted_rows_of_a_table_are_found_against_the_twin() -> None:
    specimen = ZOO["gpt2"]
    model = specimen.build(0)
    table = model.transformer.wpe  # pyright: ignore
    forward = table.forward
    table.forward = lambda places: forward(places + 1)
    [finding] = findings(model, specimen.inputs(model, 1))
    assert (finding.name, finding.parameter) == ("positions-wrong", "transformer.wpe")
    assert "shifted by 1" in finding.verdict


def test_rounded_rotary_frequencies_are_found_in_a_float32_model() -> None:
    specimen = ZOO["llama"]
    model = specimen.build(0)
    frequencies = model.model.rotary_emb.inv_freq  # pyright: ignore
    frequencies.copy_(frequencies.bfloat16().float())  # pyright: ignore
    [finding] = findings(model, specimen.inputs(model, 1))
    assert (finding.name, finding.parameter) == ("rotary-precision", "model.rotary_emb.inv_freq")


def test_a_softmax_over_queries_is_named_in_a_model_of_images() -> None:
    class Patches(nn.Module):
        def __init__(self, axis: int) -> None:
            super().__init__()
            self.patch, self.out, self.axis = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 5), axis

        def forward(self, pixel_values: Tensor) -> Tensor:
            x = self.patch(pixel_values).flatten(2).mT[:, None]
            weights = (x @ x.mT / 4.0).softmax(self.axis)
            return self.out((x + weights @ x).mean((1, 2)))

    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    [finding] = findings(Patches(-2), images)
    assert finding.name == "softmax-axis-wrong"
    assert findings(Patches(-1), images) == []


def test_a_recipe_without_positions_is_left_alone() -> None:
    model = leadline.Transformer(depth=3, width=32, heads=2, positions="none", seed=0)
    assert findings(model, leadline.random_tokens(model, examples=2, length=16)) == []


def test_queries_and_keys_too_large_in_all_layers_are_named() -> None:
    model = leadline.Transformer(depth=3, width=32, heads=2, seed=0)
    inputs = leadline.random_tokens(model, examples=2, length=16)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.branch.qkv.weight[:64].mul_(20.0)  # pyright: ignore
    record = visit(model.eval(), inputs, checks=("weights",))
    [finding] = diagnose_record(record, select=("A",)).findings
    assert (finding.name, finding.layers) == ("attention-saturated", (1, 2, 3))
    spread = finding.evidence[0]
    # 20 times 20, but for what the layers before have changed.
    assert spread["value"] / spread["expected"] == pytest.approx(400, rel=0.3)


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "bert", "t5", "bloom", "mistral", "mamba", "vit"]
)
def test_families_have_no_finding(name: str) -> None:
    specimen = ZOO[name]
    model = specimen.build(0)
    assert findings(model, specimen.inputs(model, 1)) == []
