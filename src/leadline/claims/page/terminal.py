"""Claims in the terminal: the list with verdicts, and one claim with its numbers and curves."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.claims.claim import GROUPS
from leadline.claims.ruling import VERDICTS
from leadline.reading.show.wording import number
from leadline.record.words.numbers import sparkline
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence, print_line
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.claims.claim import Picture
    from leadline.claims.ruling import Checked, Ruling

__all__ = [
    "MARKS",
    "asked",
    "claims_answer",
    "claims_screen",
    "counted",
    "measured",
    "readable",
    "show_claim",
]


class _Verdict(NamedTuple):
    """How a verdict looks, and how one claim and how several have it."""

    mark: str
    colour: str
    one: str
    several: str


_VERDICTS = {
    "false as stated": _Verdict("✗", "red", "is false as stated", "are false as stated"),
    "undecided": _Verdict("?", "magenta", "is undecided", "are undecided"),
    "holds under conditions": _Verdict(
        "◐", "yellow", "holds under conditions", "hold under conditions"
    ),
    "holds": _Verdict("✓", "green", "holds", "hold"),
    "not checkable here": _Verdict("–", "dim", "cannot be checked here", "cannot be checked here"),
    "not measured": _Verdict("·", "dim", "is not measured", "are not measured"),
}
"""The verdicts in the order in which a reader should know them."""
_NEWS = tuple(_VERDICTS)
MARKS = {verdict: _VERDICTS[verdict].mark for verdict in VERDICTS}
_OUTCOMES = {"holds": "green", "fails": "red", "undecided": "magenta"}
_RELATIONS = {"at most": "≤", "at least": "≥", "near": "≈"}
_STRIP, _BARS = 25, 16
_LATEX = re.compile(r"\$([^$]*)\$")


def claims_screen(rulings: Sequence[Ruling], *, everything: bool = False) -> Screen:
    """Return how many claims have which verdict, and those that a reader should know first."""
    parts: list[Sentence | TextTable] = [Sentence(claims_answer(rulings), "bold")]
    if everything:
        for group, title in GROUPS.items():
            some = [ruling for ruling in rulings if ruling.claim.group == group]
            if some:
                parts += [
                    Sentence(),
                    Sentence(f"{title} ({len(some)})", "bold"),
                    _claim_table(some),
                ]
        counts = [f"{MARKS[verdict]} {verdict}: {n}" for verdict, n in counted(rulings).items()]
        return Screen((*parts, Sentence(), Sentence("   ".join(counts))))
    # The sort keeps the order of the claims.
    order = sorted(rulings, key=lambda one: (_trouble(one) == "", _NEWS.index(one.verdict)))
    shown = order[:MOST_ROWS]
    parts += [Sentence(), _claim_table(shown)]
    if len(shown) < len(order):
        kept = f"{len(shown)} of {len(order)} claims, those that are false first"
        parts.append(
            Sentence(f"{kept}; every claim: --all; one in full: `leadline claims show ID`", "dim")
        )
    return Screen(tuple(parts))


def claims_answer(rulings: Sequence[Ruling]) -> str:
    """Say in one sentence how many claims have which verdict."""
    if not rulings:
        return "No claim is chosen."
    words = [f"{n} {_VERDICTS[verdict][2 + (n > 1)]}" for verdict, n in counted(rulings).items()]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"Of {len(rulings)} claims {listed}." if len(rulings) > 1 else f"Of 1 claim {listed}."


def _claim_table(rulings: Sequence[Ruling]) -> TextTable:
    columns = (TableColumn(), TableColumn(), TableColumn(wraps=True))
    rows = tuple(
        Row(
            (
                TableCell((MARKS[ruling.verdict],), style=_VERDICTS[ruling.verdict].colour),
                ruling.claim.name,
                readable(ruling.claim.title) + _trouble(ruling),
            )
        )
        for ruling in rulings
    )
    return TextTable(columns, rows)


def counted(rulings: Sequence[Ruling]) -> dict[str, int]:
    """How often every verdict came, those that never came left out."""
    found = Counter(ruling.verdict for ruling in rulings)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def show_claim(ruling: Ruling, console: Console, *, code: str = "", place: str = "") -> None:
    """Print one claim in full."""
    claim = ruling.claim
    notes = ", ".join(claim.notes) if claim.notes else "none"
    verdict = f"{MARKS[ruling.verdict]} {ruling.verdict}{_trouble(ruling)}"
    print_line(console, readable(claim.title), style="bold")
    print_line(console, f"{claim.name} · {GROUPS[claim.group]} · notes: {notes}", style="dim")
    for line, style in (
        (f"    {claim.plain}" if claim.plain else "", ""),
        (readable(ruling.text(claim.says)), ""),
        (verdict, _VERDICTS[ruling.verdict].colour),
        (readable(ruling.text(claim.why)), ""),
    ):
        if line:
            print_line(console)
            print_line(console, line, style=style)
        if line == verdict and claim.correction:
            print_line(console, readable(ruling.text(claim.correction)))
    if ruling.checked:
        print_line(console)
        _checks(ruling, console)
    if ruling.pictures:
        print_line(console)
        _curves(ruling.pictures[0], console)
    if claim.source:
        print_line(console)
        print_line(console, f"Source: {claim.source}")
    if code:
        from rich.syntax import Syntax

        print_line(console)
        print_line(console, f"How it is measured {place}".rstrip(), style="bold")
        console.print(Syntax(code, "python", background_color="default", word_wrap=True))


def readable(text: str) -> str:
    """A text with its formulas in plain characters."""
    return _LATEX.sub(lambda found: plain_formula(found[1]), text)


def plain_formula(latex: str) -> str:
    """The most usual commands of LaTeX as characters; others stay as they are."""
    text = latex
    text = re.sub(r"\\(?:mathrm|mathbf|text|operatorname)\{([^{}]*)\}", r"\1", text)
    for _ in range(3):  # as deep as they stand in one another
        text = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", text)
        text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", _fraction, text)
    for word, sign in _SIGNS.items():
        text = re.sub(rf"\\{word}(?![a-zA-Z])", sign, text)
    text = re.sub(r"\\[,;!: ]", " ", text).replace(r"\|", "‖")
    return re.sub(r"[_^]?\{([^{}]{1,2})\}", lambda m: m[0][:1].strip("{") + m[1], text)


def _fraction(found: re.Match[str]) -> str:
    """Above over below, in brackets where one is more than a sign."""
    above, below = (part if len(part) < 2 else f"({part})" for part in found.groups())
    return f"{above}/{below}"


def _trouble(ruling: Ruling) -> str:
    """Say that a correction does not hold; empty where it does or there is none."""
    if ruling.correction in (None, "holds"):
        return ""
    verb = "is undecided" if ruling.correction == "undecided" else ruling.correction
    return f" (the correction {verb})"


def _checks(ruling: Ruling, console: Console) -> None:
    seeds = f"seeds {_ends(ruling.seeds)}" if len(ruling.seeds) > 1 else ""
    columns = (
        TableColumn(),
        TableColumn("part"),
        TableColumn("what", wraps=True),
        TableColumn("measured", right=True),
        TableColumn("asked"),
        TableColumn(seeds, gives_way=(1,)),
    )
    signs = {"holds": "✓", "fails": "✗", "undecided": "?"}
    rows = tuple(
        Row(
            (
                TableCell((signs[one.outcome],), style=_OUTCOMES[one.outcome]),
                one.check.part,
                readable(one.check.label),
                measured(one),
                asked(one),
                strip(one),
            )
        )
        for one in ruling.checked
    )
    TextTable(columns, rows).show(console)
    print_line(console)
    for reason, labels in _reasons(ruling).items():
        print_line(console, f"{'; '.join(labels)}: {reason}")


def _reasons(ruling: Ruling) -> dict[str, list[str]]:
    """Why the limits are what they are, each reason once, with the checks it is for."""
    found: dict[str, list[str]] = {}
    for one in ruling.checked:
        found.setdefault(one.check.because, []).append(f"{readable(one.check.label)}, {asked(one)}")
    return found


def measured(one: Checked) -> str:
    """The number with what is known of it: its interval, or the range of the seeds."""
    if one.lower == one.upper:
        return number(one.mean)
    return f"{number(one.mean)} [{number(one.lower)}, {number(one.upper)}]"


def asked(one: Checked) -> str:
    """The limit, as a relation."""
    check = one.check
    around = f" ± {number(check.within, digits=2)}" if check.within else ""
    mean = " (mean)" if check.over == "mean" else ""
    return f"{_RELATIONS[check.relation]} {number(check.limit)}{around}{mean}"


def strip(one: Checked) -> str:
    """One row of characters: what is allowed (═), the limit (│), the numbers of the seeds (●)."""
    check = one.check
    ends = [v for v in (check.lower, check.upper) if math.isfinite(v)]
    values = [v for v in one.values if math.isfinite(v)]
    log = check.log and all(v > 0 for v in values + ends)
    heights = [math.log(v) if log else v for v in values + ends]
    if not values:
        return ""
    low, high = min(heights), max(heights)
    room = 0.15 * (high - low) or 1.0
    low, high = low - room, high + room

    def column(value: float) -> int:
        at = (math.log(value) if log else value) - low
        return min(_STRIP - 1, max(0, round(at / (high - low) * (_STRIP - 1))))

    def inside(place: int) -> bool:
        height = low + place / (_STRIP - 1) * (high - low)
        return check.lower <= (math.exp(height) if log else height) <= check.upper

    cells = ["═" if inside(place) else "·" for place in range(_STRIP)]
    for end in ends:
        cells[column(end)] = "│"
    for value in values:
        cells[column(value)] = "●"
    return "".join(cells)


def _curves(picture: Picture, console: Console) -> None:
    lines = {name: line for name, line in picture.lines.items() if line[1] and not picture.equal}
    if not lines:
        return
    scale = "log" if picture.y_log else "linear"
    rows = tuple(
        Row(
            (
                readable(name),
                f"{number(y[0])} at {number(x[0])}",
                sparkline(np.asarray(y), scale=scale, width=_BARS),
                f"{number(y[-1])} at {number(x[-1])}",
            )
        )
        for name, (x, y) in lines.items()
    )
    print_line(console, readable(f"{picture.y_label} over {picture.x_label}"), style="italic")
    columns = (
        TableColumn(wraps=True),
        TableColumn("first"),
        TableColumn(style="cyan", gives_way=(1,)),
        TableColumn("last"),
    )
    TextTable(columns, rows).show(console)


def _ends(seeds: Sequence[int]) -> str:
    return f"{min(seeds)} to {max(seeds)}" if len(seeds) > 2 else ", ".join(map(str, seeds))


_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "Gamma": "Γ", "delta": "δ", "Delta": "Δ",
    "epsilon": "ε", "varepsilon": "ε", "lambda": "λ", "Lambda": "Λ", "mu": "μ", "sigma": "σ",
    "Sigma": "Σ", "tau": "τ", "theta": "θ", "phi": "φ", "ell": "ℓ", "partial": "∂",
    "sum": "Σ", "prod": "∏", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "neq": "≠", "ne": "≠",
    "approx": "≈", "equiv": "≡", "sim": "~", "cdot": "·", "cdots": "⋯", "dots": "…", "ldots": "…",
    "times": "×", "odot": "⊙", "oplus": "⊕", "to": "→", "rightarrow": "→", "Rightarrow": "⇒",
    "Leftrightarrow": "⇔", "iff": "⇔", "infty": "∞", "in": "∈", "perp": "⊥", "top": "ᵀ",
    "pm": "±", "mp": "∓", "ll": "≪", "gg": "≫", "propto": "∝", "forall": "∀", "exists": "∃",
    "langle": "⟨", "rangle": "⟩", "quad": "  ", "max": "max", "min": "min", "log": "log",
    "exp": "exp", "tanh": "tanh", "cosh": "cosh", "left": "", "right": "", "circ": "∘",
    "nabla": "∇", "hat": "", "bar": "", "tilde": "", "limits": "", "lim": "lim", "sup": "sup",
    "kappa": "κ", "rho": "ρ", "eta": "η", "pi": "π", "Phi": "Φ", "prime": "′", "det": "det",
    "not": "¬", "colon": ":", "mid": "|", "subset": "⊂", "cup": "∪", "cap": "∩", "mapsto": "↦",
}  # fmt: skip
