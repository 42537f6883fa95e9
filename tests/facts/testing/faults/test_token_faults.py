"""Faults of attention and positions, seen from outside: which output moves when a token changes."""

import pytest
import torch

from leadline.testing.faults import host, make
from leadline.testing.faults.kernels import attend, causal


def logits(model, inputs):
    with torch.no_grad():
        output = model(**inputs)
    output = output if isinstance(output, torch.Tensor) else output.logits
    return output.double()


def moved(case, *, token=10, example=0):
    """[example, token] how far each logit vector moves when one token is changed."""
    ((name, ids),) = case.inputs.tensors.items()
    other = ids.clone()
    other[example, token] = (other[example, token] + 7) % 190
    difference = logits(case.model, {name: other}) - logits(case.model, {name: ids})
    return difference.abs().amax(-1)


class Healthy:
    """A healthy host in the form of a case."""

    def __init__(self, name):
        self.model = host(name).build(0)
        self.inputs = host(name).inputs(self.model, 1)


CAUSAL = ["gpt2", "gemma2", "gpt_neox", "recipe-llama", "nano-gpt"]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_healthy_decoder_moves_from_the_changed_token_on_in_its_own_example(name):
    far = moved(Healthy(name))
    assert float(far[0, :10].max()) == 0
    assert float(far[0, 10:].min()) > 0
    assert float(far[1:].max()) == 0


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(
    "fault",
    ["mask-removed", "mask-removed-one-layer", "softmax-over-queries", "softmax-over-heads"],
)
def test_without_a_mask_all_tokens_before_the_changed_one_move(fault, name):
    far = moved(make(fault, name, 0))
    assert float(far[0, :10].min()) > 0
    assert float(far[1:].max()) == 0


@pytest.mark.parametrize("name", CAUSAL)
def test_a_mask_one_token_too_wide_leaks_a_token_per_layer(name):
    far = moved(make("mask-one-ahead", name, 0))[0]
    depth = len(make("mask-one-ahead", name, 0).model.get_submodule(host(name).layout.outer.blocks))
    reached = max(0, 10 - depth)
    assert float(far[reached:10].min()) > 0
    assert not far[:reached].any()


@pytest.mark.parametrize("name", CAUSAL)
def test_a_window_of_two_reaches_a_token_per_layer(name):
    case = make("window-of-two", name, 0)
    depth = len(case.model.get_submodule(host(name).layout.outer.blocks))
    far = moved(case)[0]
    assert float(far[:10].max()) == 0
    assert float(far[10 : 10 + depth + 1].min()) > 0
    assert float(far[10 + depth + 1 :].max()) == 0


@pytest.mark.parametrize("name", ["gpt2", "recipe-llama", "nano-llama"])
def test_examples_see_each_other_where_batch_and_token_are_exchanged(name):
    far = moved(make("attention-over-examples", name, 0))
    assert float(far[1:, 10].min()) > 0
    assert float(far[:, 11:].max()) == 0


@pytest.mark.parametrize("name", ["llama", "bert", "recipe-post", "nano-gpt"])
def test_examples_see_each_other_where_a_norm_runs_over_them(name):
    far = moved(make("norm-over-examples", name, 0))
    assert float(far[1:].max()) > 0


@pytest.mark.parametrize("name", ["llama", "recipe-pre", "nano-gpt"])
def test_heads_split_without_transpose_see_a_quarter_of_the_text_each(name):
    """24 tokens and 4 heads: the second head holds tokens 6 to 11."""
    far = moved(make("heads-split-without-transpose", name, 0), token=7)
    assert torch.nonzero(far).tolist() == [[0, token] for token in range(7, 12)]


@pytest.mark.parametrize("name", ["llama", "recipe-pre", "nano-gpt"])
def test_heads_merged_without_transpose_give_tokens_what_belongs_to_others(name):
    far = moved(make("heads-merged-without-transpose", name, 0), token=20)
    assert float(far[0, :20].max()) > 0
    assert float(far[1:].max()) == 0


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_without_positions_permuted_tokens_only_permute_the_output(name):
    case = make("positions-all-equal", name, 0)
    ((argument, ids),) = case.inputs.tensors.items()
    order = torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))
    plain, permuted = (logits(case.model, {argument: x}) for x in (ids, ids[:, order]))
    torch.testing.assert_close(permuted, plain[:, order], atol=1e-5, rtol=0)
    healthy = host(name).build(0)
    plain, permuted = (logits(healthy, {argument: x}) for x in (ids, ids[:, order]))
    assert float((permuted - plain[:, order]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "recipe-llama", "nano-llama"])
def test_a_rotation_that_is_lost_is_that_of_position_zero(name):
    """With one token there is nothing to turn, so the fault must leave its output as it was."""
    for fault in ("rotation-lost", "keys-not-rotated"):
        case = make(fault, name, 0)
        ((argument, ids),) = case.inputs.tensors.items()
        one = {argument: ids[:, :1]}
        healthy = host(name).build(0)
        torch.testing.assert_close(logits(case.model, one), logits(healthy, one))


def test_weights_of_a_query_sum_to_one_only_over_the_right_axis():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 4, 6, 8, generator=generator) for _ in range(2))
    ones = torch.ones(2, 4, 6, 1)
    allowed = causal(6)
    right = attend(q, k, ones, allowed, 0.5, None)
    torch.testing.assert_close(right, torch.ones_like(right))
    for axis in (-2, 1):
        wrong = attend(q, k, ones, allowed, 0.5, None, axis=axis)
        assert float((wrong - 1).abs().max()) > 0.1


def test_the_textbook_kernel_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 6, 8, generator=generator) for _ in range(3))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    torch.testing.assert_close(attend(q, k, v, causal(6), 0.3, None), wanted)


def test_scales_of_the_logits():
    assert make("scale-dropped", "llama", 0).model.model.layers[3].self_attn.scaling == 1
    assert make("scale-squared", "llama", 0).model.model.layers[3].self_attn.scaling == 1 / 16
    assert host("llama").build(0).model.layers[3].self_attn.scaling == 1 / 4
