"""One sampled update: what the loop's own forward and backward pass show, layer by layer.

The tap is set on the model when the first forward pass of the update begins and taken off when it
ends; gradients come later by tensor hooks that are set by then. So a block that is computed again
during backward, under gradient checkpointing, is not read twice. With gradient accumulation the
first micro-batch of the update is read.

The anatomy is proved on the first pass that is sampled: fitted on the first half of its examples
and judged on all of them, in evaluation mode and with everything put back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import (
    MIXING,
    Anatomy,
    Block,
    Declaration,
    SeenAttention,
    Stack,
    Sublayer,
    Tap,
    read_anatomy,
    untouched,
)
from leadline.anatomy.find.reading import TOLERANCE
from leadline.anatomy.tensors import mapped
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probe import At, Each, Result
from leadline.instruments.passes.probe_plan import Plan
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.gauges import AttentionGauges, attention_results
from leadline.lab.watch.processes.spread import is_spread
from leadline.lab.watch.spying import FencedSpy
from leadline.models.inputs.model_facts import is_pair
from leadline.numerics.tokens import Tokens
from leadline.record import Reading, Site

__all__ = ["Call", "KnownHeads", "Sample", "prove_anatomy"]


class Call:
    """One call of the model by the loop: the module that was called and its arguments."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs

    def again(self) -> Any:
        """Call the module with the same arguments."""
        return self.module(*self.args, **self.kwargs)

    def of_the_first_half(self) -> Call:
        """The same call with the first half of its examples, where the first axis counts them."""
        sizes = [
            tensor.shape[0]
            for tensor in (*self.args, *self.kwargs.values())
            if isinstance(tensor, Tensor) and tensor.ndim > 1
        ]
        if not sizes or max(sizes) < 2:
            return self
        examples = sizes[0]

        def half(tensor: Tensor) -> Tensor:
            cut = tensor.ndim and tensor.shape[0] == examples
            return tensor[: examples // 2] if cut else tensor

        return Call(self.module, mapped(self.args, half), mapped(self.kwargs, half))

    def mask(self, name: str) -> Tensor | None:
        """A mask [example, token] among the arguments."""
        mask = self.kwargs.get(name)
        return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def prove_anatomy(
    module: nn.Module, call: Call, *, declared: Anatomy | Declaration | None = None
) -> Anatomy:
    """The anatomy of the module inside what was called, proved on the call's own inputs."""
    half = call.of_the_first_half()
    with torch.enable_grad(), untouched(module):
        return read_anatomy(module, half.again, call.again, declared=declared)


class KnownHeads:
    """Which attentions have heads behind their examples, where both are as many.

    The products that queries come from tell. They are followed in the first sample, and again
    where a batch has as many examples as heads and the first one had not.
    """

    def __init__(self) -> None:
        self.looks = True
        """Whether the next sample follows the products."""
        self.modules: set[str] = set()

    def can_tell(self, attention: SeenAttention) -> bool:
        """Say whether an attention is known to be what it seems to be."""
        if not attention.ambiguous:
            if attention.query_source is not None:
                self.modules.add(attention.module)
            return True
        if attention.query_source is not None:
            self.modules.add(attention.module)
        self.looks = self.looks or attention.module not in self.modules
        return attention.module in self.modules


class Sample:
    """Reads one forward pass and the gradients of its backward pass.

    `begin` and `end` stand around the forward pass; `readings` is asked when backward is over.
    """

    def __init__(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        plan: Plan,
        *,
        fence: Fence,
        heads: KnownHeads | None = None,
        gradients: bool = True,
        spread: bool = False,
    ) -> None:
        self.spread = spread
        """Whether tensors inside may be spread over processes: then an operation would need all."""
        self.counts: dict[tuple[str, Site], float] = {}
        """How many numbers each mean is the mean of."""
        self.heads = heads or KnownHeads()
        self.module = module
        self.anatomy = anatomy
        self.plan = plan
        self.fence = fence
        self.gradients = gradients
        self._open = ExitStack()
        self._attention: FencedSpy | None = None
        self.passing = False
        """Whether a forward pass is under way, inside of which hooks are not taken off."""
        self._tap: _FencedTap | None = None
        self._collector: _SampleCollector | None = None
        self.over = False
        """Whether the sample is given up or read: late gradients are no longer taken."""

    def begin(self, call: Call) -> None:
        """Set the hooks for the forward pass that is about to begin."""
        self._collector = _SampleCollector(
            self.plan,
            call.mask("attention_mask"),
            decoder_mask=call.mask("decoder_attention_mask"),
            pair=is_pair(self.module),
        )
        listener = _FencedListener(self._collector, self)
        self._tap = _FencedTap(self.module, self.anatomy, listener, gradients=self.gradients)
        self._tap.sample = self
        self._tap._vectors = _Vectors(self.module)
        self._open.enter_context(self._tap)
        if self.plan.attention:
            self._attention = self._open.enter_context(self._spy(self._tap, self._collector))
        self.passing = True

    def end(self) -> None:
        """Take the hooks off; gradients are still listened to."""
        self.close()
        if self._tap is not None and not self.over:
            self._tap.listen_to_last_streams()

    def give_up(self) -> None:
        """Listen no more, and take everything off unless a pass is under way."""
        self.over = True
        self._tap = self._collector = None
        if not self.passing:
            self._open.close()

    def close(self) -> None:
        """Take everything off the model: no pass is under way."""
        self.passing = False
        self._open.close()

    def interrupt(self) -> None:
        """A pass has ended with an error: hooks stay for now, because torch walks through them."""
        self.over = True
        self.passing = False
        if self._attention is not None:
            self._attention.stop()

    def readings(self) -> list[Reading]:
        """The headline statistics at every site; none where the pass did not run to its end."""
        self.over = True
        tap, collector = self._tap, self._collector
        if tap is None or collector is None:
            return []
        with torch.no_grad():
            balance = tap.balance()
            readings = collector.readings()
        self.counts = collector.counts
        quantities = {quantity.name: quantity for quantity in self.plan.quantities}
        exact = not balance.eps > TOLERANCE
        if not exact:
            self.fence.note(
                f"In training mode layer {balance.layer} of the {balance.stack} does not balance "
                f"({balance.eps:.3g} eps): something changes its update after the module that "
                "returns it, such as functional dropout. Updates are not read, stream and "
                "gradients are.",
                about="balance",
            )
        if collector.unproved:
            self.fence.note(
                f"Attention could not be rebuilt in {len(collector.unproved)} sublayers, so the "
                "probes of attention that were asked for do not read it: dropout inside of "
                "attention does that. attention=True reads logits and weights in any case."
            )
        kept: list[Reading] = []
        for reading in readings:
            quantity = quantities[reading.quantity]
            if reading.statistic != quantity.headline or reading.site.head is not None:
                continue
            if quantity.lives_on == "stream" and reading.site.sublayer is not None:
                continue
            if not exact and quantity.lives_on == "sublayer":
                continue
            kept.append(reading)
        return kept

    def _spy(self, tap: Tap, collector: _SampleCollector) -> FencedSpy:
        """Hand every attention of a sublayer of the anatomy to the collector."""
        # Products of weights that are spread over processes are followed by nobody.
        followed = (collector.needs_projections or self.heads.looks) and not self.spread
        self.heads.looks = False

        def listen(attention: SeenAttention) -> None:
            place = tap.locate(attention.module)
            if place is None or place[2].role not in MIXING:
                return
            if not self.heads.can_tell(attention):
                if followed:
                    self.fence.note(
                        f"In '{attention.module}' heads and examples cannot be told apart, so its "
                        "attention is not read; another number of examples would tell."
                    )
                return
            stack, block, write = place
            grid = attention.weights if attention.weights is not None else attention.query
            if grid is not None and grid.shape[2] == tap.tokens and not self.over:
                collector.attention(stack, block, write, attention)

        return FencedSpy(
            self.module,
            self.fence.guard("Reading attention", listen),
            fence=self.fence,
            examples=lambda: tap.examples,
            projections=followed,
            looks=lambda: not (self.over or self.fence.off),
        )


class _SampleCollector(Collector):
    """Keeps means only: medians sort every token of every site, and nobody watches them.

    Of attention the first example is read, unless a further probe asks for whole matrices.
    """

    @cached_property
    def counts(self) -> dict[tuple[str, Site], float]:
        """How many tokens or examples each mean is the mean of."""
        return {}

    @property
    def needs_projections(self) -> bool:
        """Whether a probe wants to know where queries and keys come from."""
        return any(not isinstance(probe, AttentionGauges) for probe in self._attentions)

    def attention(
        self, stack: Stack, block: Block, write: Sublayer, attention: SeenAttention
    ) -> None:
        if self.needs_projections:
            super().attention(stack, block, write, attention)
            return
        at = At(stack, Site(stack.name, block.layer, write.sublayer, write.role))
        queries, _ = self._attention_masks(stack, write, attention)
        self._take(at, None, attention_results(attention, queries=queries))

    def _take(
        self, at: At, tokens: Tokens | None, results: Iterable[Result], heads_before: int = 0
    ) -> None:
        super()._take(at, tokens, self._counted(at, results), heads_before)

    def _counted(self, at: At, results: Iterable[Result]) -> Iterator[Result]:
        for result in results:
            if isinstance(result, Each):
                site = result.site if result.site is not None else at.site
                self.counts[result.quantity.name, site] = float(result.values.all.numel())
            yield result

    def _flush(self) -> None:
        for pending in self._pending.values():
            table = torch.stack(pending.values)
            mask = pending.mask
            every = table.flatten(1) if mask is None else table[:, mask]
            means = every.mean(1, dtype=torch.float64)
            for (name, site), value in zip(pending.labels, means.tolist(), strict=True):
                self._readings.append(Reading(name, site, "mean", value))
                self.counts[name, site] = float(every.shape[1])
        self._pending.clear()
        self._held_values = 0


class _FencedListener:
    """Hands on what the tap reads; a probe that fails ends the sample and nothing else."""

    def __init__(self, collector: Collector, sample: Sample) -> None:
        self._sample = sample
        self._collector = collector

    def _hand_on(self, method: Callable[..., None], *args: Any) -> None:
        sample = self._sample
        if sample.over or sample.fence.off:
            return
        try:
            method(*args)
        except Exception as error:
            sample.fence.fault(error, "A probe")

    def stream(self, stack: Stack, layer: int, sublayer: int | None, x: Tensor) -> None:
        if sublayer is None:  # the sites between two writes of a block are not watched
            self._hand_on(self._collector.stream, stack, layer, sublayer, x)

    def update(self, stack: Stack, block: Block, write: Sublayer, u: Tensor, x: Tensor) -> None:
        self._hand_on(self._collector.update, stack, block, write, u, x)

    def block(self, stack: Stack, block: Block, before: Tensor, after: Tensor) -> None:
        self._hand_on(self._collector.block, stack, block, before, after)

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None:
        if sublayer is None:
            self._hand_on(self._collector.gradient, stack, layer, sublayer, g)


class _FencedTap(Tap):
    """A tap whose faults end the sample and never reach the forward pass that it sits in."""

    sample: Sample

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._last_streams: list[tuple[Any, Tensor, torch.Size, int]] = []

    def _entry_hook(self, walks: Any) -> Callable[..., Any]:
        hook = self._fenced(super()._entry_hook(walks))

        def look(*args: Any) -> None:
            # A tap gives a stream that carries no gradient a leaf of its own. That would change
            # the loop: reentrant checkpointing trains nothing without such a leaf.
            hook(*args)

        return look

    def _watch_input(self, path: str, walks: Any) -> Callable[..., None]:
        return self._fenced(super()._watch_input(path, walks))

    def _output_hook(self, path: str, walks: Any) -> Callable[..., None]:
        return self._fenced(super()._output_hook(path, walks))

    def _start(self, walk: Any, x: Tensor) -> None:
        super()._start(walk, x)
        # Under reentrant checkpointing a block runs without gradients, and what it returned has
        # none; the tensor that enters the next block has.
        site = (walk.stack.name, walk.index)
        if walk.index > 0 and site in self.without_gradient and x.requires_grad:
            self.without_gradient.discard(site)
            self._listen_to_gradient(walk, walk.index, None, x, 1.0)

    def _listen_to_gradient(
        self, walk: Any, layer: int, sublayer: int | None, live: Tensor, factor: float
    ) -> None:
        if sublayer is not None:
            return
        if not live.requires_grad and layer == walk.stack.depth and walk.before is not None:
            self._last_streams.append((walk, live, walk.before.shape, live._version))
        super()._listen_to_gradient(walk, layer, sublayer, _Hooked(live, self), factor)  # type: ignore[arg-type]

    def listen_to_last_streams(self) -> None:
        """Ask for the gradient behind the last block, which no further block receives.

        Inside of a reentrant checkpoint it carries no gradient; when the checkpoint is over, the
        same tensor does.
        """
        for walk, live, shape, version in self._last_streams:
            if live.requires_grad and live._version == version:
                self._listen_late(walk, live, shape)
        self._last_streams.clear()

    def _listen_late(self, walk: Any, live: Tensor, shape: torch.Size) -> None:
        listener, stack = self.listener, walk.stack

        def hook(gradient: Tensor) -> None:
            with torch.no_grad():
                tokens = self._tokens(walk, gradient.reshape(shape))
                listener.gradient(stack, stack.depth, None, tokens)  # type: ignore[union-attr]

        _Hooked(live, self).register_hook(hook)

    def _fenced(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        def fenced(*args: Any) -> Any:
            if torch.compiler.is_compiling():  # compiled out of sight: leave the graph alone
                return None
            sample = self.sample
            if sample.over or sample.fence.off:
                return None
            try:
                if sample.spread and _holds_spread(args):
                    sample.give_up()
                    sample.fence.note(
                        "Streams or updates are spread over processes (DTensors), so layers are "
                        "not read: to read them would need all processes."
                    )
                    return None
                return hook(*args)
            except Exception as error:
                sample.fence.fault(error, "Reading the stream")
                return None

        return fenced


class _Vectors(dict[str, Tensor]):
    """Parameters by their paths, as they are when they are asked for.

    A sharded parameter is whole only while its block runs.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def __getitem__(self, path: str) -> Tensor:
        return self._module.get_parameter(path).detach()


def _holds_spread(values: object) -> bool:
    found: list[bool] = []

    def look(tensor: Tensor) -> Tensor:
        found.append(is_spread(tensor))
        return tensor

    mapped(values, look)
    return any(found)


class _Hooked:
    """A tensor of which a tap asks two things; its gradient hook gets a fence of its own."""

    def __init__(self, tensor: Tensor, tap: _FencedTap) -> None:
        self._tensor = tensor
        self._tap = tap

    @property
    def requires_grad(self) -> bool:
        return self._tensor.requires_grad

    def register_hook(self, hook: Callable[[Tensor], None]) -> None:
        self._tensor.register_hook(self._tap._fenced(hook))
