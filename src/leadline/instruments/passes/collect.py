"""From tensors to rows: hands what the tap reads to the probes and keeps only numbers.

Per-token numbers are held until about a million have gathered; then means and medians are taken
for all sites at once. Padding never enters: a mask is looked up for every stack by its shape.

Nothing is asked of the device while the model runs. All numbers stay there until `readings`, which
fetches them together; of a mask the places of the real tokens are fetched once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from leadline.anatomy import Block, SeenAttention, Stack, Sublayer
from leadline.anatomy.tap.output_projection import BranchProducts
from leadline.errors import ProbeError, shown
from leadline.instruments.passes.attention_facts import attention_facts, attention_findings
from leadline.instruments.passes.branches import Branches
from leadline.instruments.passes.probe import (
    At,
    Each,
    Later,
    PerHead,
    PerToken,
    Refused,
    Result,
    Single,
    settled,
)
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.reduction import (
    head_readings,
    joined_heads,
    means_of,
    real_tokens,
    token_columns,
)
from leadline.numerics.devices import widest_float
from leadline.numerics.patterns.pattern_queue import PatternQueue
from leadline.numerics.patterns.patterns import PROOF_LIMIT, Patterns
from leadline.numerics.tokens import Tokens, real_rows
from leadline.record import Finding, Reading, Site

__all__ = ["Collector", "checked_results"]

Tensor = torch.Tensor
_FLUSH_AT = 1_000_000
"""Per-token numbers that are held before they are reduced."""


@dataclass
class _Pending:
    """Per-token numbers of many sites that share one mask."""

    mask: Tensor | None
    rows: list[Tensor] | None
    labels: list[tuple[str, Site]] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


class Collector:
    """Listen to a measuring pass, hand its tensors to the probes, and keep their numbers.

    `mask` marks the real tokens of every stack; of an encoder with a decoder (`pair`) it is the
    encoder's, and the decoder has its own. `products` are those of the block that is running,
    where a probe asks for the weights of its branches. `measured` are the names of the quantities
    that have numbers.
    """

    def __init__(
        self,
        plan: Plan,
        mask: Tensor | None = None,
        *,
        decoder_mask: Tensor | None = None,
        pair: bool = False,
        products: BranchProducts | None = None,
    ) -> None:
        self._branches = None if products is None else Branches(plan, products)
        # What probes multiply must not be taken for products of the model, nor be looked at for it.
        self._unwatched = torch._C.DisableTorchFunction if plan.attention else nullcontext
        self.refused: list[tuple[Refused, Site]] = []
        self.pair = pair
        self.main_mask = mask
        self.decoder_mask = decoder_mask
        self.measured: set[str] = set()
        self.unmasked: set[str] = set()
        self._requires = {one.name: one.requires for one in plan.quantities}
        self._streams = plan.seeing("stream")
        self._updates = plan.seeing("update")
        self._blocks = plan.seeing("block")
        self._gradients = plan.seeing("gradient")
        self._parameters = plan.seeing("parameters")
        self._attentions = plan.seeing("attention")
        self._judges_at_once = products is not None or not all(
            getattr(probe, "later", False) for probe in self._attentions
        )
        self._queue = PatternQueue()
        self._waiting: list[tuple[At, Patterns, list[list[Result | Later]]]] = []
        self.attentions: list[dict[str, Any]] = []
        self.several: set[tuple[str, int, int | None]] = set()
        self._heads: dict[tuple[str, Site], list[PerHead]] = {}
        self.unproved: dict[tuple[str, int, int], float | None] = {}
        self.remarks: list[Finding] = []
        self._starts: dict[str, Tokens] = {}
        self._latest: dict[str, list[tuple[Tensor, int, Tokens]]] = {}
        self._pending: dict[tuple[int, tuple[int, ...]], _Pending] = {}
        self._masks: dict[tuple[int, str], tuple[Tensor, list[Tensor]]] = {}
        self._padded: dict[int, bool] = {}
        self._columns: list[tuple[str, list[tuple[str, Site]], Tensor]] = []
        self._held_values = 0
        self._singles: list[tuple[Single, Site]] = []
        self._readings: list[Reading] = []

    # --- the tap's listener ----------------------------------------------------------------

    def stream(self, stack: Stack, layer: int, sublayer: int | None, x: Tensor) -> None:
        tokens = self._tokens(stack, x)
        start = self._starts.setdefault(stack.name, tokens)
        at = At(stack, Site(stack.name, layer, sublayer), torch.finfo(x.dtype).eps)
        with self._unwatched():
            for probe in self._streams:
                self._take(at, tokens, probe.stream(at, tokens, start))
        # The centred copy is as large as the stream itself; only the stream is kept.
        tokens.__dict__.pop("_centred", None)

    def update(self, stack: Stack, block: Block, write: Sublayer, u: Tensor, x: Tensor) -> None:
        at = At(stack, Site(stack.name, block.layer, write.sublayer, write.role))
        with self._unwatched():
            if self._branches is not None:
                self._take(at, None, self._branches.results_of_write(at, write, u, x))
            if not self._updates:
                return
            tokens_before = self._tokens(stack, x)
            update = Tokens(u, tokens_before.mask, self._rows(tokens_before.mask))
            for probe in self._updates:
                self._take(at, update, probe.update(at, update, tokens_before))

    def block(self, stack: Stack, block: Block, before: Tensor, after: Tensor) -> None:
        if self._branches is not None:
            self._branches.end_block()
        if not self._blocks:
            return
        at = At(stack, Site(stack.name, block.layer, None, "block"))
        first, second = self._tokens(stack, before), self._tokens(stack, after)
        for probe in self._blocks:
            self._take(at, first, probe.block(at, first, second))

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None:
        if not self._gradients:
            return
        at = At(stack, Site(stack.name, layer, sublayer))
        tokens = self._fresh_tokens(stack, g)
        for probe in self._gradients:
            self._take(at, tokens, probe.gradient(at, tokens))

    def parameters(self, stack: Stack, block: Block, write: Sublayer, norm: Tensor) -> None:
        at = At(stack, Site(stack.name, block.layer, write.sublayer, write.role))
        for probe in self._parameters:
            self._take(at, None, probe.parameters(at, norm))

    def attention(
        self, stack: Stack, block: Block, write: Sublayer, attention: SeenAttention
    ) -> None:
        site = Site(stack.name, block.layer, write.sublayer, write.role)
        queries, keys = self._attention_masks(stack, write, attention)
        patterns = Patterns(attention, queries=queries, keys=keys, queue=self._queue)
        at = At(stack, site)
        # What reads whole matrices has to know first whether they are the right ones; of weights that
        # a model computed itself the tensors are needed for that.
        if self._judges_at_once or attention.route == "weights":
            self.settle()
            if self._judge(at, patterns) and self._branches is not None:
                self._branches.add_attention(site, patterns, queries)
            return
        patterns.add_up()
        results = [list(_iterable(one.attention(at, patterns), at)) for one in self._attentions]
        patterns.let_go()
        self._waiting.append((at, patterns, results))

    def settle(self) -> None:
        """Judge the attention that waits, and take in what the probes made of it."""
        waiting, self._waiting = self._waiting, []
        for at, patterns, results in waiting:
            self._judge(at, patterns, results)

    def _judge(
        self, at: At, patterns: Patterns, results: Sequence[Iterable[Result | Later]] | None = None
    ) -> bool:
        """Take in the facts and results of matrices that are proved; say whether they are."""
        site = at.site
        proof = patterns.measured.proof
        # Broken logits break the proof too, and are a finding of their own.
        if proof is None or not (proof <= PROOF_LIMIT or patterns.measured.broken):
            self.unproved[site.stack, site.layer, site.sublayer or 0] = proof
            return False
        self.remarks += attention_findings(site, patterns)
        # Some blocks call attention twice for one write; the heads of the second are counted on.
        earlier = sum(one["heads"] for one in self.attentions if _at(one) == _place(site))
        if earlier:
            self.several.add(_place(site))
        self.attentions.append(attention_facts(site, patterns, first_head=earlier + 1))
        if results is None:
            results = [_iterable(probe.attention(at, patterns), at) for probe in self._attentions]
        for one in results:
            self._take(at, None, settled(one), earlier)
        return True

    def _split(self, name: str, site: Site) -> bool:
        """Whether a number of all heads was taken of one call where a sublayer makes several."""
        requires = self._requires.get(name, ())
        if "all layers" in requires:
            return any(stack == site.stack for stack, *_ in self.several)
        return "all heads" in requires and _place(site) in self.several

    # --- reduction -------------------------------------------------------------------------

    def _tokens(self, stack: Stack, x: Tensor) -> Tokens:
        """The statistics of a tensor, reused if it was read a moment ago: a stream is read thrice."""
        latest = self._latest.setdefault(stack.name, [])
        for tensor, version, tokens in latest:
            # The tensor is kept, so its memory is not used again; its version tells whether it
            # was changed in place since.
            if _same_memory(tensor, x) and x._version == version:
                return tokens
        tokens = self._fresh_tokens(stack, x)
        latest.append((x, x._version, tokens))
        del latest[:-2]
        return tokens

    def _fresh_tokens(self, stack: Stack, x: Tensor) -> Tokens:
        mask = self._mask(stack, x)
        return Tokens(x, mask, self._rows(mask))

    def _mask(self, stack: Stack, x: Tensor) -> Tensor | None:
        decoder = self.pair and "decoder" in stack.name
        if not self.pair and stack.name.partition("-")[0] in ("vision", "audio"):
            # In a model of two towers the mask is that of the text.
            return None
        mask = self.decoder_mask if decoder else self.main_mask
        if mask is None or not self._is_padded(mask):
            return None
        if mask.shape != x.shape[:2]:
            self.unmasked.add(stack.name)
            return None
        return self._on(mask, x.device)

    def _attention_masks(
        self, stack: Stack, write: Sublayer, attention: SeenAttention
    ) -> tuple[Tensor | None, Tensor | None]:
        """The real tokens among queries and keys."""
        grid = attention.weights if attention.weights is not None else attention.query
        far = attention.weights.shape[-1] if attention.weights is not None else None
        assert grid is not None
        if far is None:
            assert attention.key is not None
            far = attention.key.shape[2]
        queries = self._mask(stack, grid[:, 0, :, :1])
        if write.role == "cross-attention":
            mask = self.main_mask if self.pair else None
            fits = mask is not None and mask.shape == (grid.shape[0], far)
            keys = self._on(mask, grid.device) if fits and mask is not None else None
        else:
            keys = queries if far == grid.shape[2] else None
        return queries, keys

    def _is_padded(self, mask: Tensor) -> bool:
        """Whether a mask hides any token; asked once of every mask."""
        if id(mask) not in self._padded:
            self._padded[id(mask)] = not bool(mask.bool().all())
        return self._padded[id(mask)]

    def _on(self, mask: Tensor, device: torch.device) -> Tensor:
        """The mask on the device, made once: sites that share a mask are summed up together."""
        key = (id(mask), str(device))
        if key not in self._masks:
            there = mask.bool().to(device)
            self._masks[key] = (there, real_rows(there))
        return self._masks[key][0]

    def _rows(self, mask: Tensor | None) -> list[Tensor] | None:
        """The places of the real tokens under a mask that `_on` has returned."""
        return next((rows for known, rows in self._masks.values() if known is mask), None)

    def _take(
        self, at: At, tokens: Tokens | None, results: Iterable[Result], heads_before: int = 0
    ) -> None:
        for result in checked_results(results, at):
            if isinstance(result, Refused):
                self.refused.append((result, at.site))
                continue
            self.measured.add(result.quantity.name)
            name = result.quantity.name
            if isinstance(result, PerHead):
                self._heads.setdefault((name, at.site), []).append(result)
                continue
            site = result.site if result.site is not None else at.site
            if site.head is not None:
                site = replace(site, head=site.head + heads_before)
            if isinstance(result, Single):
                self._singles.append((result, site))
            elif isinstance(result, Each):
                for statistic, (value, lower, upper) in means_of(result):
                    one = Single(result.quantity, value, statistic, lower=lower, upper=upper)
                    self._singles.append((one, site))
            elif isinstance(result, PerToken):
                self._hold(name, site, result.values, None if tokens is None else tokens.mask)

    def _hold(self, name: str, site: Site, values: Tensor, mask: Tensor | None) -> None:
        key = (id(mask) if mask is not None else 0, tuple(values.shape))
        pending = self._pending.setdefault(key, _Pending(mask, self._rows(mask)))
        pending.labels.append((name, site))
        pending.values.append(values)
        self._held_values += values.numel()
        if self._held_values > _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        """Reduce what is held to means and medians, on the device."""
        for pending in self._pending.values():
            table = torch.stack(pending.values)
            columns = token_columns(*real_tokens(table, pending.mask, pending.rows))
            self._columns += [(name, pending.labels, column) for name, column in columns.items()]
        self._pending.clear()
        self._held_values = 0

    def readings(self) -> list[Reading]:
        """Everything measured so far, as rows."""
        self.settle()
        self._flush()
        for (_, site), results in self._heads.items():
            self._readings += head_readings(joined_heads(results), site)
        self._heads.clear()
        unsplit = [one for one in self._singles if not self._split(one[0].quantity.name, one[1])]
        names = {one.quantity.name for one, _ in self._singles}
        columns, singles = self._columns, unsplit
        self._columns, self._singles = [], []
        ends = [(one.value, one.lower, one.upper, one.exists) for one, _ in singles]
        known = [end.detach().reshape(1) for row in ends for end in row if end is not None]
        numbers = iter(_fetched([*(column for *_, column in columns), *known]))
        for statistic, labels, _ in columns:
            for name, site in labels:
                self._readings.append(Reading(name, site, statistic, next(numbers)))
        for (one, site), row in zip(singles, ends, strict=True):
            value, lower, upper, exists = (None if end is None else next(numbers) for end in row)
            assert value is not None
            if exists == 0:
                if one.otherwise:
                    self.refused.append((Refused((one.quantity,), one.otherwise), site))
                continue
            name = one.quantity.name
            self._readings.append(Reading(name, site, one.statistic, value, lower, upper))
        self.measured -= names - {one.quantity for one in self._readings}
        return self._readings


def _fetched(tensors: list[Tensor]) -> list[float]:
    """The numbers of vectors, by one transfer from the device for all of them."""
    if not tensors:
        return []
    # Numbers of weights may stand on the CPU while the stream does not.
    far = next((one.device for one in tensors if one.device.type != "cpu"), tensors[0].device)
    return torch.cat([one.to(far, widest_float(far)) for one in tensors]).tolist()


def _place(site: Site) -> tuple[str, int, int | None]:
    return site.stack, site.layer, site.sublayer


def _at(facts: dict[str, Any]) -> tuple[str, int, int | None]:
    return facts["stack"], facts["layer"], facts["sublayer"]


def _same_memory(first: Tensor, second: Tensor) -> bool:
    # By the storage and not by its address, which tensors without memory (meta, fake) do not have.
    return (
        first.untyped_storage()._cdata == second.untyped_storage()._cdata
        and first.storage_offset() == second.storage_offset()
        and first.shape == second.shape
        and first.dtype == second.dtype
        and first.stride() == second.stride()
    )


def checked_results(results: Iterable[Result], at: At) -> Iterator[Result]:
    """Refuse what is no result, in a sentence: a probe may be anybody's."""
    for result in _iterable(results, at):
        if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ProbeError(_not_a_result(result, at))
        if isinstance(result, Single):
            value: object = result.value
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ProbeError(
                    f"A probe gave {shown(value)} as a single number of {result.quantity.name} at "
                    f"{at.site}; give a tensor with one element."
                )
        yield result


def _iterable(results: Iterable[Any], at: At) -> Iterable[Any]:
    if not isinstance(results, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProbeError(_not_a_result(results, at))
    return results


def _not_a_result(value: object, at: At) -> str:
    return (
        f"A method of a probe gave {shown(value)} at {at.site}; it yields PerToken, PerHead, Each, "
        "Single or Refused results of leadline.instruments.passes.probe."
    )
