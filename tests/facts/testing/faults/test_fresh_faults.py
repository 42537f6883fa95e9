"""Fresh kinds of faults do what they say: function, gradient or parameters differ in that way."""

import dataclasses
import itertools

import pytest
import torch
from torch.nn import functional as F

from leadline.testing.faults import cases, host, make
from leadline.testing.faults.fault import FRESH_FAULTS, find_fault
from leadline.testing.faults.fresh import rounds
from leadline.testing.faults.hosts import hosts_of_round
from leadline.testing.faults.subject import Subject
from tests.facts.testing.faults.test_faults import SILENT, exists, logits

UNSEEN = SILENT | {"lora-frozen", "lora-detached", "embedding-detached", "queries-detached"}
"""Faults that leave the output as it was, but for rounding."""
NOT_FINITE = {"weight-nan", "weight-infinite", "mask-row-empty"}
ON_TRAINED = [
    fault
    for fault in FRESH_FAULTS
    if not any(
        FRESH_FAULTS.get(fault).fits(one)
        for side in rounds.ROUNDS
        for one in hosts_of_round(side)
        if not one.trained
    )
]


def check_case(fault, healthy, seed):
    base = healthy.build(seed)
    inputs = healthy.inputs(base, seed + 1)
    with torch.no_grad():
        before = logits(base, inputs)
        model, answer = find_fault(fault).apply(healthy.build(seed), healthy, seed)
        after = logits(model, inputs).to(before.dtype)
        again = logits(healthy.build(seed), inputs)
    assert torch.equal(before, again), "the fault went into the class, not into the model"
    # Gains of an untrained model are all equal, so that another norm is the same norm.
    same_norm = fault in ("second-norm-unused", "norm-shared") and not healthy.trained
    if fault in UNSEEN or same_norm:
        torch.testing.assert_close(after, before)
    else:
        assert before.shape == after.shape
        assert not torch.equal(after, before)
    assert bool(torch.isfinite(after).all()) == (fault not in NOT_FINITE)
    assert answer.causes >= set(find_fault(fault).causes)
    depth = len(model.get_submodule(healthy.layout.outer.blocks))
    assert all(1 <= layer <= depth for layer in answer.layers)
    assert answer.sublayer in (None, "attention", "mlp")
    assert answer.parameter is None or exists(model, answer.parameter)


@pytest.mark.parametrize("side", rounds.ROUNDS)
def test_a_sample_of_cases_is_what_it_promises(side):
    quick = [one for one in cases(side) if not host(one[1]).trained]
    for fault, name, seed in quick[:: len(quick) // 8]:
        check_case(fault, host(name), seed)


@pytest.mark.slow
@pytest.mark.parametrize("side", rounds.ROUNDS)
def test_every_case_of_a_round_is_what_it_promises(side):
    for fault, name, seed in cases(side):
        check_case(fault, host(name), seed)


# --- a case as if its host were trained --------------------------------------------------------


class Pair:
    """A healthy model and the same with a fault; what training would change is drawn at random."""

    def __init__(self, fault, name, seed=0):
        healthy = host(name)
        if fault in ON_TRAINED:
            healthy = dataclasses.replace(healthy, trained=True)
        self.healthy, self.model = self.lively(healthy), self.lively(healthy)
        self.inputs = healthy.inputs(self.healthy, 1)
        self.base = Subject(self.healthy, healthy, seed, fault="")
        changed, self.answer = find_fault(fault).apply(self.model, healthy, seed)
        assert changed is self.model
        self.subject = Subject(self.model, healthy, seed, fault="")

    @staticmethod
    @torch.no_grad()
    def lively(healthy):
        """Matrices five times as large, gains and biases away from one and zero, in float64."""
        model = healthy.build(0).double()
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5)
            else:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        return model

    @property
    def layer(self):
        (layer,) = self.answer.layers
        return layer

    def changed(self):
        """The names of the parameters that differ."""
        before = dict(self.healthy.named_parameters())
        return {n for n, p in self.model.named_parameters() if not torch.equal(p, before[n])}

    def weights(self, layer, role):
        return self.base.weight(layer, role), self.subject.weight(layer, role)

    def gradients(self):
        """The largest gradient of every parameter, None where there is none."""
        logits(self.model, self.inputs).pow(2).mean().backward()
        return {
            name: None if p.grad is None else float(p.grad.abs().max())
            for name, p in self.model.named_parameters()
        }


@torch.no_grad()
def reach(model, tokens=20):
    """[query, key]: whether another token at a key changes the output at a query."""
    ids = torch.arange(tokens).view(1, -1) + 10
    base = model(ids)
    rows = []
    for place in range(tokens):
        other = ids.clone()
        other[0, place] = 99
        rows.append((model(other) - base).abs().amax(-1)[0] > 1e-12)
    return torch.stack(rows, dim=1)


TOKENS = torch.arange(20)
LOWER = TOKENS[:, None] >= TOKENS
ALL = torch.ones(20, 20, dtype=torch.bool)


@pytest.mark.parametrize("name", ["plain-gpt", "plain-llama"])
@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("mask-added-as-one", ALL),
        ("mask-multiplied", ALL),
        ("mask-transposed", LOWER.t()),
        ("mask-in-chunks", LOWER & (TOKENS[:, None] // 8 == TOKENS // 8)),
        ("first-token-hidden", LOWER & ((TOKENS > 0) | (TOKENS[:, None] == 0))),
        ("norm-over-tokens", ALL),
    ],
)
def test_a_wrong_mask_lets_each_token_see_what_it_says(name, fault, wanted):
    pair = Pair(fault, name)
    assert torch.equal(reach(pair.healthy), LOWER)
    assert torch.equal(reach(pair.model), wanted)


def test_weights_that_are_masked_after_the_softmax_do_not_sum_to_one():
    """With equal values of one throughout, what the attention returns is the sum of its weights."""
    pair = Pair("mask-multiplied", "plain-gpt")
    for model, is_one in ((pair.healthy, True), (pair.model, False)):
        mix = model.layers[2].mix
        with torch.no_grad():
            mix.values.weight.zero_()
            mix.values.bias.fill_(1.0)
            mix.out.weight.copy_(torch.eye(80))
            mix.out.bias.zero_()
            sums = mix(torch.randn(1, 6, 80, dtype=torch.float64))
        assert torch.allclose(sums, torch.ones_like(sums)) == is_one


def test_scales_of_the_logits():
    assert Pair("scale-of-width", "cohere").model.model.layers[3].self_attn.scaling == 72**-0.5
    assert Pair("scale-multiplied", "cohere").model.model.layers[3].self_attn.scaling == 12**0.5
    assert host("cohere").build(0).model.layers[3].self_attn.scaling == 12**-0.5


@pytest.mark.parametrize(("name", "tensors"), [("plain-gpt", 6), ("ernie4_5", 1)])
def test_a_duplicated_head_attends_and_reads_as_its_neighbour_does(name, tensors):
    pair = Pair("head-duplicated", name)
    assert len(pair.changed()) == tensors
    queries = pair.subject.by_head(pair.subject.weight(pair.layer, "query"))
    equal = [torch.equal(one, other) for one, other in itertools.pairwise(queries)]
    assert sum(equal) == 1


def test_groups_that_are_repeated_in_turn_are_right_for_another_order_of_heads():
    """a b a b instead of a a b b: exchange heads 2 and 3 of four, and the outcome is the same."""
    pair = Pair("groups-repeated-wrong", "seed_oss")
    before = logits(pair.healthy, pair.inputs)
    assert not torch.allclose(logits(pair.model, pair.inputs), before)
    order = torch.tensor([0, 2, 1, 3])
    with torch.no_grad():
        for layer in pair.subject.layers:
            for tensor in (pair.subject.weight(layer, "query"), pair.subject.bias(layer, "query")):
                heads = pair.subject.by_head(tensor)
                heads.copy_(heads[order].clone())
            columns = pair.subject.weight(layer, "output").unflatten(1, (4, 20))
            columns.copy_(columns[:, order].clone())
    torch.testing.assert_close(logits(pair.model, pair.inputs), before)


@pytest.mark.parametrize("fault", ["attention-dropout-on", "drop-path-on"])
@pytest.mark.parametrize("name", ["plain-gpt", "recipe-post-5"])
def test_two_passes_in_evaluation_differ(fault, name):
    pair = Pair(fault, name)
    assert not pair.model.training
    first, second = (logits(pair.model, pair.inputs) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(*(logits(pair.healthy, pair.inputs) for _ in range(2)))


# --- positions --------------------------------------------------------------------------------


def test_doubled_scaling_turns_every_second_token_as_the_next_one_should_be():
    pair = Pair("rope-scaling-doubled", "plain-llama")
    x = torch.zeros(1, 9, 96, dtype=torch.float64)
    for wrong, right in zip(pair.model.turns(x), pair.healthy.turns(x), strict=True):
        torch.testing.assert_close(wrong[::2], right[:5])


def test_half_of_the_features_are_not_turned():
    pair = Pair("partial-rotary-lost", "phi3")
    x, places = torch.zeros(1, 5, 96), torch.arange(5)[None]
    cos, sin = pair.model.model.rotary_emb(x, places)
    right, _ = pair.healthy.model.rotary_emb(x, places)
    # Of a head of 16, features 4 to 7 and their partners have the lower frequencies.
    lost = torch.tensor([4, 5, 6, 7, 12, 13, 14, 15])
    assert (cos[..., lost] == 1).all()
    assert (sin[..., lost] == 0).all()
    kept = torch.tensor([0, 1, 2, 3, 8, 9, 10, 11])
    assert torch.equal(cos[..., kept], right[..., kept])


def test_positions_shifted_clamped_and_drawn_large():
    shifted = Pair("positions-shifted", "plain-gpt")
    tables = [one.place_table.weight for one in (shifted.healthy, shifted.model)]
    assert torch.equal(tables[1][2:], tables[0][:-2])
    large = Pair("positions-drawn-large", "plain-gpt")
    torch.testing.assert_close(large.model.place_table.weight, 50 * tables[0])
    clamped = Pair("positions-clamped", "biogpt")
    # From the eighth on, exchanging two tokens exchanges what leaves the embedding, and no more.
    seen = []
    for model in (clamped.healthy, clamped.model):
        first = model.biogpt.layers[0]
        hook = first.register_forward_pre_hook(lambda _m, x, seen=seen: seen.append(x[0]))
        ids = torch.arange(20, 40).view(1, -1)
        with torch.no_grad():
            model(input_ids=ids)
            model(input_ids=ids.index_select(1, torch.tensor([*range(18), 19, 18])))
        hook.remove()
    assert not torch.allclose(seen[0][0, 18], seen[1][0, 19])
    torch.testing.assert_close(seen[2][0, 18], seen[3][0, 19])
    torch.testing.assert_close(seen[2][0, :7], seen[0][0, :7])


# --- checkpoints ------------------------------------------------------------------------------


def test_gate_and_up_are_exchanged():
    pair = Pair("gate-up-exchanged", "plain-llama")
    x = torch.randn(2, 3, 96, dtype=torch.float64)
    for layer in (0, 7):
        healthy = pair.healthy.stack[layer].swiglu
        gate, up = healthy.w12(x).chunk(2, dim=-1)
        wanted = healthy.w3(F.silu(up) * gate)
        torch.testing.assert_close(pair.model.stack[layer].swiglu(x), wanted)


def test_rows_and_columns_of_single_tensors_are_in_another_order():
    pair = Pair("value-heads-rolled", "arcee")
    assert pair.changed() == {pair.answer.parameter}
    before, after = pair.weights(pair.layer, "value")
    assert torch.equal(after, before.roll(16, 0))
    pair = Pair("mlp-units-misordered", "plain-llama")
    assert pair.changed() == {pair.answer.parameter}
    before, after = pair.weights(pair.layer, "down")
    assert torch.equal(after.sort(dim=1).values, before.sort(dim=1).values)


def test_exchanged_queries_and_keys_transpose_the_logits():
    pair = Pair("queries-keys-exchanged", "plain-gpt")
    x = torch.randn(5, 80, dtype=torch.float64)
    mixes = [model.layers[pair.layer - 1].mix for model in (pair.healthy, pair.model)]
    right, wrong = (mix.queries(x) @ mix.keys(x).t() for mix in mixes)
    torch.testing.assert_close(wrong, right.t())
    assert len(pair.changed()) == 4


@pytest.mark.parametrize("fault", ["layers-reversed", "layers-shifted"])
def test_layers_in_another_order(fault):
    pair = Pair(fault, "plain-llama")
    order = [*range(8)][::-1] if fault == "layers-reversed" else [0, *range(7)]
    for place, source in enumerate(order):
        ours = pair.model.stack[place].parameters()
        theirs = pair.healthy.stack[source].parameters()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_vocabularies_and_heads():
    pair = Pair("tokens-inserted", "plain-llama")
    right, wrong = pair.healthy.embed.weight, pair.model.embed.weight
    assert torch.equal(wrong[:64], right[:64])
    assert torch.equal(wrong[67:], right[64:-3])
    assert pair.changed() == {"embed.weight"}
    pair = Pair("head-tied-by-mistake", "plain-llama")
    assert pair.model.unembed.weight is pair.model.embed.weight
    assert torch.equal(pair.model.embed.weight, right)


def test_biases_and_gains_that_were_not_loaded():
    pair = Pair("bias-lost", "plain-gpt")
    assert pair.changed() == {pair.answer.parameter}
    assert (pair.model.get_parameter(pair.answer.parameter) == 0).all()
    pair = Pair("bias-lost", "seed_oss")
    assert pair.answer.parameter.endswith("v_proj.bias")
    pair = Pair("gain-not-loaded", "nemotron")
    layer = pair.model.model.layers[pair.layer - 1]
    x = torch.randn(2, 96, dtype=torch.float64)
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        torch.testing.assert_close(norm(x), F.layer_norm(x, (96,)))
    assert len(pair.changed()) == 4


def test_norms_exchanged_and_applied_twice():
    pair = Pair("norms-exchanged", "arcee")
    one, other = (m.model.layers[pair.layer - 1] for m in (pair.healthy, pair.model))
    assert torch.equal(one.input_layernorm.weight, other.post_attention_layernorm.weight)
    assert torch.equal(other.input_layernorm.weight, one.post_attention_layernorm.weight)
    pair = Pair("final-norm-twice", "plain-llama")
    x, norm = torch.randn(3, 96, dtype=torch.float64), pair.healthy.out_norm
    torch.testing.assert_close(pair.model.out_norm(x), norm(norm(x)))
    assert not torch.allclose(norm(norm(x)), norm(x))


# --- structure --------------------------------------------------------------------------------


def test_a_halved_sum_is_the_mean_of_stream_and_update():
    for seed in range(4):
        pair = Pair("sum-halved", "plain-gpt", seed)
        block = pair.healthy.layers[pair.layer - 1]
        x = torch.randn(2, 5, 80, dtype=torch.float64)
        factors = (0.5, 1.0) if pair.answer.sublayer == "attention" else (1.0, 0.5)
        h = factors[0] * (x + block.mix(block.before_mix(x)))
        wanted = factors[1] * (h + block.feed(block.before_feed(h)))
        torch.testing.assert_close(pair.model.layers[pair.layer - 1](x), wanted)


@pytest.mark.parametrize("name", ["plain-gpt", "mt5", "recipe-post-5"])
def test_a_dropped_block_gets_no_gradient_and_the_others_do(name):
    pair = Pair("block-result-dropped", name)
    inside = f"{host(name).layout.outer.blocks}.{pair.layer - 1}."
    dead = {n for n, g in pair.gradients().items() if g is None}
    assert dead == {n for n, _ in pair.model.named_parameters() if n.startswith(inside)}


def test_shared_modules_are_one_object():
    pair = Pair("norm-shared", "smollm3")
    layers = pair.model.model.layers
    assert len({id(layer.input_layernorm) for layer in layers}) == 1
    assert len({id(layer.post_attention_layernorm) for layer in layers}) == 1
    assert layers[0].input_layernorm is not layers[0].post_attention_layernorm
    assert not torch.allclose(*(logits(m, pair.inputs) for m in (pair.healthy, pair.model)))
    pair = Pair("attention-shared-by-two-layers", "smollm3")
    low, high = pair.answer.layers
    layers = pair.model.model.layers
    assert layers[low - 1].self_attn is layers[high - 1].self_attn
    assert len({id(layer.self_attn) for layer in layers}) == 7


def test_detached_embeddings_and_queries_never_learn():
    grads = Pair("embedding-detached", "arcee").gradients()
    assert {name for name, value in grads.items() if value is None} == {"model.embed_tokens.weight"}
    pair = Pair("queries-detached", "arcee")
    path = f"model.layers.{pair.layer - 1}.self_attn"
    dead = {name for name, value in pair.gradients().items() if value is None}
    assert dead == {f"{path}.q_proj.weight", f"{path}.k_proj.weight"}


def test_adapters_that_cannot_learn():
    frozen = make("lora-frozen", "arcee", 0).model
    assert any("lora_A" in name for name, _ in frozen.named_parameters())
    assert not any(p.requires_grad for p in frozen.parameters())
    case = make("lora-detached", "arcee", 0)
    adapters = [p for n, p in case.model.named_parameters() if "lora_" in n]
    assert len(adapters) == 20
    assert all(p.requires_grad for p in adapters)
    assert not logits(case.model, case.inputs).requires_grad


def test_weights_forgotten_constant_equal_and_rounded():
    pair = Pair("layer-default-init", "plain-llama")
    weight = pair.subject.weight(pair.layer, "down")
    assert float(weight.std()) == pytest.approx((3 * 192) ** -0.5, rel=0.03)
    assert {n.split(".")[1] for n in pair.changed()} == {str(pair.layer - 1)}
    pair = Pair("tensor-constant", "arcee")
    assert pair.changed() == {pair.answer.parameter}
    before, after = (m.get_parameter(pair.answer.parameter) for m in (pair.healthy, pair.model))
    assert len(after.unique()) == 1
    torch.testing.assert_close(after.norm(), before.norm())
    pair = Pair("mlp-units-equal", "arcee")
    assert int(torch.linalg.matrix_rank(pair.subject.weight(pair.layer, "up"))) == 1
    pair = Pair("layer-in-float8", "arcee")
    mantissas = torch.frexp(pair.subject.weight(pair.layer, "down")).mantissa
    assert torch.equal(mantissas * 8, (mantissas * 8).round())
    assert len(pair.changed()) == 6
    pair = Pair("embedding-quantised", "arcee")
    assert pair.changed() == {"model.embed_tokens.weight"}
    assert len(pair.model.model.embed_tokens.weight.unique()) <= 7
