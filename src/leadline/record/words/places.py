"""Parts of sentences: a title as their subject, and layers, one, a stretch of them, several, all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["opening", "places_text"]

MOST_NAMED = 4
"""So many layers that do not lie side by side are named; more of them are counted."""


def places_text(chosen: Sequence[int], layers: Sequence[int], *, onward: bool = False) -> str:
    """Say which of the layers of a line are chosen, both in the order in which it is followed.

    With `onward` a stretch up to the last layer is said as `from layer 3 on`.

    >>> places_text([2], range(5)), places_text([2, 1, 0], [4, 3, 2, 1, 0])
    ('at layer 2', 'from layer 2 to layer 0')
    >>> places_text([0, 3], range(5)), places_text([3, 4], range(5), onward=True)
    ('at layers 0 and 3', 'from layer 3 on')
    """
    first, last = chosen[0], chosen[-1]
    if len(chosen) == 1:
        return f"at layer {first}"
    if len(chosen) == len(layers):
        return "at every layer"
    begin = list(layers).index(first)
    if list(layers[begin : begin + len(chosen)]) == list(chosen):
        ends = onward and last == layers[-1]
        return f"from layer {first} on" if ends else f"from layer {first} to layer {last}"
    if len(chosen) <= MOST_NAMED:
        return f"at layers {', '.join(map(str, chosen[:-1]))} and {last}"
    return f"at {len(chosen)} layers, the first of them {first} and the last {last}"


def opening(title: str) -> str:
    """Return a title as the subject of a sentence."""
    return f"the {title[:1].lower()}{title[1:]}"
