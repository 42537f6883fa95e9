"""Logits of models that nobody has heard of: where they are found, and what is made of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import leadline
from leadline.errors import InputError
from leadline.models.inputs import context_limit, vocabulary_size
from leadline.models.inputs.logits import find_logits, moves_earlier
from leadline.models.inputs.model_facts import main_name
from leadline.testing.zoo import ZOO

VOCABULARY, WIDTH, POSITIONS = 101, 16, 24
IDS = torch.randint(0, VOCABULARY, (3, 10), generator=torch.Generator().manual_seed(0))


class _Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.inward(x).chunk(3, -1))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.outward(mixed.transpose(1, 2).flatten(2))


class _Block(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = _Attention(causal)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 40), nn.GELU(), nn.Linear(40, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class _Model(nn.Module):
    """A small GPT whose output is what `form` makes of the stream and the logits."""

    def __init__(
        self,
        form: Callable[[torch.Tensor, torch.Tensor], Any] = lambda stream, logits: (logits, None),
        *,
        causal: bool = True,
        padding: int = 0,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form = form
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(_Block(causal) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY + padding, bias=False)

    def stream(self, idx: torch.Tensor) -> torch.Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, idx: torch.Tensor) -> Any:
        stream = self.stream(idx)
        return self.form(stream, self.head(stream))


class _LastOnly(_Model):
    """All logits with targets, those of the last token without; -1 stands for no target."""

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        stream = self.stream(idx)
        if targets is None:
            return self.head(stream[:, [-1]]), None
        logits = self.head(stream)
        return logits, cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class _WithoutTargets(_Model):
    def forward(self, idx: torch.Tensor) -> Any:
        return self.head(self.stream(idx)[:, [-1]]), None


class _AgainstTargets(_LastOnly):
    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        if targets is not None:
            raise ValueError("targets must be one-hot")
        return super().forward(idx)


@dataclasses.dataclass
class _Answer:
    stream: torch.Tensor
    prediction: torch.Tensor


class _Pair(NamedTuple):
    stream: torch.Tensor
    scores: torch.Tensor


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "tensor": lambda stream, logits: logits,
    "tuple": lambda stream, logits: (logits, None),
    "second of a tuple": lambda stream, logits: (stream, logits),
    "loss first": lambda stream, logits: (logits.sum(), logits),
    "list": lambda stream, logits: [stream, logits],
    "mapping": lambda stream, logits: {"stream": stream, "scores": logits},
    "named tuple": _Pair,
    "dataclass": _Answer,
    "attributes": lambda stream, logits: SimpleNamespace(stream=stream, out=logits),
    "nested": lambda stream, logits: {"all": ({"logits": logits}, stream)},
    "flattened": lambda stream, logits: logits.flatten(0, 1),
}


def _by_hand(model: _Model) -> float:
    """Mean cross-entropy of each next token, from the logits of the model's own parts."""
    with torch.no_grad():
        logits = model.head(model.stream(IDS)).double()
    chosen = logits.log_softmax(-1)[:, :-1].gather(2, IDS[:, 1:, None])
    return -float(chosen.mean())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("padding", [0, 3])
def test_logits_are_found_in_whatever_a_model_returns(form: str, padding: int) -> None:
    model = _Model(FORMS[form], padding=padding)
    with torch.no_grad():
        found = find_logits(model(IDS), model, (3, 10))
        assert found is not None
        torch.testing.assert_close(found, model.head(model.stream(IDS)))


@pytest.mark.parametrize(("vocabulary", "taken"), [(101, True), (97, False)])
def test_a_head_of_at_most_13_tenths_of_the_vocabulary_may_be_padded(
    vocabulary: int, taken: bool
) -> None:
    """128 is the next multiple of 128 to both vocabularies, and 1.27 or 1.32 times as large."""
    assert (128 / vocabulary <= 1.3) == taken
    model = nn.Sequential(nn.Embedding(vocabulary, WIDTH), nn.Linear(WIDTH, 128))
    logits = model(torch.zeros(2, 5, dtype=torch.long))
    assert (find_logits(logits, model, (2, 5)) is not None) == taken


@pytest.mark.parametrize(("move", "earlier"), [(2.5e-6, False), (3.5e-6, True)])
def test_logits_that_move_by_three_millionths_of_the_largest_move(
    move: float, earlier: bool
) -> None:
    before = torch.tensor([1.0, -4.0, 2.0, 9.0]).reshape(1, 4, 1)
    after = before.clone()
    after[0, 0, 0] += 4.0 * move
    # What the last token moves by never counts, nor does its size.
    after[0, 3, 0] += 1.0
    assert moves_earlier(before, after) == earlier


def test_the_next_token_loss_is_given_to_a_causal_model_with_logits() -> None:
    model = _Model()
    record = leadline.measure(model, IDS)
    loss = record.provenance["loss"]
    assert loss["kind"] == "next-token"
    assert loss["reason"] == "the model is causal and returns logits over its vocabulary"
    assert loss["value"] == pytest.approx(_by_hand(model), rel=1e-5)
    passes = record.provenance["passes"]
    assert (passes["forward"], passes["backward"], passes["head_forward"]) == (1, 1, 1)


def test_a_model_that_wants_targets_for_all_its_logits_gets_them() -> None:
    model = _LastOnly()
    record = leadline.measure(model, IDS)
    assert record.provenance["loss"]["kind"] == "next-token"
    assert record.provenance["loss"]["value"] == pytest.approx(_by_hand(model), rel=1e-5)
    asked = leadline.measure(model, IDS, loss="next-token")
    assert asked.provenance["loss"]["value"] == pytest.approx(_by_hand(model), rel=1e-5)


def test_gradients_are_those_of_the_next_token_loss() -> None:
    model = _LastOnly()
    record = leadline.measure(model, IDS, probes=["gradient"])
    x = (model.wte(IDS) + model.wpe(torch.arange(10))).detach().requires_grad_()
    y = x
    for block in model.blocks:
        y = block(y)
    logits = model.head(model.norm(y))
    cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
    assert x.grad is not None
    total = record.by_layer("gradient.stream", statistic="total").values[0]
    assert total == pytest.approx(float(x.grad.norm()), rel=1e-4)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (_Model(lambda stream, logits: stream), "returns no logits over its vocabulary of 101"),
        (_WithoutTargets(), "logits of the last token only, .* its forward takes no targets"),
        (_AgainstTargets(), "with targets it raises ValueError: targets must be one-hot"),
        (_Model(causal=False), "sees the tokens that it would have to predict"),
    ],
)
def test_a_random_cotangent_is_announced_with_its_reason_in_the_first_line(
    model: nn.Module, reason: str
) -> None:
    record = leadline.measure(model, IDS)
    assert record.provenance["loss"]["kind"] == "random cotangent"
    first = str(record).splitlines()[0]
    assert first.startswith("The gradients are those of a random cotangent and not of a loss")
    assert re.search(reason, first)


def test_a_stream_that_is_narrower_than_the_vocabulary_is_refused_as_logits() -> None:
    model = _Model(lambda stream, logits: stream)
    with pytest.raises(InputError, match=r"16 numbers for each token.*--loss random"):
        leadline.measure(model, IDS, loss="next-token")


def test_without_gradients_nothing_is_said_of_the_cotangent() -> None:
    record = leadline.measure(_Model(lambda stream, logits: stream), IDS, probes=["stream"])
    assert "cotangent" not in str(record).splitlines()[0]


def test_a_stream_as_wide_as_the_vocabulary_is_not_taken_for_logits() -> None:
    table = nn.Embedding(WIDTH, WIDTH)
    stream = torch.zeros(2, 5, WIDTH)
    assert find_logits(stream, table, (2, 5)) is None
    named = find_logits({"logits": stream}, table, (2, 5))
    assert named is not None and named.shape == stream.shape


def test_a_bert_whose_class_speaks_of_next_tokens_gets_none() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.BertLMHeadModel(config)
    inputs = leadline.random_tokens(model, examples=2, length=8)
    loss = leadline.measure(model, inputs).provenance["loss"]
    assert loss["kind"] == "random cotangent"
    assert loss["reason"] == "the model sees the tokens that it would have to predict"
    config.is_decoder = True
    model = transformers.BertLMHeadModel(config)
    assert leadline.measure(model, inputs).provenance["loss"]["kind"] == "next-token"


def test_facts_of_a_plain_model_come_from_its_tables() -> None:
    model = _Model()
    assert (vocabulary_size(model), context_limit(model)) == (VOCABULARY, POSITIONS)
    assert main_name(model) == "idx"
    model.config = SimpleNamespace(block_size=12, vocab_size=VOCABULARY)  # pyright: ignore
    assert context_limit(model) == 12


class _WithPicture(_Model):
    """A language model whose main input is called an image, as that of many a multimodal one is."""

    main_input_name = "pixel_values"

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> Any:
        return super().forward(input_ids)


def test_the_ids_are_found_beside_a_main_input_that_is_an_image() -> None:
    record = leadline.measure(_WithPicture(), {"input_ids": IDS})
    assert record.provenance["loss"]["kind"] == "next-token"


def test_the_logits_come_before_those_of_other_heads() -> None:
    def form(stream: torch.Tensor, logits: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"aux_logits": logits.flip(-1), "mtp_logits": -logits, "logits": logits}

    plain, several = _Model(lambda stream, logits: logits), _Model(form)
    expected = leadline.measure(plain, IDS).provenance["loss"]["value"]
    assert leadline.measure(several, IDS).provenance["loss"]["value"] == expected


class _OwnLoss(_Model):
    """nanoGPT's way: targets are shifted already, and -1 asks for nothing."""

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        logits = self.head(self.stream(idx))
        if targets is None:
            return logits[:, -1:], None
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


def test_given_targets_are_the_targets() -> None:
    model = _OwnLoss()
    targets = torch.roll(IDS, 3, dims=1)
    targets[:, ::2] = -1
    record = leadline.measure(model, {"idx": IDS, "targets": targets})
    with torch.no_grad():
        expected = float(model(IDS, targets)[1])
    assert record.provenance["loss"]["value"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_labels_of_a_pair_make_what_its_decoder_reads(name: str) -> None:
    model = ZOO[name].build(0).eval()
    model.config.decoder_start_token_id = 0
    ids = torch.randint(5, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    labels = torch.randint(5, 90, (2, 6), generator=torch.Generator().manual_seed(1))
    labels[0, -2:] = -100
    record = leadline.measure(model, {"input_ids": ids, "labels": labels})
    with torch.no_grad():
        expected = float(model(input_ids=ids, labels=labels).loss)
    assert record.provenance["loss"]["value"] == pytest.approx(expected, rel=1e-5)


def test_any_negative_label_asks_for_nothing() -> None:
    model = ZOO["gpt2"].build(0).eval()
    ids = torch.randint(5, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    values = []
    for code in (-100, -1):
        labels = ids.masked_fill(ids % 2 == 0, code)
        values.append(leadline.measure(model, {"input_ids": ids, "labels": labels}))
    assert values[0].provenance["loss"] == values[1].provenance["loss"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.full((2, 7), -100), "nothing to predict"),
        (torch.tensor([3, 4]), r"labels have the shape \[2\]"),
    ],
)
def test_labels_that_cannot_be_predicted_are_refused(labels: torch.Tensor, words: str) -> None:
    model = ZOO["gpt2"].build(0).eval()
    with pytest.raises(InputError, match=words):
        leadline.measure(model, {"input_ids": torch.full((2, 7), 5), "labels": labels})


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.float32])
def test_labels_may_be_of_any_number_type(kind: torch.dtype) -> None:
    model = ZOO["gpt2"].build(0).eval()
    ids = torch.randint(5, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    expected = leadline.measure(model, ids).provenance["loss"]["value"]
    record = leadline.measure(model, {"input_ids": ids, "labels": ids.to(kind)})
    assert record.provenance["loss"]["value"] == expected


def test_any_negative_label_of_a_pair_asks_for_nothing() -> None:
    model = ZOO["t5"].build(0).eval()
    model.config.decoder_start_token_id = 0
    ids = torch.randint(5, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    losses = []
    for code in (-100, -1):
        labels = ids.masked_fill(ids % 2 == 0, code)
        record = leadline.measure(model, {"input_ids": ids, "labels": labels})
        losses.append(record.provenance["loss"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("start", "labels", "words"),
    [
        (None, torch.full((2, 6), 5), "Set decoder_start_token_id"),
        (0, torch.full((6,), 5), r"labels have the shape \[6\]"),
    ],
)
def test_labels_of_which_a_decoder_can_read_nothing_are_refused(
    start: int | None, labels: torch.Tensor, words: str
) -> None:
    model = ZOO["t5"].build(0).eval()
    model.config.decoder_start_token_id = start
    with pytest.raises(InputError, match=words):
        leadline.measure(model, {"input_ids": torch.full((2, 7), 5), "labels": labels})


def test_one_token_with_a_target_has_a_next_one() -> None:
    model = _OwnLoss()
    record = leadline.measure(model, {"idx": IDS[:, :1], "targets": IDS[:, 1:2]})
    with torch.no_grad():
        expected = float(model(IDS[:, :1], IDS[:, 1:2])[1])
    assert record.provenance["loss"]["value"] == pytest.approx(expected, rel=1e-6)


class _Sizes(NamedTuple):
    vocab_size: int


@pytest.mark.parametrize("config", [{"vocab_size": VOCABULARY}, _Sizes(VOCABULARY)])
def test_a_configuration_may_be_of_any_kind(config: Any) -> None:
    model = _Model()
    expected = leadline.measure(model, IDS).provenance["loss"]
    model.config = config
    assert leadline.measure(model, IDS).provenance["loss"] == expected


class _SeveralIds(_Model):
    """Several ids at every place, as codes of sound have: the model reads their remainder."""

    config = SimpleNamespace(vocab_size=VOCABULARY)

    def forward(self, idx: torch.Tensor) -> Any:
        return super().forward(idx.sum(1) % VOCABULARY)


def test_a_model_of_somebody_else_may_take_several_ids_at_every_place() -> None:
    codes = torch.randint(0, VOCABULARY, (2, 4, 9), generator=torch.Generator().manual_seed(0))
    record = leadline.measure(_SeveralIds(), codes)
    several = [r.value for r in record.select("stream.norm")]
    flat = [
        r.value for r in leadline.measure(_Model(), codes.sum(1) % VOCABULARY).select("stream.norm")
    ]
    assert several == flat


@pytest.mark.parametrize("shape", [(1, 2, 7), (2, 1, 7)])
def test_ids_with_an_axis_too_many_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"takes \[example, token\]"):
        leadline.measure(ZOO["gpt2"].build(0), torch.full(shape, 5))
