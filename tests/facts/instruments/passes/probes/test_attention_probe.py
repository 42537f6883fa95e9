"""The attention probe: what it writes into a record, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline as ll
from leadline.record import Record

NORM = "attention.spectral_norm"


def gpt2(**settings: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 50, "n_positions": 32}
    config = GPT2Config(**(sizes | {"bos_token_id": 0, "eos_token_id": 0} | settings))
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def ids(*lengths: int) -> dict[str, Tensor]:
    longest = max(lengths)
    tokens = torch.randint(
        0, 50, (len(lengths), longest), generator=torch.Generator().manual_seed(1)
    )
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": tokens, "attention_mask": mask}


def matrices(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The weights as Hugging Face itself returns them, from eager attention."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    return [one.double() for one in found]


def one(record: Record, quantity: str, **where: Any) -> float:
    head = where.pop("head", None)
    found = [r for r in record.select(quantity, **where) if r.site.head == head]
    assert len(found) == 1
    return found[0].value


def test_norms_are_those_of_the_weights_that_hugging_face_returns() -> None:
    model, inputs = gpt2(), ids(9, 9)
    record = ll.measure(model, inputs, probes="attention")
    for layer, weights in enumerate(matrices(model, inputs), start=1):
        exact = torch.linalg.matrix_norm(weights, ord=2)
        for head in range(4):
            for statistic, value in (
                ("mean", exact[:, head].mean()),
                ("max", exact[:, head].max()),
                ("min", exact[:, head].min()),
            ):
                got = one(record, NORM, layer=layer, statistic=statistic, head=head + 1)
                assert got == pytest.approx(float(value), rel=1e-6)
        assert one(record, NORM, layer=layer, statistic="mean") == pytest.approx(
            float(exact.mean()), rel=1e-6
        )
        assert one(record, NORM, layer=layer, statistic="max") == pytest.approx(
            float(exact.max()), rel=1e-6
        )


def test_every_reading_of_the_norm_has_an_interval_around_it() -> None:
    record = ll.measure(gpt2(), ids(20, 20), probes="attention")
    readings = record.select(NORM)
    assert len(readings) == 2 * 5 * 3
    for reading in readings:
        assert reading.lower is not None and reading.upper is not None
        assert reading.lower <= reading.value * (1 + 1e-12) and reading.value <= reading.upper


def test_sentences_of_different_lengths_are_measured_each_at_its_own() -> None:
    model, inputs = gpt2(), ids(3, 7, 1)
    record = ll.measure(model, inputs, probes="attention")
    (first, *_) = matrices(model, inputs)
    exact = [torch.linalg.matrix_norm(first[e, :, :n, :n], ord=2) for e, n in enumerate((3, 7, 1))]
    assert one(record, NORM, layer=1, statistic="mean") == pytest.approx(
        float(torch.stack(exact).mean()), rel=1e-6
    )
    assert one(record, NORM, layer=1, statistic="min") == pytest.approx(1.0, rel=1e-9)
    shapes = record.provenance["attention"][0]["shapes"]
    assert sorted((s["queries"], s["examples"]) for s in shapes) == [(1, 1), (3, 1), (7, 1)]
    assert record.provenance["attention"][0]["mask"] == "causal"
    # One token has no second singular value; the others are averaged.
    second = [torch.linalg.svdvals(first[e, :, :n, :n])[:, 1] for e, n in ((0, 3), (1, 7))]
    got = one(record, "attention.second_singular_value", layer=1, statistic="mean")
    assert got == pytest.approx(float(torch.stack(second).mean()), rel=1e-4)


def test_the_ingredients_are_those_of_the_model() -> None:
    model = gpt2()
    record = ll.measure(model, ids(9, 9), probes="attention")
    block = model.transformer.h[1]
    weight, bias = (p.detach().double() for p in block.attn.c_attn.parameters())
    assert one(record, "attention.norm_gain", layer=2) == pytest.approx(
        float(block.ln_1.weight.detach().abs().max()), rel=1e-4
    )
    assert one(record, "attention.norm_shift", layer=2) == pytest.approx(
        float(block.ln_1.bias.detach().norm()), rel=1e-4
    )
    assert one(record, "attention.scaling", layer=2) == pytest.approx(8**-0.5)
    assert one(record, "attention.bias_range", layer=2) == 0.0
    for head in range(4):
        for name, start in (("query", 0), ("key", 32)):
            columns = slice(start + 8 * head, start + 8 * head + 8)
            got = one(record, f"attention.{name}_weight", layer=2, head=head + 1)
            exact = float(torch.linalg.matrix_norm(weight[:, columns], ord=2))
            assert got == pytest.approx(exact, rel=1e-6)
            got = one(record, f"attention.{name}_bias", layer=2, head=head + 1)
            assert got == pytest.approx(float(bias[columns].norm()), rel=1e-6)


def test_keys_of_a_group_serve_their_heads() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
            vocab_size=50,
        )
    ).eval()
    record = ll.measure(model, {"input_ids": ids(9, 9)["input_ids"]}, probes="attention")
    weight = model.model.layers[0].self_attn.k_proj.weight.detach().double()
    sigma = [float(torch.linalg.matrix_norm(weight[8 * g : 8 * g + 8], ord=2)) for g in range(2)]
    got = [one(record, "attention.key_weight", layer=1, head=h) for h in (1, 2, 3, 4)]
    assert got == pytest.approx([sigma[0], sigma[0], sigma[1], sigma[1]], rel=1e-6)


def test_attention_goes_with_the_default_probes() -> None:
    record = ll.measure(gpt2(), ids(9, 9), probes="default,attention")
    assert {"stream.norm", "gradient.parameters", NORM} <= set(record.quantities)
    assert record.provenance["passes"]["backward"] == 1


def test_measuring_attention_leaves_the_model_as_it_was() -> None:
    model, inputs = gpt2().train(), ids(9, 5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = torch.random.get_rng_state()
    ll.measure(model, inputs, probes="attention,attention_product,attention_spectrum")
    assert model.training and model.config._attn_implementation == "sdpa"
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_function_stack() == 0


def test_the_product_of_layers_stays_below_the_root_of_the_tokens() -> None:
    model, inputs = gpt2(n_layer=3), ids(9, 9)
    record = ll.measure(model, inputs, probes="attention_product")
    products = [torch.eye(9, dtype=torch.float64)] * 2
    norms = [1.0, 1.0]
    for layer, weights in enumerate(matrices(model, inputs), start=1):
        mean = weights.mean(1)
        products = [mean[e] @ products[e] for e in range(2)]
        norms = [norms[e] * float(torch.linalg.matrix_norm(mean[e], ord=2)) for e in range(2)]
        exact = [float(torch.linalg.matrix_norm(p, ord=2)) for p in products]
        got = one(record, "attention.product_norm", layer=layer, statistic="mean")
        assert got == pytest.approx(sum(exact) / 2, rel=1e-6)
        got = one(record, "attention.product_norm", layer=layer, statistic="max")
        assert got == pytest.approx(max(exact), rel=1e-6)
        got = one(record, "attention.product_of_norms", layer=layer)
        assert got == pytest.approx(sum(norms) / 2, rel=1e-6)
        assert max(exact) <= 3.0


def test_the_whole_spectrum_is_kept_by_rank() -> None:
    model, inputs = gpt2(), ids(9, 4)
    record = ll.measure(model, inputs, probes="attention_spectrum(ranks=6)")
    (first, *_) = matrices(model, inputs)
    long, short = (torch.linalg.svdvals(first[e, :, :n, :n]) for e, n in ((0, 9), (1, 4)))
    readings = {r.site.rank: r.value for r in record.select("attention.singular_values", layer=1)}
    assert set(readings) == {None, 1, 2, 3, 4, 5, 6}
    assert readings[2] == pytest.approx(
        float(torch.cat([long[:, 1], short[:, 1]]).mean()), rel=1e-5
    )
    assert readings[5] == pytest.approx(float(long[:, 4].mean()), rel=1e-4)
    every = torch.cat([long.flatten(), short.flatten()])
    assert readings[None] == pytest.approx(float(every.mean()), rel=1e-5)


@pytest.mark.parametrize("ranks", [0, -1, 2.5, True])
def test_ranks_are_counted_from_one(ranks: object) -> None:
    with pytest.raises(ll.ProbeError, match="whole number of at least 1"):
        ll.measure(gpt2(), ids(4), probes=[{"name": "attention_spectrum", "ranks": ranks}])


class Block(nn.Module):
    """A pre-norm block whose attention is whatever function it is given."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention, self.mlp = Attention(how), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Attention(nn.Module):
    def __init__(self, how: Any) -> None:
        super().__init__()
        self.qkv, self.output, self.how = nn.Linear(16, 48), nn.Linear(16, 16), how

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.output(self.how(q, k, v).transpose(1, 2).flatten(2))


def stack(how: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(how) for _ in range(3)])


def stream() -> Tensor:
    return torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(3))


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v


def test_a_plain_torch_model_is_measured_like_any_other() -> None:
    record = ll.measure(stack(softmax), stream(), probes="attention")
    told = record.provenance["attention"]
    assert [one["layer"] for one in told] == [1, 2, 3]
    assert told[0]["module"] == "0.attention" and told[0]["norm"] == "0.norm"
    assert told[0]["positions"] == "none"
    assert not ll.bounds(record).violated


def test_a_mask_that_nobody_saw_is_told_of_with_the_limit() -> None:
    def hiding(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # No product of matrices, so what is added to the logits cannot be told from them.
        logits = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)
        return (logits - 3e3 * (torch.arange(6) == 2)).softmax(-1) @ v

    record = ll.measure(stack(hiding), stream()[:1], probes="attention")
    assert record.findings[0].verdict == (
        f"The mask at {record.findings[0].site} was not seen: keys more than 1,000 below the "
        "largest logit of their row count as hidden, so the logit span is at most that."
    )


def test_a_kernel_that_torch_does_not_know_is_refused_by_name() -> None:
    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(-1, -2)).exp()
        return (weights / weights.sum(-1, keepdim=True)) @ v

    with pytest.raises(ll.ProbeError) as error:
        ll.measure(stack(fused), stream(), probes="attention")
    assert "layers 1 to 3" in str(error.value) and "attention" in str(error.value)
    assert "scaled_dot_product_attention" in str(error.value)


def test_beside_other_probes_a_missing_attention_is_told_in_the_coverage() -> None:
    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(-1, -2)).exp()
        return (weights / weights.sum(-1, keepdim=True)) @ v

    record = ll.measure(stack(fused), stream(), probes="stream,attention")
    (refused,) = record.provenance["coverage"]["refused"]
    assert refused["what"].startswith("attention of the")
    assert "softmax" in refused["why"]


def test_the_kernel_of_a_configuration_is_named() -> None:
    from leadline.instruments.passes.unseen import _why

    model = nn.Linear(1, 1)
    model.config = type("Config", (), {"_attn_implementation": "flash_attention_3"})()  # type: ignore[assignment]
    assert "flash_attention_3" in _why(model)
    assert "set_attn_implementation('sdpa')" in _why(model)


def test_weights_that_do_not_sum_to_one_are_a_finding() -> None:
    def leaky(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.transpose(-1, -2)).softmax(-1) * 0.5) @ v

    record = ll.measure(stack(leaky), stream(), probes="attention")
    assert len(record.findings) == 3
    assert "do not sum to one (off by up to 0.5)" in record.findings[0].verdict
    assert record.findings[0].severity == "serious"
    assert record.provenance["attention"][0]["stochastic"] is False
    by_name = {bound.name: bound for bound in ll.bounds(record).bounds}
    assert not by_name["one"].applying


def test_a_declared_sink_is_no_finding() -> None:
    def sunk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = q @ k.transpose(-1, -2)
        return torch.cat([logits, torch.zeros_like(logits[..., :1])], -1).softmax(-1)[..., :-1] @ v

    record = ll.measure(stack(sunk), stream(), probes="attention")
    assert not record.findings
    assert record.provenance["attention"][0]["stochastic"] is False


def test_rows_that_see_nothing_are_a_finding() -> None:
    def blind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = q @ k.transpose(-1, -2)
        hidden = torch.zeros(6, 6, dtype=torch.bool)
        hidden[2] = True
        return logits.masked_fill(hidden, -1e30).softmax(-1) @ v

    record = ll.measure(stack(blind), stream(), probes="attention")
    assert "4 rows of the attention matrices may see no key at all" in record.findings[0].verdict


def test_logits_that_are_not_finite_are_a_finding_and_no_number() -> None:
    def broken(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = q @ k.transpose(-1, -2)
        logits = logits.clone()
        logits[0, 0, 0, 0] = float("nan")
        return logits.softmax(-1) @ v

    anatomy = ll.anatomy_of(stack(softmax), stream())
    model = nn.Sequential(Block(softmax), Block(softmax), Block(broken))
    record = ll.measure(model, stream(), probes="attention", anatomy=anatomy)
    verdicts = " ".join(finding.verdict for finding in record.findings)
    assert "Attention logits are not finite" in verdicts
    assert math.isnan(one(record, NORM, layer=3, statistic="mean", head=1))
    assert math.isfinite(one(record, NORM, layer=3, statistic="mean", head=2))
    assert math.isfinite(one(record, NORM, layer=2, statistic="mean", head=1))


def test_attention_of_one_token_is_one() -> None:
    record = ll.measure(gpt2(), ids(1), probes="attention")
    assert one(record, NORM, layer=1, statistic="mean") == pytest.approx(1.0)
    assert "attention.second_singular_value" not in record.quantities
    refused = {one["what"]: one["why"] for one in record.provenance["coverage"]["refused"]}
    assert refused["attention.second_singular_value"] == "too few tokens"


def test_torch_encoder_layers_are_measured() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    record = ll.measure(model, stream(), probes="attention")
    assert [one["heads"] for one in record.provenance["attention"]] == [2, 2, 2]
    assert record.provenance["attention"][1]["norm"] == "layers.1.norm1"


def test_two_attentions_of_one_write_have_heads_of_their_own() -> None:
    def difference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v) - 0.2 * softmax(k, q, v)

    record = ll.measure(stack(difference), stream(), probes="attention")
    told = [one for one in record.provenance["attention"] if one["layer"] == 1]
    assert [(one["first_head"], one["heads"]) for one in told] == [(1, 2), (3, 2)]
    heads = {r.site.head for r in record.select(NORM, layer=1, statistic="mean")}
    assert heads == {None, 1, 2, 3, 4}
    weights = {r.site.head: r.value for r in record.select("attention.query_weight", layer=1)}
    assert set(weights) == {1, 2, 3, 4}
    values = {r.site.head: r.value for r in record.select(NORM, layer=1, statistic="mean")}
    assert values[None] == pytest.approx(sum(values[h] for h in (1, 2, 3, 4)) / 4, rel=1e-12)


def test_what_needs_the_whole_matrix_is_refused_for_long_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from leadline.instruments.passes import coverage
    from leadline.instruments.passes.probes import attention_product, attention_spectrum

    for module in (coverage, attention_product, attention_spectrum):
        monkeypatch.setattr(module, "LONG", 9)
    probes = "attention,attention_product,attention_spectrum"
    record = ll.measure(gpt2(), ids(9, 9), probes=probes)
    refused = {one["what"]: one["why"] for one in record.provenance["coverage"]["refused"]}
    names = {"attention.product_norm", "attention.product_of_norms", "attention.singular_values"}
    assert set(refused) == names
    assert all("needs the whole matrix" in why for why in refused.values())


def test_one_call_for_every_head_is_one_layer() -> None:
    def head_by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = [
            F.scaled_dot_product_attention(q[:, h : h + 1], k[:, h : h + 1], v[:, h : h + 1])
            for h in (0, 1)
        ]
        return torch.cat(parts, 1)

    whole = ll.measure(
        stack(F.scaled_dot_product_attention), stream(), probes="attention,attention_product"
    )
    split = ll.measure(stack(head_by_head), stream(), probes="attention,attention_product")
    for statistic in ("mean", "max", "min"):
        for layer in (1, 2, 3):
            for head in (None, 1, 2):
                where = {"layer": layer, "statistic": statistic, "head": head}
                assert one(split, NORM, **where) == pytest.approx(
                    one(whole, NORM, **where), rel=1e-9
                )
    # What needs all heads at once is not told, and that is told.
    assert "attention.head_divergence" not in split.quantities
    assert "attention.product_norm" not in split.quantities
    assert whole.select("attention.product_norm")
    refused = {one["what"] for one in split.provenance["coverage"]["refused"]}
    assert "numbers over all heads of a layer" in refused


def test_a_product_that_cannot_be_followed_is_not_proved() -> None:
    def strange(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return torch.einsum("bhij,bhjd->bhd", weights, v)[:, :, None] + torch.zeros_like(v)

    with pytest.raises(ll.ProbeError, match="nothing is proved"):
        ll.measure(stack(strange), stream(), probes="attention")


def test_changed_weights_are_a_finding_and_have_no_logits() -> None:
    def smooth(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (0.5 * (q @ k.transpose(-1, -2)).softmax(-1) + 0.5 / 6) @ v

    record = ll.measure(stack(smooth), stream(), probes="attention")
    assert "changed between softmax and values" in record.findings[0].verdict
    assert "attention.logit_std" not in record.quantities
    refused = {one["what"]: one["why"] for one in record.provenance["coverage"]["refused"]}
    assert "not theirs" in refused["attention.logit_std"]
    table = ll.bounds(record)
    assert not table.violated
    by_name = {bound.name: bound for bound in table.bounds}
    assert by_name["column-sum"].applying and not by_name["any-mask-measured"].applying


def test_negative_weights_are_a_finding_and_fall_under_no_bound() -> None:
    def sharpened(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (2 * (q @ k.transpose(-1, -2)).softmax(-1) - 1 / 6) @ v

    record = ll.measure(stack(sharpened), stream(), probes="attention")
    assert any("Attention weights are negative" in f.verdict for f in record.findings)
    assert record.provenance["attention"][0]["substochastic"] is False
    table = ll.bounds(record)
    assert not table.violated
    assert not {bound.name: bound for bound in table.bounds}["column-sum"].applying


def test_heads_that_could_be_examples_are_refused() -> None:
    def head_major(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).flatten(0, 1) for x in (q, k, v))
        out = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
        return out.unflatten(0, (2, -1)).transpose(0, 1)

    x = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(3))
    with pytest.raises(ll.ProbeError, match="heads and examples cannot be told apart"):
        ll.measure(stack(head_major), x, probes="attention")
    record = ll.measure(stack(head_major), x[:1], probes="attention")
    plain = ll.measure(
        stack(lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v), x[:1], probes="attention"
    )
    assert one(record, NORM, layer=1, statistic="mean", head=2) == pytest.approx(
        one(plain, NORM, layer=1, statistic="mean", head=2), rel=1e-6
    )


def test_dropped_weights_are_not_taken_for_the_kernels_in_half_precision() -> None:
    def dropping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)

    with pytest.raises(ll.LeadlineError):
        ll.measure(stack(dropping).bfloat16(), stream().bfloat16(), probes="attention")


def test_a_float64_model_is_measured() -> None:
    record = ll.measure(stack(softmax).double(), stream().double(), probes="attention")
    assert len(record.provenance["attention"]) == 3


def test_a_half_precision_model_is_measured() -> None:
    model = stack(F.scaled_dot_product_attention).bfloat16()
    record = ll.measure(model, stream().bfloat16(), probes="attention")
    assert [one["positions"] for one in record.provenance["attention"]] == ["none"] * 3
    assert not ll.bounds(record).violated


@pytest.mark.parametrize(("factor", "even"), [(1 - 0.8e-3, True), (1 - 1.2e-3, False)])
def test_rows_may_miss_one_by_a_thousandth(factor: float, even: bool) -> None:
    def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.transpose(-1, -2)).softmax(-1) * factor) @ v

    record = ll.measure(stack(scaled), stream(), probes="attention")
    assert record.provenance["attention"][0]["stochastic"] is even
    assert (not record.findings) is even


def test_facts_of_heads_and_groups_stand_in_the_provenance() -> None:
    def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)

    told = ll.measure(stack(grouped), stream(), probes="attention").provenance["attention"][0]
    assert (told["heads"], told["groups"], told["head_width"], told["width"]) == (2, 1, 8, 16)
    assert told["proof_eps"] < 4 and told["first_head"] == 1
