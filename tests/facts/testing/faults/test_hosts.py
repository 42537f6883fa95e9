"""Hosts are healthy, deterministic, and as large as their layouts say."""

import pytest
import torch
from torch import nn

import leadline as ll
from leadline.errors import UnknownName
from leadline.testing.faults import all_hosts, host
from leadline.testing.faults.subject import Subject

FRESH = [one for one in all_hosts() if not one.trained]
QUICK = [*FRESH, host("trained-pair-pre"), host("trained-pair-post")]
TRAINED = [one for one in all_hosts() if one.trained]


def logits(model, inputs):
    with torch.no_grad():
        output = model(**inputs.tensors)
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize("healthy", QUICK, ids=lambda one: one.name)
def test_a_host_is_built_alike_and_leaves_the_random_numbers_alone(healthy):
    before = torch.get_rng_state()
    first, second = healthy.build(3), healthy.build(3)
    inputs = healthy.inputs(first, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not first.training
    assert torch.equal(logits(first, inputs), logits(second, inputs))
    assert torch.isfinite(logits(first, inputs)).all()


@pytest.mark.parametrize("healthy", QUICK, ids=lambda one: one.name)
def test_the_layout_of_a_host_names_what_is_there(healthy):
    subject = Subject(healthy.build(0), healthy, 0, fault="")
    assert 6 <= subject.depth <= 12
    width = subject.weight(1, "output").shape[0]
    heads, size = subject.heads, subject.head_width
    assert heads * size == width == 64
    query = subject.by_head(subject.weight(2, "query"))
    assert query.shape == (heads, size, width)
    assert subject.weight(2, "key").shape == subject.weight(2, "value").shape
    assert subject.weight(2, "down").shape[0] == subject.weight(2, "up").shape[1] == width
    # Every matrix of a block is in the layout, and none twice.
    matrices = sum(subject.weight(2, role).numel() for role in subject.matrices)
    named = dict(subject.block(2).named_parameters()).values()
    lanes = {id(p) for n, p in subject.block(2).named_parameters() if "connection" in n}
    assert matrices == sum(p.numel() for p in named if p.ndim == 2 and id(p) not in lanes)
    for _, _, norm in subject.norms():
        assert norm.weight.shape == (width,)
    for name in ("embedding", "head", "positions", "rotary", "final"):
        if getattr(healthy.layout.outer, name):
            assert isinstance(subject.outer(name), nn.Module)


def test_queries_of_a_fused_matrix_are_those_that_the_model_computes():
    """NeoX fuses by head, GPT-2 in thirds and turned, recipes in groups: compared with hooks."""
    for name, path in (
        ("gpt_neox", "attention.query_key_value"),
        ("gpt2", "attn.c_attn"),
        ("recipe-llama", "attention.branch.qkv"),
    ):
        healthy = host(name)
        model = healthy.build(0)
        subject = Subject(model, healthy, 0, fault="")
        seen = {}
        module = subject.module(2, path)
        hook = module.register_forward_hook(lambda _m, x, y, seen=seen: seen.update(x=x[0], y=y))
        logits(model, healthy.inputs(model, 1))
        hook.remove()
        weight, bias = subject.weight(2, "value"), subject.bias(2, "value")
        value = seen["x"] @ weight.reshape(-1, 64).T + (0 if bias is None else bias.reshape(-1))
        examples, tokens = value.shape[:2]
        if name == "gpt_neox":
            wanted = seen["y"].view(examples, tokens, 4, 3, 16)[..., 2, :].flatten(2)
        else:
            wanted = seen["y"][..., -value.shape[-1] :]
        torch.testing.assert_close(value, wanted)


def test_fresh_hosts_are_as_their_own_class_draws_them():
    model = host("llama").build(5)
    torch.manual_seed(5)
    other = type(model)(model.config)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_unknown_host_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="trained-llama"):
        host("trained-lama")


def test_the_inputs_of_trained_hosts_are_text_that_differs_by_seed():
    healthy = host("trained-pair-pre")
    model = healthy.build(0)
    first, second = healthy.inputs(model, 1), healthy.inputs(model, 2)
    assert first.kind == "text"
    assert first.main.shape == (4, 64)
    assert not torch.equal(first.main, second.main)
    assert all(chr(i).isprintable() or chr(i).isspace() for i in first.main[0].tolist())


def unigram_entropy(healthy, model):
    """Of the bytes in 40 batches, about ten thousand."""
    batches = [healthy.inputs(model, seed) for seed in range(40)]
    ids = torch.cat([(b.main if b.labels is None else b.labels).flatten() for b in batches])
    share = torch.bincount(ids[ids >= 0]) / (ids >= 0).sum()
    return float(-(share[share > 0] * share[share > 0].log()).sum())


@pytest.mark.parametrize("name", ["trained-pair-pre", "trained-pair-post"])
def test_trained_hosts_predict_better_than_single_bytes(name):
    check_training(host(name))


@pytest.mark.slow
@pytest.mark.parametrize("healthy", TRAINED, ids=lambda one: one.name)
def test_all_trained_hosts_predict_better_than_single_bytes(healthy):
    check_training(healthy)


def check_training(healthy):
    model = healthy.build(0)
    batches = [healthy.inputs(model, seed) for seed in range(8)]
    losses = [
        ll.measure(model, batch, probes="stream").provenance["loss"]["value"] for batch in batches
    ]
    assert sum(losses) / len(losses) < unigram_entropy(healthy, model) - 0.3


@pytest.mark.slow
def test_a_trained_host_is_trained_to_the_bit_again(tmp_path, monkeypatch):
    kept = host("trained-nano-gpt").build(0).state_dict()
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    again = host("trained-nano-gpt").build(0).state_dict()
    assert list((tmp_path / "faults").iterdir())
    assert all(torch.equal(kept[name], again[name]) for name in kept)
