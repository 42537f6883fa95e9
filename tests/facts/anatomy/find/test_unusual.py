"""Equations in words: what is unusual is said, and published designs are left in peace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy, Balance, Block, Port, Stack, Sublayer
from leadline.anatomy.find.unusual import layers_in_words
from leadline.testing.tiny import MeanAttention


def _block(layer: int, *writes: Sublayer, opening: str | None = None) -> Block:
    path = f"h.{layer - 1}"
    return Block(
        layer,
        path,
        Port(path, "input"),
        Port(path, "output"),
        tuple(
            replace(
                write,
                sublayer=number + 1,
                module=f"{path}.{write.module}",
                settle=None if write.settle is None else f"{path}.{write.settle}",
                gain=f"{path}.{write.gain}" if isinstance(write.gain, str) else write.gain,
            )
            for number, write in enumerate(writes)
        ),
        None if opening is None else f"{path}.{opening}",
    )


def _anatomy(blocks: Sequence[Block], source: str = "discovery") -> Anatomy:
    return Anatomy((Stack("decoder", tuple(blocks), 8),), source)


def _attention(gain: float | str = 1.0, keep: float = 1.0, **options: object) -> Sublayer:
    return Sublayer(1, "attention", "attn", gain=gain, keep=keep, **options)  # pyright: ignore


def _mlp(gain: float | str = 1.0, keep: float = 1.0, **options: object) -> Sublayer:
    return Sublayer(2, "mlp", "mlp", gain=gain, keep=keep, **options)  # pyright: ignore


def _same(*writes: Sublayer, depth: int = 4, opening: str | None = None) -> list[Block]:
    return [_block(layer, *writes, opening=opening) for layer in range(1, depth + 1)]


# --- usual designs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "blocks",
    [
        _same(_attention(), _mlp()),
        _same(_attention(settle="ln1"), _mlp(settle="ln2")),
        _same(_attention(), _mlp(parallel=True)),
        _same(_attention("scale1"), _mlp("scale2")),
        _same(_attention()),
    ],
    ids=["pre-norm", "post-norm", "parallel", "learned gains", "one write"],
)
def test_a_usual_design_is_not_remarked_upon(blocks: list[Block]) -> None:
    assert _anatomy(blocks).unusual == ()


def test_layers_of_two_kinds_are_not_missing_each_others_modules() -> None:
    mixer = Sublayer(1, "mixer", "mamba")
    blocks = [_block(n, mixer if n % 2 else _attention(), _mlp()) for n in range(1, 5)]
    assert _anatomy(blocks).unusual == ()


@pytest.mark.parametrize("source", ["user", "declaration of the model", "family xlm"])
def test_coefficients_that_were_declared_are_known(source: str) -> None:
    blocks = _same(_attention(0.5, 2.0), _mlp(0.5, 2.0), opening="ln")
    assert _anatomy(blocks, source).unusual == ()
    assert len(_anatomy(blocks).unusual) == 3


def _own(connection: str) -> leadline.Transformer:
    return leadline.Transformer(depth=3, width=16, heads=2, connection=connection)


@pytest.mark.parametrize("connection", ["depth_mup", "layerscale", "none", "weighted", "hyper"])
def test_our_own_parts_are_silent_about_their_connections(connection: str) -> None:
    assert leadline.anatomy_of(_own(connection)).unusual == ()


def test_a_gain_that_starts_at_zero_is_said() -> None:
    assert leadline.anatomy_of(_own("rezero")).unusual == (
        "What 'attention.branch' and 'mlp.branch' add to the stream is exactly 0 in every layer.",
    )


# --- coefficients ----------------------------------------------------------------------------


def test_one_factor_in_every_layer_is_one_sentence() -> None:
    assert _anatomy(_same(_attention(0.22), _mlp(0.22))).unusual == (
        "Every layer adds 0.22 x what 'attn' and 'mlp' return.",
    )
    assert _anatomy(_same(_attention(keep=0.5), _mlp())).unusual == (
        "Every layer keeps 0.5 x the stream where 'attn' writes.",
    )


def test_one_factor_with_different_modules_is_still_one_sentence() -> None:
    mixer = Sublayer(1, "mixer", "mamba", gain=0.5)
    blocks = [_block(n, mixer if n % 2 else _attention(0.5), _mlp(0.5)) for n in range(1, 5)]
    assert _anatomy(blocks).unusual == (
        "Every layer adds 0.5 x what 'mamba', 'mlp' and 'attn' return.",
    )


def test_a_layer_with_other_factors_is_set_against_the_rest() -> None:
    blocks = _same(_attention(), _mlp())
    blocks[2] = _block(3, _attention(keep=2.0), _mlp(-1.0))
    assert _anatomy(blocks).unusual == (
        "Layer 3 keeps 2 x the stream where 'attn' writes (the skip is added twice); the other "
        "layers keep 1 x.",
        "Layer 3 adds -1 x what 'mlp' returns; the other layers add 1 x.",
    )


def test_a_sum_that_is_multiplied_as_a_whole_is_read_as_such() -> None:
    assert _anatomy(_same(_attention(), _mlp(0.5, 0.5))).unusual == (
        "Every layer multiplies the stream by 0.5 after 'mlp' has written.",
    )


def test_many_factors_are_given_by_their_range() -> None:
    blocks = [_block(n, _attention(1 / n), _mlp(1 / (n + 1))) for n in range(1, 9)]
    assert _anatomy(blocks).unusual == (
        "Each layer adds what 'attn' and 'mlp' return with a factor of its own, 0.111111 (layer 8) "
        "to 1 (layer 1).",
    )


def test_a_learned_gain_in_some_layers_only_is_said() -> None:
    blocks = [*_same(_attention(), _mlp(), depth=3), _block(4, _attention("gamma"), _mlp())]
    assert _anatomy(blocks).unusual == (
        "Layer 4 multiplies what 'attn' returns by the parameter 'gamma'; the other layers add 1 x.",
    )


def test_the_skip_of_a_parallel_block_is_read_off_the_whole_sum() -> None:
    # The anatomy splits 2 x + a + m into x + a / 2, then twice that plus m.
    blocks = _same(_attention(0.5), _mlp(1.0, 2.0, parallel=True))
    assert _anatomy(blocks).unusual == (
        "Every layer keeps 2 x the stream where 'attn' writes (the skip is added twice).",
    )


# --- norms and writes ------------------------------------------------------------------------


def test_a_norm_after_the_addition_is_odd_only_in_some_layers() -> None:
    blocks = _same(_attention(), _mlp())
    blocks[0] = _block(1, _attention(settle="ln1"), _mlp(settle="ln2"))
    assert _anatomy(blocks).unusual == (
        "The stream of layer 1 goes through 'ln1' and 'ln2' after an addition; in the other "
        "layers it does not.",
    )


def test_more_writes_than_most_are_said() -> None:
    blocks = _same(_attention(), _mlp())
    blocks[1] = _block(2, _attention(), Sublayer(2, "cross-attention", "cross"), _mlp())
    assert _anatomy(blocks).unusual == (
        "In layer 2 'attn', 'cross' and 'mlp' write; in layers 1, 3 and 4 'attn' and 'mlp' do.",
    )


def test_writes_of_exactly_zero_are_said_of_any_anatomy() -> None:
    zero = tuple(("decoder", layer, 2) for layer in (1, 2, 3))
    balance = Balance(0.0, "decoder", 1, "float32", 4, zero=zero)
    anatomy = _anatomy(_same(_attention(), _mlp()), "user").proved(balance)
    assert anatomy.unusual == ("What 'mlp' adds to the stream is exactly 0 in layers 1 to 3.",)


def test_with_several_stacks_each_sentence_names_its_own() -> None:
    usual, odd = _same(_attention(), _mlp()), _same(_attention(), _mlp(0.5))
    both = (Stack("encoder", tuple(usual), 8), Stack("decoder", tuple(odd), 8))
    assert Anatomy(both, "discovery").unusual == (
        "decoder: Every layer adds 0.5 x what 'mlp' returns.",
    )


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([3], "layer 3"),
        ([1, 2], "layers 1 and 2"),
        ([1, 2, 3, 7], "layers 1 to 3 and 7"),
        ([1, 3, 5], "layers 1, 3 and 5"),
        (range(1, 9), "every layer"),
    ],
)
def test_layers_are_named_briefly(layers: Sequence[int], words: str) -> None:
    assert layers_in_words(layers, 8) == words


# --- where it is shown -----------------------------------------------------------------------

SENTENCE = "Every layer adds 0.5 x what 'mlp' returns."


class _Halved(nn.Module):
    """x + attention(x), then x + mlp(x) / 2."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = MeanAttention(0.5), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + 0.5 * self.mlp(x)


def test_the_sentences_stand_near_the_top_wherever_a_record_is_shown(tmp_path: Path) -> None:
    from leadline.reading.page import as_json

    model = nn.Sequential(nn.Sequential(*(_Halved() for _ in range(3))))
    record = leadline.measure(model, torch.randn(2, 5, 8), loss="random")
    anatomy = leadline.anatomy_of(model, torch.randn(2, 5, 8))
    assert str(anatomy).splitlines()[2] == f"unusual: {SENTENCE}"
    assert anatomy.to_json()["unusual"] == [SENTENCE]
    # The first line says that the gradients are of no loss.
    assert str(record).splitlines()[2] == f"unusual: {SENTENCE}"
    assert as_json(record)["anatomy"]["unusual"] == [SENTENCE]
    page = leadline.report(record, tmp_path / "page.html").read_text()
    assert "<p>Unusual: Every layer adds 0.5 x what" in page
