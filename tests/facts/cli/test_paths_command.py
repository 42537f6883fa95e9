"""`leadline paths`: its table, its files, its refusals."""

import io
import json

import pytest
import torch
from rich.console import Console

import leadline as ll
from leadline.instruments.paths.picture import picture_of_paths
from leadline.instruments.paths.result import Paths, Shares
from leadline.instruments.paths.text import BRIEF_CAVEAT

TINY = ["n_layer=2", "n_embd=16", "n_head=2", "vocab_size=50", "n_positions=32"]


@pytest.fixture
def tiny():
    """The arguments for a tiny GPT-2 with random weights and a small random input."""
    return ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY), "--random", "2x8"]


@pytest.fixture(scope="module")
def found():
    model = ll.Transformer(depth=2, width=16, heads=2, vocabulary=50)
    return ll.paths(model, torch.arange(8)[None], samples=2).paths


def on_terminal(found, width):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None, _environ={})
    found.screen(everything=False).show(console)
    return file.getvalue()


def test_the_table_the_remainder_and_the_caveat_are_printed(leadline, tiny):
    said = leadline("paths", *tiny)
    assert said.code == 0, said.err
    assert said.err == ""
    first, _, rest = said.out.partition("\n\n")
    assert first.startswith("More than 99% of the output and ")
    assert len(first.splitlines()) == 2 and first.endswith(".")
    lines = rest.splitlines()
    assert lines[0].startswith("Paths by length: ")
    assert lines[1].startswith("2 attention layers, 2 heads each, 9 paths; float32, 2 examples")
    assert lines[3].split("  ")[0] == "hops"
    assert [line.split()[:2] for line in lines[4:7]] == [["0", "1"], ["1", "4"], ["2", "4"]]
    assert any(line.startswith("Remainder: output ") for line in lines)
    assert lines[-1] == BRIEF_CAVEAT


def test_json_stands_alone(leadline, tiny):
    said = leadline("paths", *tiny, "--json", "--samples", "2")
    data = json.loads(said.out)
    assert said.err == ""
    assert data["counts"] == [1, 4, 4]
    assert len(data["loss_at_most"]) == 3
    assert data["sampled"]["samples"] == 2


def test_quiet_prints_nothing_and_files_are_written(leadline, tiny, tmp_path):
    numbers, picture = tmp_path / "p.json", tmp_path / "p.svg"
    said = leadline("paths", *tiny, "--quiet", "-o", numbers)
    assert (said.code, said.out, said.err) == (0, "", "")
    assert json.loads(numbers.read_text())["depth"] == 2
    said = leadline("paths", *tiny, "-o", picture, "--no-logits")
    assert f"The picture is in {picture}" in said.out
    assert "of logits" not in said.out and "loss up to here" not in said.out
    assert picture.read_text().startswith("<svg")


def test_the_record_and_the_page_are_written(leadline, tiny, tmp_path):
    record, page = tmp_path / "p.leadline", tmp_path / "p.html"
    said = leadline("paths", *tiny, "-o", record, "--html", page)
    assert said.code == 0, said.err
    assert f"The record is in {record}\nThe report is in {page}" in said.out
    assert ll.Record.open(record).paths.counts == (1, 4, 4)
    assert "Share of the paths of one length" in page.read_text()
    assert leadline("report", record, "-o", tmp_path / "again.html").code == 0
    compared = leadline("compare", record, record)
    assert compared.code == 0 and "path.share[logits]" in compared.out


def test_the_first_screen_has_the_largest_shares_and_all_shows_the_others():
    share = (0.02,) * 19 + (0.62,)
    tensor = Shares(norm=1.0, norm_share=share, share=share, remainder=0.0, remainder_eps=0.0)
    deep = Paths(model="m", dtype="float32", heads=(1,) * 19, counts=None, output=tensor)
    few = on_terminal(deep, 80)
    assert "12 of 20 rows, the largest shares; all: --all or print(record.paths)" in few
    assert few.partition("\nhops")[2].count("0.02") == 11 * 2 and "\n19 " in few
    file = io.StringIO()
    deep.screen().show(Console(file=file, width=80, _environ={}))
    assert file.getvalue().partition("\nhops")[2].count("0.02") == 19 * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "p.png"], "must end in .leadline, .json or .svg"),
        (["-o", "nowhere/p.svg"], "does not exist"),
        (["--random", "x"], "is not a size"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(leadline, tiny, options, words):
    said = leadline("paths", *tiny, *options)
    assert said.code == 2 and said.out == ""
    assert words in said.err


def test_a_model_that_is_not_affine_when_frozen_is_a_sentence(leadline):
    said = leadline(
        "paths", "--recipe", "default", "--set=depth=2", "--set=width=16", "--set=norm=dyt"
    )
    assert said.code == 2 and said.out == ""
    assert said.err.count("\n") == 1
    assert "not affine when frozen" in said.err and "'tanh'" in said.err


def test_a_recipe_is_taken_apart(leadline):
    said = leadline(
        "paths", "--recipe", "default", "--set=depth=2", "--set=width=16", "--random=1x4", "--json"
    )
    assert json.loads(said.out)["depth"] == 2


def test_a_narrow_terminal_gets_fewer_columns(found):
    wide, middle, narrow = (on_terminal(found, width) for width in (140, 80, 50))
    assert "error of sampling" in wide and "paths" in wide.partition("\nhops")[2].splitlines()[0]
    assert "error of sampling" not in middle
    assert "of logits" in narrow
    assert "|Z|/|X|" not in narrow


def test_the_picture_has_a_line_for_each_tensor(found):
    picture = picture_of_paths(found)
    for name in ("output", "residual", "logits", "hops"):
        assert name in picture
