"""A Transformer block has two residual connections, after attention and after the MLP.

Counted in the anatomies that Leadline reads from tiny random Hugging Face models, proved by the
balance: what leaves a block is what entered plus the writes. The claim is the block of the notes:
GPT-2, BERT, Llama. A reader carries it to every Transformer: GPT-J and others let attention and MLP
read the same stream and add both at once, so there is one addition per block (its second branch is
`parallel`); the decoder of an encoder-decoder, the original Transformer's among them, has three.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

FAMILIES = ("gpt2", "bert", "llama", "gptj", "t5")


def _same(name: str, part: str, label: str) -> Check:
    return Check(
        name, part, "near", 2.0, within=1e-9, label=label,
        because="A count: two is two.",
    )  # fmt: skip


@claim(
    "two-residuals-per-block",
    group="algebra",
    notes=("shortcuts", "summary", "textbook", "card"),
    title="A Transformer block has two residual connections",
    formula=r"x' = x + \mathrm{Attention}(x), \qquad x'' = x' + \mathrm{MLP}(x')",
    plain="x' = x + Attention(x);  x'' = x' + MLP(x')",
    says="Every Transformer block has two shortcuts: one around attention and one around the "
    "feed-forward network.",
    correction="There is one addition per branch that reads the stream anew. GPT-2, BERT and Llama "
    "have two; blocks whose branches stand side by side (GPT-J, PaLM) have one; decoder blocks with "
    "cross-attention (T5, the original Transformer) have three.",
    why="Leadline reads from the running model where something is added to the stream, and proves it: "
    "input plus writes equal the output of every block to {balance} units of rounding. GPT-2 has "
    "{gpt2:.0f}, BERT {bert:.0f}, Llama {llama:.0f}. GPT-J adds attention and MLP together, {gptj:.0f} "
    "addition; a decoder block of T5 has {t5:.0f}.",
    checks=(
        _same("gpt2", "claim", "additions per block, GPT-2"),
        _same("bert", "claim", "additions per block, BERT"),
        _same("llama", "claim", "additions per block, Llama"),
        _same("gptj", "reach", "additions per block, GPT-J"),
        _same("t5", "reach", "additions per decoder block, T5"),
        Check(
            "balance", "correction", "at most", 4.0,
            label="largest miss of input + writes = output, in eps",
            because="Adding two or three terms rounds once each; norms after them twice more.",
        ),
        Check(
            "one_each", "correction", "near", 1.0, within=1e-9,
            label="writes per branch, all five",
            because="A count: every branch writes once.",
        ),
    ),
    seconds=0.8,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Count the additions in the anatomies of five families."""
    from leadline.instruments.passes.measurement import anatomy_of
    from leadline.testing.zoo import ZOO

    counts: dict[str, float] = {}
    misses: list[float] = []
    writes: list[float] = []
    for name in FAMILIES:
        specimen = ZOO[name]
        model = specimen.build(seed)
        anatomy = anatomy_of(model, specimen.inputs(model, seed))
        assert anatomy.balance is not None
        misses.append(anatomy.balance.eps)
        blocks = anatomy.stacks[-1].blocks
        # A parallel branch reads what the one before it read: both are added together.
        several = [sum(not one.parallel for one in block.sublayers) for block in blocks]
        counts[name] = sum(several) / len(several)
        writes += [
            len(block.sublayers) / len({(one.role, one.module) for one in block.sublayers})
            for block in blocks
        ]
    return Measured({**counts, "balance": max(misses), "one_each": max(writes)})
