"""Pre-norm is why later models could be deeper: a statement about the reasons of many authors."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "pre-norm-made-depth-possible",
    group="attention",
    notes=("deep-dive",),
    title="Bounded attention norms are why models after GPT-2 use pre-norm",
    says="Pre-norm keeps the amplification of each attention layer in a constant range, and this is "
    "one of the empirical reasons why Transformers after GPT-2 commonly use it and can be deeper.",
    why="Why people chose a design is no quantity of a model. What can be measured has its own "
    "entries: that the bound does not press the norm down, that post-norm attention is not larger, and "
    "how deep each design trains.",
)
