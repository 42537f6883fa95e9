"""One sampled update: what the loop's own forward and backward pass show, layer by layer.

With gradient accumulation the first micro-batch of the update is read, forward and backward.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import nn

from leadline.anatomy import MIXING, TOLERANCE, Anatomy, SeenAttention, Tap, own_depth
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.probes.extremes import LARGEST, ROOM
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.apart import set_apart
from leadline.lab.watch.sampling.call import Call
from leadline.lab.watch.sampling.collector import SampleCollector
from leadline.lab.watch.sampling.fenced_tap import FencedTap
from leadline.lab.watch.sampling.known_heads import KnownHeads
from leadline.lab.watch.sampling.listener import FencedListener
from leadline.lab.watch.sampling.spying import FencedSpy
from leadline.models.inputs.model_facts import is_pair
from leadline.record import Reading, Site

__all__ = ["Sample"]


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
        own: bool = False,
    ) -> None:
        self._own = own
        """Whether the passes are ours and not the loop's."""
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
        self._tap: FencedTap | None = None
        self._collector: SampleCollector | None = None
        self._listener: FencedListener | None = None
        self.over = False
        """Whether the sample is given up or read: late gradients are no longer taken."""
        self.resting = False
        """Whether the model is being asked something inside of the pass that is read."""
        self._depth = 0
        """How deep inside of passes of our own the pass is that is read."""

    def begin(self, call: Call) -> None:
        """Set the hooks for the forward pass that is about to begin."""
        self._collector = set_apart(self._new_collector)(call)
        self._listener = FencedListener(self._collector, self, own=self._own)
        self._tap = FencedTap(
            self.module, self.anatomy, self._listener, sample=self, gradients=self.gradients
        )
        self._open.enter_context(self._tap)
        if self.plan.attention:
            self._attention = self._open.enter_context(self._spy(self._tap, self._collector))
        self.passing = True
        self._depth = own_depth()

    @property
    def looks(self) -> bool:
        """Whether what passes now belongs to the pass that is read."""
        paused = self.resting or own_depth() != self._depth
        return not (paused or self.over or self.fence.off)

    def _new_collector(self, call: Call) -> SampleCollector:
        return SampleCollector(
            self.plan,
            call.mask("attention_mask"),
            decoder_mask=call.mask("decoder_attention_mask"),
            pair=is_pair(self.module),
        )

    def end(self) -> None:
        """Take the hooks off; gradients are still listened to."""
        self.close()
        if self._tap is not None and not self.over:
            set_apart(self._tap.listen_to_last_streams)()

    def give_up(self) -> None:
        """Listen no more, and take everything off unless a pass is under way."""
        self.over = True
        self._tap = self._collector = self._listener = None
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
        if self._listener is not None:
            self._listener.end()
        tap, collector, listener = self._tap, self._collector, self._listener
        self.over = True
        if tap is None or collector is None or listener is None:
            return []
        with torch.no_grad():
            balance = tap.balance()
            readings = collector.readings()
        self.counts = collector.counts
        if tap.left_out:
            self.fence.note(
                "In some sampled updates the forward pass leaves layers out, as layerdrop does: "
                "nothing is read of a layer where it is left out."
            )
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
        if (
            self.gradients
            and not self._own
            and tap.listens_to_gradients
            and not listener.gradients.came
        ):
            self.fence.note(
                "No backward pass went through the forward pass that was read, so the gradient at "
                "the stream is not read: of every sampled update it is the first forward pass "
                "with gradients that is read."
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
        return _without_room_of_zero(kept)

    @property
    def of_no_training(self) -> bool:
        """Whether the loop has done with the pass that was read, but has not trained with it."""
        if self._tap is None or self._listener is None or self.passing or self._own:
            return False
        gradients = self._listener.gradients
        return gradients.of_no_training or (self._tap.graph_is_gone and not gradients.trained)

    def _spy(self, tap: Tap, collector: SampleCollector) -> FencedSpy:
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
            looks=lambda: self.looks,
        )


def _without_room_of_zero(readings: list[Reading]) -> list[Reading]:
    """Leave out how much room float16 has above a stream that is zero everywhere."""
    zero = {one.site for one in readings if one.quantity == LARGEST.name and one.value == 0}
    return [one for one in readings if one.quantity != ROOM.name or one.site not in zero]
