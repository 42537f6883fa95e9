"""Other forms of a record hold the same numbers."""

from __future__ import annotations

import csv
import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from leadline.errors import MissingExtra, RecordError
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import broken_record, gpt2_record, t5_record

COLUMNS = (
    *("run", "step", "seed", "quantity", "statistic", "stack", "layer", "sublayer", "point"),
    *("lane", "head", "token", "rank", "example", "hops", "value", "lower", "upper"),
    "exponent",
)


def mixed_record() -> Record:
    """Holds every column, and every kind of number."""
    record = gpt2_record(depth=4)
    record.append(
        [
            Reading("stream.norm", Site("decoder", 1, lane=1), "value", math.nan, run="a", step=3),
            Reading("stream.norm", Site("decoder", 2, head=2), "value", math.inf, lower=0.25),
            Reading("stream.norm", Site("decoder", 3, token=3), "value", 1 / 3, upper=1e300),
            Reading("stream.norm", Site("decoder", 4, rank=4), "value", -math.inf, seed=5),
        ]
    )
    return record


def rows_by_hand(record: Record) -> list[list[object]]:
    def field(reading: Reading, name: str) -> object:
        return getattr(reading if hasattr(reading, name) else reading.site, name)

    return [[field(reading, name) for name in COLUMNS] for reading in record.select()]


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right and (left is None) == (right is None)


def test_csv_holds_every_number_to_the_last_digit(tmp_path: Path) -> None:
    record = mixed_record()
    record.to_csv(tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    assert tuple(header) == COLUMNS
    expected = rows_by_hand(record)
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        for name, cell, value in zip(header, row, wanted, strict=True):
            if name in ("value", "lower", "upper") and value is not None:
                assert same(float(cell), value)
            else:
                assert cell == ("" if value is None else str(value))


def test_csv_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"Cannot write the table .*no/r\.csv: No such file"):
        mixed_record().to_csv(tmp_path / "no" / "r.csv")
    with pytest.raises(RecordError, match="Cannot write the table"):
        mixed_record().to_csv(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pandas_holds_the_same_rows() -> None:
    pandas = pytest.importorskip("pandas")
    record = mixed_record()
    frame = record.to_pandas()
    assert tuple(frame.columns) == COLUMNS
    expected = rows_by_hand(record)
    for at, name in enumerate(COLUMNS):
        wanted = [row[at] for row in expected]
        cells = [None if pandas.isna(cell) and name != "value" else cell for cell in frame[name]]
        assert all(same(cell, value) for cell, value in zip(cells, wanted, strict=True)), name
    assert frame["value"].dtype == "float64"
    assert frame["layer"].dtype == "int64"
    assert str(frame["sublayer"].dtype) == "Int64"
    mean = frame[(frame["quantity"] == "update.norm") & (frame["statistic"] == "mean")]
    by_role = mean.groupby("point")["value"].mean()
    for role in ("attention", "mlp"):
        assert by_role[role] == pytest.approx(np.mean(np.asarray(record[f"update.norm[{role}]"])))


def test_arrow_holds_the_same_rows() -> None:
    pytest.importorskip("pyarrow")
    record = mixed_record()
    table = record.to_arrow()
    assert tuple(table.column_names) == COLUMNS
    for row, wanted in zip(table.to_pylist(), rows_by_hand(record), strict=True):
        assert all(same(row[name], value) for name, value in zip(COLUMNS, wanted, strict=True))
    assert str(table.schema.field("value").type) == "double"
    assert str(table.schema.field("layer").type) == "int64"


def test_xarray_holds_the_same_numbers() -> None:
    pytest.importorskip("xarray")
    record = gpt2_record()
    data = record.to_xarray()
    assert set(data.data_vars) == set(record.quantities)
    count = sum(int(np.isfinite(array.values).sum()) for array in data.data_vars.values())
    assert count == len(record)
    for reading in record.select():
        address = {"statistic": reading.statistic, "layer": reading.site.layer}
        array = data[reading.quantity]
        if "sublayer" in array.dims:
            inside = reading.site.sublayer
            address["sublayer"] = -1 if inside is None else inside
        if "point" in array.dims:
            address["point"] = reading.site.point
        assert array.sel(address).item() == reading.value
    assert data["update.norm"].dims == ("statistic", "layer", "point")
    assert data["stream.norm"].attrs["formula"] == "sqrt(sum_i x_i^2)"
    assert json.loads(data.attrs["provenance"])["model"]["name"] == "gpt2"


def test_xarray_has_a_dimension_for_stacks_and_runs_only_where_there_are_several() -> None:
    pytest.importorskip("xarray")
    data = t5_record().to_xarray()
    norm = data["stream.norm"]
    assert norm.dims == ("statistic", "stack", "layer")
    encoder = norm.sel(stack="encoder", statistic="mean").values
    assert np.isnan(encoder[7:]).all()
    np.testing.assert_array_equal(encoder[:7], np.asarray(t5_record()["stream.norm"]))


def test_xarray_keeps_bounds_and_what_is_not_finite() -> None:
    pytest.importorskip("xarray")
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q"))
    record.append([Reading("q", Site("d", 0), "mean", 2.0, lower=1.0, upper=3.0)])
    record.append([Reading("q", Site("d", 1), "mean", 5.0)])
    data = record.to_xarray()
    assert data["q.lower"].sel(layer=0, statistic="mean").item() == 1.0
    assert data["q.upper"].sel(layer=0, statistic="mean").item() == 3.0
    assert math.isnan(data["q.upper"].sel(layer=1, statistic="mean").item())
    broken = broken_record(first_bad=5).to_xarray()["stream.norm"].sel(statistic="mean").values
    assert broken[5] == math.inf
    assert np.isnan(broken[6:]).all()


def test_empty_record_can_be_exported(tmp_path: Path) -> None:
    record = Record()
    assert len(record.to_pandas()) == 0
    assert record.to_arrow().num_rows == 0
    assert len(record.to_xarray().data_vars) == 0
    record.to_csv(tmp_path / "e.csv")
    assert (tmp_path / "e.csv").read_text().strip() == ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("form", "library"),
    [("to_pandas", "pandas"), ("to_arrow", "pyarrow"), ("to_xarray", "xarray")],
)
def test_missing_library_names_the_extra(
    form: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtra, match=rf"{library}.*pip install 'leadline\[table\]'"):
        getattr(gpt2_record(), form)()
