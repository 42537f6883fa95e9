"""Records that earlier code wrote open, hold the same numbers, and can be reported and compared."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from leadline import Record
from leadline.cli.main import run

RECORDS = Path(__file__).parent / "records"
NAMES = sorted(path.name.removesuffix(".leadline.xz") for path in RECORDS.glob("*.leadline.xz"))
OF_MODELS = ["attention", "collapse", "jacobian", "measure", "measure-without-checksums"]


@pytest.fixture
def unpacked(tmp_path):
    """Write old records as the files they were; return the path of one by its name."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.leadline"
        path.write_bytes(lzma.decompress((RECORDS / f"{name}.leadline.xz").read_bytes()))
        return path

    return write


@pytest.fixture
def command(capsys):
    """Run a command that must succeed; return what it prints."""

    def call(*arguments: object) -> str:
        with pytest.raises(SystemExit) as left:
            run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert not left.value.code, printed.err
        return printed.out

    return call


def dump(name: str) -> dict[str, Any]:
    """What SQLite and the earlier code read from the file."""
    return json.loads(lzma.decompress((RECORDS / f"{name}.json.xz").read_bytes()))


def missing(old: Any, new: Any, path: str = "") -> list[str]:
    """Where `new` lacks what `old` has. Sentences about growth may be worded otherwise."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            place
            for key, value in old.items()
            for place in (
                missing(value, new[key], f"{path}/{key}") if key in new else [f"{path}/{key}"]
            )
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [p for at, (a, b) in pairs for p in missing(a, b, f"{path}/{at}")]
    if isinstance(old, float) and isinstance(new, float):
        return [] if new == pytest.approx(old, rel=1e-9, abs=1e-12, nan_ok=True) else [path]
    return [] if old == new or path.endswith("/growth/text") else [path]


def test_there_is_a_record_of_every_kind():
    assert sorted([*OF_MODELS, "sweep", "sweep-without-checksums", "train"]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_old_record_holds_the_numbers_that_were_written(name, unpacked):
    old = dump(name)
    with Record.open(unpacked(name)) as record:
        assert record.integrity == ("without checksums" if "without" in name else "checked")
        rows = [
            [
                getattr(reading.site if hasattr(reading.site, column) else reading, column)
                for column in old["columns"]
            ]
            for reading in record.select()
        ]
    assert len(rows) > 50
    # A number that is not finite is null in the file.
    assert [[None if v != v else v for v in row] for row in rows] == old["readings"]


@pytest.mark.parametrize("name", NAMES)
def test_an_old_record_is_reported_as_before(name, unpacked, command, tmp_path):
    path = unpacked(name)
    assert missing(dump(name)["report"], json.loads(command("report", path, "--json"))) == []
    page = tmp_path / "page.html"
    assert command("report", path, "-o", page)
    assert "<svg" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OF_MODELS)
def test_an_old_record_is_compared_with_another(name, unpacked, command):
    rows = json.loads(command("compare", unpacked(name), unpacked("measure"), "--json"))["rows"]
    values = {row["label"]: [side and side["values"] for side in row["records"]] for row in rows}
    assert values["stream.norm"] == [
        dump(one)["report"]["quantities"]["stream.norm"] for one in (name, "measure")
    ]


def test_old_training_runs_are_compared(unpacked, command):
    path = unpacked("train")
    curves = json.loads(command("compare", path, path, "--names", "a,b", "--json"))["curves"]
    loss = next(curve for curve in curves if curve["label"] == "validation.loss")
    old = [r for r in dump("train")["readings"] if r[3] == "validation.loss"]
    assert loss["records"][0]["values"] == [row[13] for row in old]


@pytest.mark.parametrize(("name", "bound"), [("attention", "attention"), ("collapse", "collapse")])
def test_theorems_stand_beside_an_old_record(name, bound, unpacked, command):
    table = json.loads(command("bounds", unpacked(name), "--json"))
    assert not table["violated"]
    assert any(entry["family"] == bound for entry in table["bounds"])


@pytest.mark.parametrize("name", ["sweep", "sweep-without-checksums"])
def test_the_map_of_an_old_sweep_is_drawn(name, unpacked, command):
    drawn = json.loads(command("map", unpacked(name), "--json"))
    assert drawn["depths"] == [1, 2] and drawn["not_run"] == 0
    places = [place for row in drawn["rows"] for place in row["places"]]
    assert [place["seeds"] for place in places] == [2, 2, 2, 2]
