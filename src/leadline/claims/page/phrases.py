"""Every phrase that is the page's own, for whoever translates it. `{count}` and the like stay."""

from __future__ import annotations

from leadline.claims.claim import NOTES, Note
from leadline.reading.show.shell import FOOTER

__all__ = ["PHRASES", "note_phrase"]


def note_phrase(note: Note) -> str:
    """What a note is, for the list of notes."""
    return f"{note.name}: {note.about} ({note.language})"


TITLE = "Residual connections: what the notes say, measured"
INTRODUCTION = (
    "Five notes teach residual connections, normalisation, attention and rank collapse. Every "
    "statement in them that a computer can decide was measured here. The verdict follows from the "
    "numbers alone, by rules that are the same for every claim."
)
NOTHING_FITS = "No claim fits. Take a filter away or search for something else."
HOW_TO_READ = (
    "A claim holds where every check of it passes. It holds under conditions where what the note "
    "names passes, but not what a reader would make of it. It is false as stated where a check of "
    "what the note itself says fails. Shaded on every strip is where the number may lie; the "
    "interval is the range of the seeds, or a 95 % interval of their mean."
)
WITHOUT_SCRIPT = "The verdicts can be filtered and other languages chosen where JavaScript runs."
QUESTION = (
    "A layer with a skip computes $x + f(x)$. Suppose the best it can do is to leave its "
    "input unchanged. What must $f$ learn?"
)
CHAIN = (
    "A chain without skips multiplies factors of size $\\varepsilon$, a chain with skips "
    "factors of size $1 + \\varepsilon$. Move the depth $L$ and $\\varepsilon$: the first "
    "vanishes at once, the second stays near one only while $\\varepsilon L$ is small."
)
BEYOND = "Lines that leave the picture go on; the numbers beside it are exact to their digits."
ELLIPSE = (
    "Two tokens look at each other: every row of $A$ is a softmax of two logits. The image "
    "of the unit circle is an ellipse; its longest semi-axis is the spectral norm. It is "
    "never shorter than 1, since $A$ leaves $(1, 1)$ alone, and never longer than the root "
    "of the largest column sum $c_{\\max}$."
)
BALANCE = (
    "With equal logit differences both tokens become the same and the ellipse a line: rank "
    "one. With opposite ones the columns balance and nothing grows."
)
SPHERE = (
    "Tokens with $d = 3$ entries. Subtracting the mean puts them into the plane orthogonal "
    "to $(1, 1, 1)$, dividing by the standard deviation gives all of them the length "
    "$\\sqrt{d}$: a circle, not the whole sphere, and its radius is not 1. Gains stretch "
    "it to an ellipse. (The small $\\epsilon$ of LayerNorm is left out.)"
)

PLAYED: dict[str, dict[str, str]] = {
    "algebra": {
        "play-exercise": "Exercise: what must the layer learn?",
        "play-powers": "Try it: a chain of small factors",
    },
    "norms": {"play-sphere": "Try it: LayerNorm makes a circle, gains an ellipse"},
    "attention": {"play-ellipse": "Try it: what attention makes of a circle"},
}
"""What stands before the claims of a chapter: id and title."""

CHOICES = (
    ("x", "$f(x) = x$", "No: then the layer gives $x + x = 2x$. This is the answer for a layer without a skip, which has to build the identity itself."),
    ("zero", "$f(x) = 0$", "Right: $x + 0 = x$. The skip already carries the input, so nothing has to be added; all weights of the last matrix may be zero."),
    ("one", "$f(x) = 1$", "No: then every entry grows by one, $x + 1$, in every such layer again."),
    ("inverse", "the inverse of $x$", "No: the inverse undoes a map, but here nothing has to be undone; $x + x^{-1}$ is not $x$."),
)  # fmt: skip
"""The answers of the exercise: key, what is written, what is said about it. The second is right."""
ELLIPSE_KEYS = (
    ("circle", "unit circle"),
    ("image", "its image under $A$"),
    ("after", "longest semi-axis, $\\sigma_1$"),
    ("before", "the vector that becomes it"),
    ("bound", "bound $\\sqrt{c_{\\max}}$"),
)
SPHERE_KEYS = (
    ("raw", "tokens before"),
    ("plain", "after LayerNorm: a circle of radius $\\sqrt{3}$"),
    ("gained", "with gains: an ellipse"),
    ("outline", "sphere of radius $\\sqrt{3}$"),
    ("note", "sphere of radius 1, which the note names"),
)
PARTS = {
    "claim": "What the note says",
    "reach": "Where a reader would carry it",
    "correction": "The corrected statement",
}
RIGHT = {
    "holds": "More precisely",
    "holds under conditions": "The conditions",
    "false as stated": "What is right",
}
ABOUT = {
    "seeds": "Seeds",
    "date": "Date",
    "from": "First measurement",
    "to": "Last measurement",
    "seconds": "Seconds of computing",
    "versions": "Versions",
    "machine": "Machine",
    "file": "Ledger",
}

PHRASES: tuple[str, ...] = (
    *(TITLE, INTRODUCTION, NOTHING_FITS, HOW_TO_READ, WITHOUT_SCRIPT, QUESTION, CHAIN, BEYOND),
    *(ELLIPSE, BALANCE, SPHERE, FOOTER),
    *(title for pieces in PLAYED.values() for title in pieces.values()),
    *(text for _, choice, answer in CHOICES for text in (choice, answer)),
    *(name for _, name in (*ELLIPSE_KEYS, *SPHERE_KEYS)),
    *PARTS.values(),
    *RIGHT.values(),
    *ABOUT.values(),
    *(note_phrase(note) for note in NOTES.values()),
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
    "How to read this page",
    "Link to this claim",
    "Note",
    "Why",
    "What is claimed",
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
    "Answer",
    "What training says",
    "The claim with all its numbers",
    "product",
    "layers",
    "Depth L",
    "First row: logit difference",
    "Second row: logit difference",
    "Gain 1",
    "Gain 2",
    "Gain 3",
    "Turn the picture",
    "lengths after LayerNorm",
    "longer semi-axis",
    "shorter semi-axis",
    "About the measurements",
)
