"""One claim on the page: what is said, the verdict, what is right, why, and the numbers."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from leadline.claims.page.phrases import PARTS, RIGHT
from leadline.claims.page.pictures import curves, strip, swatch
from leadline.claims.page.words import raised, shown_number
from leadline.claims.ruling import VERDICTS

if TYPE_CHECKING:
    from leadline.claims.page.words import Words
    from leadline.claims.ruling import Checked, Ruling

__all__ = ["SHAPES", "article", "badge", "figure", "kind_of", "right", "sign"]

_KINDS = ("holds", "conditions", "false", "uncheckable", "undecided", "unmeasured")
SHAPES = {
    "holds": '<circle cx="8" cy="8" r="7"/><path class="in" d="M4.6 8.3l2.4 2.4 4.4-5"/>',
    "conditions": '<path d="M8 .5L15.5 8 8 15.5.5 8z"/><path class="in" d="M4.5 8.6c1.2-1.8 2.3-1.8 3.5-.6s2.3 1.2 3.5-.6"/>',
    "false": '<rect x="1" y="1" width="14" height="14" rx="2"/><path class="in" d="M5 5l6 6m0-6l-6 6"/>',
    "uncheckable": '<circle class="out" cx="8" cy="8" r="6.4"/><path class="bar" d="M4.8 8h6.4"/>',
    "undecided": '<path d="M8 1l7.4 13.5H.6z"/><path class="in" d="M8 6v4m0 1.6v1"/>',
    "unmeasured": '<circle class="out dotted" cx="8" cy="8" r="6.4"/>',
}
"""The sign of every verdict: its shape says the same as its colour."""


def kind_of(verdict: str) -> str:
    """The verdict in one word, for classes and addresses."""
    return _KINDS[VERDICTS.index(verdict)]


def badge(words: Words, verdict: str) -> str:
    """The verdict as a sign with its words."""
    kind = kind_of(verdict)
    return f'<span class="badge {kind}">{sign(kind)}{words.page(verdict)}</span>'


def sign(kind: str) -> str:
    """The sign of a verdict alone."""
    return f'<svg class="sign {kind}" viewBox="0 0 16 16" aria-hidden="true"><use href="#sign-{kind}"/></svg>'


def article(words: Words, ruling: Ruling, code: str) -> str:
    """The claim with everything about it."""
    claim = ruling.claim
    drawn = figure(words, ruling)
    notes = " ".join(claim.notes) or "none"
    body = (
        f'<div class="text">{_said(words, ruling)}{right(words, ruling)}{_why(words, ruling)}</div>'
    )
    return (
        f'<article class="claim{" drawn" if drawn else ""}" id="{claim.name}" '
        f'data-verdict="{kind_of(ruling.verdict)}" data-notes="{notes}">'
        f"<header>{words.claim(claim.title, ruling, tag='h3')}"
        f'<a class="anchor" href="#{claim.name}" {words.attributes(aria_label="Link to this claim")}>#</a>'
        f"{badge(words, ruling.verdict)}</header>"
        f'<div class="body">{body}{drawn}</div>{_strips(words, ruling)}'
        f"{_measured(words, ruling, code)}</article>"
    )


def _said(words: Words, ruling: Ruling) -> str:
    claim = ruling.claim
    formula = (
        f'<div class="formula" tabindex="0">{words.formula(claim.formula)}</div>'
        if claim.formula
        else ""
    )
    if claim.notes:
        names = ", ".join(f"<b>{words.page(name)}</b>" for name in claim.notes)
        source = f'<p class="from">{words.page("Note")}: {names}</p>'
    else:
        source = f'<p class="from">{words.page("Not from a note")}</p>'
    return f'<div class="said">{source}{formula}{words.claim(claim.says, ruling, tag="p")}</div>'


def right(words: Words, ruling: Ruling) -> str:
    """The corrected statement and whether it was found to hold; "" where there is none."""
    claim = ruling.claim
    if not claim.correction:
        return ""
    heading = words.page(RIGHT.get(ruling.verdict, "The corrected statement"), tag="h4")
    outcome = f"<p class=outcome>{words.page('measured')}: {_outcome(words, ruling.correction)}</p>" if ruling.correction else ""  # fmt: skip
    return f'<div class="right">{heading}{words.claim(claim.correction, ruling, tag="p")}{outcome}</div>'


def _why(words: Words, ruling: Ruling) -> str:
    heading = words.page("Why", tag="h4")
    return f'<div class="why">{heading}{words.claim(ruling.claim.why, ruling, tag="p")}</div>'


def _outcome(words: Words, outcome: str) -> str:
    kind = {"holds": "holds", "fails": "false", "undecided": "undecided"}[outcome]
    return f'<span class="outcome-{kind}">{sign(kind)}{words.page(outcome)}</span>'


def figure(words: Words, ruling: Ruling) -> str:
    """The claim's own curves with labels and key; "" where it has none."""
    if not ruling.pictures:
        return ""
    picture, drawn = ruling.pictures[0], curves(ruling.pictures)
    rows = "".join(f"<li>{swatch(one)}{words.claim(one.name, ruling)}</li>" for one in drawn.series)
    total = len(ruling.pictures)
    if all(other == picture for other in ruling.pictures):
        total = 1  # nothing in it was drawn at random
    notes: list[str] = []
    if total > 1 and drawn.seeds > 1:
        notes.append(
            words.page(
                "Lines: median of {count} seeds; bands: smallest to largest.",
                count=str(drawn.seeds),
            )
        )
    elif total > 1:
        notes.append(words.page("Drawn is one of {count} seeds.", count=str(total)))
    if drawn.lost:
        notes.append(
            words.page("{count} values have no place on these axes.", count=str(drawn.lost))
        )
    caption = f"<figcaption>{' '.join(notes)}</figcaption>" if notes else ""
    scale = f" ({words.page('logarithmic')})"
    return (
        f'<figure class="own"><p class="label">↑ {words.claim(picture.y_label, ruling)}'
        f"{scale if picture.y_log else ''}</p>{drawn.svg}"
        f'<p class="label x">{words.claim(picture.x_label, ruling)}{scale if picture.x_log else ""} →</p>'
        f'<ul class="key">{rows}</ul>{caption}</figure>'
    )


# --- checks ----------------------------------------------------------------------------------


def _strips(words: Words, ruling: Ruling) -> str:
    groups: list[str] = []
    for part, named in PARTS.items():
        own = part == "claim" and not ruling.claim.notes
        heading = "What is claimed" if own else named
        rows = [_strip(words, ruling, one) for one in ruling.checked if one.check.part == part]
        if rows:
            groups.append(f"{words.page(heading, tag='h4')}{''.join(rows)}")
    return f'<div class="strips">{"".join(groups)}</div>' if groups else ""


def _strip(words: Words, ruling: Ruling, one: Checked) -> str:
    check = one.check
    low, high = shown_number(one.lower), shown_number(one.upper)
    span = f' <span class="span">[{low}, {high}]</span>' if low != high else ""
    limit = raised(f"{check.limit:.10g}")
    if check.within:
        limit += f" ± {raised(f'{check.within:.3g}')}"
    return (
        f'<div class="strip">{words.claim(check.label, ruling, tag="p")}{strip(one)}'
        f'<p class="beside"><b>{shown_number(one.mean)}</b>{span} '
        f'<span class="limit-words">{words.page(check.relation)} {limit}</span> '
        f"{_outcome(words, one.outcome)}</p></div>"
    )


def _measured(words: Words, ruling: Ruling, code: str) -> str:
    """The fold-out; what it holds is English in every language."""
    claim = ruling.claim
    if not ruling.checked and not claim.source and not code:
        return ""
    rows = "".join(
        f"<tr><th scope=row><code>{html.escape(one.check.number)}</code></th>"
        f"<td>{one.check.part}</td>"
        f"<td>{', '.join(shown_number(v, digits=4) for v in one.values)}</td>"
        f"<td>{one.check.relation} {raised(f'{one.check.limit:.15g}')}"
        f"{' ± ' + raised(f'{one.check.within:.6g}') if one.check.within else ''}"
        f"{', mean' if one.check.over == 'mean' else ''}</td>"
        f"<td>{one.outcome}</td><td class=because>{raised(one.check.because)}</td></tr>"
        for one in ruling.checked
    )
    table = (
        '<div class="scroll" tabindex="0"><table><thead><tr><th>number</th><th>part</th>'
        "<th>by seed</th><th>limit</th><th>outcome</th><th>why this limit</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else ""
    )
    seeds = ", ".join(map(str, ruling.seeds))
    facts = [
        f"Seeds: {seeds}." if seeds else "",
        f"It took {shown_number(ruling.seconds)} s, all seeds together." if ruling.seconds else "",
        f"Source: {html.escape(claim.source)}.".replace("..", ".") if claim.source else "",
    ]
    told = " ".join(fact for fact in facts if fact)
    source = f'<pre tabindex="0"><code>{html.escape(code.strip())}</code></pre>' if code else ""
    return (
        f"<details>{words.page('How it was measured (in English)', tag='summary')}"
        f'<div lang="en" class="how">{f"<p>{told}</p>" if told else ""}{table}{source}</div></details>'
    )
