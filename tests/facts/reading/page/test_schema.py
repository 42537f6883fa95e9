"""The JSON form: strict, complete, and as docs/json.md describes it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leadline
from leadline.reading.page import as_json
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import RECORDS, broken_record, gpt2_record, t5_record

DOCS = Path(__file__).parents[4] / "docs" / "json.md"


def strict(record: Record) -> dict[str, Any]:
    return json.loads(json.dumps(as_json(record), allow_nan=False))


@pytest.mark.parametrize("name", RECORDS)
def test_json_is_strict_and_has_the_same_keys_for_every_record(name: str) -> None:
    data = strict(RECORDS[name]())
    assert list(data) == [
        "schema",
        "answer",
        "model",
        "anatomy",
        "input",
        "loss",
        "passes",
        "quantities",
        "definitions",
        "series",
        "curves",
        "findings",
        "provenance",
    ]
    assert data["schema"] == 1
    assert {"layers", "sublayers", "balance_eps", "source", "blocks"} <= set(data["anatomy"])


def test_empty_record_has_the_same_keys() -> None:
    data = strict(Record())
    assert list(data) == list(strict(gpt2_record()))
    assert data["anatomy"]["layers"] == 0
    assert data["quantities"] == {}


def test_anatomy_counts_layers_and_lists_blocks() -> None:
    anatomy = strict(gpt2_record(depth=12))["anatomy"]
    assert (anatomy["layers"], anatomy["sublayers"]) == (12, 24)
    assert (anatomy["balance_eps"], anatomy["source"]) == (0.42, "discovery")
    assert [block["layer"] for block in anatomy["blocks"]] == list(range(1, 13))
    assert anatomy["stacks"]["decoder"]["width"] == 768


def test_quantities_of_the_stream_have_a_value_per_boundary() -> None:
    record = gpt2_record(depth=12)
    quantities = strict(record)["quantities"]
    assert quantities["stream.norm"] == np.asarray(record["stream.norm"]).tolist()
    assert len(quantities["stream.norm"]) == 13
    assert len(quantities["block.influence"]) == 12


def test_quantities_of_sublayers_have_the_mean_and_each_role() -> None:
    record = gpt2_record()
    quantities = strict(record)["quantities"]
    attention, mlp = (record[f"update.norm[{role}]"].values for role in ("attention", "mlp"))
    assert quantities["update.norm[attention]"] == attention.tolist()
    assert quantities["update.norm[mlp]"] == mlp.tolist()
    assert quantities["update.norm"] == pytest.approx(((attention + mlp) / 2).tolist())


def test_first_stack_keeps_the_bare_name() -> None:
    record = t5_record(depth=6)
    quantities = strict(record)["quantities"]
    assert len(quantities["stream.norm"]) == 7
    assert len(quantities["decoder/stream.norm"]) == 13
    assert len(quantities["decoder/update.norm"]) == 12
    assert (
        quantities["decoder/update.norm[mlp]"] == record["decoder/update.norm[mlp]"].values.tolist()
    )


def test_every_address_of_quantities_can_be_asked_of_the_record() -> None:
    for make in RECORDS.values():
        record = make()
        for address, values in strict(record)["quantities"].items():
            if address.endswith(("update.norm", "update.ratio")):
                continue  # the mean over sublayers is no line of the record
            assert as_strict(record[address].values) == values


def as_strict(values: np.ndarray) -> list[float | str | None]:
    return [None if math.isnan(x) else "Infinity" if x == math.inf else float(x) for x in values]


def test_nan_is_null_and_infinity_is_a_string() -> None:
    data = strict(broken_record(depth=8, first_bad=5))
    assert data["quantities"]["stream.norm"][4:] == [2.0**40, "Infinity", None, None, None]
    assert data["loss"]["value"] is None


def test_infinities_of_both_signs_have_no_mean() -> None:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q", lives_on="sublayer"))
    record.append(
        [
            Reading("q", Site("d", 1, 1, "attention"), "mean", math.inf),
            Reading("q", Site("d", 1, 2, "mlp"), "mean", -math.inf),
        ]
    )
    quantities = strict(record)["quantities"]
    assert quantities["q"] == [None]
    assert quantities["q[mlp]"] == ["-Infinity"]


def test_series_hold_every_line_with_its_layers() -> None:
    record = gpt2_record()
    series = strict(record)["series"]
    lines = [line for name in record.quantities for line in record.profiles(name)]
    assert len(series) == len(lines)
    for entry, line in zip(series, lines, strict=True):
        assert entry["values"] == line.values.tolist()
        assert entry["layers"] == list(line.layers)
        assert entry["growth"]["law"] == line.growth.law
        if line.growth.law != "none":
            assert entry["growth"]["text"] == line.growth.text
        for field in ("quantity", "statistic", "stack", "point", "sublayer"):
            assert entry[field] == getattr(line, field)


def test_findings_and_the_rest_of_the_provenance_are_there() -> None:
    data = strict(gpt2_record())
    [finding] = data["findings"]
    assert finding["severity"] == "note"
    assert finding["quantity"] == "stream.norm"
    assert (finding["site"]["stack"], finding["site"]["layer"]) == ("decoder", 3)
    assert data["provenance"]["seconds"] == 1.83
    assert "model" not in data["provenance"]
    assert data["passes"] == {"forward": 1, "backward": 1, "anatomy_forward": 6}


def _keys(value: Any, *, at: str = "") -> set[str]:
    """Collect the keys of nested mappings that the schema names, not those that users choose."""
    if isinstance(value, list):
        return set().union(*(_keys(item, at=at) for item in value))
    if not isinstance(value, dict):
        return set()
    found: set[str] = set()
    for key, item in value.items():
        if at in ("quantities", "definitions", "stacks", "versions"):
            found |= _keys(item, at="")
        else:
            found |= {key} | _keys(item, at=key)
    return found


def test_every_key_stands_in_the_documentation() -> None:
    documented = set(re.findall(r"`([^`\s]+)`", DOCS.read_text(encoding="utf-8")))
    keys = _keys(strict(gpt2_record()))
    assert keys - documented == set()


def test_example_in_the_documentation_is_what_the_program_says() -> None:
    """The example block is the head of the JSON of a record of two layers."""
    example = re.search(r"```json\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    shown = json.loads(example[1])
    assert list(shown) == list(strict(gpt2_record()))
    assert {type(value) for value in shown["quantities"].values()} == {list}


def test_a_line_without_a_law_says_its_shape_and_a_single_value_nothing():
    record = Record()
    record.describe(Quantity("a.b", "A", "a", "a", headline="value"))
    record.describe(Quantity("a.c", "A", "a", "a", headline="value"))
    record.append(
        Reading("a.b", Site("decoder", layer), "value", value)
        for layer, value in enumerate([4.0, 1.0, 8.0])
    )
    record.append([Reading("a.c", Site("decoder", 1), "value", 3.0)])
    shapes = {line["quantity"]: line["growth"] for line in as_json(record)["series"]}
    assert [shapes[name]["law"] for name in ("a.b", "a.c")] == ["none", "none"]
    assert [shapes[name]["text"] for name in ("a.b", "a.c")] == ["dips at layer 1", ""]
    sides = leadline.compare(record, record).to_json()["rows"]
    assert {side["growth"]["text"] for row in sides for side in row["records"]} == {
        "dips at layer 1",
        "",
    }
