"""The drawn house: rooms of the package and who imports whom, read from the code.

A room is a folder of `src/leadline`; the folders of `instruments` and `reading` are rooms of their
own. An arrow leads from a room to one that it imports; arrows that follow from others (a imports b,
b imports c, a imports c) are left out, so that the picture shows the order and no thicket. Imports
for types alone do not count.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "leadline"
WITH_ROOMS_INSIDE = ("instruments", "reading")
SIDE_BY_SIDE = (
    [f"instruments/{name}" for name in ("attacks", "collapse", "jacobian", "paths")],
    [f"reading/{name}" for name in ("bounds", "compare", "map")],
)
"""Rooms that stand on one floor though some of them could stand lower."""
WITHOUT_TORCH = ("record", "theory", "reading", "catalog", "choice", "errors")
WIDTH, BOX, LINE, GAP, MARGIN = 1240, 166, 15, 50, 20
TORCH_SIDE = 0.5
"""Which share of the width belongs to the rooms that need torch; the others stand to the right."""
STYLE = """
  svg { font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
  .room { fill: #eef3f8; stroke: #5b7793; }
  .reading { fill: #f4f1e6; stroke: #94834b; }
  .name { font-weight: 600; font-size: 13px; fill: #1d2a36; }
  .inside { font-size: 11px; fill: #4a5662; }
  .import { fill: none; stroke: #7d8b98; stroke-width: 1.2; }
  .head { fill: #7d8b98; }
  .ground { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14181d; }
    .room { fill: #1d2832; stroke: #6d8cab; }
    .reading { fill: #2a271b; stroke: #a8965a; }
    .name { fill: #e6edf3; }
    .inside { fill: #a7b3be; }
    .import { stroke: #7f8d9a; }
    .head { fill: #7f8d9a; }
  }
"""


def house_picture() -> str:
    """Return the picture as SVG."""
    imports = room_imports()
    floors = floors_of(imports)
    inside = {room: folders_of(room) for room in imports}
    lines = {room: wrapped(inside[room]) for room in imports}
    places: dict[str, tuple[float, float, float]] = {}
    top = MARGIN
    for floor in reversed(floors):
        height = max(26 + LINE * len(lines[room]) for room in floor)
        for room, left in across(floor).items():
            places[room] = (left, top, 26 + LINE * len(lines[room]))
        top += height + GAP
    height = top - GAP + MARGIN
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        "<title>The rooms of the package, and which imports which</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height:.0f}"/>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for room, others in sorted(reduced(imports).items()):
        drawn += [arrow(places[room], places[other]) for other in sorted(others)]
    for room, (left, above, tall) in places.items():
        kind = "room" if needs_torch(room) else "reading"
        drawn.append(
            f'<rect class="{kind}" x="{left:.0f}" y="{above:.0f}" width="{BOX}" '
            f'height="{tall:.0f}" rx="5"/>'
            f'<text class="name" x="{left + 9:.0f}" y="{above + 18:.0f}">{escape(room)}</text>'
        )
        drawn += [
            f'<text class="inside" x="{left + 9:.0f}" y="{above + 18 + LINE * (index + 1):.0f}">'
            f"{escape(line)}</text>"
            for index, line in enumerate(lines[room])
        ]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def across(floor: list[str]) -> dict[str, float]:
    """Return the left edges of the rooms of a floor: those that need torch left, others right."""
    split = MARGIN + (WIDTH - 2 * MARGIN) * TORCH_SIDE
    left = [room for room in floor if needs_torch(room)]
    right = [room for room in floor if not needs_torch(room)]
    if not left or not right:
        split = WIDTH - MARGIN if left else MARGIN
    places: dict[str, float] = {}
    for rooms, start, end in ((left, MARGIN, split), (right, split, WIDTH - MARGIN)):
        for index, room in enumerate(rooms):
            places[room] = start + (end - start) / len(rooms) * (index + 0.5) - BOX / 2
    return places


def needs_torch(room: str) -> bool:
    """Whether a room belongs to the half that needs torch."""
    return room.partition("/")[0] not in WITHOUT_TORCH


def arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    """Return a curve from the lower edge of one box to the upper edge of another."""
    x, y = start[0] + BOX / 2, start[1] + start[2]
    to_x, to_y = end[0] + BOX / 2, end[1] - 2
    bend = max(24.0, (to_y - y) / 2)
    return (
        f'<path class="import" marker-end="url(#head)" d="M{x:.0f} {y:.0f}'
        f'C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"/>'
    )


def room_imports() -> dict[str, set[str]]:
    """Return every room with the rooms that it imports."""
    import grimp

    graph = grimp.build_graph("leadline", exclude_type_checking_imports=True, cache_dir=None)
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - {"leadline", "leadline.__main__"}:
        room = room_of(module)
        others = graph.find_modules_directly_imported_by(module)
        imports[room] |= {room_of(other) for other in others if other != "leadline"} - {room}
    for name in WITH_ROOMS_INSIDE:
        imports.pop(name, None)
    return dict(sorted(imports.items()))


def room_of(module: str) -> str:
    """Return the room of a module, such as `parts` or `reading/page`."""
    _, first, *rest = module.split(".")
    return f"{first}/{rest[0]}" if first in WITH_ROOMS_INSIDE and rest else first


def floors_of(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms by floor: a room stands one floor above the highest that it imports."""
    level: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in level:
            level[room] = 1 + max((height(other) for other in imports[room]), default=-1)
        return level[room]

    for room in imports:
        height(room)
    for floor in SIDE_BY_SIDE:
        level |= dict.fromkeys(floor, max(level[room] for room in floor))
    floors: dict[int, list[str]] = defaultdict(list)
    for room in sorted(imports):
        floors[level[room]].append(room)
    return [floors[number] for number in sorted(floors)]


def reduced(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that follow from others."""
    reach: dict[str, set[str]] = {}

    def below(room: str) -> set[str]:
        if room not in reach:
            reach[room] = imports[room].union(*(below(other) for other in imports[room]))
        return reach[room]

    return {
        room: {
            other
            for other in others
            if not any(other in below(rival) for rival in others - {other})
        }
        for room, others in imports.items()
    }


def folders_of(room: str) -> list[str]:
    """Return the folders inside a room."""
    return sorted(path.parent.name for path in (SOURCE / room).glob("*/__init__.py"))


def wrapped(names: list[str], width: int = 22) -> list[str]:
    """Return the names in lines that fit into a box."""
    lines: list[str] = []
    for name in names:
        if lines and len(lines[-1]) + 1 + len(name) <= width:
            lines[-1] += f" {name}"
        else:
            lines.append(name)
    return lines
