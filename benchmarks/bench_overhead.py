"""What does measuring cost on top of a plain forward and backward pass?

A GPT-2-small-size model (12 layers, width 768, random weights, dropout 0), next-token loss, 4
examples. Every contender runs one forward and one backward pass and starts without gradients.

    plain           the model alone; gradients of all parameters are accumulated
    leadline        `measure` with its default probes (all but ablation and recall), the record
                    included; the anatomy was read before (its cost is a line of its own).
                    Gradients that no probe reads (embeddings, output head) are not computed, and
                    the others are let go when their norm is known: this saves more than the
                    probes cost
    same backward   the same probes on the very backward pass of `plain`: every gradient computed
                    and kept. This is what the probes themselves cost
    hidden states   transformers' output_hidden_states with retained gradients, then statistics by
                    hand (no updates: hidden states do not show them)
    cached          TransformerLens run_with_cache of the streams and updates alone, backward with
                    hooks, then the same by hand (its bridge runs eager attention)

By hand means what people write: norm, mean and variance per token, token residual, mean cosine
from the matrix of cosines, singular values, gradient norms.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

import leadline
from _harness import Result, interleave, peak_memory, ratio
from leadline.anatomy import Tap
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probes import plan
from leadline.models.inputs import Inputs, choose_loss

LENGTHS = {128: 17, 512: 3, 1024: 7}
TARGETS = {128: 1.03, 1024: 1.05}
MEMORY_TARGET = 1.05


def _model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).eval()


def _plain(model: Any, inputs: Inputs) -> Callable[[], object]:
    loss, _ = choose_loss(model, inputs)

    def work() -> float:
        output = model(**inputs.tensors, use_cache=False)
        value = loss.compute(output, inputs)
        value.backward()
        model.zero_grad(set_to_none=True)
        return float(value.detach())

    return work


def _leadline(model: Any, inputs: Inputs) -> Callable[[], object]:
    anatomy = leadline.anatomy_of(model, inputs)
    return lambda: leadline.measure(model, inputs, anatomy=anatomy)


def _same_backward(model: Any, inputs: Inputs) -> Callable[[], object]:
    anatomy = leadline.anatomy_of(model, inputs)
    loss, _ = choose_loss(model, inputs)
    planned = plan()
    places = [(st, b, s) for st in anatomy.stacks for b in st.blocks for s in b.sublayers]
    owners = {model.get_parameter(p): s.module for _, _, s in places for p in s.parameters}

    def work() -> object:
        collector = Collector(planned)
        norms: dict[str, list[torch.Tensor]] = {}

        def reduce(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            rows = torch.linalg.vector_norm(parameter.grad, dim=-1)
            norms.setdefault(owners[parameter], []).append(torch.linalg.vector_norm(rows))

        hooks = [parameter.register_post_accumulate_grad_hook(reduce) for parameter in owners]
        with Tap(model, anatomy, collector, gradients=True) as tap:
            value = loss.compute(model(**inputs.tensors, use_cache=False), inputs)
        value.backward()
        for hook in hooks:
            hook.remove()
        for stack, block, s in places:
            total = torch.linalg.vector_norm(torch.stack(norms[s.module]))
            collector.parameters(stack, block, s, total)
        model.zero_grad(set_to_none=True)
        return tap.balance(), collector.readings()

    return work


def _by_hand(x: torch.Tensor) -> list[float]:
    """Statistics of [example, token, width] as they are usually written."""
    x = x.detach()
    centred = x - x.mean(1, keepdim=True)
    units = torch.nn.functional.normalize(x, dim=-1)
    cosines = units @ units.mT
    n = x.shape[1]
    values = torch.linalg.svdvals(centred)
    shares = values.square() / values.square().sum(-1, keepdim=True)
    return [
        float(x.norm(dim=-1).mean()),
        float(x.norm(dim=-1).median()),
        float(x.mean(-1).mean()),
        float(x.var(-1).mean()),
        float(centred.norm(dim=(1, 2)).mean()),
        float((centred.norm(dim=(1, 2)) / x.norm(dim=(1, 2))).mean()),
        float(((cosines.sum((1, 2)) - n) / (n * (n - 1))).mean()),
        float((1 / shares.amax(-1)).mean()),
        float(torch.special.entr(shares).sum(-1).exp().mean()),
    ]


def _hidden_states(model: Any, inputs: Inputs) -> Callable[[], object]:
    loss, _ = choose_loss(model, inputs)

    def work() -> list[list[float]]:
        output = model(**inputs.tensors, use_cache=False, output_hidden_states=True)
        for state in output.hidden_states:
            state.retain_grad()
        loss.compute(output, inputs).backward()
        table = [_by_hand(state) for state in output.hidden_states]
        first = output.hidden_states[0].detach()
        for state, row in zip(output.hidden_states, table, strict=True):
            row.append(float(state.grad.norm()))
            row.append(float(torch.cosine_similarity(state.detach(), first, dim=-1).mean()))
        for block in model.transformer.h:
            for part in (block.attn, block.mlp):
                norms = [p.grad.norm() for p in part.parameters()]
                table.append([float(torch.stack(norms).norm())])
        model.zero_grad(set_to_none=True)
        return table

    return work


def _cached(inputs: Inputs) -> Callable[[], object]:
    from transformer_lens.model_bridge import TransformerBridge

    with tempfile.TemporaryDirectory() as folder:
        # The bridge reads the configuration from a folder; the weights are handed over.
        other = _model()
        other.config.save_pretrained(folder)
        model: Any = TransformerBridge.boot_transformers(folder, hf_model=other)
    tokens = inputs.tensors["input_ids"]
    parts = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")
    wanted = {f"blocks.{layer}.{part}" for layer in range(12) for part in parts}
    streams = [f"blocks.{layer}.hook_resid_post" for layer in range(12)]

    def work() -> list[list[float]]:
        gradients: dict[str, float] = {}

        def keep(gradient: torch.Tensor, hook: Any) -> None:
            gradients[hook.name] = float(gradient.norm())

        with model.hooks(bwd_hooks=[(name, keep) for name in streams]):
            value, cache = model.run_with_cache(
                tokens, return_type="loss", names_filter=lambda name: name in wanted
            )
            value.backward()
        assert len(gradients) == 12
        table: list[list[float]] = []
        for layer in range(12):
            x = cache[f"blocks.{layer}.hook_resid_pre"].detach()
            table.append(_by_hand(x))
            for part in parts[1:]:
                u = cache[f"blocks.{layer}.{part}"].detach()
                table.append(
                    [
                        float(u.norm(dim=-1).mean()),
                        float((u.norm(dim=-1) / x.norm(dim=-1)).mean()),
                        float(torch.cosine_similarity(u, x, dim=-1).mean()),
                    ]
                )
        model.zero_grad(set_to_none=True)
        return table

    return work


def _contenders(names: Iterable[str], length: int) -> dict[str, Callable[[], object]]:
    model = _model()
    inputs = leadline.random_tokens(model, examples=4, length=length, seed=0)
    makers: Mapping[str, Callable[[], Callable[[], object]]] = {
        "plain": lambda: _plain(model, inputs),
        "leadline": lambda: _leadline(model, inputs),
        "same backward": lambda: _same_backward(model, inputs),
        "hidden states": lambda: _hidden_states(model, inputs),
        "cached": lambda: _cached(inputs),
    }
    return {name: makers[name]() for name in names}


def prepare(name: str, length: str) -> Callable[[], object]:
    """The work of one contender, warmed up, for the measurement of its peak memory."""
    (work,) = _contenders([name], int(length)).values()
    work()
    gc.collect()
    return work


def run() -> Iterable[Result]:
    """Time at 128, 512 and 1024 tokens, then memory at 128 and 512."""
    names = ["plain", "leadline", "same backward", "hidden states", "cached"]
    for length, rounds in LENGTHS.items():
        here = names if length < 1024 else names[:3]
        times = interleave(_contenders(here, length), rounds=rounds, warmup=1)
        for name in here[1:]:
            ours = name in ("leadline", "same backward")
            target = TARGETS.get(length) if ours else None
            yield ratio(times, name, "plain", name=f"time at 4x{length}, {name}", target=target)
    model = _model()
    inputs = leadline.random_tokens(model, examples=4, length=128, seed=0)
    reading = {
        "plain": _plain(model, inputs),
        "anatomy": lambda: leadline.anatomy_of(model, inputs),
    }
    times = interleave(reading, rounds=5, warmup=1)
    yield ratio(times, "anatomy", "plain", name="reading the anatomy, once, at 4x128")
    for length, here in ((128, names), (512, names[:2])):
        peaks = {name: peak_memory(__file__, "prepare", name, str(length)).added for name in here}
        for name in here[1:]:
            quotient = peaks[name] / peaks["plain"]
            yield Result(
                name=f"peak memory at 4x{length}, {name}",
                compared=f"{name} / plain",
                ratio=quotient,
                target=MEMORY_TARGET if name in ("leadline", "same backward") else None,
                repetitions=1,
                spread=(quotient, quotient),
                detail={"bytes": {each: peaks[each] for each in (name, "plain")}},
            )
