"""Which of two models has vanishing gradients, and where: against gradients by plain autograd."""

import math
import re

import pytest
import torch
from torch import nn

import leadline as ll
from leadline.record.words.course import FAR

DEPTH = 24
IDS = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(3))


def model(**fields) -> ll.Transformer:
    torch.manual_seed(0)
    return ll.Transformer(depth=DEPTH, width=64, heads=4, **fields).eval()


def gradients(module: ll.Transformer) -> list[float]:
    """|dL/dx_l|_F at the stream before every block and behind the last, by hooks alone."""
    streams = []

    def keep(_, inputs, outputs):
        if not streams:
            streams.append(inputs[0])
        streams.append(outputs)
        for stream in streams:
            stream.retain_grad()

    hooks = [block.register_forward_hook(keep) for block in module.blocks]
    logits = module(IDS)
    for hook in hooks:
        hook.remove()
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    loss.backward()
    module.zero_grad()
    return [float(stream.grad.double().norm()) for stream in streams]


def change(values: list[float]) -> float:
    """The largest factor by which a gradient differs from that behind the last layer."""
    return max(max(value / values[-1], values[-1] / value) for value in values)


@pytest.fixture(scope="module")
def pair():
    return model(placement="post"), model(placement="pre")


def test_post_norm_of_the_default_recipe_has_no_vanishing_gradient_but_a_jump(pair):
    post, pre = (gradients(one) for one in pair)
    # The truth: neither changes by far, and in post-norm nearly all of it is the first block.
    assert change(post) < FAR and change(pre) < FAR
    assert change(post[1:]) < 2 < post[0] / post[1]
    records = [ll.measure(one, IDS) for one in pair]
    text = str(ll.compare(*records, names=["post", "pre"]))
    # The warning about untrained post-norm layers stands first.
    warning = text.splitlines()[1]
    assert warning.startswith("post: warning: D09: ")
    first = next(line for line in text.splitlines() if line.startswith("Neither"))
    assert first.startswith("Neither has vanishing or exploding gradients: in post the gradient")
    factor = float(f"{change(post):.2g}")
    assert f"grows {factor:g}-fold from layer {DEPTH} to layer 0" in first
    assert "most of it in the step from layer 1 to 0; in pre it" in first
    tenths = math.ceil(10 * change(pre))  # it stays within what is said
    assert first.endswith(f"in pre it keeps its size within a factor of {tenths / 10:g}.")


def test_a_model_without_skips_and_norms_is_named_as_the_one_with_vanishing_gradients(pair):
    bare, pre = model(connection="none", placement="none"), pair[1]
    values = gradients(bare)
    assert values[0] < values[-1] / FAR
    records = [ll.measure(one, IDS) for one in (bare, pre)]
    lines = str(ll.compare(*records, names=["bare", "pre"])).splitlines()
    first = next(line for line in lines if line.startswith("bare has"))
    assert first.startswith("bare has vanishing gradients, pre has not: in bare the gradient")
    # From some layer down the gradient is smaller than any float32, for the model as for us.
    words = (
        r"at the stream is 0, or too small to be kept, from layer (\d+) to layer 0; in pre it keeps"
    )
    named = re.search(words, first)
    assert named is not None
    gone = int(named[1])
    assert values[: gone + 1] == [0.0] * (gone + 1)
    assert 0 < values[gone + 1] < 1e-12 * values[-1]
