"""Paths by length as a record: the same numbers, from memory, from a file and without torch."""

import json
import math
import subprocess
import sys
from dataclasses import fields, is_dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import leadline as ll
from leadline.instruments.paths.result import Paths, SampledPaths, Shares, path_counts
from leadline.instruments.paths.rows import paths_record, read_paths
from leadline.instruments.paths.text import answer, half_length, most_important
from leadline.record import Record

REALS = st.floats(allow_nan=True, allow_infinity=True).map(lambda x: x + 0.0)


def same(one, other) -> bool:
    """Whether two results are equal field by field, NaN equal to NaN."""
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
        )
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and one == other


@st.composite
def shares(draw, lengths):
    series = st.lists(REALS, min_size=lengths, max_size=lengths).map(tuple)
    biased = draw(st.booleans())
    return Shares(
        norm=draw(REALS),
        norm_share=draw(series),
        share=draw(series),
        bias_norm_share=draw(series) if biased else (),
        bias_share=draw(series) if biased else (),
        remainder=draw(REALS),
        remainder_eps=draw(REALS),
    )


@st.composite
def results(draw):
    depth = draw(st.integers(1, 3))
    further = depth + 1 + draw(st.integers(0, 1))
    series = st.lists(REALS, min_size=further, max_size=further).map(tuple)
    gaps = st.lists(st.none() | REALS, min_size=depth + 1, max_size=depth + 1).map(tuple)
    counts = st.lists(st.integers(0, 10**5000), min_size=depth + 1, max_size=depth + 1).map(tuple)
    loss = draw(st.none() | REALS)
    return Paths(
        model="m",
        dtype="float32",
        heads=tuple(draw(st.none() | st.integers(1, 64)) for _ in range(depth)),
        counts=draw(st.none() | counts),
        output=draw(shares(depth + 1)),
        residual=draw(st.none() | shares(depth + 1)),
        logits=draw(st.none() | shares(further)),
        loss=loss,
        loss_kind=None if loss is None else "next-token",
        loss_at_most=draw(st.none() | series),
        sampled=draw(
            st.none()
            | st.builds(
                SampledPaths,
                samples=st.integers(1, 9),
                seed=st.integers(0, 2**40),
                residual=gaps,
                error=gaps,
            )
        ),
        precision="float32",
        allowed=draw(REALS),
        input={"examples": 1, "tokens": None},
        remarks=draw(st.lists(st.sampled_from(["One.", "Two."])).map(tuple)),
    )


@settings(max_examples=40, deadline=None)
@given(results())
def test_a_result_comes_back_from_its_record_field_by_field(result):
    assert same(read_paths(paths_record(result)), result)


@pytest.fixture(scope="module")
def record():
    model = ll.Transformer(depth=3, width=16, heads=2, vocabulary=50)
    return ll.paths(model, torch.arange(8)[None], samples=2)


def test_a_saved_record_is_read_without_torch(record, tmp_path):
    place = record.save(tmp_path / "paths.leadline")
    assert same(Record.open(place).paths, record.paths)
    script = (
        "import sys, json, leadline; r = leadline.Record.open(sys.argv[1]); print(r, file=sys.stderr); "
        "json.dump(r.paths.to_json(), sys.stdout); assert 'torch' not in sys.modules"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, place], check=True, capture_output=True, text=True
    )
    assert json.loads(said.stdout) == record.paths.to_json()
    assert said.stderr.startswith(record.paths.to_json()["answer"][0])
    assert "\nPaths by length: " in said.stderr


def test_rows_stand_at_hops_and_points(record):
    assert record.instrument == "paths"
    for point in ("output", "residual", "logits"):
        line = record[f"path.share[{point}]"]
        assert (line.over, line.layers) == ("hops", (0, 1, 2, 3))
        assert tuple(line.values) == getattr(record.paths, point).share
    assert tuple(record["path.loss_at_most[logits]"].values) == record.paths.loss_at_most
    # C(3, l) 2^l by hand
    assert list(record["path.count[output]"].values) == [1, 6, 12, 8]
    assert record.provenance["instrument"]["counts"] == [1, 6, 12, 8]
    assert record.provenance["anatomy"]["depth"] == record.depth() == 3
    assert record.provenance["model"]["parameters"] > 0


def test_counts_beyond_float64_are_exact_in_the_provenance_and_have_an_exponent():
    counts = path_counts([96] * 600, [True] * 600)
    one = Shares(norm=1.0, norm_share=(1.0,), share=(1.0,), remainder=0.0, remainder_eps=0.0)
    result = Paths(model="m", dtype="float32", heads=(96,) * 600, counts=counts, output=one)
    record = paths_record(result)
    assert read_paths(record).counts == counts
    row = record.select("path.count")[600]
    assert row.exponent is not None
    assert row.log10 == pytest.approx(600 * math.log10(96), rel=1e-14)  # all heads, no skip


def test_the_laws_of_lines_over_hops_speak_of_hops(record):
    words = record["path.norm_share[output]"].growth
    assert "layer" not in words.text + words.brief
    assert "hop" in words.text


def test_paths_are_compared_hop_by_hop_reported_and_exported(record, tmp_path):
    model = ll.Transformer(depth=5, width=16, heads=2, vocabulary=50)
    deeper = ll.paths(model, torch.arange(8)[None])
    comparison = ll.compare(record, deeper)
    row = next(one for one in comparison.rows if one.label == "path.norm_share[output]")
    parting = row.sides[1].parting
    short, long = record.paths.norm_share, deeper.paths.norm_share
    by_hand = max(range(4), key=lambda l: abs(math.log(long[l] / short[l])))
    assert parting.layer == by_hand
    assert parting.ratio == pytest.approx(long[by_hand] / short[by_hand])
    (line,) = [one for one in str(comparison).splitlines() if "path.norm_share[output]  " in one]
    assert line.endswith(f" @{by_hand}")
    assert "widest @layer or hops" in str(comparison)  # the norm stands at the last layer
    page = ll.report([record, deeper], tmp_path / "both.html").read_text()
    assert "Share of the paths of one length" in page
    record.to_csv(tmp_path / "rows.csv")
    header, first, *_ = (tmp_path / "rows.csv").read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    assert (cells["quantity"], cells["point"], cells["hops"]) == ("path.share", "output", "0")
    assert float(cells["value"]) == record.paths.share[0]


def test_a_record_of_something_else_says_what_to_run():
    with pytest.raises(ll.RecordError, match=r"no result of paths: use leadline\.paths\("):
        _ = Record().paths


# --- the answer in sentences ------------------------------------------------------------------------


def made(share, bias=(), **fields):
    one = Shares(
        norm=1.0,
        norm_share=share,
        share=share,
        bias_share=bias,
        bias_norm_share=bias,
        remainder=0.0,
        remainder_eps=0.0,
    )
    heads = (2,) * (len(share) - 1)
    return Paths(model="m", dtype="float32", heads=heads, counts=None, output=one, **fields)


@pytest.mark.parametrize(
    ("share", "bias", "half"),
    [
        ((0.6, 0.4), (), 0),
        ((0.2, 0.2, 0.2, 0.4), (), 2),
        ((0.2, 0.1, 0.3), (0.1, 0.2, 0.1), 1),  # 0.3, 0.6, 1
        ((0.7, -0.4, 0.7), (), 2),  # 0.7 falls to 0.3 again
        ((0.1, 0.1), (), None),
        ((math.nan, 1.0), (), None),
    ],
)
def test_half_of_a_tensor_comes_along_paths_of_at_most(share, bias, half):
    assert half_length(made(share, bias).output) == half


def test_the_answer_is_at_most_three_sentences():
    found = made((0.2, 0.4, 0.3), (0.05, 0.05, 0.0), loss=3.0, loss_at_most=(5.0, 3.5, 3.0))
    assert answer(found) == [
        "70% of the output passes through at most 1 of 2 attention layers.",
        "Of the output biases give 10%.",
        "With at most 1 hop the loss is 3.5; that of the model is 3.",
    ]
    assert answer(made((math.nan, math.nan))) == [
        "The output cannot be told by the length of its paths: it is not finite."
    ]
    assert answer(made((0.6, -0.4, 0.1)))[0].endswith(
        "no number of hops gives half of it for good."
    )


def test_what_passes_no_attention_layer_is_one_sentence():
    found = made((0.98, 0.02))
    assert answer(found) == ["98% of the output passes through no attention layer."]
    assert found.to_json()["answer"] == answer(found) and found.to_json()["schema"] == 1
    assert answer(made((0.999, 0.001)))[0].startswith("More than 99% of the output")


def test_the_most_important_rows_keep_their_order_and_the_biases():
    found = made((0.1, 0.5, 0.0, 0.4))
    rows = [["0"], ["1"], ["2-2"], ["3"], ["biases"]]
    assert most_important(found, rows, 3) == [["1"], ["3"], ["biases"]]
