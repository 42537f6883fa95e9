"""compute_paths(model, inputs) -> Paths: one forward pass taken apart by path length.

    X = sum_l Z_l + sum_l B_l,      Z_l: all paths with l hops of attention

exact on every model that is affine once attention patterns, norm statistics and multiplicative
gates are frozen at this forward pass. L layers cost L rows of one pass instead of (1 + H)^L paths:
Z_k <- Z_k + attention(Z_{k-1}) with frozen patterns. The model's own forward pass runs on a tensor
that carries its components (`carried`); nothing is rebuilt from weights.

What is left over must be rounding, at the stream after the last layer and at the logits: for every
token |x - sum| is at most ALLOWED sqrt(writes) eps, and at most MOST, of the larger of |x| and the
size of its components; eps is that of the coarsest number type on the way. Otherwise it is an
error. By as little may x differ from that of an undisturbed pass. Neither says that a component
has the right number of hops; that is what the owners of all numbers are followed for
(`carried.tokens`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack, untouched
from leadline.errors import ProbeError, Progress, check_count, check_progress, check_seed
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.measuring import gradients_on, prove
from leadline.instruments.passes.not_finite import refuse_broken
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.provenance import model_facts
from leadline.instruments.passes.running import call, few_threads
from leadline.instruments.paths.carried.carried import Carried, Journey
from leadline.instruments.paths.carried.guard import apart, undisturbed
from leadline.instruments.paths.carried.model_pass import Passed, carry_through
from leadline.instruments.paths.carried.plans import sampled_paths
from leadline.instruments.paths.carried.shares import logit_view, spread, token_view
from leadline.instruments.paths.outputs import (
    counts_of,
    joined_remarks,
    logits_of,
    no_residual,
    raw_logits,
    shares_of,
    with_logits,
)
from leadline.instruments.paths.refusals import one_stack
from leadline.instruments.paths.result import Paths, SampledPaths, Shares
from leadline.models.inputs import Inputs, Loss, choose_loss
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel

__all__ = ["ALLOWED", "compute_paths", "measured_paths"]

ALLOWED = 16.0
"""Rounding allowed for one write, in eps; that of independent writes adds up like their root."""
MOST = 1 / 16
"""A larger remainder is never rounding: what is left of a decomposition in bfloat16 must be one."""
HEAVY = 0.25
"""From this share of |X|^2 on, a single token is mentioned."""
_LOSSES = ("next-token", "masked", "user")


def compute_paths(
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
    """Take one forward pass apart by the number of attention hops, as `leadline.paths` says."""
    return measured_paths(
        model,
        inputs,
        logits=logits,
        samples=samples,
        seed=seed,
        loss=loss,
        anatomy=anatomy,
        families=families,
        name=name,
        progress=progress,
    )[0]


def measured_paths(
    model: nn.Module | LoadedModel,
    inputs: Any,
    *,
    logits: bool,
    samples: int,
    seed: int,
    loss: str | Callable[..., torch.Tensor],
    anatomy: Anatomy | Declaration | None,
    families: bool,
    name: str | None,
    progress: Progress | None,
) -> tuple[Paths, Anatomy, dict[str, Any]]:
    """Compute the paths, and return the anatomy and the facts of the model as well."""
    if isinstance(model, LoadedModel):
        name = name or model.name
    original, module = modules_of(model)
    samples = check_count(samples, "samples", least=0)
    seed = check_seed(seed)
    say = check_progress(progress)
    known = known_anatomy(module, anatomy)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken(module, batch)
    with torch.inference_mode(False), untouched(module), few_threads(module, batch):
        say("reading the anatomy", 0, 1)
        model_anatomy = known
        if model_anatomy is None:
            with gradients_on():
                model_anatomy, _ = prove(module, batch, anatomy, families, seed)
        head, _ = head_of(module, batch, model_anatomy, loss, seed)
        chosen, batch = choose_loss(module, batch, loss, seed=seed, head=head)
        run = _PathsRun(module, one_stack(model_anatomy, module), batch, chosen, say)
        with torch.no_grad():
            # The plain pass comes first: `untouched` watches the operations of a first pass.
            plain_stream, plain_output = run.undisturbed()
            passed, journey = run.carried(logits=logits)
            run.refuse_difference(passed, plain_stream, plain_output)
            numbers = run.numbers(passed, journey, plain_output, logits=logits)
            counted = counts_of(passed, numbers.output)
            sampled = None
            if samples and counted.drawable:
                spreads = numbers.residual is not None
                sampled = run.sampled(passed, samples, seed=seed, spreads=spreads)
    left_out = ["Samples: left out for that reason."] if samples and not counted.drawable else []
    facts = model_facts(original, name, "given")
    assert passed.stream.parts is not None
    coarsest = passed.stream.parts.coarsest
    say("done", 1, 1)
    result = Paths(
        model=facts["name"],
        dtype=facts["dtype"],
        heads=tuple(layer.heads for layer in passed.attentions),
        counts=counted.counts,
        output=numbers.output,
        residual=numbers.residual,
        logits=numbers.logits,
        loss=numbers.loss,
        loss_kind=None if numbers.loss is None else chosen.kind,
        loss_at_most=numbers.loss_at_most,
        sampled=sampled,
        precision=str(coarsest).removeprefix("torch."),
        allowed=run.allowed(torch.finfo(coarsest).eps),
        input=batch.summary(),
        remarks=(*numbers.remarks, *counted.remarks, *left_out),
    )
    return result, model_anatomy, facts


@dataclass(frozen=True)
class _PassNumbers:
    """The numbers of one pass."""

    output: Shares
    residual: Shares | None
    logits: Shares | None
    loss: float | None
    loss_at_most: tuple[float, ...] | None
    remarks: tuple[str, ...]


@dataclass
class _PathsRun:
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

    def undisturbed(self) -> tuple[torch.Tensor | None, Any]:
        """The stream behind the last block and the output of a pass with nothing exchanged."""
        return undisturbed(self.module, self.stack, lambda: call(self.module, self.batch))

    def refuse_difference(self, passed: Passed, stream: torch.Tensor | None, output: Any) -> None:
        """Raise a ProbeError where the carried pass differs from the undisturbed one."""
        pairs = {"the stream after the last layer": (passed.stream, stream)}
        if passed.output is not None:
            outputs = (raw_logits(one, self.module, self.loss) for one in (passed.output, output))
            pairs["the output"] = tuple(outputs)
        for where, (carried, plain) in pairs.items():
            if not isinstance(carried, Carried) or not carried.is_floating_point():
                continue
            kind = carried.dtype if carried.parts is None else carried.parts.coarsest
            allowed = self.allowed(torch.finfo(kind).eps)
            miss = apart(carried, plain) if isinstance(plain, torch.Tensor) else math.inf
            if miss > allowed:
                raise ProbeError(
                    f"The pass with components differs from the model's own: {where} is off by "
                    f"{miss:.3g} of a token's size, where rounding explains at most {allowed:.3g}; "
                    "the model may look at the kind of its tensors, keep something between two "
                    "passes, or depend on chance."
                )

    def numbers(
        self, passed: Passed, journey: Journey, plain_output: Any, *, logits: bool
    ) -> _PassNumbers:
        """All shares and losses. ProbeError when the remainder is more than rounding.

        `plain_output` is what the model returns undisturbed.
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
        spreads = spread(stream.value, stream.parts, views)
        lengths = len(passed.attentions) + 1
        if spreads["output"].norm == 0:
            raise ProbeError("The stream after the last layer is zero, so it has no shares.")
        output = shares_of(spreads["output"], eps, lengths)
        self._refuse_remainder(output, stream, "the stream after the last layer")
        remarks = joined_remarks(journey)
        if spreads["output"].heaviest > HEAVY and stream.numel() > 4 * self.stack.width:
            remarks.append(
                f"One token has {spreads['output'].heaviest:.0%} of |X|^2, so the shares of the "
                "output are largely its own."
            )
        residual = None
        # Below that the residual is what rounding makes of equal tokens.
        if spreads["residual"].norm > 8 * max(eps, output.remainder) * output.norm:
            residual = shares_of(spreads["residual"], eps, lengths)
        else:
            remarks.append(no_residual(stream, axis))
        if not logits:
            remarks.append("Logits: left out, as requested.")
            return _PassNumbers(output, residual, None, None, None, tuple(remarks))
        return self._with_logits(passed, plain_output, output, residual, remarks)

    def _with_logits(
        self,
        passed: Passed,
        plain_output: Any,
        output: Shares,
        residual: Shares | None,
        remarks: list[str],
    ) -> _PassNumbers:
        logits = logits_of(passed.output, self.module, self.loss)
        if isinstance(logits, str):
            return _PassNumbers(output, residual, None, None, None, (*remarks, logits))
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
            return float(self.loss.compute(with_logits(plain_output, value), self.batch))

        def each(length: int, so_far: torch.Tensor) -> None:
            self.say("computing the logits", length + 1, lengths)
            if self.loss.kind in _LOSSES:
                losses.append(loss_of(so_far.to(logits.dtype)))

        logit_spread = spread(
            logits.value, logits.parts, {"logits": logit_view(self.batch.mask)}, each=each
        )["logits"]
        shares = None
        if logit_spread.norm > 0:
            shares = shares_of(logit_spread, eps, lengths)
            self._refuse_remainder(shares, logits, "the logits")
        else:
            remarks.append("Logits: all are equal, so they have no shares.")
        if not losses:
            remarks.append(f"Loss: none but a {self.loss.kind}, because {self.loss.reason}.")
            return _PassNumbers(output, residual, shares, None, None, tuple(remarks))
        losses += losses[-1:] * (lengths - len(losses))
        full_loss = float(self.loss.compute(plain_output, self.batch))
        bad = sum(not math.isfinite(loss) for loss in (*losses, full_loss))
        if bad:
            remarks.append(f"Loss: {bad} of {len(losses) + 1} values are not finite.")
        return _PassNumbers(output, residual, shares, full_loss, tuple(losses), tuple(remarks))

    def sampled(
        self, passed: Passed, samples: int, *, seed: int, spreads: bool
    ) -> SampledPaths | None:
        """Draw paths of every length and follow each on its own, one pass per length.

        `spreads` says whether there is a residual.
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
            view=token_view(mask, token_axis=axis),
            residual=token_view(mask, token_axis=axis, residual=True) if spreads else None,
            say=lambda finished, total: self.say("following sampled paths", finished, total),
        )
        return SampledPaths(samples=samples, seed=seed, residual=residual, error=error)

    def _mask(self, stream: Carried) -> torch.Tensor | None:
        """The mask of real tokens where it fits the stream."""
        mask = self.batch.mask
        if mask is None or stream.ndim != 3:
            return None
        axis = self.stack.token_axis
        return mask if tuple(mask.shape) == (stream.shape[1 - axis], stream.shape[axis]) else None

    def _refuse_remainder(self, shares: Shares, tensor: Carried, where: str) -> None:
        parts = tensor.parts
        assert parts is not None
        allowed = self.allowed(torch.finfo(parts.coarsest).eps)
        if shares.remainder <= allowed:
            return
        kind = str(parts.coarsest).removeprefix("torch.")
        written = sorted(tensor.journey.written)
        cause = "an operation of this model was not followed correctly"
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
