"""Leadline's own format: any recipe is saved and loaded, and what is wrong is said."""

from __future__ import annotations

import json

import pytest
import torch

from leadline.errors import LoadingError, RecipeError, UnknownName
from leadline.parts import Recipe, Transformer
from leadline.parts.checkpoints import RECIPE_FILE, save
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.placements import PLACEMENTS

safetensors = pytest.importorskip("safetensors.torch")

TINY = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 23, "context": 12}
IDS = torch.arange(10).view(2, 5)


def _model(**fields):
    model = Transformer(**{**TINY, **fields}, seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.empty(weight.shape).normal_(0, 0.1, generator=generator))
    return model.eval()


def _refusal(call, *arguments, kind=RecipeError):
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("connection", CONNECTIONS.names())
def test_a_model_of_any_connection_comes_back_bit_by_bit(connection, tmp_path):
    refuses = CONNECTIONS.get(connection).refuses
    placement = next(p for p in ("pre", "post") if refuses(PLACEMENTS.build(p), 2) is None)
    model = _model(connection=connection, placement=placement)
    model.save(tmp_path / "folder")
    other = Transformer.load(tmp_path / "folder")
    assert other.recipe == model.recipe and other.seed == 3
    assert not other.training
    assert other.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    assert torch.equal(other(IDS), model(IDS))


def test_the_folder_holds_a_recipe_and_weights_that_others_can_read(tmp_path):
    model = _model(connection="rezero")
    save(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "recipe.json"]
    content = json.loads((tmp_path / RECIPE_FILE).read_text())
    assert (content["format"], content["version"], content["seed"]) == ("leadline", 1, 3)
    assert Recipe.from_json(content["recipe"]) == model.recipe
    stored = safetensors.load_file(tmp_path / "model.safetensors")
    assert stored.keys() == model.state_dict().keys()
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_number_type_is_kept(dtype, tmp_path):
    model = _model(positions="rotary").to(dtype)
    save(model, tmp_path)
    other = Transformer.load(tmp_path)
    assert {tensor.dtype for tensor in other.parameters()} == {dtype}
    kept = other.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())
    # Not to the bit: a product may take another route where a file was read to another address.
    torch.testing.assert_close(other(IDS), model(IDS))


def test_several_number_types_are_kept_too(tmp_path):
    model = _model(connection="rezero")
    model.embedding.positions.double()
    save(model, tmp_path)
    other = Transformer.load(tmp_path)
    kinds = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    assert {name: tensor.dtype for name, tensor in other.state_dict().items()} == kinds
    assert len(set(kinds.values())) == 2


class Buffered(Connection):
    """A connection with a constant that is not stored."""

    def __init__(self, place):
        super().__init__(place)
        self.register_buffer("share", torch.full((), 0.5), persistent=False)

    def write(self, state, update):
        return state + self.share * update


def test_what_is_not_stored_takes_the_number_type_of_the_rest(tmp_path, monkeypatch):
    monkeypatch.setitem(CONNECTIONS._entries, "buffered", Buffered)
    model = _model(connection="buffered").to(torch.bfloat16)
    save(model, tmp_path)
    other = Transformer.load(tmp_path)
    assert {buffer.dtype for buffer in other.buffers()} == {torch.bfloat16}
    assert torch.equal(other(IDS), model(IDS))


@pytest.mark.parametrize("seed", ["absent", "text"])
def test_without_a_seed_it_is_0(seed, tmp_path):
    save(_model(), tmp_path)
    content = json.loads((tmp_path / RECIPE_FILE).read_text()) | {"seed": "text"}
    if seed == "absent":
        del content["seed"]
    (tmp_path / RECIPE_FILE).write_text(json.dumps(content))
    assert Transformer.load(tmp_path).seed == 0


def test_no_weight_is_drawn_only_to_be_replaced(tmp_path, monkeypatch):
    save(_model(head="tied"), tmp_path / "own")
    _model(head="tied").to_hf(tmp_path / "hf")

    def drawn(_):
        raise AssertionError("a weight was drawn")

    monkeypatch.setattr(Transformer, "_fill", drawn)
    assert torch.equal(
        Transformer.load(tmp_path / "own")(IDS), Transformer.from_hf(tmp_path / "hf")(IDS)
    )


def test_a_tensor_that_several_parts_share_is_stored_under_every_name(tmp_path):
    model = _model(connection="rezero")
    first, *others = (sublayer.connection for sublayer in model.sublayers())
    for other in others:
        other.alpha = first.alpha
    save(model, tmp_path / "in" / "folders")
    stored = safetensors.load_file(tmp_path / "in" / "folders" / "model.safetensors")
    found = [tensor for name, tensor in stored.items() if name.endswith(".alpha")]
    assert len(found) == 4 and all(tensor == first.alpha for tensor in found)
    assert torch.equal(Transformer.load(tmp_path / "in" / "folders")(IDS), model(IDS))


def test_a_loaded_model_can_be_trained_and_saved_over_itself(tmp_path):
    save(_model(), tmp_path)
    model = Transformer.load(tmp_path)
    model.loss(IDS).backward()
    with torch.no_grad():
        for weight in model.parameters():
            assert weight.grad is not None
            weight.sub_(weight.grad)
    save(model, tmp_path)
    assert torch.equal(Transformer.load(tmp_path)(IDS), model(IDS))


def test_an_interrupted_save_leaves_the_old_model_whole(tmp_path, monkeypatch):
    model = _model()
    save(model, tmp_path)

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(safetensors, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save(_model(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "recipe.json"]
    assert torch.equal(Transformer.load(tmp_path)(IDS), model(IDS))


# Bad input ----------------------------------------------------------------------------------------


def test_a_folder_with_another_model_is_not_overwritten(tmp_path):
    save(_model(), tmp_path)
    assert "a model of another recipe, which would be lost" in _refusal(
        save, _model(connection="rezero"), tmp_path
    )
    assert torch.equal(Transformer.load(tmp_path)(IDS), _model()(IDS))


def test_a_folder_with_another_format_is_not_overwritten(tmp_path):
    _model(head="tied").to_hf(tmp_path)
    assert "a model of another format" in _refusal(save, _model(head="tied"), tmp_path)
    (tmp_path / "config.json").unlink()
    assert "a model of another format" in _refusal(save, _model(head="tied"), tmp_path)
    (tmp_path / "file").write_text("")
    assert "is a file" in _refusal(save, _model(), tmp_path / "file")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "is of version 2, and this Leadline reads version 1"),
        ({"format": "other"}, "was not written by save"),
        ({"recipe": None}, "was not written by save"),
    ],
)
def test_another_version_or_format_is_refused(change, sentence, tmp_path):
    save(_model(), tmp_path)
    content = json.loads((tmp_path / RECIPE_FILE).read_text()) | change
    (tmp_path / RECIPE_FILE).write_text(json.dumps(content))
    assert sentence in _refusal(Transformer.load, tmp_path, kind=LoadingError)


def test_folders_without_a_model_are_refused(tmp_path):
    assert "There is no folder" in _refusal(Transformer.load, tmp_path / "none", kind=LoadingError)
    assert "has no recipe.json" in _refusal(Transformer.load, tmp_path, kind=LoadingError)
    (tmp_path / "config.json").write_text("{}")
    assert "use from_hf" in _refusal(Transformer.load, tmp_path, kind=LoadingError)
    (tmp_path / "config.json").unlink()
    save(_model(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "has no weights" in _refusal(Transformer.load, tmp_path, kind=LoadingError)
    (tmp_path / "weights.bin").write_bytes(b"")
    assert "are a pickle (weights.bin)" in _refusal(Transformer.load, tmp_path, kind=LoadingError)
    (tmp_path / RECIPE_FILE).write_text("{")
    assert "not readable as JSON" in _refusal(Transformer.load, tmp_path, kind=LoadingError)
    (tmp_path / RECIPE_FILE).write_text("[]")
    assert "holds no mapping" in _refusal(Transformer.load, tmp_path, kind=LoadingError)


def _stored(folder):
    return safetensors.load_file(folder / "model.safetensors")


def _store(folder, tensors):
    safetensors.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("norm.bias"), "norm.bias is missing"),
        (
            lambda t: [t.pop(k) for k in list(t) if "blocks.1.mlp" in k],
            "recipe: blocks.1.mlp.enter.weight, blocks.1.mlp.enter.bias, "
            "blocks.1.mlp.branch.up.weight and 3 more are missing",
        ),
        (
            lambda t: [t.pop(k) for k in list(t) if k.startswith(("norm", "embedding.tokens"))],
            "recipe: embedding.tokens.weight, norm.weight, norm.bias are missing.",
        ),
        (lambda t: t.update(more=torch.ones(1)), "more is not expected"),
        (
            lambda t: t.update({"norm.bias": torch.ones(17)}),
            "norm.bias is stored as [17], and [16] is needed",
        ),
        (
            lambda t: t.update({"norm.bias": torch.ones(16, dtype=torch.int32)}),
            "norm.bias is stored as torch.int32, and torch.float32 is needed",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, sentence, tmp_path):
    save(_model(), tmp_path)
    tensors = _stored(tmp_path)
    change(tensors)
    _store(tmp_path, tensors)
    found = _refusal(Transformer.load, tmp_path)
    assert "do not fit its recipe" in found and sentence in found


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    save(_model(), tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:500])
    assert "cut short or damaged (500 bytes" in _refusal(
        Transformer.load, tmp_path, kind=LoadingError
    )


def test_a_part_that_is_not_there_is_named(tmp_path):
    save(_model(connection="rezero"), tmp_path)
    text = (tmp_path / RECIPE_FILE).read_text().replace('"rezero"', '"rezeroo"')
    (tmp_path / RECIPE_FILE).write_text(text)
    assert "Did you mean 'rezero'" in _refusal(Transformer.load, tmp_path, kind=UnknownName)
