"""Claims as data: what a file may hold, and what is said of a file that is broken."""

import pytest

from leadline.claims import CLAIMS, Measured, measures, read_texts
from leadline.claims.text import texts_of
from leadline.errors import CatalogError, UnknownName

CLAIM = """
group = "algebra"

[limits.large]
relation = "at least"
limit = 3
because = "Large is read as three or more."

[two-and-two]
notes = ["card"]
title = "Two and two is four"
says = "Two and two is four."
why = '''
A sum of two numbers
is {sum:.0f}.'''
seconds = 0.5
seeded = false
checks = [
    { part = "claim", number = "sum", relation = "near", limit = 4, within = 0.5, label = "sum", because = "A count: four is four." },
    { part = "correction", number = "sum", as = "large", label = "sum, as large" },
]
"""


def written(folder, text):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_holds_sentences_checks_and_what_a_measurement_costs(tmp_path):
    (text,) = texts_of(written(tmp_path, CLAIM)).values()
    assert text.claim.name == "two-and-two"
    assert text.claim.group == "algebra"
    assert text.claim.why == "A sum of two numbers is {sum:.0f}."
    assert (text.seconds, text.seeded) == (0.5, False)
    near, large = text.claim.checks
    assert (near.part, near.number, near.relation, near.limit, near.within) == (
        ("claim", "sum", "near", 4.0, 0.5)
    )
    assert (large.part, large.relation, large.limit) == ("correction", "at least", 3.0)
    assert large.because == "Large is read as three or more."


def test_a_plug_in_adds_a_claim_by_one_file_and_one_function(tmp_path, monkeypatch):
    monkeypatch.setattr(CLAIMS, "_entries", dict(CLAIMS.items()))
    read_texts(written(tmp_path, CLAIM))

    @measures("two-and-two")
    def two_and_two(seed):
        return Measured({"sum": 2.0 + 2.0})

    entry = CLAIMS.get("two-and-two")
    assert entry.run(0, {}).numbers == {"sum": 4.0}
    assert entry.claim.title == "Two and two is four"


def test_a_measurement_needs_a_text():
    with pytest.raises(UnknownName, match="No claim's text is called 'power-of-nine-tenth'"):
        measures("power-of-nine-tenth")(lambda seed: Measured({}))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[two-and-two]", "[two-and-two", "is not valid TOML"),
        ('group = "algebra"', 'group = "algebro"', "group: 'algebro' is no chapter"),
        ('title = "Two and two is four"', 'titel = "Two"', r"two-and-two.titel: there is no such"),
        ('title = "Two and two is four"', "", "two-and-two: the claim has no title"),
        ('notes = ["card"]', 'notes = ["cards"]', "two-and-two.notes: no note is called 'cards'"),
        (
            'relation = "near"',
            'relation = "close to"',
            r"two-and-two.checks\[0\].relation: 'close to' is no relation of a check; known: at most",
        ),
        (
            'as = "large"',
            'as = "larg"',
            r"checks\[1\].as: no limit is called 'larg' in this file; known: large",
        ),
        ('label = "sum", because', "because", r"checks\[0\]: the check has no label"),
        (
            "limit = 4,",
            'limit = "four",',
            r"checks\[0\].limit: a number was expected, 'four' stands",
        ),
        ("limit = 4,", "limit = true,", r"checks\[0\].limit: a number was expected, True stands"),
        ("within = 0.5, ", "", r"checks\[0\]: The check of 'sum' is 'near' its limit within 0"),
        ('part = "correction"', 'part = "claim"', "two-and-two: .* checks a number twice"),
        ("seconds = 0.5", 'seconds = "long"', "two-and-two.seconds: a number was expected"),
        ("seeded = false", "seeded = 0", "two-and-two.seeded: true or false was expected"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_the_key(tmp_path, old, new, sentence):
    assert old in CLAIM
    path = written(tmp_path, CLAIM.replace(old, new, 1))
    with pytest.raises(CatalogError, match=sentence) as refused:
        texts_of(path)
    assert "mine.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path):
    with pytest.raises(CatalogError, match=r"none.toml cannot be read: No such file"):
        texts_of(tmp_path / "none.toml")
