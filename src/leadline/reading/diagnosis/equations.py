"""The equations of the blocks, as rules about residuals and norms read them.

The survey of a visit has looked at every block by itself and is asked first; where a block follows a
law of its own (lanes, gates) or was not surveyed, the anatomy speaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.words import layers_text

__all__ = [
    "BlockEquation",
    "WriteTerm",
    "block_equations",
    "branch_words",
    "declared_placements",
    "grouped_faults",
    "is_declared",
    "majority",
    "missed_layers",
    "place_words",
    "skips_around",
]

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True)
class WriteTerm:
    """One write: settle(keep x + gain u). `module` is a full path, `name` the one inside the block.

    `keep` and `gain` are None where a law takes their place. `norm` is the norm through which the
    branch reads the stream; it is known of surveyed blocks only.
    """

    role: str | None
    module: str
    name: str
    keep: float | None
    gain: float | str | None
    settle: str | None
    placement: str
    parallel: bool
    norm: str | None = None


@dataclass(frozen=True)
class BlockEquation:
    """The equation of one block. Blocks of one `kind` have the same modules apart from norms."""

    stack: str
    layer: int
    module: str
    kind: int
    writes: tuple[WriteTerm, ...]
    opening: str | None
    surveyed: bool = False
    norms: Mapping[str, str] | None = None
    idle_norms: tuple[str, ...] = ()


def block_equations(case: Case) -> dict[str, list[BlockEquation]]:
    """The equations by stack, in order of depth; blocks that do not balance are left out."""
    return case.remember("equations", lambda: _block_equations(case))


def _block_equations(case: Case) -> dict[str, list[BlockEquation]]:
    reports = {
        (stack, report["layer"]): report
        for stack, rows in case.fact("block_survey", {}).items()
        for report in rows
    }
    known = {(one["stack"], one["layer"]): one for one in case.layers}
    # A branch that is saturated does not depend on what it reads, and is not parallel for that.
    deaf = tuple(case.fact("gradients", {}).get("zero", ()))
    out: dict[str, list[BlockEquation]] = {}
    for place in sorted({*reports, *known}, key=lambda key: (key[0], key[1])):
        report, layer = reports.get(place), known.get(place)
        lawful = layer is not None and any(one["law"] for one in layer["sublayers"])
        # A declaration may tell apart writes that one module adds up, as parallel branches do.
        if layer is not None and report is not None and is_declared(case):
            lawful = lawful or len(layer["sublayers"]) > len(report["writes"]) > 0
        if report is not None and report["balances"] and not lawful:
            block = _from_survey(place[0], report, deaf)
        elif layer is not None and layer["sublayers"]:
            block = _from_anatomy(layer, report)
        else:
            continue
        out.setdefault(place[0], []).append(replace(block, writes=_as_sums(block.writes)))
    return out


def _from_survey(stack: str, report: Mapping[str, Any], deaf: tuple[str, ...]) -> BlockEquation:
    path = report["module"]
    return BlockEquation(
        stack=stack,
        layer=report["layer"],
        module=path,
        kind=report["kind"],
        opening=report["opening"],
        surveyed=True,
        norms=report["norms"],
        idle_norms=tuple(report["idle_norms"]),
        writes=tuple(
            WriteTerm(
                role=one["role"],
                module=f"{path}.{one['module']}",
                name=one["module"],
                keep=_rounded(one["keep"]),
                gain=_rounded(one["gain"]),
                settle=one["settle"],
                placement=one["placement"],
                parallel=one["parallel"]
                and not any(name.startswith(f"{path}.{one['module']}.") for name in deaf),
                norm=one["norm"],
            )
            for one in report["writes"]
        ),
    )


def _rounded(factor: Any) -> Any:
    """A factor of the fit to six digits: it knows seven, and the same constant differs in the eighth."""
    return float(f"{factor:.6g}") if isinstance(factor, float) else factor


def _from_anatomy(layer: Mapping[str, Any], report: Mapping[str, Any] | None) -> BlockEquation:
    path = layer["module"]
    return BlockEquation(
        stack=layer["stack"],
        layer=layer["layer"],
        module=path,
        kind=-1 if report is None else report["kind"],
        opening=None if layer["opening"] is None else _inside(layer["opening"], path),
        writes=tuple(
            WriteTerm(
                role=one["role"],
                module=one["module"],
                name=_inside(one["module"], path),
                keep=one["keep"],
                gain=one["gain"]
                if not isinstance(one["gain"], str)
                else _inside(one["gain"], path),
                settle=None if one["settle"] is None else _inside(one["settle"], path),
                placement=one["placement"],
                parallel=one["parallel"],
            )
            for one in layer["sublayers"]
        ),
    )


def _inside(path: str, block: str) -> str:
    return path.removeprefix(f"{block}.")


def _as_sums(writes: tuple[WriteTerm, ...]) -> tuple[WriteTerm, ...]:
    """Parallel writes as one sum, keep x + gain u + ...: the fit gives the steps of it.

    The same holds where no module reads the stream between two writes: 0.5 u, then 2 x + v, is
    2 x + u + v.
    """
    out: list[WriteTerm] = []
    for write in writes:
        unseen = (
            bool(out)
            and write.keep not in (None, 1.0)
            and out[-1].settle is None
            and isinstance(out[-1].gain, float)
            and isinstance(write.keep, float)
            and abs(out[-1].gain * write.keep - 1.0) < 1e-5
        )
        if not out or write.keep is None or not (write.parallel or unseen):
            out.append(write)
            continue
        first = max(i for i, one in enumerate(out) if not (one.parallel and i))
        for i in range(first, len(out)):
            one = out[i]
            gain = one.gain * write.keep if isinstance(one.gain, float) else one.gain
            keep = one.keep * write.keep if i == first and one.keep is not None else one.keep
            out[i] = replace(one, gain=gain, keep=keep)
        out.append(replace(write, keep=1.0))
    return tuple(out)


def majority(values: Iterable[Value], *, share: float = 0.6) -> Value | None:
    """The value of most layers: of at least this share of them, and of three or more."""
    counts = Counter(values)
    if not counts:
        return None
    value, count = counts.most_common(1)[0]
    return value if count >= 3 and count >= share * counts.total() else None


def skips_around(blocks: Sequence[BlockEquation]) -> Iterator[tuple[BlockEquation, WriteTerm]]:
    """Blocks that read as c x + m, where m is a module that holds a write of the other layers or its norm.

    What m returns has the stream in it already, so that the stream is added, or taken away, once more.
    """
    for kind in {block.kind for block in blocks if block.surveyed}:
        alike = [block for block in blocks if block.surveyed and block.kind == kind]
        usual = majority((tuple((w.name, w.settle) for w in b.writes) for b in alike), share=0.7)
        last = "" if not usual else usual[-1][1] or usual[-1][0]
        for block in alike:
            write = block.writes[0] if len(block.writes) == 1 else None
            if write is None or not usual or block.opening is not None:
                continue
            if write.name in {name for name, _ in usual}:
                continue
            if last == write.name or last.startswith(f"{write.name}."):
                yield block, write


def is_declared(case: Case) -> bool:
    """Whether the equations are the model's own or a family's: constants of a design are meant."""
    source = str(case.anatomy.get("source", ""))
    return not source.startswith(("discovery", "rows"))


def declared_placements(case: Case) -> dict[tuple[str, int], list[str]]:
    """Where norms are meant to stand, write by write, in layers whose design is declared."""
    if not is_declared(case):
        return {}
    return {
        (one["stack"], one["layer"]): [write["placement"] for write in one["sublayers"]]
        for one in case.layers
    }


def missed_layers(case: Case) -> dict[tuple[str, int], float | None]:
    """Layers that do not balance, with the miss in eps where an equation was tried."""
    rows = case.anatomy.get("balance_missed", ())
    return {(one["stack"], one["layer"]): one["eps"] for one in rows}


def grouped_faults(
    case: Case, kinds: Sequence[str], *, keep: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> Iterator[list[Mapping[str, Any]]]:
    """Faults of blocks that are alike (kind, branch inside the block, source), layer by layer."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for fault in case.fact("block_faults", ()):
        if fault["kind"] in kinds and keep(fault):
            name = _inside(fault["branch"], fault["module"])
            key = (fault["kind"], fault["stack"], name, fault["source"])
            groups.setdefault(key, []).append(fault)
    yield from groups.values()


def branch_words(role: str | None, name: str = "") -> str:
    """What a branch is called in a sentence: `attention`, `the MLP`."""
    words = {
        "attention": "attention",
        "cross-attention": "cross-attention",
        "mlp": "the MLP",
        "mixer": "the mixer",
    }
    return words.get(role or "", f"'{name}'" if name else "a branch")


def place_words(case: Case, stack: str, layers: Iterable[int]) -> str:
    """`decoder layer 4`, `all 6 layers of the decoder`."""
    text = layers_text(sorted(set(layers)), case.depth(stack))
    return f"{text} of the {stack}" if text.startswith("all") else f"{stack} {text}"
