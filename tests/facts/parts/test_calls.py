"""What a model can be called with, what it is trained on, and how its parts are exchanged."""

import pytest
import torch
from torch.nn import functional as F

import leadline
from leadline.errors import InputError, LoadingError, RecipeError
from leadline.parts import Recipe, Transformer

SMALL = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 20, "context": 8}
IDS = torch.arange(12).view(2, 6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([[1, 2]], "A list was given; the model takes a torch tensor whole numbers"),
        (torch.arange(3), r"torch.int64 \[3\] was given; the model takes whole numbers"),
        (torch.zeros(1, 3), r"torch.float32 \[1, 3\] was given"),
        (torch.zeros(0, 3, dtype=torch.long), r"\[0, 3\] was given"),
        (torch.zeros(1, 0, dtype=torch.long), r"one token at least"),
        (torch.tensor([[3, 20]]), "ids reach from 3 to 20, and the vocabulary from 0 to 19"),
        (torch.tensor([[-1, 2]]), "ids reach from -1 to 2"),
    ],
)
def test_what_is_no_batch_of_ids_gets_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        Transformer(**SMALL)(given)


def test_the_first_and_the_last_id_are_taken():
    assert Transformer(**SMALL)(torch.tensor([[0, 19]])).shape == (1, 2, 20)


@pytest.mark.parametrize("given", [IDS, torch.zeros(1, 2, 15), torch.zeros(2, 16)])
def test_a_model_without_embedding_takes_streams_of_its_width_only(given):
    model = Transformer(**SMALL, embedding="none")
    assert model(torch.zeros(1, 2, 16)).shape == (1, 2, 20)
    with pytest.raises(InputError, match=r"the model takes a stream \[example, token, 16\]"):
        model(given)


def test_token_types_beyond_the_table_get_a_sentence():
    model = Transformer(**SMALL, embedding="token(types=2)")
    assert model(IDS, token_type_ids=torch.ones_like(IDS)).shape == (2, 6, 20)
    with pytest.raises(InputError, match="token types reach from 0 to 2, and the table from 0 to"):
        model(IDS, token_type_ids=torch.tensor([[0, 0, 0, 0, 0, 2]] * 2))


@pytest.mark.parametrize("target", [20, -5])
def test_a_target_that_is_no_token_gets_a_sentence(target):
    targets = IDS.clone()
    targets[0, 0] = target
    with pytest.raises(InputError, match=r"The targets reach from .* the vocabulary from 0 to 19"):
        Transformer(**SMALL).loss(IDS, targets)


def test_a_batch_without_any_target_is_refused():
    with pytest.raises(InputError, match="No target is counted"):
        Transformer(**SMALL).loss(IDS[:, :1])
    with pytest.raises(InputError, match="No target is counted"):
        Transformer(**SMALL).loss(IDS, torch.full_like(IDS, -100))


def test_tokens_that_never_meet_predict_their_next_one():
    model = Transformer(**SMALL, attention="none")
    assert model.objective == "next-token"
    wanted = F.cross_entropy(model(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    assert torch.allclose(model.loss(IDS), wanted, atol=1e-6)


def test_the_loss_of_a_float64_model_is_float64_and_exact():
    model = Transformer(**SMALL).double()
    logits = model(IDS)[:, :-1].flatten(0, 1)
    wanted = F.cross_entropy(logits, IDS[:, 1:].flatten())
    got = model.loss(IDS)
    assert got.dtype == torch.float64
    assert abs(got.item() - wanted.item()) < 1e-14
    mine = torch.autograd.grad(got, model.head.projection.weight)[0]
    theirs = torch.autograd.grad(wanted, model.head.projection.weight)[0]
    assert (mine - theirs).abs().max() < 1e-15


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"connection": "none"},
        {"head": "tied"},
        {"head": "masked", "attention": "multihead(causal=false)"},
    ],
)
def test_the_loss_under_autocast_is_near_that_without_and_its_gradients_are_float32(kind, fields):
    model = Transformer(**SMALL, **fields, init="xavier")
    plain = model.loss(IDS, IDS)
    wanted = torch.autograd.grad(plain, list(model.parameters()), allow_unused=True)
    with torch.autocast("cpu", kind):
        half = model.loss(IDS, IDS)
    got = torch.autograd.grad(half, list(model.parameters()), allow_unused=True)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(plain.item(), rel=0.02)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.1 * other.norm() + 1e-4


def test_small_shares_of_a_large_batch_survive_half_precision():
    """1 / count is far below what float16 can hold beside a small softmax."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 8, generator=generator).half().requires_grad_()
    weight = (0.01 * torch.randn(64, 8, generator=generator)).half().requires_grad_()
    targets = torch.randint(64, (4096,), generator=generator)
    from leadline.parts.loss import linear_cross_entropy

    (1024.0 * linear_cross_entropy(x, weight, targets)).backward()
    wanted_x, wanted = x.detach().double().requires_grad_(), weight.detach().double()
    wanted.requires_grad_()
    (1024.0 * F.cross_entropy(wanted_x @ wanted.T, targets)).backward()
    assert (weight.grad - wanted.grad).norm() < 0.01 * wanted.grad.norm()
    assert (x.grad - wanted_x.grad).norm() < 0.01 * wanted_x.grad.norm()


def test_exchanging_the_connection_keeps_init_and_weights():
    model = Transformer(**SMALL, placement="post")
    other = model.with_(connection="deepnorm")
    assert str(other.recipe.init) == "gpt2"
    for name, weight in other.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name])


def test_exchanging_the_init_draws_what_an_init_draws_and_keeps_the_rest():
    model = Transformer(**SMALL, placement="post", init="xavier")
    with torch.no_grad():
        model.blocks[0].attention.settle.weight.fill_(3.0)
    other = model.with_(connection="deepnorm", init="deepnorm")
    fresh = Transformer(**SMALL, placement="post", connection="deepnorm")
    name = "blocks.0.mlp.branch.up.weight"
    assert torch.equal(other.state_dict()[name], fresh.state_dict()[name])
    assert not torch.equal(other.state_dict()[name], model.state_dict()[name])
    assert torch.equal(other.blocks[0].attention.settle.weight, torch.full((16,), 3.0))


def test_frozen_weights_stay_frozen_where_they_are_kept():
    model = Transformer(**SMALL)
    model.embedding.requires_grad_(False)
    other = model.with_(connection="rezero", context=9)
    frozen = [name for name, p in other.named_parameters() if not p.requires_grad]
    assert frozen == ["embedding.tokens.weight"]


def test_a_name_a_mapping_and_a_recipe_all_make_a_transformer():
    small = {"depth": 1, "width": 64, "vocabulary": 30, "context": 8}
    named = Transformer("gpt2", **small)
    assert named.recipe == Recipe.named("gpt2").but(**small)
    assert str(named.recipe.head) == "tied"
    assert Transformer(small, depth=2).recipe == Recipe(**small | {"depth": 2})
    with pytest.raises(leadline.UnknownName, match="No recipe is called 'gpt3'"):
        Transformer("gpt3")
    with pytest.raises(RecipeError, match=r"made by a Recipe, the name of one .* not by a int"):
        Transformer(3)


def test_the_default_recipe_is_that_of_no_field():
    assert Recipe.named("default") == Recipe()


def test_a_record_holds_the_recipe_and_the_seed():
    model = Transformer(**SMALL, seed=3, connection="rezero")
    inputs = leadline.random_tokens(model, examples=1, length=4, seed=0)
    said = leadline.measure(model, inputs, probes="stream").provenance["model"]
    assert Recipe.from_json(said["recipe"]) == model.recipe
    assert said["seed"] == 3


def test_a_law_has_neither_keep_nor_gain_in_json():
    plain, gated = (
        Transformer(**SMALL, connection=name).anatomy().to_json()["layers"][0]["sublayers"][0]
        for name in ("identity", "gated")
    )
    assert (plain["keep"], plain["gain"], plain["law"]) == (1.0, 1.0, None)
    assert (gated["keep"], gated["gain"]) == (None, None)
    assert gated["law"] == "x + sigmoid(W x) u"


@pytest.mark.parametrize("scale", ["0", "-1.0"])
def test_attention_needs_a_scale_above_zero(scale):
    with pytest.raises(RecipeError, match="give a number above 0"):
        Transformer(**SMALL, attention=f"multihead(scale={scale})")


def test_other_things_than_models_and_folders_are_refused():
    with pytest.raises(LoadingError, match="A NoneType was given"):
        Transformer.from_hf(None)
    with pytest.raises(LoadingError, match=r"give torch\.float32"):
        Transformer.from_hf("folder", dtype="float32")


@pytest.mark.parametrize(
    ("fields", "part"), [({"head": "none"}, "head"), ({"embedding": "none"}, "embedding")]
)
def test_a_model_that_lacks_an_end_cannot_generate(fields, part):
    with pytest.raises(InputError, match=f"without {part} cannot generate"):
        Transformer(**SMALL, **fields).generate(IDS, steps=1)


def test_a_tiny_temperature_is_greedy_and_wrong_types_get_sentences():
    model = Transformer(**SMALL)
    ids = IDS[:, :3]
    assert torch.equal(
        model.generate(ids, steps=3, temperature=1e-310), model.generate(ids, steps=3)
    )
    for wrong in ({"temperature": "hot"}, {"temperature": 1.0, "top_p": "a"}):
        with pytest.raises(InputError):
            model.generate(ids, steps=1, **wrong)
    with pytest.raises(InputError, match="The ids are a list"):
        model.generate([[1]], steps=1)
    with pytest.raises(InputError, match="one example and one token at least"):
        model.generate(ids[:0], steps=1)
