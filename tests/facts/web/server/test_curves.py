"""Curves come from one warm process: in parts, in turns, and never from one that hangs."""

import asyncio
import contextlib
import json

import pytest

from leadline.web.server.desk import Desk, DeskBusy, DeskRefusal
from leadline.web.server.process import ProcessSettings
from tests.facts.web.server.labs import HERE, open_lab, parts_of

CURVES = f"{HERE}:curve_parts"


def ask(client, design, **more):
    return client.post("/api/curves", json={"design": design, "client": "tab", **more})


def test_the_knobs_come_with_the_presets(tmp_path):
    with open_lab(tmp_path) as (_, client):
        for _ in range(2):
            answer = client.get("/api/knobs").json()
            assert answer["knobs"] == [{"name": "depth"}]
            assert answer["presets"] == [{"id": "post-against-pre"}]


def test_the_parts_come_in_order_and_end(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = ask(client, {"depth": 3})
        assert [part["part"] for part in parts_of(answer)] == ["curves", "laws", "verdict", "end"]
        assert parts_of(answer)[0]["design"] == {"depth": 3}
        assert parts_of(answer)[2]["verdict"]["sentence"] == "<b>深い</b>"
        assert answer.headers["content-type"] == "application/x-ndjson"


def test_one_process_answers_everybody(tmp_path):
    with open_lab(tmp_path) as (_, client):
        processes = {parts_of(ask(client, {"depth": n}))[1]["process"] for n in (2, 3, 4)}
        assert len(processes) == 1


def test_a_design_that_cannot_be_built_says_which_knob(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = ask(client, {"depth": 5})
        assert answer.status_code == 200
        reason = "The width 64 cannot be divided among 5 heads."
        assert parts_of(answer) == [{"part": "error", "knob": "heads", "reason": reason}]


def test_a_refusal_may_be_told_as_a_part(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = ask(client, {"depth": 7})
        assert answer.status_code == 200
        reason = "Told and not raised."
        assert parts_of(answer) == [{"part": "error", "knob": "heads", "reason": reason}]


def test_the_end_comes_once(tmp_path):
    with open_lab(tmp_path) as (_, client):
        words = [part["part"] for part in parts_of(ask(client, {"depth": "end"}))]
        assert words == ["curves", "laws", "verdict", "end"]


def test_what_breaks_on_the_way_is_the_last_part(tmp_path):
    with open_lab(tmp_path) as (_, client):
        parts = parts_of(ask(client, {"depth": "break"}))
        assert [part["part"] for part in parts] == ["curves", "error"]
        assert parts[1]["reason"] == "Broken on the way."


def test_a_value_that_json_cannot_hold_is_a_fault_and_no_answer(tmp_path):
    with open_lab(tmp_path) as (_, client):
        (part,) = parts_of(ask(client, {"depth": "nan"}))
        assert part["part"] == "error" and "fault of Leadline" in part["reason"]
        assert parts_of(ask(client, {"depth": 2}))[-1] == {"part": "end"}


def test_what_a_function_prints_is_no_answer(tmp_path):
    with open_lab(tmp_path) as (_, client):
        parts = parts_of(ask(client, {"depth": "print"}))
        assert [part["part"] for part in parts] == ["curves", "laws", "verdict", "end"]


def test_a_computation_that_takes_too_long_is_given_up_and_the_next_one_is_answered(tmp_path):
    with open_lab(tmp_path, limit=0.5) as (lab, client):
        before = parts_of(ask(client, {}))[1]["process"]
        (part,) = parts_of(ask(client, {"depth": "hang"}))
        assert part["part"] == "error" and "longer than 0.5 s" in part["reason"]
        assert lab.curves.restarts == 1
        assert parts_of(ask(client, {}))[1]["process"] != before


def test_a_process_that_dies_is_replaced(tmp_path):
    with open_lab(tmp_path) as (_, client):
        (part,) = parts_of(ask(client, {"depth": "die"}))
        assert "exit code 7" in part["reason"]
        assert parts_of(ask(client, {}))[-1] == {"part": "end"}


def test_functions_that_are_not_there_are_a_sentence(tmp_path):
    from leadline.web.server.settings import LabCalls

    with open_lab(tmp_path, calls=LabCalls(curves="leadline.nowhere:curves")) as (_, client):
        (part,) = parts_of(ask(client, {}))
        assert part["part"] == "error" and "leadline.nowhere" in part["reason"]


def run(scene, **settings):
    """Play a scene with an open desk."""

    async def play():
        desk = Desk(ProcessSettings(), **{"limit": 20.0, **settings})
        desk.open()
        try:
            return await scene(desk)
        finally:
            await desk.close()

    return asyncio.run(play())


async def collect(desk, design, **who):
    return [json.loads(part) async for part in desk.parts(CURVES, design, **who)]


def test_a_newer_wish_of_the_same_side_takes_the_place_of_one_that_waits():
    async def scene(desk):
        await collect(desk, {})  # the process listens
        first = asyncio.create_task(collect(desk, {"depth": "slow"}, client="x", side="a"))
        await asyncio.sleep(0)
        while desk._waiting:  # until the first one is being computed
            await asyncio.sleep(0)
        waits = [
            asyncio.create_task(collect(desk, {"depth": n}, client="x", side=side))
            for n, side in ((2, "a"), (3, "a"), (4, "b"), (6, "a"))
        ]
        return await asyncio.gather(first, *waits)

    slow, second, third, other, last = run(scene)
    assert [part["part"] for part in slow] == ["curves", "laws", "verdict"]
    assert second == third == [{"part": "superseded"}]
    assert other[0]["design"] == {"depth": 4}
    assert last[0]["design"] == {"depth": 6}


def test_clients_take_turns():
    async def scene(desk):
        order = []

        async def wish(client, side):
            await collect(desk, {}, client=client, side=side)
            order.append(client)

        tasks = [asyncio.create_task(wish("greedy", side)) for side in range(5)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(wish("modest", 0)))
        await asyncio.gather(*tasks)
        return order

    assert run(scene).index("modest") <= 1


def test_nobody_waits_in_a_queue_without_end(monkeypatch):
    monkeypatch.setattr("leadline.web.server.desk.MOST_WAITING", 3)

    async def scene(desk):
        tasks = [asyncio.create_task(collect(desk, {})) for _ in range(5)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = run(scene)
    assert sum(isinstance(one, DeskBusy) for one in answers) == 2


def test_those_who_wait_are_told_when_the_desk_closes():
    async def play():
        desk = Desk(ProcessSettings(), limit=20.0)
        desk.open()
        tasks = [asyncio.create_task(collect(desk, {"depth": "hang"})) for _ in range(2)]
        while not desk._process or not desk._process.lives:
            await asyncio.sleep(0.01)
        await desk.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(play())
    assert [str(one) for one in answers] == ["The lab has ended."] * 2
    assert all(isinstance(one, DeskRefusal) for one in answers)


def test_a_desk_ends_though_the_word_to_stop_was_lost(monkeypatch):
    """`wait_for` of Python 3.11 swallows a cancellation that meets its answer."""

    async def play():
        desk = Desk(ProcessSettings(), limit=5)
        busy = asyncio.Event()

        async def lose(wish):
            busy.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            wish.tell("end")

        monkeypatch.setattr(desk, "_carry_out", lose)
        desk.open()
        asking = asyncio.ensure_future(collect(desk, {}))
        await asyncio.wait_for(busy.wait(), 20)
        closing = asyncio.ensure_future(desk.close())
        ended, _ = await asyncio.wait({closing}, timeout=5)
        return ended == {closing}, await asking

    assert asyncio.run(play()) == (True, [])


@pytest.mark.parametrize("clients", [50])
def test_many_clients_at_once_lose_nothing(clients):
    async def scene(desk):
        async def client(name):
            for n in range(4):
                parts = await collect(desk, {"depth": 10 + n}, client=f"c{name}", side="a")
                assert [p["part"] for p in parts] == ["curves", "laws", "verdict"]
                assert parts[0]["design"] == {"depth": 10 + n}
            return 4

        return await asyncio.gather(*(client(n) for n in range(clients)))

    assert sum(run(scene)) == 4 * clients
