"""The kinds of MLP: one class each, which differ in the activation alone."""

from __future__ import annotations

from functools import partial

from torch.nn import functional as F

from leadline.parts.branches.branch import MLPS, Inside
from leadline.parts.branches.mlp.perceptron import Gated, Plain
from leadline.parts.place import Place

__all__ = ["GEGLU", "GELU", "GELUTanh", "ReLU", "SiLU", "SwiGLU", "none"]

_gelu_tanh = partial(F.gelu, approximate="tanh")


@MLPS.register("none")
def none(place: Place, inside: Inside) -> None:
    """No MLP in any layer.

    A pure self-attention network.
    """


@MLPS.register("relu")
class ReLU(Plain):
    """ReLU, as in the first Transformer.

        W_2 max(0, W_1 x + b_1) + b_2

    `hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
    """

    activation = staticmethod(F.relu)


@MLPS.register("gelu")
class GELU(Plain):
    """GELU with the exact error function (Hendrycks and Gimpel 2016, arXiv 1606.08415), as in BERT.

        W_2 gelu(W_1 x + b_1) + b_2,    gelu(z) = z Phi(z), Phi the normal distribution

    `hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
    """

    activation = staticmethod(F.gelu)


@MLPS.register("gelu_tanh")
class GELUTanh(Plain):
    """GELU by its tanh approximation, as in GPT-2.

        W_2 gelu(W_1 x + b_1) + b_2,    gelu(z) = z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))) / 2

    `hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
    """

    activation = staticmethod(_gelu_tanh)


@MLPS.register("silu")
class SiLU(Plain):
    """SiLU, x sigma(x), without a gate.

        W_2 silu(W_1 x + b_1) + b_2,    silu(z) = z sigmoid(z)

    `hidden` is the inner width, 4 width unless given; `bias` keeps b_1 and b_2.
    """

    activation = staticmethod(F.silu)


@MLPS.register("swiglu")
class SwiGLU(Gated):
    """SwiGLU: gated by SiLU (Shazeer 2020, arXiv 2002.05202), as in Llama.

        W_2 (silu(W_g x) * W_1 x),    silu(z) = z sigmoid(z)

    No biases unless `bias`. `hidden` is the inner width, 8/3 width rounded up to a multiple of 8
    unless given, so that it has about as many weights as a plain MLP.
    """

    activation = staticmethod(F.silu)


@MLPS.register("geglu")
class GEGLU(Gated):
    """GEGLU: gated by the tanh GELU, as in Gemma.

        W_2 (gelu(W_g x) * W_1 x),    gelu by its tanh approximation

    No biases unless `bias`. `hidden` is the inner width, 8/3 width rounded up to a multiple of 8
    unless given, so that it has about as many weights as a plain MLP.
    """

    activation = staticmethod(_gelu_tanh)
