"""How a record file of an older schema becomes one of the present schema.

A migration is a list of statements that leads from one schema to the next. A file that is read is
migrated in memory and stays as it is; a file that is written to is migrated in one transaction: it
is of the old schema or of the new one, whatever happens meanwhile. Migrations add columns at the
end of a table and never change a number. They are never changed once they were released.

Schema 2 adds what a quantity declares to its readers, examples and path lengths as axes, exponents
beyond float64, and codes, names and details of findings. Quantities of schema 1 did not say how
readers should treat them; readers knew their names, and what they knew is written down here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

__all__ = ["FIRST_SCHEMA", "migrate"]

FIRST_SCHEMA = 1

_TO_2 = (
    "ALTER TABLE quantity ADD COLUMN meaning TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN topic TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN leads INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE quantity ADD COLUMN better TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN axes TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN beside TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN ingredient_of TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE quantity ADD COLUMN requires TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE finding ADD COLUMN code TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE finding ADD COLUMN name TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE finding ADD COLUMN details TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE finding ADD COLUMN example INTEGER",
    "ALTER TABLE finding ADD COLUMN hops INTEGER",
    "ALTER TABLE reading ADD COLUMN example INTEGER",
    "ALTER TABLE reading ADD COLUMN hops INTEGER",
    "ALTER TABLE reading ADD COLUMN exponent TEXT",
)
_STATEMENTS: Mapping[int, Sequence[str]] = {2: _TO_2}

# What readers knew of the quantities of schema 1 by their names.
_LEADING = (
    "ablation.block",
    "attention.spectral_norm",
    "block.influence",
    "collapse.gamma",
    "gradient.stream",
    "jacobian.distance",
    "lane.norm",
    "lyapunov.exponent",
    "memory.cosine",
    "stream.norm",
    "tokens.cosine",
    "update.ratio",
    "validation.loss",
)
_AXES = {
    "head": (
        "attention.column_sum",
        "attention.distance",
        "attention.entropy",
        "attention.logit_span",
        "attention.logit_std",
        "attention.second_singular_value",
        "attention.sink_share",
        "attention.spectral_norm",
        "collapse.diagonal",
        "collapse.gamma",
    ),
    "rank,head": ("attention.singular_values",),
    "rank": (
        "jacobian.singular",
        "jacobian.smallest",
        "lyapunov.exponent",
        "lyapunov.growth",
        "tokens.singular_value",
    ),
    "lane": ("lane.norm",),
}
_BESIDE = {
    "attention.product_norm": "attention.product_of_norms",
    "jacobian.through": "jacobian.product_of_norms",
}
_INGREDIENTS = {
    "attention": (
        "attention.bias_range",
        "attention.key_bias",
        "attention.key_radius",
        "attention.key_weight",
        "attention.norm_gain",
        "attention.norm_shift",
        "attention.query_bias",
        "attention.query_radius",
        "attention.query_weight",
        "attention.scaling",
        "attention.soft_cap",
    ),
    "rank_collapse": (
        "collapse.lipschitz",
        "collapse.query_key",
        "collapse.value_gain",
        "collapse.value_output_1",
        "collapse.value_output_inf",
    ),
}
_TRAINING = (
    "gauge.gradient_ratio",
    "gauge.stream_growth",
    "gauge.token_cosine",
    "train.gradient_norm",
    "train.loss",
    "train.rate",
    "validation.loss",
)


def migrate(connection: sqlite3.Connection, schema: int) -> None:
    """Bring the tables to this schema, in one transaction."""
    if _schema_of(connection) >= schema:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # Asked again: another process may have migrated the file meanwhile.
        for number in range(_schema_of(connection) + 1, schema + 1):
            for statement in _STATEMENTS[number]:
                connection.execute(statement)
            if number == 2:
                _declare(connection)
            connection.execute(f"PRAGMA user_version = {number}")


def _schema_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _declare(connection: sqlite3.Connection) -> None:
    """Write down what readers knew of the quantities of schema 1 by their names."""
    connection.execute(
        "UPDATE quantity SET topic = CASE instr(name, '.') "
        "WHEN 0 THEN name ELSE substr(name, 1, instr(name, '.') - 1) END"
    )
    columns: list[tuple[str, object, Sequence[str]]] = [
        ("leads", 1, _LEADING),
        ("topic", "training", _TRAINING),
        *(("axes", axes, names) for axes, names in _AXES.items()),
        *(("ingredient_of", family, names) for family, names in _INGREDIENTS.items()),
        *(("beside", other, (name,)) for name, other in _BESIDE.items()),
    ]
    for column, value, names in columns:
        connection.executemany(
            f"UPDATE quantity SET {column} = ? WHERE name = ?",  # noqa: S608 (columns of ours)
            [(value, name) for name in names],
        )
