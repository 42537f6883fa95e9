"""Every specimen of the zoo is found and balances on fresh inputs, or is refused with a reason."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from leadline.anatomy import TOLERANCE, Anatomy, read_anatomy, untouched
from leadline.errors import AnatomyError
from leadline.instruments.passes.running import call
from leadline.models.inputs import as_inputs
from leadline.testing.zoo import ZOO, specimens

REFUSED = {
    "gemma3n_text": "is not its input plus outputs of its modules",
    "squeezebert": "the features stand before the places",
    "timesformer": "is not its input plus outputs of its modules",
}
"""AltUp predicts and corrects four lanes; features before tokens; tokens regrouped in the block."""

NEEDS_FAMILY = {
    "deepseek_v4",
    "doge",
    "flaubert",
    "glm5_next_text",
    "hy_v4",
    "muse_spark_text",
    "qwen4_exp_text",
    "xlm",
    "zaya",
}


UNUSUAL = {
    "beam": 2,
    "gemma4_text": 1,
    "gemma4_text-moe": 1,
    "granite": 1,
    "granitemoe": 1,
    "granitemoehybrid": 1,
    "hyperclovax": 1,
    "minicpm3": 1,
    "minimax": 4,
    "neomme": 1,
    "rwkv": 1,
    "wav2vec2-bert": 1,
    "wav2vec2-conformer": 1,
}
"""How many sentences the equations are worth: factors other than 1, or a norm on the skip."""


@functools.cache
def _read(name: str, *, families: bool = True) -> Anatomy:
    specimen = ZOO[name]
    model = specimen.build(0).eval()
    fit, fresh = (as_inputs(specimen.inputs(model, seed), model) for seed in (1, 2))
    with untouched(model):
        return read_anatomy(
            model, lambda: call(model, fit), lambda: call(model, fresh), families=families
        )


@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_books_balance_on_every_block_of_a_fresh_batch(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(AnatomyError, match=REFUSED[name]):
            _read(name)
        return
    anatomy = _read(name)
    assert anatomy.balance is not None
    assert anatomy.balance.eps <= TOLERANCE
    assert anatomy.balance.layers == sum(stack.depth for stack in anatomy.stacks)
    assert not anatomy.balance.unjudged
    # An update that rounding hides would balance whatever was read.
    assert anatomy.balance.faintest > 1000


@pytest.mark.parametrize("name", sorted(set(ZOO) - set(REFUSED)))
def test_only_unusual_equations_are_remarked_upon(name: str) -> None:
    assert len(_read(name).unusual) == UNUSUAL.get(name, 0)


@pytest.mark.parametrize("name", sorted(set(ZOO) - set(REFUSED) - NEEDS_FAMILY))
def test_discovery_alone_is_enough(name: str) -> None:
    anatomy = _read(name, families=False)
    assert anatomy.source == "discovery"
    assert anatomy.balance is not None and anatomy.balance.eps <= TOLERANCE


@pytest.mark.parametrize("name", sorted(NEEDS_FAMILY))
def test_without_its_family_file_it_is_refused(name: str) -> None:
    with pytest.raises(AnatomyError):
        _read(name, families=False)


def test_enough_kinds_of_models_balance() -> None:
    types = {name.split("-")[0] for name in set(ZOO) - set(REFUSED)}
    assert len(types) >= 120
    for trait, least in {
        "parallel": 3,
        "post": 3,
        "sandwich": 3,
        "output": 2,
        "moe": 2,
        "lanes": 1,
    }.items():
        balanced = [s for s in specimens(trait=trait) if s.name not in REFUSED]
        assert len(balanced) >= least


def _blocks(anatomy: Anatomy) -> list[Any]:
    return [block for stack in anatomy.stacks for block in stack.blocks]


@pytest.mark.parametrize("placement", ["post", "sandwich", "output"])
def test_the_placement_read_is_the_one_the_specimen_has(placement: str) -> None:
    for specimen in specimens(trait=placement):
        if specimen.name in REFUSED:
            continue
        found = {s.placement for b in _blocks(_read(specimen.name)) for s in b.sublayers}
        assert any(placement in p for p in found), (specimen.name, found)


def test_parallel_blocks_are_seen_as_parallel() -> None:
    for specimen in specimens(trait="parallel"):
        assert any(b.parallel for b in _blocks(_read(specimen.name))), specimen.name
    for name in ("gpt2", "llama", "bert", "t5", "falcon-sequential", "gpt_neox-sequential"):
        assert not any(b.parallel for b in _blocks(_read(name))), name


def test_gains_are_read_unaided() -> None:
    gains = {s.gain for b in _blocks(_read("granite")) for s in b.sublayers}
    assert gains == {0.22}
    first = _blocks(_read("beam"))[0].sublayers[0]
    # Running mean of the k-th addition: sqrt((k-1)/k) x + sqrt(1/k) u, k = 2 at the first write.
    assert first.keep == pytest.approx(0.5**0.5, rel=1e-6)
    assert first.gain == pytest.approx(0.5**0.5, rel=1e-6)


def test_lanes_are_counted() -> None:
    for name in ("deepseek_v4", "hy_v4", "qwen4_exp_text", "glm5_next_text"):
        assert _read(name).stacks[0].lanes > 1, name
    assert _read("llama").stacks[0].lanes == 1


def test_one_module_that_serves_all_layers_is_as_deep_as_it_is_called() -> None:
    stack = _read("albert").stacks[0]
    assert stack.shared
    assert stack.depth == 4
    assert len({block.module for block in stack.blocks}) == 1


def test_an_encoder_decoder_has_two_streams_and_cross_attention() -> None:
    for name in ("t5", "bart", "whisper", "fsmt"):
        anatomy = _read(name)
        assert [stack.name for stack in anatomy.stacks] == ["encoder", "decoder"]
        encoder, decoder = anatomy.stacks
        assert [s.role for s in encoder.blocks[0].sublayers] == ["attention", "mlp"]
        assert [s.role for s in decoder.blocks[0].sublayers] == [
            "attention",
            "cross-attention",
            "mlp",
        ]
        assert encoder.causal is False and decoder.causal is True


def test_tokens_before_examples_are_noticed() -> None:
    assert _read("xlnet").stacks[0].token_axis == 0
    assert _read("bert").stacks[0].token_axis == 1


def test_updates_are_what_modules_returned_and_their_parameters_are_disjoint() -> None:
    for name in ("gpt2", "olmo2", "bert", "gptj", "mixtral", "t5", "gemma2"):
        model = ZOO[name].build(0)
        modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
        owners = [p for b in _blocks(_read(name)) for s in b.sublayers for p in s.parameters]
        assert len(owners) == len(set(owners))
        assert set(owners) <= set(parameters)
        inside = {
            p for p in parameters for b in _blocks(_read(name)) if p.startswith(f"{b.module}.")
        }
        assert inside == set(owners), name
        for block in _blocks(_read(name)):
            assert all(s.module in modules for s in block.sublayers)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "bert", "olmo2", "gptj", "granite", "t5", "deepseek_v4", "beam"]
)
def test_half_precision_balances_to_its_own_rounding(name: str, dtype: torch.dtype) -> None:
    specimen = ZOO[name]
    model = specimen.build(0).eval().to(dtype)
    fit, fresh = (as_inputs(specimen.inputs(model, seed), model) for seed in (1, 2))
    with untouched(model):
        anatomy = read_anatomy(model, lambda: call(model, fit), lambda: call(model, fresh))
    assert anatomy.balance is not None
    assert anatomy.balance.dtype == str(dtype).removeprefix("torch.")
    assert anatomy.balance.eps <= TOLERANCE
    # The same writes as in float32, gains included.
    full = _read(name)
    assert [[s.module for s in b.sublayers] for b in _blocks(anatomy)] == [
        [s.module for s in b.sublayers] for b in _blocks(full)
    ]
    for half, single in zip(_blocks(anatomy), _blocks(full), strict=True):
        for a, b in zip(half.sublayers, single.sublayers, strict=True):
            assert a.gain == pytest.approx(b.gain, rel=1e-2)
