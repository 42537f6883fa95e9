"""Every claim of the catalog keeps to what a claim is, and the shipped ledger to the catalog."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections import Counter

import pytest

from leadline.claims import CLAIMS
from leadline.claims.catalog import trials
from leadline.claims.claim import FORMULA, GROUPS, NOTES, placeholders
from leadline.claims.digest import code_digest, trial_digest
from leadline.claims.ledger import SHIPPED, Ledger
from leadline.claims.page.page import page_words, ruling_words
from leadline.claims.ruling import VERDICTS
from leadline.claims.translations import LANGUAGES, words
from leadline.reading.show.formulas import mathml

NAMES = CLAIMS.names()
MEASURED = [name for name in NAMES if CLAIMS.get(name).measure is not None]
LEDGER = Ledger(SHIPPED)
RULINGS = {name: LEDGER.ruling(name) for name in NAMES}
TRANSLATED = {language: words(language) for language in LANGUAGES}
SENTENCES = {text for ruling in RULINGS.values() for text in ruling_words(ruling)} | set(
    page_words()
)


def test_the_list_of_claims_needs_no_torch():
    script = (
        "import sys; from leadline.claims import CLAIMS; from leadline.claims.ledger import "
        "SHIPPED, Ledger; [Ledger(SHIPPED).ruling(n) for n in CLAIMS.names()[:3]]; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_measurement_bears_the_name_of_its_claim():
    strangers = [
        name
        for name in MEASURED
        if inspect.unwrap(CLAIMS.get(name).measure).__name__ != name.replace("-", "_")
    ]
    assert not strangers


def test_claims_say_what_they_say_in_plain_sentences():
    faults = []
    for name in NAMES:
        claim = CLAIMS.get(name).claim
        if not claim.title or claim.title.endswith("."):
            faults.append((name, claim.title))
        for text in (claim.says, claim.why, *([claim.correction] if claim.correction else [])):
            if (
                not text.endswith((".", "!", "?", "$"))
                or text.count("$") % 2
                or text != text.strip()
                or "  " in text
            ):
                faults.append((name, text))
        if bool(claim.formula) != bool(claim.plain):
            faults.append((name, "a formula for the page or for the terminal is missing"))
    assert not faults


def test_the_formulas_of_claims_can_be_drawn():
    broken = []
    for name in NAMES:
        claim = CLAIMS.get(name).claim
        formulas = [part[1:-1] for text in claim.texts() for part in FORMULA.findall(text)]
        for formula in [*formulas, *([claim.formula] if claim.formula else [])]:
            drawn = mathml(formula)
            if not drawn.startswith("<math") or "\\" in drawn:
                broken.append((name, formula))
    assert not broken


def test_the_shipped_ledger_holds_every_number_that_claims_show():
    faults = []
    for name in MEASURED:
        ruling = RULINGS[name]
        texts = ruling.claim.texts()
        shown = {key.partition(":")[0] for text in texts for key in placeholders(text)}
        if ruling.verdict not in VERDICTS[:3]:
            faults.append((name, ruling.verdict))
        faults += [(name, f"{number} is missing") for number in shown - set(ruling.numbers)]
        faults += [
            (name, f"{number} is NaN")
            for number in shown & set(ruling.numbers)
            if any(math.isnan(value) for value in ruling.numbers[number])
        ]
    assert not faults


def test_the_shipped_numbers_were_measured_by_the_code_that_is_here():
    """Every line of a claim or a trial; `leadline claims run --all --record` measures the others."""
    claims = {name: code_digest(CLAIMS.get(name)) for name in MEASURED}
    shared = {name: trial_digest(trial) for name, trial in trials(NAMES).items()}
    expected = {"claim": claims, "trial": shared}
    stale = {line.name for line in LEDGER if expected[line.kind].get(line.name) != line.code}
    assert stale == set()
    assert {line.name for line in LEDGER if line.kind == "claim"} == set(MEASURED)


def test_the_correction_of_a_claim_that_does_not_hold_is_there_and_holds():
    faults = []
    for name in MEASURED:
        ruling = RULINGS[name]
        if ruling.verdict == "holds":
            if ruling.correction not in (None, "holds"):
                faults.append((name, ruling.correction))
        elif not ruling.claim.correction or ruling.correction != "holds":
            faults.append((name, "a correction must be measured, and hold"))
    assert not faults


def test_random_claims_were_measured_with_several_seeds():
    faults = [
        (name, RULINGS[name].seeds)
        for name in MEASURED
        if (
            len(RULINGS[name].seeds) < 3
            if CLAIMS.get(name).seeded
            else len(RULINGS[name].seeds) != 1
        )
    ]
    assert not faults


def test_every_group_and_every_note_has_its_claims():
    groups = Counter(CLAIMS.get(name).claim.group for name in NAMES)
    assert set(groups) == set(GROUPS)
    notes = Counter(note for name in NAMES for note in CLAIMS.get(name).claim.notes)
    assert set(notes) == set(NOTES)
    verdicts = Counter(ruling.verdict for ruling in RULINGS.values())
    assert all(verdicts[verdict] for verdict in VERDICTS[:4])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_of_the_page_is_translated_and_none_is_left_over(language):
    assert set(TRANSLATED[language]) == SENTENCES


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_keeps_numbers_and_formulas(language):
    for english, other in TRANSLATED[language].items():
        assert sorted(placeholders(other)) == sorted(placeholders(english)), english
        assert sorted(FORMULA.findall(other)) == sorted(FORMULA.findall(english)), english
        assert other.strip()


@pytest.mark.parametrize(
    ("language", "first", "last"), [("zh", "\u4e00", "\u9fff"), ("ru", "\u0410", "\u044f")]
)
def test_a_translated_sentence_is_written_in_its_language(language, first, last):
    plain = [
        english
        for english, other in TRANSLATED[language].items()
        if len(english) > 25 and not any(first <= letter <= last for letter in other)
    ]
    assert plain == []
