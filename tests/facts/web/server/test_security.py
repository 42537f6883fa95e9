"""Who may ask the server, and what its answers let a page do."""

import hmac

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from leadline.web.server.app import Lab
from tests.facts.web.server.labs import ADDRESS, TOKEN, settings_for


@pytest.fixture
def client(tmp_path):
    """A client without a token. The lab is not opened: what is refused needs no process."""
    return TestClient(Lab(settings_for(tmp_path), ADDRESS).app, base_url=ADDRESS.origin)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8710",
        "127.0.0.1",
        "127.0.0.1:8711",
        "127.0.0.1.evil.example:8710",
        "localhost:8710@evil.example",
        "0.0.0.0:8710",
        "[::1]:8710",
        "",
    ],
)
def test_a_foreign_host_is_refused_even_with_the_token(client, host):
    for path in ("/", "/static/modules/app.js", "/api/session"):
        answer = client.get(path, headers=TOKEN | {"host": host})
        assert answer.status_code == 403
        assert "another host" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8710", "localhost:8710", "LOCALHOST:8710"])
def test_both_names_of_this_machine_are_answered(client, host):
    assert client.get("/api/session", headers=TOKEN | {"host": host}).status_code == 200


def test_two_hosts_are_one_too_many(client):
    headers = [("host", "127.0.0.1:8710"), ("host", "evil.example"), *TOKEN.items()]
    assert client.get("/api/session", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://127.0.0.1:8888", "https://127.0.0.1:8710", "file://"],
)
def test_a_foreign_origin_is_refused_even_with_the_token(client, origin):
    answer = client.get("/api/session", headers=TOKEN | {"origin": origin})
    assert answer.status_code == 403
    assert "origin" in answer.json()["error"]
    assert "access-control-allow-origin" not in answer.headers


def test_the_pages_own_origin_is_answered(client):
    headers = TOKEN | {"origin": "http://127.0.0.1:8710"}
    assert client.get("/api/session", headers=headers).status_code == 200


ADDRESSES = [
    ("GET", "/api/session"),
    ("GET", "/api/knobs"),
    ("POST", "/api/curves"),
    ("POST", "/api/train"),
    ("POST", "/api/diagnose"),
    ("GET", "/api/jobs"),
    ("GET", "/api/jobs/x/events"),
    ("POST", "/api/jobs/x/stop"),
    ("GET", "/api/records"),
    ("GET", "/api/records/events"),
    ("GET", "/api/runs/x/events"),
    ("GET", "/api/lessons"),
    ("GET", "/api/lessons/skip"),
    ("GET", "/report?record=x"),
    ("GET", "/claims"),
]


def test_every_address_is_tried(tmp_path):
    routes = Lab(settings_for(tmp_path), ADDRESS)._application().routes
    patterns = {(*route.methods - {"HEAD"}, route.path_regex) for route in routes}
    tried = {
        (m, regex) for m, regex in patterns for n, p in ADDRESSES if regex.match(p.split("?")[0])
    }
    free = {
        (m, regex)
        for m, regex in patterns
        for p in ("/", "/favicon.ico", "/static/x")
        if regex.match(p)
    }
    assert tried | free == patterns


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
@pytest.mark.parametrize("token", [None, "", "wrong", "secre", "secrets", "ſecret"])
def test_everything_but_the_page_needs_the_token(client, method, path, token):
    headers = {} if token is None else {"X-Leadline-Token": token.encode()}
    if token is not None:
        joint = "&" if "?" in path else "?"
        path = f"{path}{joint}token={token}"
    answer = client.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]


def test_a_token_in_the_address_opens_documents_alone(client):
    assert client.get("/api/session?token=secret").status_code == 401
    assert client.get("/report?token=secret").status_code == 400  # names no record
    assert client.get("/report?token=secret&token=wrong").status_code == 401


def test_the_token_is_compared_in_constant_time(client, monkeypatch):
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert client.get("/api/session", headers=TOKEN).status_code == 401
    assert compared == [(b"secret", b"secret")]


def test_the_page_needs_no_token_and_holds_none(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert "secret" not in answer.text
    assert client.get("/static/modules/app.js").status_code == 200


def test_every_answer_has_a_policy_without_inline_scripts(client):
    for path, headers in [("/", {}), ("/nowhere", {}), ("/api/session", TOKEN), ("/x", TOKEN)]:
        answer = client.get(path, headers=headers)
        policy = dict(
            one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'" and policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'" and policy["base-uri"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "cache-control" in answer.headers


def test_a_notebook_may_show_the_page_in_a_frame(tmp_path):
    lab = Lab(settings_for(tmp_path, framed_by=("http://localhost:*",)), ADDRESS)
    answer = TestClient(lab.app, base_url=ADDRESS.origin).get("/")
    assert answer.headers["content-security-policy"].endswith("frame-ancestors http://localhost:*")


@pytest.mark.parametrize(
    "path",
    [
        "/static/secret.py",
        "/static/../records.leadline",
        "/static/%2e%2e/%2e%2e/pyproject.toml",
        "/static/..%2f..%2fpyproject.toml",
        "/static//etc/passwd",
        "/static/modules",
        "/static/",
    ],
)
def test_no_path_leads_out_of_the_pages(client, path):
    assert client.get(path).status_code in (401, 404)


def test_a_link_among_the_pages_is_not_followed(tmp_path):
    settings = settings_for(tmp_path)
    (settings.pages / "leak.txt").symlink_to("/etc/passwd")
    client = TestClient(Lab(settings, ADDRESS).app, base_url=ADDRESS.origin)
    assert client.get("/static/leak.txt").status_code == 404


def test_the_chart_library_of_the_report_is_served(client):
    assert "uPlot" in client.get("/static/vendor/uplot.min.js").text


def test_a_page_that_did_not_change_is_not_sent_again(client):
    first = client.get("/static/modules/app.js")
    again = client.get("/static/modules/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_missing_page_is_a_sentence(tmp_path):
    settings = settings_for(tmp_path)
    (settings.pages / "index.html").unlink()
    answer = TestClient(Lab(settings, ADDRESS).app, base_url=ADDRESS.origin).get("/")
    assert answer.status_code == 503 and "missing" in answer.json()["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, "/api/session", headers=TOKEN).status_code == 405


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/session"), ("GET", "/api/curves")])
def test_a_method_that_an_address_does_not_take_is_a_sentence(client, method, path):
    answer = client.request(method, path, headers=TOKEN)
    assert answer.status_code == 405 and "method" in answer.json()["error"]


def test_a_websocket_is_refused(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/session"):
        pass
    answer = client.get("/api/session", headers=TOKEN | {"upgrade": "websocket"})
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ["/api/curves", "/api/train", "/api/diagnose"])
def test_a_request_has_at_most_64_kilobytes(client, path):
    body = b'{"design": "' + b"x" * 65536 + b'"}'
    assert client.post(path, content=body, headers=TOKEN).status_code == 413

    def piecewise():  # without a length
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    assert client.post(path, content=piecewise(), headers=TOKEN).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 60_000,
        b"3",
        b'{"design": 3}',
        b'{"design": {}, "client": 3}',
    ],
)
def test_a_request_that_is_no_design_is_a_sentence(client, body):
    answer = client.post("/api/curves", content=body, headers=TOKEN)
    assert answer.status_code == 400 and answer.json()["error"]


def test_a_text_has_at_most_4000_characters(client):
    body = {"design": {"text": "x" * 4001}}
    answer = client.post("/api/curves", json=body, headers=TOKEN)
    assert answer.status_code == 200
    assert answer.json()["part"] == "error" and answer.json()["knob"] == "text"
    assert "4,001" in answer.json()["reason"]
    answer = client.post("/api/train", json=body, headers=TOKEN)
    assert answer.status_code == 422 and "4,001" in answer.json()["reason"]


def test_what_is_not_there_is_a_sentence(client):
    for path in ("/api/nothing", "/api/jobs/../session/x", "/api/jobs/x/events"):
        answer = client.get(path, headers=TOKEN)
        assert answer.status_code == 404 and answer.json()["error"]


def test_an_event_number_that_is_none_is_refused(client, tmp_path):
    answer = client.get("/api/records/events", headers=TOKEN | {"last-event-id": "x"})
    assert answer.status_code == 400
