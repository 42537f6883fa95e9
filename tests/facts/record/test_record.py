"""What a record holds and how it is asked."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from leadline.errors import RecordError, UnknownName
from leadline.record import Finding, Quantity, Reading, Record, Site
from tests.synthetic import QUANTITIES, gpt2_record, t5_record


def record_of(lives_on: str, readings: list[tuple[Site, float]], **rest: object) -> Record:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q", lives_on=lives_on))  # pyright: ignore
    record.append(Reading("q", site, "mean", value, **rest) for site, value in readings)  # pyright: ignore
    return record


def test_line_of_the_stream_runs_from_the_embedding_to_the_last_block() -> None:
    record = gpt2_record(depth=12)
    line = record.by_layer("stream.norm", statistic="median")
    assert line.layers == tuple(range(13))
    by_hand = {
        reading.site.layer: reading.value
        for reading in record.select()
        if (reading.quantity, reading.statistic, reading.site.sublayer)
        == ("stream.norm", "median", None)
    }
    assert np.asarray(line).tolist() == [by_hand[layer] for layer in range(13)]


def test_stream_inside_blocks_is_a_line_of_its_own() -> None:
    record = record_of(
        "stream",
        [(Site("d", 0), 1.0), (Site("d", 1, 1), 2.0), (Site("d", 1), 3.0), (Site("d", 2, 1), 4.0)],
    )
    assert record["q"].layers == (0, 1)
    assert np.asarray(record["q"]).tolist() == [1.0, 3.0]
    inside = record.by_layer("q", sublayer=1)
    assert inside.layers == (1, 2)
    assert inside.sublayer == 1
    assert np.asarray(inside).tolist() == [2.0, 4.0]
    assert record.profiles("q") == [record["q"]]


def test_headline_statistic_is_the_default() -> None:
    record = gpt2_record()
    assert record["stream.norm"] == record.by_layer("stream.norm", statistic="mean")
    assert record["tokens.residual"].statistic == "value"
    assert record.profiles("stream.norm")[0].statistic == "mean"


def test_sublayers_are_asked_by_role_or_number() -> None:
    record = gpt2_record()
    attention = record.by_layer("update.norm", point="attention")
    assert attention.layers == tuple(range(1, 13))
    assert attention == record.by_layer("update.norm", sublayer=1)
    assert attention == record["update.norm[attention]"]
    with pytest.raises(RecordError) as caught:
        record.by_layer("update.norm")
    assert str(caught.value) == (
        "'update.norm' has 2 lines over depth. Choose one with point='attention'; point='mlp'."
    )
    with pytest.raises(RecordError, match=r"no line with point='mixer'. It has: point='att"):
        record.by_layer("update.norm", point="mixer")


def test_one_sublayer_per_block_needs_no_choice() -> None:
    record = record_of("sublayer", [(Site("d", l, 1, "mixer"), float(l)) for l in (1, 2)])
    assert np.asarray(record["q"]).tolist() == [1.0, 2.0]


def test_two_writes_of_one_role_are_told_apart_by_number() -> None:
    writes = ((1, "mlp"), (2, "attention"), (3, "mlp"))
    record = record_of(
        "sublayer", [(Site("d", l, s, role), 10.0 * l + s) for l in (1, 2) for s, role in writes]
    )
    assert np.asarray(record["q[mlp 3]"]).tolist() == [13.0, 23.0]
    assert np.asarray(record.by_layer("q", point="mlp", sublayer=1)).tolist() == [11.0, 21.0]
    with pytest.raises(RecordError, match="point='mlp', sublayer=1; point='mlp', sublayer=3"):
        record.by_layer("q", point="mlp")


def test_role_that_changes_its_place_is_still_one_line() -> None:
    sites = [Site("d", 1, 1, "attention"), Site("d", 2, 2, "attention"), Site("d", 2, 1, "mixer")]
    record = record_of("sublayer", [(site, float(at)) for at, site in enumerate(sites)])
    line = record["q[attention]"]
    assert (line.layers, line.sublayer) == ((1, 2), None)


def test_stacks_keep_their_order_and_the_first_is_the_default() -> None:
    record = t5_record(depth=6)
    assert record.stacks == ["encoder", "decoder"]
    assert (record.depth(), record.depth("decoder")) == (6, 12)
    assert record["stream.norm"].stack == "encoder"
    assert len(record["decoder/stream.norm"]) == 13
    assert record["decoder/update.norm[cross-attention]"].sublayer == 2
    with pytest.raises(UnknownName, match="Did you mean 'decoder'"):
        record.depth("decoders")


def test_depth_is_read_from_the_sites_where_the_anatomy_is_silent() -> None:
    assert record_of("stream", [(Site("d", l), 1.0) for l in range(8)]).depth() == 7


def test_depth_of_the_anatomy_stands_where_few_layers_were_read() -> None:
    record = record_of("layer", [(Site("d", 2, None, "block"), 1.0)])
    record.note("anatomy", {"stacks": {"d": {"depth": 40}}})
    assert record.depth() == 40


def test_unknown_quantity_is_answered_with_the_nearest() -> None:
    record = gpt2_record()
    for ask in (
        lambda: record["strem.norm"],
        lambda: record.by_layer("strem.norm"),
        lambda: record.profiles("strem.norm"),
        lambda: record.select("strem.norm"),
    ):
        with pytest.raises(UnknownName, match=r"Did you mean 'stream\.norm'.*Known: block"):
            ask()


def test_unknown_statistic_lists_those_there_are() -> None:
    with pytest.raises(
        RecordError, match=r"no readings of the statistic 'mode'\. It has: mean, med"
    ):
        gpt2_record().by_layer("stream.norm", statistic="mode")


def test_empty_record_says_so() -> None:
    record = Record()
    assert len(record) == 0
    assert record
    record.describe(QUANTITIES[0])
    assert record.profiles("stream.norm") == []
    with pytest.raises(RecordError, match="no readings yet"):
        record.by_layer("stream.norm")


def test_selection_takes_every_field() -> None:
    record = gpt2_record()
    everything = record.select()
    assert len(everything) == len(record)
    for ask, keep in (
        ({"quantity": "update.norm"}, lambda r: r.quantity == "update.norm"),
        ({"statistic": "median"}, lambda r: r.statistic == "median"),
        ({"layer": 0}, lambda r: r.site.layer == 0),
        ({"sublayer": 2}, lambda r: r.site.sublayer == 2),
        ({"sublayer": None}, lambda r: r.site.sublayer is None),
        ({"point": "mlp", "layer": 3}, lambda r: (r.site.point, r.site.layer) == ("mlp", 3)),
        ({"stack": "encoder"}, lambda r: r.site.stack == "encoder"),
        ({"seed": 0}, lambda r: r.seed == 0),
        ({"step": 1}, lambda r: r.step == 1),
        ({"run": ""}, lambda r: r.run == ""),
    ):
        assert record.select(**ask) == [found for found in everything if keep(found)]  # pyright: ignore


def test_first_run_and_last_step_are_shown_and_seeds_averaged() -> None:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q"))
    for run, step, seed, value in (
        ("a", 0, 0, 1.0),
        ("a", 10, 0, 2.0),
        ("a", 10, 1, 4.0),
        ("b", 20, 0, 9.0),
    ):
        record.append([Reading("q", Site("d", 1), "mean", value, run=run, step=step, seed=seed)])
    assert record.runs == ["a", "b"]
    assert record["q"].first == 3.0
    assert record.by_layer("q", step=0).first == 1.0
    assert record.by_layer("q", run="b").first == 9.0
    assert record.profiles("q", run="b")[0].first == 9.0
    assert "2 runs; shown: 'a'" in str(record)


def test_summary_stands_before_heads_and_heads_are_averaged_without_one() -> None:
    heads = [(Site("d", 1, 1, "attention", head=h), float(h)) for h in range(4)]
    assert record_of("sublayer", heads)["q"].first == 1.5
    whole = [(Site("d", 1, 1, "attention"), 7.0), *heads]
    assert record_of("sublayer", whole)["q"].first == 7.0


def test_reading_without_a_definition_is_refused() -> None:
    record = Record()
    with pytest.raises(UnknownName, match="No described quantity is called 'q'"):
        record.append([Reading("q", Site("d", 1), "mean", 1.0)])
    assert len(record) == 0


def test_definition_is_stored_once() -> None:
    record = Record()
    record.describe(QUANTITIES[0])
    record.describe(QUANTITIES[0])
    assert list(record.quantities.values()) == [QUANTITIES[0]]
    with pytest.raises(RecordError, match=r"another definition of 'stream\.norm'"):
        record.describe(Quantity("stream.norm", "Other", "x", "y"))


def test_findings_keep_their_site_and_stand_worst_first() -> None:
    record = Record()
    well, odd = Finding("All is well."), Finding("Odd.")
    bad = Finding("Bad.", "q", Site("d", 3, 2, "mlp", lane=1, head=2, token=3, rank=4), "serious")
    worse = Finding("Worse.", severity="serious")
    for finding in (well, bad, odd, worse):
        record.add_finding(finding)
    assert record.findings == [bad, worse, well, odd]


def test_later_note_stands() -> None:
    record = Record()
    record.note("loss", {"value": math.nan})
    record.note("input", [1, 2])
    assert math.isnan(record.provenance["loss"]["value"])
    record.note("loss", {"value": 2.5})
    assert record.provenance == {"loss": {"value": 2.5}, "input": [1, 2]}


def test_profile_is_an_array_that_cannot_be_changed() -> None:
    line = gpt2_record()["stream.norm"]
    with pytest.raises(ValueError, match="read-only"):
        line.values[0] = 1.0
    copy = np.array(line)
    copy[0] = -1.0
    assert line.first > 0
    assert np.asarray(line, dtype=np.float32).dtype == np.float32
    assert (line.first, line.last, len(line)) == (line.values[0], line.values[-1], 13)
    assert len({line, gpt2_record()["stream.norm"]}) == 1
    assert line != gpt2_record(seed=1)["stream.norm"]
    assert line != "stream.norm"


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (Site("decoder", 0), "decoder layer 0 stream"),
        (Site("decoder", 3, 1), "decoder layer 3 stream after write 1"),
        (Site("encoder", 2, None, "block"), "encoder layer 2"),
        (Site("encoder", 2, 2, "mlp", head=5), "encoder layer 2 mlp (write 2) head 5"),
    ],
)
def test_site_is_an_address_in_words(site: Site, words: str) -> None:
    assert str(site) == words


def test_records_need_no_torch() -> None:
    program = (
        "import sys, leadline.record, leadline.reading.compare.compare, leadline.reading.page;"
        "print(sorted({'torch', 'transformers', 'pandas', 'plotly'} & set(sys.modules)))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "[]"
