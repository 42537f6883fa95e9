"""The words of the page of claims, in every language of it.

The page is written in English. What a reader of another language sees instead comes from a
dictionary by whole strings; a string that it lacks is an error, for a page that is half English is
worse than none. A translation has the placeholders and formulas of its original, and no others.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from leadline.claims.claim import FORMULA, GROUPS, NOTES, placeholders
from leadline.claims.page.phrases import PHRASES
from leadline.claims.ruling import VERDICTS
from leadline.errors import InputError
from leadline.reading.show.formulas import mathml
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from leadline.claims.ruling import Ruling

__all__ = [
    "LANGUAGES",
    "Words",
    "number",
    "page_words",
    "raised",
    "ruling_words",
    "shown_number",
    "spelled",
]

LANGUAGES = {"en": "English", "zh": "中文", "ru": "Русский"}
"""The languages that the page can be read in, as each is called in itself."""

_SCIENTIFIC = re.compile(r"(?<![\w.])([-−]?\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.]*\w)")
_MINUS = re.compile(r"(?<![\w.\-)])-(?=\d|inf\b)")
_INFINITE = re.compile(r"(?<=−)inf\b|(?<![\w−])inf\b")
_NOT = re.compile(r"(?<!\w)nan(?!\w)")
_INDEX = re.compile(r"((?<![^\W\d_])[^\W\d_]|[|‖)])_(\{[^{}]*\}|[^\W_]+)")
_EXPONENT = re.compile(r"(?<=[\w)|‖])\^(\{[^{}]*\}|\([^()]*\)|[-−]?\d+(?:\.\d+)?|[^\W\d_])")
_DIFFERENCE = re.compile(r"(?<=\S) - (?=\S)")
_CODE = re.compile(r"`([^`]+)`")
_SLOT = re.compile(r"\{([a-z_]+)\}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_GAP = '<mspace width="0.5em"></mspace>'
_WORDS = re.compile(r"<mtext>(\s*)([^<]*?)(\s*)</mtext>")
_CLOSING = re.compile(r"[,.;:!?)。，；：、）]+")
_WIDE = 26
"""Formulas of more letters than this may take a line of their own on a phone."""


def page_words() -> list[str]:
    """Every string of the page that is not a claim's own."""
    found = dict.fromkeys([*PHRASES, *GROUPS.values(), *VERDICTS, *NOTES])
    return [text for text in found if spoken(text)]


def ruling_words(ruling: Ruling) -> list[str]:
    """Every string that the page shows of one claim: its texts and the labels of its picture."""
    found = list(ruling.claim.texts())
    for text in (f"${ruling.claim.formula}$", *found):
        found = [*found, *_words_inside(text)]
    for picture in ruling.pictures:
        found += [picture.x_label, picture.y_label, *picture.lines]
    return [text for text in dict.fromkeys(found) if spoken(text)]


def _words_inside(text: str) -> list[str]:
    """Words that stand in the formulas of a text."""
    return [
        word.strip()
        for part in FORMULA.split(text)
        if part.startswith("$")
        for word in _TEXT.findall(part)
        if spoken(word)
    ]


def spoken(text: str) -> bool:
    """Whether a string has words to translate: a letter outside of its formulas."""
    return any(sign.isalpha() for sign in FORMULA.sub("", text))


def number(value: float, *, digits: int = 3) -> str:
    """A number in plain characters: −1.5 × 10⁻¹²."""
    return spelled(format_number(value, digits=digits))


def spelled(text: str) -> str:
    """A text in plain characters, its powers of ten raised: 1.1e12 becomes 1.1 × 10¹²."""
    small = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
    return _spelled(text, lambda exponent: exponent.translate(small))


def shown_number(value: float, *, digits: int = 3) -> str:
    """A number as HTML, its power of ten raised."""
    return raised(format_number(value, digits=digits))


def raised(text: str) -> str:
    """A text as HTML: 1.1e12 becomes 1.1 × 10 with a raised 12, a hyphen before a digit a minus.

    So are W_1, g_{l+1} and L^0.5 set with their indices and exponents.
    """
    written = _spelled(
        html.escape(text), lambda exponent: f"<sup>{exponent.replace('-', '−')}</sup>"
    )
    written = _INDEX.sub(lambda m: f"{m[1]}<sub>{m[2].strip('{}')}</sub>", written)
    written = _EXPONENT.sub(lambda m: f"<sup>{m[1].strip('{}()').replace('-', '−')}</sup>", written)
    return _DIFFERENCE.sub("\u00a0− ", written)


def _spelled(text: str, power: Callable[[str], str]) -> str:
    def written(found: re.Match[str]) -> str:
        if int(found[2]) == 0:
            return found[1]
        mantissa, exponent = found[1], power(str(int(found[2])))
        if mantissa in ("1", "-1", "−1"):
            return f"{mantissa[:-1]}10{exponent}"
        return f"{mantissa}\u202f×\u202f10{exponent}"

    return _NOT.sub("NaN", _INFINITE.sub("∞", _MINUS.sub("−", _SCIENTIFIC.sub(written, text))))


class Words:
    """Writes texts into the page and keeps what they are in the other languages.

    `ids` of the texts stand in the page as data-t; `tables` has one list per language, by id.
    """

    def __init__(self, languages: Mapping[str, Mapping[str, str]]) -> None:
        for code in languages:
            if code == "en" or code not in LANGUAGES:
                known = ", ".join(code for code in LANGUAGES if code != "en")
                raise InputError(f"The page has no language {code!r}; known beside en: {known}.")
        self._languages = languages
        self._own = frozenset([*PHRASES, *page_words()])
        self._ids: dict[tuple[str, ...], int] = {}
        self._formulas: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {code: [] for code in languages}

    def check(self, texts: Iterable[str]) -> None:
        """Refuse to begin where a language lacks a text or has another text's placeholders."""
        wanted = list(dict.fromkeys(text for text in texts if spoken(text)))
        for code, table in self._languages.items():
            missing = [text for text in wanted if not table.get(text)]
            if missing:
                raise InputError(
                    f"{len(missing)} of {len(wanted)} strings of the page have no translation into "
                    f"{LANGUAGES[code]} ({code}); the first is {missing[0]!r}. Add them."
                )
            for text in wanted:
                _agree(text, table[text], code)

    def page(self, text: str, *, tag: str = "span", more: str = "", **slots: str) -> str:
        """One of the page's own phrases as an element; `slots` are HTML for its placeholders."""
        self._own_phrase(text)
        return self._element(text, slots, None, tag, more)

    def claim(self, text: str, ruling: Ruling, *, tag: str = "span", more: str = "") -> str:
        """A text of a claim with its numbers as an element."""
        return self._element(text, {}, ruling, tag, more)

    def attributes(self, **texts: str) -> str:
        """The page's own phrases as attributes, such as labels for readers aloud: aria_label=..."""
        found: list[str] = []
        keys: list[str] = []
        for name, text in texts.items():
            self._own_phrase(text)
            found.append(f'{name.replace("_", "-")}="{html.escape(text)}"')
            keys.append(f"{name.replace('_', '-')}:{self._id(text, {}, None)}")
        return f'{" ".join(found)} data-a="{" ".join(keys)}"'

    def formula(self, latex: str) -> str:
        """A formula on a line of its own; words in it are in the reader's language."""
        return self._spoken_formula(latex, display=True)

    def _spoken_formula(self, latex: str, *, display: bool) -> str:
        def word(found: re.Match[str]) -> str:
            inside = html.unescape(found[2])
            key = f' data-t="{self._id(inside, {}, None)}"' if spoken(inside) else ""
            before, after = (_GAP if space else "" for space in (found[1], found[3]))
            return f"{before}<mtext{key}>{found[2]}</mtext>{after}"

        return _WORDS.sub(word, mathml(latex, display=display))

    def _own_phrase(self, text: str) -> None:
        if text not in self._own:
            raise InputError(f"The page has no phrase {text!r}; enter it into claims_phrases.")

    def _element(
        self, text: str, slots: Mapping[str, str], ruling: Ruling | None, tag: str, more: str
    ) -> str:
        more = f" {more}" if more else ""
        inside = self._render(text, slots, ruling, formulas=True)
        if not spoken(text):
            return f"<{tag}{more}>{inside}</{tag}>"
        return f'<{tag} data-t="{self._id(text, slots, ruling)}"{more}>{inside}</{tag}>'

    def _id(self, text: str, slots: Mapping[str, str], ruling: Ruling | None) -> int:
        others = tuple(
            self._render(self._translated(text, code), slots, ruling, formulas=False)
            for code in self._languages
        )
        # Equal numbers in another language do not make equal texts in English.
        key = (self._render(text, slots, ruling, formulas=False), *others)
        if key not in self._ids:
            self._ids[key] = len(self._ids)
            for code, other in zip(self._languages, others, strict=True):
                self.tables[code].append(other)
        return self._ids[key]

    def _translated(self, text: str, code: str) -> str:
        found = self._languages[code].get(text)
        if not found:
            raise InputError(
                f"The string {text!r} of the page has no translation into {LANGUAGES[code]}."
            )
        return found

    def _render(
        self, text: str, slots: Mapping[str, str], ruling: Ruling | None, *, formulas: bool
    ) -> str:
        """The text as HTML; in other languages a formula is the number of the English one."""
        if ruling is not None:
            text = ruling.text(text)
        written: list[str] = []
        before = ""
        for part in FORMULA.split(text):
            if part.startswith("$"):
                before = self._formula(part[1:-1], whole=formulas)
                continue
            close = _CLOSING.match(part) if before else None
            if close:  # no line begins with a comma
                before = f'<span class="tied">{before}{close[0]}</span>'
            written.append(before)
            before = ""
            shown = _CODE.sub(r"<code>\1</code>", raised(part[close.end() if close else 0 :]))
            written.append(_SLOT.sub(lambda m: slots.get(m[1], m[0]), shown))
        return "".join([*written, before])

    def _formula(self, latex: str, *, whole: bool) -> str:
        key = self._formulas.setdefault(latex, len(self._formulas))
        if not whole:
            return f"⟦{key}⟧"
        text = self._spoken_formula(latex, display=False)
        long = len(re.sub(r"<[^>]*>", "", text)) > _WIDE
        kind = ' class="wide"' if long else ""
        return text.replace("<math", f'<math data-f="{key}"{kind}', 1)


def _agree(text: str, other: str, code: str) -> None:
    for what, one, two in (
        ("placeholders", set(placeholders(text)), set(placeholders(other))),
        ("formulas", set(_formulas(text)), set(_formulas(other))),
    ):
        if one != two:
            raise InputError(
                f"The {LANGUAGES[code]} of {text!r} has not the same {what}: "
                f"{', '.join(sorted(one ^ two))} only in one of them. Put that right."
            )


def _formulas(text: str) -> list[str]:
    return [part for part in FORMULA.split(text) if part.startswith("$")]
