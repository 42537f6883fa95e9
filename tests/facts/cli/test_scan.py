"""`leadline scan`: what it takes, what it prints, what it refuses; and one checkpoint of its record."""

import json

import pytest

from leadline.lab.engines import ENGINES
from leadline.record import Record
from tests.scanned import HereEngine, train_run
from tests.synthetic_scan import broken_run


@pytest.fixture
def engine(monkeypatch):
    made = type("Here", (HereEngine,), {"ran": []})
    ENGINES.names()
    monkeypatch.setitem(ENGINES._entries, "here", made)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with two checkpoints of a run."""
    return train_run(tmp_path_factory.mktemp("trained"), [1, 2])


@pytest.fixture
def file(tmp_path):
    """The record of a scan with unhealthy checkpoints."""
    path = tmp_path / "s.leadline"
    with broken_run() as record:
        record.save(path)
    return path


def test_a_scan_says_its_answer_its_table_and_where_it_is(leadline, engine, trained, tmp_path):
    path, page = tmp_path / "s.leadline", tmp_path / "s.html"
    said = leadline("scan", trained, "--engine", "here", "-o", path, "--html", page)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith(("Both checkpoints are healthy.", "Of 2 checkpoints, "))
    assert any(line.startswith("checkpoint-2     2  ") for line in lines)
    assert f"The record is in {path}" in lines and f"The report is in {page}" in lines
    assert lines[-1].startswith(f"One of them alone: `leadline diagnose {path}:checkpoint-")
    assert "Scan of 2 checkpoints" in page.read_text()
    again = leadline("scan", trained, "--engine", "here", "-o", path, "--json")
    assert "2 of 2 checkpoints were measured before." in again.err
    made = json.loads(again.out)
    assert [one["name"] for one in made["checkpoints"]] == ["checkpoint-1", "checkpoint-2"]
    assert engine.ran == ["checkpoint-1", "checkpoint-2"]
    diagnosed = leadline("diagnose", f"{path}:checkpoint-1", "--json")
    assert json.loads(diagnosed.out)["answer"] == made["checkpoints"][0]["answer"]


def test_broken_ones_are_told_while_the_others_go_on(leadline, engine, trained, tmp_path):
    (tmp_path / "list.txt").write_text(f"{trained / 'checkpoint-1'}\n./nowhere\n")
    path = tmp_path / "s.leadline"
    arguments = ("scan", tmp_path / "list.txt", "--engine", "here", "-o", path, "--random", "2x8")
    said = leadline(*arguments)
    assert said.code == 0
    assert "1 could not be measured" in said.out.splitlines()[0]
    assert "./nowhere (refused): There is no folder and no file nowhere" in said.out
    failed = leadline(*arguments, "--quiet", "--fail-on", "serious")
    assert (failed.code, failed.out, failed.err) == (1, "", "")
    moved = leadline("scan", trained, "--engine", "here", "-o", path, "--random", "2x8")
    assert "not among these sources, so dropped from the record: ./nowhere." in moved.err
    one = leadline("scan", trained / "checkpoint-1", *arguments[2:])
    assert "and not among these sources, kept as they were: checkpoint-2." in one.err


def test_a_scan_that_could_measure_nothing_fails(leadline, engine, tmp_path):
    said = leadline("scan", tmp_path / "nosuch", "--engine", "here", "-o", tmp_path / "s.leadline")
    assert said.code == 1
    assert "nosuch" in said.out


def test_changed_files_are_said(leadline, engine, trained, tmp_path):
    folder = train_run(tmp_path / "run", [1])
    arguments = ("scan", folder, "--engine", "here", "-o", tmp_path / "s.leadline", "--no-twin")
    assert leadline(*arguments).code == 0
    weights = trained / "checkpoint-2" / "model.safetensors"
    (folder / "checkpoint-1" / "model.safetensors").write_bytes(weights.read_bytes())
    assert "Changed since, so measured again: checkpoint-1." in leadline(*arguments).err


def test_an_interruption_says_that_the_same_command_goes_on(leadline, engine, trained, tmp_path):
    engine.stop = 1
    said = leadline("scan", trained, "--engine", "here", "-o", tmp_path / "s.leadline")
    assert said.code == 2
    assert "The scan was interrupted; what has been measured is in" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere/*",), "Nothing is at nowhere/*; check the pattern."),
        ((".",), "holds no checkpoint"),
        (("a", "--address", "x:1"), "give --engine ray too"),
        (("a", "--random", "big"), "is not a size"),
        (("a", "--text", "x", "--random", "1x2"), "Give one kind of input"),
        (("a", "-o", "s.html"), "looks like a page"),
        (("a", "--html", "s.txt"), "must end in .html"),
        (("a", "--engine", "loom"), "loom"),
        (("a", "--dtype", "int3"), "No number type is called 'int3'"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(leadline, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    said = leadline("scan", *arguments)
    assert said.code == 2
    assert words in " ".join(said.err.split())
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_the_record_is_named_after_the_folder(
    leadline, engine, trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    engine.stop = 0
    leadline("scan", trained, "--engine", "here")
    (tmp_path / "mine.txt").write_text(str(trained))
    leadline("scan", "mine.txt", "--engine", "here")
    leadline("scan", trained / "checkpoint-1", trained / "checkpoint-2", "--engine", "here")
    assert {path.name for path in tmp_path.glob("*.leadline")} == {
        f"{trained.name}-scan.leadline",
        "mine-scan.leadline",
        "scan.leadline",
    }


def test_a_scan_is_shown_again_as_a_whole(leadline, file, tmp_path):
    said = leadline("report", file)
    assert said.out.startswith("Of 12 checkpoints, 4 are unhealthy and 1 could not be measured.")
    made = json.loads(leadline("report", file, "--json").out)
    assert len(made["scan"]["checkpoints"]) == 12
    assert not any(key.startswith("checkpoint:") for key in made["provenance"])
    assert leadline("report", file, "--html", tmp_path / "p.html").code == 0


def test_one_checkpoint_is_chosen_by_its_name(leadline, file):
    said = leadline("report", f"{file}:checkpoint-900")
    assert said.code == 0 and "checkpoint-900" in said.out
    compared = leadline("compare", f"{file}:checkpoint-800", f"{file}:checkpoint-900")
    assert compared.out.startswith("checkpoint-800 against checkpoint-900")


def test_a_command_about_one_model_asks_which_checkpoint(leadline, file):
    for command in (("diagnose", file), ("compare", file, file), ("bounds", file)):
        said = leadline(*command)
        assert said.code == 2
        assert f"name one of them, such as {file}:checkpoint-100" in " ".join(said.err.split())
    wrong = leadline("report", f"{file}:checkpoint-901")
    assert wrong.code == 2 and "checkpoint-900" in wrong.err
    refused = leadline("report", f"{file}:checkpoint-400")
    assert refused.code == 2 and "It is cut short." in refused.err


def test_a_name_in_a_record_of_one_model_is_refused(leadline, tmp_path):
    path = tmp_path / "one.leadline"
    with Record() as record:
        record.save(path)
    said = leadline("report", f"{path}:checkpoint-1")
    assert said.code == 2
    assert "so 'checkpoint-1' names nothing in it" in " ".join(said.err.split())


def test_many_names_are_a_few_and_how_many_more():
    from leadline.cli.scan import _names

    assert _names([]) == ""
    assert _names(list("abcdef")) == "a, b, c, d, e, f"
    assert _names(list("abcdefg")) == "a, b, c, d, e and 2 more"
