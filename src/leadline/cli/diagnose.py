"""`leadline diagnose`: is a model healthy; if not, what is wrong, where, why, and what to do."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leadline.cli.request import options as o
from leadline.cli.request.models import AnatomyRequest, ModelRequest
from leadline.cli.request.outputs import check_outputs, say_missing, say_outputs, say_streaming
from leadline.cli.request.records import names_record, open_records
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import InputError, LeadlineError, join_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadline.instruments.visit.remedies.apply import Proof
    from leadline.models.loading import LoadedModel
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.record import Record

RULES, DEEPER, REMEDY = "Rules", "Looking deeper", "Remedy"
FailOn = Literal["serious", "warning", "note"]


@dataclass(frozen=True)
class DiagnoseRequest(AnatomyRequest):
    """A model with inputs, or a record."""

    model: Annotated[
        str | None,
        o.argument(
            "MODEL",
            "A local folder, a hub id, a .gguf file, package.module:function (or file.py:function) "
            "that returns a module; or FILE.leadline, a record, or SCAN.leadline:NAME, one checkpoint "
            "of a scan.",
        ),
    ] = None

    @property
    def record(self) -> Path | None:
        """The file of the record, if one was given instead of a model."""
        if self.model is None or not names_record(self.model):
            return None
        given = [self.text, self.text_file, self.tokens_file, self.random, self.declare]
        if any(given) or self.random_init or self.recipe:
            raise InputError(
                f"{self.model} is a record: inputs and options of a model are for models. Give the "
                "model instead, or the record alone."
            )
        return Path(self.model)


def diagnose(
    voice: Voice,
    request: DiagnoseRequest,
    select: Annotated[
        str | None,
        o.option(
            "--select CODE[,CODE]",
            "These rules alone: codes, names, or the beginning of codes, such as A for attention "
            "(`leadline list rules` names them).",
            RULES,
        ),
    ] = None,
    ignore: Annotated[
        str | None, o.option("--ignore CODE[,CODE]", "All rules but these.", RULES)
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        o.option(
            "--fail-on", "Leave with exit code 1 where a finding is at least as severe.", RULES
        ),
    ] = None,
    statistics: Annotated[
        bool, o.option("--statistics", "Count the findings of each rule instead.", RULES)
    ] = False,
    no_twin: Annotated[
        bool,
        o.option(
            "--no-twin",
            "Do not build a twin with random weights; rules that compare with it do not look.",
            DEEPER,
        ),
    ] = False,
    reference: Annotated[
        str | None,
        o.option(
            "--reference MODEL",
            "A model, or the record of a diagnosis, that is known to be right.",
            DEEPER,
        ),
    ] = None,
    intended: Annotated[
        str,
        o.option(
            "--intended TEXT",
            "What the model is meant to be, such as 'pre-norm, causal, gpt2'.",
            DEEPER,
            show_default=False,
        ),
    ] = "",
    train: Annotated[
        int,
        o.option(
            "--train N",
            "Also train a copy for N steps: does it learn?",
            DEEPER,
            show_default=False,
            least=0,
        ),
    ] = 0,
    ablate: Annotated[
        bool, o.option("--ablate", "Also leave out one write after the other.", DEEPER)
    ] = False,
    diff: Annotated[
        bool, o.option("--diff", "Show what each remedy would change.", REMEDY)
    ] = False,
    apply: Annotated[
        bool,
        o.option(
            "--apply",
            "Apply the remedy of the first finding to a copy, measure the copy, and say whether the "
            "finding is gone. The model itself stays as it is.",
            REMEDY,
        ),
    ] = False,
    output: o.RecordFile = None,
    html: o.HtmlFile = None,
    dry_run: o.DryRun = False,
    anyway: o.Anyway = False,
    sarif: Annotated[
        Path | None, o.option("--sarif FILE", "Write the findings as SARIF 2.1.0.", o.OUTPUT)
    ] = None,
    everything: o.Everything = False,
) -> None:
    """Say what is wrong with MODEL, where, why, and what to do; or that nothing is unusual.

    The model is measured, compared with a twin that has random weights, and asked in a few small
    passes what a measurement does not show. Then every rule looks at the record. Exit code 1 means
    that --fail-on was given and something at least as severe was found.
    """
    check_outputs(output, html)
    if sarif is not None:
        _check_log(sarif)
    request.check()
    file = request.record
    if file is not None:
        for_models = {
            "--apply": apply,
            "--train": train,
            "--ablate": ablate,
            "--intended": intended,
        }
        if used := [option for option, value in for_models.items() if value]:
            raise InputError(f"{join_words(used)} needs the model, and {file} is a record.")
    if dry_run:
        if file is not None:
            raise InputError(f"--dry-run needs the model, and {file} is a record.")
        from leadline.cli.screen.cost_screen import show_cost

        show_cost(voice, request, "diagnose")
        return
    from leadline.reading.diagnosis.diagnosis import choose_rules

    chosen, left_out = _words(select), _words(ignore)
    choose_rules(chosen, left_out)  # an unknown code is said before the work
    from leadline.instruments.visit.diagnose import diagnose as diagnose_model

    loaded: LoadedModel | None = None
    with ExitStack() as stack:  # a record stays open until it is shown
        with voice.progress("Loading the model") as gauge:
            other = _reference(reference, voice, stack, request)
            if file is not None:
                [record] = stack.enter_context(open_records(voice, [file]))
                look = partial(diagnose_model, reference=other, select=chosen, ignore=left_out)
                diagnosis = look(record)
            else:
                from leadline.instruments.visit.visit import visit_cost

                declared = request.declaration()
                loaded = load_with_room(voice, request, "diagnose", anyway=anyway)
                say_streaming(gauge, loaded)
                inputs = request.inputs(loaded)
                gauge.tell(
                    f"About {visit_cost(twin=not no_twin):.0f} forward and backward passes over "
                    f"{inputs.summary().get('tokens', 'the')} tokens."
                )
                look = partial(
                    diagnose_model,
                    inputs=inputs,
                    reference=other,
                    intended=intended,
                    train=train,
                    ablate=ablate,
                    families=not request.no_families,
                    twin=not no_twin,
                    seed=request.seed,
                    progress=gauge,
                    select=chosen,
                    ignore=left_out,
                )
                diagnosis = look(loaded, anatomy=declared)
            proof = _proof(diagnosis, loaded, look) if apply else None  # or why there is none
            _write(diagnosis, output, html, sarif)
        previews = _previews(diagnosis) if diff else []
        if loaded is not None:
            say_missing(voice, loaded)
        remedies = [*previews]
        if proof is not None:
            remedies.append({"why": proof} if isinstance(proof, str) else proof.to_json())
        voice.emit(lambda: diagnosis.to_json() | ({"remedies": remedies} if diff or apply else {}))
        _show(voice, diagnosis, statistics=statistics, everything=everything)
        for one in previews:
            voice.say(f"\n{one['diff']}")
        if proof is not None and not isinstance(proof, str):
            voice.say("")
            voice.show(proof.screen().show)
    say_outputs(voice, output, html)
    if sarif is not None:
        voice.say(f"The SARIF log is in {sarif}")
    if fail_on is not None and diagnosis.worse_than(fail_on):
        raise typer.Exit(1)
    if isinstance(proof, str):
        raise InputError(proof)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _reference(
    text: str | None, voice: Voice, stack: ExitStack, request: AnatomyRequest
) -> LoadedModel | Record | None:
    """Open the record, or load the model, that is known to be right."""
    if text is None:
        return None
    if names_record(text):
        return stack.enter_context(open_records(voice, [Path(text)]))[0]
    return ModelRequest(
        model=text,
        dtype=request.dtype,
        device=request.device,
        trust_remote_code=request.trust_remote_code,
        seed=request.seed,
    ).load()


def _proof(
    diagnosis: Diagnosis, loaded: LoadedModel | None, diagnose_again: Callable[[Any], Diagnosis]
) -> Proof | str:
    """Apply the remedy of the first finding that is more than a note to a copy, and look again.

    Where nothing can be applied, the sentence that says why: the diagnosis stands all the same.
    """
    from leadline.instruments.visit.remedies.apply import prove_remedy

    faults = [finding for finding in diagnosis.findings if finding.severity != "note"]
    if not faults:
        return "--apply has nothing to apply: no finding is more than a note."
    assert loaded is not None
    try:
        return prove_remedy(loaded.model, diagnosis, faults[0], diagnose_again)
    except LeadlineError as error:
        return str(error)


def _check_log(sarif: Path) -> None:
    """Refuse to write the log over what is no log, such as the record that is read."""
    if sarif.suffix.lower() not in {".sarif", ".json"}:
        raise InputError(f"--sarif writes a log, and {sarif} does not end in .sarif or .json.")
    if sarif.is_file() and b"sarif" not in sarif.read_bytes()[:1000]:
        raise InputError(f"{sarif} exists and is no SARIF log; choose another file for --sarif.")
    check_writable(sarif, "SARIF log")


def _previews(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    from leadline.instruments.visit.remedies.apply import preview_remedy

    return [
        {"code": finding.code, "name": finding.name, "diff": preview_remedy(finding)}
        for finding in diagnosis.findings
        if finding.remedy.get("edit")
    ]


def _write(
    diagnosis: Diagnosis, output: Path | None, html: Path | None, sarif: Path | None
) -> None:
    if output is not None:
        diagnosis.record.save(output)
    if html is not None:
        from leadline.reading.page.html import write_html

        write_html([diagnosis.record], html, diagnoses=[diagnosis])
    if sarif is not None:
        from leadline.record.file.text_files import write_text_file

        log = json.dumps(diagnosis.to_sarif(), indent=2, allow_nan=False)
        write_text_file(sarif, f"{log}\n", problem=f"The SARIF log cannot be written to {sarif}")


def _show(voice: Voice, diagnosis: Diagnosis, *, statistics: bool, everything: bool) -> None:
    if not statistics:
        voice.show(diagnosis.screen(everything=everything).show)
        return
    from leadline.reading.diagnosis.words import answer_of, statistics_table
    from leadline.record.words.screen import Screen, Sentence

    parts = (Sentence(answer_of(diagnosis)[0], "bold"), statistics_table(diagnosis))
    voice.show(Screen(parts).show)
