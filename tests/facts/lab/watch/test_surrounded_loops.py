"""What stands around a loop sees nothing of a watch, and changes nothing of what it reads."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import leadline
from tests.plain_gpt import PlainGPT
from tests.twin_runs import rows_of, run_twice

STEPS = [1, 2, 3]


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Noise(TorchDispatchMode):
    """Draws a random number at every operation, and adds noise to products."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, noise = func(*args, **(kwargs or {})), torch.rand(())
        return result * (1 + 1e-3 * noise) if func is torch.ops.aten.mm.default else result


def tokens_of(step):
    return torch.randint(97, (4, 8), generator=torch.Generator().manual_seed(step))


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def loop_in(surroundings, *, whole=True, model=PlainGPT, faults=("none", "none"), **options):
    def loop(run):
        torch.manual_seed(0)
        trained = model(faults)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        run.watch(trained, optimizer, **options)
        for step in STEPS:
            around = surroundings()
            with around:
                loss = loss_of(trained, tokens_of(step))
                if whole:
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
            if not whole:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            run.loss(loss)
            run.loss(torch.tensor(float(getattr(around, "count", 0))))

    return loop


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("mode", [Operations, Functions, Noise])
def test_modes_around_whole_updates_see_nothing_of_ours(mode, attention, tmp_path):
    plain, watched = run_twice(loop_in(mode, attention=attention), tmp_path)
    assert watched.differences(plain) == []
    for quantity in ("stream.norm", "gradient.stream", "weights.update_ratio", "train.loss"):
        assert sorted(rows_of(watched.path, quantity)) == STEPS
    assert watched.watcher.notes == []
    assert torch.overrides._get_current_function_mode_stack() == []


def test_the_default_device_stays_what_it_is(tmp_path):
    plain, watched = run_twice(loop_in(lambda: torch.device("cpu")), tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS


class Fused(nn.Module):
    """The same attention by the function of torch."""

    def __init__(self, written_out):
        super().__init__()
        self.q, self.k, self.v, self.o = (getattr(written_out, name) for name in "qkvo")

    def forward(self, x):
        heads = [one(x).unflatten(-1, (4, 12)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Keeping(PlainGPT):
    """Keeps queries and keys of its first attention, and the stream behind its last block."""

    kept: list

    def __init__(self, faults):
        super().__init__(faults)
        for block in self.h:
            block.attn = Fused(block.attn)

    def forward(self, tokens):
        self.kept = []
        handles = [
            one.register_forward_hook(lambda _m, _a, output: self.kept.append(output.detach()))
            for one in (self.h[0].attn.q, self.h[0].attn.k, self.h[1])
        ]
        logits = super().forward(tokens)
        for one in handles:
            one.remove()
        return logits


def in_bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("whole", [False, True])
def test_statistics_are_taken_in_full_precision_under_autocast(whole, tmp_path):
    torch.manual_seed(0)
    model = Keeping(["none", "none"])
    with in_bfloat16():
        model(tokens_of(1))
    query, key, stream = (one.double() for one in model.kept)
    heads = [one.view(4, 8, 4, 12).transpose(1, 2)[0] for one in (query, key)]
    logits = heads[0] @ heads[1].mT / 12**0.5
    spreads = [logits[:, row, : row + 1].var(-1, correction=0) for row in range(8)]
    spread = torch.stack(spreads).mean(0).sqrt().mean()
    cosines = F.normalize(stream, dim=-1) @ F.normalize(stream, dim=-1).mT
    cosine = ((cosines.sum((1, 2)) - 8) / (8 * 7)).mean()

    options = {"attention": True, "model": Keeping, "whole": whole}
    plain, watched = run_twice(loop_in(in_bfloat16, **options), tmp_path)
    assert watched.differences(plain) == []
    rows = rows_of(watched.path, "attention.logit_std")[1]
    assert next(one.value for one in rows if one.site.layer == 1) == pytest.approx(
        float(spread), rel=1e-5
    )
    rows = rows_of(watched.path, "tokens.cosine")[1]
    assert next(one.value for one in rows if one.site.layer == 2) == pytest.approx(
        float(cosine), rel=1e-5
    )


# --- measurements meanwhile ----------------------------------------------------------------------

MEASURES = {
    "measure": leadline.measure,
    "anatomy": leadline.anatomy_of,
    "diagnose": leadline.diagnose,
}


TIMES = ["before", "inside", "after backward", "after the step"]


@pytest.mark.parametrize(
    ("name", "when"),
    [*((name, when) for name in ("measure", "anatomy") for when in TIMES), ("diagnose", TIMES[2])],
)
def test_measurements_of_the_user_are_none_of_the_loop(name, when, tmp_path):
    def loop_with(measures):
        def loop(run):
            torch.manual_seed(0)
            model = PlainGPT(["none", "none"])
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

            def look(now):
                if measures and now == when:
                    MEASURES[name](model, tokens_of(9))

            run.watch(model, optimizer)
            for step in STEPS:
                look("before")
                loss = loss_of(model, tokens_of(step))
                look("inside")
                run.loss(loss)
                loss.backward()
                look("after backward")
                optimizer.step()
                look("after the step")
                optimizer.zero_grad()

        return loop

    (tmp_path / "alone").mkdir()
    _, alone = run_twice(loop_with(False), tmp_path / "alone")
    plain, watched = run_twice(loop_with(True), tmp_path)
    assert watched.differences(plain) == [] and watched.watcher.notes == []
    for quantity in ("train.loss", "train.gradient_norm", "stream.norm", "gradient.stream"):
        assert rows_of(watched.path, quantity) == rows_of(alone.path, quantity), quantity


def test_a_second_watch_is_none_of_the_loop(tmp_path):
    """Each proves its anatomy; one measures a fixed batch as well."""

    def loop(run):
        torch.manual_seed(0)
        model = PlainGPT(["none", "none"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        second = nullcontext()
        if run.path is not None:
            path = run.path.with_name("second.leadline")
            probe = {"probe": tokens_of(9), "every": 1, "quiet": True}
            second = leadline.watch(model, optimizer, path, **probe)
        with second:
            for step in STEPS:
                loss = loss_of(model, tokens_of(step))
                run.loss(loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    for path in (watched.path, watched.path.with_name("second.leadline")):
        losses = [rows[0].value for rows in rows_of(path, "train.loss").values()]
        assert losses == pytest.approx([float(one) for one in plain.losses], rel=1e-6)


# --- models that call themselves -----------------------------------------------------------------


class Asking(PlainGPT):
    """Asks itself first, as self-conditioning does."""

    def forward(self, tokens, hint=None):
        if hint is None:
            with torch.no_grad():
                hint = self(tokens, torch.full((48,), 10.0))[..., :48]
        x = self.wte(tokens) + 0.1 * hint
        self.entered = x.detach()
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x))


def test_a_pass_in_which_a_model_asks_itself_is_not_read(tmp_path):
    anatomy = leadline.anatomy_of(PlainGPT(["none", "none"]), tokens_of(1))
    torch.manual_seed(0)
    twin = Asking(["none", "none"])
    twin(tokens_of(1))
    loop = loop_in(nullcontext, model=Asking, anatomy=anatomy, attention=True)
    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == [] and watched.watcher.notes == []
    rows = rows_of(watched.path, "stream.norm")[1]
    entered = next(one.value for one in rows if one.site.layer == 0)
    assert entered == pytest.approx(float(twin.entered.norm(dim=-1).mean()), rel=1e-6)
    assert len(rows_of(watched.path, "gradient.stream")[1]) == 3


class Dropping(PlainGPT):
    """One dropout stands behind both branches of a block."""

    def __init__(self, faults):
        super().__init__(faults)
        self.h = nn.ModuleList(DroppingBlock(one) for one in self.h)


class DroppingBlock(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block, self.drop = block, nn.Dropout(0.3)

    def forward(self, x):
        x = x + self.drop(self.block.attn(self.block.ln1(x)))
        return x + self.drop(self.block.mlp(self.block.ln2(x)))


def test_updates_behind_one_dropout_for_both_are_read(tmp_path):
    plain, watched = run_twice(loop_in(nullcontext, model=Dropping), tmp_path)
    assert watched.differences(plain) == [] and watched.watcher.notes == []
    assert sorted(rows_of(watched.path, "update.norm")) == STEPS
