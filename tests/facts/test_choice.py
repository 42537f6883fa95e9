import json
import keyword

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.choice import Choice, split_choices
from leadline.errors import CatalogError

words = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.\-]*\Z").filter(lambda word: word != "name")


def is_argument(word):
    return word.isidentifier() and not keyword.iskeyword(word)


plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(
            lambda name, options: Choice(name, **options),
            words,
            st.dictionaries(words, inner, max_size=3),
        )
    ),
    max_leaves=6,
)
choices = st.builds(
    lambda name, options: Choice(name, **options), words, st.dictionaries(words, values, max_size=4)
)


@given(choices)
def test_a_choice_reads_back_from_its_command_line_form(choice):
    assert Choice.parse(str(choice)) == choice
    assert str(Choice.parse(str(choice))) == str(choice)


@given(choices)
def test_a_choice_reads_back_from_its_json_form(choice):
    text = json.dumps(choice.to_json(), allow_nan=False)
    assert Choice.parse(json.loads(text)) == choice


@given(choices)
def test_equal_choices_have_equal_hashes_whatever_their_spelling(choice):
    spellings = {choice, Choice.parse(str(choice)), Choice.parse(choice.to_json())}
    assert spellings == {choice}


@given(words, st.dictionaries(words.filter(is_argument), values, max_size=4))
def test_the_repr_of_a_choice_is_the_python_that_makes_it(name, options):
    choice = Choice(name, **{k: v for k, v in options.items() if "Choice" not in repr(v)})
    assert eval(repr(choice), {"Choice": Choice}) == choice


@given(st.lists(choices, min_size=1, max_size=4))
def test_a_list_of_choices_splits_where_it_was_joined(many):
    assert split_choices(", ".join(map(str, many))) == many


def test_the_three_spellings_of_hyper_with_four_lanes_are_equal():
    python = Choice("hyper", lanes=4)
    assert python == Choice.parse("hyper(lanes=4)")
    assert python == Choice.parse({"name": "hyper", "lanes": 4})
    assert python == Choice.parse(python)
    assert str(python) == "hyper(lanes=4)"
    assert python.to_json() == {"name": "hyper", "lanes": 4}


def test_options_have_no_order():
    assert Choice("a", x=1, y=2) == Choice("a", y=2, x=1)
    assert str(Choice("a", y=2, x=1)) == "a(x=1, y=2)"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("-4", -4),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("False", False),
        ("none", None),
        ("rotary", "rotary"),
        ('"two words"', "two words"),
        ("'two words'", "two words"),
        ('"4"', "4"),
        ('"true"', "true"),
        ("[1, 2.5, x]", (1, 2.5, "x")),
        ("[]", ()),
        ("rotary()", Choice("rotary")),
        ("rotary(period=10)", Choice("rotary", period=10)),
        ("inf", "inf"),
    ],
)
def test_a_value_is_read_as_what_it_looks_like(text, value):
    read = Choice.parse(f"a(x={text})").options["x"]
    assert read == value
    assert type(read) is type(value)


def test_a_number_of_numpy_becomes_a_plain_number():
    choice = Choice("a", x=np.int64(3), y=np.float32(0.5))
    assert choice.to_json() == {"name": "a", "x": 3, "y": 0.5}
    assert type(choice.options["x"]) is int
    assert type(choice.options["y"]) is float


def test_options_cannot_be_changed():
    with pytest.raises(TypeError):
        Choice("a", x=1).options["x"] = 2
    with pytest.raises(AttributeError):
        Choice("a").name = "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a name at character 1, it ends there"),
        ("a(", "expected a name at character 3, it ends there"),
        ("a(x", "expected '=' and a value after 'x' at character 4"),
        ("a(x=", "expected a value at character 5"),
        ("a(x=1", "expected ',' or ')' at character 6"),
        ("a(x=1))", "expected a comma or the end at character 7, found ')'"),
        ("a,,b", "expected a name at character 3, found ',b'"),
        ("a b", "expected a comma or the end at character 3, found 'b'"),
        ("4a", "expected a name at character 1"),
        ("a(x=1, x=2)", "gives the option 'x' of 'a' twice"),
        ("a(x=[1 2])", "expected ',' or ']' at character 8"),
        ("a(x=4a)", "'4a' is neither a number nor a word"),
        ('a(x="\\q")', "expected a text with the escapes of JSON at character 5"),
        ("a(name=b)", "cannot have an option called 'name'"),
        ("a(x=1e999)", "is inf, which JSON cannot hold"),
        ("a%", "expected a name, a number or a quoted text at character 2"),
    ],
)
def test_a_text_that_is_no_choice_is_answered_with_what_was_expected(text, message):
    with pytest.raises(CatalogError) as caught:
        split_choices(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes", {"lanes": 4}]
)
def test_a_value_that_json_cannot_hold_is_refused(value):
    with pytest.raises(CatalogError):
        Choice("a", x=value)


@pytest.mark.parametrize("name", ["", "two words", "4a", "a(b)", "a,b"])
def test_a_name_that_could_not_be_typed_is_refused(name):
    with pytest.raises(CatalogError, match="cannot be the name of a choice"):
        Choice(name)


def test_two_choices_where_one_is_expected_are_refused():
    with pytest.raises(CatalogError, match="One choice was expected"):
        Choice.parse("a,b")
