"""After any error, in anybody's code, the model and the process are as they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import leadline
from leadline.instruments.passes.probe import PROBES
from leadline.record import Quantity
from leadline.testing.zoo import ZOO

WIDTH = 8
X = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(10).reshape(2, 5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.5)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm(x).mean(1, keepdim=True).expand_as(x)))
        return x + self.mlp(self.norm(x))


class Restless(nn.Module):
    """Counts in a buffer and in a plain attribute, keeps a tensor, draws numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.register_buffer("count", torch.zeros(()))
        self.calls, self.last = 0, None

    def forward(self, x):
        self.count += 1
        self.calls += 1
        self.last = x * self.count
        x = x + 0 * torch.rand(1)
        for layer in self.layers:
            x = layer(x)
        return x


def in_training(model):
    """A model in the middle of a training run: gradients, a frozen weight, training mode."""
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number != 2)
        parameter.grad = torch.ones_like(parameter) if number % 2 else None
    return model.train()


class Snapshot:
    """All that a measurement could leave behind, in a model and around it."""

    def __init__(self, model):
        self.facts = dict(self._of_process())
        for path, module in model.named_modules():
            self.facts |= {f"{path}: {key}": value for key, value in self._of_module(module)}
        config = getattr(model, "config", None)
        self.facts["config"] = repr(config), getattr(config, "_attn_implementation", None)

    def changes_since(self, before):
        names = sorted(set(self.facts) | set(before.facts))
        return [name for name in names if not _same(self.facts.get(name), before.facts.get(name))]

    @staticmethod
    def _of_process():
        yield "torch's randomness", torch.random.get_rng_state()
        yield "numpy's randomness", np.random.get_state()[1].tobytes()
        yield "Python's randomness", random.getstate()
        yield (
            "modes",
            (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cpu"),
                len(_get_current_function_mode_stack()),
                len(_get_current_dispatch_mode_stack()),
                repr(torch._dynamo.eval_frame._stance),
            ),
        )
        yield (
            "settings",
            (
                torch.get_default_dtype(),
                torch.get_num_threads(),
                torch.get_float32_matmul_precision(),
                torch.backends.mha.get_fastpath_enabled(),
                torch.backends.mkldnn.enabled,
                torch.backends.cuda.flash_sdp_enabled(),
                torch.backends.cuda.math_sdp_enabled(),
                torch.backends.cuda.mem_efficient_sdp_enabled(),
                torch.backends.cuda.cudnn_sdp_enabled(),
            ),
        )
        yield (
            "functions",
            (
                nn.functional.scaled_dot_product_attention,
                nn.functional.multi_head_attention_forward,
                nn.functional.softmax,
                torch.matmul,
                nn.Module.__call__,
            ),
        )
        yield (
            "global hooks",
            tuple(
                tuple(hooks)
                for name, hooks in vars(module_hooks).items()
                if name.startswith("_global_") and isinstance(hooks, dict)
            ),
        )

    @staticmethod
    def _of_module(module):
        yield "names", tuple(vars(module))
        for name, value in vars(module).items():
            if "hooks" in name:
                yield name, None if value is None else tuple(value)
            elif isinstance(value, torch.Tensor):
                yield name, (id(value), value.clone())
            elif not isinstance(value, dict | list):
                yield name, value if isinstance(value, bool | int | float | str) else id(value)
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            yield name, (id(parameter), parameter.requires_grad, parameter.detach().clone())
            yield (
                f"hooks of {name}",
                (
                    tuple(parameter._backward_hooks or ()),
                    tuple(parameter._post_accumulate_grad_hooks or ()),
                ),
            )
            if parameter.grad is not None:
                yield f"gradient of {name}", (id(parameter.grad), parameter.grad.clone())
        for name, buffer in module._buffers.items():
            yield name, (id(buffer), None if buffer is None else buffer.clone())


def _same(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _square(output, inputs):
    return (output if isinstance(output, torch.Tensor) else output.logits).square().sum()


ENTRIES = {
    "measure": leadline.measure,
    "attention": lambda model, x, **o: leadline.measure(model, x, probes="stream,attention", **o),
    "blocks left out": lambda model, x, **o: leadline.measure(
        model, x, probes="stream", ablate="block", **{"loss": _square, **o}
    ),
    "writes left out": lambda model, x, **o: leadline.measure(
        model, x, probes="stream", ablate="sublayer", **{"loss": _square, **o}
    ),
    "probe of maps": lambda model, x, **o: leadline.measure(
        model, x, probes="jacobian(k=1),lyapunov(k=1)", **o
    ),
    "anatomy_of": leadline.anatomy_of,
    "jacobian": lambda model, x, **o: leadline.jacobian(model, x, k=1, probes=2, **o),
    "lyapunov": lambda model, x, **o: leadline.lyapunov(model, x, k=1, **o),
    "paths": leadline.paths,
}
TELLING = [name for name in ENTRIES if name != "anatomy_of"]


def raised_at(call, error):
    """A function that raises when it is called for that time, and how often it was called."""
    count = 0

    def function(*_):
        nonlocal count
        count += 1
        if count == call:
            raise error

    return function, lambda: count


def left_alone(model, run, error=None):
    """Run, and say whether it raised; the model must be as before, and the error the same one."""
    before = Snapshot(model)
    caught = None
    try:
        run()
    except (leadline.LeadlineError, Mine, KeyboardInterrupt) as found:
        caught = found
    assert Snapshot(model).changes_since(before) == []
    if isinstance(caught, Mine | KeyboardInterrupt):
        assert caught is error
    return caught


class Mine(Exception):
    pass


def _hooked(model, place, hook):
    block = model.layers[1]
    weight = block.mlp.weight.requires_grad_(True)
    if place == "forward":
        block.mlp.register_forward_hook(hook)
    elif place == "before":
        block.norm.register_forward_pre_hook(hook)
    elif place == "block":
        block.register_forward_hook(hook)
    elif place == "backward":
        block.register_full_backward_hook(hook)
    elif place == "weight":
        weight.register_hook(hook)
    else:
        assert place == "tensor"

        def watch(module, args, output):
            if output.requires_grad:
                output.register_hook(hook)

        block.mlp.register_forward_hook(watch)


@pytest.mark.parametrize("place", ["forward", "before", "block", "backward", "weight", "tensor"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_hooks_that_raise_leave_no_trace(entry, place):
    for call in (1, 3, 8):
        model, error = in_training(Restless()), KeyboardInterrupt("mine")
        hook, count = raised_at(call, error)
        _hooked(model, place, hook)
        left_alone(model, lambda m=model: ENTRIES[entry](m, X), error)
        if count() < call:
            break


@pytest.mark.parametrize("entry", TELLING)
def test_a_callback_that_raises_leaves_no_trace(entry):
    calls = 0
    for call in range(1, 30):
        model, error = in_training(Restless()), Mine("mine")
        tell, count = raised_at(call, error)
        caught = left_alone(
            model, lambda m=model, tell=tell: ENTRIES[entry](m, X, progress=tell), error
        )
        if count() < call:
            break
        assert caught is error
        calls = call
    assert calls > 0


@pytest.mark.parametrize("entry", ["measure", "attention", "blocks left out", "writes left out"])
def test_a_loss_that_raises_leaves_no_trace(entry):
    for call in (1, 2, 3):
        model, error = in_training(Restless()), Mine("mine")
        stop, count = raised_at(call, error)

        def loss(output, inputs, stop=stop):
            stop()
            return _square(output, inputs)

        caught = left_alone(
            model, lambda m=model, loss=loss: ENTRIES[entry](m, X, loss=loss), error
        )
        assert (caught is error) == (count() == call)


@pytest.mark.parametrize("method", ["stream", "update", "block", "gradient", "parameters"])
def test_a_probe_that_raises_leaves_no_trace(method, monkeypatch):
    error = Mine("mine")

    def fail(self, *args, **options):
        raise error

    broken = type("Broken", (), {"sees": (method,), "quantities": (_quantity(),), method: fail})
    monkeypatch.setitem(PROBES._entries, "broken", broken)
    model = in_training(Restless())
    caught = left_alone(model, lambda: leadline.measure(model, X, probes="stream,broken"), error)
    assert caught is error


def _quantity():
    known = leadline.measure(Restless(), X, probes="stream").quantities["stream.norm"]
    assert isinstance(known, Quantity)
    return known


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("call", [2, 5])
def test_an_interrupted_attention_leaves_no_trace(entry, call):
    model, error = in_training(ZOO["gpt2"].build(0)), KeyboardInterrupt("mine")
    hook, _ = raised_at(call, error)
    model.transformer.h[1].attn.c_proj.register_forward_hook(hook)
    left_alone(model, lambda: ENTRIES[entry](model, IDS), error)


# --- inference mode ------------------------------------------------------------------------------


def _made_in_inference_mode(build):
    with torch.inference_mode():
        return build()


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("case", ["weights", "buffers", "inputs", "caller"])
def test_inference_mode_changes_no_number_and_leaves_no_trace(entry, case):
    build = Quiet if entry != "paths" else (lambda: ZOO["gpt2"].build(0))
    x = X if entry != "paths" else IDS
    expected = _numbers(ENTRIES[entry](build(), x))
    model, given = build(), x
    if case == "weights":
        model = _made_in_inference_mode(build)
    elif case == "inputs":
        given = _made_in_inference_mode(x.clone)
    elif case == "buffers":
        with torch.inference_mode():
            for module in model.modules():
                for name, buffer in module._buffers.items():
                    module._buffers[name] = None if buffer is None else buffer.clone()
    before = Snapshot(model)
    with torch.inference_mode(case == "caller"):
        assert _numbers(ENTRIES[entry](model, given)) == expected
    assert Snapshot(model).changes_since(before) == []


class Quiet(nn.Module):
    """A scale in a buffer and a shift in a plain attribute, both of which autograd keeps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.register_buffer("scale", torch.full((WIDTH,), 2.0))
        self.shift = torch.ones(WIDTH)

    def forward(self, x):
        x = x * self.scale * self.shift
        for layer in self.layers:
            x = layer(x)
        return x


def _numbers(found):
    if isinstance(found, leadline.Record):
        return [(r.quantity, r.site, r.value) for r in found.select()]
    return repr(found)


# --- optimizers ----------------------------------------------------------------------------------


def test_an_optimizer_that_steps_in_the_backward_pass_rests():
    model = Restless()
    expected = _numbers(leadline.measure(Restless(), X))
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def step(parameter, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    before = Snapshot(model)
    assert _numbers(leadline.measure(model, X)) == expected
    assert Snapshot(model).changes_since(before) == []
    weight = model.layers[0].mlp.weight
    kept = weight.detach().clone()
    model(X).square().sum().backward()
    assert not torch.equal(weight, kept)
