"""log Z is taken of logits and of nothing else."""

from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from leadline.lab.watch.sampling.outputs import log_z, logits_in, loss_in, vocabulary_sizes
from leadline.lab.watch.watch import watch
from tests.plain_gpt import PlainGPT

LOGITS, HIDDEN, LOSS = torch.randn(2, 5, 97), torch.randn(2, 5, 48), torch.tensor(1.0)
Named = namedtuple("Named", "loss logits")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (LOGITS, LOGITS),
        (SimpleNamespace(logits=LOGITS), LOGITS),
        (Named(LOSS, LOGITS), LOGITS),
        ({"loss": LOSS, "logits": LOGITS}, LOGITS),
        ({"scores": LOGITS, "states": HIDDEN}, LOGITS),
        ((LOSS, LOGITS), LOGITS),
        ((HIDDEN, LOGITS), LOGITS),
        ([LOGITS, LOSS], LOGITS),
        ({"logits": HIDDEN}, HIDDEN),  # a head of its own, such as labels of tokens
        (HIDDEN, None),
        ((HIDDEN, LOSS), None),
        (SimpleNamespace(last_hidden_state=HIDDEN), None),
        ({"last_hidden_state": HIDDEN}, None),
        (SimpleNamespace(logits=torch.randn(2, 7)), None),
        (LOGITS.long(), None),
        (LOSS, None),
        (None, None),
    ],
)
def test_logits_are_found(output, expected):
    assert logits_in(output, {97}) is expected


def test_no_width_is_taken_for_a_vocabulary():
    model = nn.ModuleList([nn.Embedding(97, 48), nn.Embedding(48, 48)])
    assert vocabulary_sizes(model, {48}) == {97}
    model.config = SimpleNamespace(vocab_size=100)
    assert vocabulary_sizes(model, {48}) == {97, 100}
    assert vocabulary_sizes(nn.Linear(2, 2), set()) == set()


def test_log_z_is_a_mean_over_tokens():
    value, tokens = log_z(LOGITS)
    assert tokens == 10
    assert float(value) == pytest.approx(float(LOGITS.logsumexp(-1).mean()), rel=1e-6)


@pytest.mark.parametrize("output", [LOSS, {"loss": LOSS}, SimpleNamespace(loss=LOSS)])
def test_a_loss_is_found(output):
    assert loss_in(output) is LOSS


def test_no_loss_is_found_where_there_is_none():
    assert loss_in(HIDDEN) is None and loss_in({"loss": HIDDEN}) is None


class Returning(PlainGPT):
    """Returns its logits in some form, or the states behind its last norm."""

    def __init__(self, form):
        super().__init__(["none", "none"])
        self.form = form

    def forward(self, idx):
        states = self.wte(idx)
        for block in self.h:
            states = block(states)
        states = self.ln(states)
        return self.form(states, self.head)


@pytest.mark.parametrize(
    ("form", "read"),
    [
        (lambda states, head: states, False),
        (lambda states, head: {"last_hidden_state": states}, False),
        (lambda states, head: (states, head(states)), True),
        (lambda states, head: {"predictions": head(states)}, True),
    ],
)
def test_a_watch_has_log_z_where_there_is_a_head(form, read):
    torch.manual_seed(0)
    model = Returning(form)
    optimizer = torch.optim.SGD(model.parameters())
    one = watch(model, optimizer, every=1, quiet=True)
    output = model(torch.zeros(2, 5, dtype=torch.long))
    values = output.values() if isinstance(output, dict) else output
    last = output if isinstance(output, torch.Tensor) else list(values)[-1]
    last.square().mean().backward()
    optimizer.step()
    one.close()
    assert one.notes == []
    rows = list(one.record.select("output.log_z"))
    assert len(rows) == read
    if read:
        assert rows[0].value == pytest.approx(last.detach().logsumexp(-1).mean().item(), rel=1e-5)
