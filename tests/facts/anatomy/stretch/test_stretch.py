"""Blocks as functions of the stream: the arguments of a real pass, and a comparison with it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import leadline
from leadline.anatomy import declare, untouched
from leadline.anatomy.stretch.stretch import AGREEMENT, MOST, TOLERANCE, Stretches
from leadline.errors import ProbeError
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.testing.tiny import Linear

WIDTH = 8


class Mixer(nn.Module):
    """Every token sees the mean of those up to it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        counts = torch.arange(1, x.shape[1] + 1, dtype=x.dtype).view(1, -1, 1)
        return torch.tanh(self.linear(x.cumsum(1) / counts))


class Block(nn.Module):
    """x + mixer(x), then x + mlp(norm(x)); `way` says what is odd about it."""

    def __init__(self, way="plain"):
        super().__init__()
        self.mixer = Mixer()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.way = way
        self.calls = 0

    def body(self, x):
        if self.way == "in place":
            x += self.mixer(x)
            return x + self.mlp(self.norm(x))
        if self.way == "overwritten":
            y = self.norm(x)
            x += self.mixer(x)
            return x + self.mlp(y)
        x = x + self.mixer(x)
        if self.way == "chance":
            x = dropout(x, 0.5, training=True)
        if self.way == "memory":
            self.calls += 1
            x = x + self.calls
        if self.way == "cut":
            x = x.detach()
        return x + self.mlp(self.norm(x))

    def forward(self, x):
        if self.way == "checkpoint":
            return checkpoint(self.body, x, use_reentrant=False)
        if self.way == "reentrant":
            return checkpoint(self.body, x, use_reentrant=True)
        return self.body(x)


class Model(nn.Module):
    def __init__(self, way="plain", depth=3):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block(way) for _ in range(depth))

    def forward(self, x):
        x = x * 1.0
        for layer in self.layers:
            x = layer(x)
        return x


def inputs(dtype=torch.float32, tokens=5):
    return torch.randn(2, tokens, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)


def anatomy(x, model=None):
    """That of the plain model, whose blocks have the same modules."""
    declared = declare(blocks="layers", writes=["mixer", "mlp"])
    return leadline.anatomy_of(model or Model().to(x.dtype), x, anatomy=declared)


def stretches(model, x, **options):
    return Stretches(model, anatomy(x).stacks[0], lambda: model(x), **options)


def by_hand(model, x, first, last):
    """The blocks called one after the other, by autograd in float64."""

    def run(z):
        for layer in model.layers[first:last]:
            z = layer(z)
        return z

    return torch.stack(
        [
            torch.autograd.functional.jacobian(lambda z: run(z)[0], x[i : i + 1]).reshape(
                x[0].numel(), x[0].numel()
            )
            for i in range(x.shape[0])
        ]
    )


@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 2), (0, 3), (1, 3), (2, 3)])
def test_a_stretch_is_the_blocks_one_after_the_other(start, end):
    model, x = Model().double(), inputs(torch.float64)
    found = stretches(model, x)
    f, at = found.function(start, end)
    y = x
    for layer in model.layers[:start]:
        y = layer(y)
    assert torch.equal(at, y.detach())
    assert torch.equal(found.stream(start), at)
    expected = by_hand(model, at, start, end)
    assert torch.allclose(dense(Linearised(f, at)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 2), (0, 4)])
def test_a_stretch_goes_forward_inside_the_stack(start, end):
    model, x = Model(), inputs()
    with pytest.raises(ProbeError, match="sites 0 to 3"):
        stretches(model, x).function(start, end)


def test_blocks_that_change_their_input_in_place_are_run_on_a_copy():
    x = inputs(torch.float64)
    plain, odd = Model().double(), Model("in place").double()
    for start, end in ((0, 1), (1, 2), (0, 3), (1, 3)):
        maps = [
            dense(Linearised(*stretches(m, x, math=False).function(start, end)))
            for m in (plain, odd)
        ]
        assert torch.allclose(*maps, rtol=1e-12, atol=1e-14)


def test_what_overwrites_a_tensor_that_its_own_gradient_needs_is_refused():
    model = Model("overwritten")
    f, at = stretches(model, inputs(), math=False).function(0, 1)
    with pytest.raises(ProbeError, match="modified by an inplace operation"):
        Linearised(f, at).adjoint(torch.ones(1, *at.shape))


def test_checkpointed_blocks_have_the_same_jacobian():
    x = inputs(torch.float64)
    plain, odd = Model().double(), Model("checkpoint").double()
    v = torch.randn(3, *x.shape, dtype=torch.float64)
    for start, end in ((0, 1), (0, 3), (1, 3)):
        maps = [Linearised(*stretches(m, x).function(start, end)) for m in (plain, odd)]
        assert torch.allclose(*[m.adjoint(v) for m in maps], rtol=1e-12, atol=1e-14)
        assert torch.allclose(*[m.forward(v) for m in maps], rtol=1e-12, atol=1e-14)


def test_reentrant_checkpoints_are_refused_by_name():
    x = inputs()
    with warnings.catch_warnings():  # torch warns that such a checkpoint is of no use here
        warnings.simplefilter("ignore")
        f, at = stretches(Model("reentrant"), x).function(0, 1)
    with pytest.raises(ProbeError, match="use_reentrant=False"):
        Linearised(f, at).adjoint(torch.ones(1, *at.shape))


@pytest.mark.parametrize("whole", [False, True])
def test_compiled_models_and_blocks_run_as_they_are(whole):
    x = inputs(torch.float64)
    model = Model().double()
    expected = dense(Linearised(*stretches(model, x).function(1, 2)))
    if whole:
        compiled = torch.compile(model, backend="aot_eager")
        inner, forward = model, lambda: compiled(x)
    else:
        for layer in model.layers:
            layer.compile(backend="aot_eager")
        inner, forward = model, lambda: model(x)
    with untouched(inner):
        found = Stretches(inner, anatomy(x).stacks[0], forward)
        assert torch.allclose(dense(Linearised(*found.function(1, 2))), expected)


@pytest.mark.parametrize("way", ["chance", "memory"])
def test_what_is_not_the_same_twice_is_refused_with_its_layer(way):
    x = inputs()
    f, at = stretches(Model(way), x).function(1, 2)
    with pytest.raises(ProbeError, match=r"Layer 2 \('layers.1'\).*draws at random"):
        Linearised(f, at)


def test_a_block_that_cuts_its_gradient_is_refused():
    model = Model("cut")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    f, at = stretches(model, inputs()).function(0, 1)
    with pytest.raises(ProbeError, match="cuts the gradient of its stream"):
        Linearised(f, at)


def test_a_block_that_fails_alone_is_refused_with_its_error():
    model, x = Model(), inputs()
    found = stretches(model, x)
    f, at = found.function(0, 1)
    model.layers[0].mlp = nn.Linear(WIDTH + 1, WIDTH)
    with pytest.raises(ProbeError, match=r"Layer 1 \('layers.0'\) could not be run again"):
        f(at)


def test_a_stream_that_is_not_finite_has_no_jacobian():
    model, x = Model(), inputs()
    found = stretches(model, x)
    found.calls[0].after = found.calls[0].after * float("nan")
    f, at = found.function(0, 1)
    with pytest.raises(ProbeError, match="not finite"):
        f(at)


class Scale(nn.Module):
    """Multiplies by a number that the test changes."""

    factor = 1.0

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize(
    ("end", "allowed"), [(1, TOLERANCE), (3, AGREEMENT)], ids=["one block", "several"]
)
def test_the_limit_of_the_comparison_is_in_eps(end, allowed):
    eps = torch.finfo(torch.float64).eps
    for factor, refused in ((0.9, False), (1.1, True)):
        model, x = Model().double(), inputs(torch.float64)
        model.layers[end - 1].register_module("end", Scale())
        model.layers[end - 1].register_forward_hook(lambda m, a, out: m.end(out))
        found = stretches(model, x, math=False)
        model.layers[end - 1].end.factor = 1.0 + factor * allowed * eps
        f, at = found.function(0, end)
        if refused:
            with pytest.raises(ProbeError, match="at most"):
                f(at)
        else:
            f(at)


def test_no_more_than_a_sixteenth_of_a_token_is_rounding():
    assert MOST == 1 / 16 and TOLERANCE == 16 and AGREEMENT == 256
    model, x = Model().to(torch.bfloat16), inputs(torch.bfloat16)
    found = stretches(model, x, math=False)
    real = found.calls[0].after
    found.calls[0].after = real * 1.1
    f, at = found.function(0, 1)
    # In eps alone this would pass: 0.1 / 2^-7 is 13 of the 16 that are allowed.
    with pytest.raises(ProbeError, match="returns another one"):
        f(at)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 3)])
def test_half_precision_is_computed_on_float32_copies(dtype, start, end):
    model, x = Model().to(dtype), inputs(dtype)
    weights = [id(p) for p in model.parameters()]
    found = stretches(model, x)
    f, at = found.function(start, end)
    assert at.dtype == torch.float32
    own = dense(Linearised(f, at))
    other = Model()
    other.load_state_dict(model.state_dict())
    expected = by_hand(other.double(), at.double(), start, end)
    assert torch.allclose(own.double(), expected, rtol=1e-4, atol=1e-5)
    assert [id(p) for p in model.parameters()] == weights
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert found.precision == f"{str(dtype)[6:]} weights, computed on float32 copies"


class OwnAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        for layer in self.layers:
            layer.mixer = AttentionOnly()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class AttentionOnly(nn.Module):
    wrong = False

    def forward(self, x):
        q = x.unsqueeze(1)
        y = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).squeeze(1)
        math = not torch.backends.cuda.flash_sdp_enabled()
        return y * 1.01 if self.wrong and math else y


def test_the_plain_kernel_is_taken_when_the_output_agrees():
    torch.manual_seed(0)
    model, x = OwnAttention(), inputs()
    stack = leadline.anatomy_of(
        model, x, anatomy=declare(blocks="layers", writes=["mixer", "mlp"])
    ).stacks[0]
    found = Stretches(model, stack, lambda: model(x))
    assert found.kernel.startswith("math, output agrees to") and found.refusal is None
    v = torch.randn(1, *x.shape)
    one = Linearised(*found.function(0, 1))
    assert torch.allclose((one.forward(v) * v).sum(), (one.adjoint(v) * v).sum(), rtol=1e-4)
    own = Stretches(model, stack, lambda: model(x), math=False)
    assert own.kernel == "the model's own"
    with pytest.raises(ProbeError, match="no second derivative"):
        Linearised(*own.function(0, 1)).forward(v)


def test_the_plain_kernel_is_not_taken_when_the_output_differs(monkeypatch):
    torch.manual_seed(0)
    model, x = OwnAttention(), inputs()
    stack = leadline.anatomy_of(
        model, x, anatomy=declare(blocks="layers", writes=["mixer", "mlp"])
    ).stacks[0]
    monkeypatch.setattr(AttentionOnly, "wrong", True)
    found = Stretches(model, stack, lambda: model(x))
    assert found.kernel == "the model's own"
    assert "the stream after the last layer differs from the model's own" in found.refusal
    # What J' u gives is still there, under the model's own kernel.
    f, at = found.function(0, 1)
    assert Linearised(f, at).adjoint(torch.ones(1, *at.shape)).abs().max() > 0


def test_without_attention_of_torch_nothing_is_switched():
    assert stretches(Model(), inputs()).kernel == "the model's own"


# --- writes --------------------------------------------------------------------------------------

DESIGNS = {
    "pre": {},
    "post": {"placement": "post"},
    "deepnorm": {"placement": "post", "connection": "deepnorm"},
    "sandwich": {"placement": "sandwich"},
    "layerscale": {"connection": "layerscale"},
    "none": {"connection": "none"},
}


def transformer(**fields):
    model = leadline.Transformer(depth=2, width=8, heads=2, vocabulary=11, **fields).double()
    # Gains that start at a small number hide the update.
    for name, parameter in model.named_parameters():
        if "connection" in name:
            nn.init.normal_(parameter, 1.0, 0.2)
    ids = torch.randint(0, 11, (2, 4), generator=torch.Generator().manual_seed(2))
    return model, ids


def maps_of(model, ids, layer=2):
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    whole = dense(Linearised(*found.function(layer - 1, layer)))
    count = len(stack.blocks[layer - 1].sublayers)
    parts = [dense(Linearised(*found.sublayer(layer, s))) for s in range(1, count + 1)]
    return stack, whole, parts


@pytest.mark.parametrize("design", DESIGNS)
def test_a_block_is_the_product_of_its_writes(design):
    _, whole, (first, second) = maps_of(*transformer(**DESIGNS[design]))
    assert torch.allclose(second @ first, whole, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(first @ second, whole, rtol=1e-3)


def test_a_parallel_block_is_the_sum_of_its_writes_less_the_identity():
    stack, whole, (first, second) = maps_of(*transformer(placement="parallel"))
    assert stack.blocks[0].parallel
    assert torch.allclose(first + second - torch.eye(32), whole, rtol=1e-10, atol=1e-12)


def test_a_write_is_what_it_is_by_hand():
    model, ids = transformer()
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    f, at = found.sublayer(2, 2)
    mlp = model.blocks[1].mlp
    expected = at + mlp.branch(mlp.enter(at), None)
    assert torch.allclose(f(at), expected, rtol=1e-12)
    assert torch.allclose(f(at + 1.0), at + 1.0 + mlp.branch(mlp.enter(at + 1.0), None))


def test_a_write_that_is_a_law_has_no_stream_behind_it():
    model, ids = transformer(connection="gated")
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    for sublayer in (1, 2):
        with pytest.raises(ProbeError, match="write 1 is no sum of stream and update"):
            found.sublayer(1, sublayer)
    with pytest.raises(ProbeError, match="has sublayers 1 to 2"):
        found.sublayer(1, 3)


def test_a_gain_of_zero_cannot_be_divided_by():
    model, ids = transformer(connection="layerscale")
    with torch.no_grad():
        model.blocks[0].attention.connection.scale[0] = 0.0
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    with pytest.raises(ProbeError, match="gain of zero"):
        found.sublayer(1, 2)


# --- what goes past the blocks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "past", "matters"),
    [
        ({}, False, False),
        ({"connection": "hyper"}, False, False),
        ({"connection": "denseformer"}, True, True),
        ({"connection": "depth_attention"}, True, True),
        # Its second stream is read after the last layer only.
        ({"connection": "dual", "placement": "post"}, True, False),
        ({"attention": {"name": "multihead", "value_residual": 0.5}}, True, True),
    ],
    ids=["plain", "lanes", "denseformer", "depth attention", "dual", "first values"],
)
def test_only_the_stream_goes_from_block_to_block_or_it_is_seen(fields, past, matters):
    model, ids = transformer(**fields)
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    assert found.side_by_side is past
    first, second, whole = (
        dense(Linearised(*found.function(*sites))) for sites in ((0, 1), (1, 2), (0, 2))
    )
    assert torch.allclose(second @ first, whole, rtol=1e-8, atol=1e-10) is not matters


def test_a_history_is_part_of_a_longer_stretch():
    model, ids = transformer(connection="denseformer")
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    f, at = found.function(0, 2)
    step = torch.randn(at.shape, dtype=at.dtype) * 1e-5

    def by_model(x):
        """The model itself, with another embedding."""
        hook = model.embedding.register_forward_hook(lambda m, a, out: x)
        seen = []
        other = model.blocks[1].register_forward_hook(lambda m, a, out: seen.append(out[0]))
        model(ids)
        hook.remove()
        other.remove()
        return seen[0]

    assert torch.allclose(f(at + step), by_model(at + step), rtol=1e-13)
    assert "holds more than the stream" in found.remarks(0, 2)[0]


def test_one_module_for_several_layers_is_run_at_its_own_turn():
    model = Linear(depth=3, alpha=0.5, beta=-0.25).double()
    model.layers = nn.ModuleList([model.layers[0]] * 3)
    x = inputs(torch.float64)
    stack = leadline.anatomy_of(model, x).stacks[0]
    assert stack.shared and stack.depth == 3
    found = Stretches(model, stack, lambda: model(x))
    for start, end in ((0, 1), (1, 3), (0, 3), (2, 3)):
        f, at = found.function(start, end)
        assert torch.equal(at, found.stream(start))
        assert torch.allclose(f(at), found.stream(end), rtol=1e-13)


def test_hooks_and_weights_are_left_as_they_were():
    model, ids = transformer()
    hooks = {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()
    }
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    for f, at in (found.function(0, 1), found.function(0, 2), found.sublayer(1, 2)):
        Linearised(f, at).adjoint(torch.ones(1, *at.shape, dtype=at.dtype))
    after = {
        n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()
    }
    assert after == hooks


class Memory:
    """Keeps the keys of every call, as a cache does, under names that nobody knows."""

    def __init__(self):
        self.kept = []


class Remembering(Block):
    """Looks at the oldest tokens that it was ever given."""

    def forward(self, x, memory):
        memory.kept.append((self, x))
        oldest = next(kept for owner, kept in memory.kept if owner is self)
        x = x + self.mixer(oldest)
        return x + self.mlp(self.norm(x))


class RememberingModel(Model):
    def __init__(self, cache=Memory):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Remembering() for _ in range(3))
        self.cache = cache

    def forward(self, x):
        memory = self.cache()
        for layer in self.layers:
            x = layer(x, memory)
        return x


def test_an_object_that_remembers_the_first_run_is_found_out():
    x = inputs(torch.float64)
    model = RememberingModel().double()
    found = stretches(model, x)
    assert found.side_by_side
    # Alone the block sees its old self: the same output, another function.
    f, at = found.function(1, 2)
    alone, inside = dense(Linearised(f, at)), dense(Linearised(*found.in_the_model(2)))
    assert torch.equal(f(at), found.stream(2))
    assert torch.allclose(inside, by_hand(Model().double(), at, 1, 2))
    assert not torch.allclose(alone, inside, rtol=1e-2)
    with pytest.raises(ProbeError, match="has another Jacobian than in the model"):
        leadline.jacobian(model, x, layer=2, k=1, anatomy=anatomy(x))
    with pytest.raises(ProbeError, match="not the product of those of its blocks"):
        leadline.lyapunov(model, x, k=2, anatomy=anatomy(x))


def test_key_value_caches_are_taken_away_wherever_they_stand():
    from leadline.testing.zoo import ZOO

    model = ZOO["gpt2"].build(0).eval()
    ids = ZOO["gpt2"].inputs(model, 1)["input_ids"][:1, :4]
    stack = leadline.anatomy_of(model, ids).stacks[0]
    # GPT-2 hands its cache to the blocks as the second of their arguments.
    cached, plain = (
        Stretches(model, stack, lambda use=use: model(ids, use_cache=use)) for use in (True, False)
    )
    assert not cached.side_by_side and not cached.calls[0].opaque
    first, second = (dense(Linearised(*one.function(1, 2))) for one in (cached, plain))
    assert torch.allclose(first, second, rtol=1e-4, atol=1e-6)
    # Late tokens see early ones.
    assert first.view(4, 64, 4, 64)[3, :, 0].abs().max() > 1e-3
