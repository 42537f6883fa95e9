"""The commands that run a model: measure and anatomy, with good input and with bad."""

import json
import sqlite3

import numpy as np
import pytest
import torch

from leadline.record import Record

TINY = ["n_layer=2", "n_embd=16", "n_head=2", "vocab_size=50", "n_positions=32"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny GPT-2 with a tokenizer that knows a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    config = GPT2Config(
        n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=32, eos_token_id=0
    )
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(path)
    words = ["<unk>", "the", "sea", "is", "deep", "and", "cold"]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(path)
    return path


@pytest.fixture
def tiny():
    """The arguments for a tiny GPT-2 with random weights and a small random input."""
    return ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY), "--random", "2x8"]


def test_measure_saves_a_record_and_a_page_and_says_where(leadline, tiny, tmp_path):
    record, page = tmp_path / "a.leadline", tmp_path / "a.html"
    said = leadline("measure", *tiny, "-o", record, "--html", page)
    assert said.code == 0, said.err
    assert f"The record is in {record}" in said.out
    assert f"The report is in {page}" in said.out
    assert "2 layers, 4 sublayers" in said.out
    assert Record.open(record).provenance["input"]["examples"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.leadline"]


def test_measure_prints_json_alone(leadline, tiny):
    said = leadline("measure", *tiny, "--json")
    found = json.loads(said.out)
    assert found["anatomy"]["layers"] == 2
    assert len(found["quantities"]["stream.norm"]) == 3
    assert said.err == ""


def test_measure_is_silent_when_asked(leadline, tiny, tmp_path):
    said = leadline("measure", *tiny, "-o", tmp_path / "a.leadline", "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")
    assert (tmp_path / "a.leadline").exists()


def test_measure_says_that_it_runs_in_one_process(leadline, tiny, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "call leadline.measure(model, inputs) in every process" in " ".join(
        leadline("measure", *tiny).err.split()
    )


def test_measure_without_an_output_says_how_to_keep_the_record(leadline, tiny):
    assert "Not saved; -o FILE.leadline keeps the record" in leadline("measure", *tiny).err


def test_measure_takes_a_text(leadline, folder):
    found = json.loads(leadline("measure", folder, "--text", "the sea is deep", "--json").out)
    assert found["input"]["kind"] == "text"
    assert found["input"]["tokens"] == 4


def test_measure_takes_a_text_file_in_windows(leadline, folder, tmp_path):
    file = tmp_path / "sea.txt"
    file.write_text("the sea is deep and cold " * 20)
    asked = ("measure", folder, "--text-file", file, "--windows", "3x10", "--json")
    found = json.loads(leadline(*asked).out)
    assert found["input"]["examples"] == 3
    assert found["input"]["longest"] == 10


def test_measure_takes_a_token_file(leadline, folder, tmp_path):
    file = tmp_path / "tokens.npy"
    np.save(file, np.arange(12).reshape(2, 6))
    found = json.loads(leadline("measure", folder, "--tokens-file", file, "--json").out)
    assert found["input"]["tokens"] == 12


def test_measure_takes_the_probes_that_are_named(leadline, tiny):
    said = leadline("measure", *tiny, "--probes", "stream,recall(ridge=0.01)", "--json")
    found = json.loads(said.out)
    assert "memory.r2" in found["quantities"]
    assert "update.norm" not in found["quantities"]
    assert found["provenance"]["probes"] == ["stream", "recall(ridge=0.01)"]


def test_measure_leaves_out_one_block_after_the_other(leadline, tiny):
    found = json.loads(leadline("measure", *tiny, "--ablate", "block", "--json").out)
    assert len(found["quantities"]["ablation.block"]) == 2


def test_measure_takes_a_declaration_from_a_file_or_as_json(leadline, tiny, tmp_path):
    text = json.dumps({"blocks": "transformer.h", "writes": ["attn", "mlp"]})
    file = tmp_path / "declaration.json"
    file.write_text(text)
    for given in (text, file):
        found = json.loads(leadline("measure", *tiny, "--declare", given, "--json").out)
        assert found["anatomy"]["source"] == "user"


def test_anatomy_prints_the_equation_of_every_sublayer(leadline, tiny):
    said = leadline("anatomy", *tiny)
    assert said.code == 0, said.err
    assert "balance: " in said.out
    assert "attention: x <- x + attn" in said.out
    assert "mlp: x <- x + mlp" in said.out


def test_anatomy_prints_json_alone(leadline, tiny):
    found = json.loads(leadline("anatomy", *tiny, "--json").out)
    assert found["sublayers"] == 4
    assert found["balance_eps"] <= 4


def test_what_is_unusual_is_said_by_anatomy_and_measure(leadline):
    granite = ["num_hidden_layers=2", "hidden_size=16", "intermediate_size=32", "vocab_size=50"]
    granite += ["num_attention_heads=2", "num_key_value_heads=2", "residual_multiplier=0.5"]
    chosen = ["--random-init", "granite", *(f"--set={pair}" for pair in granite)]
    sentence = "Every layer adds 0.5 x what 'self_attn' and 'mlp' return."
    for command in ("anatomy", "measure"):
        said = leadline(command, *chosen, "--random", "2x8")
        assert said.code == 0, said.err
        assert f"unusual: {sentence}" in said.out
    found = json.loads(leadline("measure", *chosen, "--random", "2x8", "--json").out)
    assert found["anatomy"]["unusual"] == [sentence]


def test_a_model_that_talks_does_not_disturb_the_json(leadline, tmp_path):
    code = tmp_path / "talking_model.py"
    code.write_text(
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "def make():\n"
        "    print('Hello!')\n"
        "    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50))\n"
    )
    said = leadline("measure", f"{code}:make", "--random", "2x8", "--json")
    assert json.loads(said.out)["anatomy"]["layers"] == 2
    assert "Hello!" in said.err


# --- bad input: one sentence, exit code 2, nothing half-written --------------------------------


@pytest.fixture
def refused(leadline, tmp_path):
    """Run a command that must be refused; return the sentence."""

    def call(*arguments):
        before = sorted(path.name for path in tmp_path.rglob("*"))
        said = leadline(*arguments)
        assert said.code == 2, said
        assert said.out == ""
        assert said.err.startswith("leadline: ")
        assert said.err.count("\n") == 1
        assert "Traceback" not in said.err
        assert sorted(path.name for path in tmp_path.rglob("*")) == before
        return said.err

    return call


def write_function(folder, body):
    """Write a file with a function `make` that returns a module, and return its address."""
    file = folder / "made_here.py"
    file.write_text(f"import torch\nfrom torch import nn\n{body}\n")
    return f"{file}:make"


def test_what_is_not_a_transformer_is_refused(refused, tmp_path):
    address = write_function(
        tmp_path, "def make(): return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))"
    )
    refused("measure", address, "-o", tmp_path / "a.leadline")


def test_a_model_without_repeated_blocks_is_refused(refused, tmp_path):
    address = write_function(
        tmp_path,
        "class One(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.words = nn.Embedding(50, 8)\n"
        "        self.out = nn.Linear(8, 50)\n"
        "    def forward(self, input_ids):\n"
        "        return self.out(self.words(input_ids))\n"
        "def make(): return One()",
    )
    tokens = tmp_path / "tokens.json"
    tokens.write_text("[[1, 2, 3, 4], [5, 6, 7, 8]]")
    sentence = refused("measure", address, "--tokens-file", tokens, "-o", tmp_path / "a.leadline")
    assert "block" in sentence


def test_an_empty_text_is_refused(refused, folder):
    assert "empty" in refused("measure", folder, "--text", "  ")


def test_a_text_longer_than_the_context_is_refused_and_can_be_cut(refused, leadline, folder):
    text = "the sea " * 30
    sentence = refused("measure", folder, "--text", text)
    assert "32" in sentence
    assert "truncate" in sentence
    cut = leadline("measure", folder, "--text", text, "--truncate", "--json")
    assert json.loads(cut.out)["input"]["longest"] == 32


def test_a_token_outside_the_vocabulary_is_refused(refused, folder, tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text("1 2 3\n4 50 6\n")
    sentence = refused("measure", folder, "--tokens-file", file)
    assert "50" in sentence


def test_weights_that_are_not_numbers_are_named_with_the_first_site_they_reach(refused, tmp_path):
    address = write_function(
        tmp_path,
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    config = GPT2Config(n_layer=3, n_embd=16, n_head=2, vocab_size=50, n_positions=32)\n"
        "    model = GPT2LMHeadModel(config)\n"
        "    with torch.no_grad(): model.transformer.h[1].mlp.c_fc.weight[0, 0] = float('nan')\n"
        "    return model",
    )
    sentence = refused("measure", address, "--random", "2x8", "-o", tmp_path / "a.leadline")
    assert "transformer.h.1.mlp.c_fc.weight" in sentence
    assert "layer 2" in sentence


def test_a_truncated_safetensors_file_is_refused(refused, folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "model.safetensors" in refused("measure", broken, "-o", tmp_path / "a.leadline")


def test_a_pickle_is_refused_and_never_opened(refused, folder, tmp_path):
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_bytes((folder / "config.json").read_bytes())
    (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    sentence = refused("measure", pickled, "-o", tmp_path / "a.leadline")
    assert "pickle" in sentence.lower()
    assert "safetensors" in sentence


def test_a_record_of_a_newer_schema_is_refused(refused, leadline, tiny, tmp_path):
    file = tmp_path / "a.leadline"
    leadline("measure", *tiny, "-o", file, "--quiet")
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "newer leadline (schema 99" in refused("report", file)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-o", "{here}"], "it is a folder"),
        (["-o", "{here}/missing/a.leadline"], "does not exist"),
        (["-o", "{here}/a.html"], "looks like a page"),
        (["-o", "{here}/notes.txt"], "is not a record, so it is not overwritten"),
        (["--html", "{here}/missing/a.html"], "does not exist"),
        (["--html", "{here}/a.leadline"], "must end in .html"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    refused, tiny, tmp_path, monkeypatch, options, sentence
):
    def too_late(*_, **__):
        pytest.fail("the model was loaded")

    monkeypatch.setattr("leadline.models.loading.load_model", too_late)
    (tmp_path / "notes.txt").write_text("precious")
    options = [option.format(here=tmp_path) for option in options]
    assert sentence in refused("measure", *tiny, *options)
    assert (tmp_path / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--probes", "strem"], "No probe is called 'strem'. Did you mean 'stream' or 'extremes'?"),
        (["--probes", "recall(rigde=1)"], "has no option 'rigde'. Did you mean 'ridge'?"),
        (["--probes", "stream("], "Cannot read the choice 'stream('"),
        (["--set", "n_layers=3"], "n_layer"),
        (["--set", "n_layer"], "is not KEY=VALUE"),
        (["--text", "hello"], "not --text and --random together"),
        (["--plugin", "nowhere.py"], "is not a file"),
        (["--declare", "{"], "is not JSON"),
        (["--declare", "nowhere.json"], "cannot be read"),
        (["--declare", '{"block": "h"}'], "must be an object with blocks and writes"),
        (["--declare", '{"blocks": "transformer.x", "writes": ["attn"]}'], "transformer.x"),
        (["--declare", '{"blocks": "transformer.h", "writes": ["attn"]}'], "balance"),
        (["--device", "nowhere"], "nowhere"),
        (["--dtype", "float31"], "float31"),
        (["gpt2"], "two were given"),
    ],
)
def test_a_wrong_option_is_answered_with_what_to_do(refused, tiny, options, sentence):
    assert sentence in refused("measure", *tiny, *options)


def test_a_model_that_is_not_named_is_asked_for(refused):
    assert "none was given" in refused("measure")


def test_an_unknown_model_type_is_answered_with_the_nearest(refused):
    assert "Did you mean 'gpt2'" in refused("measure", "--random-init", "gpt22")


REFUSING = """
import torch

class Own(Exception):
    pass

class Sighted(torch.nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error
        self.embedding = torch.nn.Embedding(11, 8)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, input_ids, pixel_values=None):
        raise self.error

def sighted():
    return Sighted(ValueError("You have to specify pixels"))

def odd():
    return Sighted(Own("Something of my own"))
"""


def test_a_model_that_refuses_its_inputs_is_one_sentence(leadline, tmp_path, monkeypatch):
    (tmp_path / "refusing_models.py").write_text(REFUSING)
    monkeypatch.syspath_prepend(tmp_path)
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("1 2 3\n4 5 6\n")
    for more in ((), ("--tokens-file", tokens), ("--random", "2x5")):
        said = leadline("measure", "refusing_models:sighted", *more)
        assert said.code == 2 and said.out == ""
        assert said.err.startswith("leadline: Sighted refused the inputs that were made for it")
        assert "ValueError: You have to specify pixels. Its forward also takes pixel_values." in (
            said.err
        )
        assert "Traceback" not in said.err and "Unexpected" not in said.err


def test_an_exception_class_of_the_users_own_is_told_as_the_models(leadline, tmp_path, monkeypatch):
    (tmp_path / "odd_models.py").write_text(REFUSING)
    monkeypatch.syspath_prepend(tmp_path)
    said = leadline("measure", "odd_models:odd")
    assert said.code == 2
    assert said.err.startswith("leadline: The model's own code raised Own in its forward pass")
    assert (
        "Something of my own. Check the model's forward or its inputs; --debug shows the traceback."
    ) in said.err
    assert "Traceback" in leadline("measure", "odd_models:odd", "--debug").err
