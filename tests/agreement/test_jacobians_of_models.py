"""Jacobians of GPT-2, Llama, BERT, Gemma and our parts, against dense ones in float64.

Two references that share nothing with the code under test: the model itself run on inputs that
differ in one number of the stream (central differences in float64, all columns as one batch), and
`torch.func.jacrev` of the block called with the real arguments. RMSNorm and the softmax of eager
attention compute in float32 whatever they are given; differences need them in float64.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
import torch

import leadline
from leadline.anatomy.stretch.stretch import Stretches
from leadline.anatomy.tensors import first_tensor
from leadline.testing.zoo import ZOO

TOKENS = 4
LAYER = 2
BLOCKS = {
    "gpt2": "transformer.h.1",
    "llama": "model.layers.1",
    "bert": "bert.encoder.layer.1",
    "gemma": "model.layers.1",
    "gemma2": "model.layers.1",
    "gemma3_text": "model.layers.1",
}
# Gemma 2 caps its scores, which torch's own attention cannot.
KERNELS = [(n, k) for n in BLOCKS for k in ("eager", "sdpa") if (n, k) != ("gemma2", "sdpa")]
CAUSAL = {name: name != "bert" for name in BLOCKS}
PARTS = {
    "pre": {},
    "post": {"placement": "post"},
    "deepnorm": {"placement": "post", "connection": "deepnorm"},
    "sandwich": {"placement": "sandwich"},
    "hyper": {"connection": "hyper"},
}


def precise_norm(module, x):
    eps = getattr(module, "variance_epsilon", None) or module.eps
    weight = module.weight + (1.0 if type(module).__name__.startswith("Gemma") else 0.0)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@pytest.fixture(autouse=True)
def _precise_softmax(monkeypatch):
    own = torch.nn.functional.softmax

    def softmax(x, dim=None, dtype=None, **options):
        return own(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype, **options)

    monkeypatch.setattr(torch.nn.functional, "softmax", softmax)


@functools.cache
def hugging_face(name, dtype=torch.float32):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ZOO[name].build(0).eval().to(dtype)
        for module in model.modules() if dtype == torch.float64 else ():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = functools.partial(precise_norm, module)
        ids = ZOO[name].inputs(model, 1)["input_ids"][:1, :TOKENS]
    return model, ids


def ours(fields, dtype=torch.float32):
    model = leadline.Transformer(depth=3, width=16, heads=2, vocabulary=17, **fields).to(dtype)
    ids = torch.randint(0, 17, (1, 5), generator=torch.Generator().manual_seed(4))
    return model.eval(), ids


def by_differences(model, ids, block, step=1e-5):
    """All columns of the Jacobian of a block at once: example i moves number i of the stream."""
    module = model.get_submodule(block)
    seen = {}

    def shape_of(_, args, kwargs):
        seen["entered"] = first_tensor([*args, *kwargs.values()])

    with torch.no_grad():
        handle = module.register_forward_pre_hook(shape_of, with_kwargs=True)
        model(ids)
        handle.remove()
        entered = seen["entered"]
        size = entered.numel()
        moves = torch.eye(size, dtype=torch.float64).view(size, *entered.shape[1:]) * step

        def moved(sign):
            def enter(_, args, kwargs):
                if args and isinstance(args[0], torch.Tensor):
                    return (args[0] + sign * moves, *args[1:]), kwargs
                return args, kwargs | {"hidden_states": kwargs["hidden_states"] + sign * moves}

            def leave(_, args, output):
                seen["left"] = first_tensor(output)

            handles = [
                module.register_forward_pre_hook(enter, with_kwargs=True),
                module.register_forward_hook(leave),
            ]
            model(ids.expand(size, -1))
            for one in handles:
                one.remove()
            return seen["left"].reshape(size, size)

        return ((moved(1.0) - moved(-1.0)) / (2 * step)).T


def judge(found, matrix, causal):
    sigma = torch.linalg.svdvals(matrix).numpy()
    assert found.values[0] == pytest.approx(sigma[:4], rel=1e-5)
    assert (abs(found.values[0] - sigma[:4]) <= found.errors[0] + 1e-6 * sigma[0]).all()
    apart = matrix - torch.eye(len(matrix))
    assert found.branch[0] == pytest.approx(float(torch.linalg.matrix_norm(apart, 2)), rel=1e-5)
    for value, error, one in (
        (found.norm, found.norm_error, matrix),
        (found.distance, found.distance_error, apart),
    ):
        truth = float(torch.linalg.matrix_norm(one)) / len(one) ** 0.5
        assert abs(value[0] - truth) < 4.5 * error[0] + 1e-6
    assert found.causal is causal and (found.leak == 0) is causal
    # The leak is that of the matrix: rows of early tokens, columns of late ones.
    tokens, half = found.shape[1], (found.shape[1] + 1) // 2
    view = matrix.view(tokens, -1, tokens, len(matrix) // tokens)
    assert (float(view[:half, :, half:].abs().max()) < 1e-9) is causal


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_a_block_is_that_of_differences_in_float64(name, kernel):
    precise, ids = hugging_face(name, torch.float64)
    matrix = by_differences(precise, ids, BLOCKS[name])
    model, _ = hugging_face(name)
    before = model.config._attn_implementation
    model.set_attn_implementation(kernel)
    try:
        found = leadline.jacobian(model, ids, layer=LAYER).jacobian
        used = model.config._attn_implementation
    finally:
        model.set_attn_implementation(before)
    judge(found, matrix, CAUSAL[name])
    assert used == kernel
    expected = "the model's own" if kernel == "eager" else "math, output agrees to"
    assert found.kernel.startswith(expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_that_of_jacrev_in_float64(name):
    model, ids = hugging_face(name, torch.float64)
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    f, x = found.function(LAYER - 1, LAYER)
    f(x)
    with found.running():
        matrix = torch.func.jacrev(f)(x).reshape(x.numel(), x.numel()).detach()
    assert torch.allclose(matrix, by_differences(model, ids, BLOCKS[name]), rtol=1e-5, atol=1e-7)
    single, _ = hugging_face(name)
    judge(leadline.jacobian(single, ids, layer=LAYER).jacobian, matrix, CAUSAL[name])


@pytest.mark.parametrize("design", PARTS)
def test_our_parts_are_those_of_differences_in_float64(design):
    precise, ids = ours(PARTS[design], torch.float64)
    matrix = by_differences(precise, ids, "blocks.1")
    model, _ = ours(PARTS[design])
    judge(leadline.jacobian(model, ids, layer=LAYER).jacobian, matrix, True)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_writes_multiply_to_the_block(name):
    model, ids = hugging_face(name, torch.float64)
    matrix = by_differences(model, ids, BLOCKS[name])
    parts = [
        leadline.jacobian(
            model, ids, layer=LAYER, sublayer=s, k=256, vectors=True, probes=2
        ).jacobian
        for s in (1, 2)
    ]
    first, second = (
        np.einsum(
            "kei,k,kej->ij", p.left.reshape(256, 1, -1), p.values[0], p.right.reshape(256, 1, -1)
        )
        for p in parts
    )
    assert second @ first == pytest.approx(matrix.numpy(), abs=1e-6)


def test_several_layers_are_the_product_of_differences():
    model, ids = hugging_face("llama", torch.float64)
    product = torch.eye(64 * TOKENS, dtype=torch.float64)
    for block in ("model.layers.1", "model.layers.2"):
        product = by_differences(model, ids, block) @ product
    found = leadline.jacobian(hugging_face("llama")[0], ids, layer=(1, 3)).jacobian
    assert found.values[0] == pytest.approx(torch.linalg.svdvals(product)[:4].numpy(), rel=1e-5)


def test_gpt2_and_our_own_of_the_same_weights_are_the_same():
    model, ids = hugging_face("gpt2")
    theirs = leadline.jacobian(model, ids).jacobian
    ours_ = leadline.jacobian(leadline.Transformer.from_hf(model), ids).jacobian
    assert ours_.values == pytest.approx(theirs.values, rel=1e-5)
    assert ours_.blocks == pytest.approx(theirs.blocks, rel=1e-5)
    both = [
        leadline.lyapunov(m, ids, k=4).lyapunov
        for m in (model, leadline.Transformer.from_hf(model))
    ]
    assert both[0].exponents == pytest.approx(both[1].exponents, abs=1e-5)
