"""The gradient at the stream is that of the backward passes that train, whatever else a loop asks."""

import pytest
import torch
from torch.nn import functional as F

from leadline.lab.watch.watch import watch
from tests.plain_gpt import PlainGPT


def cross_entropy(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def small(logits):
    return 0.1 * logits.square().mean()


def one_loss(model, tokens):
    cross_entropy(model(tokens), tokens).backward()


def sum_of_two(model, tokens):
    logits = model(tokens)
    (cross_entropy(logits, tokens) + small(logits)).backward()


def two_losses(model, tokens):
    logits = model(tokens)
    cross_entropy(logits, tokens).backward(retain_graph=True)
    small(logits).backward()


def two_losses_of_a_graph_that_stays(model, tokens):
    logits = model(tokens)
    cross_entropy(logits, tokens).backward(retain_graph=True)
    small(logits).backward(retain_graph=True)


def list_of_losses(model, tokens):
    logits = model(tokens)
    torch.autograd.backward([cross_entropy(logits, tokens), small(logits)])


def one_loss_of_a_graph_that_stays(model, tokens):
    cross_entropy(model(tokens), tokens).backward(retain_graph=True)


def differentiated_before(model, tokens):
    loss = cross_entropy(model(tokens), tokens)
    torch.autograd.grad(loss, model.wte.weight, retain_graph=True)
    loss.backward()


def inner_loop_before(model, tokens):
    for _ in range(2):
        other = cross_entropy(model(tokens.flip(1)), tokens)
        torch.autograd.grad(other, list(model.parameters()))
    cross_entropy(model(tokens), tokens).backward()


def trained_by_hand(model, tokens):
    loss = cross_entropy(model(tokens), tokens)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient


def failed_before(model, tokens):
    def fail(_):
        raise ZeroDivisionError

    loss = cross_entropy(model(tokens.flip(1)), tokens)
    handle = model.h[0].ln1.weight.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    handle.remove()
    model.zero_grad()
    cross_entropy(model(tokens), tokens).backward()


def looked_at_before(model, tokens):
    model(tokens.flip(1)).sum().item()
    one_loss(model, tokens)


def adversarial(model, tokens, *, edge):
    """Look for the worst shift of the embeddings, as adversarial training does, then train."""
    shift = torch.zeros(8, model.wte.embedding_dim, requires_grad=True)
    handle = model.wte.register_forward_hook(lambda *call: call[-1] + shift)
    asked = torch.autograd.graph.get_gradient_edge(shift) if edge else shift
    (100 * cross_entropy(model(tokens.flip(1)), tokens)).backward(inputs=[asked])
    handle.remove()
    assert shift.grad.any()
    one_loss(model, tokens)


def asked_for_an_input_before(model, tokens):
    adversarial(model, tokens, edge=False)


def asked_for_an_edge_before(model, tokens):
    adversarial(model, tokens, edge=True)


def trained_by_inputs(model, tokens):
    loss = cross_entropy(model(tokens), tokens)
    loss.backward(inputs=list(model.parameters()))


def rows(passes):
    """Every reading of the stream in one update that is made of these passes, and the notes."""
    torch.manual_seed(0)
    model = PlainGPT(["none", "none"])
    optimizer = torch.optim.AdamW(model.parameters())
    one = watch(model, optimizer, every=1, quiet=True)
    passes(model, torch.randint(97, (4, 8)))
    optimizer.step()
    one.close()
    read = {
        name: {row.site: row.value for row in one.record.select(name)}
        for name in ("gradient.stream", "stream.norm")
        if name in one.record
    }
    assert len(one.record.select("gradient.stream")) == len(read["gradient.stream"])
    return read, one.notes


@pytest.mark.parametrize(
    ("passes", "same_as"),
    [
        (two_losses, sum_of_two),
        (two_losses_of_a_graph_that_stays, sum_of_two),
        (list_of_losses, sum_of_two),
        (one_loss_of_a_graph_that_stays, one_loss),
        (differentiated_before, one_loss),
        (inner_loop_before, one_loss),
        (trained_by_hand, one_loss),
        (failed_before, one_loss),
        (looked_at_before, one_loss),
        (asked_for_an_input_before, one_loss),
        (asked_for_an_edge_before, one_loss),
        (trained_by_inputs, one_loss),
    ],
    ids=lambda one: one.__name__,
)
def test_passes_are_read_as_what_trains(passes, same_as):
    (read, notes), (expected, _) = rows(passes), rows(same_as)
    # Those of parameters came by no backward; those of the stream are read all the same.
    by_hand = passes is trained_by_hand
    assert ["no call of backward()" in one for one in notes] == ([True] if by_hand else [])
    for name, values in expected.items():
        assert len(values) == 3
        assert read[name] == pytest.approx(values, rel=1e-5), name


def test_a_pass_that_no_backward_goes_through_is_told():
    kept = []

    def unused(model, tokens):
        kept.append(model(tokens.flip(1)))
        one_loss(model, tokens)

    read, notes = rows(unused)
    assert read["gradient.stream"] == {}
    assert ["No backward pass" in note for note in notes] == [True]
