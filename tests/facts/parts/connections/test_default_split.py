"""What a connection gets for nothing when it writes `write` alone."""

import torch

import leadline
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.place import Place


class Curved(Connection):
    """x + tanh(u) + x / 4: its zero update still changes the stream."""

    def write(self, state, update):
        return state + torch.tanh(update) + 0.25 * state


def test_what_a_zero_update_leaves_is_kept_and_the_rest_is_written():
    x, u = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    kept, written = Curved(Place(4, 1, 2, 1)).split(x, u)
    assert torch.equal(kept, x + 0.25 * x)
    assert torch.allclose(written, torch.tanh(u), atol=1e-6)


def test_a_connection_of_one_method_is_measured(monkeypatch):
    monkeypatch.setitem(CONNECTIONS._entries, "curved", Curved)
    model = leadline.Transformer(depth=3, width=16, heads=2, connection="curved", init="xavier")
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    record = leadline.measure(model, inputs, probes="update")
    assert record.provenance["anatomy"]["balance_eps"] <= 4
    assert record["update.norm[mlp]"].first > 0
