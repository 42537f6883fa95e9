"""Where norms stand: every placement's equation, written out by hand with the model's weights."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.anatomy.find.discover import discover
from leadline.errors import RecipeError
from leadline.parts import Recipe, Transformer
from leadline.parts.branches import Run
from leadline.parts.norms.layernorm import LayerNorm
from leadline.parts.place import Place
from leadline.parts.placements import PLACEMENTS
from leadline.parts.placements.layernorm_scaling import ScaledNorm
from leadline.parts.placements.normformer import HeadScale
from tests.facts.parts.by_hand import attention, layer_norm, perceptron, stir

DEPTH, WIDTH, HEADS = 8, 16, 2
EVERY = [
    "hybrid",
    "keel",
    "layernorm_scaling",
    "mix",
    "none",
    "none(closing=false)",
    "normformer",
    "output",
    "parallel",
    "parallel(norms=2)",
    "post",
    "pre",
    "sandwich",
    "sandwich(opening=false)",
    "subln",
]


def _model(placement: str, **fields: Any) -> Transformer:
    sizes: dict[str, Any] = {"depth": DEPTH, "width": WIDTH, "heads": HEADS, "vocabulary": 23}
    # Weights of unit gain, or a shallow stack would hide the branches.
    model = Transformer(**sizes | {"context": 9, "init": "xavier", "placement": placement} | fields)
    stir(model)
    return model.double().eval()


def _ids(examples: int = 2, tokens: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, 23, (examples, tokens), generator=generator)


def _norm(module: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
    return layer_norm(module.get_submodule(name))


def _a(block: nn.Module, x: Tensor, **how: Any) -> Tensor:
    return attention(block.get_submodule("attention.branch"), x, heads=HEADS, **how)


def _m(block: nn.Module, x: Tensor, **how: Any) -> Tensor:
    return perceptron(block.get_submodule("mlp.branch"), x, **how)


def _pre(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = x + _a(b, _norm(b, "attention.enter")(x))
    return x + _m(b, _norm(b, "mlp.enter")(x))


def _post(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = _norm(b, "attention.settle")(x + _a(b, x))
    return _norm(b, "mlp.settle")(x + _m(b, x))


def _sandwich(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = x + _norm(b, "attention.exit")(_a(b, _norm(b, "attention.enter")(x)))
    return x + _norm(b, "mlp.exit")(_m(b, _norm(b, "mlp.enter")(x)))


def _output(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = x + _norm(b, "attention.exit")(_a(b, x))
    return x + _norm(b, "mlp.exit")(_m(b, x))


def _none(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = x + _a(b, x)
    return x + _m(b, x)


def _keel(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = _norm(b, "attention.settle")(x + _a(b, _norm(b, "attention.enter")(x)))
    return _norm(b, "mlp.settle")(x + _m(b, _norm(b, "mlp.enter")(x)))


def _mix(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    return _post(b, x, layer) if layer <= 2 else _pre(b, x, layer)  # a quarter of eight


def _layernorm_scaling(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    x = x + _a(b, _norm(b, "attention.enter.norm")(x) / math.sqrt(layer))
    return x + _m(b, _norm(b, "mlp.enter.norm")(x) / math.sqrt(layer))


def _subln(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    mixed = _norm(b, "attention.branch.mixed_norm")
    x = x + _a(b, _norm(b, "attention.enter")(x), mixed=mixed)
    return x + _m(b, _norm(b, "mlp.enter")(x), hidden=_norm(b, "mlp.branch.hidden_norm"))


def _normformer(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    scales = b.get_parameter("attention.branch.head_scale.weight")
    update = _a(b, _norm(b, "attention.enter")(x), heads_by=scales)
    x = x + _norm(b, "attention.exit")(update)
    return x + _m(b, _norm(b, "mlp.enter")(x), hidden=_norm(b, "mlp.branch.hidden_norm"))


def _hybrid(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    points = {p: _norm(b, f"attention.branch.{p}_norm") for p in ("query", "key", "value")}
    y = x + _a(b, x, **points)
    settle = _norm(b, "attention.settle")
    return settle(y) + _m(b, settle(y))


def _parallel(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    read = _norm(b, "joined.enter")(x)
    a = attention(b.get_submodule("joined.branch.attention"), read, heads=HEADS)
    return x + a + perceptron(b.get_submodule("joined.branch.mlp"), read)


def _parallel_2(b: nn.Module, x: Tensor, layer: int) -> Tensor:
    joined = b.get_submodule("joined.branch")
    for_a, for_m = _norm(joined, "attention_norm")(x), _norm(joined, "mlp_norm")(x)
    a = attention(joined.get_submodule("attention"), for_a, heads=HEADS)
    return x + a + perceptron(joined.get_submodule("mlp"), for_m)


LAYERS: dict[str, Callable[[nn.Module, Tensor, int], Tensor]] = {
    "hybrid": _hybrid,
    "keel": _keel,
    "layernorm_scaling": _layernorm_scaling,
    "mix": _mix,
    "none": _none,
    "none(closing=false)": _none,
    "normformer": _normformer,
    "output": _output,
    "parallel": _parallel,
    "parallel(norms=2)": _parallel_2,
    "post": _post,
    "pre": _pre,
    "sandwich": _sandwich,
    "sandwich(opening=false)": _sandwich,
    "subln": _subln,
}
NO_CLOSING = ("post", "keel", "none(closing=false)")


@pytest.mark.parametrize("placement", EVERY)
def test_every_layer_keeps_the_equation_of_its_placement(placement: str) -> None:
    model, ids = _model(placement), _ids()
    with torch.no_grad():
        x = model.embedding.get_parameter("tokens.weight")[ids]
        x = x + model.embedding.get_parameter("positions.table.weight")[: ids.shape[1]]
        if placement == "sandwich":
            x = _norm(model, "embedding.norm")(x)
        for layer, block in enumerate(model.blocks, 1):
            expected = LAYERS[placement](block, x, layer)
            got = block(x, Run(causal=True))
            # A layer without norms may be large; the miss is judged by the stream's size.
            assert float((got - expected).abs().max() / expected.abs().max()) < 1e-12
            x = got
        if placement not in NO_CLOSING:
            x = _norm(model, "norm")(x)
        assert torch.allclose(model.stream(ids), x, rtol=1e-11, atol=1e-13)


def test_all_placements_are_tried_here() -> None:
    assert sorted({name.partition("(")[0] for name in EVERY}) == PLACEMENTS.names()
    assert sorted(LAYERS) == sorted(EVERY)


@pytest.mark.parametrize(
    ("placement", "attention_norms", "mlp_norms"),
    [
        ("pre", {"enter"}, {"enter"}),
        ("post", {"settle"}, {"settle"}),
        ("sandwich", {"enter", "exit"}, {"enter", "exit"}),
        ("sandwich(opening=false)", {"enter", "exit"}, {"enter", "exit"}),
        ("output", {"exit"}, {"exit"}),
        ("none", set(), set()),
        ("none(closing=false)", set(), set()),
        ("keel", {"enter", "settle"}, {"enter", "settle"}),
        ("layernorm_scaling", {"enter.norm"}, {"enter.norm"}),
        ("subln", {"enter", "branch.mixed_norm"}, {"enter", "branch.hidden_norm"}),
        (
            "normformer",
            {"enter", "exit", "branch.head_scale"},
            {"enter", "branch.hidden_norm"},
        ),
        (
            "hybrid",
            {"settle", "branch.query_norm", "branch.key_norm", "branch.value_norm"},
            set(),
        ),
    ],
)
def test_these_norms_stand_in_every_layer_and_no_others(
    placement: str, attention_norms: set[str], mlp_norms: set[str]
) -> None:
    model = _model(placement)
    for block in model.blocks:
        assert _norms(block.get_submodule("attention")) == attention_norms
        assert _norms(block.get_submodule("mlp")) == mlp_norms
    assert (model.norm is not None) == (placement not in NO_CLOSING)
    assert (model.embedding.get_submodule("").norm is not None) == (placement == "sandwich")


def _norms(module: nn.Module) -> set[str]:
    return {n for n, m in module.named_modules() if isinstance(m, LayerNorm | HeadScale)}


@pytest.mark.parametrize(
    ("placement", "norms"),
    [("parallel", {"enter"}), ("parallel(norms=2)", {"branch.attention_norm", "branch.mlp_norm"})],
)
def test_parallel_branches_are_one_write_behind_one_norm_or_two(
    placement: str, norms: set[str]
) -> None:
    model = _model(placement)
    assert all(_norms(block.get_submodule("joined")) == norms for block in model.blocks)
    places = [s.connection.place for s in model.sublayers()]
    assert [(p.write, p.writes, p.branch) for p in places] == [
        (n, DEPTH, "joined") for n in range(1, DEPTH + 1)
    ]
    assert model.norm is not None


@pytest.mark.parametrize(
    ("placement", "depth", "early"),
    [
        ("mix", 12, 3),
        ("mix", 24, 6),
        ("mix", 7, 1),
        ("mix", 3, 0),
        ("mix(share=0.5)", 5, 2),
        ("mix(share=1)", 4, 4),
        ("mix(share=0)", 4, 0),
        ("mix(share=0.29)", 100, 29),
    ],
)
def test_mix_settles_the_first_share_of_the_layers_and_enters_the_others(
    placement: str, depth: int, early: int
) -> None:
    chosen = PLACEMENTS.build(placement)
    for branch, sublayer in (("attention", 1), ("mlp", 2)):
        for layer in range(1, depth + 1):
            place = Place(8, 2, depth, layer, sublayer, branch=branch)
            assert (chosen.settle(place) is not None) == (layer <= early)
            assert (chosen.enter(place) is not None) == (layer > early)
    assert chosen.closing


def test_layernorm_scaling_divides_by_the_square_root_of_the_layer_from_one() -> None:
    model = _model("layernorm_scaling", depth=9)
    for sublayer in model.sublayers():
        assert isinstance(sublayer.enter, ScaledNorm)
        layer = sublayer.connection.place.layer
        assert sublayer.enter.factor == pytest.approx(1 / math.sqrt(layer), rel=1e-15)
    assert isinstance(model.norm, LayerNorm)  # the closing norm is not scaled
    assert "factor=0.57735" in repr(model.blocks[2])


def test_head_scales_start_at_one_and_multiply_their_head() -> None:
    scale = HeadScale(3)
    assert scale.weight.tolist() == [1.0, 1.0, 1.0]
    with torch.no_grad():
        scale.weight.copy_(torch.tensor([2.0, 3.0, 5.0]))
    x = torch.ones(2, 3, 4, 6)
    for head, factor in enumerate((2.0, 3.0, 5.0)):
        assert bool((scale(x)[:, head] == factor).all())
    assert scale(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("placement", "settles", "varies", "opening", "closing", "joined"),
    [
        ("pre", False, False, False, True, 0),
        ("post", True, False, False, False, 0),
        ("sandwich", False, False, True, True, 0),
        ("sandwich(opening=false)", False, False, False, True, 0),
        ("output", False, False, False, True, 0),
        ("none", False, False, False, True, 0),
        ("none(closing=false)", False, False, False, False, 0),
        ("keel", True, False, False, False, 0),
        ("mix", False, True, False, True, 0),
        ("layernorm_scaling", False, True, False, True, 0),
        ("subln", False, False, False, True, 0),
        ("normformer", False, False, False, True, 0),
        ("hybrid", False, False, False, True, 0),
        ("parallel", False, False, False, True, 1),
        ("parallel(norms=2)", False, False, False, True, 2),
    ],
)
def test_the_facts_of_a_placement_are_these(
    placement: str, settles: bool, varies: bool, opening: bool, closing: bool, joined: int
) -> None:
    chosen = PLACEMENTS.build(placement)
    found = (chosen.settles, chosen.varies, chosen.opening, chosen.closing, chosen.joined)
    assert found == (settles, varies, opening, closing, joined)
    assert chosen.formula and inspect.getdoc(type(chosen))


@pytest.mark.parametrize("placement", EVERY)
def test_a_settling_placement_norms_the_stream_after_every_addition(placement: str) -> None:
    model = _model(placement)
    settled = all(s.settle is not None for s in model.sublayers())
    assert settled == model.placement.settles


@pytest.mark.parametrize("placement", EVERY)
def test_a_model_of_any_placement_balances(placement: str) -> None:
    model = Transformer(
        depth=4, width=16, heads=2, vocabulary=23, placement=placement, init="xavier"
    )
    stir(model)
    anatomy = leadline.anatomy_of(model, _ids(2, 6))
    assert anatomy.balance is not None
    assert anatomy.balance.eps < 4
    assert anatomy.balance.layers == 4


WORDS = {
    "hybrid": "post/none",
    "keel": "pre-and-post",
    "layernorm_scaling": "pre",
    "none": "none",
    "none(closing=false)": "none",
    "normformer": "sandwich/pre",
    "output": "output",
    "parallel": "pre",
    "parallel(norms=2)": "pre",
    "post": "post",
    "pre": "pre",
    "sandwich": "sandwich",
    "sandwich(opening=false)": "sandwich",
    "subln": "pre",
}


@pytest.mark.parametrize("placement", WORDS)
def test_the_anatomy_calls_a_placement_by_this_word(placement: str) -> None:
    model = _model(placement, depth=2)
    blocks = model.anatomy().stacks[0].blocks
    assert [block.placement for block in blocks] == [WORDS[placement]] * 2
    assert all(block.parallel == placement.startswith("parallel") for block in blocks)


def test_the_anatomy_tells_the_early_layers_of_mix_from_the_late() -> None:
    blocks = _model("mix").anatomy().stacks[0].blocks
    assert [block.placement for block in blocks] == ["post"] * 2 + ["pre"] * 6


def test_without_norms_every_placement_is_called_none() -> None:
    for placement in EVERY:
        model = _model(placement, norm="none", depth=2)
        blocks = model.anatomy().stacks[0].blocks
        assert [block.placement for block in blocks] == ["none", "none"]


@pytest.mark.parametrize("placement", [name for name in EVERY if name != "mix"])
def test_discovery_finds_the_placement_that_the_model_declares(placement: str) -> None:
    model = _model(placement, depth=2).float()
    ids = _ids(2, 6)
    found = discover(model, lambda: model(ids)).stacks[0].blocks
    declared = model.anatomy().stacks[0].blocks
    # To discovery two joined branches are one write; what stands around them it sees all the same.
    assert [b.placement for b in found] == [b.placement for b in declared]


@pytest.mark.parametrize(
    ("specimen", "fields"),
    [
        ("gpt2", {"placement": "pre"}),
        ("bert", {"placement": "post", "attention": "multihead(causal=false)"}),
        ("olmo2", {"placement": "output", "norm": "rmsnorm"}),
        ("gemma2", {"placement": "sandwich(opening=false)", "norm": "rmsnorm(offset=1)"}),
        ("gptj", {"placement": "parallel"}),
        ("gpt_neox", {"placement": "parallel(norms=2)"}),
    ],
)
def test_ours_and_hugging_faces_model_have_one_word_for_their_placement(
    specimen: str, fields: dict[str, str]
) -> None:
    pytest.importorskip("transformers")
    from leadline.testing.zoo import ZOO

    theirs = ZOO[specimen].build(0).eval()
    found = leadline.anatomy_of(theirs, ZOO[specimen].inputs(theirs, 1)).stacks[0].blocks[0]
    ours = Transformer(depth=2, width=16, heads=2, **fields).anatomy().stacks[0].blocks[0]
    assert (ours.placement, ours.parallel) == (found.placement, found.parallel)


@pytest.mark.parametrize("placement", ["hybrid", "parallel", "parallel(norms=2)"])
@pytest.mark.parametrize(("gone", "left"), [("mlp", "attention"), ("attention", "mlp")])
def test_a_placement_that_needs_both_branches_refuses_one(
    placement: str, gone: str, left: str
) -> None:
    name = placement.partition("(")[0]
    with pytest.raises(RecipeError) as caught:
        Recipe(placement=placement, **{gone: "none"})
    assert str(caught.value) == (
        f"The placement {name!r} makes no sense here: it needs attention and mlp, and this recipe "
        f"has {left} only; choose another placement, or add the branch."
    )


@pytest.mark.parametrize("gone", ["mlp", "attention"])
@pytest.mark.parametrize(
    "placement", [p for p in EVERY if p.partition("(")[0] not in ("hybrid", "parallel")]
)
def test_the_other_placements_stand_around_one_branch_alone(placement: str, gone: str) -> None:
    model = _model(placement, depth=4, **{gone: "none"})
    branches = [s.connection.place.branch for s in model.sublayers()]
    assert branches == [{"mlp": "attention", "attention": "mlp"}[gone]] * 4
    assert leadline.anatomy_of(model.float(), _ids(2, 6)).sublayers == 4


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("mix(share=1.5)", "The option share of mix is 1.5; give a number from 0 to 1."),
        ("mix(share=-0.1)", "The option share of mix is -0.1; give a number from 0 to 1."),
        ("mix(share=some)", "The option share of mix is 'some'; give a number from 0 to 1."),
        ("sandwich(opening=1)", "The option opening of sandwich is 1; give true or false."),
        ("none(closing=none)", "The option closing of none is None; give true or false."),
        (
            "parallel(norms=3)",
            "The option 'norms' of 'parallel' is 1 (one norm for both branches) or 2 (one for "
            "each), not 3.",
        ),
    ],
)
def test_an_impossible_option_of_a_placement_is_refused(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(placement=choice)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("norms", [0, True, 1.0, "2"])
def test_parallel_counts_one_norm_or_two(norms: Any) -> None:
    with pytest.raises(RecipeError, match=r"is 1 .* or 2"):
        PLACEMENTS.build({"name": "parallel", "norms": norms})


@pytest.mark.parametrize("placement", EVERY)
def test_weights_of_any_placement_survive_saving_and_loading(placement: str) -> None:
    model, ids = _model(placement), _ids()
    other = Transformer(model.recipe, seed=1).double()
    assert not torch.equal(other(ids), model(ids))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids), model(ids))


@pytest.mark.parametrize("placement", EVERY)
def test_every_parameter_of_every_placement_gets_a_finite_gradient(placement: str) -> None:
    model = _model(placement, depth=4)
    model(_ids()).pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("placement", ["normformer", "hybrid", "layernorm_scaling", "parallel"])
def test_a_block_compiles_to_the_same_numbers(placement: str) -> None:
    torch._dynamo.reset()
    model = _model(placement, depth=2).float()
    block, x = model.blocks[1], torch.randn(2, 5, WIDTH)
    compiled = torch.compile(block, backend="aot_eager")
    with torch.no_grad():
        assert torch.allclose(compiled(x, Run(causal=True)), block(x, Run(causal=True)), atol=1e-5)


def test_a_law_of_two_joined_branches_is_placed_by_the_norms_inside_them() -> None:
    model = _model("parallel(norms=2)", depth=2, connection="gated")
    (write,) = model.anatomy().stacks[0].blocks[0].sublayers
    assert write.law is not None
    assert write.placement == "pre"


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "rmsnorm(offset=1)", "dyt", "derf"])
@pytest.mark.parametrize("placement", ["sandwich", "keel", "normformer", "hybrid", "subln"])
def test_placements_run_in_every_number_type(placement: str, norm: str) -> None:
    model, ids = _model(placement, depth=2, norm=norm), _ids()
    expected = model(ids)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        got = model.to(dtype)(ids)
        assert got.dtype == dtype
        assert bool(got.isfinite().all())
    with torch.autocast("cpu", torch.bfloat16):
        model.float()(ids).float().sum().backward()
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)
    assert expected.shape == (*ids.shape, 23)


def _mean_squares(placement: str, *, louder: float = 1.0) -> list[float]:
    """Of the stream after each of 48 layers at initialisation, from unit noise."""
    model = Transformer(
        depth=48,
        width=64,
        heads=4,
        placement=placement,
        init="xavier",
        positions="none",
        embedding="none",
        head="none",
    )
    x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(0))
    found: list[float] = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("branch.output.weight", "branch.down.weight")):
                parameter.mul_(louder)
        for block in model.blocks:
            x = block(x, Run(causal=True))
            found.append(float(x.pow(2).mean()))
    return found


@pytest.mark.parametrize("placement", ["pre", "sandwich", "output"])
def test_a_stream_that_is_never_normed_grows_linearly(placement: str) -> None:
    found = _mean_squares(placement)
    early, late = found[23] - found[0], found[47] - found[23]
    assert found[47] > 20
    assert 0.4 < late / early < 2.0


def test_a_stream_without_norms_grows_exponentially() -> None:
    found = _mean_squares("none")
    quarters = [found[i + 12] / found[i] for i in (0, 12, 24, 35)]
    assert all(1e3 < quarter < 1e7 for quarter in quarters)


def test_layernorm_scaling_grows_more_slowly_than_pre_norm() -> None:
    scaled, plain = _mean_squares("layernorm_scaling"), _mean_squares("pre")
    assert scaled[0] == plain[0]  # the first layer is divided by 1
    assert all(a < b for a, b in zip(scaled[1:], plain[1:], strict=True))
    assert scaled[47] < plain[47] / 5


@pytest.mark.parametrize("placement", ["sandwich", "output"])
def test_a_norm_on_the_output_sets_the_size_of_an_update_whatever_the_weights(
    placement: str,
) -> None:
    assert _mean_squares(placement, louder=100.0) == pytest.approx(
        _mean_squares(placement), rel=0.01
    )
    assert _mean_squares("pre", louder=100.0)[0] > 1000


@pytest.mark.parametrize("placement", ["post", "keel"])
def test_a_settled_stream_has_unit_mean_square(placement: str) -> None:
    assert _mean_squares(placement) == pytest.approx([1.0] * 48, rel=1e-3)
