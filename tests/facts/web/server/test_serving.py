"""A real server: its address, its port, Ctrl-C, and many clients at once."""

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

import leadline
from leadline.errors import InputError
from leadline.web.server import notebook
from leadline.web.server.address import HOST, take_port
from leadline.web.server.serving import LabServer, open_browser
from tests.facts.web.server.labs import settings_for
from tests.processes import free_port, wait_for
from tests.synthetic import gpt2_record

ROOT = Path(__file__).parents[4]
LAB = [sys.executable, "-m", "leadline", "lab", "--no-browser"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def test_a_port_in_use_gives_way_to_the_next_one():
    with take_port(0) as first:
        port = first.getsockname()[1]
        with take_port(port) as second:
            assert second.getsockname()[1] > port
            assert second.getsockname()[0] == HOST


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(InputError, match="0 to 65535"):
        take_port(port)


def test_when_no_port_is_free_a_sentence_says_so(monkeypatch):
    monkeypatch.setattr("leadline.web.server.address.TRIES", 1)
    with take_port(0) as first, pytest.raises(InputError, match="in use"):
        take_port(first.getsockname()[1])


def test_a_terminal_without_windows_opens_no_browser(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    assert open_browser("http://127.0.0.1:1") is False


@pytest.fixture
def server(tmp_path):
    """A server in a thread, with stand-ins behind it, and a client that knows its token."""
    gpt2_record().save(tmp_path / "gpt2.leadline")
    one = LabServer(settings_for(tmp_path), port=0)
    one.start()
    with httpx.Client(
        base_url=one.address.origin,
        headers={"X-Leadline-Token": one.address.token},
        timeout=60,
        trust_env=False,
    ) as client:
        yield one, client
    one.stop()


def test_a_server_in_a_thread_answers_and_ends(server):
    one, client = server
    assert client.get("/api/session").json()["version"] == leadline.__version__
    assert "server" not in client.get("/").headers
    assert client.post("/api/curves", json={"design": {}}).text.endswith('{"part":"end"}\n')
    with socket.socket() as other:  # of another address of this machine nobody listens
        other.settimeout(2)
        with pytest.raises(OSError):
            other.connect(("127.0.0.2", one.address.port))


def test_a_raw_request_of_a_foreign_host_is_refused(server):
    one, _ = server
    with socket.create_connection((HOST, one.address.port)) as raw:
        raw.sendall(b"GET /api/session HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 403")
    with socket.create_connection((HOST, one.address.port)) as raw:
        raw.sendall(
            b"GET /static/../../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
            % one.address.port
        )
        assert b"root:" not in raw.recv(4096)


def test_an_open_stream_does_not_hold_up_the_end(server):
    one, client = server
    with client.stream("GET", "/api/records/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": leadline"
        one.stop()
        assert not [line for line in lines if line]


def many_clients(server, *, rounds):
    """50 clients, each with requests one after the other; return how many were answered."""
    one, _ = server
    answered, failed = [], []

    def client(name):
        with httpx.Client(
            base_url=one.address.origin,
            headers={"X-Leadline-Token": one.address.token},
            timeout=120,
            trust_env=False,
        ) as own:
            for n in rounds(name):
                design = {"depth": 10 + n % 5, "seed": name}
                answer = own.post("/api/curves", json={"design": design, "client": str(name)})
                parts = [json.loads(line) for line in answer.text.splitlines()]
                right = parts and parts[0].get("design") == design and parts[-1] == {"part": "end"}
                (answered if right else failed).append((name, n, answer.status_code))
                if own.get("/api/records").status_code != 200:
                    failed.append((name, n, "records"))

    threads = [threading.Thread(target=client, args=(name,)) for name in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    return len(answered)


def test_fifty_clients_at_once_lose_nothing(server):
    assert many_clients(server, rounds=lambda _: range(2)) == 100


@pytest.mark.slow
def test_fifty_clients_lose_nothing_in_sixty_seconds(server):
    over = threading.Event()
    timer = threading.Timer(60, over.set)
    timer.start()
    counts = [0] * 50

    def rounds(name):
        while not over.is_set():
            yield counts[name]
            counts[name] += 1

    try:
        assert many_clients(server, rounds=rounds) == sum(counts) > 500
    finally:
        timer.cancel()


def first_json(process):
    text = ""
    while True:
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
        if line == "}\n":
            return json.loads(text)


def test_ctrl_c_ends_the_server_and_its_processes(start, tmp_path):
    process = start([*LAB, str(tmp_path), "--port", "0", "--json"], **PIPES, cwd=ROOT)
    told = first_json(process)
    assert told["folder"] == str(tmp_path)
    assert f"http://127.0.0.1:{told['port']}/?token=" in told["address"]
    children = wait_for(lambda: psutil.Process(process.pid).children(), of=process)
    token = told["address"].partition("token=")[2].removesuffix("#/")
    headers = {"X-Leadline-Token": token}
    address = f"http://127.0.0.1:{told['port']}/api/records/events"
    with httpx.stream("GET", address, headers=headers, timeout=60, trust_env=False) as answer:
        assert answer.status_code == 200
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in errors and token not in errors
    _, left = psutil.wait_procs(children, timeout=30)
    assert left == []


def test_a_server_that_is_killed_leaves_no_process(start, tmp_path):
    process = start([*LAB, str(tmp_path), "--port", "0", "--json"], **PIPES, cwd=ROOT)
    first_json(process)
    children = wait_for(lambda: psutil.Process(process.pid).children(), of=process)
    process.kill()
    process.communicate()
    _, left = psutil.wait_procs(children, timeout=60)
    assert left == []


def test_a_port_in_use_is_said(start, tmp_path):
    with take_port(free_port()) as taken:
        port = taken.getsockname()[1]
        process = start([*LAB, str(tmp_path), "--port", str(port)], **PIPES, cwd=ROOT)
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert line.startswith("The lab is at http://127.0.0.1:") and f":{port}/" not in line
    assert f"Port {port} is in use, so the lab took " in errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "There is no folder and no file nowhere"),
        ([".", "tests"], "one folder, or files"),
        (["--port", "70000"], "0 to 65535"),
        (["--quiet", "--no-browser"], "nobody would learn the address"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(arguments, sentence, monkeypatch, capsys, tmp_path):
    from leadline.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as left:
        run(["lab", *arguments])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.fixture
def stand_ins(monkeypatch, tmp_path):
    """`ll.lab` with stand-ins for the playground, which these tests do not ask."""
    pages = settings_for(tmp_path)

    def settings(folder, files, **more):
        return settings_for(tmp_path, folder=folder, files=files, pages=pages.pages, **more)

    monkeypatch.setattr(notebook, "LabSettings", settings)


def listed(page):
    origin, _, token = page.address.removesuffix("#/").partition("/?token=")
    headers = {"X-Leadline-Token": token}
    with httpx.Client(base_url=origin, headers=headers, timeout=60, trust_env=False) as client:
        return {entry["name"] for entry in client.get("/api/records").json()}


def test_records_in_memory_are_shown_from_python(stand_ins, tmp_path, capsys):
    gpt2_record().save(tmp_path / "saved.leadline")
    with leadline.Record.open(tmp_path / "saved.leadline") as saved:
        page = leadline.lab([gpt2_record(name="my/model"), saved], port=0, browser=False)
        assert page.address in capsys.readouterr().out
        assert listed(page) == {"1-my-model", "saved"}
        folder = Path(page._folder.name)
        assert folder.exists()
        page.stop()
    assert not folder.exists() and repr(page) == "<leadline.lab: ended>"
    page.stop()  # once more, which does nothing


def test_a_folder_is_shown_from_python(stand_ins, tmp_path):
    gpt2_record().save(tmp_path / "saved.leadline")
    with leadline.lab(tmp_path, port=0, browser=False) as page:
        assert listed(page) == {"saved"}


def test_a_notebook_shows_a_frame(stand_ins, tmp_path, monkeypatch):
    frames = []
    monkeypatch.setattr(notebook, "_is_notebook", lambda: True)
    monkeypatch.setattr(notebook, "_show_frame", frames.append)
    with leadline.lab(tmp_path, port=0) as page:
        assert frames == [page.address]
        origin = page.address.partition("/?")[0]
        policy = httpx.get(origin, trust_env=False).headers["content-security-policy"]
        assert "frame-ancestors 'self' http://localhost:*" in policy


@pytest.mark.parametrize("records", [3, [3], []])
def test_what_is_no_record_is_refused(records):
    with pytest.raises(InputError):
        leadline.lab(records)


def test_the_room_of_training_can_still_be_imported():
    import leadline.lab.grid

    assert leadline.lab.grid.Sweep is leadline.Sweep
    assert callable(leadline.lab)
