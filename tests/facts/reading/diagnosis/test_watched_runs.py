"""A diagnosis of a watched run repeats what was warned of while it was trained."""

from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record import Finding
from leadline.record.run.watching import without_replaced
from tests.synthetic_watch import Course, watch_record

SICK = Course(layers=6, samples=30, every=10)


def test_its_warnings_stand_first_by_how_bad_they_are():
    diagnosis = diagnose_record(watch_record(SICK))
    assert [one.code for one in diagnosis.findings[:2]] == ["G91", "G90"]
    assert not diagnosis.healthy
    assert diagnosis.answer[0].startswith("gpt2: 1 serious finding and ")
    assert "G91" in diagnosis.screen().text()


def test_rules_that_are_chosen_stand_alone():
    record = watch_record(SICK)
    assert "G91" not in [one.code for one in diagnose_record(record, select=["P"]).findings]


def warning(step, attempt):
    return Finding("It grows.", details={"step": step, "attempt": attempt})


def test_what_was_said_of_updates_that_were_made_again_is_left_out():
    said = [warning(40, 0), warning(60, 0), warning(60, 1), Finding("No step.")]
    watch = {"attempts": [{"run": "", "first": 1}, {"run": "again", "first": 50}]}
    assert without_replaced(said, watch) == [said[0], *said[2:]]
    assert without_replaced(said, None) == said
    assert without_replaced(said, {"attempts": watch["attempts"][:1]}) == said


def test_a_record_leaves_it_out_too():
    record = watch_record(Course(layers=2, samples=6, trouble=False))
    record.add_finding(warning(60, 0))
    assert len(record.findings) == 1
    attempts = [{"run": "", "first": 1}, {"run": "again", "first": 50}]
    record.note("watch", {**record.provenance["watch"], "attempts": attempts})
    assert record.findings == []
