"""The composable Transformer: embedding, a stack of sublayers, a closing norm, a head.

    model = Transformer(depth=48, width=256, connection="identity", placement="post")
    logits = model(ids)                      [example, token, vocabulary]
    other = model.with_(placement="pre")     one part exchanged, the other weights kept

Models of one seed share the weights of all parts that they share: the draw of a weight depends on
its name alone. Building a model leaves the global random numbers as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy
from leadline.errors import InputError, RecipeError, check_seed
from leadline.parts.branches import ATTENTIONS, MLPS, Branch, Run
from leadline.parts.branches.joined import Joined
from leadline.parts.connections import CONNECTIONS, Connection, State
from leadline.parts.declared import declared_anatomy
from leadline.parts.embedding import EMBEDDINGS, Embedding
from leadline.parts.head import HEADS, Head, LogitHead
from leadline.parts.inits import INITS
from leadline.parts.inits.init import generator_of
from leadline.parts.loss import IGNORED, linear_cross_entropy
from leadline.parts.masking import mask_of
from leadline.parts.model_inputs import check_inputs
from leadline.parts.norms import NORMS
from leadline.parts.place import Place
from leadline.parts.placements import PLACEMENTS, Placement
from leadline.parts.positions import POSITIONS
from leadline.parts.recipe import Recipe
from leadline.parts.sublayer import Sublayer, TransformerBlock

if TYPE_CHECKING:
    from leadline.parts.checkpoints import Origin

__all__ = ["Transformer"]


class Transformer(nn.Module):
    """A Transformer built from a recipe, or from the fields of one."""

    embedding: Embedding
    head: Head

    origin: Origin | None = None
    """Which checkpoint of another library the weights came from, or None."""

    def __init__(
        self, recipe: Recipe | None = None, *, seed: int = 0, draw: bool = True, **fields: Any
    ) -> None:
        """Build and draw the weights; `draw=False` leaves that to whoever loads them next."""
        super().__init__()
        recipe = _recipe(recipe, fields)
        self.recipe = recipe
        self.seed = seed = check_seed(seed, error=RecipeError)
        self.placement: Placement = PLACEMENTS.build(recipe.choice("placement"))
        with torch.random.fork_rng(devices=[]):
            # The processor's generator alone: torch.manual_seed would seed other devices too.
            torch.default_generator.manual_seed(seed)
            self._build()
        if draw and not next(self.parameters()).is_meta:
            self._fill()

    # --- building --------------------------------------------------------------------------

    def _build(self) -> None:
        recipe = self.recipe
        assert recipe.heads is not None
        head_width = recipe.choice("attention").options.get("head_width")
        if not isinstance(head_width, int):
            head_width = recipe.width // recipe.heads
        positions = POSITIONS.build(
            recipe.choice("positions"),
            width=recipe.width,
            context=recipe.context,
            head_width=head_width,
        )
        self.embedding = EMBEDDINGS.build(
            recipe.choice("embedding"),
            vocabulary=recipe.vocabulary,
            width=recipe.width,
            positions=positions,
            norm=self._norm,
            opening=self.placement.opening,
        )
        self.blocks = nn.ModuleList(self._block(layer) for layer in range(1, recipe.depth + 1))
        self.norm = self._norm(recipe.width) if self.placement.closing else None
        self.head = HEADS.build(
            recipe.choice("head"), vocabulary=recipe.vocabulary, width=recipe.width, norm=self._norm
        )

    def _norm(self, width: int) -> nn.Module | None:
        return NORMS.build(self.recipe.choice("norm"), width=width)

    def place(self, layer: int, sublayer: int = 1, *, branch: str = "attention") -> Place:
        """The address of a sublayer; layer 0 is the embedding and the head."""
        recipe = self.recipe
        assert recipe.heads is not None
        return Place(
            width=recipe.width,
            heads=recipe.heads,
            depth=recipe.depth,
            layer=layer,
            sublayer=sublayer,
            sublayers=1 if self.placement.joined else len(recipe.branches),
            norm=self._norm,
            branch=branch,
        )

    def _block(self, layer: int) -> TransformerBlock:
        if self.placement.joined:
            place = self.place(layer, branch="joined")
            return TransformerBlock({"joined": self._sublayer(place, self._joined(place))})
        return TransformerBlock(
            {
                name: self._sublayer(place, self._branch(name, place))
                for name, place in (
                    (name, self.place(layer, index, branch=name))
                    for index, name in enumerate(self.recipe.branches, 1)
                )
            }
        )

    def _branch(self, name: str, place: Place) -> Branch:
        catalog = ATTENTIONS if name == "attention" else MLPS
        return catalog.build(
            self.recipe.choice(name),
            place=place,
            inside=lambda point, width: self.placement.inside(place, point, width),
        )

    def _joined(self, place: Place) -> Branch:
        two = self.placement.joined == 2
        return Joined(
            self._branch("attention", replace(place, branch="attention")),
            self._branch("mlp", replace(place, branch="mlp")),
            attention_norm=self._norm(place.width) if two else None,
            mlp_norm=self._norm(place.width) if two else None,
        )

    def _sublayer(self, place: Place, branch: Branch) -> Sublayer:
        return Sublayer(
            branch,
            CONNECTIONS.build(self.recipe.choice("connection"), place=place),
            enter=self.placement.enter(place),
            exit=self.placement.exit(place),
            settle=self.placement.settle(place),
        )

    @torch.no_grad()
    def _fill(self) -> None:
        """Draw every weight that a part names, each with a generator of its own."""
        init = INITS.build(self.recipe.choice("init"))
        outer = self.place(0)
        for role, weight in (*self.embedding.weights(), *self.head.weights()):
            name = "tied" if role == "embedding" and self.head.ties else role
            init.fill(name, weight, outer, generator_of(self.seed, role))
        for sublayer in self.sublayers():
            place = sublayer.connection.place
            for role, weight in sublayer.branch.weights():
                generator = generator_of(self.seed, f"layer {place.layer} {role}")
                init.fill(role, weight, place, generator)
            for role, weight in sublayer.connection.weights():
                generator = generator_of(self.seed, f"write {place.write} {role}")
                init.fill(role, weight, place, generator)

    def sublayers(self) -> Iterator[Sublayer]:
        """Every sublayer, in the order of the writes."""
        for block in self.blocks:
            yield from (m for m in block.children() if isinstance(m, Sublayer))

    # --- running ---------------------------------------------------------------------------

    @property
    def causal(self) -> bool | None:
        """Whether later tokens are hidden; None where tokens do not see each other."""
        return next(
            (s.branch.causal for s in self.sublayers() if s.branch.causal is not None), None
        )

    @property
    def context_limit(self) -> int | None:
        """How many tokens there are positions for, or None."""
        return self.embedding.positions.limit

    @property
    def objective(self) -> str | None:
        """The loss that the model is made for: next-token, masked, or none."""
        if not self.head.gives_logits or not self.embedding.takes_ids:
            return None
        # Tokens that never meet cannot see the next one either.
        return "masked" if self.causal is False else "next-token"

    def get_input_embeddings(self) -> nn.Module | None:
        """The embedding table, under the name that Hugging Face models use; None without one."""
        return self.embedding.tokens if self.embedding.takes_ids else None  # type: ignore[return-value]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        cache: Any = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Logits [example, token, vocabulary]. `attention_mask` is 0 at padding.

        `positions` [token] or [example, token] count from 0 at the first token unless given.
        """
        x = self.stream(input_ids, attention_mask, token_type_ids, cache=cache, positions=positions)
        return self.head(x, self._table())

    def loss(
        self,
        input_ids: Tensor,
        targets: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Mean cross-entropy; without targets, that of each next token.

        Targets of -100 are not counted. Much faster than going through the logits where the
        vocabulary is large, because these are never held at once.
        """
        if not self.head.gives_logits:
            raise InputError("The model has no head, so it has no loss of its own.")
        x = self.stream(input_ids, attention_mask)
        if targets is None:
            if self.causal is False:
                raise InputError(
                    "A bidirectional model sees its next token and cannot predict it; give "
                    "targets, -100 where a token is not to be counted."
                )
            targets = input_ids[:, 1:]
            if attention_mask is not None:
                real = attention_mask[:, 1:].bool() & attention_mask[:, :-1].bool()
                targets = targets.masked_fill(~real, IGNORED)
            x = x[:, :-1]
        if targets.shape != x.shape[:2]:
            raise InputError(
                f"The targets are {list(targets.shape)} and the tokens {list(x.shape[:2])}; "
                "give one target per token."
            )
        _check_targets(targets, self.recipe.vocabulary)
        assert isinstance(self.head, LogitHead)  # a model without one has been refused above
        x, weight, bias = self.head.linear(x.flatten(0, 1), self._table())
        return linear_cross_entropy(x, weight, targets.flatten(), bias=bias)

    def stream(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        cache: Any = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The stream after the last layer and the closing norm."""
        if not torch.compiler.is_compiling():
            check_inputs(self, input_ids, token_type_ids)
        start = 0 if cache is None else cache.length
        tokens = input_ids.shape[1]
        limit = self.context_limit
        if limit is not None and start + tokens > limit:
            raise InputError(
                f"The model has positions for {limit} tokens and was given {start + tokens}; "
                "shorten the input, or build it with a larger context."
            )
        if positions is None:
            positions = torch.arange(start, start + tokens, device=input_ids.device)
        x = self.embedding(input_ids, positions, token_type_ids)
        run = Run(cache=cache, rotate=self.embedding.positions.rotation(positions, x.dtype))
        run.mask, run.causal = mask_of(
            attention_mask, tokens=tokens, start=start, causal=bool(self.causal), device=x.device
        )
        state: State = self.first.open(x)
        for block in self.blocks:
            state = block(state, run)
        if cache is not None:
            cache.length += tokens
        x = self.last.close(state)
        return x if self.norm is None else self.norm(x)

    @property
    def first(self) -> Connection:
        """The connection that opens the stream."""
        return next(self.sublayers()).connection

    @property
    def last(self) -> Connection:
        """The connection that closes the stream."""
        return list(self.sublayers())[-1].connection

    def _table(self) -> Tensor | None:
        return self.embedding.tokens.weight if self.head.ties else None  # type: ignore[attr-defined]

    # --- exchanging ------------------------------------------------------------------------

    def with_(self, **changes: Any) -> Transformer:
        """A new model with some fields of the recipe changed; weights that still fit are kept.

        A weight is kept when the new model has one of the same name and shape; what is new is
        drawn as in a new model. The init stays what it was unless it is among the changes: then
        everything that an init draws is drawn again.
        """
        recipe = self.recipe.but(**{"init": self.recipe.init, **changes})
        other = Transformer(recipe, seed=self.seed)
        state = self.state_dict()
        redrawn = other._drawn_names() if recipe.init != self.recipe.init else set[str]()
        fitting = {
            name: state[name]
            for name, weight in other.state_dict().items()
            if name in state and state[name].shape == weight.shape and name not in redrawn
        }
        other.load_state_dict(fitting, strict=False)
        frozen = {name for name, p in self.named_parameters() if not p.requires_grad}
        for name, parameter in other.named_parameters():
            parameter.requires_grad_(name not in frozen or name not in fitting)
        other.origin = self.origin
        reference = next(self.parameters())
        return other.to(device=reference.device, dtype=reference.dtype).train(self.training)

    def _drawn_names(self) -> set[str]:
        """The names of the parameters that an init draws, as a whole or in parts."""
        parts = (
            self.embedding,
            self.head,
            *(p for s in self.sublayers() for p in (s.branch, s.connection)),
        )
        storages = {w.untyped_storage().data_ptr() for part in parts for _, w in part.weights()}
        return {
            name
            for name, p in self.named_parameters()
            if p.untyped_storage().data_ptr() in storages
        }

    # --- checkpoints and text --------------------------------------------------------------

    @classmethod
    def from_hf(cls, source: Any, *, dtype: torch.dtype | None = None) -> Transformer:
        """The same model as a transformers model in memory, or as a folder of a checkpoint."""
        from leadline.parts.checkpoints import from_hf

        return from_hf(source, model_class=cls, dtype=dtype)

    def to_hf(self, folder: str | Path, *, family: str | None = None) -> None:
        """Write a folder that transformers loads; refuse a model that no family there can express."""
        from leadline.parts.checkpoints import to_hf

        to_hf(self, folder, family=family)

    @classmethod
    def load(cls, folder: str | Path) -> Transformer:
        """The model that `save` wrote."""
        from leadline.parts.checkpoints import load

        return load(folder, model_class=cls)

    def save(self, folder: str | Path, *, tokenizer: str | None = None) -> None:
        """Write recipe and weights into a folder; `tokenizer="bytes"` where tokens are bytes."""
        from leadline.parts.checkpoints import save

        save(self, folder, tokenizer=tokenizer)

    def generate(
        self,
        ids: Tensor,
        *,
        steps: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: int | Sequence[int] | None = None,
        attention_mask: Tensor | None = None,
        cache: bool = True,
    ) -> Tensor:
        """The ids with `steps` more: see `leadline.parts.generation`."""
        from leadline.parts.generation import generate

        return generate(
            self,
            ids,
            steps=steps,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=stop,
            attention_mask=attention_mask,
            cache=cache,
        )

    def anatomy(self) -> Anatomy:
        """Declare the model's stream and sublayers; `measure` proves them by the balance."""
        return declared_anatomy(self)

    @property
    def label(self) -> str:
        """What reports call the model: connection, placement and size."""
        r = self.recipe
        return f"{r.connection} {r.placement} {r.depth}x{r.width}"

    def extra_repr(self) -> str:
        r = self.recipe
        return f"{r.connection} connection, {r.placement} placement, depth {r.depth}"


def _recipe(source: Recipe | str | Mapping[str, Any] | None, fields: dict[str, Any]) -> Recipe:
    """Return the recipe of a recipe, its name, its fields, or of changes to the default alone."""
    if source is None:
        return Recipe.from_json(fields)
    if isinstance(source, str):
        source = Recipe.named(source)
    if isinstance(source, Mapping):
        return Recipe.from_json({**source, **fields})
    if not isinstance(source, Recipe):
        raise RecipeError(
            f"A Transformer is made by a Recipe, the name of one such as 'gpt2', or its fields, "
            f"not by a {type(source).__name__}."
        )
    return source.but(**fields)


def _check_targets(targets: Tensor, vocabulary: int) -> None:
    """Refuse targets outside of the vocabulary, and a batch in which no target is counted."""
    if targets.is_meta:
        return
    counted = targets[targets != IGNORED]
    if counted.numel() == 0:
        raise InputError(
            "No target is counted: give two tokens at least, or targets that are not all -100."
        )
    if not 0 <= int(counted.min()) <= int(counted.max()) < vocabulary:
        raise InputError(
            f"The targets reach from {int(counted.min())} to {int(counted.max())}, and the "
            f"vocabulary from 0 to {vocabulary - 1}; mark those that do not count by -100."
        )
