"""Records side by side."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from leadline.errors import RecordError
from leadline.reading.compare.compare import compare
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import broken_record, gpt2_record, t5_record


def line(values: list[float], *, stack: str = "decoder", name: str = "") -> Record:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q"))
    record.append(Reading("q", Site(stack, l), "mean", value) for l, value in enumerate(values))
    if name:
        record.note("model", {"name": name})
    return record


def test_ratio_is_that_of_the_last_layers() -> None:
    [row] = compare(line([1, 2, 4]), line([1, 3, 10])).rows
    first, second = row.sides
    assert first is not None
    assert second is not None
    assert (first.ratio_at_last, first.parting) == (1.0, None)
    assert second.ratio_at_last == 2.5
    assert (second.first, second.last) == (1.0, 10.0)


def test_lines_part_most_where_the_factor_is_largest_either_way() -> None:
    [row] = compare(line([1, 2, 4, 8, 16]), line([1, 4, 0.5, 8, 17])).rows
    parting = row.sides[1].parting  # pyright: ignore
    assert (parting.layer, parting.ratio, parting.difference) == (2, 0.125, -3.5)
    assert parting.share_of_depth == 0.5


def test_depths_are_compared_at_equal_shares() -> None:
    # y = 1 + 8 l / L in both, but for a bump at layer 6 of 8, which is 3/4 of the depth.
    shallow = line([1, 3, 5, 7, 9])
    values = [1.0 + l for l in range(9)]
    values[6] = 70.0
    [row] = compare(shallow, line(values)).rows
    parting = row.sides[1].parting  # pyright: ignore
    assert (parting.layer, parting.share_of_depth) == (6, 0.75)
    assert parting.ratio == pytest.approx(10.0)


def test_between_layers_of_the_shallower_record_lines_are_straight() -> None:
    [row] = compare(line([0, 2]), line([0, 1, 2, 3, 2])).rows
    parting = row.sides[1].parting  # pyright: ignore
    # Against 0, 0.5, 1, 1.5, 2 the largest difference is 1.5, at layer 3. At 0 there is no ratio.
    assert (parting.layer, parting.difference) == (3, 1.5)


def test_change_of_sign_is_told_as_a_difference() -> None:
    [row] = compare(line([0.5, 0.2, -0.1]), line([0.5, -0.4, -0.1])).rows
    side = row.sides[1]
    assert side is not None
    assert side.parting is not None
    assert (side.parting.layer, side.parting.difference) == (1, pytest.approx(-0.6))
    assert math.isnan(side.parting.ratio)
    text = str(compare(line([0.5, 0.2, -0.1]), line([0.5, -0.4, -0.1])))
    assert "-0.6 @1" in text


def test_values_that_are_not_finite_do_not_hide_the_rest() -> None:
    [row] = compare(line([1, 2, math.nan, 4]), line([1, 6, 3, math.inf])).rows
    side = row.sides[1]
    assert side is not None
    assert math.isnan(side.ratio_at_last)
    assert side.parting is not None
    assert (side.parting.layer, side.parting.ratio) == (1, 3.0)


def test_nothing_finite_in_common_has_no_parting() -> None:
    [row] = compare(line([math.nan, 1.0]), line([1.0, math.nan])).rows
    assert row.sides[1].parting is None  # pyright: ignore


def test_decoder_compares_with_an_encoder() -> None:
    comparison = compare(line([1, 2], stack="decoder"), line([1, 4], stack="encoder"))
    [row] = comparison.rows
    assert row.sides[1].ratio_at_last == 2.0  # pyright: ignore


def test_quantity_that_one_record_lacks_is_told() -> None:
    comparison = compare(gpt2_record(), t5_record())
    missing = [row.label for row in comparison.rows if row.sides[1] is None]
    alone = [row.label for row in comparison.rows if row.sides[0] is None]
    assert "decoder/gradient.stream" in missing
    assert "decoder/update.norm[cross-attention]" in alone
    text = str(comparison)
    assert f"Only in t5: {', '.join(alone)}." in text
    assert f"Only in gpt2: {', '.join(missing)}." in text


def test_third_record_without_a_shared_quantity_is_named() -> None:
    text = str(compare(gpt2_record(), gpt2_record(name="b"), t5_record()))
    assert "Not in t5: decoder/stream.variance, decoder/tokens.residual" in text


def test_records_are_called_by_their_models_and_numbered() -> None:
    records = [line([1, 2], name="gpt2"), line([1, 2], name="gpt2"), line([1, 2])]
    assert compare(*records).names == ("gpt2", "gpt2 (2)", "record 3")
    assert compare(*records, names=["a", "b", "c"]).names == ("a", "b", "c")


def test_fewer_than_two_records_or_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecordError, match="at least two records, but got 1"):
        compare(line([1, 2]))
    with pytest.raises(RecordError, match="3 names were given for 2 records"):
        compare(line([1, 2]), line([1, 2]), names=["a", "b", "c"])


def test_each_role_has_a_row_with_its_growth() -> None:
    comparison = compare(gpt2_record(), gpt2_record(depth=24, name="deep", massive=False))
    rows = {row.label: row for row in comparison.rows}
    assert {"update.norm[attention]", "update.norm[mlp]"} <= set(rows)
    deep = rows["stream.norm"].sides[1]
    assert deep is not None
    assert deep.growth.law == "root"
    assert deep.growth.jump is not None
    assert deep.profile.layers == tuple(range(25))


def test_json_is_strict_and_holds_the_numbers() -> None:
    comparison = compare(gpt2_record(depth=12), broken_record())
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["schema"] == 1
    assert data["names"] == ["gpt2", "broken"]
    row = next(row for row in data["rows"] if row["label"] == "stream.norm")
    assert row["records"][1]["values"][5:7] == ["Infinity", None]
    assert row["records"][1]["last"] is None
    assert row["records"][0]["values"] == np.asarray(gpt2_record()["stream.norm"]).tolist()
    assert row["records"][0]["differs_most"] is None
    assert set(row["records"][1]["differs_most"]) == {
        "layer",
        "layer_of_first",
        "share_of_depth",
        "ratio",
        "log10_ratio",
        "difference",
    }


def test_text_draws_both_lines_on_one_scale() -> None:
    lines = str(compare(line([0, 1, 2], name="low"), line([0, 8, 16], name="high"))).splitlines()
    assert lines[0] == "low against high"
    (row,) = [row for row in lines if row.startswith("q ")]
    assert re.search(r"0 → 2  ▁▁▂ +0 → 16  ▁▅█ +×8 +×8 @2$", row)


def test_notebook_form_shows_names_as_text() -> None:
    html = compare(line([1, 2], name="<b>x</b>"), line([1, 2], name="y"))._repr_html_()
    assert "&lt;b&gt;x" in html
    assert "<b>" not in html
    assert html.count("<svg") == 2


def test_a_decoder_is_set_beside_the_decoder_of_an_encoder_decoder() -> None:
    comparison = compare(gpt2_record(), t5_record())
    rows = {row.label: row for row in comparison.rows}
    both = rows["decoder/stream.norm"]
    assert all(side is not None and side.profile.stack == "decoder" for side in both.sides)
    assert rows["encoder/stream.norm"].sides[0] is None
