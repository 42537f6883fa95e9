"""Jobs tell what they do, can be stopped even if they hang, and are bounded in number."""

import asyncio
import json

import pytest

from leadline.web.server import jobs
from leadline.web.server.events import EventLog, sse_stream
from tests.facts.web.server.labs import events_of, open_lab


def train(client, depth=2, **training):
    answer = client.post(
        "/api/train", json={"design": {"depth": depth}, "training": {"steps": 3, **training}}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["job"]


def events(client, job, **headers):
    return events_of(client.get(f"/api/jobs/{job}/events", headers=headers))


def wait_for_event(client, job, word):
    with client.stream("GET", f"/api/jobs/{job}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data:") and json.loads(line[6:])["event"] == word:
                return


def test_a_job_tells_its_steps_and_its_end(tmp_path):
    with open_lab(tmp_path) as (_, client):
        job = train(client)
        told = events(client, job)
        assert [number for number, _ in told] == [1, 2, 3, 4]
        assert [event.get("step") for _, event in told] == [0, 1, 2, None]
        assert told[-1][1] == {"event": "end", "reason": "all steps done"}
        (listed,) = client.get("/api/jobs").json()
        assert listed["id"] == job and listed["kind"] == "train" and listed["state"] == "ended"


def test_a_reader_goes_on_where_it_was(tmp_path):
    with open_lab(tmp_path) as (_, client):
        job = train(client)
        told = events(client, job)
        assert events(client, job, **{"Last-Event-ID": "2"}) == told[2:]
        assert events(client, job, **{"Last-Event-ID": "4"}) == []
        # A number of another server's log means nothing here.
        assert events(client, job, **{"Last-Event-ID": "400"}) == told


def test_a_job_that_hangs_can_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 0.2)
    with open_lab(tmp_path) as (lab, client):
        job = train(client, depth="hang")
        process = lab.jobs.get(job)
        while not process.log.last:  # it has begun
            client.get("/api/session")
        assert client.post(f"/api/jobs/{job}/stop").json()["state"] == "ended"
        assert not process.process.lives
        assert [event for _, event in events(client, job)][-1] == {
            "event": "end",
            "reason": "stopped",
        }
        assert client.post(f"/api/jobs/{job}/stop").json()["reason"] == "stopped"


def test_a_job_that_listens_is_stopped_between_two_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 60.0)  # so that only its own end can end the wait
    with open_lab(tmp_path) as (lab, client):
        job = train(client, steps=10**6, pause=0.01)
        while not lab.jobs.get(job).log.last:
            client.get("/api/session")
        client.post(f"/api/jobs/{job}/stop")
        told = events(client, job)
        assert told[-1][1] == {"event": "end", "reason": "stopped"}
        assert len(told) < 10**5


def test_a_job_waits_while_it_is_paused(tmp_path):
    with open_lab(tmp_path) as (lab, client):
        job = train(client, steps=200, pause=0.01)
        while not lab.jobs.get(job).log.last:
            client.get("/api/session")
        assert client.post(f"/api/jobs/{job}/pause").json()["state"] == "paused"
        assert client.post(f"/api/jobs/{job}/continue").json()["state"] == "running"
        words = [event["event"] for _, event in events(client, job)]
        assert words.index("paused") < words.index("continued") < len(words) - 1
        assert words.count("step") == 200  # none is lost, and none comes twice


def test_two_jobs_run_and_the_others_wait_up_to_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_WAITING", 2)
    monkeypatch.setattr(jobs, "GRACE", 0.2)
    with open_lab(tmp_path) as (_, client):
        names = [train(client, depth="hang") for _ in range(4)]
        states = [job["state"] for job in client.get("/api/jobs").json()]
        assert states == ["running", "running", "waiting", "waiting"]
        answer = client.post("/api/train", json={"design": {}, "training": {"steps": 1}})
        assert answer.status_code == 429 and "2 jobs run and 2 wait" in answer.json()["error"]
        client.post(f"/api/jobs/{names[2]}/stop")
        client.post(f"/api/jobs/{names[0]}/stop")
        states = [job["state"] for job in client.get("/api/jobs").json()]
        assert states == ["ended", "running", "ended", "running"]


def test_a_job_that_is_refused_says_why(tmp_path):
    with open_lab(tmp_path) as (_, client):
        told = [event for _, event in events(client, train(client, depth="refuse"))]
        assert told[0]["event"] == "error" and told[0]["reason"] == "No task is called that."
        assert told[1] == {"event": "end", "reason": "failed"}


def test_a_lab_that_ends_leaves_no_job(tmp_path):
    with open_lab(tmp_path) as (lab, client):
        job = lab.jobs.get(train(client, depth="hang"))
    assert job.reason == "the lab has ended" and not job.process.lives


def test_an_order_that_is_none_is_refused(tmp_path):
    with open_lab(tmp_path) as (_, client):
        job = train(client)
        assert client.post(f"/api/jobs/{job}/explode").status_code == 404


def drain(log, after=0):
    async def read():
        return [part async for part in sse_stream(log, after)]

    return asyncio.run(read())


def test_a_log_keeps_the_last_events_and_replaces_topics():
    log = EventLog(most=3)
    for n in range(5):
        log.add({"event": "step", "step": n})
    log.add({"event": "maps", "step": 1}, topic="maps")
    log.add({"event": "maps", "step": 2}, topic="maps")
    log.close()
    log.add({"event": "late"})
    assert drain(log)[1:] == [
        b'id: 4\ndata: {"event":"step","step":3}\n\n',
        b'id: 5\ndata: {"event":"step","step":4}\n\n',
        b'id: 7\ndata: {"event":"maps","step":2}\n\n',
    ]


def test_a_silent_stream_shows_that_it_lives(monkeypatch):
    monkeypatch.setattr("leadline.web.server.events.HEARTBEAT", 0.01)

    async def read():
        stream = sse_stream(EventLog())
        return [await anext(stream) for _ in range(3)]

    assert asyncio.run(read()) == [b": leadline\n\n", b": still here\n\n", b": still here\n\n"]


@pytest.mark.parametrize("text", ["a\nb", "\r", "\u2028"])
def test_no_text_can_begin_an_event_of_its_own(text):
    log = EventLog()
    log.add({"event": "x", "reason": f"{text}\n\nid: 9\ndata: no"})
    log.close()
    (_, event) = drain(log)
    assert event.count(b"\n") == 3 and b"\r" not in event


def test_a_job_that_is_only_starting_can_be_paused(tmp_path, monkeypatch):
    start, ask = jobs.LabProcess.start, jobs.LabProcess.ask
    asked = []

    async def start_late(process):
        await asyncio.sleep(0.5)
        await start(process)

    async def ask_and_say(process, call, arguments):
        asked.append(await ask(process, call, arguments))

    with open_lab(tmp_path) as (lab, client):
        monkeypatch.setattr(jobs.LabProcess, "start", start_late)
        monkeypatch.setattr(jobs.LabProcess, "ask", ask_and_say)
        job = train(client, steps=5)
        assert client.post(f"/api/jobs/{job}/pause").json()["state"] == "paused"
        one = lab.jobs.get(job)
        while not asked:
            client.get("/api/session")
        for _ in range(200):  # in which five steps would have come
            client.get("/api/session")
        assert one.log.last == 1 and one.state == "paused"
        client.post(f"/api/jobs/{job}/continue")
        words = [event["event"] for _, event in events(client, job)]
        assert words == ["paused", "continued", *["step"] * 5, "end"]


def test_half_of_a_letter_in_a_request_spoils_no_answer(tmp_path):
    with open_lab(tmp_path) as (_, client):
        content = '{"design": {"depth": 2, "\\ud800": "\\udfff"}, "training": {"steps": 1}}'
        job = client.post("/api/train", content=content).json()["job"]
        assert events(client, job)[-1][1]["event"] == "end"
        (listed,) = client.get("/api/jobs").json()
        assert "\ud800 \udfff" in listed["title"]
        answer = client.post("/api/curves", content='{"design": {"\\ud800": 1}}')
        first = json.loads(answer.text.splitlines()[0])
        assert first == {"part": "curves", "design": {"\ud800": 1}, "curves": []}
