"""paths(model, inputs) -> Paths: one forward pass taken apart by path length.

    X = sum_l Z_l + sum_l B_l,      Z_l: all paths with l hops of attention

exact on every model that is affine once attention patterns, norm statistics and multiplicative
gates are frozen at this forward pass. L layers cost L rows of one pass instead of (1 + H)^L paths:
Z_k <- Z_k + attention(Z_{k-1}) with frozen patterns. The model's own forward pass runs on a tensor
that carries its components (`numerics.carried`); nothing is rebuilt from weights.

What is left over must be rounding, at the stream after the last layer and at the logits: for every
token |x - sum| is at most ALLOWED sqrt(writes) eps, and at most MOST, of the larger of |x| and the
size of its components; eps is that of the coarsest number type on the way. Otherwise it is an
error. By as little may x differ from that of an undisturbed pass. Neither says that a component
has the right number of hops; that is what the owners of all numbers are followed for
(`numerics.carried_tokens`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack, untouched
from leadline.anatomy.tensors import first_tensor
from leadline.errors import InputError, ProbeError
from leadline.inputs import Inputs, Loss, choose_loss
from leadline.loading import LoadedModel
from leadline.measurement import (
    Progress,
    anatomy_of,
    model_facts,
    modules_of,
    tokenizer_for,
)
from leadline.numerics.carried import Carried, Journey
from leadline.numerics.carried_guard import apart, undisturbed
from leadline.numerics.carried_pass import Passed, carry_through, check_stack
from leadline.numerics.carried_plans import counted_paths, sampled_paths
from leadline.numerics.carried_shares import Spread, logit_view, spread, token_view
from leadline.record.path_lengths import Paths, SampledPaths, Shares, path_counts
from leadline.running import batch_for, call

__all__ = ["ALLOWED", "paths"]

ALLOWED = 16.0
"""Rounding allowed for one write, in eps; that of independent writes adds up like their root."""
MOST = 1 / 16
"""A larger remainder is never rounding: what is left of a decomposition in bfloat16 must be one."""
HEAVY = 0.25
"""From this share of |X|^2 on, a single token is mentioned."""
SMALL = 2**28
"""Weights times tokens below which several threads wait for each other longer than they work."""
_LOSSES = ("next-token", "masked", "user")


def paths(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    logits: bool = True,
    samples: int = 0,
    seed: int = 0,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    name: str | None = None,
    progress: Progress | None = None,
) -> Paths:
    """Take one forward pass apart by the number of attention hops: shares, counts, losses.

    It decomposes this forward pass, and not the model into independent functions: patterns,
    statistics and gates are frozen as they were and depend on the whole input. The frozen gate of
    GELU or SiLU is a secant, f(x)/x, not the slope.

    `model`, `inputs`, `loss`, `anatomy` and `families` are those of `measure`. `logits=False`
    stops at the last layer. `samples` draws so many paths of every length at random, as Dong,
    Cordonnier and Loukas do (2021, arXiv 2103.03404), and sets their residual and the error of
    their estimate beside the exact answer. Where a model is not affine when frozen (a tanh in an
    MLP or instead of a norm, several lanes, recurrences, cross-attention) the error names the
    operation and the module.
    """
    if isinstance(model, LoadedModel):
        name = name or model.name
    given, module = modules_of(model)
    if type(samples) is not int or samples < 0:
        raise InputError(f"{samples!r} samples were asked for; give a whole number, 0 or more.")
    _refuse_meta(module)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    _refuse_broken(module, batch)
    say = progress or _silent
    with torch.inference_mode(False), untouched(module), _threads(module, batch):
        chosen, batch = choose_loss(module, batch, loss, seed=seed)
        say("reading the anatomy", 0, 1)
        known = isinstance(anatomy, Anatomy) and anatomy.balance is not None
        proved = (
            anatomy
            if known
            else anatomy_of(module, batch, anatomy=anatomy, families=families, seed=seed)
        )
        assert isinstance(proved, Anatomy)
        run = _Run(module, _one_stack(proved, module), batch, chosen, say)
        with torch.no_grad():
            passed, journey = run.carried(logits=logits)
            own = run.compared(passed)
            found = run.told(passed, journey, own, logits=logits)
            counted = _counts(passed, found.output)
            sampled = None
            if samples and counted.drawable:
                spreads = found.residual is not None
                sampled = run.sampled(passed, samples, seed=seed, spreads=spreads)
    left_out = ["Samples: left out for that reason."] if samples and not counted.drawable else []
    facts = model_facts(module, name, "given", compiled=module is not given)
    assert passed.stream.parts is not None
    coarsest = passed.stream.parts.coarsest
    say("done", 1, 1)
    return Paths(
        model=facts["name"],
        dtype=facts["dtype"],
        heads=tuple(layer.heads for layer in passed.attentions),
        counts=counted.counts,
        output=found.output,
        residual=found.residual,
        logits=found.logits,
        loss=found.loss,
        loss_kind=None if found.loss is None else chosen.kind,
        loss_at_most=found.loss_at_most,
        sampled=sampled,
        precision=str(coarsest).removeprefix("torch."),
        allowed=run.allowed(torch.finfo(coarsest).eps),
        input=batch.summary(),
        remarks=(*found.remarks, *counted.remarks, *left_out),
    )


@dataclass(frozen=True)
class _Told:
    """The numbers of one pass."""

    output: Shares
    residual: Shares | None
    logits: Shares | None
    loss: float | None
    loss_at_most: tuple[float, ...] | None
    remarks: tuple[str, ...]


@dataclass
class _Run:
    """A model, the stack whose stream is followed, and what it is fed with."""

    module: nn.Module
    stack: Stack
    batch: Inputs
    loss: Loss
    say: Progress

    def allowed(self, eps: float) -> float:
        """The largest remainder that is rounding."""
        writes = sum(len(block.sublayers) for block in self.stack.blocks)
        return min(MOST, ALLOWED * math.sqrt(writes) * eps)

    def carried(self, *, logits: bool) -> tuple[Passed, Journey]:
        """The pass with all lengths at once."""
        journey = Journey()
        depth = self.stack.depth
        passed = carry_through(
            self.module,
            self.stack,
            lambda: call(self.module, self.batch),
            journey,
            to_the_end=logits,
            say=lambda layer: self.say("following the paths", layer, depth),
        )
        if not passed.attentions:
            roles = sorted({s.role for b in self.stack.blocks for s in b.sublayers})
            raise ProbeError(
                f"This model has no attention, so it has no paths; its branches are: "
                f"{', '.join(roles)}."
            )
        return passed, journey

    def compared(self, passed: Passed) -> Any:
        """What the model returns undisturbed; ProbeError where the carried pass is another one."""
        stream, output = undisturbed(self.module, self.stack, lambda: call(self.module, self.batch))
        pairs = {"the stream after the last layer": (passed.stream, stream)}
        if passed.output is not None:
            outputs = (_raw_logits(one, self.module, self.loss) for one in (passed.output, output))
            pairs["the output"] = tuple(outputs)
        for where, (carried, plain) in pairs.items():
            if not isinstance(carried, Carried) or not carried.is_floating_point():
                continue
            kind = carried.dtype if carried.parts is None else carried.parts.coarsest
            allowed = self.allowed(torch.finfo(kind).eps)
            miss = apart(carried, plain) if isinstance(plain, torch.Tensor) else math.inf
            if miss > allowed:
                raise ProbeError(
                    f"The pass with components is another than the model's own: {where} differs by "
                    f"{miss:.3g} of a token's size, where rounding explains at most {allowed:.3g}; "
                    "the model may look at the kind of its tensors, keep something between two "
                    "passes, or depend on chance."
                )
        return output

    def told(self, passed: Passed, journey: Journey, own: Any, *, logits: bool) -> _Told:
        """All shares and losses. ProbeError when the remainder is more than rounding.

        `own` is what the model returns undisturbed.
        """
        stream = passed.stream
        assert stream.parts is not None
        eps = torch.finfo(stream.parts.coarsest).eps
        mask = self._mask(stream)
        axis = self.stack.token_axis
        views = {
            "output": token_view(mask, token_axis=axis),
            "residual": token_view(mask, token_axis=axis, residual=True),
        }
        found = spread(stream.value, stream.parts, views)
        lengths = len(passed.attentions) + 1
        if found["output"].norm == 0:
            raise ProbeError("The stream after the last layer is zero, so it has no shares.")
        output = _shares(found["output"], eps, lengths)
        self._refuse_remainder(output, stream, "the stream after the last layer")
        remarks = _joined(journey)
        if found["output"].heaviest > HEAVY and stream.numel() > 4 * self.stack.width:
            remarks.append(
                f"One token has {found['output'].heaviest:.0%} of |X|^2, so the shares of the "
                "output are largely its own."
            )
        residual = None
        # Below that the residual is what rounding makes of equal tokens.
        if found["residual"].norm > 8 * max(eps, output.remainder) * output.norm:
            residual = _shares(found["residual"], eps, lengths)
        else:
            remarks.append(_no_residual(stream, axis))
        if not logits:
            remarks.append("Logits: they were not asked for.")
            return _Told(output, residual, None, None, None, tuple(remarks))
        return self._with_logits(passed, own, output, residual, remarks)

    def _with_logits(
        self,
        passed: Passed,
        own: Any,
        output: Shares,
        residual: Shares | None,
        remarks: list[str],
    ) -> _Told:
        logits = _logits(passed.output, self.module, self.loss)
        if isinstance(logits, str):
            return _Told(output, residual, None, None, None, (*remarks, logits))
        assert logits.parts is not None
        eps = torch.finfo(logits.parts.coarsest).eps
        lengths = max(len(passed.attentions) + 1, logits.parts.inputs.count)
        if lengths > len(passed.attentions) + 1:
            remarks.append(
                f"Behind the last layer the logits pass more patterns, so they have up to "
                f"{lengths - 1} hops; the counts are those of the stream."
            )
        losses: list[float] = []

        def loss_of(value: torch.Tensor) -> float:
            return float(self.loss.compute(_replaced(own, value), self.batch))

        def each(length: int, so_far: torch.Tensor) -> None:
            self.say("computing the logits", length + 1, lengths)
            if self.loss.kind in _LOSSES:
                losses.append(loss_of(so_far.to(logits.dtype)))

        found = spread(
            logits.value, logits.parts, {"logits": logit_view(self.batch.mask)}, each=each
        )["logits"]
        shares = None
        if found.norm > 0:
            shares = _shares(found, eps, lengths)
            self._refuse_remainder(shares, logits, "the logits")
        else:
            remarks.append("Logits: all are equal, so they have no shares.")
        if not losses:
            remarks.append(f"Loss: none but a {self.loss.kind}, because {self.loss.reason}.")
            return _Told(output, residual, shares, None, None, tuple(remarks))
        losses += losses[-1:] * (lengths - len(losses))
        whole = float(self.loss.compute(own, self.batch))
        bad = sum(not math.isfinite(loss) for loss in (*losses, whole))
        if bad:
            remarks.append(f"Loss: {bad} of {len(losses) + 1} values are not finite.")
        return _Told(output, residual, shares, whole, tuple(losses), tuple(remarks))

    def sampled(
        self, passed: Passed, samples: int, *, seed: int, spreads: bool
    ) -> SampledPaths | None:
        """Draw paths of every length and follow each on its own, one pass per length.

        `spreads`: there is a residual at all.
        """
        if samples == 0:
            return None
        axis, mask = self.stack.token_axis, self._mask(passed.stream)
        residual, error = sampled_paths(
            self.module,
            self.stack,
            lambda: call(self.module, self.batch),
            passed,
            samples=samples,
            seed=seed,
            whole=token_view(mask, token_axis=axis),
            residual=token_view(mask, token_axis=axis, residual=True) if spreads else None,
            say=lambda done, total: self.say("following sampled paths", done, total),
        )
        return SampledPaths(samples=samples, seed=seed, residual=residual, error=error)

    def _mask(self, stream: Carried) -> torch.Tensor | None:
        """The mask of real tokens where it fits the stream."""
        mask = self.batch.mask
        if mask is None or stream.ndim != 3:
            return None
        axis = self.stack.token_axis
        return mask if tuple(mask.shape) == (stream.shape[1 - axis], stream.shape[axis]) else None

    def _refuse_remainder(self, shares: Shares, whole: Carried, where: str) -> None:
        parts = whole.parts
        assert parts is not None
        allowed = self.allowed(torch.finfo(parts.coarsest).eps)
        if shares.remainder <= allowed:
            return
        kind = str(parts.coarsest).removeprefix("torch.")
        written = sorted(whole.journey.written)
        cause = "an operation of this model was not followed rightly"
        if written:
            cause = (
                f"'{written[0] or 'the model'}' writes in place, and a write into a view of the "
                "stream may be the cause"
            )
        raise ProbeError(
            f"The components miss {where} by {shares.remainder:.3g} of a token's size, "
            f"{shares.remainder_eps:.3g} eps of {kind}, where rounding explains at most "
            f"{allowed:.3g}: {cause}, or its components cancel far beyond its precision; try it "
            "in float64."
        )


def _shares(found: Spread, eps: float, lengths: int) -> Shares:
    """Norms and products as shares; a length that nothing reached has 0."""

    def of(values: tuple[float, ...], size: float) -> tuple[float, ...]:
        return tuple(value / size for value in values) + (0.0,) * (lengths - len(values))

    biased = any(found.sources)
    return Shares(
        norm=found.norm,
        norm_share=of(found.inputs, found.norm),
        share=of(found.along, found.norm),
        bias_norm_share=of(found.sources, found.norm) if biased else (),
        bias_share=of(found.sources_along, found.norm) if biased else (),
        remainder=found.remainder,
        remainder_eps=found.remainder / eps,
    )


class _Counted(NamedTuple):
    """The number of paths of every length, remarks, and whether single paths can be drawn."""

    counts: tuple[int, ...] | None
    remarks: tuple[str, ...] = ()
    drawable: bool = False


def _counts(passed: Passed, output: Shares) -> _Counted:
    doubt = next((layer.doubt for layer in passed.attentions if layer.doubt), None)
    if doubt is not None:
        return _Counted(None, (f"Counts: left out, because {doubt}.",))
    assert passed.stream.parts is not None
    counts = counted_paths(passed.stream.parts.inputs.ways, passed.attentions)
    if counts is None:
        words = "Counts: left out, because heads of one layer have values of several layers."
        return _Counted(None, (words,))
    remarks: list[str] = []
    silent = [n for n, size in enumerate(output.norm_share) if size == 0 and counts[n]]
    if silent:
        remarks.append(
            f"All paths of length {silent[0]} give exactly nothing: a weight on them is zero."
        )
    heads = [layer.heads or 0 for layer in passed.attentions]
    if counts != path_counts(heads, [layer.skip for layer in passed.attentions]):
        remarks.append("Layers share values, so there are other paths than C(L, l) H^l.")
        return _Counted(counts, tuple(remarks))
    if any(layer.held is None for layer in passed.attentions):
        remarks.append("Which rows of the products belong to one head is not known.")
        return _Counted(counts, tuple(remarks))
    return _Counted(counts, tuple(remarks), drawable=True)


def _raw_logits(output: Any, module: nn.Module, loss: Loss) -> Any:
    """The logits among what a model returned, or else its first tensor."""
    found: Any = getattr(output, "logits", None)
    if found is not None:
        return found
    if _speaks(module, loss):
        return output[0] if isinstance(output, list | tuple) else output
    return first_tensor(output)


def _speaks(module: nn.Module, loss: Loss) -> bool:
    """Whether the output of a model is logits without saying so."""
    return loss.kind in ("next-token", "masked") or bool(getattr(module, "objective", None))


def _logits(output: Any, module: nn.Module, loss: Loss) -> Carried | str:
    """The logits that the model returned, or why there are none to take apart."""
    has = getattr(output, "logits", None) is not None or _speaks(module, loss)
    found: Any = _raw_logits(output, module, loss) if has else None
    if not isinstance(found, Carried):
        return "Logits: the model has no head that gives any."
    if found.parts is None:
        assert found.origin is not None
        return (
            "Logits: left out, they are not affine when frozen: the operation "
            f"'{found.origin.operation}' in '{found.origin.module or type(module).__name__}' "
            "(a soft cap, perhaps) stands between the stream and them."
        )
    return found


def _replaced(output: Any, logits: torch.Tensor) -> Any:
    """The model's output with other logits."""
    if hasattr(output, "logits"):
        changed = copy.copy(output)
        changed.logits = logits
        return changed
    if isinstance(output, list | tuple):
        return (logits, *output[1:])
    return logits


def _one_stack(anatomy: Anatomy, module: nn.Module) -> Stack:
    stack, *others = anatomy.stacks
    if others:
        names = " and ".join(one.name for one in anatomy.stacks)
        such = ", such as model.get_encoder()" if _has_encoder(module) else ""
        raise ProbeError(
            f"This model has {len(anatomy.stacks)} stacks ({names}) and a path has one stream; "
            f"give the part that you mean on its own{such}."
        )
    check_stack(stack)
    return stack


def _has_encoder(module: Any) -> bool:
    """Whether get_encoder gives a part, and neither the model itself nor an error."""
    try:
        found = module.get_encoder()
    except Exception:
        return False
    return isinstance(found, nn.Module) and found is not module


def _no_residual(stream: Carried, axis: int) -> str:
    if stream.value.shape[0 if stream.ndim == 2 else axis] == 1:
        return "Residual: undefined, because one token is its own mean."
    return "Residual: undefined, because after the last layer all tokens are equal up to rounding."


def _joined(journey: Journey) -> list[str]:
    where = sorted(journey.joined)
    if not where:
        return []
    first = where[0] or "the model"
    more = f" and {len(where) - 1} more modules" if len(where) > 1 else ""
    return [
        f"In '{first}'{more} a tensor as large as the stream joined it that was not computed from "
        "it behind the first layer's entry; it is counted among the biases."
    ]


def _refuse_meta(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise InputError(
                f"The parameter '{name}' is on the meta device and has no values; load or "
                "initialise the weights first."
            )


def _refuse_broken(module: nn.Module, batch: Inputs) -> None:
    for key, tensor in batch.tensors.items():
        if tensor.is_floating_point() and "mask" not in key and not torch.isfinite(tensor).all():
            raise InputError(f"The input '{key}' holds values that are not finite.")
    for name, parameter in module.named_parameters():
        bad = int((~torch.isfinite(parameter)).sum())
        if bad:
            raise InputError(
                f"The parameter '{name}' holds values that are not finite ({bad} of "
                f"{parameter.numel()}), so shares would not be finite either; load intact weights."
            )


@contextmanager
def _threads(module: nn.Module, batch: Inputs) -> Iterator[None]:
    """One thread for small work: many small products, each too short to be shared out."""
    before = torch.get_num_threads()
    if sum(p.numel() for p in module.parameters()) * batch.main.numel() < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _silent(what: str, done: int, total: int) -> None:
    """No progress was asked for."""
