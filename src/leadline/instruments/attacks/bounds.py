"""`leadline.bounds`: theorems beside a record, or theorems under attack."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

from leadline.errors import InputError, Progress, check_progress, check_seed
from leadline.instruments.attacks import ATTACKS, OPTIMISED
from leadline.instruments.attacks.rows import attacks_record
from leadline.instruments.attacks.run import attack_bounds
from leadline.reading.bounds.evaluate import bounds as bounds_of_record

if TYPE_CHECKING:
    from leadline.reading.bounds.table import BoundsTable
    from leadline.record import Record
    from leadline.theory import StackFacts

__all__ = ["bounds"]


@overload
def bounds(
    record: Record | StackFacts,
    *,
    names: Sequence[str] | None = None,
    layer: int | None = None,
    initial: bool | None = None,
    attack: Literal[False] = False,
) -> BoundsTable: ...
@overload
def bounds(
    record: None = None,
    *,
    names: Sequence[str] | None = None,
    attack: Literal[True],
    attacks: int = ATTACKS,
    optimised: int = OPTIMISED,
    seed: int = 0,
    progress: Progress | None = None,
) -> Record: ...
def bounds(
    record: Record | StackFacts | None = None,
    *,
    names: Sequence[str] | None = None,
    layer: int | None = None,
    initial: bool | None = None,
    attack: bool = False,
    attacks: int = ATTACKS,
    optimised: int = OPTIMISED,
    seed: int = 0,
    progress: Progress | None = None,
) -> BoundsTable | Record:
    """Set what theorems predict about attention, rank collapse and depth beside a record.

    `names` chooses bounds (all of them otherwise; `leadline list bounds` shows them), `layer` one
    layer. Needs a record with readings of the probe `attention`, of `residual` and `collapse`, or
    of `stream` or `jacobian`. `initial` says whether the weights are as they were drawn, where the
    record does not know it: laws of depth ask for it. With a record that `leadline.collapse` wrote
    with `facts=True` (or the `facts` of its result) the bounds on rank collapse stand beside
    residuals that are right far below rounding.

    With `attack=True` no record is taken: networks are drawn at random (`attacks` for every bound),
    others climb towards a violation (`optimised`), and what comes back is a record of how near they
    came; `record.attacks` is the table. This takes minutes, and `progress` is told how far it is.
    """
    if not attack:
        return bounds_of_record(record, names=names, layer=layer, initial=initial)  # pyright: ignore[reportArgumentType]
    if record is not None or layer is not None or initial is not None:
        raise InputError(
            "bounds(attack=True) draws its own networks and takes no record, layer or initial; "
            "leave them out, or leave out attack."
        )
    if isinstance(names, str):
        raise InputError(f"names is {names!r}; give a list of names of bounds.")
    started = time.perf_counter()
    table = attack_bounds(
        attacks=attacks,
        optimised=optimised,
        seed=check_seed(seed),
        names=names or None,
        progress=check_progress(progress),
    )
    from leadline.instruments.passes.provenance import versions

    return attacks_record(
        table,
        notes={
            "model": {"name": "bounds under attack"},
            "versions": versions(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": round(time.perf_counter() - started, 3),
        },
    )
