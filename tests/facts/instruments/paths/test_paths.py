"""leadline.paths: shares by path length, counts, losses, and what is refused."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import leadline
from leadline.errors import AnatomyError, InputError, ProbeError
from leadline.instruments.paths import measure as pathways
from leadline.instruments.paths.result import CAVEAT, Paths, Shares, path_counts
from leadline.instruments.paths.text import count_text
from leadline.models.inputs import Inputs
from leadline.testing.tiny import Linear

IDS = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))


def transformer(depth=3, **fields):
    sizes = {"width": 24, "heads": 3, "vocabulary": 50} | fields
    return enlivened(leadline.Transformer(depth=depth, **sizes))


def enlivened(model, seed=0):
    """The model in float64 with weights of which none is degenerate."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.double().parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.ndim > 1:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.3 * noise)
    return model


@pytest.fixture(scope="module")
def found():
    return leadline.paths(transformer(), IDS).paths


def whole(shares):
    return math.fsum(shares.share) + shares.bias_total


def test_shares_of_inputs_and_biases_sum_to_one(found):
    for shares in (found.output, found.residual, found.logits):
        assert whole(shares) == pytest.approx(1, abs=1e-13)
        assert len(shares.share) == len(shares.norm_share) == len(shares.bias_share) == 4


def test_the_shares_of_the_result_are_those_of_the_output(found):
    assert found.share is found.output.share
    assert found.norm_share is found.output.norm_share
    assert found.bias_share is found.output.bias_share
    assert found.depth == 3 and list(found.lengths) == [0, 1, 2, 3]
    assert found.heads == (3, 3, 3)


def test_the_last_loss_is_that_of_the_model(found):
    model = transformer()
    own = leadline.measure(model, IDS).provenance["loss"]
    assert (own["kind"], found.loss_kind) == ("next-token", "next-token")
    assert found.loss == pytest.approx(own["value"], rel=1e-6)
    assert found.loss_at_most[-1] == pytest.approx(own["value"], rel=1e-6)
    assert len(found.loss_at_most) == 4
    assert found.loss_at_most[0] != pytest.approx(own["value"], rel=1e-3)


def test_the_loss_without_hops_is_that_of_the_frozen_model_without_attention():
    model = transformer(depth=1, mlp="none", norm="none", attention="multihead(bias=False)")
    found = leadline.paths(model, IDS).paths
    with torch.no_grad():
        model.blocks[0].attention.branch.output.weight.zero_()
        expected = F.cross_entropy(model(IDS)[:, :-1].flatten(0, 1).float(), IDS[:, 1:].flatten())
    assert found.loss_at_most[0] == pytest.approx(float(expected), rel=1e-6)


PARTS = [
    {"placement": placement, "norm": norm, "mlp": mlp}
    for placement in ("pre", "post")
    for norm in ("layernorm", "rmsnorm")
    for mlp in ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu")
]


@pytest.mark.parametrize("fields", PARTS, ids=lambda f: " ".join(f.values()))
def test_norms_and_mlps_of_our_own_leave_a_remainder_of_rounding(fields):
    found = leadline.paths(transformer(depth=2, **fields), IDS).paths
    assert 0 < found.output.remainder < 1e-12
    assert found.logits.remainder < 1e-12
    assert whole(found.output) == pytest.approx(1, abs=1e-12)
    # Every length has something to say.
    assert min(found.norm_share) > 1e-3


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": "sandwich"},
        {"placement": "output", "norm": "rmsnorm"},
        {"placement": "parallel"},
        {"placement": "normformer"},
        {"placement": "subln"},
        {"connection": "layerscale(start=0.7)"},
        {"connection": "deepnorm", "placement": "post"},
        {"connection": "highway"},
        {"connection": "gated"},
        {"attention": "multihead(groups=1)", "positions": "rotary"},
        {"attention": "multihead(value_residual=0.5)"},
        {"attention": "multihead(causal=False, qk_norm=head)", "head": "masked"},
    ],
    ids=lambda f: " ".join(f.values()),
)
def test_other_parts_that_are_affine_when_frozen_are_followed(fields):
    found = leadline.paths(transformer(depth=2, **fields), IDS).paths
    assert found.output.remainder < 1e-12 and found.logits.remainder < 1e-12
    assert found.counts == (1, 6, 9)


def test_attention_without_a_skip_has_the_full_length_only():
    found = leadline.paths(
        transformer(connection="none", mlp="none", attention="multihead(bias=False)", norm="none"),
        IDS,
    ).paths
    assert found.counts == (0, 0, 0, 27)
    assert found.norm_share[:3] == (0, 0, 0)
    assert found.share[3] == pytest.approx(1)


def test_a_value_that_is_zero_leaves_the_skip_alone():
    model = transformer(mlp="none", placement="none", attention="multihead(bias=False)")
    with torch.no_grad():
        for block in model.blocks:
            block.attention.branch.output.weight.zero_()
    found = leadline.paths(model, IDS).paths
    assert found.share == pytest.approx((1, 0, 0, 0), abs=1e-15)
    assert found.norm_share == (1, 0, 0, 0)
    assert found.output.bias_share == ()
    assert found.output.remainder == 0


def test_padding_changes_nothing():
    model = transformer(depth=2)
    alone = leadline.paths(model, IDS[:1, :5]).paths
    ids = IDS[:1].clone()
    mask = torch.ones_like(ids)
    mask[:, 5:] = 0
    padded = leadline.paths(
        model,
        Inputs({"input_ids": ids, "attention_mask": mask}, mask=mask.bool()),
    ).paths
    for name in ("output", "residual", "logits"):
        one, other = getattr(alone, name), getattr(padded, name)
        assert other.share == pytest.approx(one.share, abs=1e-13)
    assert padded.loss_at_most == pytest.approx(alone.loss_at_most, rel=1e-6)


def test_plain_torch_layers_are_followed():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    16, 2, 32, batch_first=True, norm_first=True, activation="gelu"
                )
                for _ in range(3)
            )

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)).double()
    model = Encoder().double()
    fast = torch.backends.mha.get_fastpath_enabled()
    found = leadline.paths(model, x).paths
    assert found.heads == (2, 2, 2)
    assert found.output.remainder < 1e-13
    assert found.logits is None and "no head" in " ".join(found.remarks)
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_twice_the_depth_squares_the_number_of_paths_and_costs_at_most_four_times_as_much():
    ids, results, operations = torch.randint(0, 50, (1, 32)), [], []
    for depth in (24, 48):
        model = leadline.Transformer(depth=depth, width=64, heads=8, mlp="none", vocabulary=50)
        with FlopCounterMode(display=False) as counter:
            results.append(leadline.paths(model, ids).paths)
        operations.append(counter.get_total_flops())
    assert sum(results[0].counts) == 9**24 and sum(results[1].counts) == 9**48
    assert results[1].counts[48] == 8**48
    assert results[1].output.remainder_eps < 20
    # The seconds are in benchmarks/bench_paths.py.
    assert operations[0] < operations[1] < 4 * operations[0]


def test_groups_of_rows_give_the_same_numbers(monkeypatch, found):
    from leadline.instruments.paths.carried import rows as carried_rows

    monkeypatch.setattr(carried_rows, "LIMIT", 1)
    again = leadline.paths(transformer(), IDS).paths
    assert again.share == pytest.approx(found.share, rel=1e-12)
    assert again.loss_at_most == pytest.approx(found.loss_at_most, rel=1e-6)


# --- the model and the caller are left alone ------------------------------------------------------


def test_the_model_is_left_as_it_was():
    model = transformer(depth=2).train()
    model.blocks[0].requires_grad_(False)
    flags = [p.requires_grad for p in model.parameters()]
    before = {name: p.clone() for name, p in model.state_dict().items()}
    random = torch.random.get_rng_state()
    kernels = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    threads = torch.get_num_threads()
    leadline.paths(model, IDS, samples=2)
    assert torch.get_num_threads() == threads
    assert model.training
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(random, torch.random.get_rng_state())
    assert kernels == (
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
    )


def test_a_known_anatomy_is_not_read_again(monkeypatch, found):
    model = transformer()
    known = leadline.anatomy_of(model, IDS)
    monkeypatch.setattr(pathways, "prove", None)
    assert leadline.paths(model, IDS, anatomy=known).paths.share == found.share


def test_progress_is_told(found):
    heard = []
    leadline.paths(transformer(), IDS, samples=1, progress=lambda *step: heard.append(step))
    doings = list(dict.fromkeys(doing for doing, _, _ in heard))
    assert doings == [
        "reading the anatomy",
        "following the paths",
        "computing the logits",
        "following sampled paths",
        "done",
    ]
    assert ("following the paths", 3, 3) in heard


def test_logits_are_left_out_on_demand(found):
    without = leadline.paths(transformer(), IDS, logits=False).paths
    assert without.share == found.share
    assert without.logits is None and without.loss_at_most is None and without.loss is None
    assert "Logits: left out, as requested." in without.remarks


def test_a_loss_of_ones_own_gets_the_output_with_other_logits():
    def largest(output, inputs):
        return output.max()

    model = transformer(depth=2)
    found = leadline.paths(model, IDS, loss=largest).paths
    assert found.loss_kind == "user"
    assert found.loss == pytest.approx(float(model(IDS).detach().max()), rel=1e-6)
    assert found.loss_at_most[-1] == pytest.approx(found.loss, rel=1e-10)


def test_without_a_loss_there_are_shares_only():
    found = leadline.paths(transformer(depth=2), IDS, loss="random").paths
    assert found.loss is None and found.loss_at_most is None
    assert found.logits is not None
    assert "Loss: none but a random cotangent, because it was asked for." in found.remarks


# --- samples --------------------------------------------------------------------------------------


def test_sampled_paths_are_exact_where_there_is_one():
    model = transformer(depth=3, heads=1, width=8, mlp="none")
    found = leadline.paths(model, IDS, samples=np.int64(2), logits=False).paths.sampled
    assert type(found.samples) is int and found.samples == 2 and found.seed == 0
    assert found.error[0] == pytest.approx(0, abs=1e-12)
    assert found.error[3] == pytest.approx(0, abs=1e-12)
    assert found.error[1] > 0.1
    assert all(0 < ratio <= 1 for ratio in found.residual)


def test_more_samples_come_closer_to_the_exact_answer():
    model = transformer(depth=2, mlp="none")
    few = leadline.paths(model, IDS, samples=4, logits=False).paths.sampled
    many = leadline.paths(model, IDS, samples=400, logits=False).paths.sampled
    # The error falls like 1/sqrt(samples): about tenfold here.
    assert 3 < few.error[1] / many.error[1] < 40
    assert many.error[2] < 0.5


def test_lengths_without_a_path_have_no_samples():
    model = transformer(connection="none", mlp="none", norm="none")
    found = leadline.paths(model, IDS, samples=3, logits=False).paths.sampled
    assert found.residual[:3] == (None, None, None) and found.error[:3] == (None, None, None)
    assert found.residual[3] is not None


# --- bad input ------------------------------------------------------------------------------------


def refused(model, inputs=IDS, **options):
    with pytest.raises((ProbeError, InputError, AnatomyError)) as caught:
        leadline.paths(model, inputs, **options)
    return str(caught.value)


def test_a_tanh_mlp_is_refused_by_name():
    model = transformer(mlp="gelu")
    model.blocks[1].mlp.branch.activation = torch.tanh
    said = refused(model)
    assert "not affine when frozen behind layer 2 ('blocks.1')" in said
    assert "'tanh' in 'blocks.1.mlp.branch'" in said


@pytest.mark.parametrize(("norm", "operation"), [("dyt", "tanh"), ("derf", "erf")])
def test_a_curve_in_the_place_of_a_norm_is_refused_by_name(norm, operation):
    said = refused(transformer(norm=norm))
    assert f"the operation '{operation}' in 'blocks.0.attention.enter'" in said


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ("hyper(lanes=2)", "has 2 lanes"),
        ("denseformer", "a state of several tensors"),
        ("gtrxl", "not affine when frozen"),
    ],
)
def test_connections_without_one_affine_stream_are_refused(connection, words):
    assert words in refused(transformer(connection=connection))


def test_mixing_without_a_pattern_is_refused():
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    said = refused(Linear(), x)
    assert "the operation 'mean' in 'layers.0.attention'" in said


def test_two_patterns_in_one_attention_are_no_hops():
    class Twice(nn.Module):
        def __init__(self, branch):
            super().__init__()
            self.branch, self.causal = branch, branch.causal

        def forward(self, x, run):
            return self.branch(self.branch(x, run), run)

    model = transformer(mlp="none")
    model.blocks[1].attention.branch = Twice(model.blocks[1].attention.branch)
    said = refused(model)
    assert "In layer 2 ('blocks.1') values pass 2 patterns one after the other" in said


def test_a_stream_of_zeros_has_no_shares():
    model = transformer(
        depth=1, embedding="none", positions="none", head="none", norm="none", mlp="none"
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    known = leadline.anatomy_of(model, torch.ones(1, 3, 24, dtype=torch.float64))
    x = torch.zeros(1, 3, 24, dtype=torch.float64)
    assert "is zero, so it has no shares" in refused(model, x, anatomy=known)


def test_a_model_without_attention_has_no_paths():
    assert "no attention" in refused(transformer(attention="none"))


def test_one_token_has_no_residual():
    found = leadline.paths(transformer(), IDS[:1, :1], samples=1).paths
    assert found.residual is None
    assert "Residual: undefined, because one token is its own mean." in found.remarks
    assert whole(found.output) == pytest.approx(1, abs=1e-13)
    assert found.sampled.residual == (None,) * 4
    assert found.loss is None


def test_equal_tokens_have_no_residual():
    model = transformer(positions="none", attention="multihead(causal=False)")
    found = leadline.paths(model, torch.full((1, 4), 7)).paths
    assert found.residual is None
    assert "all tokens are equal" in " ".join(found.remarks)


def test_weights_that_are_not_finite_are_named():
    model = transformer()
    with torch.no_grad():
        model.blocks[1].mlp.branch.up.weight[0, 0] = torch.nan
    said = refused(model)
    assert "'blocks.1.mlp.branch.up.weight' holds values that are not finite (1 of" in said


def test_a_stream_that_overflows_is_named():
    model = transformer(norm="none", placement="none").float()
    with torch.no_grad():
        model.blocks[2].mlp.branch.down.weight.mul_(1e38)
        model.blocks[1].mlp.branch.down.weight.mul_(1e38)
    assert "not finite" in refused(model)


def test_inputs_that_are_not_finite_are_named():
    model = transformer(embedding="none", positions="none", head="none")
    x = torch.full((1, 3, 24), torch.inf, dtype=torch.float64)
    assert "holds values that are not finite" in refused(model, x)


def test_samples_below_zero_are_refused():
    assert "samples is -1; give a whole number of at least 0" in refused(transformer(), samples=-1)


def test_what_is_no_model_is_refused():
    assert "The model is 'gpt2', not a torch module" in refused("gpt2")


def test_a_component_that_was_lost_is_an_error(monkeypatch):
    from leadline.instruments.paths.carried import rules as carried_rules

    # A rule that forgets what joins: every bias is lost.
    def forgets(journey, func, args, kwargs, out):
        from leadline.instruments.paths.carried.products import contracted

        return contracted(journey, args[1], args[2], like=out)

    monkeypatch.setitem(carried_rules.RULES, "addmm", forgets)
    said = refused(transformer())
    assert "The components miss the stream after the last layer by" in said
    assert "eps of float64" in said


def test_what_counts_as_rounding_grows_with_the_root_of_the_writes(found):
    assert found.precision == "float64"
    assert found.allowed == 16 * math.sqrt(6) * torch.finfo(torch.float64).eps
    half = leadline.paths(transformer(depth=3).bfloat16(), IDS).paths
    assert half.precision == "bfloat16" and half.allowed == 1 / 16


@pytest.fixture
def silent():
    """A model whose attention writes nothing: what enters leaves."""
    model = transformer(
        depth=1,
        embedding="none",
        positions="none",
        head="none",
        mlp="none",
        attention="multihead(bias=False)",
    )
    with torch.no_grad():
        model.blocks[0].attention.branch.output.weight.zero_()
    return model


def test_a_token_that_outweighs_the_others_is_mentioned(silent):
    def remarks(share, tokens=9):
        x = torch.ones(1, tokens, 24, dtype=torch.float64)
        x[0, 3] = math.sqrt((tokens - 1) * share / (1 - share))
        return " ".join(leadline.paths(silent, x).paths.remarks)

    assert "One token has 26% of |X|^2" in remarks(0.26)
    assert "One token" not in remarks(0.24)
    assert "One token" in remarks(0.9, tokens=5)
    assert "One token" not in remarks(0.9, tokens=4)


def test_a_residual_of_a_few_eps_is_none(silent):
    def residual(relative):
        x = torch.ones(1, 8, 24)
        x[:, ::2] += relative
        x[:, 1::2] -= relative
        return leadline.paths(silent.float(), x).paths.residual

    eps = torch.finfo(torch.float32).eps
    assert residual(6 * eps) is None
    assert residual(10 * eps) is not None


def test_a_tensor_that_joins_at_full_size_is_mentioned():
    class Again(nn.Module):
        def __init__(self, norm, x):
            super().__init__()
            self.norm, self.x = norm, x

        def forward(self, x):
            return self.norm(x + self.x)

    model = transformer(depth=2, embedding="none", positions="none", head="none")
    x = torch.randn(1, 5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model.blocks[1].mlp.enter = Again(model.blocks[1].mlp.enter, x)
    said = " ".join(leadline.paths(model, x).paths.remarks)
    assert "In 'blocks.1.mlp.enter' a tensor as large as the stream joined it" in said
    assert "counted among the biases" in said


# --- the result -----------------------------------------------------------------------------------


def test_counts_are_exact():
    assert path_counts([3] * 5, [True] * 5) == (1, 15, 90, 270, 405, 243)
    assert sum(path_counts([9] * 30, [True] * 30)) == 10**30
    assert path_counts([2, 5], [True, True]) == (1, 7, 10)
    assert path_counts([2, 5], [True, False]) == (0, 5, 10)
    assert path_counts([8] * 48, [True] * 48)[48] == 8**48


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999999, "999999"), (1000000, "1.00e6"), (1234567, "1.23e6"), (9999999, "1.00e7")],
)
def test_counts_are_written_in_few_letters(count, text):
    assert count_text(count) == text


def below_the_answer(text):
    lines = text.splitlines()
    return lines[lines.index("") + 1 :]


def test_the_text_has_a_row_per_length_the_remainder_and_the_caveat(found):
    text = str(found)
    assert text.startswith(
        "65% of the output and 63% of the logits pass through at most 1 of 3 attention layers."
    )
    lines = below_the_answer(text)
    assert lines[0] == "Paths by length: identity pre 3x24"
    assert "3 attention layers, 3 heads each, 64 paths; float64, 2 examples, 14 tokens" in lines[1]
    assert [line.split()[:2] for line in lines[4:8]] == [
        ["0", "1"],
        ["1", "9"],
        ["2", "27"],
        ["3", "27"],
    ]
    assert lines[8].startswith("biases")
    assert "Remainder: output" in text and "float64 rounding explains up to" in text
    assert text.endswith(CAVEAT)
    assert "no decomposition into independent functions" in CAVEAT and "secant" in CAVEAT
    html = found._repr_html_()
    assert "<table>" in html and "|Z|/|X|" in html and "secant" in html


def test_the_python_of_the_page_runs():
    page = Path(__file__).parents[4] / "docs" / "paths.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    names = {"__name__": "page", "print": lambda text: None}
    exec(compile(block, page, "exec"), names)
    assert f"found.counts  # {names['found'].counts}" in block


def test_the_docstrings_carry_the_caveat():
    for documented in (leadline.paths, Paths):
        words = " ".join(documented.__doc__.split())
        assert "into independent functions" in words and "secant" in words


def test_json_holds_everything(found):
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["counts"] == [1, 9, 27, 27] and data["depth"] == 3
    assert data["output"]["share"] == list(found.share)
    assert data["logits"]["remainder"] == found.logits.remainder
    assert data["loss_at_most"] == list(found.loss_at_most)
    assert data["caveat"] == CAVEAT and data["sampled"] is None
    assert data["input"]["tokens"] == 14


def by_hand(sizes, **fields):
    shares = Shares(norm=1.0, norm_share=sizes, share=sizes, remainder=1e-16, remainder_eps=1.0)
    heads = (2,) * (len(sizes) - 1)
    counts = path_counts(heads, [True] * len(heads))
    return Paths(model="m", dtype="float64", heads=heads, counts=counts, output=shares, **fields)


def test_faint_lengths_stand_in_one_line():
    text = str(by_hand((1.0, 1.1e-6, 0.9e-6, -0.5e-6, 1e-9), loss_at_most=(5.0, 4, 3, 2, 1)))
    rows = [line.split() for line in below_the_answer(text)[4:7]]
    assert rows[0][0] == "0" and rows[1][0] == "1"
    assert rows[2] == ["2-4", "72", "<", "1e-6", "<", "1e-6", "1"]


def test_a_loud_length_between_faint_ones_has_a_line_of_its_own():
    lines = below_the_answer(str(by_hand((1e-9, 1e-9, 1.0, 1e-9, 1e-9))))
    assert [line.split()[0] for line in lines[4:7]] == ["0-1", "2", "3-4"]
