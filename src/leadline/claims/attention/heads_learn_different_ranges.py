"""Heads learn dependencies of different range, short and long.

Measured as the mean attention distance of every head, sum_j A_ij |i - j|, in the two trained models
of `leadline.lab.pair`. "Different ranges" is read as: the head that looks farthest looks at least
twice as far as the one that looks least far, in the whole model; for the heads of one layer it is
the reach. An untrained model of the same shape is the control:
its heads all average over everything before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._trained import TRAINED, text_windows
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture


@claim(
    "heads-learn-different-ranges",
    group="attention",
    notes=("deep-dive",),
    title="Heads learn dependencies of short and of long range",
    formula=r"\mathrm{range}_h = \mathrm{mean}_i \sum_j A_{ij} |i - j|",
    plain="range_h = mean_i Σ_j A_ij |i − j|",
    says="With several heads the same mechanism can learn different behaviours and capture "
    "dependencies of various ranges, short and long.",
    correction="Over the whole model the ranges of trained heads differ several times; inside one "
    "layer of these models they differ much less: range goes mostly with depth.",
    why="In two small trained models the mean distance that each head looks back was measured on 64 "
    "tokens of text. The farthest-looking head looks {range_ratio_pre:.1f} times as far as the "
    "nearest-looking one (pre-norm) and {range_ratio_post:.1f} times (post-norm). Before training "
    "the ratio is {range_ratio_start:.2f}. Inside a layer it is {ratio_in_layer:.2f} in the median: "
    "the means of the layers differ by a factor of {ratio_of_layers:.1f}.",
    checks=(
        Check(
            "range_ratio_pre",
            "claim",
            "at least",
            2.0,
            label="farthest over nearest head, trained pre-norm model",
            because="Different ranges are read as at least twofold; windows of text move the ratio "
            "by about a tenth.",
            over="mean",
        ),
        Check(
            "range_ratio_post",
            "claim",
            "at least",
            2.0,
            label="farthest over nearest head, trained post-norm model",
            because="Different ranges are read as at least twofold.",
            over="mean",
        ),
        Check(
            "range_ratio_start",
            "claim",
            "at most",
            1.2,
            label="the same before training",
            because="Learned means that it was not there before: drawn heads average over all keys, "
            "so they differ by a few percent.",
            over="mean",
        ),
        Check(
            "start_over_even",
            "claim",
            "near",
            1.0,
            within=0.02,
            label="mean distance before training over (n − 1) / 4",
            because="Even weights over all keys up to i lie i / 2 away in the mean, (n − 1) / 4 over "
            "all rows; logits as small as those drawn here move that by less than a percent.",
        ),
        Check(
            "ratio_in_layer",
            "reach",
            "at least",
            2.0,
            label="farthest over nearest head of one layer, median",
            because="The heads of one layer share their input; the same twofold is asked of them.",
            over="mean",
        ),
        Check(
            "ratio_of_layers",
            "correction",
            "at least",
            2.0,
            label="farthest over nearest layer, mean of its heads",
            because="If range goes with depth, the means of layers differ at least twofold.",
            over="mean",
        ),
    ),
    seconds=0.1,
    needs=(TRAINED,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Compare the distances of all heads, trained and untrained."""
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.parts import Transformer
    from leadline.reading.bounds.attention_facts import attention_sublayers, head_readings

    found = trials[TRAINED.name]
    pre, post = (np.array(found[name]["distance_by_head"]) for name in ("pre", "post"))
    model = Transformer(depth=6, width=64, heads=4, vocabulary=256, context=128, seed=seed)
    ids = text_windows(seed, length=found["tokens"], examples=4)
    record = measured(model, ids, probes="attention", seed=seed)
    readings = head_readings(record, "attention.distance", "mean")
    start = np.array(
        [
            [readings.at(seen.address, head)[0].value for head in seen.head_numbers]
            for seen in attention_sublayers(record)
        ]
    )
    layers = tuple(float(layer) for layer in range(1, len(pre) + 1))
    return Measured(
        {
            "range_ratio_pre": float(pre.max() / pre.min()),
            "range_ratio_post": float(post.max() / post.min()),
            "range_ratio_start": float(start.max() / start.min()),
            "start_over_even": float(start.mean()) / ((found["tokens"] - 1) / 4),
            "ratio_in_layer": float(np.median(pre.max(1) / pre.min(1))),
            "ratio_of_layers": float(pre.mean(1).max() / pre.mean(1).min()),
        },
        Picture(
            "layer",
            "mean attention distance, tokens",
            {
                **{f"head {head + 1}": (layers, tuple(pre[:, head].tolist())) for head in range(4)},
                "before training": (layers, tuple(start.mean(1).tolist())),
            },
            faint=("before training",),
        ),
    )
