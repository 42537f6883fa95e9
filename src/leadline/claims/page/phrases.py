"""Every phrase that is the page's own, for whoever translates it. `{count}` and the like stay."""

from __future__ import annotations

from leadline.claims.claim import NOTES, Note
from leadline.claims.page.play import CHOICES, PLAYED

__all__ = ["PHRASES", "note_phrase"]


def note_phrase(note: Note) -> str:
    """What a note is, for the list of notes."""
    return f"{note.name}: {note.about} ({note.language})"


_HEAD = (
    "Residual connections: what the notes say, measured",
    "Five notes teach residual connections, normalisation, attention and rank collapse. Every "
    "statement in them that a computer can decide was measured here. The verdict follows from the "
    "numbers alone, by rules that are the same for every claim.",
    "Skip to the claims",
    "Language",
    "Switch between dark and light",
    "Chapters",
    "Verdicts",
    "Search",
    "Search the claims",
    "All notes",
    "Not from a note",
    "{shown} of {total} claims",
    "Show all",
    "No claim fits. Take a filter away or search for something else.",
    "How to read this page",
    "A claim holds where every check of it passes. It holds under conditions where what the note "
    "names passes, but not what a reader would make of it. It is false as stated where a check of "
    "what the note itself says fails. Shaded on every strip is where the number may lie; the "
    "interval is the range of the seeds, or a 95 % interval of their mean.",
    "The verdicts can be filtered and other languages chosen where JavaScript runs.",
)
_CLAIM = (
    "Link to this claim",
    "Note",
    "Why",
    "More precisely",
    "The conditions",
    "What is right",
    "The corrected statement",
    "What the note says",
    "What is claimed",
    "Where a reader would carry it",
    "measured",
    "fails",
    "at most",
    "at least",
    "near",
    "logarithmic",
    "Lines: median of {count} seeds; bands: smallest to largest.",
    "Drawn is one of {count} seeds.",
    "{count} values have no place on these axes.",
    "How it was measured (in English)",
)
_PLAY = (
    "A layer with a skip computes $x + f(x)$. Suppose the best it can do is to leave its "
    "input unchanged. What must $f$ learn?",
    "Answer",
    "What training says",
    "The claim with all its numbers",
    "A chain without skips multiplies factors of size $\\varepsilon$, a chain with skips "
    "factors of size $1 + \\varepsilon$. Move the depth $L$ and $\\varepsilon$: the first "
    "vanishes at once, the second stays near one only while $\\varepsilon L$ is small.",
    "product",
    "layers",
    "Depth L",
    "Lines that leave the picture go on; the numbers beside it are exact to their digits.",
    "unit circle",
    "its image under $A$",
    "longest semi-axis, $\\sigma_1$",
    "the vector that becomes it",
    "bound $\\sqrt{c_{\\max}}$",
    "Two tokens look at each other: every row of $A$ is a softmax of two logits. The image "
    "of the unit circle is an ellipse; its longest semi-axis is the spectral norm. It is "
    "never shorter than 1, since $A$ leaves $(1, 1)$ alone, and never longer than the root "
    "of the largest column sum $c_{\\max}$.",
    "First row: logit difference",
    "Second row: logit difference",
    "With equal logit differences both tokens become the same and the ellipse a line: rank "
    "one. With opposite ones the columns balance and nothing grows.",
    "tokens before",
    "after LayerNorm: a circle of radius $\\sqrt{3}$",
    "with gains: an ellipse",
    "sphere of radius $\\sqrt{3}$",
    "sphere of radius 1, which the note names",
    "Gain 1",
    "Gain 2",
    "Gain 3",
    "Turn the picture",
    "lengths after LayerNorm",
    "longer semi-axis",
    "shorter semi-axis",
    "Tokens with $d = 3$ entries. Subtracting the mean puts them into the plane orthogonal "
    "to $(1, 1, 1)$, dividing by the standard deviation gives all of them the length "
    "$\\sqrt{d}$: a circle, not the whole sphere, and its radius is not 1. Gains stretch "
    "it to an ellipse. (The small $\\epsilon$ of LayerNorm is left out.)",
)
_FOOT = (
    "About the measurements",
    "Seeds",
    "Date",
    "First measurement",
    "Last measurement",
    "Seconds of computing",
    "Ledger",
    "Versions",
    "Machine",
    "Made by Leadline, the depth gauge for Transformers. This file is complete: it loads nothing.",
)

PHRASES: tuple[str, ...] = (
    *_HEAD,
    *_CLAIM,
    *(title for pieces in PLAYED.values() for title in pieces.values()),
    *(text for _, choice, answer in CHOICES for text in (choice, answer)),
    *_PLAY,
    *_FOOT,
    *(note_phrase(note) for note in NOTES.values()),
)
