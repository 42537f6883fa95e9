"""BERT, an encoder in both directions, needs no mask.

The sentence stands beside the causal mask and means that one: BERT's tokens see each other both
ways. That is the claim, read from a small random BERT of Hugging Face by the probe `attention`. A
reader who leaves out every mask meets padding: sentences of different lengths in one batch need a
mask of padding, or the words change with the filler. Devlin et al. 2018, arXiv 1810.04805.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

REAL, PADDED = 7, 12


@claim(
    "bert-needs-no-mask",
    group="attention",
    notes=("deep-dive",),
    title="BERT, which reads in both directions, needs no mask",
    formula="",
    plain="",
    says="BERT is a bidirectional encoder and therefore needs no masking operation.",
    correction="It needs no causal mask. In a batch of sentences of different lengths it needs a "
    "mask of padding.",
    why="In a small BERT each of {tokens:.0f} tokens saw all {fewest_seen:.0f} of them, and nothing "
    "was hidden. With five tokens of filler behind the sentence and no mask, its words changed by "
    "{change_without_mask} of their size; with a mask of padding they changed by "
    "{change_with_mask}.",
    checks=(
        Check(
            "hidden_keys",
            "claim",
            "at most",
            0,
            label="keys that a token of BERT cannot see",
            because="A count of hidden keys over all layers; no mask means none.",
        ),
        Check(
            "change_without_mask",
            "reach",
            "at most",
            1e-5,
            label="change of the words by filler, without a mask",
            because="The words should not change; float32 rounds to 6e-8, some hundred times.",
            log=True,
        ),
        Check(
            "change_with_mask",
            "correction",
            "at most",
            1e-5,
            label="change of the words by filler, with a mask of padding",
            because="The words should not change; float32 rounds to 6e-8, some hundred times.",
            log=True,
        ),
    ),
    source="Devlin et al. 2018, arXiv 1810.04805",
    seconds=0.06,
)
def measure(seed: int) -> Measured:
    """Count hidden keys, then add filler with and without a mask."""
    import torch

    from leadline.claims.attention._models import hf_model
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.reading.bounds.attention_facts import attention_sublayers

    # Ten times BERT's own spread of weights: at 0.02 attention hardly does anything.
    model = hf_model("bert", seed=seed, initializer_range=0.2)
    generator = torch.Generator().manual_seed(4200 + seed)
    ids = torch.randint(1, 100, (1, PADDED), generator=generator)
    ids[:, REAL:] = 0
    record = measured(model, ids[:, :REAL], probes="attention", seed=seed)
    shapes = [shape for one in attention_sublayers(record) for shape in one.shapes]
    masks = [one.mask for one in attention_sublayers(record)]
    seen = [
        min(shape.allowed, default=shape.keys if mask == "none" else 1)
        for shape, mask in zip(shapes, masks, strict=True)
    ]
    there = (torch.arange(PADDED) < REAL).long()[None]
    with torch.no_grad():
        alone = model(ids[:, :REAL]).last_hidden_state
        bare = model(ids).last_hidden_state[:, :REAL]
        masked = model(ids, attention_mask=there).last_hidden_state[:, :REAL]
    size = float(alone.square().mean().sqrt())
    return Measured(
        {
            "tokens": float(REAL),
            "fewest_seen": float(min(seen)),
            "hidden_keys": float(REAL - min(seen)),
            "change_without_mask": float((bare - alone).abs().max()) / size,
            "change_with_mask": float((masked - alone).abs().max()) / size,
        }
    )
