"""Keep what a sample reads: the headline statistic of every site, and of how many numbers it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import torch

from leadline.anatomy import Block, SeenAttention, Stack, Sublayer
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probe import At, Each, Result
from leadline.instruments.passes.reduction import real_tokens
from leadline.lab.watch.gauges import AttentionGauges, attention_results
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import Tokens
from leadline.record import Site

__all__ = ["SampleCollector"]


class SampleCollector(Collector):
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
        rows = self._rows(self._attention_masks(stack, write, attention)[0])
        queries = None if rows is None else rows[0]
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
            every, _ = real_tokens(torch.stack(pending.values), pending.mask, pending.rows)
            means = every.mean(1, dtype=widest_float(every.device))
            self._columns.append(("mean", pending.labels, means))
            for name, site in pending.labels:
                self.counts[name, site] = float(every.shape[1])
        self._pending.clear()
        self._held_values = 0
