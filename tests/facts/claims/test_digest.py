"""What changes the digest of a measurement, and what does not."""

from __future__ import annotations

from functools import partial

from leadline.claims import CLAIMS
from leadline.claims.catalog import Trial
from leadline.claims.digest import _without_texts, code_digest, place_of, source_of, trial_digest

MODULE = '''
"""A text."""
LIMIT = 3

@claim("a", title="T")
def measure(seed):
    """Another text."""
    return LIMIT + seed
'''


def test_texts_do_not_count_and_code_does():
    first = _without_texts(MODULE)
    assert _without_texts(MODULE.replace("Another text", "Other words")) == first
    assert _without_texts(MODULE.replace("A text", "Words")) == first
    assert _without_texts(MODULE.replace('"T"', '"Another title"')) == first
    assert _without_texts(MODULE.replace("LIMIT = 3", "LIMIT = 4")) != first
    assert _without_texts(MODULE.replace("+ seed", "- seed")) != first


def test_a_function_of_nothing_but_a_text_is_still_a_function():
    assert "Pass" in _without_texts('def f():\n    """Only this."""\n')


def test_every_claim_has_a_digest_of_its_own():
    entries = [entry for _, entry in CLAIMS.items() if entry.measure is not None]
    digests = {code_digest(entry) for entry in entries}
    assert len(digests) == len(entries)


def test_a_trial_is_told_by_its_name_and_its_module():
    def run(seed):
        return {}

    one, two = Trial("a", run, 1.0), Trial("b", run, 1.0)
    assert trial_digest(one) != trial_digest(two)
    assert trial_digest(one) == trial_digest(Trial("a", partial(run), 9.0))


def test_the_code_that_measured_is_shown_from_its_def_on():
    entry = CLAIMS.get("power-of-nine-tenths")
    assert source_of(entry).startswith("def power_of_nine_tenths(seed: int) -> Measured:")
    assert "return Measured(" in source_of(entry)
    assert place_of(entry).startswith("leadline.claims.measure.products, line ")
