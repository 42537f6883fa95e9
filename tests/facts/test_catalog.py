import importlib.metadata
import inspect
import sys
import textwrap
import threading

import pytest

from leadline.catalog import Catalog, Choice, load_plugin
from leadline.errors import CatalogError, UnknownName
from tests.processes import wait_for


@pytest.fixture
def shapes():
    catalog = Catalog("shape")

    @catalog.register("circle")
    class Circle:
        """All points at one distance."""

        def __init__(self, *, radius: float = 1.0, filled: bool = False):
            self.radius = radius
            self.filled = filled

    @catalog.register("polygon")
    def polygon(sides: int):
        """So many sides."""
        return f"{sides} sides"

    return catalog


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package with a catalog of its own and return a function that adds files to it."""
    name = f"house_of_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()

    def write(file, text):
        (folder / file).write_text(textwrap.dedent(text).replace("PACKAGE", name))

    write(
        "__init__.py",
        """
        from leadline.catalog import Catalog
        ROOMS = Catalog("room", package="PACKAGE", group="PACKAGE.rooms")
        """,
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name, write
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[module]


def rooms_of(name):
    return importlib.import_module(name).ROOMS


def test_a_decorated_thing_is_found_under_its_name(shapes):
    assert shapes.names() == ["circle", "polygon"]
    assert shapes.get("circle").__name__ == "Circle"
    assert "circle" in shapes
    assert "square" not in shapes
    assert list(shapes) == ["circle", "polygon"]
    assert len(shapes) == 2
    assert [name for name, _ in shapes.items()] == ["circle", "polygon"]


def test_an_unknown_name_is_answered_with_the_nearest_and_the_full_list(shapes):
    with pytest.raises(UnknownName) as caught:
        shapes.get("cirkle")
    assert str(caught.value) == (
        "No shape is called 'cirkle'. Did you mean 'circle'? Known: circle, polygon."
    )


def test_a_name_given_twice_is_refused_with_both_places(shapes):
    with pytest.raises(CatalogError) as caught:

        @shapes.register("circle")
        def other():
            """Another."""

    assert "shape 'circle'" in str(caught.value)
    assert str(caught.value).count("test_catalog.py:") == 2
    assert shapes.get("circle").__name__ == "Circle"


def test_a_choice_is_built_with_its_options(shapes):
    assert shapes.build("circle").radius == 1.0
    assert shapes.build("circle(radius=2.5, filled=true)").radius == 2.5
    assert shapes.build({"name": "circle", "filled": True}).filled is True
    assert shapes.build(Choice("polygon", sides=5)) == "5 sides"


def test_an_unknown_option_is_answered_with_the_options_there_are(shapes):
    with pytest.raises(CatalogError) as caught:
        shapes.build("circle(radios=2)")
    assert str(caught.value) == (
        "The shape 'circle' has no option 'radios'. Did you mean 'radius'? "
        "Its options: radius, filled."
    )


def test_a_missing_option_is_named(shapes):
    with pytest.raises(CatalogError, match=r"needs the option 'sides'"):
        shapes.build("polygon")


def test_the_files_of_the_folder_are_imported_at_the_first_lookup_and_not_before(package):
    name, write = package
    write("kitchen.py", "from PACKAGE import ROOMS\n@ROOMS.register('kitchen')\nclass Kitchen: ...")
    write("_protocol.py", "raise AssertionError('a file with an underscore holds no entry')")
    rooms = rooms_of(name)
    assert f"{name}.kitchen" not in sys.modules
    assert rooms.names() == ["kitchen"]
    assert f"{name}.kitchen" in sys.modules
    assert "kitchen.py:2" in rooms.place("kitchen")


def test_two_files_with_one_name_are_refused(package):
    name, write = package
    for file in ("east.py", "west.py"):
        write(file, "from PACKAGE import ROOMS\n@ROOMS.register('hall')\ndef hall(): ...")
    with pytest.raises(CatalogError) as caught:
        rooms_of(name).names()
    assert "east.py:2" in str(caught.value)
    assert "west.py:2" in str(caught.value)


def test_a_file_of_the_folder_may_look_up_the_catalog_while_it_loads(package):
    name, write = package
    write("a_first.py", "from PACKAGE import ROOMS\n@ROOMS.register('first')\nclass First: ...")
    write("b_second.py", "from PACKAGE import ROOMS\nseen = ROOMS.names()")
    assert rooms_of(name).names() == ["first"]
    assert sys.modules[f"{name}.b_second"].seen == ["first"]


def test_a_second_thread_waits_until_the_catalog_is_whole(package):
    name, write = package
    write(
        "slow.py",
        """
        import PACKAGE
        from PACKAGE import ROOMS
        PACKAGE.begun.set()
        PACKAGE.go_on.wait()
        @ROOMS.register("slow")
        class Slow: ...
        """,
    )
    house, answers = importlib.import_module(name), []
    house.begun, house.go_on = threading.Event(), threading.Event()

    def ask():
        answers.append(house.ROOMS.names())

    def waits(thread):
        frame = sys._current_frames().get(thread.ident)
        return frame is not None and frame.f_code.co_filename == inspect.getfile(Catalog)

    first, *others = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    first.start()
    house.begun.wait()
    for thread in others:
        thread.start()
        wait_for(lambda thread=thread: waits(thread) or not thread.is_alive())
    house.go_on.set()
    for thread in (first, *others):
        thread.join()
    assert answers == [["slow"]] * 3


def install(folder, name, entry_points):
    """Write a distribution that declares entry points, as pip would."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    importlib.invalidate_caches()


def test_an_entry_point_may_name_a_module_or_the_entry_itself(package, tmp_path):
    name, _ = package
    (tmp_path / f"outside_{name}.py").write_text(
        f"from {name} import ROOMS\n@ROOMS.register('attic')\nclass Attic: ...\nclass Cellar: ...\n"
    )
    install(
        tmp_path,
        f"outside-{name}",
        f"[{name}.rooms]\nattic = outside_{name}\ncellar = outside_{name}:Cellar\n"
        f"attic-again = outside_{name}:Attic\n",
    )
    assert rooms_of(name).names() == ["attic", "cellar"]


def test_a_broken_entry_point_is_left_out_with_a_warning(package, tmp_path):
    name, write = package
    write("hall.py", "from PACKAGE import ROOMS\n@ROOMS.register('hall')\nclass Hall: ...")
    install(tmp_path, f"broken-{name}", f"[{name}.rooms]\nghost = not_there_{name}:Ghost\n")
    with pytest.warns(RuntimeWarning, match=r"The room 'ghost' .* was left out"):
        assert rooms_of(name).names() == ["hall"]


def test_a_plugin_file_enters_what_it_defines_once(package, tmp_path):
    name, _ = package
    plugin = tmp_path / "mine.py"
    plugin.write_text(f"from {name} import ROOMS\n@ROOMS.register('mine')\nclass Mine: ...")
    rooms = rooms_of(name)
    first = load_plugin(plugin)
    assert load_plugin(str(plugin)) is first
    assert rooms.names() == ["mine"]
    assert "mine.py" in rooms.place("mine")


def test_a_plugin_that_fails_is_named_with_its_reason(tmp_path):
    plugin = tmp_path / "broken.py"
    plugin.write_text("1 / 0")
    with pytest.raises(CatalogError, match=r"broken\.py cannot be loaded: ZeroDivisionError"):
        load_plugin(plugin)
    with pytest.raises(CatalogError, match="ZeroDivisionError"):  # not half-loaded
        load_plugin(plugin)


def test_a_plugin_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CatalogError, match="is not a file"):
        load_plugin(tmp_path / "nowhere.py")
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(CatalogError, match="is not a Python file"):
        load_plugin(text)
