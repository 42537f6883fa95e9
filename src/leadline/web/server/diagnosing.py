"""A diagnosis for the page: load a model, visit it, and try the first remedy on a copy.

    {"event": "progress", "done": 3, "total": 9, "what": "..."}
    {"event": "verdict", "diagnosis": {...}}            # the JSON of `leadline diagnose --json`
    {"event": "remedy", "code": "R07", "name": "...", "words": "...", "diff": "..."}
    {"event": "again", "sentence": "...", "proof": {...}, "diagnosis": {...}}

Where nothing can be applied, the remedy holds a `reason`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, LeadlineError, LoadingError
from leadline.web.server.worker import JobControl

if TYPE_CHECKING:
    from leadline.models.loading import LoadedModel
    from leadline.reading.diagnosis.diagnosis import Diagnosis

__all__ = ["KINDS", "check_request", "diagnose_events"]

KINDS = ("hub", "folder", "gguf", "recipe", "random")
_HUB = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
LONGEST_NAME = 1_000
LONGEST_PART = 255
MOST_TEXT = 4_000


def check_request(request: Mapping[str, Any], *, code: bool) -> dict[str, Any]:
    """Return what is asked for in the form that a job takes; refuse what the lab does not run.

    Code that a request names (package.module:function, or Python that comes with a model) runs only
    where the command line has said so with --allow-code.
    """
    unknown = sorted(set(request) - {"model", "kind", "text", "apply"})
    if unknown:
        raise InputError(f"A diagnosis takes model, kind, text and apply, and no {unknown[0]!r}.")
    model, kind = request.get("model"), request.get("kind", "hub")
    text, apply = request.get("text") or "", request.get("apply", False)
    if not isinstance(model, str) or not model.strip() or len(model) > LONGEST_NAME:
        raise InputError("Name a model: a hub id, a folder, a GGUF file, a recipe or a model type.")
    model = model.strip()
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise InputError(f"The text of a diagnosis has at most {MOST_TEXT:,} characters.")
    if not isinstance(apply, bool):
        raise InputError("`apply` is true or false.")
    if kind not in (*KINDS, "function"):
        raise InputError(
            f"No kind of model is called {str(kind)[:80]!r}. Known: {', '.join(KINDS)}."
        )
    if any(len(part.encode("utf-8", "replace")) > LONGEST_PART for part in model.split("/")):
        raise InputError(
            f"{model[:40]}... is too long: no file, folder or hub id has a name of more than "
            f"{LONGEST_PART} bytes."
        )
    names_code = ":" in model and not Path(model).exists()
    if (kind == "function" or names_code) and not code:
        raise InputError(
            f"{model} names Python code, and this lab runs none that a page names. Start it with "
            "`leadline lab --allow-code` if you trust that code."
        )
    _check_name(model, "function" if names_code else kind)
    return {"model": model, "kind": kind, "text": text, "apply": apply, "code": code}


def _check_name(model: str, kind: str) -> None:
    place = _place(model)
    if kind == "hub" and not (_HUB.fullmatch(model) and ".." not in model):
        raise InputError(
            f"{model} is no hub id, which looks like `gpt2` or `owner/name`; for a folder or a file "
            "choose that kind."
        )
    if kind == "folder" and not place.is_dir():
        raise LoadingError(f"There is no folder {model}; check the path.")
    if kind == "gguf" and not (place.is_file() and place.suffix.lower() == ".gguf"):
        raise LoadingError(f"There is no GGUF file {model}; check the path.")
    if kind == "recipe" and not re.fullmatch(r"[\w-]+", model):
        raise LoadingError(f"{model} is no name of a recipe; `leadline list recipes` names them.")


def _place(model: str) -> Path:
    """Where a name leads; `~somebody` whom this machine does not know is a name like others."""
    try:
        return Path(model).expanduser()
    except RuntimeError:
        return Path(model)


def diagnose_events(request: Mapping[str, Any], *, control: JobControl) -> Iterator[dict[str, Any]]:
    """Yield the diagnosis of a model and, with `apply`, what its first remedy does on a copy."""
    from leadline.instruments.visit.diagnose import diagnose
    from leadline.models.inputs.choice import InputChoice

    def progress(doing: str, done: int = 0, total: int | None = None) -> None:
        control.tell({"event": "progress", "done": done, "total": total, "what": doing})

    progress("loading the model")
    loaded = _load(request)
    text = request["text"]
    inputs = InputChoice(text=(text,) if text else (), truncate=True).read(loaded)

    def look(model: Any) -> Diagnosis:
        return diagnose(model, inputs, progress=progress)

    diagnosis = look(loaded)
    yield {
        "event": "verdict",
        "diagnosis": diagnosis.to_json(),
        "missing": list(loaded.missing),
    }
    if request["apply"]:
        yield from _remedy_events(loaded, diagnosis, look, progress)


def _remedy_events(
    loaded: LoadedModel, diagnosis: Diagnosis, look: Any, progress: Any
) -> Iterator[dict[str, Any]]:
    from leadline.instruments.visit.remedies.apply import preview_remedy, prove_remedy

    faults = [finding for finding in diagnosis.findings if finding.severity != "note"]
    if not faults:
        yield {"event": "remedy", "reason": "No finding is more than a note: nothing to repair."}
        return
    first = faults[0]
    remedy = {"event": "remedy", "code": first.code, "name": first.name}
    remedy |= {"words": first.remedy.get("words") or "", "diff": None, "reason": None}
    try:
        yield {**remedy, "diff": preview_remedy(first)}
        progress("measuring a copy with the remedy")
        proof = prove_remedy(loaded.model, diagnosis, first, look)
    except LeadlineError as error:
        yield {**remedy, "reason": str(error)}
        return
    yield {
        "event": "again",
        "sentence": proof.screen().text().partition("\n")[0],
        "proof": proof.to_json(),
        "diagnosis": proof.after.to_json(),
    }


def _load(request: Mapping[str, Any]) -> LoadedModel:
    from leadline.models.loading import load_model

    kind, model = request["kind"], request["model"]
    source = str(_place(model)) if kind in ("folder", "gguf") else model
    if kind == "hub" and Path(model).exists():
        raise LoadingError(
            f"{model} is a hub id, and a file or folder of that name stands where the lab was "
            "started; choose the kind `folder`, or start the lab elsewhere."
        )
    return load_model(
        source,
        random_init=kind == "random",
        recipe=kind == "recipe",
        trust_remote_code=bool(request["code"]),
    )
