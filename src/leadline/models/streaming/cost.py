"""What streaming a model costs on paper: bytes read, operations, and the minutes of each.

    read       4 W          two forward passes find and prove the anatomy, one measures, and the
                            backward pass reads every block once more; 1 W where the weights fit into
                            memory, since the system keeps what it has read
    compute    2 P (F + 5 T)
                            2 P operations for a token's forward pass: one over the F tokens on which
                            the anatomy is fitted, one over the T of the inputs that judges it, then
                            forward, forward again, and backward, which counts twice
    hold       one block, the gradient of its largest matrix, the stream at every block and its
               head's logits three times over (themselves, their logarithms, their gradient)

P parameters, W their bytes. What attention does beside its matrices is left out: below 1 % of the
rest at 512 tokens. Reading and computing overlap, so a measurement takes at least the longer of the
two, and at most their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leadline.models.streaming.memory import in_bytes

__all__ = [
    "LOGITS",
    "MACHINES",
    "SIZES",
    "Cost",
    "LlamaSize",
    "Machine",
    "cost_of",
    "held_while_streaming",
    "plan_on_paper",
]

FITTING_TOKENS = 64
"""The anatomy is fitted on two examples of 32 tokens."""
READS, PASSES_ON_INPUTS = 4, 5
LOGITS = 3
"""Times that the logits are held: themselves, their logarithms, their gradient."""


@dataclass(frozen=True)
class LlamaSize:
    """The sizes of a model as Llama is built."""

    name: str
    layers: int
    width: int
    inner: int
    key_width: int
    vocabulary: int

    @property
    def block_parameters(self) -> int:
        """Queries and output, keys and values, three matrices of the MLP, two norms."""
        attention = 2 * self.width * (self.width + self.key_width)
        return attention + 3 * self.width * self.inner + 2 * self.width

    @property
    def parameters(self) -> int:
        """All blocks, embedding and head, and the last norm."""
        outside = 2 * self.vocabulary * self.width + self.width
        return self.layers * self.block_parameters + outside


@dataclass(frozen=True)
class Machine:
    """What reads and computes. `workers` take a checkpoint or a batch each, and share no disk."""

    name: str
    memory: float
    bytes_per_second: float
    operations_per_second: float
    workers: int = 1


@dataclass(frozen=True)
class Cost:
    """Bytes, operations and minutes of one streamed measurement."""

    bytes_read: float
    operations: float
    bytes_held: float
    minutes_reading: float
    minutes_computing: float
    minutes_each: float
    """Of the longer of the two, spread over the workers: what one measurement of many takes."""

    @property
    def limit(self) -> str:
        """The step that takes longer."""
        return "disk" if self.minutes_reading > self.minutes_computing else "processor"


def held_while_streaming(block: float, matrix: float, streams: float, logits: float) -> float:
    """Bytes that are held at once: of a block, its largest matrix, all streams, and the logits."""
    return block + matrix + streams + LOGITS * logits


def cost_of(size: LlamaSize, machine: Machine, *, tokens: int = 512, number_bytes: int = 2) -> Cost:
    """The cost of one measurement with gradients."""
    weights = size.parameters * number_bytes
    block = size.block_parameters * number_bytes
    matrix = max(size.inner, size.width) * size.width * number_bytes
    streams = (size.layers + 1) * tokens * size.width * number_bytes
    logits = tokens * size.vocabulary * 4
    held = held_while_streaming(block, matrix, streams, logits)
    reads = 1 if weights + LOGITS * logits + streams <= machine.memory else READS
    operations = 2.0 * size.parameters * (FITTING_TOKENS + PASSES_ON_INPUTS * tokens)
    reading = reads * weights / machine.bytes_per_second / 60
    computing = operations / machine.operations_per_second / 60
    return Cost(
        bytes_read=reads * weights,
        operations=operations,
        bytes_held=held,
        minutes_reading=reading,
        minutes_computing=computing,
        minutes_each=max(reading, computing) / machine.workers,
    )


SIZES = (
    LlamaSize("7B", 32, 4096, 11008, 4096, 32000),
    LlamaSize("70B", 80, 8192, 28672, 1024, 128256),
    LlamaSize("405B", 126, 16384, 53248, 1024, 128256),
)
MACHINES = (
    Machine("laptop, one disk", 16e9, 3e9, 3e11),
    Machine("one node", 1e12, 12e9, 4e12),
    Machine("Ray cluster, 16 nodes", 1e12, 12e9, 4e12, workers=16),
)


def plan_on_paper(
    sizes: Sequence[LlamaSize] = SIZES, machines: Sequence[Machine] = MACHINES
) -> str:
    """The costs as a table in Markdown."""
    lines = [
        "| model | where | read | operations | held | reading | computing | longer | each of many |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|",
    ]
    for size in sizes:
        for machine in machines:
            cost = cost_of(size, machine)
            cells = [
                size.name,
                machine.name,
                in_bytes(cost.bytes_read),
                f"{cost.operations:.1e}",
                in_bytes(cost.bytes_held),
                _minutes(cost.minutes_reading),
                _minutes(cost.minutes_computing),
                cost.limit,
                _minutes(cost.minutes_each),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _minutes(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.1f} s"
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
