"""Two small trained models to try things on: pre-norm and post-norm, otherwise the same.

    leadline measure leadline.lab.pair:pre --text "def main():"

6 layers, width 64, 4 heads, trained for 3,000 steps on windows of 128 bytes of Python's standard
library. Each folder holds recipe.json and model.safetensors. `make pair` makes them again, by

    leadline train --set placement=pre --set depth=6 --set width=64 --set heads=4 \\
      --set init=xavier --task "stdlib(length=128)" --steps 3000 --set warmup=500 \\
      --set schedule=cosine --set examples=512 --set validate=500 --set gauges=100 --layers \\
      --save out/pair/pre

and the same with post. On 512 held-out windows they reach 1.589 (pre) and 1.549 nats (post); the
unigram entropy there is 3.091, the bigram entropy 2.400.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.models.inputs.byte_tokenizer import ByteTokenizer
    from leadline.parts import Transformer

__all__ = ["folder", "post", "pre"]


def pre() -> tuple[Transformer, ByteTokenizer]:
    """The pre-norm model, and its tokenizer."""
    return _load("pre")


def post() -> tuple[Transformer, ByteTokenizer]:
    """The post-norm model, and its tokenizer."""
    return _load("post")


def folder(name: str) -> Path:
    """Where the files of `pre` or `post` are."""
    return Path(__file__).parent / name


def _load(name: str) -> tuple[Transformer, ByteTokenizer]:
    from leadline.models.inputs.byte_tokenizer import ByteTokenizer
    from leadline.parts import Transformer

    return Transformer.load(folder(name)), ByteTokenizer()
