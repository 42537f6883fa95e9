"""Claims in the terminal: the list with verdicts, and one claim with its numbers and curves."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from leadline.claims.claim import GROUPS
from leadline.claims.ruling import VERDICTS
from leadline.reading.show.wording import number
from leadline.record.words.numbers import sparkline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.claims.claim import Picture
    from leadline.claims.ruling import Checked, Ruling

__all__ = ["MARKS", "asked", "counted", "measured", "readable", "show_claim", "show_claims"]

MARKS = {
    "holds": "✓",
    "holds under conditions": "◐",
    "false as stated": "✗",
    "not checkable here": "–",
    "undecided": "?",
    "not measured": "·",
}
_COLOURS = {
    "holds": "green",
    "holds under conditions": "yellow",
    "false as stated": "red",
    "undecided": "magenta",
}
_OUTCOMES = {"holds": "green", "fails": "red", "undecided": "magenta"}
_RELATIONS = {"at most": "≤", "at least": "≥", "near": "≈"}
_STRIP, _BARS = 25, 16
_LATEX = re.compile(r"\$([^$]*)\$")


def show_claims(rulings: Sequence[Ruling], console: Console) -> None:
    """Print the claims by group, each with its verdict."""
    from rich.table import Table

    names = max((len(ruling.claim.name) for ruling in rulings), default=0)
    beside = console.width - names >= 50
    for group, title in GROUPS.items():
        some = [ruling for ruling in rulings if ruling.claim.group == group]
        if not some:
            continue
        table = Table(box=None, pad_edge=False, show_header=False, expand=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=beside)
        if beside:
            table.add_column(overflow="fold")
        for ruling in some:
            claim = ruling.claim
            mark = f"[{_colour(ruling)}]{MARKS[ruling.verdict]}[/]"
            shown = escape(readable(claim.title))
            if beside:
                table.add_row(mark, claim.name, shown + _trouble(ruling))
            else:
                table.add_row(mark, f"{claim.name}\n[dim]{shown}[/dim]{_trouble(ruling)}")
        console.print(f"[bold]{title}[/bold] ({len(some)})")
        console.print(table)
        console.print()
    console.print(
        "   ".join(f"[{_colour_of(v)}]{MARKS[v]}[/] {v}: {n}" for v, n in counted(rulings).items())
    )


def counted(rulings: Sequence[Ruling]) -> dict[str, int]:
    """How often every verdict came, those that never came left out."""
    found = Counter(ruling.verdict for ruling in rulings)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def show_claim(ruling: Ruling, console: Console, *, code: str = "", place: str = "") -> None:
    """Print one claim in full."""
    claim = ruling.claim
    console.print(f"[bold]{escape(readable(claim.title))}[/bold]")
    notes = ", ".join(claim.notes) if claim.notes else "none"
    console.print(f"[dim]{claim.name} · {GROUPS[claim.group]} · notes: {notes}[/dim]")
    console.print()
    if claim.plain:
        console.print(f"    {claim.plain}", markup=False)
        console.print()
    console.print(readable(ruling.text(claim.says)), markup=False)
    console.print()
    console.print(
        f"[{_colour(ruling)}]{MARKS[ruling.verdict]} {ruling.verdict}[/]{_trouble(ruling)}"
    )
    if claim.correction:
        console.print(readable(ruling.text(claim.correction)), markup=False)
    console.print()
    console.print(readable(ruling.text(claim.why)), markup=False)
    if ruling.checked:
        console.print()
        _checks(ruling, console)
    if ruling.pictures:
        console.print()
        _curves(ruling.pictures[0], console)
    if claim.source:
        console.print()
        console.print(f"Source: {claim.source}", markup=False)
    if code:
        from rich.syntax import Syntax

        console.print()
        console.print(f"[bold]How it is measured[/bold] [dim]{place}[/dim]")
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


def escape(text: str) -> str:
    """A text whose brackets are no markup."""
    return text.replace("[", r"\[")


def _trouble(ruling: Ruling) -> str:
    if ruling.correction in (None, "holds"):
        return ""
    return f" [red](the correction {ruling.correction})[/red]".replace(
        "correction undecided", "correction is undecided"
    )


def _checks(ruling: Ruling, console: Console) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    wide = console.width >= 90
    for title, right in (("", False), ("part", False), ("what", False), ("measured", True)):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    table.add_column("asked", no_wrap=True)
    if wide:
        table.add_column(f"seeds {_ends(ruling.seeds)}" if len(ruling.seeds) > 1 else "")
    for one in ruling.checked:
        check = one.check
        sign = {"holds": "✓", "fails": "✗", "undecided": "?"}[one.outcome]
        row = [
            f"[{_OUTCOMES[one.outcome]}]{sign}[/]",
            check.part,
            escape(readable(check.label)),
            escape(measured(one)),
            asked(one),
        ]
        table.add_row(*row, *([strip(one)] if wide else []))
    console.print(table)
    console.print()
    for reason, labels in _reasons(ruling).items():
        console.print(f"[dim]{'; '.join(labels)}:[/dim] {reason}", highlight=False)


def _reasons(ruling: Ruling) -> dict[str, list[str]]:
    """Why the limits are what they are, each reason once, with the checks it is for."""
    found: dict[str, list[str]] = {}
    for one in ruling.checked:
        found.setdefault(escape(one.check.because), []).append(
            escape(f"{readable(one.check.label)}, {asked(one)}")
        )
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
    from rich.table import Table

    over = f"{picture.y_label} over {picture.x_label}"
    table = Table(title=readable(over), title_justify="left", box=None, pad_edge=False)
    for title in ("", "first", "", "last"):
        table.add_column(title, no_wrap=title != "")
    for name, (x, y) in picture.lines.items():
        if not y or picture.equal:
            continue
        values = np.asarray(y)
        bars = sparkline(values, scale="log" if picture.y_log else "linear", width=_BARS)
        first, last = (f"{number(y[k])} at {number(x[k])}" for k in (0, -1))
        table.add_row(escape(readable(name)), first, bars, last)
    if table.row_count:
        console.print(table)


def _ends(seeds: Sequence[int]) -> str:
    return f"{min(seeds)} to {max(seeds)}" if len(seeds) > 2 else ", ".join(map(str, seeds))


def _colour(ruling: Ruling) -> str:
    return _colour_of(ruling.verdict)


def _colour_of(verdict: str) -> str:
    return _COLOURS.get(verdict, "dim")


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
