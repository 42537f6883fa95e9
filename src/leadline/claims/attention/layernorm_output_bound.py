"""|LN(h)|_2 <= Gamma sqrt(d), Gamma the largest gain.

The note takes the shift beta out before it bounds, so without beta is its own setting: the claim,
with the two steps that lead to it, |h - mean| = sqrt(d) sigma and |diag(gamma)| = max |gamma|. GPT-2's
norms have a shift: the reach. Corrected by |beta|. Measured on Leadline's LayerNorm and RMSNorm,
with directions pushed to the worst: all weight on the feature of the largest gain.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DRAWN = 2000


@claim(
    "layernorm-output-bound",
    group="attention",
    notes=("deep-dive",),
    title="A normed token has a length of at most the largest gain times √d",
    formula=r"\|\mathrm{LN}(h)\|_2 \leq \Gamma \sqrt{d}, \quad \Gamma = \|\gamma\|_\infty",
    plain="‖LN(h)‖ ≤ Γ√d, Γ = max |γ|",
    says="Without the shift, the output of LayerNorm is a vector of length √d whose entries are "
    "multiplied by the gains; so its length is at most the largest gain times √d.",
    correction="With a shift β, as in GPT-2, the bound is $\\Gamma \\sqrt{d} + \\|\\beta\\|$. For "
    "RMSNorm $\\Gamma \\sqrt{d}$ holds as it is.",
    why="Tokens of many kinds went through norms with drawn gains. Without a shift the length was at "
    "most {ratio_without_shift:.4f} of the bound, with a shift up to {ratio_with_shift:.2f} of it. "
    "Adding the length of the shift gives a bound again: {ratio_corrected:.4f} at the most.",
    checks=(
        Check(
            "deviation_error",
            "claim",
            "at most",
            1e-9,
            label="‖h − mean‖ against √d σ, relative",
            because="An identity: the definition of σ. Means up to a million times the spread cost "
            "six of float64's sixteen digits.",
            log=True,
        ),
        Check(
            "gain_norm_ratio",
            "claim",
            "near",
            1.0,
            within=1e-9,
            label="spectral norm of diag(γ) over the largest gain, worst case",
            because="An identity: a diagonal matrix has the sizes of its entries as singular values.",
        ),
        Check(
            "ratio_without_shift",
            "claim",
            "at most",
            1 + 1e-12,
            label="length over Γ√d without a shift, worst case",
            because="A theorem; ε only shortens. Float64 rounding.",
        ),
        Check(
            "ratio_with_shift",
            "reach",
            "at most",
            1 + 1e-12,
            label="length over Γ√d with a shift, worst case",
            because="The same bound, carried to norms as GPT-2 has them.",
        ),
        Check(
            "ratio_corrected",
            "correction",
            "at most",
            1 + 1e-12,
            label="length over Γ√d + ‖β‖, worst case",
            because="The triangle inequality, to float64 rounding.",
        ),
        Check(
            "ratio_rms",
            "correction",
            "at most",
            1 + 1e-12,
            label="length over Γ√d for RMSNorm, worst case",
            because="The same theorem without taking the mean away.",
        ),
    ),
    seconds=0.05,
)
def measure(seed: int) -> Measured:
    """Norm random and extreme tokens with drawn gains and shifts."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.parts.norms.layernorm import LayerNorm
    from leadline.parts.norms.rmsnorm import RMSNorm

    generator = torch.Generator().manual_seed(4800 + seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    plain, shifted, corrected, rms, deviations = [], [], [], [], []
    gains: list[float] = []
    for width in (2, 8, 64, 256):
        h = drawn(DRAWN, width) * torch.exp(2 * drawn(DRAWN, 1)) + drawn(DRAWN, 1)
        h[:width] = torch.eye(width, dtype=torch.float64)[: len(h)]
        norm, other = LayerNorm(width).double(), RMSNorm(width).double()
        gain, shift = drawn(width), drawn(width)
        reach = float(gain.abs().max()) * width**0.5
        gains.append(float(spectral_norm(torch.diag(gain)).value / gain.abs().max()))
        shift = shift * (reach / float(shift.norm()))
        with torch.no_grad():
            centred = h - h.mean(-1, keepdim=True)
            spread = h.var(-1, correction=0).sqrt() * width**0.5
            deviations.append(float((centred.norm(dim=-1) / spread - 1).abs().max()))
            norm.weight.copy_(gain)
            other.weight.copy_(gain)
            plain.append(float(norm(h).norm(dim=-1).max()) / reach)
            rms.append(float(other(h).norm(dim=-1).max()) / reach)
            norm.bias.copy_(shift)
            longest = float(norm(h).norm(dim=-1).max())
            shifted.append(longest / reach)
            corrected.append(longest / (reach + float(shift.norm())))
    return Measured(
        {
            "deviation_error": max(deviations),
            "gain_norm_ratio": max(gains, key=lambda one: abs(one - 1)),
            "ratio_without_shift": max(plain),
            "ratio_with_shift": max(shifted),
            "ratio_corrected": max(corrected),
            "ratio_rms": max(rms),
        }
    )
