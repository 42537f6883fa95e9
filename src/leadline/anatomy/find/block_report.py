"""What is said of a block: its writes, what is wrong inside, its output as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["BlockFault", "BlockReport", "WriteReport"]


@dataclass(frozen=True)
class WriteReport:
    """One write of a block: names are as seen from the block.

    `norm` is the norm that reads the stream for the branch, None where the branch reads it bare.
    """

    module: str
    keep: float
    gain: float | str
    settle: str | None
    placement: str
    parallel: bool
    norm: str | None


@dataclass(frozen=True)
class BlockFault:
    """One thing that is wrong inside a block; `branch` and `source` are names as seen from it.

    Kinds: `random`, `nothing-written`, `stream-scaled`, `skip-missing`, `skip-multiplied`,
    `skip-from-before`, `skip-from-elsewhere`, `update-unread`, `unexplained`.
    """

    kind: str
    branch: str = ""
    source: str = ""
    formula: str = ""
    number: float | None = None
    reads: str = ""
    """The norm through which the branch reads the stream."""
    certain: bool = True
    """False where the branch is no linear map at its end and could add the stream inside."""


@dataclass(frozen=True)
class BlockReport:
    """What one block does. `formula` is its output; `balances` says that it is stream and updates.

    `kind` is equal for blocks with the same modules apart from norms. `norms` are the norms that
    ran, with what each took in; `idle_norms` are those that did not run.
    """

    layer: int
    module: str
    class_name: str
    kind: int
    balances: bool
    formula: str
    writes: tuple[WriteReport, ...] = ()
    opening: str | None = None
    norms: Mapping[str, str] | None = None
    idle_norms: tuple[str, ...] = ()
    faults: tuple[BlockFault, ...] = ()
    gates: tuple[str, ...] = ()
    largest_share: float | None = None
    """The largest branch output over the stream; asked only of blocks that write nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
