"""Windows of a text: where they stand, and that no validation byte is ever trained on."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import InputError, LabError
from leadline.lab.tasks._task import HELD_OUT
from leadline.lab.tasks.bytes import CHUNK, HANDFUL, ByteTask, chunk_of, split


class Given(ByteTask):
    """A text that the test gives."""

    name = "given"

    def __init__(self, text: bytes, length: int = 8) -> None:
        self.read(text, source="The test's text", length=length)


def numbered(size: int) -> bytes:
    """A text in which any eight bytes tell where they stand: each number has three digits of 251."""
    return b"".join(
        bytes((255, n // 63001, n // 251 % 251, n % 251)) for n in range(size // 4 + 1)
    )[:size]


def place_of(window: list[int]) -> int:
    """Where a window of a numbered text stands."""
    mark = window.index(255)
    a, b, c = window[mark + 1 : mark + 4]
    return 4 * (63001 * a + 251 * b + c) - mark


def by_hand(size: int, window: int) -> list[str]:
    """For each byte of a text the part that it belongs to."""
    chunk = max(8 * window, min(4096, size // 10))
    return ["held" if place // chunk % 10 == 9 else "trained" for place in range(size)]


def starts(runs) -> list[int]:
    return runs.begin(torch.arange(runs.places)).tolist()


@given(st.integers(1, 40), st.integers(0, 9000))
def test_a_window_begins_wherever_it_stays_in_its_part(length, more):
    window = length + 1
    size = 80 * window + more
    parts = by_hand(size, window)
    for runs, part in zip(split(size, window), ("trained", "held"), strict=True):
        wanted = [
            place
            for place in range(size - window + 1)
            if all(parts[place + step] == part for step in range(window))
        ]
        assert starts(runs) == wanted
        assert len(wanted) >= HANDFUL


def test_chunks_have_4096_bytes_unless_the_text_is_short_or_the_windows_are_long():
    assert (CHUNK, HELD_OUT, HANDFUL) == (4096, 10, 8)
    assert chunk_of(4_000_000, 65) == chunk_of(40_960, 65) == 4096
    assert chunk_of(20_000, 65) == 2000
    assert chunk_of(4_000_000, 1025) == 8 * 1025


def test_trained_windows_and_held_out_windows_never_share_a_byte():
    text = numbered(90_000)
    task, parts = Given(text), by_hand(90_000, 9)
    seen = {"trained": set(), "held": set()}
    for part, batches in (
        ("trained", [task.train(step, 512, seed=step % 3) for step in range(30)]),
        ("held", [task.validation(n) for n in (1, 7, 2000)]),
    ):
        for batch in batches:
            rows = torch.cat([batch.ids, batch.targets[:, -1:]], 1).tolist()
            for row in rows:
                place = place_of(row)
                assert bytes(row) == text[place : place + 9]
                seen[part] |= set(range(place, place + 9))
    assert not seen["trained"] & seen["held"]
    assert {parts[place] for place in seen["trained"]} == {"trained"}
    assert {parts[place] for place in seen["held"]} == {"held"}
    assert len(seen["trained"]) > 0.7 * parts.count("trained")


def test_each_byte_is_predicted_from_those_before_it():
    batch = Given(numbered(90_000)).train(0, 5, seed=0)
    assert torch.equal(batch.ids[:, 1:], batch.targets[:, :-1])


def test_validation_windows_stand_at_equal_distances_over_all_that_is_held_out():
    size = 400_000
    task = Given(numbered(size))
    held = starts(split(size, 9)[1])
    for examples in (1, 6, 64):
        rows = task.validation(examples).ids.tolist()
        at = [held.index(place_of(row)) for row in rows]
        part = len(held) / examples
        assert at == [int((number + 0.5) * part) for number in range(examples)]


def test_training_windows_are_drawn_evenly():
    size = 720
    task = Given(numbered(size))
    trained = starts(split(size, 9)[0])
    assert len(trained) == 9 * 72 - 8
    counts = Counter(
        place_of(row) for step in range(100) for row in task.train(step, 640, seed=0).ids.tolist()
    )
    assert set(counts) == set(trained)
    # 100 of each are expected, with a standard deviation of 10.
    assert max(abs(counts[place] - 100) for place in trained) < 50


def test_a_text_of_eighty_windows_is_enough_and_one_byte_less_is_refused_with_the_sizes():
    Given(numbered(720))
    with pytest.raises(InputError) as caught:
        Given(numbered(719))
    assert str(caught.value) == (
        "The test's text has 719 bytes, which is too short to train on windows of 8 + 1 bytes "
        "and to hold some out: give 720 bytes or more, or a smaller length."
    )


def test_no_more_validation_windows_are_given_than_there_are_places():
    task = Given(numbered(720))
    assert len({tuple(row) for row in task.validation(64).ids.tolist()}) == 64

    class Named(Given):
        def choice(self):
            return "given"

    with pytest.raises(LabError, match=r"65 validation examples were asked for .* given has 64;"):
        Named(numbered(720)).validation(65)


@pytest.mark.parametrize("length", [0, -1, 2.0, True, "8"])
def test_a_length_that_is_no_whole_number_is_refused(length):
    with pytest.raises(LabError, match="The option length of the task given is"):
        Given(numbered(9000), length)


def test_the_digest_is_that_of_the_whole_text():
    text = numbered(1000)
    assert Given(text).digest == hashlib.sha256(text).hexdigest()
