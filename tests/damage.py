"""Record files, and what happens to files: bytes that change, pages that are lost, edits.

Each damage takes a folder with the file `damaged.leadline` in it and a source of random numbers.
`read_all` is everything that readers of a record ask for, as one text that can be compared.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.reading.page import as_json
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.file.unfinished import GrowingRecord
from tests.synthetic import broken_record, gpt2_record, t5_record
from tests.synthetic_sweep import sweep_record, training_record

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

NAME = "damaged.leadline"
SCHEMA_1 = Path(__file__).parent / "fixtures" / "schema1"
PAGE = 4096


def write_sources(folder: Path) -> list[Path]:
    """Files of every sort and schema, each in a folder of its own under the name `NAME`."""
    records = {
        "decoder": gpt2_record(),
        "encoder-decoder": t5_record(),
        "broken": broken_record(),
        "sweep": sweep_record(),
        "training": training_record(layers=True, outcome={"status": "finished"}),
        "every column": record_of_every_column(),
    }
    paths = [folder / kind / NAME for kind in (*records, "unfinished", "unclosed")]
    for path in paths:
        path.parent.mkdir()
    for path, record in zip(paths, records.values(), strict=False):
        record.save(path)
    _unfinished(paths[-2]).close()
    growing = _unfinished(folder / "writer.leadline")
    for beside in ("", "-wal"):  # what a writer that is killed now leaves behind
        shutil.copy(folder / f"writer.leadline{beside}", f"{paths[-1]}{beside}")
    growing.close()
    for name in ("measure", "sweep", "killed", "closed/measure", "closed/killed"):
        path = folder / f"schema 1 {name}".replace("/", " ") / NAME
        path.parent.mkdir()
        for beside in ("", "-wal"):
            if Path(f"{SCHEMA_1 / name}.leadline{beside}").exists():
                shutil.copy(f"{SCHEMA_1 / name}.leadline{beside}", f"{path}{beside}")
        paths.append(path)
    return paths


def record_of_every_column() -> Record:
    """A record that has something in every column of every table."""
    record = gpt2_record(depth=3)
    record.describe(
        Quantity(
            *("q.q", "Q", "q", "q", "metre", "path", "high", "low", "source", "log", "value"),
            meaning="What it tells.",
            topic="tokens",
            leads=True,
            better="even",
            axes=("rank", "head", "lane", "token", "example"),
            beside="stream.norm",
            ingredient_of="attention",
            requires=("lanes", "all heads"),
        )
    )
    place = Site("decoder", 1, 2, "mlp", 3, 4, 5, 6, 7, 8)
    record.append(
        [
            Reading("q.q", place, "value", 0.75, 0.5, 1.0, "run", 9, 10, -(10**18)),
            Reading("q.q", place, "value", 0.0, None, 1.0, "run", 10, None, 10**30),
            Reading("q.q", place, "value", float("nan"), run="run", step=11, exponent=0),
        ]
    )
    details = {"evidence": [1.5, None, {"cause": "x"}]}
    for severity in ("note", "warning", "serious", "warning"):
        record.add_finding(
            Finding(f"A {severity}.", "q.q", place, severity, "LL001", "a-name", details)
        )
    record.add_finding(Finding("A remark."))
    return record


def _unfinished(path: Path) -> GrowingRecord:
    """Jacobians of four blocks of six, as a measurement that was cut off leaves them."""
    norm = Quantity("jacobian.norm", "Norm", "n", "n", lives_on="layer")
    growing = GrowingRecord.begin(
        Record(), path, request={"probes": ["jacobian"], "seed": 0}, parts=6
    )
    for layer in range(1, 5):
        site = Site("decoder", layer, None, "block")
        rows = [Reading(norm.name, site, "mean", layer / 7, layer / 8, layer / 6)]
        growing.add(f"block {layer}", [norm], rows, refused=[], carried={"so far": layer / 3})
    return growing


def read_all(record: Record) -> str:
    """Everything that readers ask a record for, wherever its file is."""
    profiles = [record.profiles(name) for name in record.quantities]
    everything = repr(
        (
            record.provenance,
            record.quantities,
            record.findings,
            record.stacks,
            record.runs,
            len(record),
            record.select(),
            [record.select(name) for name in record.quantities],
            [(line.layers, line.values) for lines in profiles for line in lines],
            str(record),
            as_json(record),
        )
    )
    if record.path is None:
        return everything
    return everything.replace(str(record.path), NAME)  # an unfinished record names its file


def flip(path: Path, chance: random.Random, *, count: int, begin: int = 0, end: int = 0) -> None:
    """Change so many bytes, somewhere in the file or between two places of it."""
    content = bytearray(path.read_bytes())
    places = range(begin, min(end or len(content), len(content)))
    if end:  # where there is something to lose
        places = [at for at in places if content[at]]
    for _ in range(count):
        content[chance.choice(places)] ^= chance.randrange(1, 256)
    path.write_bytes(content)


def _flip_index(path: Path, chance: random.Random) -> None:
    """Change bytes on a page of the index by which the readings of a quantity are found."""
    with closing(sqlite3.connect(path)) as connection:
        names = "('reading_by_quantity', 'sqlite_autoindex_quantity_1')"
        query = f"SELECT rootpage FROM sqlite_master WHERE name IN {names}"
        roots = [row[0] for row in connection.execute(query)]
    begin = (chance.choice(roots) - 1) * PAGE
    flip(path, chance, count=chance.choice((1, 4)), begin=begin, end=begin + PAGE)


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    end = chance.randrange(len(content))
    path.write_bytes(content[: end - end % PAGE if chance.random() < 0.5 else end])


def _pages(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[at : at + PAGE] for at in range(0, len(content), PAGE)]


def _zero_a_page(path: Path, chance: random.Random) -> None:
    pages = _pages(path)
    pages[chance.randrange(len(pages))] = bytes(PAGE)
    path.write_bytes(b"".join(pages))


def _swap_pages(path: Path, chance: random.Random) -> None:
    pages = _pages(path)
    one, other = chance.randrange(len(pages)), chance.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))


def _splice(path: Path, chance: random.Random) -> None:
    """Put a page of another record in the place of one, mostly of the same number."""
    donor = path.with_name("donor.leadline")
    gpt2_record(seed=7).save(donor)
    pages, others = _pages(path), _pages(donor)
    donor.unlink()
    at = chance.randrange(len(pages))
    pages[at] = others[at if at < len(others) and chance.random() < 0.7 else -1]
    path.write_bytes(b"".join(pages))


def _append(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.choice((1, 100, PAGE, 3 * PAGE))))


def _leave_beside(path: Path, chance: random.Random) -> None:
    """Leave what other programs may leave beside: logs of nonsense, or of another record."""
    ending = chance.choice(("-wal", "-shm", "-journal"))
    place = Path(f"{path}{ending}")
    if ending == "-wal" and place.exists():
        flip(place, chance, count=chance.choice((1, 16)))
        return
    header = {"-wal": b"\x37\x7f\x06\x82\x00\x2d\xe2\x18\x00\x00\x10\x00", "-shm": b""}
    journal = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\xff\xff\xff\xff"
    content = header.get(ending, journal) if chance.random() < 0.7 else b""
    place.write_bytes(content + chance.randbytes(chance.choice((0, 600, 9000))))


_EDITS = (
    "UPDATE reading SET value = value * 1.001 WHERE rowid = {row}",
    "UPDATE reading SET layer = layer + 1 WHERE rowid = {row}",
    "UPDATE reading SET statistic = 'medium' WHERE rowid = {row}",
    "DELETE FROM reading WHERE rowid = {row}",
    "INSERT INTO reading SELECT * FROM reading WHERE rowid = {row}",
    "UPDATE provenance SET json = replace(json, '1', '2')",
    "UPDATE provenance SET json = '{{' WHERE rowid = 1",
    "UPDATE quantity SET lives_on = 'layer', scale = 'lin' WHERE rowid = 1",
    "INSERT INTO finding (verdict, severity) VALUES ('All is well.', 'note')",
    "PRAGMA writable_schema = ON; "
    "UPDATE sqlite_master SET sql = replace(sql, 'lower REAL', 'lowes REAL')",
    "ALTER TABLE reading RENAME COLUMN upper TO top",
    "DROP TABLE finding",
    "DELETE FROM checksum",
)


def _edit(path: Path, chance: random.Random) -> None:
    """Change a value as any SQLite program could, in either journal mode."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if chance.random() < 0.3:
            connection.execute("PRAGMA journal_mode = WAL")
        rows = max(1, connection.execute("SELECT count(*) FROM reading").fetchone()[0])
        connection.execute("DROP TRIGGER reading_is_never_changed")
        connection.execute("DROP TRIGGER reading_is_never_deleted")
        edits = [one for one in _EDITS if "checksum" not in one or _has_checksums(connection)]
        edit = chance.choice(edits).format(row=chance.randint(1, rows))
        connection.executescript(edit)


def _has_checksums(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA table_info (checksum)").fetchall())


def _alter_text(path: Path, chance: random.Random) -> None:
    """Change a letter or a digit of a text in place, so that only its meaning changes."""
    content = bytearray(path.read_bytes())
    places = [at for at in range(100, len(content)) if chr(content[at]).isalnum()]
    at = chance.choice(places)
    content[at] = ord(chance.choice("0123456789abcdefghijklmnopqrstuvwxyz"))
    path.write_bytes(content)


def _lay_out_anew(path: Path, chance: random.Random) -> None:
    """Not a damage: the same rows, elsewhere in the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(chance.choice(("VACUUM", "REINDEX", "PRAGMA journal_mode = WAL")))


DAMAGES: Mapping[str, Callable[[Path, random.Random], None]] = {
    "1 byte": lambda path, chance: flip(path, chance, count=1),
    "4 bytes": lambda path, chance: flip(path, chance, count=4),
    "16 bytes": lambda path, chance: flip(path, chance, count=16),
    "256 bytes": lambda path, chance: flip(path, chance, count=256),
    "header": lambda path, chance: flip(path, chance, count=1, begin=16, end=100),
    "schema": lambda path, chance: flip(path, chance, count=2, begin=100, end=PAGE),
    "checksums": lambda path, chance: flip(path, chance, count=2, begin=PAGE, end=2 * PAGE),
    "index": _flip_index,
    "cut": _cut,
    "zeroed page": _zero_a_page,
    "swapped pages": _swap_pages,
    "spliced page": _splice,
    "tail": _append,
    "beside": _leave_beside,
    "edit": _edit,
    "text": _alter_text,
    "laid out anew": _lay_out_anew,
}
