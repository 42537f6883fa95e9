"""A record that a command cannot use: the sentence says what it is, and what to run."""

import pytest

from leadline.errors import RecordError
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.file.unfinished import UNFINISHED
from tests.synthetic import gpt2_record

OTHER = Quantity("path.share", "Share", "s", "s", lives_on="path")


def written_by(instrument):
    """A record as an instrument leaves it, with a row of its own."""
    record = Record()
    record.describe(OTHER)
    record.append(
        [Reading(OTHER.name, Site("decoder", 0, hops=hops), "value", 0.5) for hops in (0, 1)]
    )
    record.note("instrument", {"name": instrument})
    record.note("model", {"name": "tiny"})
    return record


@pytest.fixture
def measured(tmp_path):
    record = gpt2_record()
    record.note("probes", ["stream"])
    return record.save(tmp_path / "measured.leadline")


@pytest.fixture
def paths(tmp_path):
    return written_by("paths").save(tmp_path / "paths.leadline")


def test_compare_refuses_records_that_have_nothing_in_common(leadline, measured, paths, tmp_path):
    page = tmp_path / "both.html"
    said = leadline("compare", measured, paths, "-o", page)
    assert said.code == 2 and said.out == ""
    told = " ".join(said.err.split())
    assert f"{measured} was written by `leadline measure`, {paths} was written by" in told
    assert "compare records that one command, such as `leadline measure`, wrote" in told
    assert not page.exists()


def test_records_of_one_command_that_share_nothing_are_told_to_use_the_same_options(
    leadline, tmp_path
):
    files = [tmp_path / "a.leadline", tmp_path / "b.leadline"]
    for name, file in zip(("stream.a", "stream.b"), files, strict=True):
        record = Record()
        record.describe(Quantity(name, "A", "a", "a"))
        record.append([Reading(name, Site("decoder", layer), "mean", 1.0) for layer in (0, 1)])
        record.note("probes", [name])
        record.save(file)
    said = leadline("compare", *files)
    assert said.code == 2
    assert "records that `leadline measure`, with the same options, wrote" in " ".join(
        said.err.split()
    )


@pytest.mark.parametrize(("name", "writer"), [("measured", "measure"), ("paths", "paths")])
def test_map_says_what_wrote_a_record_that_is_no_sweep(leadline, request, name, writer):
    said = leadline("map", request.getfixturevalue(name))
    told = " ".join(said.err.split())
    assert said.code == 2
    assert (
        f"no map of it: `leadline {writer}` wrote it; `leadline sweep` writes such a record" in told
    )


def test_bounds_says_what_wrote_a_record_without_their_quantities(leadline, paths):
    said = leadline("bounds", paths)
    told = " ".join(said.err.split())
    assert said.code == 2
    assert f"The record {paths} was written by `leadline paths` and holds neither" in told
    assert "`leadline measure MODEL --probes attention`" in told


@pytest.mark.parametrize("view", ["jacobian", "lyapunov", "collapse", "paths", "attacks"])
def test_a_view_of_a_measured_record_says_what_to_call(measured, view):
    with Record.open(measured) as record, pytest.raises(RecordError) as refused:
        getattr(record, view)
    call = "bounds(attack=True)" if view == "attacks" else f"{view}(model"
    assert f"written by leadline.measure and holds no result of {view}" in str(refused.value)
    assert f"use leadline.{call}" in str(refused.value)


@pytest.mark.parametrize("command", ["report", "compare", "bounds", "map"])
def test_every_command_says_that_a_record_is_unfinished_and_how_it_goes_on(
    leadline, tmp_path, command
):
    record = gpt2_record()
    record.note("probes", ["stream"])
    record.note(UNFINISHED, {"parts": 4, "finished": {"stream": 1}, "seconds": 0.0})
    measured = record.save(tmp_path / "unfinished.leadline")
    files = [measured, measured] if command == "compare" else [measured]
    told = " ".join(leadline(command, *files).err.split())
    assert (
        f"{measured} is unfinished, 1 of 4 parts of it are in the record; the same `leadline "
        f"measure` with -o {measured} goes on."
    ) in told


@pytest.mark.parametrize("command", ["report", "compare", "bounds", "map"])
def test_every_command_says_that_a_record_is_still_written(leadline, tmp_path, command):
    path = tmp_path / "growing.leadline"
    with Record.create(path) as record:
        record.describe(OTHER)
        record.append(
            [Reading(OTHER.name, Site("decoder", 0, hops=hops), "value", 0.5) for hops in (0, 1)]
        )
        files = [path, path] if command == "compare" else [path]
        told = " ".join(leadline(command, *files).err.split())
    assert f"{path} is still being written, or its writer was cut off" in told
    assert "Traceback" not in told
