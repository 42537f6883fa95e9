"""The map as a picture: well formed, complete, harmless."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from leadline.reading.map.picture import trainability_picture
from leadline.reading.map.trainability import trainability
from tests.synthetic_sweep import sweep_record

SVG = "{http://www.w3.org/2000/svg}"
HARM = "<script>alert(1)</script>&\"'"


def drawn(record, **options) -> ET.Element:
    return ET.fromstring(trainability_picture(trainability(record), **options))


def words(picture: ET.Element) -> str:
    return " ".join(text.text or "" for text in picture.iter(f"{SVG}text"))


def rects(picture: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in picture.iter(f"{SVG}rect") if one.get("class") == kind]


def test_every_place_is_drawn_with_its_verdict() -> None:
    picture = drawn(sweep_record())
    # pre trains at 4 depths, post at 2; the other six places do not.
    assert len(rects(picture, "yes")) == 6
    assert len(rects(picture, "no")) == 6
    assert len(rects(picture, "gauge")) == 12
    for text in ("✓ 2.30", "✗ 3.13", "3/3", "0/3", "48 or more", "12, not 24", "below 6"):
        assert text in words(picture)


def test_the_frame_goes_round_the_usable_depths() -> None:
    picture = drawn(sweep_record())
    cells = sorted({float(one.get("x", "0")) for one in rects(picture, "no")})
    width = float(rects(picture, "no")[0].get("width", "0"))
    first, second = rects(picture, "usable")
    assert float(first.get("width", "0")) == pytest.approx(cells[3] + width - cells[0] + 2)
    assert float(second.get("width", "0")) == pytest.approx(cells[1] + width - cells[0] + 2)


def test_holes_are_dashed_and_named() -> None:
    missing = [f"design=plain, depth=48, seed={seed}" for seed in range(3)]
    picture = drawn(sweep_record(missing=missing))
    assert len(rects(picture, "hole")) == 2  # one in the map of the loss, one in that of the gauge
    assert "not run" in words(picture)


def test_the_farther_from_the_limit_the_stronger_the_colour() -> None:
    changes = {f"design=pre, depth=6, seed={seed}": {"loss": 2.8} for seed in range(3)}
    near, far, *_ = (
        float(one.get("fill-opacity", "0"))
        for one in rects(drawn(sweep_record(changes=changes)), "yes")
    )
    assert near < far


def test_letters_stay_readable_on_the_strongest_and_show_on_the_palest_colour() -> None:
    lost = {"status": "diverged", "loss": None}
    changes = {
        f"design={design}, depth=6, seed={seed}": lost if design == "post" else {"loss": 2.84}
        for design in ("pre", "post")
        for seed in range(3)
    }
    picture = drawn(sweep_record(changes=changes))
    assert rects(picture, "yes")[0].get("fill-opacity") == "0.16"
    assert rects(picture, "no")[0].get("fill-opacity") == "0.50"


def test_a_file_has_colours_for_light_and_dark_pages_and_the_page_its_own() -> None:
    alone = trainability_picture(trainability(sweep_record()))
    inside = trainability_picture(trainability(sweep_record()), alone=False)
    assert "prefers-color-scheme:dark" in alone
    assert "What trains: made" in alone
    assert "<style" not in inside


SMALL_MAPS = {
    "one place": sweep_record(depths=(6,), limits={"pre": 96}),
    "one column that is judged": sweep_record(depths=(6,), limits={"pre": 96, "none": 0}),
    "two columns": sweep_record(depths=(6, 12), limits={"pre": 96, "none": 0}),
    "a long name": sweep_record(
        depths=(6,), limits={"pre": 96, "none": 0}, name="a long name " * 6
    ),
}


@pytest.mark.parametrize("which", SMALL_MAPS)
def test_everything_stands_inside_the_picture(which: str) -> None:
    picture = drawn(SMALL_MAPS[which])
    width = float(picture.get("width", "0"))
    for text in picture.iter(f"{SVG}text"):
        letters = (8.0 if text.get("class") == "title" else 6.3) * len(text.text or "")
        start = float(text.get("x", "0"))
        shift = {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", ""), 0.0)
        assert start - shift * letters >= 0
        assert start + (1 - shift) * letters <= width


def test_no_label_becomes_markup() -> None:
    picture = drawn(sweep_record(limits={HARM: 12, "pre": 6}))
    assert HARM in words(picture)
    assert not list(picture.iter(f"{SVG}script"))


def test_hovering_tells_seeds_probability_and_losses() -> None:
    titles = [one.text or "" for one in drawn(sweep_record()).iter(f"{SVG}title")]
    assert titles[0] == (
        "pre, depth 6: 3 of 3 seeds train, probability 0.29 to 1.00 (95 %); losses 2.30, 2.30, 2.31"
    )


def test_the_picture_can_be_heard() -> None:
    label = drawn(sweep_record()).get("aria-label", "")
    assert re.search("Usable depth: pre: 48 or more; post: 12, not 24; plain: below 6", label)


def test_headings_do_not_run_into_each_other() -> None:
    for record in SMALL_MAPS.values():
        heads = [one for one in drawn(record).iter(f"{SVG}text") if one.get("y") == "48"]
        first, second = sorted(heads, key=lambda one: float(one.get("x", "0")))
        end = float(first.get("x", "0")) + 6.3 * len(first.text or "")
        assert end < float(second.get("x", "0"))


def test_a_long_axis_has_room_beside_the_gauge() -> None:
    record = sweep_record(depths=(6,), limits={"pre": 96})
    found = replace(trainability(record), axis="number_of_layers_of_it")
    picture = ET.fromstring(trainability_picture(found))
    (usable,) = [one for one in picture.iter(f"{SVG}text") if (one.text or "").startswith("usable")]
    (gauge,) = rects(picture, "gauge")
    end = float(usable.get("x", "0")) + 6.3 * len(usable.text or "")
    assert end < float(gauge.get("x", "0"))


def test_words_that_would_fill_a_place_from_edge_to_edge_are_smaller() -> None:
    lost = {f"design=pre, depth=6, seed={s}": {"status": "diverged", "loss": None} for s in "012"}
    texts = {one.text: one for one in drawn(sweep_record(changes=lost)).iter(f"{SVG}text")}
    assert texts["✗ diverged"].get("class") == "small"
    assert texts["✓ 2.30"].get("class") is None


def test_two_reasons_of_a_hole_stand_below_each_other() -> None:
    lost = {
        f"design=pre, depth=6, seed={seed}": {"status": status, "loss": None, "reason": "x"}
        for seed, status in enumerate(("failed", "impossible", "failed"))
    }
    texts = {one.text: one for one in drawn(sweep_record(changes=lost)).iter(f"{SVG}text")}
    first, second = (float(texts[word].get("y", "0")) for word in ("failed", "impossible"))
    assert second - first == 14
