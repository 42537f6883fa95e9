"""What do layer Jacobians cost, and how right are they?

1. The four largest singular values of one block of GPT-2 and one of our own, 32 tokens of width
   128: block bidiagonalisation against what people write, `torch.func.jacrev` with the best of
   several chunk sizes and then `torch.linalg.svdvals`. Both in float32; the error is against the
   singular values of the same matrix in float64. Beside it, what the same costs people who take the
   matrix in float64, and with twice as many tokens, where the matrix has four times as many entries.
2. Lyapunov exponents with k = 8 of 12 layers, in forward passes of the model.
3. The standard error of |J - I|_F with 32 probes, against the matrix itself.

One thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import leadline
from _harness import Result, interleave, median_with_interval, ratio
from leadline.anatomy.stretch.stretch import Stretches
from leadline.instruments.jacobian.bidiagonal import largest
from leadline.instruments.jacobian.frobenius import frobenius
from leadline.numerics.linear.linearised import Linearised

TOKENS, WIDTH, HEADS, K = 32, 128, 4, 4
CHUNKS = (128, 512, 2048)
FASTER, FASTER_AT_64, ACCURACY = 120.0, 300.0, 1e-5
FORWARDS = 10.0
PROBES, STANDARD_ERROR = 32, 0.01


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=2,
        vocab_size=500,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval()


def ours(depth: int = 2, width: int = WIDTH) -> nn.Module:
    return leadline.Transformer(
        depth=depth, width=width, heads=HEADS, init="xavier", vocabulary=500, context=128
    ).eval()


def block_of(model: nn.Module, tokens: int = TOKENS) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The first block as a function, and the stream that enters it."""
    inputs = leadline.random_tokens(model, examples=1, length=tokens, seed=0)
    anatomy = leadline.anatomy_of(model, inputs)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    stretches = Stretches(model, anatomy.stacks[0], lambda: model(**inputs.tensors))
    return stretches.function(0, 1)


def by_hand(f: Callable[[Tensor], Tensor], x: Tensor, chunk: int) -> Tensor:
    """What people write."""
    matrix = torch.func.jacrev(f, chunk_size=chunk)(x)
    return torch.linalg.svdvals(matrix.reshape(x.numel(), x.numel()))[:K]


def ours_of(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return largest(Linearised(f, x), K, tolerance=ACCURACY).values[0]


def run() -> Iterable[Result]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _spectra()
        yield _dense_in_float64()
        yield _twice_as_many_tokens()
        yield from _exponents()
    finally:
        torch.set_num_threads(threads)


def _spectra() -> Iterable[Result]:
    for name, model in {"GPT-2 block": gpt2(), "our pre-norm block": ours()}.items():
        with sdpa_kernel(SDPBackend.MATH):
            f, x = block_of(model)
            matrix = torch.func.jacrev(f, chunk_size=512)(x).reshape(x.numel(), x.numel())
            truth = torch.linalg.svdvals(matrix.double())[:K]
            off = float(((ours_of(f, x) - truth) / truth).abs().max())
            chunk = min(CHUNKS, key=lambda each: _seconds(f, x, each))
            hand = f"jacrev({chunk}) + svdvals"
            # Decompositions by hand take 13 s and more; ours has run above.
            times = interleave(
                {
                    hand: lambda f=f, x=x, c=chunk: by_hand(f, x, c),
                    "leadline": lambda f=f, x=x: ours_of(f, x),
                },
                rounds=3,
                warmup=0,
            )
            yield ratio(
                times,
                hand,
                "leadline",
                name=f"top {K}, {name}",
                target=FASTER,
                at_least=True,
                detail={"relative_error": off, "error_allowed": ACCURACY},
            )
            yield Result(
                name=f"top {K}, {name}, error",
                compared="relative error against float64",
                ratio=off,
                target=ACCURACY,
                repetitions=1,
                spread=(off, off),
            )
            yield _distance(name, f, x, matrix)


def _dense_in_float64() -> Result:
    with sdpa_kernel(SDPBackend.MATH):
        f, x = block_of(gpt2())
        g, y = block_of(gpt2().double())
        hand = "jacrev(128) + svdvals in float64"
        times = interleave(
            {hand: lambda: by_hand(g, y, 128), "leadline in float32": lambda: ours_of(f, x)},
            rounds=3,
            warmup=0,
        )
    return ratio(times, hand, "leadline in float32", name=f"top {K}, GPT-2 block, float64 by hand")


def _twice_as_many_tokens() -> Result:
    with sdpa_kernel(SDPBackend.MATH):
        f, x = block_of(gpt2(), 2 * TOKENS)
        ours_of(f, x)
        times = interleave(
            {
                "jacrev(128) + svdvals": lambda: by_hand(f, x, 128),
                "leadline": lambda: ours_of(f, x),
            },
            rounds=3,
            warmup=0,
        )
    return ratio(
        times,
        "jacrev(128) + svdvals",
        "leadline",
        name=f"top {K}, GPT-2 block, {2 * TOKENS} tokens",
        target=FASTER_AT_64,
        at_least=True,
    )


def _seconds(f: Callable[[Tensor], Tensor], x: Tensor, chunk: int) -> float:
    start = time.perf_counter()
    torch.func.jacrev(f, chunk_size=chunk)(x)
    return time.perf_counter() - start


def _distance(name: str, f: Callable[[Tensor], Tensor], x: Tensor, matrix: Tensor) -> Result:
    truth = float((matrix.double() - torch.eye(x.numel()).double()).norm())
    given = Linearised(f, x)
    found = [frobenius(given, probes=PROBES, seed=seed, shift=1.0) for seed in range(20)]
    shares = [float(one.error / one.value) for one in found]
    middle, low, high = median_with_interval(shares)
    misses = [abs(float(one.value) - truth) / float(one.error) for one in found]
    return Result(
        name=f"|J - I|, {name}",
        compared=f"relative standard error, {PROBES} probes",
        ratio=middle,
        target=STANDARD_ERROR,
        repetitions=len(found),
        spread=(low, high),
        detail={"misses_in_standard_errors": [round(each, 2) for each in misses]},
    )


def _exponents() -> Iterable[Result]:
    for tokens, width in ((32, 128), (128, 256)):
        model: Any = ours(12, width)
        inputs = leadline.random_tokens(model, examples=1, length=tokens, seed=0)
        anatomy = leadline.anatomy_of(model, inputs)

        def forward(model: Any = model, inputs: Any = inputs) -> object:
            with torch.no_grad():
                return model(**inputs.tensors)

        times = interleave(
            {
                "lyapunov": lambda m=model, i=inputs, a=anatomy: leadline.lyapunov(m, i, anatomy=a),
                "forward": forward,
            },
            rounds=15,
        )
        yield ratio(
            times,
            "lyapunov",
            "forward",
            name=f"Lyapunov, k = 8, 12 layers, {tokens} tokens of width {width}",
            target=FORWARDS,
        )
