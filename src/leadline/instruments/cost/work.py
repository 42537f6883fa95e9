"""What there is to do, counted: operations with their flops, bytes and calls.

    product     c x (m x k) (k x n)            2 c m n k flops, and (m k + k n + m n) c numbers moved
    attention   fused, of n queries, m keys    4 c n m d flops forward, c heads of d features
    decomposition  eigenvalues, singular values  4/3 k^3 flops of k x k for eigenvalues alone
    function    exp, tanh, erf of one number   counted apart: it takes many times an addition
    moving      everything else                the bytes that are read and written

A `Workload` is a bag of such operations, so the same bag has flops and bytes, which are facts, and
seconds, which are those of a machine (`rates`). A `Size` is what a probe needs to know of a stack to
say what it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "NO_WORK",
    "BlockWork",
    "Kind",
    "Operation",
    "Size",
    "Workload",
    "calling",
    "eigenvalues",
    "functions",
    "moving",
    "product",
]

Kind = Literal["product", "attention", "decomposition", "function", "moving"]
MIB = 2**20


@dataclass(frozen=True)
class Operation:
    """One operation of torch. `side` is the edge of a cube with as many multiplications."""

    kind: Kind
    flops: float = 0.0
    bytes: float = 0.0
    numbers: float = 0.0
    """Results of a function such as exp."""
    side: float = 0.0
    double: bool = False


@dataclass(frozen=True)
class Workload:
    """Operations and how often each is done."""

    operations: Mapping[Operation, float] = field(default_factory=dict[Operation, float])

    def __add__(self, other: Workload) -> Workload:
        total = Counter[Operation]()
        for one in (self, other):
            for operation, count in one.operations.items():
                total[operation] += count  # pyright: ignore[reportArgumentType]
        return Workload(dict(total))

    def __mul__(self, times: float) -> Workload:
        return Workload({operation: count * times for operation, count in self.operations.items()})

    __rmul__ = __mul__

    @property
    def flops(self) -> float:
        """Additions and multiplications of matrix products and fused attention."""
        return sum(one.flops * count for one, count in self.operations.items())

    @property
    def bytes(self) -> float:
        """Bytes read and written, as if nothing stayed in a cache."""
        return sum(one.bytes * count for one, count in self.operations.items())

    @property
    def calls(self) -> float:
        """Operations that torch is asked for."""
        return sum(self.operations.values())


NO_WORK = Workload()


def product(
    m: float, k: float, n: float, *, count: float = 1, times: float = 1, double: bool = False
) -> Workload:
    """`times` products, each of `count` pairs of matrices m x k and k x n at once."""
    item = 8 if double else 4
    one = Operation(
        "product",
        flops=2.0 * count * m * k * n,
        bytes=item * count * (m * k + k * n + m * n),
        side=(m * k * n) ** (1 / 3),
        double=double,
    )
    return Workload({one: times})


def calling(times: float) -> Workload:
    """`times` operations on so few numbers that only the call counts."""
    return Workload({Operation("moving"): times})


def moving(count: float, *, times: float = 1, double: bool = False) -> Workload:
    """`times` operations that read or write `count` numbers each."""
    return Workload({Operation("moving", bytes=count * (8 if double else 4)): times})


def eigenvalues(k: float, *, count: float = 1, times: float = 1, double: bool = False) -> Workload:
    """`times` calls that find all eigenvalues of `count` symmetric matrices k x k."""
    one = Operation(
        "decomposition",
        flops=4 / 3 * count * k**3,
        bytes=count * k * k * (8 if double else 4),
        side=k,
        double=double,
    )
    return Workload({one: times})


def functions(count: float, *, times: float = 1) -> Workload:
    """`times` operations that compute exp, log or tanh of `count` numbers each."""
    return Workload({Operation("function", bytes=8.0 * count, numbers=count): times})


@dataclass(frozen=True)
class BlockWork:
    """Workload of one pass through one block, and what its graph holds.

    `backward` is a product J' u: gradients of the stream alone. `plain` are the same under the plain
    attention kernel, which products J v need: forward, J' u, and the bytes of the graph.
    """

    forward: Workload = NO_WORK
    backward: Workload = NO_WORK
    plain_forward: Workload = NO_WORK
    plain_backward: Workload = NO_WORK
    held: float = 0.0
    plain_held: float = 0.0


@dataclass(frozen=True)
class Size:
    """The sizes of one stack and its inputs, by which a probe says what it costs."""

    name: str
    depth: int
    width: int
    tokens: int
    examples: int = 1
    writes: int = 2
    heads: int = 0
    head_width: int = 0
    keys: int = 0
    attentions: int = 0
    """Calls of attention in the whole stack."""
    inner: int = 0
    """Features inside of the MLP."""
    parameters: int = 0
    """Numbers in the weights of all blocks."""
    lanes: int = 1
    output: int = 0
    """Numbers in what the model returns."""
    block: BlockWork = BlockWork()

    @property
    def numbers(self) -> int:
        """Numbers in the stream at one site."""
        return self.examples * self.tokens * self.width

    @property
    def stream(self) -> int:
        """Bytes of the stream at one site."""
        return 4 * self.numbers

    @property
    def grid(self) -> int:
        """Numbers in the attention matrices of one layer, all examples and heads together."""
        return self.examples * self.heads * self.tokens * self.keys

    @property
    def sites(self) -> int:
        """Block boundaries."""
        return self.depth + 1

    @property
    def all_sites(self) -> int:
        """Places between two writes, where the stream is read too."""
        return self.depth * self.writes + 1
