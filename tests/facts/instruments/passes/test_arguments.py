"""Wrong arguments in Python end in one sentence that names what is wrong, never in torch's words.

What the user's own model, loss or callback raises comes through as the very same object.
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import leadline
from leadline.catalog import load_plugin
from leadline.choice import Choice, split_choices
from leadline.errors import LeadlineError
from leadline.models.inputs import Inputs, as_inputs, text_file, token_file
from leadline.models.loading import LoadedModel

WIDTH = 8
# torch wants its scripts to be forgotten; people have them all the same.
scripts = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm(x).mean(1, keepdim=True).expand_as(x))
        return x + self.mlp(self.norm(x))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Speaker(nn.Module):
    """Takes token ids."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.tower = nn.Embedding(20, WIDTH), Tower()

    def forward(self, input_ids):
        return self.tower(self.embedding(input_ids))


X = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(10).reshape(2, 5)
TINY = {"width": 8, "depth": 1, "heads": 2, "vocabulary": 20}
RECORD = leadline.measure(Tower(), X, probes="stream")


def refused(words, function, *args, **options):
    """The sentence, which must hold the words."""
    with pytest.raises(LeadlineError) as caught:
        function(*args, **options)
    said = str(caught.value)
    assert words in said, said
    return said


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def nested_choices(levels):
    value = 1
    for _ in range(levels):
        value = {"name": "a", "x": value}
    return value


# --- seeds ---------------------------------------------------------------------------------------

SEEDED = {
    "measure": lambda seed: leadline.measure(Tower(), X, seed=seed),
    "anatomy_of": lambda seed: leadline.anatomy_of(Tower(), X, seed=seed),
    "random_tokens": lambda seed: leadline.random_tokens(Speaker(), length=4, seed=seed),
    "random_inputs": lambda seed: leadline.random_inputs(Tower(), length=4, seed=seed),
    "jacobian": lambda seed: leadline.jacobian(Tower(), X, seed=seed),
    "lyapunov": lambda seed: leadline.lyapunov(Tower(), X, seed=seed),
    "paths": lambda seed: leadline.paths(Tower(), X, seed=seed),
    "collapse": lambda seed: leadline.collapse(leadline.Transformer(**TINY), IDS, seed=seed),
    "collapse_weights": lambda seed: leadline.collapse_weights(X[0], [], seed=seed),
    "Transformer": lambda seed: leadline.Transformer(**TINY, seed=seed),
    "train": lambda seed: leadline.train(leadline.Recipe(**TINY), seed=seed),
    "Sweep": lambda seed: leadline.Sweep(name="a", grids=(_grid(),), seeds=(seed,)),
}


def _grid():
    return leadline.Sweep.over({"depth": [1]}).grids[0]


@pytest.mark.parametrize("seed", ["a", 1.5, None, True, -1, 2**70, [1], math.nan, b"1"], ids=repr)
@pytest.mark.parametrize("entry", SEEDED)
def test_a_seed_is_a_whole_number(entry, seed):
    refused("A seed is a whole number from 0 on", SEEDED[entry], seed)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_whole_numbers_of_numpy_and_torch_are_seeds(kind):
    plain, other = (leadline.random_tokens(Speaker(), length=4, seed=s) for s in (3, kind(3)))
    assert torch.equal(plain.main, other.main) and type(other.seed) is int
    record = leadline.measure(Speaker(), probes="stream", seed=kind(3))
    assert json.dumps(record.provenance["input"]["seed"]) == "3"
    assert leadline.Transformer(**TINY, seed=kind(3)).seed == 3


# --- inputs --------------------------------------------------------------------------------------

INPUTS = {
    "float ids": (Speaker, IDS.float(), "'input_ids' are float32"),
    "bool ids": (Speaker, IDS > 3, "'input_ids' are bool"),
    "complex ids": (Speaker, IDS.to(torch.complex64), "'input_ids' are complex64"),
    "uint8 ids": (Speaker, IDS.byte(), "'input_ids' are uint8"),
    "int16 ids": (Speaker, IDS.short(), "'input_ids' are int16"),
    "negative ids": (Speaker, -IDS - 1, "Token id -1"),
    "no ids": (Speaker, IDS[:0], "no tokens"),
    "0-d ids": (Speaker, torch.tensor(3), "[example, token]"),
    "sparse ids": (Speaker, IDS.to_sparse(), "'input_ids' is a sparse tensor"),
    "meta ids": (Speaker, IDS.to("meta"), "'input_ids' is on the meta device"),
    "ids inside Inputs": (Speaker, Inputs({"input_ids": IDS.float()}), "are float32"),
    "a list of texts and numbers": (Speaker, [["a"]], "'a' (example 1, token 1) is not a token id"),
    "a list of bools": (Speaker, [[True]], "True (example 1, token 1) is not a token id"),
    "a list of fractions": (Speaker, [[1.5]], "1.5 (example 1, token 1) is not a token id"),
    "a nested list": (Speaker, nested(2000), "is not a token id"),
    "rows of two lengths": (Speaker, [[1, 2], [3]], "unexpected keyword argument 'attention_mask'"),
    "a mask on meta": (Speaker, {"input_ids": IDS, "attention_mask": IDS.to("meta")}, "meta"),
    "an unknown name": (Speaker, {"zzz": IDS}, "Speaker.forward cannot be called with zzz"),
    "a name that is a number": (Speaker, {1: IDS}, "cannot be called with 1"),
    "no tensors": (Speaker, Inputs({}), "no tensors"),
    "Inputs of a text": (Speaker, Inputs({"input_ids": "a"}), "'input_ids' is 'a'"),
    "a number": (Speaker, 5, "The inputs are 5, which cannot be fed"),
    "a stream on meta": (Tower, X.to("meta"), "The input 'x' is on the meta device"),
    "a sparse stream": (Tower, X.to_sparse(), "The input 'x' is a sparse tensor (sparse_coo)"),
    "a nested stream": (
        Tower,
        torch.nested.nested_tensor([X[0], X[1, :3]], layout=torch.jagged),
        "The input 'x' is a nested tensor",
    ),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs_that_no_model_takes(case):
    build, inputs, words = INPUTS[case]
    for entry in (leadline.measure, leadline.anatomy_of, leadline.jacobian, leadline.paths):
        refused(words, entry, build(), inputs)


def test_ids_of_32_bits_are_ids():
    short, long = (leadline.measure(Speaker(), ids, probes="stream") for ids in (IDS.int(), IDS))
    assert list(short["stream.norm"].values) == list(long["stream.norm"].values)


def test_a_model_with_an_embedding_may_take_the_stream_itself():
    class Positions(Tower):
        def __init__(self):
            super().__init__()
            self.positions = nn.Embedding(5, WIDTH)

        def forward(self, x):
            return super().forward(x + self.positions(torch.arange(x.shape[1])))

    assert leadline.measure(Positions(), X, probes="stream")


def test_labels_outside_the_logits_are_refused():
    model = leadline.Transformer(**TINY)
    refused(
        "ids to predict go up to 1009",
        leadline.measure,
        model,
        {"input_ids": IDS, "labels": IDS + 1000},
    )


@pytest.mark.parametrize("number", [0, 1.5, "a", None, True], ids=repr)
@pytest.mark.parametrize("name", ["examples", "length"])
def test_counts_are_whole_numbers(name, number):
    for draw, model in ((leadline.random_tokens, Speaker()), (leadline.random_inputs, Tower())):
        refused(f"{name} is {number!r}", draw, model, **{name: number})


@pytest.mark.parametrize("device", ["zzz", "", ["cpu"]], ids=repr)
def test_a_device_that_is_not_there(device):
    said = refused("cannot be put on the device", Inputs({"x": X}).to, device)
    assert said.endswith("which torch does not know; give one such as 'cpu', 'cuda:0' or 'mps'.")


# --- models --------------------------------------------------------------------------------------


def _on_meta():
    with torch.device("meta"):
        return Tower()


def _partly_on_meta():
    model = Tower()
    model.layers[1].mlp.to("meta")
    return model


def _buffer_on_meta():
    model = Tower()
    model.register_buffer("table", torch.ones(1, device="meta"))
    return model


def _partly_scripted():
    model = Tower()
    model.layers[1] = torch.jit.script(model.layers[1])
    return model


def _lazy():
    model = Tower()
    model.layers[0].mlp = nn.LazyLinear(WIDTH)
    return model


MODELS = {
    "on meta": (_on_meta, "'layers.0.attention.weight' is on the meta device"),
    "partly on meta": (_partly_on_meta, "'layers.1.mlp.weight' is on the meta device"),
    "a buffer on meta": (_buffer_on_meta, "buffer 'table' is on the meta device"),
    "scripted": (lambda: torch.jit.script(Tower()), "compiled by torch.jit"),
    "traced": (lambda: torch.jit.trace(Tower(), X), "compiled by torch.jit"),
    "partly scripted": (_partly_scripted, "'layers.1' is compiled by torch.jit"),
    "exported": (lambda: torch.export.export(Tower(), (X,)).module(), "torch.export"),
    "an exported program": (lambda: torch.export.export(Tower(), (X,)), "torch.export"),
    "lazy": (_lazy, "'layers.0.mlp.weight' has no shape yet"),
    "a list of blocks": (lambda: Tower().layers, "ModuleList has no forward"),
    "a class": (lambda: Tower, "The class Tower was given"),
    "a name": (lambda: "gpt2", "The model is 'gpt2', not a torch module; load it first"),
    "a function": (lambda: Tower().forward, "The model is a method, not a torch module"),
    "nothing": (lambda: None, "The model is None, not a torch module"),
}


@scripts
@pytest.mark.parametrize("case", MODELS)
def test_what_is_no_model_that_can_be_measured(case):
    build, words = MODELS[case]
    model = build()
    for entry in (
        leadline.measure,
        leadline.anatomy_of,
        leadline.jacobian,
        leadline.lyapunov,
        leadline.paths,
    ):
        refused(words, entry, model, X)


@scripts
@pytest.mark.parametrize("case", ["scripted", "a class", "a name", "a function", "nothing"])
def test_what_is_no_model_has_no_inputs_either(case):
    build, words = MODELS[case]
    model = build()
    for draw in (leadline.random_tokens, leadline.random_inputs):
        refused(words, draw, model)
    refused(words, as_inputs, X, model)


def test_a_loaded_model_is_drawn_for_by_its_module():
    loaded = LoadedModel(Speaker(), None, "speaker", "given")
    refused("give its .model", leadline.random_tokens, loaded)


# --- anatomies and declarations ------------------------------------------------------------------


@pytest.mark.parametrize("anatomy", ["layers", {}, [], 5, len], ids=repr)
@pytest.mark.parametrize("entry", ["measure", "anatomy_of", "jacobian", "lyapunov", "paths"])
def test_what_is_no_anatomy(entry, anatomy):
    refused("anatomy is ", getattr(leadline, entry), Tower(), X, anatomy=anatomy)


@pytest.mark.parametrize("entry", ["measure", "jacobian", "lyapunov", "paths"])
def test_the_anatomy_of_another_model(entry):
    other = leadline.anatomy_of(Speaker(), IDS)
    refused("Tower has no 'tower.layers.0'", getattr(leadline, entry), Tower(), X, anatomy=other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"blocks": 5}, "blocks is 5"),
        ({"blocks": None}, "blocks is None"),
        ({"blocks": [5]}, "An entry of blocks is 5"),
        ({"writes": 5}, "writes is 5"),
        ({"writes": []}, "writes is a list; give a list with at least one entry"),
        ({"writes": [None]}, "An entry of writes is None"),
        ({"settle": 5}, "settle is 5"),
        ({"gains": "a"}, "gains is 'a'"),
        ({"gains": ["x"]}, "An entry of gains is 'x'"),
        ({"keeps": [None]}, "An entry of keeps is None"),
        ({"gains": [math.nan]}, "An entry of gains is nan"),
        ({"keeps": [10**400]}, "An entry of keeps is a whole number of 1329 bits"),
        ({"settle": [3]}, "An entry of settle is 3"),
    ],
    ids=str,
)
def test_what_is_no_declaration(options, words):
    refused(words, leadline.declare, **{"blocks": "layers", "writes": ["attention"], **options})


# --- probes, choices, losses, callbacks ----------------------------------------------------------


@pytest.mark.parametrize("probe", ["jacobian", "lyapunov"])
def test_the_seed_of_a_probe_is_checked_like_any_other(probe):
    refused("below 2**63", leadline.measure, Tower(), X, probes=[f"{probe}(seed={2**70})"])


@pytest.mark.parametrize("model", ["gpt2", None, leadline.Transformer], ids=str)
def test_collapse_wants_a_model_too(model):
    refused("model", leadline.collapse, model, torch.randn(3, 4))


@pytest.mark.parametrize(
    "probes",
    [[None], [3], [["stream"]], b"stream", [object], 5, {"stream"}, [{"name": "recall", 1: 2}]],
    ids=repr,
)
def test_what_is_no_probe(probes):
    refused("", leadline.measure, Tower(), X, probes=probes)


@pytest.mark.parametrize(
    "spelling",
    [
        "a(x=" * 3000 + "1" + ")" * 3000,
        "a(x=" + "[" * 5000 + "]" * 5000 + ")",
        nested_choices(3000),
        {"name": "a", "x": nested(5000)},
    ],
    ids=["choices in a text", "lists in a text", "choices", "lists"],
)
def test_choices_are_not_nested_endlessly(spelling):
    refused("hold more than 64", Choice.parse, spelling)
    refused("hold more than 64", leadline.measure, Tower(), X, probes=[spelling])
    refused("", leadline.Recipe, **{**TINY, "connection": spelling})


@pytest.mark.parametrize("spelling", [5, None, [], b"a"], ids=repr)
def test_what_is_no_choice(spelling):
    refused("A choice is a text", Choice.parse, spelling)
    refused("Choices are a text", split_choices, spelling)
    refused("cannot be the name of a choice", Choice, spelling)


LOSSES = {
    "no argument": (lambda: 1, "loss is called with 2 arguments"),
    "one argument": (lambda output: output.sum(), "loss is called with 2 arguments"),
    "three arguments": (lambda output, inputs, x: output.sum(), "loss is called with 2 arguments"),
    "by name only": (lambda *, output, inputs: output.sum(), "loss is called with 2 arguments"),
    "nothing": (
        lambda output, inputs: None,
        "returned None; it must return a tensor with one number.",
    ),
    "a vector": (lambda output, inputs: output[0, 0], f"returned a tensor of shape [{WIDTH}]"),
    "a float": (
        lambda output, inputs: 3.0,
        "returned 3.0; it must return a tensor with one number.",
    ),
    "a complex number": (lambda output, inputs: output.sum() * 1j, "a complex number"),
    "on meta": (lambda output, inputs: torch.zeros((), device="meta"), "meta device"),
    "sparse": (lambda output, inputs: output.sum().reshape(1).to_sparse(), "sparse"),
    "without a gradient": (lambda output, inputs: output.detach().sum(), "carries a gradient"),
    "a number": (5, "No loss is called 5"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_loss_is_one_number_of_output_and_inputs(case):
    loss, words = LOSSES[case]
    refused(words, leadline.measure, Tower(), X, loss=loss)


@pytest.mark.parametrize(
    "progress",
    [5, "a", lambda: None, lambda *, what: None],
    ids=["a number", "a text", "of nothing", "of a keyword"],
)
def test_progress_is_told_three_things(progress):
    model = leadline.Transformer(**TINY)
    for entry in ("measure", "jacobian", "lyapunov", "paths", "collapse"):
        refused("progress is ", getattr(leadline, entry), model, IDS, progress=progress)


class Mine(Exception):
    pass


def _raise(error):
    raise error


@pytest.mark.parametrize("kind", [Mine, TypeError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["loss", "progress", "forward", "hook"])
def test_what_the_users_own_code_raises_comes_through(place, kind):
    mine, model, options = kind("mine"), Tower(), {}
    if place == "loss":
        options = {"loss": lambda output, inputs: _raise(mine)}
    elif place == "progress":
        options = {"progress": lambda what, done, total: _raise(mine)}
    elif place == "forward":
        model.layers[1].mlp.forward = lambda x: _raise(mine)
    else:
        model.layers[1].register_forward_hook(lambda *_: _raise(mine))
    with pytest.raises(kind) as caught:
        leadline.measure(model, X, **options)
    assert caught.value is mine


@pytest.mark.parametrize("text", [5, b"a", "\ud800"], ids=repr)
@pytest.mark.parametrize("name", ["name", "source"])
def test_a_name_is_a_text_that_a_file_can_hold(name, text):
    refused(f"{name} is ", leadline.measure, Tower(), X, **{name: text})


@pytest.mark.parametrize("tolerance", ["a", None, 0, math.nan], ids=repr)
def test_a_tolerance_is_a_number(tolerance):
    refused("A tolerance of ", leadline.jacobian, Tower(), X, tolerance=tolerance)


# --- paths ---------------------------------------------------------------------------------------

PATHS = {
    "NUL": ("a\0b", "NUL character"),
    "too long": ("x" * 5000, "cannot be used: File name too long"),
    "too many folders": ("a/" * 3000, "cannot be used: File name too long"),
    "empty": ("", " is empty"),
    "half a character": ("a\ud800", "a lone surrogate"),
    "bytes": (b"a", "is b'a'; give a text or a pathlib.Path"),
    "a number": (5, "is 5; give a text or a pathlib.Path"),
    "a list": (["a"], "is a list; give a text or a pathlib.Path"),
}
OPENED = {
    "measure": lambda path: leadline.measure(Tower(), X, path=path),
    "Record.open": leadline.Record.open,
    "Record.create": leadline.Record.create,
    "Record.reopen": leadline.Record.reopen,
    "save": RECORD.save,
    "to_csv": RECORD.to_csv,
    "report": lambda path: leadline.report(RECORD, path),
    "train": lambda path: leadline.train(leadline.Recipe(**TINY), path),
    "train, save": lambda path: leadline.train(leadline.Recipe(**TINY), save=path),
    "sweep": lambda path: leadline.sweep(leadline.Sweep.over({"depth": [1]}), path),
    "load": leadline.load,
    "load_plugin": load_plugin,
    "token_file": lambda path: token_file(path, Speaker()),
    "text_file": lambda path: text_file(path, str.split, Speaker()),
    "Transformer.load": leadline.Transformer.load,
    "Transformer.save": lambda path: leadline.Transformer(**TINY).save(path),
}


@pytest.mark.parametrize("case", PATHS)
@pytest.mark.parametrize("entry", OPENED)
def test_a_path_that_no_file_system_takes(entry, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, words = PATHS[case]
    refused(words, OPENED[entry], path)
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for write in (RECORD.to_csv, RECORD.save, lambda path: leadline.report(RECORD, path)):
        refused("not a regular file", write, pipe)
        assert pipe.is_fifo()


def test_a_report_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("a")
    refused("Not a directory", leadline.report, RECORD, tmp_path / "file" / "page.html")


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "not JSON that can be read"),
        ("[" * 100_000 + "]" * 100_000, "not JSON that can be read"),
        ('{"input_ids":' * 100_000, "not JSON that can be read"),
        ("[" * 500 + "1" + "]" * 500, "is not a token id"),
        ("[[NaN]]", "nan (example 1, token 1) is not a token id"),
        (f"[[{'9' * 50}]]", "outside the vocabulary"),
        (f"[[{'9' * 5000}]]", "not JSON that can be read"),
        ("[[true]]", "True (example 1, token 1)"),
        ("null", "no rows of token ids"),
    ],
    ids=lambda text: text[:12],
)
def test_token_files_of_strange_json(text, words, tmp_path):
    (tmp_path / "ids.json").write_text(text)
    refused(words, token_file, tmp_path / "ids.json", Speaker())


def test_a_recipe_file_of_nested_json_is_refused(tmp_path):
    leadline.Transformer(**TINY).save(tmp_path / "model")
    (tmp_path / "model" / "recipe.json").write_text("[" * 100_000)
    refused("not readable as JSON", leadline.Transformer.load, tmp_path / "model")


def _endless():
    value = []
    value += [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (nested(100_000), "more than 64 lists and mappings"),
        (_endless(), "more than 64 lists and mappings"),
        ("\ud800", "a lone surrogate"),
        ({1, 2}, "cannot be kept as JSON"),
        (torch.ones(1), "cannot be kept as JSON"),
        (10**5000, "cannot be kept as JSON"),
    ],
    ids=["deep", "endless", "half a character", "set", "tensor", "huge"],
)
def test_what_the_provenance_cannot_hold(value, words):
    refused(words, leadline.Record().note, "key", value)


def test_what_is_nested_a_little_is_kept():
    record = leadline.Record()
    record.note("key", nested(60))
    assert record.provenance["key"] == nested(60)


# --- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [5, None, b"a", ["stream.norm"], "zzz", slice(None)], ids=repr)
def test_what_is_no_quantity(name):
    refused("No quantity of this record is called", RECORD.__getitem__, name)
    assert name not in RECORD


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantity": 5}, "called 5"),
        ({"quantity": ["a"]}, "called a list"),
        ({"stack": 5}, "stack is 5"),
        ({"step": 2**70}, "step is "),
        ({"step": "a"}, "step is 'a'"),
        ({"layer": 1.5}, "layer is 1.5"),
        ({"seed": torch.ones(2)}, "seed is a Tensor"),
        ({"sublayer": "a"}, "sublayer is 'a'"),
        ({"run": 5}, "run is 5"),
    ],
    ids=str,
)
def test_what_no_reading_is_asked_for_by(options, words):
    refused(words, RECORD.select, **options)


def test_a_layer_of_numpy_is_a_layer():
    assert RECORD.select("stream.norm", layer=np.int64(1)) == RECORD.select("stream.norm", layer=1)


@pytest.mark.parametrize("value", [5, None, "a", [5]], ids=repr)
def test_what_no_record_keeps(value):
    refused("Expected a Quantity", leadline.Record().describe, value)
    refused("Expected a Finding", leadline.Record().add_finding, value)
    refused("Expected", leadline.Record().append, value)


@pytest.mark.parametrize("value", ["a", None, 5, [5]], ids=repr)
def test_what_is_no_record(value):
    refused("", leadline.bounds, value)
    for entry in (leadline.trainability, lambda it: leadline.compare(RECORD, it)):
        refused("Expected a record", entry, value)
    refused("Expected a record", leadline.report, value, "page.html")


@pytest.mark.parametrize("names", [5, "ab", ["a"]], ids=repr)
def test_names_of_records(names):
    refused("name", leadline.compare, RECORD, RECORD, names=names)


def test_a_record_is_saved_and_not_pickled():
    for way in (pickle.dumps, copy.deepcopy, copy.copy):
        refused("record.save(path)", way, RECORD)


def test_results_are_pickled():
    found = leadline.anatomy_of(Tower(), X)
    for result in (
        found,
        leadline.compare(RECORD, RECORD),
        leadline.random_tokens(Speaker(), length=4),
        Choice("a", x=1),
        leadline.Recipe(**TINY),
    ):
        assert repr(pickle.loads(pickle.dumps(result))) == repr(result)
        assert repr(copy.deepcopy(result)) == repr(result)


# --- matrices, training, sweeps ------------------------------------------------------------------


@pytest.mark.parametrize(
    "matrix",
    ["a", None, [[1.0]], torch.eye(3).to_sparse(), torch.eye(3, device="meta"), torch.ones(3)],
    ids=["text", "None", "list", "sparse", "meta", "vector"],
)
def test_what_has_no_singular_values(matrix):
    refused("", leadline.spectral_norm, matrix)
    refused("", leadline.singular_values, matrix)
    refused("", leadline.attention_spectral_norm, matrix, matrix)


@pytest.mark.parametrize("count", [0, 1.5, "a", 99, True], ids=repr)
def test_how_many_singular_values(count):
    refused("singular values were asked for", leadline.singular_values, torch.eye(3), count=count)


def test_what_cannot_be_trained():
    recipe = leadline.Recipe(**TINY)
    refused("A training is", leadline.train, recipe, training=5)
    refused("fields", leadline.Recipe.from_json, 5)
    for what in (5, None, "a", {}):
        refused("leadline.Sweep", leadline.sweep, what, "sweep.leadline")
        refused("A sweep in JSON", leadline.Sweep.from_json, what)
    for axes in (5, None, "a", ["depth=1"]):
        refused("The axes of a sweep", leadline.Sweep.over, axes)
    refused("give a list of values", leadline.Sweep.over, {"depth": 3})
    for seeds in (0, 1.5, "a", None, True):
        refused("seeds is ", leadline.Sweep.over, {"depth": [1]}, seeds=seeds)
