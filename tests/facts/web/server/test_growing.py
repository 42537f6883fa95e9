"""Records that appear and runs that grow while somebody looks."""

import json
import threading

import httpx
import pytest

from leadline.record import Record
from leadline.web.server.serving import LabServer
from tests.facts.web.server.labs import settings_for
from tests.synthetic import gpt2_record
from tests.synthetic_watch import Course, growing_file, note_progress, write_sample

COURSE = Course(layers=4, samples=30)


@pytest.fixture
def server(tmp_path):
    one = LabServer(settings_for(tmp_path), port=0)
    one.start()
    yield one
    one.stop()


class Reader:
    """Reads a stream of events in a thread, so that a test can wait for what it tells."""

    def __init__(self, server, path):
        self.events = []
        self.changed = threading.Condition()
        self.over = False
        self.beginning = threading.Event()
        address = server.address.origin + path
        headers = {"X-Leadline-Token": server.address.token}
        self.thread = threading.Thread(target=self.read, args=(address, headers))
        self.thread.start()
        self.beginning.wait()

    def read(self, address, headers):
        with httpx.stream("GET", address, headers=headers, timeout=60, trust_env=False) as answer:
            for line in answer.iter_lines():
                self.beginning.set()
                if line.startswith("data:"):
                    with self.changed:
                        self.events.append(json.loads(line.removeprefix("data: ")))
                        self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            self.changed.wait_for(lambda: self.over or any(map(condition, self.events)))
            return next(filter(condition, self.events))


def get(server, path):
    headers = {"X-Leadline-Token": server.address.token}
    return httpx.get(
        server.address.origin + path, headers=headers, timeout=60, trust_env=False
    ).json()


def test_a_record_appears_while_it_is_written_changes_and_goes(server, tmp_path):
    reader = Reader(server, "/api/records/events")
    record = growing_file(tmp_path / "run.leadline", COURSE)
    write_sample(record, COURSE, 0)
    added = reader.wait_for(lambda event: event["added"])["added"][0]
    assert (added["name"], added["status"]) == ("run", "being written")
    note_progress(record, COURSE, step=COURSE.last, closed=True)
    record.close()

    def finished(event):
        return any(one["status"] == "finished" for one in event["changed"])

    changed = reader.wait_for(finished)["changed"][0]
    assert changed["id"] == added["id"]
    (tmp_path / "run.leadline").unlink()
    assert reader.wait_for(lambda event: event["removed"])["removed"] == [added["id"]]
    gpt2_record().save(tmp_path / "other.leadline")
    reader.wait_for(lambda event: any(one["verdict"] for one in event["changed"] + event["added"]))
    server.stop()
    reader.thread.join()


def test_a_record_that_appears_before_anybody_listens_is_told_to_the_first_who_does(
    server, tmp_path
):
    assert get(server, "/api/records") == []
    gpt2_record().save(tmp_path / "early.leadline")
    reader = Reader(server, "/api/records/events")
    added = reader.wait_for(lambda event: event["added"])["added"]
    assert [one["name"] for one in added] == ["early"]
    server.stop()
    reader.thread.join()


def test_a_run_updates_by_itself_until_it_is_closed(server, tmp_path):
    record = growing_file(tmp_path / "run.leadline", COURSE)
    for sample in range(10):
        write_sample(record, COURSE, sample)
    (entry,) = get(server, "/api/records")
    assert entry["status"] == "being written"
    reader = Reader(server, f"/api/runs/{entry['id']}/events")
    early = reader.wait_for(lambda event: event["event"] == "maps")
    assert early["step"] == COURSE.step_of(9)
    for sample in range(10, COURSE.samples):
        write_sample(record, COURSE, sample)
    late = reader.wait_for(lambda e: e["event"] == "maps" and e["step"] == COURSE.last)
    assert len(late["maps"]) == len(early["maps"])
    assert late["maps"][0]["layers"] == early["maps"][0]["layers"]
    warned = reader.wait_for(lambda e: e["event"] == "findings" and e["findings"])
    note_progress(record, COURSE, step=COURSE.last, closed=True)
    record.close()
    reader.wait_for(lambda event: event["event"] == "end")
    reader.thread.join()
    with Record.open(tmp_path / "run.leadline") as finished:
        codes = [finding.code for finding in finished.findings]
    assert {one["code"] for one in warned["findings"]} <= set(codes)


def test_two_readers_share_a_process_and_the_second_begins_with_the_present_state(server, tmp_path):
    record = growing_file(tmp_path / "run.leadline", COURSE)
    for sample in range(10):
        write_sample(record, COURSE, sample)
    (entry,) = get(server, "/api/records")
    path = f"/api/runs/{entry['id']}/events"
    first = Reader(server, path)
    first.wait_for(lambda event: event["event"] == "maps")
    second = Reader(server, path)
    second.wait_for(lambda event: event["event"] == "maps")
    words = [event["event"] for event in second.events]
    assert len(words) == len(set(words))
    record.close()
    server.stop()
    for reader in (first, second):
        reader.thread.join()
