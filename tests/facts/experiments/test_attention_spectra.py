"""The note's experiment, done right, and its padding artefact on demand."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

import leadline as ll
from leadline.cli.main import run
from leadline.experiments.attention_spectra import NOTE_MODELS, SENTENCES, SETS, attention_spectra
from leadline.experiments.materials.named_models import SHAPES
from leadline.experiments.materials.sentences import (
    lengths,
    random_rows,
    read_sentences,
    sentence_rows,
)
from leadline.models.inputs.model_facts import padding_id
from leadline.models.loading import LoadedModel, load_model
from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line


def tiny(kind: str) -> LoadedModel:
    settings = {"n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 60}
    return load_model(kind, random_init=True, overrides=settings)


def models(*kinds: str) -> dict[str, Any]:
    return {kind: lambda kind=kind: tiny(kind) for kind in kinds}


class Words:
    """A tokenizer of words, with a token before and one behind."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [1, *(5 + len(word) for word in text.split()), 2]}


def test_the_note_has_three_models_and_two_kinds_of_sentences() -> None:
    assert NOTE_MODELS == ("openai-gpt", "gpt2", "gpt2-large")
    assert SETS == ((1, 5), (12, 18))
    assert SENTENCES == 128


def test_lengths_are_drawn_evenly_and_the_same_for_every_model() -> None:
    drawn = lengths(1, 5, count=2000, seed=0)
    assert drawn == lengths(1, 5, count=2000, seed=0)
    assert drawn != lengths(1, 5, count=2000, seed=1)
    assert all(330 < drawn.count(n) < 470 for n in (1, 2, 3, 4, 5)) and set(drawn) == {
        1,
        2,
        3,
        4,
        5,
    }


def test_sentences_have_as_many_tokens_as_were_asked_for() -> None:
    wanted = [3, 4, 9, 14, 18]
    rows, texts = sentence_rows(wanted, Words(), seed=0)
    assert [len(row) for row in rows] == wanted
    assert [len(text.split()) for text in texts] == [1, 2, 7, 12, 16]


def test_a_tokenizer_with_special_tokens_gets_the_shortest_that_it_can_make() -> None:
    rows, _ = sentence_rows([1, 2], Words(), seed=0)
    assert [len(row) for row in rows] == [3, 3]


def test_a_tokenizer_that_cannot_make_the_length_is_told() -> None:
    class Long:
        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [0] * (2 * len(text.split()))}

    with pytest.raises(ll.InputError, match="No sentence of 5 tokens"):
        sentence_rows([5], Long(), seed=0)


def test_random_rows_stay_within_the_vocabulary() -> None:
    rows = random_rows([4, 300], vocabulary=7, seed=0)
    assert [len(row) for row in rows] == [4, 300]
    assert set(rows[1]) == set(range(7))


def test_a_csv_file_needs_the_column_of_the_note(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"
    good.write_text("id,token_sequence\n1,the old man\n2,\n3,a dog\n", encoding="utf-8")
    bad.write_text("id,text\n1,the old man\n", encoding="utf-8")
    empty.write_text("token_sequence\n", encoding="utf-8")
    assert read_sentences(good) == ["the old man", "a dog"]
    with pytest.raises(ll.InputError, match="no column 'token_sequence'; its columns: id, text"):
        read_sentences(bad)
    with pytest.raises(ll.InputError, match="holds no sentence"):
        read_sentences(empty)
    with pytest.raises(ll.InputError, match="cannot be read"):
        read_sentences(tmp_path / "none.csv")


def test_the_mean_is_that_of_a_loop_over_the_unpadded_sentences() -> None:
    outcome = attention_spectra(models("gpt2"), count=12, seed=3)
    model: Any = tiny("gpt2").model
    model.set_attn_implementation("eager")
    for low, high in SETS:
        rows = random_rows(lengths(low, high, count=12, seed=3), vocabulary=60, seed=3)
        curves: list[list[float]] = []
        for row in rows:
            with torch.no_grad():
                found = model(torch.tensor([row]), output_attentions=True).attentions
            curves.append([float(torch.linalg.svdvals(a[0].double())[:, 0].mean()) for a in found])
        expected = [sum(column) / len(column) for column in zip(*curves, strict=True)]
        (line,) = [x for x in outcome.lines if x.panel == f"{low} to {high} tokens"]
        assert line.values == pytest.approx(expected, rel=1e-6)
        roots = [math.sqrt(len(row)) for row in rows]
        assert line.facts["most_possible"] == pytest.approx(sum(roots) / len(roots))


def test_as_in_the_note_keeps_the_padded_rows() -> None:
    """The note's own loop: pad, run, take every matrix as it is."""
    outcome = attention_spectra(models("gpt2"), count=12, as_in_the_note=True, seed=3)
    rows = random_rows(lengths(1, 5, count=12, seed=3), vocabulary=60, seed=3)
    model: Any = tiny("gpt2").model
    model.set_attn_implementation("eager")
    ids = torch.zeros(12, 5, dtype=torch.long)
    mask = torch.zeros(12, 5, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        mask[at, : len(row)] = 1
    ids[mask == 0] = padding_id(model)
    with torch.no_grad():
        found = model(ids, attention_mask=mask, output_attentions=True).attentions
    expected = [float(torch.linalg.svdvals(a.double())[..., 0].mean()) for a in found]
    right, padded = [line for line in outcome.lines if line.panel == "1 to 5 tokens"]
    assert padded.faint and not right.faint
    assert padded.values == pytest.approx(expected, rel=1e-6)
    assert min(a - b for a, b in zip(padded.values, right.values, strict=True)) > 0.1
    assert any("padded rows raise the mean norm" in remark for remark in outcome.remarks)


def test_a_model_that_fails_does_not_lose_the_others() -> None:
    def broken() -> LoadedModel:
        raise ll.LoadingError("There is no such model.")

    outcome = attention_spectra(models("gpt2") | {"other": broken}, count=2)
    assert [line.name for line in outcome.lines] == ["gpt2", "gpt2"]
    assert outcome.failures == {"other": "There is no such model."}
    with pytest.raises(ll.LoadingError, match="There is no such model"):
        attention_spectra({"other": broken}, count=2)
    with pytest.raises(ll.InputError, match="No model could be measured"):
        attention_spectra({"other": broken, "third": broken}, count=2)


def test_at_least_one_sentence_is_needed() -> None:
    with pytest.raises(ll.InputError, match="at least 1 is needed"):
        attention_spectra(models("gpt2"), count=0)


def reproduce(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(["reproduce", *arguments])
    return int(ended.value.code or 0)


def test_the_command_writes_picture_table_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    code = reproduce(
        "attention-spectra", "recipe:default", "--sentences", "3", "-o", str(folder), "--json"
    )
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["experiment"] == "attention-spectra"
    assert {line["panel"] for line in told["lines"]} == {"1 to 5 tokens", "12 to 18 tokens"}
    ET.fromstring((folder / "picture.svg").read_text(encoding="utf-8"))
    with (folder / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    depth = len(told["lines"][0]["values"])
    assert len(rows) == 2 * depth
    assert float(rows[0]["value"]) == told["lines"][0]["values"][0]
    records = sorted(path.name for path in folder.glob("*.leadline"))
    assert records == sorted(f"{name}.leadline" for name in (*told["records"], "outcome"))
    with ll.Record.open(folder / f"{told['records'][0]}.leadline") as record:
        assert "attention.spectral_norm" in record


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("attention-spectra", "recipe:default", "--sentences", "2") == 0
    shown = capsys.readouterr().out
    assert "1 to 5 tokens" in shown and "default (recipe)" in shown


def test_an_unknown_experiment_is_answered_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert reproduce("attention-spectrum") == 2
    assert "attention-spectra" in capsys.readouterr().err


def test_random_init_is_for_the_experiments_own_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("attention-spectra", "gpt2", "--random-init") == 2
    assert "random:TYPE" in capsys.readouterr().err


def test_gpt2_large_is_gpt2_with_other_sizes() -> None:
    assert SHAPES["gpt2-large"] == ("gpt2", {"n_layer": 36, "n_embd": 1280, "n_head": 20})


def _points(picture: str) -> list[list[tuple[float, float]]]:
    root = ET.fromstring(picture)
    found: list[list[tuple[float, float]]] = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if "H" in path.attrib["d"]:  # the grid
            continue
        steps = path.attrib["d"].replace("M", " ").replace("L", " ").split()
        numbers = [float(step) for step in steps]
        found.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return found


def test_a_line_goes_through_its_values() -> None:
    lines = [Line("a", "one", (1.0, 3.0, 2.0)), Line("b", "one", (1.0, 2.0))]
    left, right = _points(line_chart(lines, title="t", value_label="v"))
    (x1, y1), (x2, y2), (x3, y3) = left
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y3 == pytest.approx(y3 - y2, abs=0.2) and y2 < y3 < y1
    assert right[0][1] == pytest.approx(y1) and right[1][1] == pytest.approx(y3)


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    picture = line_chart([Line("a", "one", (1.0, math.nan, 2.0))], title="t", value_label="v")
    paths = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}path")
    [line] = [path.attrib["d"] for path in paths if "H" not in path.attrib["d"]]  # not the grid
    assert line.count("M") == 2 and "nan" not in picture


def test_names_cannot_break_the_picture() -> None:
    picture = line_chart([Line("a", "<b>&", (1.0, 1.0))], title="<t>", value_label='"v"')
    assert ET.fromstring(picture) is not None and "<b>" not in picture


def test_every_model_is_told_of_as_soon_as_it_is_measured() -> None:
    steps: list[tuple[str, int, int]] = []
    told: list[str] = []

    def broken() -> LoadedModel:
        assert len(told) == 2  # the first model was told of before the second is loaded
        raise ll.LoadingError("no such model")

    found = attention_spectra(
        {**models("gpt2"), "broken": broken},
        count=2,
        progress=lambda *step: steps.append(step),
        tell=told.append,
    )
    assert [step[0] for step in steps] == [
        "loading gpt2",
        "measuring gpt2, 1 to 5 tokens",
        "measuring gpt2, 12 to 18 tokens",
        "loading broken",
    ]
    assert [step[1:] for step in steps] == [(0, 6), (1, 6), (2, 6), (3, 6)]
    assert told[2] == "broken: no such model"
    for line, sentence in zip(found.lines, told, strict=False):
        assert sentence.startswith(f"gpt2, {line.panel}: mean norm {line.values[0]:.3f} at layer 1")
        assert f"most {max(line.values):.3f} at layer" in sentence


@pytest.mark.parametrize(
    ("options", "count"), [((), 128), (("--quick",), 16), (("--quick", "--sentences", "3"), 3)]
)
def test_quick_is_fewer_sentences_and_no_large_model(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], count: int
) -> None:
    asked: dict[str, object] = {}

    def stand_in(models: dict[str, object], **settings: object) -> None:
        asked.update(settings, models=list(models))
        raise ll.InputError("enough")

    monkeypatch.setattr("leadline.experiments.attention_spectra.attention_spectra", stand_in)
    assert reproduce("attention-spectra", "--random-init", *options) == 2
    assert asked["count"] == count
    assert len(asked["models"]) == (2 if options else 3)  # pyright: ignore[reportArgumentType]
