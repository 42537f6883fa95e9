import gc
import pickle
import sys

import pytest

from leadline import errors
from leadline.errors import (
    InputError,
    LeadlineError,
    MissingExtra,
    UnknownName,
    check_function,
    join_words,
    nearest_names,
    require,
    without_collector,
    words_of,
)


def test_every_error_is_a_leadline_error():
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert {kind.__name__ for kind in kinds} == classes
    assert all(issubclass(kind, LeadlineError) for kind in kinds)


def test_an_unknown_name_is_also_a_lookup_error():
    with pytest.raises(LookupError):
        raise UnknownName("probe", "x", [])


def test_the_sentence_offers_several_near_names():
    error = UnknownName("quantity", "stream.nrm", ["stream.norm", "stream.mean", "update.ratio"])
    assert error.nearest[0] == "stream.norm"
    assert str(error).startswith("No quantity is called 'stream.nrm'. Did you mean 'stream.norm'")
    assert str(error).endswith("Known: stream.mean, stream.norm, update.ratio.")


def test_the_sentence_does_not_guess_when_nothing_is_near():
    assert str(UnknownName("probe", "zzz", ["stream"])) == (
        "No probe is called 'zzz'. Known: stream."
    )
    assert str(UnknownName("probe", "zzz", [])) == "No probe is called 'zzz'. Known: none."


def test_letter_case_does_not_hide_the_nearest_name():
    assert nearest_names("STREAM", ["stream", "update"]) == ["stream"]


def test_an_unknown_name_survives_pickling():
    error = pickle.loads(pickle.dumps(UnknownName("probe", "strem", ["stream"])))
    assert str(error) == str(UnknownName("probe", "strem", ["stream"]))
    assert error.known == ("stream",)


def test_an_installed_library_is_returned():
    assert require("json", extra="report") is sys.modules["json"]


def test_a_missing_library_is_answered_with_its_extra():
    with pytest.raises(MissingExtra) as caught:
        require("library_that_nobody_wrote.inside", extra="report")
    assert str(caught.value) == (
        "This needs the library library_that_nobody_wrote, which is not installed; "
        "install it with: pip install 'leadline[report]'"
    )


def test_a_broken_library_keeps_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_inside.py").write_text("import something_it_forgot_to_require")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_it_forgot"):
        require("broken_inside", extra="report")


def test_of_many_known_names_a_message_lists_forty():
    told = str(UnknownName("claim", "zzz", [f"name-{n:03}" for n in range(204)]))
    assert told.endswith("name-038, name-039 and 164 more.")
    assert "and" not in str(UnknownName("claim", "zzz", [f"x{n:02}" for n in range(40)]))


def test_words_are_joined_as_in_a_sentence():
    assert [join_words("abc"[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert join_words(["x", "y"], last="or") == "x or y"


def test_the_words_of_an_exception_are_one_sentence_on_one_line():
    assert words_of(ValueError("a  b\nc!")) == "a b c!"
    assert words_of(ValueError("\n a  b \nstack of C++")) == "a b stack of C++."
    assert words_of(ValueError("\n a  b \nstack of C++"), first_line=True) == "a b."
    assert words_of(ValueError()) == "ValueError without a message."
    long = words_of(ValueError("word " * 500))
    assert len(long) < 320 and long.endswith("...")


def test_a_function_of_one_argument_is_asked_for_in_the_singular():
    with pytest.raises(InputError, match=r"^tell is 3; give a function of the value\.$"):
        check_function(3, "tell", ("the value",))
    with pytest.raises(
        InputError, match=r"1 argument \(the value\), and the function does not take it:"
    ):
        check_function(lambda: None, "tell", ("the value",))


def test_the_collector_rests_while_much_is_imported_and_stays_off_where_it_was_off():
    assert gc.isenabled()
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collector():
        raise KeyError
    assert gc.isenabled()
