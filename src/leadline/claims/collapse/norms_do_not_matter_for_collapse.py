"""Norms are left out of the account of the collapse, and the experiment has them: as if they did not matter.

Read as: with LayerNorm in front of attention the collapse is the same, cubic. For random weights it is:
the part "claim". Values that shrink the mean token more than the differences are the exception (Wu et
al. 2024, arXiv 2405.18781). Two tokens (m, +-a), RMSNorm, W_QK on the second feature alone, values (v, 1):
m/a is multiplied by v / tanh(tau) while a is the larger, so that the differences survive for
v < tanh(tau), here 0.76, and vanish for larger v. Without the norm they vanish for every v.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, WIDTH, TOKENS = 8, 16, 8
LAYERS, START = 150, 0.01
BELOW, ABOVE = 0.72, 0.80
UNNORMED = 20


@claim(
    "norms-do-not-matter-for-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="Norms make no difference to the collapse",
    formula=r"X^{l+1} = \mathrm{SA}(\mathrm{LN}(X^l)) \Rightarrow \log \| \mathrm{res}(X^{l+1}) \| \approx 3 \log \| \mathrm{res}(X^l) \|",
    plain="X^{l+1} = SA(LN(X^l)) ⇒ log ‖res(X^{l+1})‖ ≈ 3 log ‖res(X^l)‖",
    says="The account of the collapse names skips and MLPs as what counters it and leaves norms out; the "
    "experiment has them in every variant.",
    correction="For random weights norms change nothing. Where values shrink the mean token more than the "
    "differences, a norm can keep tokens apart for ever: two tokens survive for $v < \\tanh \\tau$, $v$ the "
    "gain of the mean over that of the differences and $\\tau$ the logit of a token with itself.",
    why="With LayerNorm before random attention the logarithm of the residual grows {ratio:.4f} times in the "
    "last layer, as without it. Two tokens whose mean is shrunk by {below} per layer keep their differences "
    "with a norm: a share of {kept:.3f} of the stream after {layers:.0f} layers; without the norm it is 10 "
    "to the power {bare:.1e} after {unnormed:.0f}. At {above_gain} the norm does not save them: the border is "
    "$\\tanh 1$, {border:.3f}.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            3.0,
            within=0.05,
            label="ratio of log residuals in the last layer, LayerNorm",
            because="A cubic collapse gives 3 plus log c over log r, which is below 0.05 here.",
        ),
        Check(
            "kept",
            "reach",
            "at most",
            1e-3,
            label="relative residual, norm, mean shrunk by 0.72",
            because="Collapsed is read as a residual a thousand times below the stream.",
            log=True,
        ),
        Check(
            "bare",
            "correction",
            "at most",
            -3.0,
            label="log₁₀ of the same without the norm",
            because="Collapsed is read as a residual a thousand times below the stream.",
        ),
        Check(
            "above",
            "correction",
            "at most",
            -3.0,
            label="log₁₀ of the same, norm, mean shrunk by 0.80",
            because="0.80 lies above tanh 1 = 0.76: the law says that they collapse.",
        ),
    ),
    seconds=0.4,
    source="Wu, Ajorlou, Wang, Jegelka, Jadbabaie 2024, arXiv 2405.18781",
)
def measure(seed: int) -> Measured:
    """Random attention with LayerNorm, and two tokens with and without RMSNorm."""
    import math

    from leadline.claims.collapse._stacks import attention_network, stream
    from leadline.claims.collapse._two_features import two_features
    from leadline.instruments.collapse.measure import collapse

    model = attention_network(
        seed,
        depth=DEPTH,
        width=WIDTH,
        heads=2,
        connection="none",
        norm="layernorm",
        placement="pre",
    )
    random = collapse(model, stream(seed, tokens=TOKENS, width=WIDTH)[0])
    kept = two_features(BELOW, start=START, depth=LAYERS, norm=True)
    bare = two_features(BELOW, start=START, depth=UNNORMED, norm=False)
    above = two_features(ABOVE, start=START, depth=LAYERS, norm=True)
    sites = tuple(float(site) for site in range(96))
    falling = min(96, int((above.log10_relative > -6.0).sum()))
    return Measured(
        {
            "layers": float(LAYERS),
            "unnormed": float(UNNORMED),
            "below": BELOW,
            "above_gain": ABOVE,
            "border": math.tanh(1.0),
            "ratio": float(random.log_ratio[-1]),
            "kept": 10.0 ** float(kept.log10_relative[-1]),
            "bare": float(bare.log10_relative[-1]),
            "above": float(above.log10_relative[-1]),
        },
        Picture(
            "layer",
            "log₁₀ of the relative residual",
            {
                "norm, 0.72": (sites, tuple(map(float, kept.log10_relative[:96]))),
                "norm, 0.80": (sites[:falling], tuple(map(float, above.log10_relative[:falling]))),
                "no norm, 0.72": (sites[:4], tuple(map(float, bare.log10_relative[:4]))),
            },
        ),
    )
