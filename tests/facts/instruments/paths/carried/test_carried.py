"""A tensor that carries its components: what every operation does to them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from leadline.errors import ProbeError
from leadline.instruments.paths.carried.carried import Carried, Journey, Parts, carried, enter
from leadline.instruments.paths.carried.rows import ComponentRows
from leadline.instruments.paths.carried.tokens import owners

A, B = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0)).double()
PLAIN = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1)).double()


def rows(*tensors):
    stack = torch.stack(tensors)
    return ComponentRows(range(len(tensors)), tensors[0], lambda first, end: stack[first:end])


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def journey():
    return Journey()


@pytest.fixture
def x(journey):
    """Two lengths, A and B."""
    return carried(A + B, Parts(rows(A, B)), journey, tokens=(owners(A, token_axis=1),))


def sums(tensor):
    """All components together, and how far they are from the value."""
    total = tensor.parts.inputs.hold().sum(0)
    if tensor.parts.sources is not None:
        total = total + tensor.parts.sources.hold().sum(0)
    assert torch.allclose(total, tensor.value, rtol=1e-12, atol=1e-13)
    return tensor.parts.inputs.hold()


LINEAR = {
    "view": lambda t: t.view(3, 24),
    "reshape": lambda t: t.transpose(0, 1).reshape(4, 18),
    "flatten": lambda t: t.flatten(1),
    "transpose": lambda t: t.transpose(-1, 0),
    "permute": lambda t: t.permute(2, 0, 1),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t.unsqueeze(1).squeeze(1),
    "slice": lambda t: t[:, 1:, ::2],
    "select": lambda t: t[1],
    "index": lambda t: t[:, torch.tensor([2, 0])],
    "chunk": lambda t: t.chunk(2, -1)[1],
    "split": lambda t: t.split((1, 5), -1)[0],
    "unbind": lambda t: t.unbind(1)[2],
    "expand": lambda t: t[:, None].expand(3, 2, 4, 6),
    "repeat": lambda t: t.repeat(2, 1, 1),
    "repeat_interleave": lambda t: t.repeat_interleave(2, 0),
    "flip": lambda t: t.flip(1),
    "roll": lambda t: t.roll(1, 1),
    "pad": lambda t: F.pad(t, (1, 2)),
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "gather": lambda t: t.gather(2, torch.tensor([5, 0, 3]).expand(3, 4, 3)),
    "index_select": lambda t: t.index_select(1, torch.tensor([3, 1])),
    "tril": lambda t: t.tril(),
    "triu": lambda t: t.triu(1),
    "unfold": lambda t: t.unfold(1, 2, 1),
    "t": lambda t: t[0].t(),
    "neg": lambda t: -t,
    "mean": lambda t: t.mean(-1, keepdim=True),
    "sum": lambda t: t.sum(-1),
    "cast": lambda t: t.to(torch.float32).to(torch.float64) if t.dtype.itemsize < 8 else t.clone(),
    "detach": lambda t: t.detach(),
    "times a number": lambda t: 3 * t / 7,
    "times a tensor": lambda t: t * PLAIN,
    "times a larger tensor": lambda t: t * PLAIN[None].expand(2, 3, 4, 6),
    "matmul": lambda t: t @ PLAIN[0].T,
    "matmul from the left": lambda t: PLAIN[0].T @ t,
    "linear": lambda t: F.linear(t, PLAIN[1]),
    "bmm": lambda t: torch.bmm(t, PLAIN.transpose(1, 2)),
    "einsum": lambda t: torch.einsum("abc,dc->abd", t, PLAIN[0]),
    "cat": lambda t: torch.cat([t, 2 * t], -1),
    "stack": lambda t: torch.stack([t, -t], 1),
    "twice": lambda t: t + 2 * t - t[:1],
    "centred": lambda t: t - t.mean(-1, keepdim=True),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_operation_acts_on_every_component(name, x):
    found = LINEAR[name](x)
    assert isinstance(found, Carried)
    assert found.parts.sources is None
    for component, expected in zip(sums(found), (LINEAR[name](A), LINEAR[name](B)), strict=True):
        assert torch.allclose(component, expected, rtol=1e-12, atol=1e-13)


SUMS = {
    "x + p": lambda t: t + PLAIN,
    "p + x": lambda t: PLAIN + t,
    "x - p": lambda t: t - PLAIN,
    "p - x": lambda t: PLAIN - t,
    "x + 1": lambda t: t + 1,
    "1 - x": lambda t: 1 - t,
    "x + 3 p": lambda t: torch.add(t, PLAIN, alpha=3),
    "x - 3 p": lambda t: torch.sub(t, PLAIN, alpha=3),
    "p + 3 x": lambda t: torch.add(PLAIN, t, alpha=3),
    "a vector": lambda t: t + PLAIN[0, 0],
    "more axes": lambda t: t[0] + PLAIN,
    "linear with bias": lambda t: F.linear(t, PLAIN[0], PLAIN[1, :, 0]),
    "addmm": lambda t: torch.addmm(PLAIN[0], t[0], PLAIN[1].T @ PLAIN[2], beta=2, alpha=3),
    "baddbmm": lambda t: torch.baddbmm(
        PLAIN[:, :, :4], t, PLAIN.transpose(1, 2), beta=0.5, alpha=2
    ),
    "addcmul": lambda t: torch.addcmul(PLAIN, PLAIN, t, value=2),
    "lerp": lambda t: torch.lerp(t, PLAIN, 0.3),
    "cat": lambda t: torch.cat([PLAIN, t, PLAIN], 1),
}


@pytest.mark.parametrize("name", SUMS)
def test_what_joins_is_a_source_without_a_hop(name, x):
    found = SUMS[name](x)
    nothing = SUMS[name](torch.zeros_like(A))
    assert found.parts.sources.lengths == (0,)
    assert torch.allclose(found.parts.sources.hold()[0], nothing, rtol=1e-12, atol=1e-13)
    for component, one in zip(sums(found), (A, B), strict=True):
        assert torch.allclose(component, SUMS[name](one) - nothing, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", SUMS)
def test_sources_are_followed_like_inputs(name, journey):
    x = carried(A + B, Parts(rows(A), rows(B)), journey)
    found = SUMS[name](x)
    sums(found)
    nothing = SUMS[name](torch.zeros_like(A))
    assert torch.allclose(found.parts.inputs.hold()[0], SUMS[name](A) - nothing, atol=1e-13)


def test_a_sum_of_two_carried_tensors_adds_equal_lengths(x, journey):
    short = carried(A, Parts(rows(A)), journey)
    found = sums(x + 2 * short)
    assert torch.allclose(found[0], 3 * A) and torch.allclose(found[1], B)


GATES = {
    "relu": (F.relu, lambda x: (x > 0).double()),
    "gelu": (F.gelu, lambda x: (1 + torch.erf(x / 2**0.5)) / 2),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh") / x,
    ),
    "silu": (F.silu, torch.sigmoid),
    "silu by hand": (lambda x: x * torch.sigmoid(x), torch.sigmoid),
    "relu squared": (lambda x: F.relu(x).square(), F.relu),
    "gelu_new by hand": (
        lambda x: (
            0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3))))
        ),
        lambda x: F.gelu(x, approximate="tanh") / x,
    ),
}


@pytest.mark.parametrize("name", GATES)
def test_an_activation_is_a_frozen_gate(name, x):
    function, gate = GATES[name]
    found = function(x)
    assert torch.allclose(found.value, function(A + B))
    for component, one in zip(sums(found), (A, B), strict=True):
        assert torch.allclose(component, gate(A + B) * one, rtol=1e-12, atol=1e-14)
    assert found.parts.activated


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_a_gate_at_zero_is_its_limit(name, journey):
    x = carried(torch.zeros(1, 4), Parts(rows(torch.ones(1, 4), -torch.ones(1, 4))), journey)
    found = GATES[name][0](x).parts.inputs.hold()
    limit = 0.0 if name == "relu" else 0.5
    assert torch.equal(found, limit * torch.tensor([1.0, -1.0])[:, None, None].expand(2, 1, 4))


def test_of_a_product_the_activated_factor_is_frozen_as_a_whole(x):
    gate, up = F.silu(x @ PLAIN[0].T), x @ PLAIN[1].T
    for found in (gate * up, up * gate):
        for component, one in zip(sums(found), (A, B), strict=True):
            assert torch.allclose(component, gate.value * (one @ PLAIN[1].T), atol=1e-13)


def test_a_product_of_two_carried_tensors_is_frozen(x):
    for found in (x * x, x * (x + 1), F.relu(x) * F.relu(x + 1), x @ x.transpose(1, 2)):
        assert found.parts is None
        assert found.origin.operation in ("mul", "bmm")


def test_two_gates_are_no_stream(x):
    # A scan times silu(gate): the gate must not be taken for what it gates.
    scan = torch.cumsum(x, 1)
    assert scan.parts is None
    assert (scan * F.silu(x)).parts is None
    assert (scan * x).parts is not None
    assert (scan.mean(-1, keepdim=True) * F.silu(x)).parts is not None


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_freezes_its_statistics(affine, x):
    norm = nn.LayerNorm(6, elementwise_affine=affine, eps=1e-3).double()
    if affine:
        norm.weight.copy_(PLAIN[0, 0])
        norm.bias.copy_(PLAIN[0, 1])
    found = norm(x)
    weight = PLAIN[0, 0] if affine else 1.0
    value = A + B
    scale = (value.var(-1, unbiased=False, keepdim=True) + 1e-3).rsqrt()
    for component, one in zip(sums(found), (A, B), strict=True):
        expected = (one - one.mean(-1, keepdim=True)) * scale * weight
        assert torch.allclose(component, expected, rtol=1e-12, atol=1e-13)
    if affine:
        assert torch.allclose(found.parts.sources.hold()[0, 2, 3], PLAIN[0, 1])


def test_rms_norm_freezes_its_statistic(x):
    value = A + B
    scale = (value.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    by_hand = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * PLAIN[0, 0]
    for found in (F.rms_norm(x, (6,), PLAIN[0, 0], 1e-3), by_hand):
        for component, one in zip(sums(found), (A, B), strict=True):
            assert torch.allclose(component, one * scale * PLAIN[0, 0], rtol=1e-12)


# --- hops -----------------------------------------------------------------------------------------


def test_a_pattern_times_values_is_a_hop(x, journey):
    pattern = torch.softmax(x @ x.transpose(1, 2), -1)
    assert pattern.parts is None
    found = sums(pattern @ (x @ PLAIN[0].T @ PLAIN[0]))
    value = torch.softmax((A + B) @ (A + B).transpose(1, 2), -1)
    assert not found[0].any()
    for component, one in zip(found[1:], (A, B), strict=True):
        assert torch.allclose(component, value @ (one @ PLAIN[0].T @ PLAIN[0]), atol=1e-13)
    (event,) = [e for e in journey.events if e.index in journey.taken]
    assert event.entered == 2 and not event.numbers.any()
    assert torch.equal(event.meeting.queries, torch.arange(12).view(3, 4).int())
    assert torch.equal(event.meeting.keys, torch.arange(12).view(3, 4).int())


def test_a_pattern_from_the_right_is_a_hop_too(x, journey):
    journey.inside = True
    pattern = torch.softmax(x @ x.transpose(1, 2), -1)
    found = x.transpose(1, 2) @ pattern.transpose(1, 2)
    assert torch.allclose(sums(found), sums(pattern @ x).transpose(-1, -2))
    assert journey.events[0].features == -2 and journey.events[1].features == -1


def test_attention_without_a_softmax_is_a_hop_in_the_order_of_the_pattern(x, journey):
    journey.inside = True
    q, k = F.relu(x), F.relu(x @ PLAIN[0].T @ PLAIN[0])
    assert len(sums((q @ k.transpose(1, 2)) @ x)) == 3


NO_HOPS = {
    "linear attention": lambda x: x @ (x.transpose(1, 2) @ x),
    "weights of the mean token": lambda x: x @ (x.mean(1).unsqueeze(-1) @ x.mean(1).unsqueeze(1)),
    "experts": lambda x: x.flatten(0, 1).unsqueeze(1) @ (PLAIN[x.argmax(-1).flatten() % 3].mT),
    "outer product and sum": lambda x: (x.unsqueeze(-1) * (x.transpose(1, 2) @ x).unsqueeze(1)).sum(
        -2
    ),
    "pattern times values, summed by hand": lambda x: (
        torch.softmax(x @ x.transpose(1, 2), -1).unsqueeze(-2) * x.transpose(1, 2).unsqueeze(1)
    ).sum(-1),
    "repeated values": lambda x: (
        torch.softmax(x @ x.transpose(1, 2), -1).unsqueeze(-1) * x.unsqueeze(1).expand(3, 4, 4, 6)
    ).sum(-2),
    "a pattern of other tokens": lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x.flip(1),
    "values of other examples": lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x.roll(1, 0),
    "a gate of the mean token": lambda x: x * x.mean(1, keepdim=True).sigmoid(),
    "over the mean token": lambda x: x / x.mean(1, keepdim=True).exp(),
    "a gate of the next token": lambda x: x * x.roll(1, 1).sigmoid(),
    "a scan": lambda x: x * x.exp().cumsum(1),
    "a gate sorted by size": lambda x: x * x.sort(1)[0],
    "a softmax over tokens": lambda x: x * x.softmax(1),
    "a norm over tokens": lambda x: F.layer_norm(x.transpose(1, 2), (4,)),
    "tokens one place further": lambda x: x + x.roll(1, 1),
    "a constant matrix over tokens": lambda x: PLAIN[0, :, :4] @ x,
    "a mean behind a transposition": lambda x: x.transpose(1, 2).mean(-1),
}


@pytest.mark.parametrize("name", NO_HOPS)
def test_what_is_no_pattern_over_tokens_is_frozen_inside_a_block(name, x, journey):
    journey.inside = True
    with torch.no_grad():
        found = NO_HOPS[name](x)
    assert found.parts is None
    assert not journey.events


OWN_GATES = {
    "largest": lambda x: x.abs().amax(-1, keepdim=True),
    "largest with its place": lambda x: x.max(-1, keepdim=True)[0],
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
    "deviation": lambda x: x.std(-1, keepdim=True),
    "variance and mean": lambda x: torch.var_mean(x, -1, keepdim=True)[0],
    "softmax": lambda x: x.softmax(-1),
    "scan of features": lambda x: x.exp().cumsum(-1),
    "mask": lambda x: torch.zeros_like(x) + 1,
    "feature of a token": lambda x: x.tanh()[..., :1],
    "triangle": lambda x: x.tanh().tril(),
}


@pytest.mark.parametrize("name", OWN_GATES)
def test_what_is_made_of_the_same_token_is_a_gate(name, x, journey):
    journey.inside = True
    factor = OWN_GATES[name](x)
    assert factor.parts is None
    for component, one in zip(sums(x * factor), (A, B), strict=True):
        assert torch.allclose(component, one * factor.value)
    for component, one in zip(sums(x / (2 + factor)), (A, B), strict=True):
        assert torch.allclose(component, one / (2 + factor.value))


def test_a_matrix_over_features_is_named_as_such(x, journey):
    journey.running.append("mixer")
    found = x @ (x.transpose(1, 2) @ x)
    assert found.origin[:2] == ("bmm", "mixer")
    assert "no attention pattern over tokens" in found.origin.deed


def test_sums_within_a_token_are_followed_inside_a_block(x, journey):
    journey.inside = True
    assert len(sums(torch.stack([x, 2 * x]).sum(0))) == 2
    assert len(sums(x.unflatten(-1, (2, 3)).sum(-2))) == 2


def test_keys_written_into_memory_of_their_own_keep_their_owners(x, journey):
    journey.inside = True
    keys = x.new_empty(3, 4, 6)
    keys[..., :2].copy_(x[..., :2])
    keys[..., 2:].copy_(x[..., 2:])
    assert len(sums(torch.softmax(x @ keys.transpose(1, 2), -1) @ x)) == 3


def test_complex_rotations_of_queries_keep_their_owners(x, journey):
    journey.inside = True
    turned = torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.ones(3, dtype=torch.complex128)
    query = torch.view_as_real(turned).flatten(-2)
    assert len(sums(torch.softmax(query @ x.transpose(1, 2), -1) @ x)) == 3


def test_learned_keys_and_values_belong_to_nobody(x, journey):
    journey.inside = True
    longer = torch.cat([PLAIN[:, :1], x], 1)
    pattern = torch.softmax(x @ longer.transpose(1, 2), -1)
    found = pattern @ longer
    assert len(found.parts.inputs.hold()) == 3
    assert journey.events[0].meeting.keys[:, 0].tolist() == [-1] * 3
    assert torch.equal(found.tokens[0], x.tokens[0])


def test_a_constant_matrix_is_no_hop(x, journey):
    found = torch.softmax(PLAIN[:, :, :4], -1) @ x
    assert len(sums(found)) == 2
    assert journey.events == []


def test_a_bias_of_the_values_has_one_hop_behind_it(x):
    pattern = torch.softmax(x @ x.transpose(1, 2), -1)
    found = pattern @ (x + PLAIN[0, 0])
    sums(found)
    sources = found.parts.sources
    assert sources.lengths == (0, 1)
    assert not sources.hold()[0].any()
    assert torch.allclose(sources.hold()[1], PLAIN[0, 0].expand(3, 4, 6))


# --- what freezes, what raises --------------------------------------------------------------------


FREEZING = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "abs": torch.abs,
    "_softmax": lambda t: t.softmax(-1),
    "sort": lambda t: t.sort(-1)[0],
    "cumsum": lambda t: t.cumsum(1),
    "pow": lambda t: t**2,
    "div": lambda t: 1 / (1 + t) / t,
    "_to_copy": lambda t: t.long(),
    "constant_pad_nd": lambda t: F.pad(t, (1, 1), value=1.0),
    "gt": lambda t: t > 0,
    "zeros_like": torch.zeros_like,
}


@pytest.mark.parametrize("name", FREEZING)
def test_any_other_operation_freezes_and_gives_its_name(name, x, journey):
    journey.running.append("blocks.1.mlp")
    found = FREEZING[name](x)
    assert found.parts is None
    if name != "div":
        assert found.origin[:2] == (name, "blocks.1.mlp")
    else:
        assert found.origin.operation == "reciprocal"


def test_a_sum_with_a_frozen_tensor_is_frozen_by_the_same_operation(x):
    found = PLAIN + 2 * (x + torch.tanh(x) @ PLAIN[0].T @ PLAIN[0])
    assert found.parts is None
    assert found.origin.operation == "tanh"
    assert torch.cat([x, torch.tanh(x)]).origin.operation == "tanh"
    assert torch.lerp(x, PLAIN, torch.sigmoid(x)).parts is None


def test_a_choice_that_depends_on_the_stream_freezes(x):
    best = x.argmax(1, keepdim=True)
    assert x.gather(1, best).parts is None
    assert x.gather(1, best.value).parts is not None


def test_inside_a_block_sums_over_tokens_freeze(x, journey):
    assert x.mean(1).parts is not None
    journey.inside = True
    assert x.mean(1).parts is None
    assert x.sum((1, 2)).parts is None
    assert x.mean().parts is None
    assert x.mean(-1).parts is not None
    assert x.sum(2).parts is not None


def test_changes_in_place_are_followed(x):
    before = x.value.clone()
    x += PLAIN
    x.mul_(2)
    assert torch.allclose(x.value, 2 * (before + PLAIN))
    assert torch.allclose(sums(x)[1], 2 * B)
    x.tanh_()
    assert x.parts is None and x.origin.operation == "tanh"


def test_a_gate_that_is_overwritten_by_its_product_is_still_the_gate(x):
    gate, up = F.silu(x @ PLAIN[0].T), x @ PLAIN[1].T
    expected = gate.value.clone()
    gate.mul_(up)
    for component, one in zip(sums(gate), (A, B), strict=True):
        assert torch.allclose(component, expected * (one @ PLAIN[1].T), atol=1e-13)


def test_a_view_that_is_changed_in_place_leaves_a_remainder(x):
    x[0].add_(1)
    assert not torch.allclose(x.parts.inputs.hold().sum(0), x.value)


def test_writes_into_a_foreign_tensor_are_refused(x, journey):
    journey.running.append("experts")
    for write in (lambda: PLAIN.clone().copy_(x), lambda: PLAIN.clone().add_(x.tanh())):
        with pytest.raises(ProbeError, match="'experts' writes into a tensor of its own"):
            write()


def test_a_number_read_out_of_the_stream_is_refused(x):
    with pytest.raises(ProbeError, match="reads a number out of the stream"):
        (x.sum() * 2).item()
    assert not bool(x.isnan().any())


def test_rows_that_nobody_reads_are_not_computed(journey):
    def compute(first, end):
        raise AssertionError("nobody asked")

    x = carried(
        A, Parts(ComponentRows([0], A, compute)), journey, tokens=(owners(A, token_axis=1),)
    )
    scores = (x @ PLAIN[0].T) @ (x @ PLAIN[1].T).transpose(1, 2)
    assert torch.softmax(scores, -1).parts is None


def test_the_coarsest_number_type_on_the_way_is_remembered(x):
    query = x.float() @ x.float().transpose(1, 2)
    assert query.parts is None
    assert x.parts.coarsest == torch.float64
    assert (x + x.to(torch.bfloat16).double()).parts.coarsest == torch.bfloat16


def test_a_stream_as_large_as_itself_that_joins_is_noted(x, journey):
    journey.running.append("blocks.0")
    _ = x + PLAIN[0, 0]
    assert journey.joined == set()
    _ = x + PLAIN
    assert journey.joined == {"blocks.0"}


def test_the_stream_enters_as_one_component_without_a_hop():
    x = enter(A, Journey())
    assert x.parts.inputs.lengths == (0,)
    assert torch.equal(x.parts.inputs.hold()[0], A)
    assert repr(x) == "Carried(1 lengths, [3, 4, 6])"
    assert "frozen by" in repr(torch.tanh(x))
