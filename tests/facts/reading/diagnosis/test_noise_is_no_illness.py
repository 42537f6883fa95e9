"""What looks odd and is noise: dropped passes, biases that nothing reads, gains too small to fit."""

import pytest
import torch

import leadline as ll
from leadline.testing.faults import make
from leadline.testing.faults.controls import control

transformers = pytest.importorskip("transformers")


def codes(model, inputs):
    return [one.code for one in ll.diagnose(model, inputs).findings if one.severity != "note"]


def test_random_passes_are_named_as_such_and_not_as_wrong_positions():
    case = make("dropout-always-on", "recipe-rotary-12", 422)
    assert codes(case.model, case.inputs) == ["T01"]


@pytest.mark.parametrize(("size", "expected"), [(1e-3, []), (1.0, ["W02"])])
def test_a_bias_below_the_entries_of_its_matrix_is_not_out_of_scale(size, expected):
    config = transformers.GPT2Config(
        vocab_size=100,
        n_positions=64,
        n_embd=64,
        n_layer=6,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for at, block in enumerate(model.transformer.h):
            block.mlp.c_fc.bias.normal_(std=size if at == 2 else 1e-5)
    ids = torch.randint(3, 100, (2, 32), generator=torch.Generator().manual_seed(1))
    assert codes(model, ids) == expected


def test_gains_of_a_small_layer_scale_are_equal_within_what_a_fit_can_tell():
    drawn = control("sound_design/layer-scale-seed_oss")
    model = drawn.build(0)
    assert codes(model, drawn.inputs(model, 1)) == []
