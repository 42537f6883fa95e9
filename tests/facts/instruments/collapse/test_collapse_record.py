"""What `collapse` found as a record: rows, the way back to the bit, and every reader of records."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import leadline as ll
from leadline.instruments.collapse.measure import _join_examples
from leadline.instruments.collapse.recording import _bare_anatomy
from leadline.instruments.collapse.result import Collapse
from leadline.instruments.collapse.rows import collapse_record, read_collapse
from leadline.record import Record
from leadline.theory import LayerFacts, StackFacts


def matrices(depth: int, *, width: int = 8, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    return [
        {
            name: torch.randn(width, width, generator=draw, dtype=torch.float64) / width**0.5
            for name in ("W_Q", "W_K", "W_V", "W_O")
        }
        for _ in range(depth)
    ]


def stream(*shape: int, seed: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def same(first: Collapse, second: Collapse) -> bool:
    """Whether every field is equal to the bit."""
    for field in fields(Collapse):
        one, two = getattr(first, field.name), getattr(second, field.name)
        if field.name == "examples":
            if len(one) != len(two) or not all(same(a, b) for a, b in zip(one, two, strict=True)):
                return False
        elif isinstance(one, np.ndarray):
            if one.shape != two.shape or one.tobytes() != two.tobytes():
                return False
        elif repr(one) != repr(two):  # NaN is not equal to itself
            return False
    return True


@pytest.fixture(scope="module")
def two() -> Record:
    return ll.collapse_weights(stream(2, 6, 8), matrices(9), heads=2, facts=True)


# --- the way back --------------------------------------------------------------------------------

# SQLite keeps no sign of zero.
_numbers = st.floats(width=64).map(lambda number: number + 0.0)
_optional = st.none() | _numbers


@st.composite
def results(draw: st.DrawFn) -> Collapse:
    depth, count = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    heads, with_facts = draw(st.integers(1, 2)), draw(st.booleans())

    def line(numbers: st.SearchStrategy[float] = _numbers) -> np.ndarray:
        return np.array(draw(st.lists(numbers, min_size=depth + 1, max_size=depth + 1))) + 0.0

    # A number that one example lacks, all lack: they go through the same weights.
    known = {one.name: draw(st.booleans()) for one in fields(LayerFacts)}

    def layer() -> LayerFacts:
        per_head = ("query_key", "value_output_1", "value_output_inf", "gamma")
        each = {
            name: tuple(draw(_numbers) for _ in range(heads)) if known[name] else ()
            for name in per_head
        }
        rest = {n: draw(_numbers) if known[n] else None for n in known if n not in per_head}
        return LayerFacts(**each, **rest)

    def example() -> Collapse:
        log = line(st.floats(-1e18, 1e18) | st.just(-math.inf))
        facts = StackFacts(
            tokens=draw(st.integers(2, 9)),
            layers=tuple(layer() for _ in range(depth)),
            mask=draw(st.sampled_from(["none", "causal", "other"])),
            skip=draw(st.booleans()),
            keep=draw(st.none() | st.floats(0, 1)),
            turned=draw(st.none() | st.booleans()),
            biased=draw(st.booleans()),
            log10_composite=tuple(line().tolist()),
            log10_smallest=tuple(line().tolist()),
            log10_frobenius=tuple(log.tolist()),
        )
        return Collapse(
            log10_residual=log,
            log10_norm=line(st.floats(-1e18, 1e18)),
            error=line(st.floats(0, allow_nan=False)),
            mantissa=line(st.floats(0, 1e300)),
            exponent=tuple(
                draw(st.none() | st.integers(-(10**19), 10**19)) for _ in range(depth + 1)
            ),
            causal=False,
            name="drawn",
            remarks=tuple(draw(st.lists(st.text(st.characters(codec="ascii")), max_size=2))),
            facts=facts if with_facts else None,
        )

    return _join_examples([example() for _ in range(count)])


@given(results())
@settings(max_examples=60, deadline=None)
def test_a_result_comes_back_to_the_bit(result):
    with collapse_record(result, anatomy=_bare_anatomy(result, 4)) as record:
        assert same(read_collapse(record), result)


def test_a_file_gives_the_result_back_to_the_bit(two, tmp_path):
    two.save(tmp_path / "two.leadline")
    with Record.open(tmp_path / "two.leadline") as again:
        assert again.instrument == "collapse"
        assert same(again.collapse, two.collapse)


def test_a_residual_of_ten_to_minus_ten_to_eighteen_survives_exactly(tmp_path):
    exponent = -3321928094887362347  # 10^18 / log10(2)
    deep = Collapse(
        log10_residual=np.array([0.0, exponent * math.log10(2)]),
        log10_norm=np.array([0.0, 0.0]),
        error=np.array([0.0, 0.25]),
        mantissa=np.array([1.0, 1.5]),
        exponent=(0, exponent),
    )
    record = collapse_record(deep, anatomy=_bare_anatomy(deep, 4))
    record.save(tmp_path / "deep.leadline")
    with Record.open(tmp_path / "deep.leadline") as again:
        assert same(again.collapse, deep)
        [row] = again.select("tokens.residual", layer=1, statistic="mean")
        assert (row.value, row.exponent) == (1.5, exponent)
        assert row.log10 == pytest.approx(-1e18)
        assert (row.lower, row.upper) == (1.5 * 0.75, 1.5 * 1.25)
        assert again.by_layer("tokens.residual").values.tolist() == [1.0, 0.0]


# --- what the rows say -----------------------------------------------------------------------------


def test_rows_hold_every_example_and_what_sums_them_up(two):
    found = two.collapse
    for example in (1, 2):
        rows = [r for r in two.select("tokens.residual") if r.site.example == example]
        assert [r.value for r in rows] == found.mantissa[example - 1].tolist()
        assert tuple(r.exponent for r in rows) == found.exponent[example - 1]
    for layer in range(found.depth + 1):
        exact = [
            Fraction(found.mantissa[i][layer]) * Fraction(2) ** found.exponent[i][layer]
            for i in (0, 1)
        ]
        [mean] = two.select("tokens.residual", layer=layer, statistic="mean")
        [most] = two.select("tokens.residual", layer=layer, statistic="max")
        mean_number = Fraction(mean.value) * Fraction(2) ** mean.exponent
        assert abs(mean_number / (sum(exact) / 2) - 1) < 1e-15
        assert Fraction(most.value) * Fraction(2) ** most.exponent == max(exact)
    line = two["collapse.log10_residual"]
    assert line.values == pytest.approx(found.log10_residual.mean(0), rel=1e-15)
    assert two.by_layer("collapse.error").values == pytest.approx(found.error.max(0))


def test_the_relative_residual_is_that_of_the_probe_where_float64_reaches():
    # Independent route: an ordinary pass in float64, before rounding shows.
    model = ll.Transformer(
        depth=3, width=16, heads=2, embedding="none", positions="none", head="none", seed=1
    ).double()
    x = stream(1, 7, 16)
    measured = ll.measure(model, x, probes="tokens")
    followed = ll.collapse(model, x)
    for name in ("tokens.residual", "tokens.relative_residual"):
        assert measured.quantities[name].is_same(followed.quantities[name])
        assert followed[name].values == pytest.approx(measured[name].values, rel=1e-9)


def test_ingredients_are_the_rows_that_the_probe_writes():
    model = ll.Transformer(
        depth=2, width=16, heads=2, attention="multihead(causal=false)", mlp="relu",
        norm="none", placement="none", connection="none", embedding="none", positions="none",
        head="none", seed=1,
    ).double()  # fmt: skip
    x = stream(1, 7, 16)
    measured = ll.measure(model, x, probes="tokens,residual,collapse")
    followed = ll.collapse(model, x, facts=True)
    per_write = {"collapse.alignment", "collapse.overlap"}  # collapse has one number per layer
    names = [n for n in measured.quantities if n.startswith("collapse.") and n not in per_write]
    assert len(names) == 9
    for name in names:
        of_probe = {
            r.site: r.value for r in measured.select(name) if r.site.head or "diag" not in name
        }
        of_facts = {r.site: r.value for r in followed.select(name) if r.site.example is None}
        if name == "collapse.diagonal":  # the probe's is per head, of the facts the largest
            assert max(of_facts.values()) == pytest.approx(max(of_probe.values()), rel=1e-9)
            continue
        for site, value in of_facts.items():
            assert of_probe[site] == pytest.approx(value, rel=1e-6)


# --- theorems --------------------------------------------------------------------------------------


def test_bounds_of_the_record_are_those_of_the_facts():
    record = ll.collapse_weights(stream(6, 8), matrices(9), heads=2, facts=True)
    from_rows, from_facts = ll.bounds(record), ll.bounds(record.collapse.facts)
    assert [one.name for one in from_rows.bounds] == [one.name for one in from_facts.bounds]
    for one, other in zip(from_rows.bounds, from_facts.bounds, strict=True):
        assert repr(one) == repr(other)
    assert from_rows.name.startswith("attention of 2 heads")


def test_every_example_is_a_stack_of_its_own(two):
    law = next(one for one in ll.bounds(two).bounds if one.name == "collapse-cubic-law")
    assert len(law.rows) == 2 * 9
    assert {row.stack for row in law.rows} == {"stack, example 1", "stack, example 2"}
    ends = [row.measured for row in law.rows if row.layer == 9]
    assert ends == two.collapse.log10_residual[:, -1].tolist()


def test_a_record_without_facts_says_what_to_do():
    record = ll.collapse_weights(stream(6, 8), matrices(2), facts=False)
    with pytest.raises(ll.RecordError, match="facts=True"):
        ll.bounds(record)
    with pytest.raises(ll.RecordError, match="attention matrices"):
        ll.bounds(record, names=["one"])


# --- readers of records ------------------------------------------------------------------------------


def test_the_answer_comes_first():
    cubic = str(ll.collapse_weights(stream(6, 8), matrices(9)))
    first, *rest = cubic.splitlines()
    assert first.startswith("Tokens become equal: the relative residual falls from 0.9")
    assert "cubically from layer" in first and "(ratio of logarithms 3.00)" in first
    assert sum(line.strip()[:1].isdigit() for line in rest) == 10
    deep = str(ll.collapse_weights(stream(6, 8), matrices(20))).splitlines()
    assert sum(line.strip()[:1].isdigit() for line in deep) == 12
    assert deep[-1].startswith("Shown: 12 of 21 sites; --all")
    kept = str(ll.collapse(ll.Transformer(depth=2, width=16, heads=2), torch.arange(8)))
    assert kept.startswith("Tokens stay apart: the relative residual")


def test_several_examples_are_summed_up(two):
    lines = str(two).splitlines()
    assert lines[0].startswith("Tokens become equal in all 2 examples.")
    ends = two.collapse.log10_relative[:, -1]
    assert lines[3].split()[0] == str(int(np.argmax(ends)) + 1)


def test_a_causal_mask_makes_the_fall_a_factor_per_layer():
    values = torch.eye(8, dtype=torch.float64)
    even = {"W_Q": 0 * values, "W_K": 0 * values, "W_V": values, "W_O": values}
    text = str(ll.collapse_weights(stream(3, 8), [even] * 60, causal=True))
    # Token 2 approaches the first by 1/2 per layer, token 3 by 1/3 and towards token 2.
    assert "by a factor of about 0.5 per layer from layer 31 on" in text.splitlines()[0]


def test_the_factor_is_that_of_the_relative_residual_which_the_sentence_is_about():
    values = torch.eye(8, dtype=torch.float64)
    # Values of a quarter make every layer four times smaller, and tokens no more alike.
    small = {"W_Q": 0 * values, "W_K": 0 * values, "W_V": values / 4, "W_O": values}
    result = ll.collapse_weights(stream(3, 8), [small] * 60, causal=True).collapse
    assert result.rate[-1] == pytest.approx(math.log10(1 / 8), abs=1e-6)
    assert "by a factor of about 0.5 per layer from layer 31 on" in result.to_json()["answer"][0]


def test_all_rows_say_nothing_of_rows_that_are_not_shown(two):
    assert "Shown:" in two.screen().text()
    assert "Shown:" not in two.screen(everything=True).text()


def test_a_record_of_collapse_has_what_bounds_need():
    assert ll.bounds(ll.collapse_weights(stream(6, 8), matrices(2))).bounds


def test_records_of_collapse_are_compared_reported_and_exported(two, tmp_path):
    other = ll.collapse_weights(stream(6, 8), matrices(4), causal=True)
    text = str(ll.compare(two, other))
    assert "collapse.log10_residual" in text and "collapse.query_key" not in text
    page = ll.report([two, other], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Logarithm of the token residual" in page and "Rank collapse and its bounds" in page
    frame = two.to_pandas()
    assert len(frame) == len(two) == two.to_arrow().num_rows
    cube = two.to_xarray()["tokens.residual.log10"]
    last = cube.sel(layer=9, statistic="value", example=2).item()
    assert last == pytest.approx(two.collapse.log10_residual[1][-1])
    two.to_csv(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == len(two) + 1


def test_old_attributes_are_handed_over_with_a_warning(two):
    with pytest.warns(DeprecationWarning, match=r"record\.collapse\.log10_residual"):
        assert two.log10_residual.shape == (2, 10)


def test_reading_a_saved_record_loads_no_torch(two, tmp_path):
    file = tmp_path / "two.leadline"
    two.save(file)
    program = (
        "import sys; from leadline import Record, bounds, report\n"
        f"record = Record.open({str(file)!r})\n"
        "print(record, record.collapse.depth, bounds(record))\n"
        f"report(record, {str(tmp_path / 'page.html')!r})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
