"""Which designs keep signal and gradient flat over depth, before any training?

    python examples/which_designs_keep_the_stream_flat.py           6 to 48 layers, half a minute
    python examples/which_designs_keep_the_stream_flat.py 6 24 96   your own depths

For each design and depth: the mean square of the stream after the last layer over that before the
first, the gradient at the first layer over that at the last, and how alike the tokens have become.
All rows but DeepNorm's, which has an init of its own, have the same branches, drawn from the same
seed; only the residual connection or the place of the norms is exchanged.
"""

import sys

from rich.console import Console
from rich.progress import track
from rich.table import Table

import leadline as ll

DESIGNS = {
    "pre-norm": {"placement": "pre"},
    "pre, branch / sqrt(2L)": {"placement": "pre", "connection": "weighted(alpha=depth)"},
    "LayerNorm scaling": {"placement": "layernorm_scaling"},
    "Peri-LN": {"placement": "sandwich"},
    "post-norm": {"placement": "post"},
    "DeepNorm": {"placement": "post", "connection": "deepnorm", "init": "deepnorm"},
    "ReZero, no norm": {"placement": "none", "connection": "rezero"},
    "no residual": {"placement": "pre", "connection": "none"},
}


def row(depth: int, fields: dict[str, str]) -> tuple[str, str, str]:
    """Growth of the stream, first over last gradient, cosine of the tokens."""
    plain = {"width": 128, "heads": 4, "mlp": "relu", "positions": "none", "init": "xavier"}
    model = ll.Transformer(depth=depth, **plain | fields)
    inputs = ll.random_tokens(model, examples=2, length=32, seed=0)
    record = ll.measure(model, inputs, probes="stream,tokens,gradient")
    stream, gradient = record["stream.norm"], record["gradient.stream"]
    growth = (stream.last / stream.first) ** 2
    cosine = record["tokens.cosine"].last
    return f"{growth:.3g}", f"{gradient.first / gradient.last:.3g}", f"{cosine:.4f}"


def main(depths: list[int]) -> None:
    """Print the table."""
    table = Table("design", "layers", "stream growth", "gradient first / last", "token cosine")
    cells = [(name, fields, depth) for name, fields in DESIGNS.items() for depth in depths]
    for name, fields, depth in track(cells, "Measuring", transient=True):
        table.add_row(name if depth == depths[0] else "", str(depth), *row(depth, fields))
    Console().print(table)


if __name__ == "__main__":
    main([int(depth) for depth in sys.argv[1:]] or [6, 24, 48])
