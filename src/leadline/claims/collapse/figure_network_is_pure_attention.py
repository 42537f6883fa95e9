"""The experiment is presented as a test of the theorem on pure attention.

Read as: the variant "SAN only" is a network that the theorem is about. Its script has a LayerNorm
before every attention, and the tokens start with a residual for which the bound promises nothing.
The assumptions are those that `theory` checks; the bound itself is then put to the test on that
network.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, TOKENS = 4, 128, 10


@claim(
    "figure-network-is-pure-attention",
    group="collapse",
    notes=("deep-dive",),
    title="The experiment tests the theorem on pure attention",
    formula=r"X^{l+1} = P X^l W, \quad c \, \| \mathrm{res}(X) \|_{1,\infty}^2 < 1",
    plain="X^{l+1} = P X^l W with c‖res(X)‖² < 1",
    says="The variant without skip and MLP is the pure attention of the theorem, and its curve is what the "
    "theorem says.",
    correction="The script has a LayerNorm before every attention, so the theorem does not apply to it. Even "
    "without the norm the theorem promises nothing for such tokens: its bound grows with depth. That the "
    "tokens collapse all the same is an observation, not a test of the bound.",
    why="Of the assumptions of the theorem {broken:.0f} fails for the script's network: there is a norm. "
    "Without the norm all hold, but $c \\, r^2$ is 10 to the power {condition:.1f} where it should be below "
    "1, and after {depth:.0f} layers the bound stands at 10 to the power {bound:.0f}. A bound that allows "
    "anything is verified by anything.",
    checks=(
        Check(
            "broken",
            "claim",
            "at most",
            0.0,
            label="assumptions that fail for the network of the script",
            because="A test of a theorem meets all of its assumptions.",
        ),
        Check(
            "left",
            "correction",
            "at most",
            0.0,
            label="assumptions that fail when the norm is taken out",
            because="The norm is the only thing in the way: none is left.",
        ),
        Check(
            "condition",
            "correction",
            "at least",
            0.0,
            label="log₁₀ of c r² without the norm",
            because="Above 0 the bound grows with depth and promises nothing.",
        ),
    ),
    seconds=1.6,
)
def measure(seed: int) -> Measured:
    """Ask the theorem's conditions of the network with and without the norm."""
    from leadline.claims.collapse._stacks import attention_network, stream
    from leadline.instruments.collapse.measure import collapse
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS
    from leadline.theory.rank_collapse.collapse_published import published_factor

    bound = COLLAPSE_BOUNDS.get("collapse-published")()
    shape = {"depth": DEPTH, "width": WIDTH, "heads": 1, "connection": "none"}
    x = stream(seed, tokens=TOKENS, width=WIDTH)[0]
    normed = collapse(
        attention_network(seed, **shape, norm="layernorm", placement="pre"), x, facts=True
    )
    bare = collapse(attention_network(seed, **shape), x, facts=True)
    assert normed.facts is not None and bare.facts is not None
    broken, left = (
        sum(not one.holds for one in bound.conditions(facts))
        for facts in (normed.facts, bare.facts)
    )
    factor, values = published_factor(bare.facts), bound.log10_values(bare.facts)
    assert factor is not None and values is not None
    return Measured(
        {
            "depth": float(DEPTH),
            "broken": float(broken),
            "left": float(left),
            "condition": factor + 2.0 * bare.facts.log10_composite[0],
            "bound": values[-1],
        }
    )
