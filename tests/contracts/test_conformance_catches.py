"""Parts that are wrong on purpose: each is caught by the check that is named beside it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from leadline.parts import PARTS
from leadline.parts.branches.attention.multihead import MultiHead
from leadline.parts.branches.branch import Branch, linear
from leadline.parts.branches.mlp.kinds import ReLU
from leadline.parts.connections import Connection, Scalar
from leadline.parts.embedding import TokenEmbedding
from leadline.parts.head import LinearHead
from leadline.parts.inits.init import Init, normal
from leadline.parts.placements import Placement
from leadline.parts.positions.learned import Learned
from leadline.testing.conformance import check_part

WRONG: list[tuple[str, str, type]] = []
"""Kind, the name of the check that must fail, and the part."""
COUNTER = itertools.count()


def caught_by(check: str, kind: str = "connection") -> Callable[[type], type]:
    def enter(part: type) -> type:
        WRONG.append((kind, check, part))
        return part

    return enter


@pytest.mark.parametrize(
    ("kind", "check", "part"), WRONG, ids=[f"{part.__name__}-{check}" for _, check, part in WRONG]
)
def test_a_wrong_part_is_caught_by_the_check_of_that_name(
    kind: str, check: str, part: type
) -> None:
    name = f"wrong-{next(COUNTER)}"
    catalog = PARTS[kind]
    catalog.register(name)(part)
    try:
        found = {c.name: c for c in check_part(kind, name, only=[check])}
    finally:
        catalog._entries.pop(name)
    assert not found[check].passed, found[check]
    assert found[check].detail


class Plain(Scalar):
    """x + u, from which the mutants are made."""

    formula = "x + u"
    starts_as = "plain"


def test_what_the_wrong_connections_are_made_from_is_right() -> None:
    catalog = PARTS["connection"]
    catalog.register("right")(Plain)
    try:
        # All but the page of this file, which is no page of a connection.
        checks = [c for c in check_part("connection", "right") if c.name != "documents"]
    finally:
        catalog._entries.pop("right")
    assert [c for c in checks if not c.passed] == []


# --- what a connection declares ------------------------------------------------------------------


@caught_by("keeps_identity")
class Forgetful(Plain):
    """The stream is forgotten, and nobody says so."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return update


@caught_by("keeps_identity")
class Leaky(Plain):
    """A little of the stream is lost at every write."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return 0.99999 * state + update


@caught_by("keeps_identity")
class Modest(Plain):
    """The stream is kept, and that is denied."""

    keeps_identity = False


@caught_by("keeps_identity")
class KeepsAtFirst(Connection):
    """The stream is kept until its weight has moved."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.ones(()))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.alpha * state + update


@caught_by("derivatives")
class Severed(Plain):
    """x + u, whose gradient does not reach the stream before."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state.detach() + update


@caught_by("derivatives")
class Deaf(Plain):
    """The branch reads a copy that no gradient comes back from."""

    def read(self, state: Tensor) -> Tensor:
        return state.detach()


@caught_by("starts_as")
class NotAtAll(Plain):
    """Said to start as the identity, and x + u."""

    starts_as = "identity"


@caught_by("starts_as")
class Silent(Plain):
    """x + u, without saying so."""

    starts_as = None


@caught_by("starts_as")
class AlmostZero(Plain):
    """A very small gain is no identity."""

    starts_as = "identity"

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.gain = 1e-4


@caught_by("starts_as")
class DroppedInTraining(Plain):
    """x + u in evaluation, and something else in training."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + F.dropout(update, 0.1, self.training)


@caught_by("starts_as")
class ClosedOtherwise(Plain):
    """Plain at every write, and doubled in the end."""

    def close(self, state: Tensor) -> Tensor:
        return 2 * state


@caught_by("keeps_variance")
class Growing(Plain):
    """x + u has variance 2."""

    keeps_variance = True


@caught_by("keeps_variance")
class Halved(Scalar):
    """(x + u) / sqrt(2) has variance 1, and that is denied."""

    formula = "(x + u) / sqrt(2)"
    keeps_identity = False
    keep = gain = math.sqrt(0.5)


@caught_by("keeps_variance")
class NearlyKept(Scalar):
    """Off by six percent, at the last write only."""

    keeps_identity = False
    keeps_variance = True

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.keep = math.sqrt(0.5)
        self.gain = math.sqrt(0.5 + 0.06 * place.ends_stack)


class Lanes(Connection):
    """Two lanes, mixed by a softmax over rows: columns do not sum to 1."""

    formula = "H x + u"
    keeps_identity = False
    starts_as = None
    mixes = "doubly stochastic"
    lanes = 2

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.logits = nn.Parameter(torch.zeros(2, 2))

    def open(self, stream: Tensor) -> Tensor:
        return torch.stack((stream, stream), 2)

    def read(self, state: Tensor) -> Tensor:
        return state.mean(2)

    def close(self, state: Tensor) -> Tensor:
        return state.mean(2)

    def mixing(self, state: Tensor) -> Tensor:
        return self.logits.softmax(-1)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.mixing(state) @ state + update.unsqueeze(2)


caught_by("mixes")(Lanes)


@caught_by("mixes")
class NegativeLanes(Lanes):
    """Rows and columns sum to 1 by a negative entry."""

    def mixing(self, state: Tensor) -> Tensor:
        return torch.tensor([[1.5, -0.5], [-0.5, 1.5]])


@caught_by("mixes")
class SilentLanes(Lanes):
    """Doubly stochastic for all weights, and not declared."""

    mixes = None

    def mixing(self, state: Tensor) -> Tensor:
        share = self.logits[0, 0].sigmoid()
        return torch.stack((torch.stack((share, 1 - share)), torch.stack((1 - share, share))))


@caught_by("mixes")
class NothingMixed(Plain):
    """Declares a mixture that it has not."""

    mixes = "doubly stochastic"


@caught_by("states")
class MoreLanes(Lanes):
    """Says three lanes and has two."""

    lanes = 3


@caught_by("amplifies")
class WrongBranch(Scalar):
    """DeepNorm with alpha on the update instead of the stream."""

    formula = "a x + u"
    amplifies = True

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.gain = (2 * place.depth) ** 0.25


@caught_by("amplifies")
class Loud(Scalar):
    """2 x + u, without saying that it amplifies."""

    keeps_identity = False
    keep = 2.0


@caught_by("varies")
class Fading(Scalar):
    """The gain falls with the layer, and nobody says so."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.gain = 1.0 / place.layer


@caught_by("varies")
class FadingInTraining(Plain):
    """The gain falls with the layer in training alone."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + (update / self.place.layer if self.training else update)


@caught_by("varies")
class Constant(Plain):
    """The same in all layers, and said to vary."""

    varies = True


@caught_by("split")
class WrongSplit(Plain):
    """What is written is counted twice."""

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, 2 * update


@caught_by("balance")
class WrongBooks(Connection):
    """A law that does not balance."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, 2 * update


@caught_by("keep and gain")
class WrongGain(Plain):
    """Declares the gain 0.5 and writes with 1."""

    gain = 0.5

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update


@caught_by("keep and gain")
class NamelessGain(Plain):
    """Names a parameter as its gain that it has not."""

    gain = "alpha"  # type: ignore[assignment]

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update


@caught_by("declarations")
class WithoutFormula(Plain):
    """No formula."""

    formula = ""


@caught_by("declarations")
class Misspelt(Plain):
    """A fact that no word stands for."""

    starts_as = "plian"  # type: ignore[assignment]


@caught_by("documents")
class Undocumented(Plain):
    __doc__ = None


@caught_by("documents")
class WithoutSource(Plain):
    """The page of this file has neither a formula nor a source."""


# --- how a connection is built -------------------------------------------------------------------


@caught_by("builds")
class Unbuildable(Plain):
    """Needs what it is never given."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        raise RuntimeError("no luck")


@caught_by("builds")
class Refused(Plain):
    """Makes no sense with any placement."""

    @classmethod
    def refuses(cls, placement: Any, sublayers: int) -> str | None:
        return "it fits nowhere"


@caught_by("filled")
class Uninitialised(Plain):
    """A matrix that nobody fills."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.map = skip_init(nn.Linear, place.width, place.width)


@caught_by("layers differ")
class Cloned(Plain):
    """Draws the same numbers in every layer, whatever the seed."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        generator = torch.Generator().manual_seed(0)
        self.map = nn.Parameter(torch.randn(place.width, generator=generator))


@caught_by("layers differ")
class Reseeded(Plain):
    """Draws from the seed of the model, but the same in every layer."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        torch.manual_seed(torch.initial_seed())
        self.map = nn.Parameter(torch.randn(place.width))


@caught_by("random numbers")
class MovesNumpy(Plain):
    """Draws from numpy's global numbers."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        np.random.rand()


@caught_by("random numbers")
class MovesPython(Plain):
    """Draws from Python's global numbers."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        random.random()


@caught_by("random numbers")
class Unrepeatable(Plain):
    """Never starts the same way twice."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.tensor(float(next(COUNTER))))


@caught_by("save and load")
class Unsaved(Connection):
    """A random gain that is neither a parameter nor a buffer."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.gains = [torch.randn(place.width)]

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.gains[0].to(state.dtype) * update


# --- how a connection runs -----------------------------------------------------------------------


@caught_by("shapes")
class Narrow(Plain):
    """Loses a feature."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return (state + update)[..., :-1]


@caught_by("shapes")
class LengthOne(Plain):
    """Not finite for a single token."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update * (state.shape[1] / (state.shape[1] - 1 or math.nan))


@caught_by("gradients")
class Unused(Plain):
    """A parameter that is never used."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.zeros(()))


@caught_by("gradients")
class SteepRoot(Connection):
    """The root of zero has no finite slope."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.zeros(()))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.alpha.abs().sqrt() * update


@caught_by("gradients")
class InPlace(Plain):
    """Changes the stream that a norm still needs for its gradient."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state.mul_(1.0).add_(update)


@caught_by("training mode")
class BrokenInTraining(Plain):
    """Divides by zero in training."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update / (0.0 if self.training else 1.0)


@caught_by("training mode")
class CountsInTraining(Plain):
    """Counts its calls in training, and is louder each time."""

    calls = 0

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        self.calls += self.training
        return state + update * (1 + self.calls)


@caught_by("examples apart")
class OverExamples(Plain):
    """Averages over the examples."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update - update.mean(0, keepdim=True)


@caught_by("causality")
class OverTokens(Plain):
    """Averages over all tokens, the later ones too."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update - update.mean(1, keepdim=True)


@caught_by("token by token")
class KnowsPositions(Plain):
    """Counts tokens from the start of what it is given, not of the text."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update / torch.arange(1, state.shape[1] + 1).view(1, -1, 1)


@caught_by("no state")
class Remembers(Plain):
    """Adds what it was given the last time."""

    last: Tensor | None = None

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        before, self.last = self.last, update
        same = before is not None and before.shape == update.shape
        return state + update + (0.1 * before if same and before is not None else 0.0)


@caught_by("no state")
class KeepsForItself(Plain):
    """Keeps the update and makes no use of it."""

    last: Tensor | None = None

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        self.last = update
        return state + update


@caught_by("no state")
class KeepsForAll(Plain):
    """All connections of all models share a list."""

    calls: ClassVar[list[int]] = []

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        self.calls.append(1)
        return state + update * (1 + 1e-3 * len(self.calls))


@caught_by("float64")
@caught_by("bfloat16")
@caught_by("states")
class AlwaysFloat32(Plain):
    """Computes in float32 and stays there."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state.float() + update.float()


@caught_by("float64")
class HalfInside(Plain):
    """Rounds to bfloat16 on the way when the model is in float64."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        inside = torch.bfloat16 if state.dtype == torch.float64 else state.dtype
        return state + update.to(inside).to(state.dtype)


@caught_by("bfloat16")
class Swamped(Plain):
    """Adds and takes away what only float32 can hold beside the stream."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return (state + update + 300.0) - 300.0


@caught_by("autocast")
class OneType(Plain):
    """Insists that stream and update have one number type."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        assert state.dtype == update.dtype
        return state + update


@caught_by("compile")
class OtherwiseCompiled(Plain):
    """Computes something else under torch.compile."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update * (1.001 if torch.compiler.is_compiling() else 1.0)


@caught_by("pairs")
class OnlyBeforeNorms(Plain):
    """Works with pre, and cannot settle."""

    def settle(self, state: Tensor, norm: nn.Module) -> Tensor:
        raise NotImplementedError("not with a norm after the addition")


# --- placements ----------------------------------------------------------------------------------


class Before(Placement):
    """A norm before each branch."""

    formula = "x + F(N(x))"

    def enter(self, place: Any) -> nn.Module | None:
        return place.norm(place.width)


@caught_by("settles", "placement")
class NeverSettled(Before):
    """Said to settle, and does not."""

    settles = True


@caught_by("settles", "placement")
class SettledInSilence(Placement):
    """Settles after every addition, and denies it."""

    formula = "N(x + F(x))"
    closing = False

    def settle(self, place: Any) -> nn.Module | None:
        return place.norm(place.width)


@caught_by("settles", "placement")
class SettledHalf(Placement):
    """Said to settle, and leaves out the second write of a layer."""

    formula = "N(x + F(x))"
    settles = True

    def settle(self, place: Any) -> nn.Module | None:
        return place.norm(place.width) if place.sublayer == 1 else None


@caught_by("varies", "placement")
class VariesInSilence(Placement):
    """Only late layers have a norm."""

    formula = "x + F(N(x)) in late layers"

    def enter(self, place: Any) -> nn.Module | None:
        return place.norm(place.width) if 2 * place.layer > place.depth else None


@caught_by("varies", "placement")
class SaidToVary(Before):
    """The same norms in all layers, and said to vary."""

    varies = True


@caught_by("norms fit", "placement")
class WrongWidth(Before):
    """A norm before W_o that is one too wide."""

    def inside(self, place: Any, point: str, width: int) -> nn.Module | None:
        return place.norm(width + 1) if point == "mixed" else None


@caught_by("declarations", "placement")
class Nameless(Before):
    """No formula."""

    formula = ""


@caught_by("opening, closing", "placement")
class OddClosing(Before):
    """Closes where it is asked the first time only."""

    asked = 0

    @property
    def closing(self) -> bool:
        self.asked += 1
        return self.asked == 1


# --- norms, branches, positions, inits, ends -----------------------------------------------------


@caught_by("any vector", "norm")
class NotForZeros(nn.Module):
    """x over its length, which may be zero."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x / x.norm(dim=-1, keepdim=True)


@caught_by("any vector", "norm")
class OnlyBatches(nn.Module):
    """Knows exactly three axes."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        _, _, _ = x.shape
        return x


@caught_by("weights", "mlp")
class Copies(ReLU):
    """Hands out copies of its weights."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        for role, weight in super().weights():
            yield role, weight.clone()


@caught_by("weights", "mlp")
class TwoNames(ReLU):
    """Two weights under one name would be drawn alike."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        for _, weight in super().weights():
            yield "up", weight


@caught_by("filled", "mlp")
class NotNamed(ReLU):
    """Leaves out the weight that writes."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "up", self.up.weight


@caught_by("layers differ", "mlp")
class SameEverywhere(Branch):
    """Fills its matrix by a generator of its own."""

    def __init__(self, place: Any, inside: Any) -> None:
        super().__init__()
        self.down = linear(place.width, place.width, bias=False)
        with torch.no_grad():
            normal(self.down.weight, 0.02, torch.Generator().manual_seed(0))

    def forward(self, x: Tensor, run: Any) -> Tensor:
        return self.down(F.relu(x))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


@caught_by("causality", "attention")
class SeesAll(MultiHead):
    """Says that it is causal, and looks ahead."""

    def forward(self, x: Tensor, run: Any) -> Tensor:
        run.causal = False
        return super().forward(x, run)


@caught_by("padding hidden", "attention")
class SeesPadding(MultiHead):
    """Not causal, and does not heed the mask."""

    def __init__(self, place: Any, inside: Any) -> None:
        super().__init__(place, inside, causal=False)

    def forward(self, x: Tensor, run: Any) -> Tensor:
        run.mask = None
        return super().forward(x, run)


@caught_by("token by token", "attention")
class NoCache(MultiHead):
    """Forgets earlier tokens."""

    def forward(self, x: Tensor, run: Any) -> Tensor:
        run.cache, run.mask = None, None
        return super().forward(x, run)


@caught_by("limit", "positions")
class Boundless(Learned):
    """Has a table and says that there is no limit."""

    def __init__(self, width: int, context: int, head_width: int) -> None:
        super().__init__(width, context, head_width)
        self.limit = None


@caught_by("limit", "positions")
class TooGenerous(Learned):
    """Says that there is one more position than there is."""

    def __init__(self, width: int, context: int, head_width: int) -> None:
        super().__init__(width, context, head_width)
        self.limit = context + 1


@caught_by("token by token", "positions")
class AlwaysFromZero(Learned):
    """Counts from the start of every call."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, positions - positions[0])


@caught_by("every role", "init")
@caught_by("filled", "init")
class NotTheHead(Init):
    """Leaves the head as it is."""

    def fill(self, role: str, weight: Tensor, place: Any, generator: torch.Generator) -> None:
        if role != "head":
            normal(weight, 0.02, generator)


@caught_by("every role", "init")
class OnlyKnownRoles(Init):
    """Does not know what a connection may ask for."""

    def fill(self, role: str, weight: Tensor, place: Any, generator: torch.Generator) -> None:
        known = {"embedding", "positions", "head", "query", "key", "value", "output", "up", "down"}
        if role not in known:
            raise KeyError(role)
        normal(weight, 0.02, generator)


@caught_by("generator", "init")
class FromTheGlobal(Init):
    """Draws from the global numbers."""

    def fill(self, role: str, weight: Tensor, place: Any, generator: torch.Generator) -> None:
        weight.normal_(0.0, 0.02)


@caught_by("layers differ", "init")
class OneDraw(Init):
    """Every layer gets the same numbers."""

    def fill(self, role: str, weight: Tensor, place: Any, generator: torch.Generator) -> None:
        normal(weight, 0.02, torch.Generator().manual_seed(len(role)))


@caught_by("shapes", "head")
class NarrowHead(LinearHead):
    """Forgets a word of the vocabulary."""

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return super().forward(x, table)[..., :-1]


@caught_by("float64", "embedding")
class Float32Embedding(TokenEmbedding):
    """Returns float32 whatever the weights are."""

    def forward(self, ids: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        return super().forward(ids, positions, types).float()


def test_an_error_inside_a_part_is_told_with_its_line() -> None:
    catalog = PARTS["connection"]
    catalog.register("broken")(Unbuildable)
    try:
        checks = check_part("connection", "broken")
    finally:
        catalog._entries.pop("broken")
    assert [check.name for check in checks] == ["builds"]
    assert checks[0].detail.startswith("RuntimeError: no luck (line ")
