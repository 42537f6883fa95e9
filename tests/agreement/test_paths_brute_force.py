"""Path lengths against all (1 + H)^L paths, and against networks that were frozen by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import leadline
from leadline.instruments.passes.running import call
from leadline.instruments.paths.carried.books import ByPlan
from leadline.instruments.paths.carried.carried import Journey
from leadline.instruments.paths.carried.model_pass import carry_through
from leadline.models.inputs.for_model import batch_for

DEPTH, HEADS, WIDTH, TOKENS = 5, 3, 12, 6


def network(*, depth=DEPTH, seed=0, **fields):
    """A small Transformer in float64 that takes the stream itself; no weight is degenerate."""
    recipe = {"embedding": "none", "positions": "none", "head": "none"} | fields
    model = leadline.Transformer(depth=depth, width=WIDTH, heads=HEADS, seed=seed, **recipe)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.double().parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise / WIDTH**0.5 if parameter.ndim > 1 else 1 + 0.3 * noise)
    return model.eval()


def stream(seed=1, examples=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(examples, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def components(model, x, book=None):
    """The components of the stream after the last layer, [length, example, token, width]."""
    batch = batch_for(model, x, 0)
    stack = leadline.anatomy_of(model, batch).stacks[0]
    journey = Journey() if book is None else Journey(book=book)
    passed = carry_through(model, stack, lambda: call(model, batch), journey)
    parts = passed.stream.parts
    with torch.no_grad():
        sources = None if parts.sources is None else parts.sources.hold().numpy()
        return parts.inputs.hold().numpy(), sources, passed


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def layers_of(model):
    """Per layer (W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O) by head; weights act from the right."""
    size = WIDTH // HEADS
    for block in model.blocks:
        branch = block.attention.branch
        weights = [w.detach().numpy().T for w in branch.qkv.weight.split(WIDTH)]
        biases = [np.zeros(WIDTH)] * 4
        if branch.qkv.bias is not None:
            biases = [b.detach().numpy() for b in branch.qkv.bias.split(WIDTH)]
            biases.append(branch.output.bias.detach().numpy())
        out = branch.output.weight.detach().numpy().T
        cut = [slice(h * size, (h + 1) * size) for h in range(HEADS)]
        yield (
            [(*(w[:, c] for w in weights), out[c], *(b[c] for b in biases[:3])) for c in cut],
            biases[3],
        )


def patterns_of(model, x, *, causal, skip):
    """The attention patterns of the true pass, computed from the weights alone; and its end."""
    found = []
    for heads, shift in layers_of(model):
        after = (x if skip else 0) + shift
        here = []
        for w_q, w_k, w_v, w_o, b_q, b_k, b_v in heads:
            scores = (x @ w_q + b_q) @ (x @ w_k + b_k).T / np.sqrt(WIDTH // HEADS)
            if causal:
                scores[np.triu_indices(TOKENS, 1)] = -np.inf
            here.append(softmax(scores))
            after = after + here[-1] @ (x @ w_v + b_v) @ w_o
        found.append(here)
        x = after
    return found, x


def enumerated(model, start, patterns, *, first=0, skip=True):
    """The sum of all paths of every length that begin at a layer, one path after the other."""
    layers = list(layers_of(model))[first:]
    found = np.zeros((len(layers) + 1, *start.shape))
    choices = range(HEADS + 1) if skip else range(1, HEADS + 1)
    for path in itertools.product(choices, repeat=len(layers)):
        y = start
        for at, head in enumerate(path):
            if head:
                _, _, w_v, w_o, *_ = layers[at][0][head - 1]
                y = patterns[first + at][head - 1] @ y @ w_v @ w_o
        found[sum(head > 0 for head in path)] += y
    return found


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_every_length_equals_the_sum_of_its_paths(biased, causal):
    model = network(
        attention=f"multihead(causal={causal}, bias={biased})", mlp="none", placement="none"
    )
    x = stream()
    patterns, end = patterns_of(model, x[0].numpy(), causal=causal, skip=True)
    inputs, sources, passed = components(model, x)
    expected = enumerated(model, x[0].numpy(), patterns)
    assert inputs.shape[0] == DEPTH + 1
    for length in range(DEPTH + 1):
        miss = np.linalg.norm(inputs[length, 0] - expected[length])
        assert miss < 1e-12 * np.linalg.norm(expected[length])
    assert np.allclose(passed.stream.value[0].numpy(), end, rtol=1e-12)
    shares = leadline.paths(model, x).paths.output
    sizes = [np.linalg.norm(one) / np.linalg.norm(end) for one in expected]
    assert shares.norm_share == pytest.approx(sizes, rel=1e-12)
    along = [(one * end).sum() / (end * end).sum() for one in expected]
    assert shares.share == pytest.approx(along, rel=1e-10, abs=1e-14)
    assert (sources is None) == (not biased)


def test_what_biases_give_equals_the_paths_that_begin_at_them():
    model = network(attention="multihead(causal=False)", mlp="none", placement="none")
    x = stream()
    patterns, _ = patterns_of(model, x[0].numpy(), causal=False, skip=True)
    _, sources, _ = components(model, x)
    expected = np.zeros((DEPTH + 1, TOKENS, WIDTH))
    for layer, (heads, shift) in enumerate(layers_of(model)):
        # The output's bias has no hop behind it, that of the values has one: its own layer's.
        late = np.broadcast_to(shift, (TOKENS, WIDTH))
        rest = DEPTH - layer
        expected[:rest] += enumerated(model, late, patterns, first=layer + 1)
        early = sum(
            pattern @ np.ones((TOKENS, 1)) @ head[6][None] @ head[3]
            for pattern, head in zip(patterns[layer], heads, strict=True)
        )
        expected[1 : rest + 1] += enumerated(model, early, patterns, first=layer + 1)
    assert sources is not None and sources.shape[0] == DEPTH + 1
    for length in range(DEPTH + 1):
        miss = np.linalg.norm(sources[length, 0] - expected[length])
        assert miss < 1e-12 * np.linalg.norm(expected).max()


def test_without_a_skip_there_are_paths_of_full_length_only():
    model = network(
        attention="multihead(bias=False)", mlp="none", placement="none", connection="none"
    )
    x = stream()
    inputs, _, _ = components(model, x)
    patterns, end = patterns_of(model, x[0].numpy(), causal=True, skip=False)
    expected = enumerated(model, x[0].numpy(), patterns, skip=False)
    assert not inputs[:-1].any()
    assert np.allclose(inputs[-1, 0], expected[-1], rtol=1e-12)
    assert np.allclose(expected[-1], end, rtol=1e-12)
    found = leadline.paths(model, x).paths
    assert found.counts == (0, 0, 0, 0, 0, 243)
    assert found.share == pytest.approx((0, 0, 0, 0, 0, 1), abs=1e-14)


# --- with norms and MLPs: the frozen network, written by hand -------------------------------------


def frozen_pre_norm(model, x):
    """Pre-norm, LayerNorm, GELU: returns a function t -> output with all values times t."""
    steps = []
    with torch.no_grad():
        for block in model.blocks:
            norm, branch = block.attention.enter, block.attention.branch
            mean, scale = x.mean(-1, keepdim=True), (x.var(-1, False, True) + norm.eps).rsqrt()
            z = (x - mean) * scale * norm.weight + norm.bias
            q, k, v = (F.linear(z, branch.qkv.weight, branch.qkv.bias)).split(WIDTH, -1)
            q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(0, 1) for one in (q, k, v))
            scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
            later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            pattern = scores.masked_fill(later, -torch.inf).softmax(-1)
            x = x + F.linear((pattern @ v).transpose(0, 1).flatten(1), *_affine(branch.output))
            norm2, mlp = block.mlp.enter, block.mlp.branch
            scale2 = (x.var(-1, False, True) + norm2.eps).rsqrt()
            z = (x - x.mean(-1, keepdim=True)) * scale2 * norm2.weight + norm2.bias
            h = F.linear(z, *_affine(mlp.up))
            gate = (1 + torch.erf(h / 2**0.5)) / 2
            x = x + F.linear(gate * h, *_affine(mlp.down))
            steps.append((block, scale, pattern, scale2, gate))

    def run(t, x):
        for block, scale, pattern, scale2, gate in steps:
            norm, branch = block.attention.enter, block.attention.branch
            z = (x - x.mean(-1, keepdim=True)) * scale * norm.weight + norm.bias
            v = F.linear(z, branch.qkv.weight[2 * WIDTH :], branch.qkv.bias[2 * WIDTH :])
            v = t * v.unflatten(-1, (HEADS, -1)).transpose(0, 1)
            x = x + F.linear((pattern @ v).transpose(0, 1).flatten(1), *_affine(branch.output))
            norm2, mlp = block.mlp.enter, block.mlp.branch
            z = (x - x.mean(-1, keepdim=True)) * scale2 * norm2.weight + norm2.bias
            x = x + F.linear(gate * F.linear(z, *_affine(mlp.up)), *_affine(mlp.down))
        return x

    return run


def frozen_post_norm(model, x):
    """Post-norm, RMSNorm, SwiGLU, no biases; the same."""
    steps = []
    with torch.no_grad():
        for block in model.blocks:
            branch = block.attention.branch
            q, k, v = F.linear(x, branch.qkv.weight).split(WIDTH, -1)
            q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(0, 1) for one in (q, k, v))
            pattern = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).softmax(-1)
            mixed = (pattern @ v).transpose(0, 1).flatten(1)
            x = x + F.linear(mixed, branch.output.weight)
            settle, last = block.attention.settle, block.mlp.settle
            scale = (x.square().mean(-1, keepdim=True) + settle.eps).rsqrt()
            x = x * scale * settle.weight
            gate, up = F.linear(x, block.mlp.branch.gate_up.weight).chunk(2, -1)
            gate = gate * gate.sigmoid()
            x = x + F.linear(gate * up, block.mlp.branch.down.weight)
            scale2 = (x.square().mean(-1, keepdim=True) + last.eps).rsqrt()
            x = x * scale2 * last.weight
            steps.append((block, pattern, scale, gate, scale2))

    def run(t, x):
        for block, pattern, scale, gate, scale2 in steps:
            branch, mlp = block.attention.branch, block.mlp.branch
            v = t * F.linear(x, branch.qkv.weight[2 * WIDTH :])
            mixed = (pattern @ v.unflatten(-1, (HEADS, -1)).transpose(0, 1)).transpose(0, 1)
            x = x + F.linear(mixed.flatten(1), branch.output.weight)
            x = x * scale * block.attention.settle.weight
            up = F.linear(x, mlp.gate_up.weight).chunk(2, -1)[1]
            x = (x + F.linear(gate * up, mlp.down.weight)) * scale2 * block.mlp.settle.weight
        return x

    return run


def _affine(linear):
    return linear.weight, linear.bias


@pytest.mark.parametrize(
    ("fields", "freeze"),
    [
        ({"mlp": "gelu", "norm": "layernorm", "placement": "pre"}, frozen_pre_norm),
        (
            {
                "mlp": "swiglu",
                "norm": "rmsnorm",
                "placement": "post",
                "attention": "multihead(causal=False, bias=False)",
            },
            frozen_post_norm,
        ),
    ],
    ids=["pre-norm GELU", "post-norm SwiGLU"],
)
def test_lengths_are_the_coefficients_in_the_size_of_all_values(fields, freeze):
    model = network(depth=3, **fields)
    x = stream()
    inputs, sources, passed = components(model, x)
    frozen = freeze(model, x[0])
    with torch.no_grad():
        assert np.allclose(frozen(1.0, x[0]).numpy(), passed.stream.value[0].numpy(), rtol=1e-11)
        for t in (-1.0, 0.0, 0.5, 2.0, 3.0):
            found = sum(t**k * one[0] for k, one in enumerate(inputs))
            if sources is not None:
                found = found + sum(t**k * one[0] for k, one in enumerate(sources))
            expected = frozen(t, x[0]).numpy()
            assert np.linalg.norm(found - expected) < 1e-12 * np.linalg.norm(expected)


def test_inputs_and_biases_are_told_apart_by_scaling_the_stream():
    model = network(depth=3, mlp="gelu")
    x = stream()
    inputs, sources, _ = components(model, x)
    frozen = frozen_pre_norm(model, x[0])
    with torch.no_grad():
        nothing = frozen(1.0, torch.zeros_like(x[0])).numpy()
        only = (frozen(1.0, x[0]) - torch.from_numpy(nothing)).numpy()
    assert np.allclose(sources.sum(0)[0], nothing, rtol=1e-12)
    assert np.allclose(inputs.sum(0)[0], only, rtol=1e-12)


# --- one path at a time ---------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["none", "pre", "parallel"])
def test_plans_one_by_one_sum_to_the_lengths(placement):
    fields = {"mlp": "none"} if placement == "none" else {"mlp": "gelu"}
    model = network(depth=3, placement=placement, **fields)
    x = stream(examples=2)
    inputs, _, _ = components(model, x)
    plans = [
        {at: head - 1 for at, head in enumerate(path) if head}
        for path in itertools.product(range(HEADS + 1), repeat=3)
    ]
    alone, sources, passed = components(model, x, ByPlan(plans))
    assert sources is None
    lengths = passed.stream.parts.inputs.lengths
    assert list(lengths) == [len(plan) for plan in plans]
    for length in range(4):
        chosen = [at for at, plan in enumerate(plans) if len(plan) == length]
        miss = np.linalg.norm(alone[chosen].sum(0) - inputs[length])
        assert miss < 1e-12 * np.linalg.norm(inputs[length])


def test_one_plan_is_one_path():
    model = network(
        depth=3, attention="multihead(causal=False, bias=False)", mlp="none", placement="none"
    )
    x = stream()
    patterns, _ = patterns_of(model, x[0].numpy(), causal=False, skip=True)
    (found,), _, _ = components(model, x, ByPlan([{0: 2, 2: 1}]))
    layers = list(layers_of(model))
    y = x[0].numpy()
    for layer, head in ((0, 2), (2, 1)):
        _, _, w_v, w_o, *_ = layers[layer][0][head]
        y = patterns[layer][head] @ y @ w_v @ w_o
    assert np.allclose(found[0], y, rtol=1e-12)
