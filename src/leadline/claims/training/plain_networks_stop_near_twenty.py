"""A plain network can be trained up to about 20 layers.

The card's table gives about 20 as the largest trainable depth of a plain network. Read for towers
of MLPs with ReLU (no skip, no norm, no attention), and to within a factor of two or so: 10 layers
train, 50 are stuck; 20 are measured and lie between. A reader of a card on Transformers carries
the number to Transformers without skip: the reach is one of 6 layers with norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, cosines, gain, stuck, tower, trains
from leadline.claims.training._pictures import losses

TEN, TWENTY = tower("plain", 10, steps=300), tower("plain", 20, steps=300)
FIFTY, TRANSFORMER = tower("plain", 50, steps=300), cell("no skip", 6)


@claim(
    "plain-networks-stop-near-twenty",
    group="training",
    notes=("card",),
    title="A plain network can be trained up to about 20 layers",
    formula=r"x_{l+1} = F_l(x_l): \quad L_{\max} \approx 20",
    plain="x' = F(x): largest trainable depth about 20",
    says="Without residual connections the largest trainable depth is about 20 layers.",
    correction="It is so for plain towers of MLPs: 10 layers train, 50 learn nothing. A "
    "Transformer without skip learns nothing at 6 layers, although it has norms.",
    why="Towers of MLPs without skip and without norms gain {ten:.2f} (10 layers), {twenty:.2f} "
    "(20) and {fifty:.2f} nats (50) over the entropy of the byte frequencies. So 20 is the right "
    "order for them. A Transformer of 6 layers without skip, with norms, gains {transformer:.2f}. "
    "Its attention averages the tokens in every layer: before training already their mean "
    "cosine is {alike:.3f}.",
    checks=(
        trains("ten", "claim", "gain of a plain tower, 10 layers"),
        stuck("fifty", "claim", "gain of a plain tower, 50 layers"),
        trains("transformer", "reach", "gain of a Transformer without skip, 6 layers"),
        stuck("transformer_gain", "correction", "gain of that Transformer, again"),
    ),
    seconds=0.01,
    needs=(TEN, TWENTY, FIFTY, TRANSFORMER),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of plain towers by depth, and of a Transformer without skip."""
    runs = {
        "ten": trials[TEN.name],
        "twenty": trials[TWENTY.name],
        "fifty": trials[FIFTY.name],
        "transformer": trials[TRANSFORMER.name],
    }
    labels = ("10 layers", "20 layers", "50 layers", "Transformer, 6 layers")
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    gains = {name: gain(found) for name, found in runs.items()}
    alike = cosines(trials[TRANSFORMER.name])[0]
    return Measured({**gains, "transformer_gain": gains["transformer"], "alike": alike}, picture)
