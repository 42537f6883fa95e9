"""The commands that show the catalogs: list and explain."""

import io
import json

import torch
from rich.console import Console

import leadline as ll
from leadline.catalog import Catalog
from leadline.cli.screen.columns import print_text, two_columns
from leadline.cli.shelves.shelves import SHELVES, SINGULAR, open_shelf
from leadline.instruments.passes.probes import PROBES
from leadline.parts import PARTS, Recipe, Transformer
from leadline.parts.recipes import RECIPES


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


def test_every_quantity_that_an_instrument_writes_is_on_the_shelf():
    model = Transformer(Recipe(depth=2, width=8, heads=2, vocabulary=16, context=8)).eval()
    ids = torch.arange(6)[None]
    records = {
        "jacobian": ll.jacobian(model, ids, layer=1, smallest=1),
        "lyapunov": ll.lyapunov(model, ids, backward=False),
        "paths": ll.paths(model, ids, samples=2),
        "collapse": ll.collapse(model, ids),
    }
    shelf = open_shelf("quantities")
    for instrument, record in records.items():
        assert set(record.quantities) <= set(shelf), instrument
    commands = {
        name: shelf[name].facts["measured_by"]
        for name in ("jacobian.strongest_entry", "lyapunov.forward_exponent", "path.share")
    }
    assert list(commands.values()) == ["leadline jacobian", "leadline lyapunov", "leadline paths"]


def test_explain_knows_a_quantity_that_only_an_instrument_writes(leadline):
    said = leadline("explain", "jacobian.strongest_entry")
    assert said.code == 0
    assert "At which tokens the strongest direction of a Jacobian enters." in said.out


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
    assert "Nothing is called 'strem.norm'. Did you mean 'stream.norm'" in said.err
    assert "`leadline list` shows every name." in said.err
    assert "Did you mean" not in leadline("explain", "zzzzzz").err


def test_every_part_and_every_recipe_is_listed(leadline):
    found = json.loads(leadline("list", "--json").out)
    for kind, catalog in PARTS.items():
        shelf = next(plural for plural, singular in SINGULAR.items() if singular == kind)
        assert [entry["name"] for entry in found[shelf]] == catalog.names()
    assert [entry["name"] for entry in found["recipes"]] == RECIPES.names()


def facts_of(leadline, name, kind):
    return json.loads(leadline("explain", name, "--json").out)[kind]["facts"]


def test_a_connection_is_explained_with_its_facts_in_words(leadline):
    rezero = facts_of(leadline, "rezero", "connections")
    assert rezero["at_the_start"] == "the identity: the update is not heard"
    assert rezero["zero_update"] == "leaves the stream exactly as it was"
    assert rezero["refused_by"] == "no placement"
    assert rezero["costs"] == "1 parameter per write at width 768"
    assert "amplifies" not in rezero
    assert facts_of(leadline, "identity", "connections")["costs"] == "no parameters"
    deepnorm = facts_of(leadline, "deepnorm", "connections")
    assert deepnorm["init"].startswith("deepnorm")
    assert deepnorm["zero_update"] == "changes the stream"
    assert "a norm must follow" in deepnorm["amplifies"]
    names, _, reason = deepnorm["refused_by"].partition(": ")
    assert {"pre", "none"} <= set(names.split(", "))
    assert "post" not in names.split(", ")
    assert "a norm must follow each addition" in reason
    scaled = facts_of(leadline, "running_mean", "connections")
    assert "unit variance" in scaled["variance"]
    assert scaled["varies"]
    assert "doubly stochastic" in facts_of(leadline, "manifold_hyper", "connections")["mixing"]


def test_the_cost_of_a_part_is_counted_on_the_part(leadline):
    # A matrix of 768 x 768; one number more per layer; 4 x 768 x 768 weights and 4 x 768 biases.
    gated = facts_of(leadline, "gated", "connections")
    assert gated["costs"] == "589,824 parameters per write at width 768"
    dense = facts_of(leadline, "denseformer", "connections")
    assert dense["costs"] == "0 to 13 parameters per write at width 768 and 12 layers"
    attention = facts_of(leadline, "multihead", "attentions")
    assert attention["costs"] == "2,362,368 parameters per layer at width 768"
    assert facts_of(leadline, "layernorm", "norms")["costs"] == (
        "1,536 parameters per norm at width 768"
    )


def test_a_placement_is_explained_with_its_norms_in_words(leadline):
    post = facts_of(leadline, "post", "placements")
    assert post["stream"] == "normed after every addition"
    assert post["further_norms"] == "none"
    pre = facts_of(leadline, "pre", "placements")
    assert pre["stream"] == "not normed after every addition"
    assert pre["further_norms"] == "after the last layer"
    assert "deepnorm" in pre["refused_by"].split(", ")
    assert facts_of(leadline, "parallel", "placements")["joined"]
    assert facts_of(leadline, "mix", "placements")["varies"]


def test_a_recipe_is_explained_with_its_fields(leadline):
    recipe = facts_of(leadline, "gpt2", "recipes")
    assert (recipe["depth"], recipe["width"], recipe["placement"]) == ("12", "768", "pre")
    assert "options" not in recipe


def test_a_name_that_several_kinds_have_is_explained_in_all_of_them(leadline):
    said = leadline("explain", "none")
    assert "none (connection)\n" in said.out
    assert "none (placement)\n" in said.out
    assert "none (head)\n" in said.out


def test_options_are_spelt_as_on_the_command_line(leadline):
    assert facts_of(leadline, "swiglu", "mlps")["options"] == "hidden=none, bias=false"


def test_a_plugin_adds_to_the_list(leadline, tmp_path, monkeypatch):
    probes = Catalog("probe")
    monkeypatch.setattr("leadline.instruments.passes.probes.PROBES", probes)
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        '"""How mine is measured."""\n'
        "from leadline.instruments.passes.probes import PROBES\n"
        "@PROBES.register('mine')\n"
        "class Mine:\n"
        "    '''What nobody else measures.'''\n"
        "    sees, quantities = (), ()\n"
    )
    said = leadline("list", "probes", "--plugin", plugin)
    assert "mine  What nobody else measures." in said.out
    said = leadline("explain", "mine", "--plugin", plugin)
    assert "How mine is measured." in said.out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(draw, width):
    file = Terminal()
    draw(Console(file=file, width=width, force_terminal=True, color_system=None))
    return file.getvalue()


def test_paragraphs_are_filled_and_formulas_stay_as_they_are():
    text = "one two\nthree four\n\n    x' = x + u  which is long\n\nfive"
    assert shown(lambda console: print_text(text, console), 12) == (
        "one two\nthree four\n\n    x' = x + u  which is long\n\nfive\n"
    )
    assert "one two three four\n" in shown(lambda console: print_text(text, console), 40)
    piped = io.StringIO()
    print_text(text, Console(file=piped))
    assert piped.getvalue() == f"{text}\n"


def test_a_row_that_failed_stands_out():
    file = Terminal()
    console = Console(file=file, width=40, force_terminal=True, color_system="standard")
    two_columns([("a", "fine"), ("b", "bad")], console, styles=["", "bold red"])
    fine, bad = file.getvalue().splitlines()
    assert fine == "  a  fine"
    assert bad == "  \x1b[1;31mb\x1b[0m  \x1b[1;31mbad\x1b[0m"
