"""The records of a folder: listed with their verdict, never left by a request, shown as reports."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from leadline.reading.diagnosis.standing import standing_findings
from leadline.reading.page.html import render_html
from leadline.reading.watch.heat import heat_map, layer_series
from leadline.reading.watch.history import History
from leadline.record import Record
from leadline.web.server.shelf import record_files
from leadline.web.server.summaries import summary_of
from tests.facts.web.server.labs import events_of, open_lab
from tests.synthetic import broken_record, gpt2_record
from tests.synthetic_sweep import sweep_record, training_record
from tests.synthetic_watch import Course, watch_record

HTML = "<img src=x onerror=alert(1)>"


def by_name(client):
    return {entry["name"]: entry for entry in client.get("/api/records").json()}


def settled(client):
    """The list when every verdict has been read."""
    while True:
        entries = by_name(client)
        if all(entry["verdict"] for entry in entries.values()):
            return entries


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    gpt2_record().save(tmp_path / "gpt2.leadline")
    broken_record().save(tmp_path / "deep" / "broken.leadline")
    sweep_record().save(tmp_path / "deep" / "deeper" / "sweep.leadline")
    training_record(layers=True, outcome={"status": "finished"}).save(tmp_path / "train.leadline")
    content = (tmp_path / "gpt2.leadline").read_bytes()
    (tmp_path / "cut.leadline").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.leadline").write_text("no record")
    (tmp_path / "empty.leadline").touch()
    (tmp_path / "other.txt").write_text("no record")
    return tmp_path


def test_the_list_has_every_record_with_its_verdict(folder):
    with open_lab(folder) as (_, client):
        entries = settled(client)
    assert set(entries) == {"gpt2", "broken", "sweep", "train", "cut", "text", "empty"}
    gpt2 = entries["gpt2"]
    with Record.open(folder / "gpt2.leadline") as record:
        findings = standing_findings(record)
        assert gpt2["quantities"] == len(record.quantities)
    assert gpt2["verdict"] == {"level": findings[0].severity, "sentence": findings[0].verdict}
    assert (gpt2["kind"], gpt2["status"]) == ("measure", "finished")
    assert gpt2["path"] == "gpt2.leadline"
    assert entries["broken"]["path"] == "deep/broken.leadline"
    assert entries["broken"]["verdict"]["level"] == "serious"
    assert entries["sweep"]["kind"] == "sweep" and entries["sweep"]["verdict"]["sentence"]
    assert entries["train"]["steps"] == 400 and entries["train"]["kind"] == "train"
    for name in ("cut", "text", "empty"):
        assert entries[name]["status"] == "damaged"
        assert entries[name]["verdict"]["level"] == "serious"
        assert "record" in entries[name]["verdict"]["sentence"]


def test_a_record_without_lines_says_whether_it_has_only_begun(tmp_path):
    path = tmp_path / "run.leadline"
    record = Record.create(path)
    begun = summary_of(str(path))["verdict"]["sentence"]
    record.close()
    assert begun == "No step has been written so far."
    assert summary_of(str(path))["verdict"]["sentence"] == "The record holds no line over depth."


def test_a_summary_is_read_again_only_when_the_file_has_changed(folder):
    with open_lab(folder) as (lab, client):
        settled(client)
        asked = []
        answer = lab.reading.answer

        async def count(call, *arguments, **more):
            asked.append(Path(arguments[0]).name)
            return await answer(call, *arguments, **more)

        lab.reading.answer = count
        settled(client)
        assert asked == []
        broken_record().save(folder / "gpt2.leadline")
        while settled(client)["gpt2"]["verdict"]["level"] != "serious":
            pass
        assert set(asked) == {"gpt2.leadline"}


def test_an_id_is_no_path_and_a_path_is_no_id(folder):
    with open_lab(folder) as (_, client):
        for entry in settled(client).values():
            assert re.fullmatch("[0-9a-f]{24}", entry["id"])
        for name in (
            "gpt2.leadline",
            "../gpt2.leadline",
            "/etc/passwd",
            "deep/broken.leadline",
            "",
        ):
            answer = client.get("/report", params={"record": name, "token": "secret"})
            assert answer.status_code == 404, name


def test_what_lies_outside_of_the_folder_is_not_listed(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    gpt2_record().save(outside / "secret.leadline")
    (folder / "link.leadline").symlink_to(outside / "secret.leadline")
    (folder / "links").symlink_to(outside)
    (folder / "dangling.leadline").symlink_to(outside / "nothing.leadline")
    (folder / "inside.leadline").symlink_to(folder / "gpt2.leadline")
    os.mkfifo(folder / "pipe.leadline")
    (folder / "folder.leadline").mkdir()
    (folder / ".hidden").mkdir()
    gpt2_record().save(folder / ".hidden" / "hidden.leadline")
    names = {file.relative for file in record_files(folder)}
    assert not names & {"link.leadline", "links/secret.leadline", "dangling.leadline"}
    assert not names & {"pipe.leadline", "folder.leadline", ".hidden/hidden.leadline"}
    assert {"inside.leadline", "deep/deeper/sweep.leadline"} <= names


def test_a_link_that_leaves_the_folder_after_the_list_was_made_opens_nothing(
    folder, tmp_path_factory
):
    outside = tmp_path_factory.mktemp("outside")
    gpt2_record(name="secret").save(outside / "secret.leadline")
    with open_lab(folder) as (_, client):
        name = settled(client)["gpt2"]["id"]
        (folder / "gpt2.leadline").unlink()
        (folder / "gpt2.leadline").symlink_to(outside / "secret.leadline")
        answer = client.get("/report", params={"record": name, "token": "secret"})
        assert answer.status_code == 404


def test_files_that_are_named_are_all_that_is_shown(folder):
    files = (folder / "gpt2.leadline", folder / "deep" / "broken.leadline")
    with open_lab(folder, folder=None, files=files) as (_, client):
        assert set(settled(client)) == {"gpt2", "broken"}
        assert client.get("/api/session").json()["folder"] is None


def test_two_files_of_one_name_are_two_records(tmp_path):
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        gpt2_record().save(tmp_path / part / "x.leadline")
    files = record_files(None, [tmp_path / "a" / "x.leadline", tmp_path / "b" / "x.leadline"])
    assert len({file.id for file in files}) == 2


def test_a_folder_without_records_is_an_empty_list(tmp_path):
    with open_lab(tmp_path) as (_, client):
        assert client.get("/api/records").json() == []


def report_of(client, *names):
    entries = settled(client)
    params = [("token", "secret"), *(("record", entries[name]["id"]) for name in names)]
    return client.get("/report", params=params)


def test_a_record_opens_as_its_report(folder):
    with open_lab(folder) as (_, client):
        answer = report_of(client, "gpt2")
    with Record.open(folder / "gpt2.leadline") as record:
        assert answer.text == render_html([record], file="gpt2")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy and "unsafe-inline'" not in policy.split("style-src")[0]
    assert policy.endswith("frame-ancestors 'self'") and "default-src 'none'" in policy


def test_several_records_overlay(folder):
    with open_lab(folder) as (_, client):
        answer = report_of(client, "gpt2", "broken")
        assert answer.status_code == 200
        embedded = re.search(r'id="leadline-data">(.*?)</script>', answer.text, re.S)
        assert len(json.loads(embedded[1])["records"]) == 2
        assert report_of(client, "cut").status_code == 422
        too_many = [("token", "secret"), *(("record", str(n)) for n in range(9))]
        assert client.get("/report", params=too_many).status_code == 400


def test_html_in_names_comes_out_as_text(tmp_path):
    gpt2_record(name=HTML).save(tmp_path / "model.leadline")
    gpt2_record().save(tmp_path / f"{HTML}.leadline")
    with open_lab(tmp_path) as (_, client):
        listed = client.get("/api/records")
        assert listed.headers["content-type"] == "application/json"
        names = settled(client)
        assert HTML in names
        for shown in (["model"], [HTML], ["model", HTML]):
            page = report_of(client, *shown)
            assert page.status_code == 200
            assert "<img src=x" not in page.text
            assert ("&lt;img src=x" in page.text) == ("model" in shown)


def read_until(client, path, enough, **headers):
    """Read a stream in the background until `enough` says so of what has come."""
    events = []
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line.removeprefix("data: ")))
                if enough(events):
                    break
    return events


def test_a_run_that_has_ended_is_told_as_a_whole(tmp_path):
    watch_record(Course()).save(tmp_path / "run.leadline")
    with open_lab(tmp_path) as (_, client):
        name = settled(client)["run"]["id"]
        events = [event for _, event in events_of(client.get(f"/api/runs/{name}/events"))]
    told = {event["event"]: event for event in events}
    assert set(told) == {"state", "loss", "maps", "gauges", "findings", "end"}
    with Record.open(tmp_path / "run.leadline") as record:
        history = History.of(record)
        assert told["state"]["step"] == history.step
        assert len(told["findings"]["findings"]) == len(record.findings)
    groups = layer_series(history)
    assert [one["address"] for one in told["maps"]["maps"]] == [str(g.address) for g in groups]
    for one, group in zip(told["maps"]["maps"], groups, strict=True):
        heat = heat_map(group, columns=80)
        assert one["layers"] == list(heat.labels)
        assert len(one["steps"]) == len(one["values"][0]) + 1
        for row, expected in zip(one["values"], heat.values.tolist(), strict=True):
            assert row == pytest.approx(expected, rel=1e-4)
    losses = told["loss"]["series"][0]
    assert losses["quantity"] == "train.loss"
    assert losses["values"][-1] == pytest.approx(history.of_run("train.loss").last, rel=1e-4)
    gauges = {one["quantity"]: one for one in told["gauges"]["gauges"]}
    rate, values = gauges["train.rate"], history.of_run("train.rate").values
    assert rate["map"] is None and rate["worst"] is None
    # The past is all but the last tenth of the 200 samples.
    past = (np.quantile(values[:180], share) for share in (0.1, 0.5, 0.9))
    assert [rate[name] for name in ("low", "past", "high")] == pytest.approx(list(past), rel=1e-4)
    assert rate["now"] == pytest.approx(values[-1], rel=1e-4)
    logits = gauges["attention.logit_std"]
    assert logits["warned"] and logits["worst"]["layer"] == str(Course().sick_layer)
    assert logits["map"] in [one["address"] for one in told["maps"]["maps"]]


def test_a_measurement_is_no_run_and_says_so(folder):
    with open_lab(folder) as (_, client):
        name = settled(client)["gpt2"]["id"]
        events = [event for _, event in events_of(client.get(f"/api/runs/{name}/events"))]
    assert events[-1]["event"] == "error" and "no training run" in events[-1]["reason"]


def test_a_sweep_is_told_as_its_map(folder):
    with open_lab(folder) as (_, client):
        name = settled(client)["sweep"]["id"]
        events = [event for _, event in events_of(client.get(f"/api/runs/{name}/events"))]
    assert [event["event"] for event in events] == ["map", "end"]
    assert {row["name"] for row in events[0]["map"]["rows"]} == {"pre", "post", "plain"}


def test_a_run_of_an_unknown_id_is_refused(folder):
    with open_lab(folder) as (_, client):
        assert client.get("/api/runs/nothing/events").status_code == 404


def test_lessons_come_in_three_languages(tmp_path):
    with open_lab(tmp_path) as (_, client):
        for language, title in (("en", "Skips"), ("zh", "捷径"), ("ru", "Пропуски")):
            listed = client.get("/api/lessons", params={"language": language}).json()
            assert listed == [{"id": "skip", "title": title}]
            one = client.get("/api/lessons/skip", params={"language": language}).json()
            assert one == {"title": language, "parts": []}
        assert client.get("/api/lessons", params={"language": "xx"}).status_code == 400
        assert client.get("/api/lessons/none").status_code == 422
        assert client.get("/api/lessons/..%2fx").status_code == 404


@pytest.mark.slow
def test_the_page_of_claims_is_served_with_its_own_policy(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = client.get("/claims", params={"token": "secret", "language": "ru"})
        assert answer.status_code == 200 and "leadline-data" in answer.text
        assert "sha256-" in answer.headers["content-security-policy"]
        assert client.get("/claims", params={"token": "secret", "language": "x"}).status_code == 400


@pytest.mark.skipif(os.name == "nt", reason="names of files are text there")
def test_a_name_that_is_no_text_hides_no_other_record(tmp_path):
    gpt2_record().save(tmp_path / "whole.leadline")
    odd = os.fsencode(tmp_path) + b"/odd\xff.leadline"
    try:
        os.link(tmp_path / "whole.leadline", odd)
    except OSError:
        pytest.skip("this file system takes no such name")
    with open_lab(tmp_path) as (_, client):
        entries = settled(client)
        assert {name: one["status"] for name, one in entries.items()} == {
            "whole": "finished",
            "odd\udcff": "finished",
        }
        answer = client.get(f"/report?record={entries['odd' + chr(0xDCFF)]['id']}&token=secret")
        assert answer.status_code == 200 and "</html>" in answer.text


def test_a_link_that_leads_to_itself_hides_no_other_record(tmp_path):
    gpt2_record().save(tmp_path / "whole.leadline")
    (tmp_path / "loop.leadline").symlink_to(tmp_path / "loop.leadline")
    assert [file.relative for file in record_files(tmp_path)] == ["whole.leadline"]
