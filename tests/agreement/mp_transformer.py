"""A Transformer of ours in mpmath, written naively: every formula as in a textbook, many digits.

Nothing here is split or shared with the code under test: tokens are rows of numbers, softmax is
exp over sum, a residual is a difference.
"""

from __future__ import annotations

from typing import Any

from mpmath import mp, mpf

Rows = list[list[Any]]


def rows_of(tensor: Any) -> Rows:
    return [[mpf(float(v)) for v in row] for row in tensor.tolist()]


def numbers(tensor: Any) -> list[Any]:
    return [mpf(float(v)) for v in tensor.tolist()]


def linear(x: Rows, weight: Rows, bias: list[Any] | None) -> Rows:
    """x W' + b with W [out, in]."""
    out = [[mp.fdot(row, column) for column in weight] for row in x]
    return out if bias is None else [[v + b for v, b in zip(r, bias, strict=True)] for r in out]


def softmax(logits: list[Any]) -> list[Any]:
    powers = [mp.exp(v) for v in logits]
    total = mp.fsum(powers)
    return [p / total for p in powers]


def attention(x: Rows, q: Rows, k: Rows, v: Rows, *, heads: int, causal: bool) -> Rows:
    size = len(q[0]) // heads
    out: Rows = [[] for _ in x]
    for head in range(heads):
        cut = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            seen = range(i + 1) if causal else range(len(x))
            logits = [mp.fdot(q[i][cut], k[j][cut]) / mp.sqrt(size) for j in seen]
            weights = softmax(logits)
            for f in range(cut.start, cut.stop):
                out[i].append(mp.fsum(w * v[j][f] for w, j in zip(weights, seen, strict=True)))
    return out


def norm(x: Rows, module: Any, kind: str) -> Rows:
    weight = numbers(module.weight)
    bias = numbers(module.bias) if getattr(module, "bias", None) is not None else None
    out: Rows = []
    for row in x:
        width = len(row)
        mean = mp.fsum(row) / width if kind == "layernorm" else mpf(0)
        centred = [v - mean for v in row]
        sigma = mp.sqrt(mp.fsum(v * v for v in centred) / width + mpf(float(module.eps)))
        new = [v / sigma * g for v, g in zip(centred, weight, strict=True)]
        out.append(new if bias is None else [v + b for v, b in zip(new, bias, strict=True)])
    return out


def activation(name: str, value: Any) -> Any:
    if name == "relu":
        return max(value, mpf(0))
    if name == "gelu":
        return value * mp.erfc(-value / mp.sqrt(2)) / 2
    if name == "gelu_tanh":
        return value * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (value + mpf(0.044715) * value**3))) / 2
    assert name == "silu"
    return value / (1 + mp.exp(-value))


def sublayer(x: Rows, part: Any, recipe: Any) -> Rows:
    kind = recipe.choice("norm").name
    z = x if part.enter is None else norm(x, part.enter, kind)
    branch = part.branch
    if hasattr(branch, "qkv"):
        bias = None if branch.qkv.bias is None else numbers(branch.qkv.bias)
        both = linear(z, rows_of(branch.qkv.weight), bias)
        width = branch.widths[0]
        q, k, v = ([row[i * width : (i + 1) * width] for row in both] for i in range(3))
        mixed = attention(z, q, k, v, heads=branch.heads, causal=branch.causal)
        last = branch.output
    else:
        name = recipe.choice("mlp").name
        up = branch.up if hasattr(branch, "up") else branch.gate_up
        hidden = linear(z, rows_of(up.weight), None if up.bias is None else numbers(up.bias))
        if hasattr(branch, "up"):
            mixed = [[activation(name, v) for v in row] for row in hidden]
        else:
            half = len(hidden[0]) // 2
            act = {"swiglu": "silu", "geglu": "gelu_tanh"}[name]
            mixed = [
                [activation(act, g) * u for g, u in zip(row[:half], row[half:], strict=True)]
                for row in hidden
            ]
        last = branch.down
    out = linear(mixed, rows_of(last.weight), None if last.bias is None else numbers(last.bias))
    connection = recipe.choice("connection").name
    assert connection in ("none", "identity")
    if connection == "identity":
        out = [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(x, out, strict=True)]
    return out if part.settle is None else norm(out, part.settle, kind)


def residual(x: Rows) -> Any:
    tokens = len(x)
    mean = [mp.fsum(row[f] for row in x) / tokens for f in range(len(x[0]))]
    return mp.sqrt(mp.fsum((v - m) ** 2 for row in x for v, m in zip(row, mean, strict=True)))


def residuals(model: Any, stream: Any) -> list[Any]:
    """The residual at every site, naively."""
    x = rows_of(stream)
    found = [residual(x)]
    for block in model.blocks:
        for part in block.children():
            x = sublayer(x, part, model.recipe)
        found.append(residual(x))
    return found


def relative_errors(found: Any, true: list[Any]) -> list[float]:
    """Of residuals, not of their logarithms: mantissa times two to an exact exponent."""
    rounding = mpf(10) ** (50 - mp.dps)

    def error(mantissa: float, exponent: int | None, value: Any) -> float:
        if exponent is None or not mantissa:
            return 0.0 if value < rounding else 1.0
        return float(abs(mpf(mantissa) * mpf(2) ** exponent / value - 1))

    return [
        error(m, e, t)
        for m, e, t in zip(found.mantissa.tolist(), found.exponent, true, strict=True)
    ]
