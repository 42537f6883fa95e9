"""A choice: a name with options, one value in three spellings.

`Choice("hyper", lanes=4)` in Python, `hyper(lanes=4)` on the command line and
`{"name": "hyper", "lanes": 4}` in JSON are equal.

The grammar of the command line, in which a `WORD` starts with a letter:

    choices = choice {"," choice}
    choice  = WORD ["(" [option {"," option}] ")"]
    option  = WORD "=" value
    value   = number | true | false | none | WORD | "text" | "[" [value {"," value}] "]"
            | WORD "(" [option {"," option}] ")"
"""

from __future__ import annotations

import json
import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from leadline.errors import MOST_NESTED, CatalogError, is_nested_deeply, shown

__all__ = ["Choice", "OptionValue", "split_choices"]

OptionValue: TypeAlias = "None | bool | int | float | str | Choice | tuple[OptionValue, ...]"
"""What an option may hold; lists become tuples, so that a choice can be a key."""

_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'[^'\\]*')
          |(?P<atom>[\w.+\-]+)
          |(?P<mark>[(),=\[\]]))""",
    re.VERBOSE,
)
_CONSTANTS: dict[str, None | bool] = {"none": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, init=False, repr=False)
class Choice:
    """A name with options, hashable and comparable.

    >>> Choice("hyper", lanes=4) == Choice.parse("hyper(lanes=4)")
    True
    """

    name: str
    _items: tuple[tuple[str, OptionValue], ...]

    def __init__(self, name: str, /, **options: Any) -> None:
        if not isinstance(name, str) or not _WORD.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CatalogError(
                f"{shown(name)} cannot be the name of a choice: a name is one word that starts with a "
                "letter, such as 'hyper' or 'hyper(lanes=4)'."
            )
        if "name" in options:
            raise CatalogError(
                f"The choice {name!r} cannot have an option called 'name': "
                "in JSON that key holds the name of the choice itself."
            )
        for key in options:
            if not _WORD.fullmatch(key):
                raise CatalogError(_no_option(name, key))
        if is_nested_deeply(options):
            raise CatalogError(_too_deep(name))
        items = tuple((key, _as_value(key, options[key])) for key in sorted(options))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_items", items)

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """The options, sorted by name, read-only."""
        return MappingProxyType(dict(self._items))

    @classmethod
    def parse(cls, spelling: str | Mapping[str, Any] | Choice) -> Choice:
        """Read a choice from any of its three spellings."""
        if isinstance(spelling, Choice):
            return spelling
        if isinstance(spelling, str):
            choices = split_choices(spelling)
            if len(choices) != 1:
                raise CatalogError(
                    f"One choice was expected, and {spelling!r} has {len(choices)}; give one."
                )
            return choices[0]
        if not isinstance(spelling, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CatalogError(
                f"A choice is a text such as 'hyper(lanes=4)' or a mapping with a 'name', not "
                f"{shown(spelling)}."
            )
        if is_nested_deeply(spelling):
            raise CatalogError(_too_deep(shown(spelling.get("name"))))
        if not isinstance(spelling.get("name"), str):
            raise CatalogError(
                f"A choice in JSON needs a 'name' and may have options, such as "
                f'{{"name": "hyper", "lanes": 4}}; found {dict(spelling)!r}.'
            )
        for key in spelling:
            if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise CatalogError(_no_option(spelling["name"], key))
        return cls(spelling["name"], **{k: v for k, v in spelling.items() if k != "name"})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON spelling."""
        return {"name": self.name, **{key: _value_to_json(value) for key, value in self._items}}

    def __str__(self) -> str:
        return _value_to_text(self) if self._items else self.name

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self._items)
        return f"Choice({self.name!r}{options})"


def split_choices(text: str) -> list[Choice]:
    """Read a comma-separated list of choices: `stream,memory(ridge=0.01)`.

    >>> [str(choice) for choice in split_choices("a, b(x=1, y=2), c")]
    ['a', 'b(x=1, y=2)', 'c']
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CatalogError(f"Choices are a text such as 'hyper(lanes=4)', not {shown(text)}.")
    return _Parser(text).choices()


def _no_option(name: str, key: object) -> str:
    return (
        f"{shown(key)} cannot be an option of {name!r}: an option is one word that starts with a "
        "letter."
    )


def _too_deep(name: str) -> str:
    return (
        f"The options of the choice {name} hold more than {MOST_NESTED} lists and choices inside "
        "each other; no entry takes as many."
    )


def _as_value(key: str, value: Any) -> OptionValue:
    """Bring an option's value into its one hashable form."""
    if value is None or isinstance(value, bool | str | Choice):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise CatalogError(
                f"The option {key!r} is {value}, which JSON cannot hold; use a finite number, "
                "or none where the entry offers it."
            )
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(_as_value(key, part) for part in cast("list[Any]", value))
    if isinstance(value, Mapping):
        return Choice.parse(cast("Mapping[str, Any]", value))
    raise CatalogError(
        f"The option {key!r} is a {type(value).__name__}; an option is a number, a text, true, "
        "false, none, a list of these, or another choice."
    )


def _value_to_json(value: OptionValue) -> Any:
    if isinstance(value, Choice):
        return value.to_json()
    if isinstance(value, tuple):
        return [_value_to_json(part) for part in value]
    return value


def _value_to_text(value: OptionValue) -> str:
    if isinstance(value, Choice):
        inside = ", ".join(f"{k}={_value_to_text(v)}" for k, v in value.options.items())
        return f"{value.name}({inside})"
    if isinstance(value, tuple):
        return f"[{', '.join(_value_to_text(part) for part in value)}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = _WORD.fullmatch(value) and _atom_to_value(value) == value
        return value if plain else json.dumps(value)
    return repr(value)


def _atom_to_value(atom: str) -> OptionValue:
    """Read a constant, a number or a bare word. The words nan and inf stay words."""
    if atom.lower() in _CONSTANTS:
        return _CONSTANTS[atom.lower()]
    if _WORD.fullmatch(atom):
        return atom
    for kind in (int, float):
        try:
            return kind(atom)
        except ValueError:
            continue
    raise CatalogError(f"{atom!r} is neither a number nor a word; put a text in double quotes.")


class _Parser:
    """Reads the grammar of the module docstring, one token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split()
        self.position = 0

    def _split(self) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        nested = 0
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error(position, "a name, a number or a quoted text")
            kind = cast("str", match.lastgroup)
            tokens.append((kind, match[kind], match.start(kind)))
            nested += (match[kind] in "([") - (match[kind] in ")]") if kind == "mark" else 0
            if nested > MOST_NESTED:
                raise CatalogError(_too_deep(shown(self.text)))
            position = match.end()
        tokens.append(("end", "", len(self.text)))
        return tokens

    def choices(self) -> list[Choice]:
        choices = [self._choice(self._word())]
        while self._take(","):
            choices.append(self._choice(self._word()))
        self._expect("end", "a comma or the end")
        return choices

    def _choice(self, name: str) -> Choice:
        options: dict[str, OptionValue] = {}
        if self._take("(") and not self._take(")"):
            while True:
                key = self._word()
                if key in options:
                    raise CatalogError(f"{self.text!r} gives the option {key!r} of {name!r} twice.")
                self._expect("=", f"'=' and a value after {key!r}")
                options[key] = self._value()
                if self._take(")"):
                    break
                self._expect(",", "',' or ')'")
        return Choice(name, **options)

    def _value(self) -> OptionValue:
        kind, token, start = self.tokens[self.position]
        self.position += 1
        if kind == "text":
            try:
                return json.loads(token) if token[0] == '"' else token[1:-1]
            except json.JSONDecodeError:
                raise self._error(start, "a text with the escapes of JSON") from None
        if kind == "atom":
            following = self.tokens[self.position][1]
            return self._choice(token) if following == "(" else _atom_to_value(token)
        if token == "[":
            parts: list[OptionValue] = []
            while not self._take("]"):
                if parts:
                    self._expect(",", "',' or ']'")
                parts.append(self._value())
            return tuple(parts)
        raise self._error(start, "a value")

    def _word(self) -> str:
        kind, token, start = self.tokens[self.position]
        if kind != "atom" or not _WORD.fullmatch(token):
            raise self._error(start, "a name")
        self.position += 1
        return token

    def _take(self, mark: str) -> bool:
        kind, token, _ = self.tokens[self.position]
        is_next = kind == "mark" and token == mark
        self.position += is_next
        return is_next

    def _expect(self, mark: str, expected: str) -> None:
        kind, _, start = self.tokens[self.position]
        if not (kind == mark == "end" or self._take(mark)):
            raise self._error(start, expected)

    def _error(self, position: int, expected: str) -> CatalogError:
        remainder = self.text[position:].strip()
        finding = f"found {remainder!r}" if remainder else "it ends there"
        return CatalogError(
            f"Cannot read the choice {self.text!r}: expected {expected} at character "
            f"{position + 1}, {finding}. A choice looks like 'hyper(lanes=4)'."
        )
