"""`leadline jacobian` and `leadline lyapunov`: what they print, write and refuse."""

import json

import pytest

import leadline as ll
from leadline.record import Record

TINY = ["n_layer=3", "n_embd=16", "n_head=2", "vocab_size=50", "n_positions=32"]
MODEL = ["--random-init", "gpt2", *(f"--set={pair}" for pair in TINY), "--random", "2x8"]


def test_the_answer_comes_first_then_the_numbers(leadline):
    said = leadline("jacobian", *MODEL, "--layer", "2", "--k", "2")
    assert said.code == 0, said.err
    answer, _, rest = said.out.partition("\n\n")
    assert answer.startswith("The block multiplies a random small change of the stream by ")
    assert rest.startswith("Jacobian of gpt2: decoder layer 2")
    assert "sigma_2" in rest and "sigma_3" not in rest
    assert "Not saved; -o FILE.leadline keeps the record" in said.err


def test_json_and_the_record_hold_the_same_numbers(leadline, tmp_path):
    file, page = tmp_path / "a.leadline", tmp_path / "a.html"
    stretch = ["--from", "1", "--to", "3", "--k", "1", "--smallest", "1"]
    said = leadline("jacobian", *MODEL, *stretch, "--json", "-o", file, "--html", page)
    assert said.code == 0, said.err
    shown = json.loads(said.out)
    assert (shown["start"], shown["end"], shown["shape"]) == (1, 3, [2, 8, 16])
    with Record.open(file) as record:
        assert record.jacobian.to_json() == shown
        assert record.provenance["model"]["source"] == "random init"
    assert "gpt2" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.leadline"]


@pytest.mark.parametrize("forward", [False, True])
def test_exponents_are_printed_and_saved(leadline, tmp_path, forward):
    file = tmp_path / "a.leadline"
    said = leadline("lyapunov", *MODEL, "--k", "2", *["--forward"] * forward, "-o", file)
    assert said.code == 0, said.err
    what = "Small changes of the stream" if forward else "Gradients"
    assert said.out.startswith(f"{what} hardly change: ")  # a model of small random weights
    with Record.open(file) as record:
        assert record.lyapunov.backward is not forward
        assert str(record) in said.out


def test_records_of_a_block_and_of_all_blocks_have_common_rows(leadline, tmp_path):
    one, every = tmp_path / "one.leadline", tmp_path / "every.leadline"
    assert leadline("jacobian", *MODEL, "--layer", "2", "--k", "1", "-o", one).code == 0
    probes = "jacobian(k=1,probes=32)"
    assert leadline("measure", *MODEL, "--probes", probes, "-o", every).code == 0
    rows = json.loads(leadline("compare", every, one, "--json").out)["rows"]
    common = {row["label"] for row in rows if None not in row["records"]}
    assert common >= {"jacobian.singular", "jacobian.norm", "jacobian.distance", "jacobian.branch"}
    with Record.open(one) as mine, Record.open(every) as theirs:
        compared = ll.compare(theirs, mine)
        widest = {row.label: row.sides[1].parting for row in compared.rows if row.sides[1]}
        assert widest["jacobian.singular"].ratio == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--layer", "1", "--to", "2"], "--layer is one block, --from and --to are a stretch"),
        (["--from", "1"], "say where it ends, such as --to 6"),
        (["--layer", "9"], "layers of the decoder count from 1 to 3"),
        (["--sublayer", "1"], "without its layer"),
        (["-o", "page.html"], "-o writes a record, and page.html looks like a page"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_writes_nothing(
    leadline, tmp_path, monkeypatch, options, sentence
):
    monkeypatch.chdir(tmp_path)
    said = leadline("jacobian", *MODEL, *options)
    assert said.code == 2 and sentence in said.err
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_is_a_sentence_and_writes_nothing(leadline, tmp_path, monkeypatch):
    import leadline.instruments.jacobian.recording as run

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "compute_lyapunov", interrupted)
    said = leadline("lyapunov", *MODEL, "-o", tmp_path / "a.leadline")
    assert said.code == 2 and "interrupted, and nothing of it is kept" in said.err
    assert list(tmp_path.iterdir()) == []
