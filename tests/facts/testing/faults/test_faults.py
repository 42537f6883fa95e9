"""Faults do what they say: checked against the equations, not against the code that makes them."""

import copy
import functools
import inspect

import pytest
import torch
from torch import nn

from leadline.errors import InputError, UnknownName
from leadline.testing.faults import FAULTS, all_hosts, cases, host, make
from leadline.testing.faults.subject import Subject

SILENT = {
    "layer-frozen",
    "norms-frozen",
    "module-unused",
    "block-input-detached",
    "block-without-gradient",
    "update-detached",
    "skip-detached",
    "lora-both-zero",
    "lora-not-added",
}
"""Faults that leave the output as it was: they are about gradients and what is never used."""
QUICK = [one for one in all_hosts() if not one.trained or "pair" in one.name]


def logits(model, inputs):
    output = model(**(inputs if isinstance(inputs, dict) else inputs.tensors))
    return output if isinstance(output, torch.Tensor) else output.logits


def fitting(fault):
    return [one for one in QUICK if FAULTS.get(fault).fits(one)]


def exists(model, path):
    owner, _, name = path.rpartition(".")
    return hasattr(model.get_submodule(owner), name)


def check_case(fault, healthy, seed):
    """Apply a fault, and hold what every one promises."""
    base = healthy.build(seed)
    inputs = healthy.inputs(base, seed + 1)
    with torch.no_grad():
        before = logits(base, inputs)
        model, answer = FAULTS.get(fault).apply(healthy.build(seed), healthy, seed)
        after = logits(model, inputs)
        again = logits(healthy.build(seed), inputs)
    assert torch.equal(before, again), "the fault went into the class, not into the model"
    is_same = before.shape == after.shape and torch.equal(after.to(before.dtype), before)
    unseen = fault in SILENT or (fault == "second-norm-unused" and not healthy.trained)
    assert is_same == unseen
    is_finite = bool(torch.isfinite(after).all())
    assert is_finite == (fault not in ("weight-nan", "weight-infinite", "mask-row-empty"))
    assert answer.causes >= set(FAULTS.get(fault).causes)
    depth = len(model.get_submodule(healthy.layout.outer.blocks))
    assert all(1 <= layer <= depth for layer in answer.layers)
    assert answer.sublayer in (None, "attention", "mlp")
    assert answer.parameter is None or exists(model, answer.parameter)


@pytest.mark.parametrize("fault", FAULTS.names())
def test_a_fault_changes_its_model_and_no_other(fault):
    quick = fitting(fault)
    if not quick:
        pytest.skip("only hosts that have to be trained first can have it")
    check_case(fault, quick[sum(map(ord, fault)) % len(quick)], 7)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["tuning", "held-out"])
def test_every_case_of_a_side_is_what_it_promises(side):
    for fault, name, seed in cases(side):
        check_case(fault, host(name), seed)


def test_only_few_faults_need_a_trained_host_of_their_own():
    assert [fault for fault in FAULTS if not fitting(fault)] == ["rope-layout-wrong"]


def test_a_fault_refuses_a_host_that_cannot_have_it():
    with pytest.raises(InputError, match="cannot have the fault mask-removed"):
        make("mask-removed", "bert")
    with pytest.raises(UnknownName, match="mlp-zero"):
        make("mlp-zeros", "gpt2")


def test_the_same_seed_gives_the_same_case():
    first, second = (make("tensor-times-30", "llama", 4) for _ in range(2))
    assert first.answer == second.answer
    assert first.name == "tensor-times-30/llama/4"
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    places = {make("tensor-times-30", "llama", seed).answer for seed in range(6)}
    assert len(places) > 1


# --- residual ---------------------------------------------------------------------------------


class Taps:
    """What enters and leaves a block and its MLP, by hooks."""

    def __init__(self, case, layer):
        layout = host(case.host).layout
        block = case.model.get_submodule(layout.outer.blocks)[layer - 1]
        attention = block.get_submodule(layout.attention)
        mlp = block.get_submodule(layout.mlp)
        self.values = {}
        hooks = [
            block.register_forward_hook(self.keep("block")),
            attention.register_forward_hook(self.keep("attention"), with_kwargs=True),
            mlp.register_forward_hook(self.keep("mlp")),
        ]
        with torch.no_grad():
            logits(case.model, case.inputs)
        for hook in hooks:
            hook.remove()
        self.x, self.y = self.values["block"]
        self.attention = self.values["attention"][1]
        self.mlp = self.values["mlp"][1]

    def keep(self, name):
        def hook(_module, inputs, *rest):
            output = rest[-1]
            output = output[0] if isinstance(output, tuple) else output
            self.values[name] = (inputs[0] if inputs else None, output)

        return hook


@functools.cache
def seed_for(fault, name, *, sublayer):
    return next(s for s in range(20) if make(fault, name, s).answer.sublayer == sublayer)


@pytest.mark.parametrize("name", ["gpt2", "llama", "nano-gpt"])
@pytest.mark.parametrize(
    ("fault", "sublayer", "keep", "attention", "mlp"),
    [
        ("skip-missing-mlp", "mlp", 0, 0, 1),
        ("skip-missing-attention", "attention", 0, 1, 1),
        ("skip-doubled", "mlp", 2, 2, 1),
        ("skip-doubled", "attention", 2, 1, 1),
        ("skip-from-block-input", None, 1, 0, 1),
        ("write-lost-attention", "attention", 1, 0, 1),
        ("write-lost-mlp", "mlp", 1, 1, 0),
        ("stream-added-to-itself", "mlp", 2, 2, 0),
        ("write-halved", "attention", 1, 0.5, 1),
        ("write-added-twice", "mlp", 1, 1, 2),
        ("write-negated", "mlp", 1, 1, -1),
        ("stream-halved", "mlp", 0.5, 0.5, 1),
    ],
)
def test_a_slip_in_an_addition_gives_its_own_sum(name, fault, sublayer, keep, attention, mlp):
    """y = keep x + a attention + m mlp, in one layer; the next layer still adds plainly."""
    case = make(fault, name, seed_for(fault, name, sublayer=sublayer))
    (layer,) = case.answer.layers
    tap = Taps(case, layer)
    wanted = keep * tap.x + attention * tap.attention + mlp * tap.mlp
    torch.testing.assert_close(tap.y, wanted)
    other = Taps(case, layer + 1)
    torch.testing.assert_close(other.y, other.x + other.attention + other.mlp)


@pytest.mark.parametrize("name", ["gpt2", "llama", "nano-gpt", "vit"])
def test_a_skip_taken_after_the_norm_keeps_the_normed_stream(name):
    case = make("skip-after-norm", name, seed_for("skip-after-norm", name, sublayer="attention"))
    (layer,) = case.answer.layers
    tap, layout = Taps(case, layer), host(name).layout
    block = case.model.get_submodule(layout.outer.blocks)[layer - 1]
    with torch.no_grad():
        kept = block.get_submodule(layout.norms["attention"])(tap.x)
    torch.testing.assert_close(tap.y, kept + tap.attention + tap.mlp)


def test_the_changed_source_can_be_read():
    case = make("skip-missing-mlp", "llama", 0)
    (layer,) = case.answer.layers
    block = case.model.model.layers[layer - 1]
    source = inspect.getsource(type(block).forward)
    assert "hidden_states = residual + hidden_states" in source
    assert source.count("residual + hidden_states") == 1
    assert type(block).__name__ == "LlamaDecoderLayer"


def test_deepnorm_with_alpha_on_the_branch():
    case = make("alpha-on-branch", "recipe-deepnorm", 0)
    connection = case.model.blocks[2].mlp.connection
    x, u = torch.randn(2, 3, 64), torch.randn(2, 3, 64)
    torch.testing.assert_close(connection.write(x, u), x + 12**0.25 * u)
    wrong = make("alpha-exponent-half", "recipe-deepnorm", 0).model.blocks[2].mlp.connection
    torch.testing.assert_close(wrong.write(x, u), 12**0.5 * x + u)


# --- weights ----------------------------------------------------------------------------------


def changed_tensors(case):
    """The parameters that differ from those of the healthy host, as ratios of their norms."""
    healthy = dict(host(case.host).build(case.seed).named_parameters())
    return {
        name: float((parameter.norm() / healthy[name].norm()).detach())
        for name, parameter in case.model.named_parameters()
        if not torch.equal(parameter, healthy[name])
    }


def test_one_tensor_is_thirty_times_too_large_and_no_other_has_changed():
    case = make("tensor-times-30", "llama", 2)
    assert changed_tensors(case) == {case.answer.parameter: pytest.approx(30)}


def test_a_quantised_layer_has_at_most_seven_values_a_tensor():
    case = make("quantised-layer", "llama", 0)
    changed = changed_tensors(case)
    assert len(changed) == 7
    parameters = dict(case.model.named_parameters())
    assert all(len(parameters[name].unique()) <= 7 for name in changed)


def test_low_rank_keeps_the_norm_and_nothing_beyond_four_directions():
    case = make("low-rank-layer", "opt", 0)
    changed = changed_tensors(case)
    assert len(changed) == 6
    for name, ratio in changed.items():
        assert ratio == pytest.approx(1)
        values = torch.linalg.svdvals(dict(case.model.named_parameters())[name].detach())
        assert values[4] < 1e-5 * values[0] < values[3]


def test_a_cloned_layer_equals_the_one_below():
    case = make("layer-cloned", "gemma2", 0)
    low, high = (case.model.model.layers[layer - 1] for layer in case.answer.layers)
    pairs = zip(low.parameters(), high.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_broken_tying_leaves_two_tensors_under_a_configuration_that_ties():
    case = make("tying-broken", "gpt2", 0)
    assert case.model.config.tie_word_embeddings
    assert case.model.lm_head.weight is not case.model.transformer.wte.weight
    healthy = host("gpt2").build(0)
    assert healthy.lm_head.weight is healthy.transformer.wte.weight


def test_the_missing_depth_scale_brings_back_the_deviation_of_all_other_matrices():
    model = make("depth-scale-missing", "gpt2", 0).model
    block = model.transformer.h[3]
    for module in (block.attn.c_proj, block.mlp.c_proj, block.mlp.c_fc):
        assert float(module.weight.detach().std()) == pytest.approx(0.02, rel=0.05)


def test_exchanged_layouts_of_rotary_pairs_agree_once_neighbours_are_turned():
    """What the fault stores is right for a model that turns neighbouring features."""
    healthy = host("llama")
    model = healthy.build(0)
    inputs = healthy.inputs(model, 1)
    with torch.no_grad():
        wanted = logits(model, inputs)
        FAULTS.get("rope-layout-wrong").change(Subject(model, healthy, 0, fault=""))
        assert not torch.allclose(logits(model, inputs), wanted, atol=1e-6)

        def turn_neighbours(q, k, cos, sin):
            half = cos.shape[-1] // 2
            cos, sin = cos[..., :half].unsqueeze(1), sin[..., :half].unsqueeze(1)

            def turn(x):
                a, b = x[..., 0::2], x[..., 1::2]
                return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

            return turn(q), turn(k)

        module = inspect.getmodule(type(model))
        kept = module.apply_rotary_pos_emb
        module.apply_rotary_pos_emb = turn_neighbours
        try:
            torch.testing.assert_close(logits(model, inputs), wanted)
        finally:
            module.apply_rotary_pos_emb = kept


# --- gradients, modes, adapters ---------------------------------------------------------------


def gradients(case):
    case.model.zero_grad()
    logits(case.model, case.inputs).float().pow(2).mean().backward()
    return {
        name: 0.0 if p.grad is None else float(p.grad.abs().max())
        for name, p in case.model.named_parameters()
    }


@pytest.mark.parametrize("fault", ["block-input-detached", "block-without-gradient"])
@pytest.mark.parametrize("name", ["llama", "recipe-pre", "nano-gpt"])
def test_nothing_below_a_cut_gets_a_gradient(fault, name):
    case = make(fault, name, 0)
    found, layout = gradients(case), host(name).layout
    cut = max(case.answer.layers) - (fault == "block-input-detached")
    for layer in range(1, cut + 1):
        inside = f"{layout.outer.blocks}.{layer - 1}."
        assert {value for key, value in found.items() if key.startswith(inside)} == {0.0}
    above = f"{layout.outer.blocks}.{cut}."
    assert max(value for key, value in found.items() if key.startswith(above)) > 0


def test_an_adapter_whose_factors_are_both_zero_gets_no_gradient():
    found = gradients(make("lora-both-zero", "llama", 0))
    assert {value for name, value in found.items() if "lora" in name} == {0.0}


def test_dropout_makes_two_passes_differ():
    for fault, name in (("dropout-always-on", "llama"), ("dropout-in-training-mode", "gpt2")):
        case = make(fault, name, 0)
        assert not case.model.training
        with torch.no_grad():
            assert not torch.equal(*(logits(case.model, case.inputs) for _ in range(2)))


def test_one_module_stands_for_all_layers():
    case = make("one-module-for-all-layers", "nano-gpt", 0)
    assert len(case.model.blocks) == 6
    assert len({id(block) for block in case.model.blocks}) == 1


def test_the_configuration_of_an_init_fault_says_so_itself():
    case = make("init-config-times-10", "llama", 0)
    assert case.model.config.initializer_range == pytest.approx(0.2)
    assert float(case.model.model.layers[0].mlp.up_proj.weight.detach().std()) == pytest.approx(
        0.2, rel=0.05
    )


# --- magnitudes -------------------------------------------------------------------------------


def last_stream(case):
    """What leaves the last block, [example, token, width]."""
    blocks = case.model.get_submodule(host(case.host).layout.outer.blocks)
    kept = []
    hook = blocks[-1].register_forward_hook(lambda _m, _x, y: kept.append(y))
    with torch.no_grad():
        logits(case.model, case.inputs)
    hook.remove()
    return kept[0][0] if isinstance(kept[0], tuple) else kept[0]


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "trained-pair-pre"])
def test_a_stream_near_the_end_of_float16_stays_below_it(name):
    assert 1e4 < float(last_stream(make("stream-near-float16", name, 0)).abs().max()) < 65504


@pytest.mark.parametrize("fault", ["bias-huge", "mean-vector-huge"])
def test_tokens_become_equal_by_a_large_shared_vector(fault):
    x = last_stream(make(fault, "gpt2", 0))
    cosines = nn.functional.cosine_similarity(x[:, :-1], x[:, 1:], dim=-1)
    assert float(cosines.min()) > 0.99


def test_most_writes_into_a_large_bfloat16_stream_are_rounded_away():
    case = make("stream-large-in-bfloat16", "llama", 0)
    exact = copy.deepcopy(case.model).float()
    block, wide = case.model.model.layers[2], exact.model.layers[2]
    kept = []
    hook = wide.register_forward_hook(lambda _m, x, y: kept.append((x[0], y)))
    with torch.no_grad():
        logits(exact, case.inputs)
    hook.remove()
    x, y = kept[0]
    rounded = (x.bfloat16() + (y - x).bfloat16()).float() - x.bfloat16().float()
    assert float((rounded - (y - x)).norm() / (y - x).norm()) > 0.3
    assert next(block.parameters()).dtype == torch.bfloat16
