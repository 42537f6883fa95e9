"""Describe what is unusual about the equations of an anatomy, in sentences.

A block balances whatever its coefficients are, so a doubled skip, a norm on the skip or a branch
that writes nothing are measured like any other design. They may be intended, but the user has to
be told. Usual is x <- x + u in every layer, with norms where published designs have them (before
the branch, on its output, on the stream after the addition), one write after the other or in
parallel, and with learned gains per feature.

Coefficients and norms that somebody declared are known and need no sentence. What did not happen in
the forward pass (a write that is missing or exactly zero) is reported for every anatomy.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leadline.errors import join_words

if TYPE_CHECKING:
    from leadline.anatomy.structure import Anatomy, Block, Stack, Sublayer

__all__ = ["layers_in_words", "unusual_sentences"]

_MOST_VALUES = 3
"""A coefficient with more values than this is given by its range."""


def unusual_sentences(anatomy: Anatomy) -> tuple[str, ...]:
    """One sentence for each thing that is unusual; with several stacks each names its own."""
    zero = frozenset(() if anatomy.balance is None else anatomy.balance.zero)
    lines: list[str] = []
    for stack in anatomy.stacks:
        sentences = [*_counts(stack), *_zeros(stack, zero)]
        if anatomy.source == "discovery":
            sentences += [*_openings(stack), *_settles(stack), *_coefficients(stack)]
        prefix = f"{stack.name}: " if len(anatomy.stacks) > 1 else ""
        lines += [f"{prefix}{sentence}" for sentence in sentences]
    return tuple(lines)


def layers_in_words(layers: Iterable[int], depth: int) -> str:
    """`layer 3`, `layers 1 to 3 and 7`, or `every layer`."""
    numbers = sorted(set(layers))
    if len(numbers) == depth > 1:
        return "every layer"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"layer{'s' if len(numbers) > 1 else ''} {join_words(parts)}"


# --- writes that are not there -------------------------------------------------------------------


def _counts(stack: Stack) -> list[str]:
    """Layers with fewer or more writes than most."""
    rows = {block.layer: _names(block) for block in stack.blocks}
    often = Counter(map(len, rows.values()))
    count = max(often, key=lambda size: (often[size], size))
    most = Counter(row for row in rows.values() if len(row) == count).most_common(1)[0][0]

    def where(holds: Callable[[tuple[str, ...]], bool]) -> str:
        layers = [layer for layer, row in rows.items() if holds(row)]
        return f"in {layers_in_words(layers, stack.depth)}"

    def text(block: Block) -> str | None:
        names = rows[block.layer]
        absent = [name for name in most if name not in names]
        if len(names) == count:
            return None
        if not names:
            return "nothing is written: the stream leaves as it entered"
        if len(absent) == count - len(names):
            does = "it does" if len(absent) == 1 else "they do"
            others = where(set(absent).issubset)
            return f"{_quoted(absent)} {_verbs(absent)['writes']} nothing; {others} {does}"
        does = "does" if count == 1 else "do"
        others = where(most.__eq__)
        return f"{_quoted(names)} {_verbs(names)['writes']}; {others} {_quoted(most)} {does}"

    return [
        f"In {layers_in_words(layers, stack.depth)} {sentence}."
        for sentence, layers in _layers_by(stack, text).items()
    ]


def _zeros(stack: Stack, zero: frozenset[tuple[str, int, int]]) -> list[str]:
    def text(block: Block) -> str | None:
        silent = [s for s in block.sublayers if (stack.name, block.layer, s.sublayer) in zero]
        return _quoted(_names(block, silent)) if silent else None

    return [
        f"What {names} {'adds' if ' and ' not in names else 'add'} to the stream is exactly 0 in "
        f"{layers_in_words(layers, stack.depth)}."
        for names, layers in _layers_by(stack, text).items()
    ]


# --- norms on the stream -------------------------------------------------------------------------


def _openings(stack: Stack) -> list[str]:
    def text(block: Block) -> str | None:
        if block.opening is None:
            return None
        name = _inside(block.opening, block)
        skips = "".join(
            f", past '{branch}' through '{norm}'" for branch, norm in _normed_skips(block, stack)
        )
        return f"goes through '{name}'{skips}: x becomes {name}(x) before anything is added to it"

    return [
        f"The skip of {layers_in_words(layers, stack.depth)} {clause}{_elsewhere(layers, stack)}."
        for clause, layers in _layers_by(stack, text).items()
    ]


def _settles(stack: Stack) -> list[str]:
    """Norms after the addition are a design where all layers have them, and odd where some do."""
    if _settle_alike(stack):

        def skips(block: Block) -> str | None:
            if block.opening is not None:
                return None
            return join_words(
                [
                    f"'{branch}' goes through '{norm}'"
                    for branch, norm in _normed_skips(block, stack)
                ]
            )

        return [
            f"The skip past {clause} in {layers_in_words(layers, stack.depth)}."
            for clause, layers in _layers_by(stack, skips).items()
            if clause
        ]
    return [
        f"The stream of {layers_in_words(layers, stack.depth)} goes through {names} after an "
        f"addition{_elsewhere(layers, stack)}."
        for names, layers in _layers_by(stack, _settle_names).items()
    ]


def _settle_names(block: Block) -> str | None:
    names = [_inside(s.settle, block) for s in block.sublayers if s.settle is not None]
    return _quoted(names) if names else None


def _settle_alike(stack: Stack) -> bool:
    return len({_settle_names(block) for block in stack.blocks}) == 1


def _normed_skips(block: Block, stack: Stack) -> list[tuple[str, str]]:
    """Branches with the norm on the skip past them.

    Such a norm stands after one addition, and its output is both branch input and skip of the next:
    h + f(h), h = norm(x). In post-norm designs the next addition has such a norm of its own, in other
    designs the next branch has. Empty where the layers differ, because `_settles` reports those norms.
    """
    if not _settle_alike(stack):
        return []
    return [
        (name, _inside(s.settle, block))
        for name, (s, after) in zip(
            _names(block)[1:], itertools.pairwise(block.sublayers), strict=True
        )
        if s.settle is not None
        and s.placement in _SETTLED
        and after.settle is None
        and after.placement in _WITHOUT_NORM
    ]


_SETTLED = ("post", "pre-and-post", "several")
_WITHOUT_NORM = ("none", "output")


def _elsewhere(layers: Sequence[int], stack: Stack) -> str:
    rest = stack.depth - len(layers)
    return "" if rest == 0 else f"; in the other layer{'s' if rest > 1 else ''} it does not"


# --- coefficients --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Coefficient:
    """How a coefficient is read off a write, and the sentence about its values."""

    value: Callable[[Sublayer], str]
    verb: str
    number: str
    vector: str
    range: str
    otherwise: str = "1 x"
    doubled: str = ""


def _coefficients(stack: Stack) -> list[str]:
    """A write (x + u) times c has one odd coefficient; keep x + gain u may have two."""
    writes = [pair for block in stack.blocks for pair in _writes(block)]
    single = {name for name, s in writes if _keep(s) != _gain(s)}
    scaled_sums = {name for name, _ in writes} - single
    lines: list[str] = []
    for kind, among in ((_SUM, scaled_sums), (_KEEP, single), (_GAIN, single)):
        groups, varied = _tables(stack, kind.value, among)
        for names, table in groups:
            lines += _about(kind, names, table, stack)
        if varied:
            ends = sorted((float(v), n[0]) for t in varied.values() for v, n in t.items())
            low, high = (f"{v:.6g} (layer {layer})" for v, layer in (ends[0], ends[-1]))
            words = kind.range.format(names=_quoted(list(varied)), **_verbs(varied))
            lines.append(f"{words}, {low} to {high}.")
    return lines


def _about(
    kind: _Coefficient, names: Sequence[str], table: Mapping[str, list[int]], stack: Stack
) -> list[str]:
    vectors = [value for value in table if not _is_number(value)]
    if vectors and len(table) == 1:  # learned per feature, in every layer alike
        return []
    lines: list[str] = []
    for value, layers in table.items():
        if value == "1":
            continue
        words = kind.vector if value in vectors else kind.number
        verb = kind.verb if value not in vectors else "multiply"
        clause = words.format(value=value, names=_quoted(names), **_verbs(names))
        doubled = kind.doubled if value == "2" else ""
        # Nothing is said of the other layers where some have another value or no such write.
        rest = table.get("1", []) if len(table) == 2 else []
        covers_all = len(layers) + len(rest) == stack.depth
        others = (
            f"; the other {_subject(rest, kind.verb)} {kind.otherwise}"
            if rest and covers_all
            else ""
        )
        subject = layers_in_words(layers, stack.depth)
        predicate = verb if subject.startswith("layers") else _third(verb)
        lines.append(f"{subject[:1].upper()}{subject[1:]} {predicate} {clause}{doubled}{others}.")
    return lines


def _tables(
    stack: Stack, value: Callable[[Sublayer], str], among: Collection[str]
) -> tuple[list[tuple[list[str], dict[str, list[int]]]], dict[str, dict[str, list[int]]]]:
    """Layers by value, for writes that have the same ones; and writes whose value varies widely."""
    tables: dict[str, dict[str, list[int]]] = {}
    for block in stack.blocks:
        for name, s in _writes(block):
            if name in among:
                tables.setdefault(name, {}).setdefault(value(s), []).append(block.layer)
    values = {value for table in tables.values() for value in table}
    if len(values) == 1 and all(
        any(name in among for name, _ in _writes(block)) for block in stack.blocks
    ):  # the same everywhere, also where layers have different modules
        everywhere = [block.layer for block in stack.blocks]
        return [(list(tables), {values.pop(): everywhere})], {}
    varied = {name: table for name, table in tables.items() if _varies(table)}
    groups: list[tuple[list[str], dict[str, list[int]]]] = []
    for name, table in tables.items():
        if name in varied:
            continue
        same = next((names for names, other in groups if other == table), None)
        if same is None:
            groups.append(([name], table))
        else:
            same.append(name)
    return groups, varied


def _varies(table: Mapping[str, list[int]]) -> bool:
    """Whether the values are many numbers, or another one in each of several layers."""
    if not all(map(_is_number, table)):
        return False
    alone = all(len(layers) == 1 for layers in table.values())
    return len(table) > _MOST_VALUES or (alone and len(table) == _MOST_VALUES)


def _writes(block: Block) -> list[tuple[str, Sublayer]]:
    """The writes that have coefficients, by name.

    Parallel writes are one sum, keep x + gain u + ..., of which the anatomy makes steps.
    """
    writes: list[Sublayer] = []
    for s in block.sublayers:
        if not (s.parallel and writes):
            writes.append(s)
            continue
        first = max(i for i, earlier in enumerate(writes) if not (earlier.parallel and i))
        for i in range(first, len(writes)):
            gain = writes[i].gain
            writes[i] = replace(
                writes[i],
                gain=gain * s.keep if isinstance(gain, float) else gain,
                keep=writes[i].keep * (s.keep if i == first else 1.0),
            )
        writes.append(replace(s, keep=1.0))
    return [(name, s) for name, s in zip(_names(block), writes, strict=True) if s.law is None]


def _keep(s: Sublayer) -> str:
    return f"{s.keep:.6g}"


def _gain(s: Sublayer) -> str:
    return s.gain.rpartition(".")[2] if isinstance(s.gain, str) else f"{s.gain:.6g}"


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


_SUM = _Coefficient(
    _keep,
    verb="multiply",
    number="the stream by {value} after {names} {has} written",
    vector="",
    range="Each layer multiplies the stream by a number of its own after {names} {has} written",
    otherwise="it by 1",
)
_KEEP = _Coefficient(
    _keep,
    verb="keep",
    number="{value} x the stream where {names} {writes}",
    vector="",
    range="Each layer keeps a multiple of its own of the stream where {names} {writes}",
    doubled=" (the skip is added twice)",
)
_GAIN = _Coefficient(
    _gain,
    verb="add",
    number="{value} x what {names} {returns}",
    vector="what {names} {returns} by the parameter '{value}'",
    range="Each layer adds what {names} {returns} with a factor of its own",
    doubled=" (the update is added twice)",
)


# --- words ---------------------------------------------------------------------------------------


def _layers_by(stack: Stack, text: Callable[[Block], str | None]) -> dict[str, list[int]]:
    """The layers that share each text; layers without a text are left out."""
    layers: dict[str, list[int]] = {}
    for block in stack.blocks:
        sentence = text(block)
        if sentence is not None:
            layers.setdefault(sentence, []).append(block.layer)
    return layers


def _subject(layers: Sequence[int], verb: str) -> str:
    """`layers add`, `layer adds`."""
    return f"layers {verb}" if len(layers) > 1 else f"layer {_third(verb)}"


def _third(verb: str) -> str:
    return f"{verb[:-1]}ies" if verb.endswith("y") else f"{verb}s"


def _verbs(names: Collection[str]) -> dict[str, str]:
    """Verbs that agree with the number of modules."""
    if len(names) == 1:
        return {"writes": "writes", "returns": "returns", "has": "has"}
    return {"writes": "write", "returns": "return", "has": "have"}


def _names(block: Block, sublayers: Sequence[Sublayer] | None = None) -> tuple[str, ...]:
    """The modules that write, by their paths inside the block; a second call has a number."""
    return tuple(
        _inside(s.module, block) + (f" (call {s.call + 1})" if s.call else "")
        for s in (block.sublayers if sublayers is None else sublayers)
    )


def _inside(path: str, block: Block) -> str:
    return path.removeprefix(f"{block.module}.")


def _quoted(names: Sequence[str]) -> str:
    return join_words([f"'{name}'" for name in names])
