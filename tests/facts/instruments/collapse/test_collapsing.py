"""collapse on our own networks, and collapse_weights: what they agree with, what they refuse."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import leadline as ll
from leadline.parts.branches import MLPS
from leadline.parts.connections import CONNECTIONS
from leadline.parts.norms import NORMS
from leadline.parts.placements import PLACEMENTS

WIDTH, TOKENS = 16, 5
UNFOLLOWED = {"depth_attention", "hyper", "manifold_hyper", "orthogonal"}


def stream(seed: int = 0, tokens: int = TOKENS, width: int = WIDTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, width, generator=generator, dtype=torch.float64)


def network(**fields) -> ll.Transformer:
    settled = {"depth": 3, "width": WIDTH, "heads": 2, "embedding": "none", "head": "none"}
    model = ll.Transformer(**{"positions": "none", **settled, **fields}).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return model


def plainly(model: ll.Transformer, x: torch.Tensor) -> list[float]:
    """The residuals that an ordinary forward pass in float64 shows."""
    seen: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(
            lambda _m, _a, out: seen.append(out[0] if isinstance(out, tuple) else out)
        )
        for block in model.blocks
    ]
    with torch.no_grad():
        model.eval()(x.unsqueeze(0))
    for handle in handles:
        handle.remove()
    return [float((one[0] - one[0].mean(0)).norm()) for one in seen]


def agrees(model: ll.Transformer, x: torch.Tensor) -> None:
    found = ll.collapse(model, x).collapse
    assert 10 ** found.log10_residual[1:] == pytest.approx(plainly(model, x), rel=1e-9)


def pairs() -> list[tuple[str, str]]:
    placements = PLACEMENTS.names()
    found = []
    for i, connection in enumerate(CONNECTIONS.names()):
        for placement in (placements[i % len(placements)], "pre", "post"):
            found.append((connection, placement))
    return sorted({pair for pair in found if _stands(*pair)})


def _stands(connection: str, placement: str) -> bool:
    try:
        ll.Recipe(connection=connection, placement=placement)
    except ll.RecipeError:
        return False
    return True


@pytest.mark.parametrize(("connection", "placement"), pairs())
def test_connections_and_placements_are_followed_or_refused_by_name(connection, placement):
    parts = {"norm": "rmsnorm", "mlp": "swiglu", "positions": "rotary"}
    model = network(connection=connection, placement=placement, **parts)
    if connection in UNFOLLOWED:
        with pytest.raises(ll.InputError, match=r"At layer 1: .* cannot be followed|into lanes"):
            ll.collapse(model, stream())
    else:
        agrees(model, stream())


@pytest.mark.parametrize("norm", NORMS.names())
@pytest.mark.parametrize("mlp", MLPS.names())
def test_norms_and_activations_are_followed(norm, mlp):
    agrees(network(norm=norm, mlp=mlp, attention="multihead(causal=false)"), stream())


@pytest.mark.parametrize(
    "attention",
    [
        "none",
        "multihead(groups=1)",
        "multihead(qk_norm=head)",
        "multihead(qk_norm=width, causal=false)",
        "multihead(value_residual=0.5, causal=false)",
        "multihead(scale=0.7, head_width=4, causal=false, bias=false)",
    ],
)
def test_kinds_of_attention_are_followed(attention):
    agrees(network(attention=attention), stream())


def test_token_ids_go_through_the_embedding():
    model = network(embedding="token", positions="learned", vocabulary=20, head="linear")
    ids = torch.tensor([3, 1, 4, 1, 5])
    with torch.no_grad():
        entered = model.embedding(ids.unsqueeze(0), torch.arange(5), None)[0]
    by_ids, by_stream = ll.collapse(model, ids).collapse, ll.collapse(model, entered).collapse
    assert by_ids.log10_residual == pytest.approx(by_stream.log10_residual, rel=1e-12)


def test_a_stream_enters_the_first_layer_of_a_model_with_an_embedding_as_it_is():
    model = network(embedding="token", positions="learned", vocabulary=20, head="linear")
    x = stream()
    found = ll.collapse(model, x).collapse
    assert 10 ** found.log10_residual[0] == pytest.approx(float((x - x.mean(0)).norm()))


def test_several_examples_give_a_row_each():
    model, both = network(), torch.stack([stream(0), stream(1)])
    found = ll.collapse(model, both).collapse
    assert found.log10_residual.shape == (2, 4)
    assert found.depth == 3
    alone = ll.collapse(model, stream(1)).collapse
    assert found.log10_residual[1] == pytest.approx(alone.log10_residual, rel=1e-13)
    assert "example 2" in str(found)


def test_one_example_gives_depth_plus_one_numbers_of_float64():
    found = ll.collapse(network(), stream().unsqueeze(0)).collapse
    assert found.log10_residual.shape == (4,)
    assert found.log10_residual.dtype == np.float64


def test_relative_residuals_are_over_the_norm_of_all_tokens():
    x = stream() + 3.0
    found = ll.collapse(network(), x).collapse
    whole, apart = float(x.norm()), float((x - x.mean(0)).norm())
    assert 10 ** found.log10_relative[0] == pytest.approx(apart / whole)
    assert 10 ** found.log10_norm[0] == pytest.approx(whole)


def test_mantissa_and_exponent_are_the_residual():
    found = ll.collapse(network(), stream()).collapse
    back = [m * 2.0**e for m, e in zip(found.mantissa, found.exponent, strict=True)]
    assert back == pytest.approx(10**found.log10_residual, rel=1e-13)


def test_bare_weights_are_the_network_that_has_them():
    model = network(
        mlp="none", norm="none", placement="none", connection="none",
        attention="multihead(causal=false)",
    )  # fmt: skip
    layers = []
    for part in model.sublayers():
        branch = part.branch
        q, k, v = branch.qkv.weight.split(branch.widths)
        bq, bk, bv = branch.qkv.bias.split(branch.widths)
        layers.append(
            {"W_Q": q.T, "W_K": k.T, "W_V": v.T, "W_O": branch.output.weight.T,
             "b_Q": bq, "b_K": bk, "b_V": bv, "b_O": branch.output.bias}
        )  # fmt: skip
    whole = ll.collapse(model, stream()).collapse
    bare = ll.collapse_weights(stream(), layers, heads=2).collapse
    assert bare.log10_residual == pytest.approx(whole.log10_residual, rel=1e-12)
    numbers = [{k: v.detach().numpy() for k, v in layer.items()} for layer in layers]
    again = ll.collapse_weights(stream().numpy(), numbers, heads=2).collapse
    assert again.log10_residual == pytest.approx(bare.log10_residual, rel=1e-15)


def test_the_model_is_left_as_it_was():
    model = network().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    state = torch.random.get_rng_state()
    ll.collapse(model, stream(), facts=True)
    assert model.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_dropout_is_off_while_a_network_is_followed():
    model = network(connection="dropout(rate=0.5)").train()
    agrees(model, stream())
    assert not model.training  # the plain pass of this test switched it off


def test_values_that_are_all_zero_leave_no_residual_and_a_sentence():
    layers = [_layer(4, 0), {**_layer(4, 1), "W_V": torch.zeros(4, 4).double()}, _layer(4, 2)]
    found = ll.collapse_weights(stream(width=4), layers).collapse
    assert list(np.isneginf(found.log10_residual)) == [False, False, True, True]
    assert found.remarks == ("From layer 2 on all tokens are exactly equal: the residual is zero.",)
    assert np.isneginf(found.log10_relative[-1])
    assert not np.isnan(found.error).any()
    assert json.loads(json.dumps(found.to_json()))["log10_residual"][2] == "-Infinity"


def _layer(width: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw() -> torch.Tensor:
        return torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5

    return {name: draw() for name in ("W_Q", "W_K", "W_V", "W_O")}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.ones(1, 4), "One token has no residual"),
        (torch.ones(3, 4), "All tokens are equal"),
        (torch.tensor([[1.0] * 4, [math.nan] * 4]), "not finite"),
        (torch.ones(4), r"The stream is \[4\]; give \[token, width\]"),
        (torch.ones(2, 4, dtype=torch.long), "holds torch.int64"),
        (torch.ones(2, 4, dtype=torch.complex64), "holds torch.complex64"),
        (torch.ones(0, 2, 4), r"The stream is \[0, 2, 4\]"),
        (None, "The stream is a NoneType"),
        ("text", "The stream is a str"),
        (torch.ones(2, 5) * torch.arange(2.0)[:, None], "W_Q has 4 rows and the stream 5"),
    ],
)
def test_streams_that_cannot_be_followed_are_refused_with_a_sentence(given, sentence):
    with pytest.raises(ll.InputError, match=sentence):
        ll.collapse_weights(given, [_layer(4, 0)])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"W_V": None}, "Layer 1 lacks W_V"),
        ({"W_X": torch.ones(4, 4)}, "Layer 1 has W_X"),
        ({"W_Q": torch.full((4, 4), math.inf)}, "W_Q of layer 1 holds values that are not finite"),
        ({"W_K": torch.ones(4)}, "W_K of layer 1 is .* must be a matrix"),
        ({"W_K": torch.ones(4, 2)}, "W_Q and W_K differ in shape"),
        ({"W_O": torch.ones(3, 4)}, "W_O has 3 rows and W_V 4 columns"),
        ({"b_Q": torch.ones(3)}, "b_Q has 3 numbers and needs 4"),
        ({name: torch.ones(4, 4).double() * 1e200 for name in ("W_Q", "W_K")}, "exceed the range"),
    ],
)
def test_weights_that_cannot_be_followed_are_refused_with_a_sentence(change, sentence):
    layer = {**_layer(4, 0), **change}
    with pytest.raises(ll.InputError, match=sentence):
        ll.collapse_weights(stream(width=4), [layer])


def test_heads_that_do_not_divide_the_columns_are_refused():
    with pytest.raises(ll.InputError, match="3 heads cannot share"):
        ll.collapse_weights(stream(width=4), [_layer(4, 0)], heads=3)
    with pytest.raises(ll.InputError, match="heads is 0"):
        ll.collapse_weights(stream(width=4), [_layer(4, 0)], heads=0)


@pytest.mark.parametrize("heads", [2.0, True, "2"])
def test_heads_that_are_no_whole_number_are_refused(heads):
    with pytest.raises(ll.InputError, match="give a whole number of at least 1"):
        ll.collapse_weights(stream(width=4), [_layer(4, 0)], heads=heads)


@pytest.mark.parametrize("layers", [{"W_Q": 1}, [torch.ones(4, 4)]])
def test_layers_that_are_no_mappings_are_refused(layers):
    with pytest.raises(ll.InputError, match="one per layer"):
        ll.collapse_weights(stream(width=4), layers)


def test_ids_outside_the_vocabulary_and_beyond_the_context_are_refused():
    model = network(embedding="token", positions="learned", vocabulary=20, context=8, head="linear")
    with pytest.raises(ll.InputError, match="from 0 to 19"):
        ll.collapse(model, torch.tensor([1, 25]))
    with pytest.raises(ll.InputError, match="positions for 8 tokens"):
        ll.collapse(model, torch.ones(9, dtype=torch.long))


def test_a_logarithm_beyond_float64_is_refused_with_its_layer():
    layers = [_layer(4, seed) for seed in range(700)]
    with pytest.raises(ll.InputError, match=r"At layer 6\d\d: Even the logarithm"):
        ll.collapse_weights(stream(width=4), layers)


def test_heads_that_cancel_below_rounding_are_refused_and_not_called_zero():
    """Two equal heads with opposite outputs leave what their patterns differ by."""
    weights = _layer(4, 0)
    both = {name: torch.cat((weights[name], weights[name]), 1) for name in ("W_Q", "W_K", "W_V")}
    both["W_Q"][:, 4:] *= 1.5
    both["W_O"] = torch.cat((torch.eye(4), -torch.eye(4))).double()
    x = 1e-10 * stream(width=4)
    with pytest.raises(ll.InputError, match="below rounding"):
        ll.collapse_weights(x, [both], heads=2, causal=True)


def test_features_of_sizes_that_one_exponent_cannot_hold_are_refused():
    """Two groups of features that never meet, of which one collapses sooner."""
    layers = []
    for seed in range(5):
        one, other = _layer(4, seed), _layer(4, seed + 50)
        layers.append({n: torch.block_diag(one[n], 3.0 * other[n]) for n in one})
    x = stream(width=8)
    x[:, :4] = 1.0 + 1e-8 * x[:, :4]
    with pytest.raises(ll.InputError, match=r"300 powers of ten apart"):
        ll.collapse_weights(x, layers, heads=2)


def test_a_wall_of_flat_activations_is_refused():
    model = network(mlp="gelu", connection="none", attention="none")
    with torch.no_grad():
        for part in model.sublayers():
            part.branch.up.bias.fill_(-60.0)
    with pytest.raises(ll.InputError, match="flat part"):
        ll.collapse(model, stream())


def test_parallel_blocks_have_facts_without_an_mlp_of_their_own():
    facts = ll.collapse(network(placement="parallel"), stream(), facts=True).collapse.facts
    assert facts is not None and facts.layers[0].lipschitz is None


@pytest.mark.parametrize(
    "connection", ["weighted(alpha=-0.5)", "weighted(alpha=0.5, learned=true)", "layerscale"]
)
def test_alignment_is_that_of_what_is_really_added(connection):
    """Read off the stream itself: U = X' - X where nothing is scaled."""
    model = network(connection=connection, mlp="none", norm="none", placement="none", depth=1)
    x = stream()
    with torch.no_grad():
        after = model(x.unsqueeze(0))[0]
    u = after - x
    r, v = x - x.mean(0), u - u.mean(0)
    facts = ll.collapse(model, x, facts=True).collapse.facts
    assert facts is not None and facts.layers[0].alignment is not None
    cosine = float((r * v).sum() / (r.norm() * v.norm()))
    assert facts.layers[0].alignment == pytest.approx(cosine, rel=1e-9)


def test_other_modules_are_refused_with_what_to_do():
    with pytest.raises(ll.InputError, match="from_hf"):
        ll.collapse(torch.nn.Linear(4, 4), stream(width=4))


def test_a_stream_of_another_width_is_refused():
    with pytest.raises(ll.InputError, match="has 4 features and the model 16"):
        ll.collapse(network(), stream(width=4))


def test_the_table_shows_layers_logarithms_ratios_and_errors():
    text = str(ll.collapse(network(connection="none"), stream()).collapse)
    assert "log10 residual" in text and "error" in text
    assert len([line for line in text.splitlines() if line.strip()[:1].isdigit()]) == 4


# --- facts ---------------------------------------------------------------------------------------


def test_the_facts_of_a_layer_are_those_of_its_matrices():
    """Every fact again, from the matrices in numpy."""
    x, heads = stream(width=4).numpy(), 2
    layer = {name: value.numpy() for name, value in _layer(4, 3).items()}
    facts = ll.collapse_weights(x, [layer], heads=heads, facts=True).collapse.facts
    assert facts is not None and facts.tokens == TOKENS and facts.mask == "none"
    told = facts.layers[0]
    r = x - x.mean(0)
    scale = 1 / math.sqrt(2)
    sums, mosts, columns, law = [], [], [], np.zeros_like(x)
    for h in range(heads):
        cut = slice(2 * h, 2 * h + 2)
        qk = layer["W_Q"][:, cut] @ layer["W_K"][:, cut].T
        vo = layer["W_V"][:, cut] @ layer["W_O"][cut]
        e = scale * r @ qk @ r.T
        osc = e.max(1) - e.min(1)
        sums.append(osc.sum())
        mosts.append(osc.max())
        columns.append(np.abs(e).sum(0).max())
        law += e @ r @ vo / TOKENS
        assert told.query_key[h] == pytest.approx(np.abs(qk).sum(0).max())
        assert told.value_output_1[h] == pytest.approx(np.abs(vo).sum(0).max())
        assert told.value_output_inf[h] == pytest.approx(np.abs(vo).sum(1).max())
        assert told.gamma[h] == pytest.approx(math.sqrt(sums[h] * mosts[h]) / (2 * columns[h]))
    assert told.joint_gamma == pytest.approx(math.sqrt(sum(sums) * sum(mosts)) / (2 * sum(columns)))
    assert told.scaling == pytest.approx(scale)
    assert told.cubic_law == pytest.approx(math.log10(np.linalg.norm(law)))
    whole = layer["W_V"] @ layer["W_O"]
    assert told.value_gain == pytest.approx(np.linalg.norm(whole, 2), rel=1e-5)
    size = math.sqrt(np.abs(r).sum(0).max() * np.abs(r).sum(1).max())
    assert facts.log10_composite[0] == pytest.approx(math.log10(size))
    assert facts.log10_smallest[0] <= facts.log10_composite[0]


def test_the_diagonal_is_the_largest_weight_on_oneself_after_the_first_token():
    x, layer = stream(width=4), _layer(4, 3)
    q, k = x @ layer["W_Q"], x @ layer["W_K"]
    logits = (q @ k.T / 2).masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -math.inf)
    own = torch.softmax(logits, -1).diagonal()[1:].max()
    facts = ll.collapse_weights(x, [layer], causal=True, facts=True).collapse.facts
    assert facts is not None and facts.mask == "causal"
    assert facts.layers[0].diagonal == pytest.approx(float(own))


def test_the_facts_of_a_network_tell_of_skip_norm_positions_and_mlp():
    model = network(mlp="relu", attention="multihead(causal=false)")
    facts = ll.collapse(model, stream(), facts=True).collapse.facts
    assert facts is not None
    assert facts.skip and facts.norm and not facts.turned and facts.biased and facts.plain
    assert facts.keep == 1.0
    settled = ll.collapse(network(placement="post"), stream(), facts=True).collapse.facts
    assert settled is not None and settled.skip and settled.keep == 0.0
    mlp = next(p for p in model.blocks[0].children() if hasattr(p.branch, "up")).branch
    sizes = [
        float(w.abs().sum(d).max())
        for w in (mlp.up.weight.detach(), mlp.down.weight.detach())
        for d in (1, 0)
    ]
    assert facts.layers[0].lipschitz == pytest.approx(math.sqrt(math.prod(sizes)))
    bare = network(
        mlp="swiglu", norm="none", placement="none", connection="none", positions="rotary",
        attention="multihead(causal=false, bias=false, qk_norm=head)",
    )  # fmt: skip
    facts = ll.collapse(bare, stream(), facts=True).collapse.facts
    assert facts is not None
    assert not facts.skip and not facts.norm and facts.turned and not facts.biased
    assert facts.layers[0].lipschitz is None and facts.keep == 0.0


def test_alignment_and_overlap_are_those_of_state_and_update():
    model = network(mlp="none", norm="none", placement="none", attention="multihead(causal=false)")
    x = stream()
    with torch.no_grad():
        update = next(iter(model.sublayers())).branch(x.unsqueeze(0), _run())[0]
    r, u = x - x.mean(0), update - update.mean(0)
    facts = ll.collapse(model, x, facts=True).collapse.facts
    assert facts is not None and facts.keep == 1.0
    cosine = float((r * u).sum() / (r.norm() * u.norm()))
    assert facts.layers[0].alignment == pytest.approx(cosine)
    overlap = abs(float((x * update).sum() / (x.norm() * update.norm())))
    assert facts.layers[0].overlap == pytest.approx(overlap)


def _run():
    from leadline.parts.branches import Run

    return Run()


def test_bounds_stand_beside_residuals_far_below_rounding():
    layers = [_layer(8, seed) for seed in range(8)]
    found = ll.collapse_weights(stream(width=8), layers, facts=True).collapse
    assert found.log10_residual[-1] < -500
    table = ll.bounds(found.facts)
    assert not table.violated
    law = next(one for one in table.bounds if one.name == "collapse-cubic-law")
    assert law.rows[-1].ratio == pytest.approx(1.0, rel=1e-9)
