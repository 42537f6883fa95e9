"""leadline.paths on models that are written otherwise: followed rightly, or refused in a sentence.

Each of these gave wrong lengths or counts without a remainder: components in the wrong place add up
as well as those in the right one.
"""

import json
import math
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leadline
from leadline.errors import InputError, ProbeError

WIDTH, HEADS, TOKENS, EXAMPLES = 16, 4, 6, 2
X = torch.randn(EXAMPLES, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0)).double()


class Attention(nn.Module):
    """softmax(q k' / 2) v, written in several ways."""

    def __init__(self, way="plain"):
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.way = way

    def apart(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(-2, -3)

    def forward(self, x, memory=None):
        q, k, v = (self.apart(part(x)) for part in (self.query, self.key, self.value))
        if memory is not None:
            v = memory.setdefault("value", v)
        mixed = getattr(self, self.way)(q, k, v)
        return self.output(mixed.transpose(-2, -3).flatten(-2))

    def pattern(self, q, k):
        return (q @ k.transpose(-1, -2) / 2).softmax(-1)

    def plain(self, q, k, v):
        return self.pattern(q, k) @ v

    def heads_outside(self, q, k, v):
        pattern, v = self.pattern(q, k).transpose(0, 1), v.transpose(0, 1)
        return torch.einsum("hbij,hbjd->hbid", pattern.contiguous(), v).transpose(0, 1)

    def one_by_one(self, q, k, v):
        pattern = self.pattern(q, k)
        return torch.stack([pattern[:, h] @ v[:, h] for h in range(HEADS)], 1)

    def in_pieces(self, q, k, v):
        return torch.cat([self.pattern(one, k) @ v for one in q.split(2, -2)], -2)

    def among_rows(self, q, k, v):
        k, v = (one[:, :1].expand(one.shape) for one in (k, v))
        folded = self.pattern(q.flatten(1, 2), k[:, 0]) @ v[:, 0]
        return folded.view(q.shape)

    def one_key_value(self, q, k, v):
        return self.pattern(q, k[:, :1]) @ v[:, :1]

    def by_hand(self, q, k, v):
        return (self.pattern(q, k).unsqueeze(-2) * v.transpose(-1, -2).unsqueeze(-3)).sum(-1)

    def linear(self, q, k, v):
        return q @ (k.transpose(-1, -2) @ v) / TOKENS

    def einsum(self, q, k, v):
        return torch.einsum("bhij,bhjd->bhid", self.pattern(q, k), v)


class Windows(Attention):
    def forward(self, x):
        return super().forward(x.reshape(-1, TOKENS // 2, WIDTH)).view_as(x)


class Two(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.one, self.other = Attention(), Attention(way)

    def forward(self, x):
        return self.one(x) + self.other(x)


class WithMean(Attention):
    def forward(self, x):
        return super().forward(x) + x.transpose(1, 2).mean(-1).unsqueeze(1)


class ByColumns(Attention):
    """Linear attention beside a plain one, its product with k' v written out feature by feature."""

    def plain(self, q, k, v):
        made = k.transpose(-1, -2) @ v
        columns = [(q * made[..., at].unsqueeze(2)).sum(-1) for at in range(made.shape[-1])]
        return super().plain(q, k, v) + torch.stack(columns, -1)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Excited(MLP):
    """A gate made of the mean token."""

    def forward(self, x):
        return super().forward(x) * x.mean(1, keepdim=True).sigmoid()


class OfTheMean(nn.Module):
    """A linear map whose weights are made of the mean token."""

    def __init__(self):
        super().__init__()
        self.make, self.down = nn.Linear(WIDTH, WIDTH**2), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.down(x @ self.make(x).tanh().mean(1).view(-1, WIDTH, WIDTH) / 4)


class Experts(nn.Module):
    """One expert for each token, its weights gathered."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.weights = nn.Parameter(torch.randn(3, WIDTH, WIDTH) / 4)

    def forward(self, x):
        chosen = self.weights[self.router(x).argmax(-1).flatten()]
        return torch.bmm(x.flatten(0, 1).unsqueeze(1), chosen).view_as(x)


class Block(nn.Module):
    def __init__(self, attention=None, mlp=None, parallel=False):
        super().__init__()
        self.first, self.second, self.parallel = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), parallel
        if attention is not None:
            self.attention = attention
        if mlp is not None:
            self.mlp = mlp

    def forward(self, x, memory=None):
        extra = {} if memory is None else {"memory": memory}
        if self.parallel:
            return x + self.attention(self.first(x)) + self.mlp(self.second(x))
        if hasattr(self, "attention"):
            x = x + self.attention(self.first(x), **extra)
        return x + self.mlp(self.second(x)) if hasattr(self, "mlp") else x


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.layers = nn.ModuleList(blocks)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Sharing(Net):
    """Blocks that share a dictionary: all of them take the values of the first."""

    def forward(self, x):
        memory = {}
        for layer in self.layers:
            x = layer(x, memory=memory)
        return x


def net(attention=Attention, mlp=MLP, *, depth=3, kind=Net, **options):
    torch.manual_seed(1)
    return kind([Block(attention(), mlp(), **options) for _ in range(depth)]).double().eval()


def refused(model, x=X, **options):
    with pytest.raises((ProbeError, InputError)) as caught:
        leadline.paths(model, x, **options)
    return str(caught.value)


# --- the same forward pass ------------------------------------------------------------------------


def test_blocks_that_share_a_dictionary_are_run_as_they_are():
    model = net(kind=Sharing)
    found = leadline.paths(model, X).paths
    assert found.output.norm == pytest.approx(float(model(X).detach().norm()), rel=1e-12)


def test_layers_that_share_values_have_fewer_paths():
    found = leadline.paths(net(kind=Sharing), X, samples=2).paths
    # Every value is that of the first layer, so no path has two hops.
    assert found.counts == (1, 12, 0, 0)
    assert found.norm_share[2:] == (0, 0) and found.norm_share[1] > 0
    assert found.sampled is None
    assert "Layers share values" in " ".join(found.remarks)


def test_a_pass_that_depends_on_the_kind_of_its_tensors_is_refused():
    class Suspicious(MLP):
        def forward(self, x):
            return super().forward(x) * (1 if type(x) is torch.Tensor else 2)

    said = refused(net(mlp=Suspicious))
    assert "differs from the model's own: the stream after the last layer is off by" in said


def test_a_head_that_depends_on_the_kind_of_its_tensors_is_refused():
    class Odd(Net):
        def forward(self, x):
            x = super().forward(x)
            return x if type(x) is torch.Tensor else 1.001 * x

    assert "the output is off by 0.001 of a token's size" in refused(net(kind=Odd))


# --- what is a hop --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: net(lambda: Attention("linear")), "no attention pattern over tokens"),
        (
            lambda: net(lambda: Attention("by_hand")),
            "'mul' in 'layers.0.attention' gives it a factor",
        ),
        (lambda: net(lambda: Two("by_hand")), "'layers.0.attention.other' gives it a factor"),
        (lambda: net(lambda: Two("linear")), "'layers.0.attention.other' multiplies it"),
        (lambda: net(mlp=OfTheMean), "'bmm' in 'layers.0.mlp'"),
        (lambda: net(mlp=OfTheMean, parallel=True), "'bmm' in 'layers.0.mlp'"),
        (lambda: net(mlp=Experts), "'bmm' in 'layers.0.mlp'"),
        (lambda: net(mlp=Experts, parallel=True), "'bmm' in 'layers.0.mlp'"),
        (lambda: net(ByColumns), "'bmm' in 'layers.0.attention' gives it a factor"),
        (lambda: net(mlp=Excited), "'layers.0.mlp' gives it a factor that is neither a gate"),
        (lambda: net(WithMean), "'mean' in 'layers.0.attention' mixes tokens"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_no_pattern_times_values_is_refused(model, words):
    assert words in refused(model())


def test_a_block_without_attention_has_no_hops():
    blocks = [Block(Attention()), Block(mlp=Experts()), Block(Attention()), Block(mlp=Experts())]
    assert "'bmm' in 'layers.1.mlp'" in refused(Net(blocks).double())


def test_a_hop_where_the_anatomy_sees_no_mixing_is_refused():
    from dataclasses import replace

    model = net(depth=2)
    known = leadline.anatomy_of(model, X)
    stack = known.stacks[0]
    blocks = [
        replace(b, sublayers=tuple(replace(s, role="mlp") for s in b.sublayers))
        for b in stack.blocks
    ]
    known = replace(known, stacks=(replace(stack, blocks=tuple(blocks)),))
    assert "which by the anatomy mixes no tokens" in refused(model, anatomy=known)


def test_mixing_without_a_hop_is_refused():
    from dataclasses import replace

    blocks = [Block(Attention()), Block(mlp=MLP()), Block(Attention()), Block(mlp=MLP())]
    model = Net(blocks).double()
    known = leadline.anatomy_of(model, X)
    stack = known.stacks[0]
    called = tuple(
        replace(b, sublayers=tuple(replace(s, role="mixer") for s in b.sublayers))
        for b in stack.blocks
    )
    assert leadline.paths(model, X, anatomy=known).paths.heads == (4, 4)
    known = replace(known, stacks=(replace(stack, blocks=called),))
    said = refused(model, anatomy=known)
    assert "In layer 2 'layers.1.mlp' mixes tokens, and no pattern computed from the stream" in said


def test_attention_by_hand_beside_a_plain_one_would_have_been_right_as_two():
    found = leadline.paths(net(lambda: Two("plain"), depth=2), X).paths
    assert found.heads == (8, 8) and found.counts == (1, 16, 64)


# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["heads_outside", "one_by_one", "in_pieces", "einsum"])
def test_the_layout_of_heads_changes_nothing(way):
    plain = leadline.paths(net(), X, samples=3).paths
    found = leadline.paths(net(lambda: Attention(way)), X, samples=3).paths
    assert found.heads == plain.heads == (4, 4, 4)
    assert found.counts == plain.counts == (1, 12, 48, 64)
    assert found.share == pytest.approx(plain.share, abs=1e-13)
    assert found.sampled.residual == pytest.approx(plain.sampled.residual, rel=1e-9)
    assert found.sampled.error == pytest.approx(plain.sampled.error, rel=1e-9)


def test_heads_among_the_rows_are_heads():
    plain = leadline.paths(net(lambda: Attention("one_key_value")), X, samples=3).paths
    found = leadline.paths(net(lambda: Attention("among_rows")), X, samples=3).paths
    assert found.heads == (4, 4, 4)
    assert found.sampled.residual == pytest.approx(plain.sampled.residual, rel=1e-9)


def test_windows_are_no_heads():
    found = leadline.paths(net(Windows), X, samples=3).paths
    assert found.heads == (4, 4, 4) and found.counts == (1, 12, 48, 64)
    assert found.sampled is not None


def test_heads_that_the_configuration_gives_otherwise_are_not_claimed():
    model = net(depth=2)
    model.config = types.SimpleNamespace(num_attention_heads=2)
    found = leadline.paths(model, X, samples=2).paths
    assert found.heads == (None, None) and found.counts is None and found.sampled is None
    text = str(found)
    assert "every pair of tokens meets 4 times in products and the configuration gives 2" in text
    assert "2 attention layers; float64" in text and " paths" not in text.splitlines()[3]
    assert json.loads(json.dumps(found.to_json()))["counts"] is None
    assert found.share == leadline.paths(net(depth=2), X).paths.share


def test_paths_that_give_exactly_nothing_are_mentioned():
    model = leadline.Transformer(depth=1, width=16, heads=4, vocabulary=20, mlp="none")
    with torch.no_grad():
        model.blocks[0].attention.branch.output.weight.zero_()
    found = leadline.paths(model, torch.arange(6)[None], samples=1).paths
    assert found.counts == (1, 4) and found.sampled is not None
    assert "All paths of length 1 give exactly nothing" in " ".join(found.remarks)


def test_keys_in_pieces_have_paths_and_no_samples():
    class Pieces(Attention):
        def plain(self, q, k, v):
            weights = self.pattern(q, k).split(3, -1)
            return sum(one @ part for one, part in zip(weights, v.split(3, -2), strict=True))

    found = leadline.paths(net(Pieces, depth=2), X, samples=1).paths
    assert found.counts == (1, 8, 16) and found.sampled is None
    assert found.share == pytest.approx(leadline.paths(net(depth=2), X).paths.share, abs=1e-13)
    assert "Samples: left out for that reason." in found.remarks


# --- behind the last block ------------------------------------------------------------------------


class Pooled(Net):
    """Attention behind the last block."""

    def __init__(self, blocks):
        super().__init__(blocks)
        self.pool, self.head = Attention(), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = super().forward(x)
        return types.SimpleNamespace(logits=self.head(x + self.pool(x)))


def test_attention_behind_the_last_block_has_rows_of_its_own():
    model = net(depth=2, kind=Pooled)
    found = leadline.paths(model, X, loss=lambda output, _: output.logits.square().mean()).paths
    assert found.depth == 2 and list(found.lengths) == [0, 1, 2, 3]
    assert len(found.logits.share) == len(found.loss_at_most) == 4
    assert math.fsum(found.logits.share) + found.logits.bias_total == pytest.approx(1, abs=1e-12)
    assert found.loss == pytest.approx(float(model(X).logits.detach().square().mean()), rel=1e-12)
    assert found.loss_at_most[-1] == pytest.approx(found.loss, rel=1e-10)
    lines = str(found).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("hops")) + 1
    rows = [line.split() for line in lines[start : start + 4]]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert len(rows[3]) == 3 and float(rows[3][2]) == pytest.approx(found.loss, rel=1e-3)
    assert "they have up to 3 hops; the counts are those of the stream" in str(found)


def test_losses_of_values_that_are_shared_have_all_rows():
    class Speaking(Sharing):
        def forward(self, x):
            return types.SimpleNamespace(logits=super().forward(x))

    model = net(kind=Speaking)
    found = leadline.paths(model, X, loss=lambda output, _: output.logits.square().mean()).paths
    assert len(found.loss_at_most) == 4
    assert found.loss_at_most[1:] == (found.loss_at_most[1],) * 3
    assert found.loss_at_most[3] == pytest.approx(found.loss, rel=1e-12)
    assert "hops" in str(found)


def test_a_loss_that_is_not_finite_is_mentioned():
    model = net(depth=2, kind=Pooled)
    found = leadline.paths(model, X, loss=lambda output, _: output.logits.sum() * math.nan).paths
    assert "Loss: 4 of 5 values are not finite." not in found.remarks
    assert "Loss: 5 of 5 values are not finite." in found.remarks
    json.dumps(found.to_json(), allow_nan=False)


# --- sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1.5, "3", True, -1])
def test_samples_are_whole_numbers(samples):
    assert f"samples is {samples!r}; give a whole number" in refused(net(depth=1), samples=samples)


def test_a_model_without_values_is_refused():
    said = refused(net(depth=1).to("meta"))
    assert "'layers.0.first.weight' is on the meta device" in said


def test_one_token_that_meets_itself_element_by_element_is_named():
    said = refused(net(lambda: Attention("einsum"), depth=2), X[:, :1])
    assert "multiplies its pattern element by element with the values of a single token" in said
    assert leadline.paths(net(depth=2), X[:, :1]).paths.heads == (4, 4)


def test_one_token_is_one_token():
    model = leadline.Transformer(depth=1, width=16, heads=2, vocabulary=20)
    text = str(leadline.paths(model, torch.tensor([[3]])).paths)
    assert "1 example, 1 token" in text and "1 tokens" not in text


def test_a_write_into_a_view_is_named_as_a_cause():
    class Writing(MLP):
        def forward(self, x):
            x = x.clone()
            x[:, 0].mul_(0.5)
            return super().forward(x)

    said = refused(net(mlp=Writing, depth=2))
    assert "'layers.0.mlp' writes in place" in said and "a view of the stream" in said


@pytest.mark.parametrize("way", ["itself", "part", "error"])
def test_an_encoder_is_advised_where_there_is_one(way):
    class Pair(nn.Module):
        def get_encoder(self):
            if way == "error":
                raise AttributeError("none")
            return self if way == "itself" else nn.Identity()

    from leadline.instruments.paths import refusals as pathway_refusals

    anatomy = types.SimpleNamespace(stacks=[types.SimpleNamespace(name=n) for n in ("a", "b")])
    with pytest.raises(ProbeError) as caught:
        pathway_refusals.one_stack(anatomy, Pair())
    assert ("get_encoder" in str(caught.value)) == (way == "part")
