"""Building a model: weights by name and seed, no trace on the random numbers, parts exchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.errors import InputError
from leadline.parts import Recipe, Transformer
from leadline.parts.branches import Run
from leadline.parts.connections import Connection
from leadline.parts.place import Place
from leadline.parts.sublayer import Sublayer, TransformerBlock

SMALL: dict[str, Any] = {"depth": 3, "width": 16, "heads": 2, "vocabulary": 11, "context": 8}
IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
VARIANTS: list[dict[str, Any]] = [
    {},
    {"placement": "post"},
    {"placement": "hybrid"},
    {"placement": "subln", "init": "subln"},
    {"connection": "rezero"},
    {"norm": "rmsnorm", "mlp": "swiglu", "positions": "rotary"},
    {"attention": "multihead(groups=1, qk_norm=width, value_residual=learned)"},
    {"placement": "parallel(norms=2)"},
    {"mlp": "none"},
    {"attention": "none"},
    {"embedding": "token(types=2, normed=true)", "head": "masked"},
    {"head": "tied", "init": "xavier"},
]


@pytest.fixture
def nan_for_what_is_not_drawn() -> Iterator[None]:
    """Fresh memory holds NaN, so that a weight that nobody draws is seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("fields", VARIANTS)
@pytest.mark.usefixtures("nan_for_what_is_not_drawn")
def test_every_weight_is_drawn(fields: dict[str, Any]) -> None:
    assert bool(torch.empty(3).isnan().all())
    model = Transformer(**SMALL | fields)
    for name, parameter in model.named_parameters():
        assert bool(parameter.isfinite().all()), name


def test_models_of_one_seed_share_the_weights_of_the_parts_they_share() -> None:
    plain = dict(Transformer(**SMALL).named_parameters())
    for fields in VARIANTS[1:7]:
        other = Transformer(**SMALL | {"init": "gpt2"} | fields | {"init": "gpt2"})
        shared = 0
        for name, parameter in other.named_parameters():
            if name in plain and plain[name].shape == parameter.shape:
                assert torch.equal(plain[name], parameter), (name, fields)
                shared += 1
        assert shared > 8


def test_the_draw_of_a_weight_depends_on_the_seed_the_layer_and_the_role() -> None:
    first, again, other = (Transformer(**SMALL, seed=seed) for seed in (0, 0, 1))
    for (name, a), b, c in zip(
        first.named_parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b)
        if a.unique().numel() > 1:
            assert not torch.equal(a, c), name
    drawn = [p for p in first.parameters() if p.unique().numel() > 1]
    starts = {tuple(p.flatten()[:4].tolist()) for p in drawn}
    assert len(starts) == len(drawn) == 3 * 4 + 3  # four matrices a layer, two tables, one head


def test_joined_branches_have_the_weights_of_separate_ones() -> None:
    # One write a layer instead of two, so an init without depth.
    apart = Transformer(**SMALL, init="xavier")
    joined = Transformer(**SMALL, init="xavier", placement="parallel")
    for layer in range(3):
        for part in ("attention", "mlp"):
            first = apart.get_submodule(f"blocks.{layer}.{part}.branch").state_dict()
            second = joined.get_submodule(f"blocks.{layer}.joined.branch.{part}").state_dict()
            assert first.keys() == second.keys()
            assert all(torch.equal(first[name], second[name]) for name in first)


def test_building_leaves_the_global_random_numbers_alone() -> None:
    for fields in VARIANTS:
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        Transformer(**SMALL | fields)
        assert torch.equal(torch.rand(3), expected)


def test_building_does_not_seed_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(3)
    assert seeded == [3]  # what building must not do
    Transformer(**SMALL)
    assert seeded == [3]


def test_building_does_not_depend_on_the_global_random_numbers() -> None:
    torch.manual_seed(1)
    first = Transformer(**SMALL)
    torch.manual_seed(2)
    second = Transformer(**SMALL)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_a_model_is_built_from_a_recipe_and_changes_to_it() -> None:
    recipe = Recipe(**SMALL)
    assert Transformer(recipe).recipe == recipe
    assert Transformer(recipe, depth=1).recipe == recipe.but(depth=1)
    assert len(Transformer(recipe, depth=1).blocks) == 1
    assert "identity connection, pre placement, depth 3" in repr(Transformer(recipe))


def test_exchanging_a_part_keeps_the_other_weights_and_draws_the_new() -> None:
    model = Transformer(**SMALL, seed=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    post = model.with_(placement="post")
    fresh = Transformer(**SMALL, placement="post", seed=4)
    mine, new, drawn = model.state_dict(), post.state_dict(), fresh.state_dict()
    assert new.keys() == drawn.keys()
    kept = {name for name in new if name in mine}
    assert {name for name in new if name not in mine} == {
        f"blocks.{layer}.{branch}.settle.{weight}"
        for layer in range(3)
        for branch in ("attention", "mlp")
        for weight in ("weight", "bias")
    }
    for name, weight in new.items():
        assert torch.equal(weight, mine[name] if name in kept else drawn[name])
    assert post.recipe == model.recipe.but(placement="post")
    assert post.seed == 4
    assert all(torch.equal(model.state_dict()[name], mine[name]) for name in mine)


def test_an_exchange_copies_weights_and_does_not_share_them() -> None:
    model = Transformer(**SMALL)
    other = model.with_(connection="rezero")
    with torch.no_grad():
        other.get_parameter("embedding.tokens.weight").zero_()
    assert bool(model.get_parameter("embedding.tokens.weight").any())


def test_an_exchange_there_and_back_is_no_change() -> None:
    model = Transformer(**SMALL)
    back = model.with_(placement="output").with_(placement="pre")
    assert torch.equal(back(IDS), model(IDS))


def test_weights_of_another_shape_are_drawn_anew() -> None:
    model = Transformer(**SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    larger = model.with_(vocabulary=13, depth=4)
    fresh = Transformer(**SMALL | {"vocabulary": 13, "depth": 4})
    for name in ("embedding.tokens.weight", "head.projection.weight"):
        assert torch.equal(larger.get_parameter(name), fresh.get_parameter(name))
    last = "blocks.3.mlp.branch.up.weight"
    assert torch.equal(larger.get_parameter(last), fresh.get_parameter(last))
    early = "blocks.2.mlp.branch.up.weight"
    assert torch.equal(larger.get_parameter(early), model.get_parameter(early))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("training", [True, False])
def test_an_exchange_keeps_number_type_device_and_mode(dtype: torch.dtype, training: bool) -> None:
    model = Transformer(**SMALL).to(dtype).train(training)
    other = model.with_(placement="sandwich", connection="rezero")
    assert {p.dtype for p in other.parameters()} == {dtype}
    assert {p.device for p in other.parameters()} == {p.device for p in model.parameters()}
    assert all(module.training == training for module in other.modules())
    name = "blocks.0.mlp.branch.up.weight"
    assert torch.equal(other.get_parameter(name), model.get_parameter(name))


@torch.no_grad()
def test_padding_after_a_text_does_not_change_it() -> None:
    for causal in (True, False):
        model = Transformer(
            **SMALL, init="xavier", attention={"name": "multihead", "causal": causal}
        )
        alone = model(IDS[:1, :3])
        mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
        padded = model(IDS, mask)
        assert torch.allclose(padded[:1, :3], alone, atol=1e-5)
        assert torch.allclose(padded[1:], model(IDS[1:]), atol=1e-5)


def test_the_stack_is_named_by_what_its_tokens_see() -> None:
    names = {"multihead": "decoder", "multihead(causal=false)": "encoder", "none": "stack"}
    for attention, name in names.items():
        (stack,) = Transformer(**SMALL, attention=attention).anatomy().stacks
        assert (stack.name, stack.depth, stack.width) == (name, 3, 16)


@pytest.mark.parametrize("sublayers", [1, 2])
def test_places_count_layers_and_writes_from_one(sublayers: int) -> None:
    count = 0
    for layer in range(1, 5):
        for sublayer in range(1, sublayers + 1):
            count += 1
            place = Place(8, 2, 4, layer, sublayer, sublayers)
            assert (place.write, place.writes) == (count, 4 * sublayers)
            assert place.ends_layer == (sublayer == sublayers)
            assert place.ends_stack == (count == 4 * sublayers)
    assert Place(8, 2, 4, 1).sublayers == 2
    assert (Place(8, 2, 4, 1).sublayer, Place(8, 2, 4, 1).branch) == (1, "attention")


def test_every_sublayer_knows_its_place() -> None:
    model = Transformer(**SMALL)
    places = [s.connection.place for s in model.sublayers()]
    assert [(p.layer, p.sublayer, p.branch, p.write) for p in places] == [
        (1, 1, "attention", 1),
        (1, 2, "mlp", 2),
        (2, 1, "attention", 3),
        (2, 2, "mlp", 4),
        (3, 1, "attention", 5),
        (3, 2, "mlp", 6),
    ]
    assert {(p.width, p.heads, p.depth, p.writes) for p in places} == {(16, 2, 3, 6)}


def test_a_place_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Place(8, 2, 4, 1), "layer", 2)  # noqa: B010 - a type checker refuses the plain way


def test_a_run_hides_nothing_unless_told() -> None:
    run = Run()
    assert (run.mask, run.causal, run.rotate, run.cache, run.shared) == (
        None,
        False,
        None,
        None,
        {},
    )


class _Step(nn.Module):
    """Adds a letter to a trace and a number to the stream."""

    def __init__(self, letter: str, trace: list[str], *, plus: float = 0.0) -> None:
        super().__init__()
        self.letter, self.trace, self.plus = letter, trace, plus

    def forward(self, x: Tensor, run: Run | None = None) -> Tensor:
        self.trace.append(self.letter)
        return x + self.plus


class _Doubling(Connection):
    def __init__(self, trace: list[str]) -> None:
        super().__init__(Place(2, 1, 1, 1))
        self.trace = trace

    def read(self, state: Tensor) -> Tensor:
        self.trace.append("read")
        return 10 * state

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        self.trace.append("write")
        return 2 * state + update


def test_a_sublayer_reads_enters_computes_exits_writes_and_settles() -> None:
    trace: list[str] = []
    branch: Any = _Step("branch", trace, plus=0.5)
    sublayer = Sublayer(
        branch,
        _Doubling(trace),
        enter=_Step("enter", trace, plus=0.25),
        exit=_Step("exit", trace, plus=0.125),
        settle=_Step("settle", trace, plus=1000.0),
    )
    out = TransformerBlock({"one": sublayer})(torch.tensor(1.0), Run())
    assert trace == ["read", "enter", "branch", "exit", "write", "settle"]
    assert out.item() == 1000 + 2 * 1 + (10 + 0.25 + 0.5 + 0.125)
    bare = Sublayer(branch, _Doubling(trace), enter=None, exit=None, settle=None)
    both = TransformerBlock({"one": bare, "two": bare})
    assert both(torch.tensor(1.0), Run()).item() == 2 * 12.5 + 125.5


@pytest.mark.parametrize("connection", ["gated", "highway", "gtrxl", "manifold_hyper"])
def test_the_two_writes_of_a_layer_draw_their_connections_apart(connection: str) -> None:
    model = Transformer(depth=2, width=16, heads=2, connection=connection)
    drawn = [weight for s in model.sublayers() for _, weight in s.connection.weights()]
    assert len(drawn) >= 4
    for index, one in enumerate(drawn):
        assert one.std() > 0
        assert not any(torch.equal(one, other) for other in drawn[index + 1 :])


def test_types_for_a_model_without_types_are_refused_unless_they_are_zero() -> None:
    model = Transformer(depth=1, width=16, heads=2)
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert torch.equal(model(ids), model(ids, token_type_ids=ids))
    with pytest.raises(InputError, match="the model has no types"):
        model(ids, token_type_ids=ids + 1)


def test_a_plain_stream_has_one_lane_and_hyper_connections_have_theirs() -> None:
    fields = {"depth": 1, "width": 16, "heads": 2}
    assert Transformer(**fields).anatomy().stacks[0].lanes == 1
    assert Transformer(**fields, connection="hyper(lanes=3)").anatomy().stacks[0].lanes == 3


def test_a_record_calls_a_model_by_its_design() -> None:
    fields = {"depth": 2, "width": 16, "heads": 2}
    model = Transformer(**fields, connection="hyper(lanes=2)")
    inputs = leadline.random_tokens(model, examples=1, length=4, seed=0)
    name = leadline.measure(model, inputs, probes="stream").provenance["model"]["name"]
    assert name == "hyper(lanes=2) pre 2x16"
