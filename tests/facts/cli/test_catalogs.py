"""The commands that show the catalogs: list and explain."""

import json

from leadline.catalog import Catalog
from leadline.cli._shelves import SHELVES, SINGULAR
from leadline.probes import PROBES


def test_list_shows_every_probe_and_every_quantity(leadline):
    said = leadline("list")
    assert said.code == 0
    for name, probe in PROBES.items():
        assert f"  {name} " in said.out
        assert all(f"  {quantity.name} " in said.out for quantity in probe.quantities)


def test_list_prints_one_line_per_entry_in_a_pipe(leadline):
    said = leadline("list", "probes")
    assert said.out.count("\n") == 1 + len(PROBES) + 2
    assert not any(line.endswith(" ") for line in said.out.splitlines())


def test_list_prints_json_alone(leadline):
    found = json.loads(leadline("list", "--json").out)
    assert list(found) == list(SHELVES)
    assert [entry["name"] for entry in found["probes"]] == PROBES.names()
    assert all(entry["summary"] for entries in found.values() for entry in entries)


def test_an_unknown_kind_is_answered_with_the_nearest(leadline):
    said = leadline("list", "probe")
    assert said.code == 2
    assert "Did you mean 'probes'?" in said.err


def test_every_kind_has_a_singular():
    assert set(SINGULAR) == set(SHELVES)


def test_explain_tells_what_high_and_low_mean(leadline):
    said = leadline("explain", "stream.norm")
    assert "stream.norm (quantity)" in said.out
    for fact in ("symbol", "formula", "high", "low", "source", "measured by"):
        assert f"  {fact} " in said.out


def test_explain_prints_json_alone(leadline):
    page = json.loads(leadline("explain", "stream", "--json").out)["probes"]
    assert page["name"] == "stream"
    assert "stream.norm" in page["facts"]["quantities"]


def test_an_unknown_name_is_answered_with_the_nearest(leadline):
    said = leadline("explain", "strem.norm")
    assert said.code == 2
    assert "Did you mean 'stream.norm'" in said.err


def test_a_plugin_adds_to_the_list(leadline, tmp_path, monkeypatch):
    probes = Catalog("probe")
    monkeypatch.setattr("leadline.probes.PROBES", probes)
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        '"""How mine is measured."""\n'
        "from leadline.probes import PROBES\n"
        "@PROBES.register('mine')\n"
        "class Mine:\n"
        "    '''What nobody else measures.'''\n"
        "    quantities = ()\n"
    )
    said = leadline("list", "probes", "--plugin", plugin)
    assert "mine  What nobody else measures." in said.out
    said = leadline("explain", "mine", "--plugin", plugin)
    assert "How mine is measured." in said.out
