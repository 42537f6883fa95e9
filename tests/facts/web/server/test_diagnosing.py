"""A diagnosis on the page: refused where it would run foreign code, otherwise as on the command line."""

import json

import pytest
import torch

from leadline.errors import LeadlineError
from leadline.web.server.diagnosing import check_request
from tests.facts.web.server.labs import events_of, open_lab

transformers = pytest.importorskip("transformers")
HTML = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"model": "os:getcwd", "kind": "function"}, "--allow-code"),
        ({"model": "evil.py:build", "kind": "hub"}, "--allow-code"),
        ({"model": "evil.py:build", "kind": "folder"}, "--allow-code"),
        ({"model": "package.module:function"}, "--allow-code"),
        ({"model": "../../etc", "kind": "hub"}, "no hub id"),
        ({"model": "a/b/c", "kind": "hub"}, "no hub id"),
        ({"model": HTML, "kind": "hub"}, "no hub id"),
        ({"model": "/nowhere", "kind": "folder"}, "no folder"),
        ({"model": "/etc/passwd", "kind": "gguf"}, "no GGUF file"),
        ({"model": "../x.json", "kind": "recipe"}, "no name of a recipe"),
        ({"model": "gpt2", "kind": "pickle"}, "No kind"),
        ({"model": ""}, "Name a model"),
        ({"model": 3}, "Name a model"),
        ({"model": "x" * 1001}, "Name a model"),
        ({"model": "gpt2", "text": "x" * 4001}, "4,000 characters"),
        ({"model": "gpt2", "apply": "yes"}, "true or false"),
        ({"model": "gpt2", "trust_remote_code": True}, "no 'trust_remote_code'"),
    ],
)
def test_what_the_lab_does_not_run_is_a_sentence(request_, sentence, tmp_path):
    with pytest.raises(LeadlineError, match=sentence):
        check_request(request_, code=False)


def test_code_runs_where_the_command_line_has_said_so():
    taken = check_request({"model": "package.module:function", "kind": "function"}, code=True)
    assert taken["code"] is True
    assert check_request({"model": "gpt2"}, code=False)["code"] is False


def diagnose(client, **body):
    answer = client.post("/api/diagnose", json=body)
    assert answer.status_code == 200, answer.text
    return [event for _, event in events_of(client.get(f"/api/jobs/{answer.json()['job']}/events"))]


def test_a_refusal_begins_no_job(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = client.post("/api/diagnose", json={"model": "os:getcwd", "kind": "function"})
        assert answer.status_code == 422 and "--allow-code" in answer.json()["error"]
        assert client.get("/api/jobs").json() == []


def saved(path, change):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=5, n_head=4, n_positions=64,
                                     bos_token_id=0, eos_token_id=0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        change(model)
    model.save_pretrained(path)
    return path


@pytest.mark.slow
def test_a_sick_model_is_diagnosed_repaired_on_a_copy_and_measured_again(tmp_path):
    path = saved(tmp_path / "model", lambda m: m.transformer.h[2].attn.c_attn.weight.mul_(100))
    with open_lab(tmp_path) as (_, client):
        told = diagnose(client, model=str(path), kind="folder", apply=True)
    words = [event["event"] for event in told]
    assert words[0] == "progress" and words[-1] == "end"
    by_word = {event["event"]: event for event in told}
    verdict = by_word["verdict"]["diagnosis"]
    assert verdict["findings"][0]["code"] == "W02" and not verdict["healthy"]
    assert by_word["remedy"]["code"] == "W02" and "scale-tensor" in by_word["remedy"]["diff"]
    assert by_word["again"]["proof"]["helps"] and by_word["again"]["diagnosis"]["healthy"]
    assert by_word["again"]["sentence"].startswith("The remedy helps: W02 ")
    assert by_word["end"] == {"event": "end", "reason": "finished"}


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_a_sentence(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": HTML}))
    with open_lab(tmp_path) as (_, client):
        told = diagnose(client, model=str(tmp_path / "model"), kind="folder")
        recipe = diagnose(client, model="no-such-recipe", kind="recipe")
    for events in (told, recipe):
        assert [event["event"] for event in events][-2:] == ["error", "end"]
        assert events[-1]["reason"] == "failed"
        assert events[-2]["reason"] and "Traceback" not in events[-2]["reason"]


def test_python_that_comes_with_a_model_does_not_run(tmp_path):
    folder = saved(tmp_path / "model", lambda model: model)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": names, "model_type": "x"}))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with open_lab(tmp_path) as (_, client):
        told = diagnose(client, model=str(folder), kind="folder")
    assert told[-1]["reason"] == "failed"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        ("~nobody-of-this-name/model", "folder", "There is no folder ~nobody"),
        ("~nobody-of-this-name/model.gguf", "gguf", "There is no GGUF file ~nobody"),
        ("a" * 900, "folder", "has a name of more than 255 bytes"),
        ("a" * 900, "hub", "has a name of more than 255 bytes"),
        ("a" * 900, "random", "has a name of more than 255 bytes"),
        ("a:" + "b" * 900, "hub", "has a name of more than 255 bytes"),
        ("я" * 200, "folder", "has a name of more than 255 bytes"),
        ("a\0b", "folder", "There is no folder a"),
        ("\ud800", "folder", "There is no folder"),
    ],
)
def test_a_name_that_no_file_can_have_is_a_sentence(model, kind, words):
    with pytest.raises(LeadlineError, match=words):
        check_request({"model": model, "kind": kind}, code=False)


def test_half_of_a_letter_in_a_name_is_refused_as_any_other_name(tmp_path):
    with open_lab(tmp_path) as (_, client):
        answer = client.post("/api/diagnose", content='{"model": "\\ud800", "kind": "folder"}')
        assert answer.status_code == 422 and "There is no folder" in answer.json()["error"]
