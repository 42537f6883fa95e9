"""Jacobians and exponents as records: rows, what is read back from them, and what reads them."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import leadline
from leadline.errors import RecordError
from leadline.instruments.jacobian.result import Direction, Jacobian, Lyapunov
from leadline.instruments.jacobian.rows import (
    jacobian_record,
    lyapunov_record,
    read_jacobian,
    read_lyapunov,
)
from leadline.record import Record

EDGES = [0.0, -0.0, 5e-324, 1.7e308, math.inf, math.nan, 0.1, 1 / 3]


def same(one, other):
    """Field by field, to the bit; NaN is NaN, and SQLite has one zero."""
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return type(one) is type(other) and one == other


def drawn_jacobian(draw, *, values, examples, tokens, length, sublayer, refused):
    """A result of every kind, filled with the numbers that `draw` gives."""

    def table(*shape):
        return np.array([draw() for _ in range(math.prod(shape))]).reshape(shape)

    k, low = (0, 0) if refused else (3, values)
    top, bottom = table(examples, k), table(examples, low)

    def path(column):
        shares = table(examples, tokens), table(examples, tokens)
        return Direction(value=column, entry=shares[0], exit=shares[1], overlap=table(examples))

    nothing = np.full(examples, np.nan)
    return Jacobian(
        model="toy",
        stack="decoder",
        start=2,
        end=2 + length,
        sublayer=sublayer,
        shape=(examples, tokens, 4),
        values=top,
        errors=table(examples, k),
        smallest=bottom,
        smallest_errors=table(examples, low),
        norm=table(examples),
        norm_error=table(examples),
        distance=table(examples),
        distance_error=table(examples),
        branch=nothing if refused else table(examples),
        branch_error=nothing if refused else table(examples),
        blocks=table(length, examples) if length > 1 and not refused else None,
        leak=0.0 if tokens == 1 else 0.3,
        causal=None if tokens == 1 else False,
        strongest=None if refused else path(top[:, 0].copy()),
        weakest=path(bottom[:, 0].copy()) if low else None,
        probes=32,
        products=2**60 + 1,
        precision="float32",
        kernel="math",
        remarks=("One.", "Two: é."),
    )


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.lists(st.floats() | st.sampled_from(EDGES), min_size=1, max_size=40),
    examples=st.integers(1, 3),
    tokens=st.integers(1, 3),
    length=st.integers(1, 3),
    low=st.integers(0, 2),
    refused=st.booleans(),
    write=st.booleans(),
)
def test_a_jacobian_comes_back_to_the_bit(
    numbers, examples, tokens, length, low, refused, write, tmp_path_factory
):
    place = iter(range(10**6))
    result = drawn_jacobian(
        lambda: numbers[next(place) % len(numbers)],
        values=low,
        examples=examples,
        tokens=tokens,
        length=length,
        sublayer=2 if write and length == 1 else None,
        refused=refused,
    )
    role = "mlp" if result.sublayer else "block"
    record = jacobian_record(result, {}, role=role, depth=2 + length)
    assert same(read_jacobian(record), result)
    file = record.save(tmp_path_factory.mktemp("rows") / "a.leadline")
    with Record.open(file) as opened:
        assert same(opened.jacobian, result)


@settings(max_examples=15, deadline=None)
@given(
    numbers=st.lists(
        st.floats(max_value=1e18, min_value=-1e18) | st.sampled_from([-math.inf, -1e18, -400.0]),
        min_size=1,
        max_size=30,
    ),
    depth=st.integers(1, 4),
    backward=st.booleans(),
)
def test_exponents_come_back_to_the_bit(numbers, depth, backward, tmp_path_factory):
    place = iter(range(10**6))

    def table(*shape):
        count = math.prod(shape)
        return np.array([numbers[next(place) % len(numbers)] for _ in range(count)]).reshape(shape)

    result = Lyapunov(
        model="toy",
        stack="decoder",
        backward=backward,
        shape=(2, 3, 4),
        exponents=table(2, 3),
        growth=table(depth, 2, 3),
        log10_norm=table(depth + 1, 2),
        log10_norm_error=np.full((depth + 1, 2), 0.01),
        remarks=("Said.",),
    )
    record = lyapunov_record(result, {})
    assert same(read_lyapunov(record), result)
    file = record.save(tmp_path_factory.mktemp("rows") / "a.leadline")
    with Record.open(file) as opened:
        assert same(opened.lyapunov, result)


def exponents(log10_norm, **fields):
    logs = np.array(log10_norm, dtype=np.float64)
    depth, examples = len(logs) - 1, logs.shape[1]
    given = {
        "model": "toy",
        "stack": "decoder",
        "backward": True,
        "shape": (examples, 3, 4),
        "exponents": np.full((examples, 1), 0.5),
        "growth": np.full((depth, examples, 1), 0.5),
        "log10_norm": logs,
        "log10_norm_error": np.full(logs.shape, 0.01),
    }
    return Lyapunov(**(given | fields))


def test_norms_beyond_float64_are_rows_with_an_exponent():
    record = lyapunov_record(exponents([[-500.0, 400.0], [2.0, math.log10(300.0)], [0.0, 0.0]]), {})
    first, second = (record.select("jacobian.partial", layer=site) for site in (0, 1))
    by_example = {one.site.example: one for one in first if one.site.example}
    assert by_example[1].log10 == pytest.approx(-500.0, abs=1e-9)
    assert by_example[2].log10 == pytest.approx(400.0, abs=1e-9)
    (mean,) = (one for one in first if one.statistic == "mean" and one.site.example is None)
    # 10^400 / 2, whatever the other example is.
    assert mean.log10 == pytest.approx(400.0 - math.log10(2), abs=1e-9)
    assert mean.upper / mean.value == pytest.approx(1 + 0.01 * math.log(10), rel=1e-9)
    plain = {(one.statistic, one.site.example): one for one in second}
    assert plain["mean", None].value == pytest.approx(200.0)
    assert plain["max", None].value == pytest.approx(300.0)
    assert plain["mean", None].exponent is None
    # A line over depth shows the number itself: beyond float64 it is infinite, not its digits.
    assert record["jacobian.partial"].values.tolist() == [math.inf, pytest.approx(200.0)]


def test_a_norm_that_is_zero_is_a_row_of_zero():
    record = lyapunov_record(exponents([[-math.inf], [0.0]]), {})
    assert {one.value for one in record.select("jacobian.partial", layer=0)} == {0.0}


# --- records of models ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return leadline.Transformer(depth=3, width=16, heads=2, vocabulary=13)


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 13, (2, 5), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def measured(model, ids):
    return leadline.measure(model, ids, probes="jacobian(k=2,through=true),lyapunov(k=2)")


@pytest.fixture(scope="module")
def whole(model, ids):
    return leadline.jacobian(model, ids, k=2)


def summary(record, quantity, layer, point, statistic="mean", rank=None):
    (value,) = (
        one.value
        for one in record.select(quantity, layer=layer, point=point, statistic=statistic)
        if one.site.example is None and one.site.rank == rank and one.site.sublayer is None
    )
    return value


@pytest.mark.parametrize("statistic", ["mean", "max"])
def test_a_block_has_the_rows_that_the_probe_writes(model, ids, measured, statistic):
    record = leadline.jacobian(model, ids, layer=2, k=2)
    for quantity, rank in (
        ("jacobian.singular", None),
        ("jacobian.singular", 2),
        ("jacobian.branch", None),
        ("jacobian.norm", None),
        ("jacobian.distance", None),
    ):
        mine = summary(record, quantity, 2, "block", statistic, rank)
        assert mine == pytest.approx(
            summary(measured, quantity, 2, "block", statistic, rank), rel=1e-5
        )
    assert summary(record, "jacobian.leak", 2, "block", "max") == 0.0
    for name, quantity in record.quantities.items():
        if name in measured:
            assert quantity == measured.quantities[name]


def test_a_stretch_has_the_rows_of_its_blocks_and_of_products(measured, whole):
    for layer in (1, 2, 3):
        for quantity, point in (
            ("jacobian.singular", "block"),
            ("jacobian.product_of_norms", "stream"),
        ):
            mine = summary(whole, quantity, layer, point)
            assert mine == pytest.approx(summary(measured, quantity, layer, point), rel=1e-5)
    through = summary(whole, "jacobian.through", 3, "stream")
    assert through == pytest.approx(summary(measured, "jacobian.through", 3, "stream"), rel=1e-5)
    assert through == summary(whole, "jacobian.singular", 3, "from site 0", rank=1)
    # One and the same norm, by other random vectors.
    partial = summary(whole, "jacobian.partial", 0, "stream")
    assert partial == pytest.approx(summary(measured, "jacobian.partial", 0, "stream"), rel=0.1)
    assert partial == whole.jacobian.norm.mean()


def test_a_write_stands_at_its_own_site(model, ids):
    record = leadline.jacobian(model, ids, layer=2, sublayer=2, k=1)
    sites = {(one.site.layer, one.site.sublayer, one.site.point) for one in record.select()}
    assert sites == {(2, 2, "mlp")}


def test_exponents_have_the_rows_that_the_probe_writes(model, ids, measured):
    record = leadline.lyapunov(model, ids, k=2)
    for layer in (1, 2, 3):
        mine = summary(record, "lyapunov.growth", layer, "block", rank=2)
        assert mine == pytest.approx(
            summary(measured, "lyapunov.growth", layer, "block", rank=2), abs=1e-6
        )
        mine = summary(record, "lyapunov.exponent", layer - 1, "stream", rank=2)
        assert mine == pytest.approx(
            summary(measured, "lyapunov.exponent", layer - 1, "stream", rank=2), abs=1e-6
        )


def test_what_goes_forward_is_never_set_beside_what_goes_backward(model, ids):
    record = leadline.lyapunov(model, ids, k=2, backward=False)
    assert set(record.quantities) == {
        "lyapunov.forward_growth",
        "lyapunov.forward_exponent",
        "jacobian.norm",
    }
    assert {one.site.point for one in record.select("jacobian.norm")} == {"from site 0"}


def test_shares_by_token_are_rows(model, ids):
    record = leadline.jacobian(model, ids, layer=2, smallest=1)
    for name, path in (
        ("strongest", record.jacobian.strongest),
        ("weakest", record.jacobian.weakest),
    ):
        rows = record.select(f"jacobian.{name}_entry")
        shares = {(one.site.example, one.site.token): one.value for one in rows if one.site.example}
        assert shares == {(e + 1, t + 1): path.entry[e, t] for e in range(2) for t in range(5)}
        (largest,) = (
            one.value for one in rows if one.site.token is None and one.statistic == "mean"
        )
        assert largest == pytest.approx(path.entry.max(1).mean())


def test_vectors_are_there_in_memory_and_in_no_file(model, ids, tmp_path):
    record = leadline.jacobian(model, ids, layer=1, k=2, vectors=True)
    assert record.jacobian.left.shape == record.jacobian.right.shape == (2, 2, 5, 16)
    record.note("a remark", "kept")  # a view is read anew after every change
    assert record.jacobian.left is not None
    with Record.open(record.save(tmp_path / "a.leadline")) as opened:
        assert opened.jacobian.left is opened.jacobian.right is None
        assert same(opened.jacobian.values, record.jacobian.values)
        assert str(opened) == str(record)
        assert opened._repr_html_() == record._repr_html_()


def test_the_provenance_says_what_was_measured(model, ids, measured, whole):
    for key in ("model", "input", "anatomy", "versions"):
        assert whole.provenance[key] == measured.provenance[key]
    assert whole.depth() == 3 and whole.instrument == "jacobian"


def test_records_are_compared_reported_and_exported(model, ids, measured, whole, tmp_path):
    pytest.importorskip("pandas")
    grown = leadline.lyapunov(model, ids, k=2)
    comparison = leadline.compare(measured, whole, grown)
    common = {row.label: [side is not None for side in row.sides] for row in comparison.rows}
    assert common["jacobian.singular"] == [True, True, False]
    assert common["jacobian.partial"] == [True, True, True]
    assert common["lyapunov.exponent"] == [True, False, True]
    assert common["jacobian.norm[from site 0]"] == [False, True, False]
    leadline.report([whole, grown], tmp_path / "both.html")
    assert "jacobian.through" in (tmp_path / "both.html").read_text(encoding="utf-8")
    table = whole.to_pandas()
    assert len(table) == len(whole)
    assert set(table.example.dropna()) == {1, 2}
    whole.to_csv(tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == len(whole) + 1


def test_numbers_of_before_are_handed_over_with_a_warning(whole):
    with pytest.warns(DeprecationWarning, match=r"write record\.jacobian\.values"):
        assert same(whole.values, whole.jacobian.values)


def test_a_record_of_another_instrument_says_what_to_run(whole, measured):
    with pytest.raises(RecordError, match="holds no result of lyapunov: use leadline"):
        _ = whole.lyapunov
    with pytest.raises(RecordError, match=r"written by leadline\.measure"):
        _ = measured.jacobian


def test_a_saved_record_is_read_without_torch(whole, tmp_path):
    file = whole.save(tmp_path / "a.leadline")
    script = (
        "import sys, json, leadline\n"
        f"record = leadline.Record.open({str(file)!r})\n"
        "print(json.dumps([record.jacobian.to_json(), 'torch' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [json.loads(json.dumps(whole.jacobian.to_json())), False]
