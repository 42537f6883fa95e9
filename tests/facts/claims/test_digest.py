"""What changes the digest of a measurement, and what does not."""

from __future__ import annotations

import ast
import sys
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from leadline.claims import CLAIMS
from leadline.claims.catalog import Trial
from leadline.claims.digest.code import Code
from leadline.claims.digest.digest import (
    code_digest,
    installed,
    place_of,
    source_of,
    trial_digest,
    used_by,
)
from leadline.errors import CatalogError

ENTRIES: dict[str, Any] = {
    name: entry for name, entry in CLAIMS.items() if entry.measure is not None
}


# A small package of its own: every rule by itself


PACKAGE = {
    "p": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from p.sizes import lazy
        _HOME = {"lazy": "sizes"}
        def __getattr__(name):
            raise AttributeError(f"{name} is not here")
    """,
    "p.catalog": "class Catalog:\n    pass",
    "p.sizes": '''
        """Sizes."""
        import numpy as np
        WIDE, NARROW = 64, 8
        UNUSED = 1
        TABLE = {}
        def lazy(x):
            return np.square(x) * 3
        def size(x: int) -> int:
            """Return it."""
            if x < 0:
                raise ValueError(f"{x} is negative")
            return x * WIDE
        def other(x):
            return x * NARROW
        def even(x):
            return x == 0 or odd(x - 1)
        def odd(x):
            return x != 0 and even(x - 1)
        class Base:
            def area(self):
                return size(1)
        class Box(Base):
            side: int = 2
            def volume(self):
                return self.side ** 3
    ''',
    "p.parts": """
        from p.catalog import Catalog
        PARTS: Catalog = Catalog("part", package="p.parts")
        def build(name):
            return PARTS.get(name)
        def every():
            return [PARTS.get(name) for name in PARTS.names()]
    """,
    "p.skip": """
        from p.parts import PARTS
        FACTOR = 5
        @PARTS.register("skip")
        def skip(x):
            return x * FACTOR
        @PARTS.register("gated")
        def gated(x):
            return x * 7
        for name in ("one", "two"):
            PARTS.register(name)(lambda x: x * 11)
    """,
    "p.rules": """
        RULES = {}
        def rule(function):
            RULES[function.__name__] = function
    """,
    "p.more_rules": """
        from p.rules import rule
        @rule
        def double(x):
            return x * 13
    """,
    "p.ruled": """
        import p.more_rules
        from p.rules import RULES
        def ruled(x):
            return [each(x) for each in RULES.values()]
    """,
    "p.again": "from p.sizes import size as length",
}


def small(tmp_path: Path, **changes: tuple[str, str]) -> Code:
    """The small package, some of its texts changed: p_sizes=("64", "65")."""
    files, texts = {}, {}
    for name, text in PACKAGE.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        texts[name] = "\n".join(line[indent:] for line in lines) + "\n"
        files[name] = tmp_path / (f"{name}/__init__.py" if name == "p" else f"{name}.py")
    for name, (old, new) in changes.items():
        module = name.replace("p_", "p.", 1)
        assert old in texts[module], "the change must change something"
        texts[module] = texts[module].replace(old, new)
    return Code(files, texts)


MEASURES = """
def sized(seed):
    from p.sizes import size
    return size(seed)

def lazily(seed):
    import p
    return p.lazy(seed)

def by_module(seed):
    import p.sizes as s
    return s.other(seed)

def re_exported(seed):
    from p.again import length
    return length(seed)

def cyclic(seed):
    from p.sizes import even
    return even(seed)

def boxed(seed):
    from p.sizes import Box
    return Box().volume()

def skipped(seed):
    from p.parts import build
    return build("skip(rate=0.1)")

def worded(seed):
    from p.parts import build
    return build(seed), "a sentence that names skip and gated"

def all_parts(seed):
    from p.parts import every
    return every()

def shadowed(seed):
    size = seed
    return size + 1

def ruled(seed):
    from p.ruled import ruled
    return ruled(seed)
"""


@pytest.fixture
def changes(tmp_path):
    """Which of the small measurements a change of the small package changes."""
    path = tmp_path / "small_measures.py"
    path.write_text(MEASURES)
    spelled: dict[str, Any] = {"__name__": "small_measures", "__file__": str(path)}
    exec(compile(MEASURES, str(path), "exec"), spelled)
    functions = {name: one for name, one in spelled.items() if callable(one)}

    def digests(**changed):
        code = small(tmp_path, **changed)
        return {name: used_by(one, code).digest for name, one in functions.items()}

    first = digests()

    def changed_by(**changed):
        return {name for name, digest in digests(**changed).items() if digest != first[name]}

    return changed_by


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        ("p_sizes", "64, 8", "65, 8", {"sized", "re_exported", "boxed"}),
        ("p_sizes", "64, 8", "64, 9", {"by_module"}),
        ("p_sizes", "(x) * 3", "(x) * 4", {"lazily"}),
        ("p_sizes", "import numpy as np", "import torch as np", {"lazily"}),
        ("p_sizes", "x != 0 and", "x != 0 or", {"cyclic"}),
        ("p_sizes", "self.side ** 3", "self.side ** 2", {"boxed"}),
        ("p_sizes", "side: int = 2", "side: int = 3", {"boxed"}),
        ("p_sizes", "UNUSED = 1", "UNUSED = 2", set()),
        ("p_skip", "FACTOR = 5", "FACTOR = 6", {"skipped", "all_parts"}),
        ("p_skip", "* 7", "* 8", {"all_parts"}),
        # entered by a loop, so under names that the source does not spell: always counted
        ("p_skip", "* 11", "* 12", {"skipped", "worded", "all_parts"}),
        ("p_skip", '"gated"', '"gate"', {"all_parts"}),
        ("p_more_rules", "* 13", "* 14", {"ruled"}),
    ],
)
def test_a_changed_definition_changes_who_uses_it(changes, module, old, new, expected):
    assert changes(**{module: (old, new)}) == expected


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("p_sizes", "Return it.", "Return the size."),
        ("p_sizes", "(x: int) -> int", "(x: float)"),
        ("p_sizes", "side: int", "side: float"),
        ("p_sizes", "is negative", "lies below zero"),
        ("p_sizes", "x * WIDE", "(x  *  WIDE)  # a comment"),
        (
            "p_sizes",
            "import numpy as np",
            "import sys\nfrom numpy import linalg\nimport numpy as np",
        ),
        ("p_sizes", "np", "numpy_as_another_name"),
        ("p_sizes", "WIDE", "WIDTH"),
        ("p_sizes", "TABLE = {}", ""),
        ("p_again", "from p.sizes import size as length", "import p.sizes\nlength = p.sizes.size"),
        ("p_parts", '"part", package="p.parts"', '"piece", package="p.elsewhere"'),
    ],
)
def test_texts_imports_and_names_change_nothing(changes, module, old, new):
    expected = {"re_exported"} if module == "p_again" else set()  # `length` is a new constant
    assert changes(**{module: (old, new)}) == expected


def test_where_a_measurement_stands_and_what_it_is_called_does_not_count(tmp_path):
    alone = "def measure(seed):\n    from p.sizes import size\n    return size(seed)\n"
    among = (
        "import claims\nfrom p.sizes import size\nOTHER = 3\n"
        "def other(seed):\n    return OTHER\n"
        '@claims.measures("a-claim")\n'
        'def sizes_grow(seed: int) -> int:\n    """In words."""\n    return size(seed)\n'
    )
    digests = set()
    for module, text, name in (("alone", alone, "measure"), ("topic", among, "sizes_grow")):
        path = tmp_path / f"{module}.py"
        path.write_text(text)
        spelled: dict[str, Any] = {"__name__": module}
        runnable = text.replace("import claims\n", "").replace('@claims.measures("a-claim")\n', "")
        exec(compile(runnable.replace("from p.sizes import size\n", "", 1), path, "exec"), spelled)
        digests.add(used_by(spelled[name], small(tmp_path)).digest)
    assert len(digests) == 1


def test_the_same_names_from_another_module_are_something_else(tmp_path):
    """An import line does not count, what it imports does."""
    first = small(tmp_path)
    twin = first.texts["p.sizes"].replace("64", "65")
    files = {**first.files, "p.twin": tmp_path / "p.twin.py"}
    texts = {**first.texts, "p.twin": twin, "p.again": "from p.twin import size as length"}
    path = tmp_path / "small_measures.py"
    path.write_text(MEASURES)
    spelled: dict[str, Any] = {"__name__": "small_measures"}
    exec(compile(MEASURES, str(path), "exec"), spelled)
    function = spelled["re_exported"]
    assert used_by(function, Code(files, texts)).digest != used_by(function, first).digest


def test_data_beside_a_module_of_the_package_counts_and_beside_a_plugin_not(tmp_path):
    text = "from pathlib import Path\ndef measure(seed):\n    return Path(__file__).parent\n"
    path = tmp_path / "reader.py"
    path.write_text(text)
    spelled: dict[str, Any] = {"__name__": "reader"}
    exec(compile(text, path, "exec"), spelled)

    def digests():
        inside, outside = Code({"reader": path}), Code({})
        return [used_by(spelled["measure"], code).digest for code in (inside, outside)]

    before = digests()
    (tmp_path / "weights.bin").write_bytes(b"12")
    after = digests()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_module_that_is_imported_with_a_star_is_refused(tmp_path):
    code = small(tmp_path, p_again=("import size as length", "import *"))
    with pytest.raises(CatalogError, match=r"imports \* from p\.sizes"):
        code.module("p.again")


# What is bound to a function


def counted(factor, table=None):
    def run(seed, *, extra=factor):
        return {"value": seed * factor + extra, "table": table}

    return Trial(f"times {factor}", run, 1.0)


def test_values_bound_to_a_function_count():
    assert trial_digest(counted(2)) == trial_digest(counted(2))
    assert trial_digest(counted(2)) != trial_digest(counted(3))
    assert trial_digest(counted(2, {"a": (1, 2)})) != trial_digest(counted(2, {"a": (1, 3)}))
    run = counted(2).run
    assert used_by(partial(run, 1)).digest != used_by(partial(run, 2)).digest


def test_what_a_trial_is_called_and_how_long_it_takes_does_not_count():
    run = counted(2).run
    assert trial_digest(Trial("a", run, 1.0)) == trial_digest(Trial("b", run, 9.0))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(CatalogError, match="bound to object"):
        trial_digest(counted(2, object()))
    with pytest.raises(CatalogError, match="write a function with `def`"):
        used_by(len)
    with pytest.raises(CatalogError, match="written with `def`"):
        used_by(lambda seed: seed)


def test_a_claim_changes_with_the_trials_that_it_reads():
    entry = CLAIMS.get("figure-skip-only")
    (trial,) = entry.needs
    other = Trial(trial.name, counted(2).run, trial.seconds)
    changed = type(entry)(entry.claim, entry.measure, entry.seconds, entry.seeded, (other,))
    assert code_digest(changed) != code_digest(entry)


# The claims of the package


@cache
def first_digests() -> dict[str, str]:
    return {name: _digest(entry, installed()) for name, entry in ENTRIES.items()}


def _digest(entry, code: Code) -> str:
    several = [entry.measure, *(trial.run for trial in entry.needs)]
    return " ".join(used_by(one, code).digest for one in several)


def changed_claims(code: Code) -> set[str]:
    return {
        name for name, entry in ENTRIES.items() if _digest(entry, code) != first_digests()[name]
    }


def with_change(module: str, old: str, new: str) -> Code:
    text = installed().text(module)
    assert text.count(old) == 1, "the change must be made in one place"
    return installed().but({module: text.replace(old, new)})


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        (  # theory
            "leadline.theory.norm_jacobian",
            "abs(gamma) / np.float64(s)",
            "abs(gamma) / np.float64(2 * s)",
            {
                "layernorm-jacobian-below-one",
                "layernorm-jacobian-eigenvalues",
                "layernorm-lowers-variance",
            },
        ),
        (  # numerics
            "leadline.numerics.reference",
            "j > i + n - m",
            "j > i + n - m + 1",
            {"heads-are-a-sum", "mask-hides-the-future"},
        ),
        (  # a part that is looked up by its name
            "leadline.parts.connections.lambda_skip",
            "place.writes**0.5",
            "place.writes**0.6",
            {
                "adapters-cannot-keep-up",
                "old-tasks-leak-through-residual",
                "strong-residual-mutes-lora",
            },
        ),
    ],
    ids=["theory", "numerics", "catalog"],
)
def test_a_changed_constant_changes_exactly_the_claims_that_use_it(module, old, new, expected):
    assert changed_claims(with_change(module, old, new)) == expected


def test_how_a_record_is_kept_and_shown_changes_no_claim_and_how_it_makes_lines_does():
    kept = with_change("leadline.record.record", "SAVEPOINT part", "SAVEPOINT another")
    assert changed_claims(kept) == set()
    mean = with_change(
        "leadline.record.rows.selection", "float(np.mean(values))", "float(np.median(values))"
    )
    changed = changed_claims(mean)
    assert "attention-rows-sum-to-one" in changed  # reads lines of a record
    assert "power-of-nine-tenths" not in changed  # has no record


def moved(code: Code, places: dict[str, str]) -> Code:
    """The code with modules under other names, and every import of them rewritten."""
    files = {places.get(name, name): path for name, path in code.files.items()}
    texts = {places.get(name, name): redirected(code.text(name), places) for name in code.files}
    return Code(files, texts)


def redirected(text: str, places: dict[str, str]) -> str:
    """A module with its imports of moved modules rewritten, in whichever form they are written."""
    if not any(old.rpartition(".")[2] in text for old in places):
        return text

    class Redirect(ast.NodeTransformer):
        def visit_Import(self, node):
            for alias in node.names:
                alias.name = places.get(alias.name, alias.name)
            return node

        def visit_ImportFrom(self, node):
            node.module = places.get(node.module, node.module)
            stay = [one for one in node.names if f"{node.module}.{one.name}" not in places]
            plain = [
                ast.Import([ast.alias(places[f"{node.module}.{one.name}"], one.asname or one.name)])
                for one in node.names
                if one not in stay
            ]
            return [*plain, *([ast.ImportFrom(node.module, stay, 0)] if stay else [])]

    return ast.unparse(ast.fix_missing_locations(Redirect().visit(ast.parse(text))))


def test_moved_modules_change_no_claim():
    places = {
        "leadline.theory.norm_jacobian": "leadline.theory.jacobian_of_norms",
        "leadline.numerics.reference": "leadline.numerics.slow_twins",
        "leadline.parts.connections.lambda_skip": "leadline.parts.connections.keel_skip",
        "leadline.parts.recipe": "leadline.designs",
        "leadline.catalog": "leadline.names_of_things",
        "leadline.experiments.rank_collapse.experiment": "leadline.experiments.figure_of_collapse",
        "leadline.claims.measure.training_runs": "leadline.claims.measure.cells_of_training",
    }
    code = moved(installed(), places)
    used = {key for entry in ENTRIES.values() for key in used_by(entry.measure).keys}
    assert {module for module, _ in used} >= set(places), "each of them is used by some claim"
    for function in {one.run for entry in ENTRIES.values() for one in entry.needs}:
        if function.__module__ in places:
            code.files[function.__module__] = code.files[places[function.__module__]]
            code.texts[function.__module__] = code.text(places[function.__module__])
    assert changed_claims(code) == set()


@pytest.mark.slow
def test_other_words_and_another_layout_change_no_claim():
    assert changed_claims(installed().but({n: reworded(n) for n in installed().files})) == set()


def reworded(module: str) -> str:
    """The module laid out anew, with other docstrings, comments, messages and imports first."""
    tree = ast.parse(installed().text(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            if ast.get_docstring(node) is not None:
                node.body[0] = ast.Expr(ast.Constant("Other words."))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = [
                ast.Constant("Another message.")
                if isinstance(one, ast.JoinedStr | ast.Constant)
                else one
                for one in node.exc.args
            ]
    imports = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    future = [one for one in imports if getattr(one, "module", "") == "__future__"]
    others = [one for one in imports if one not in future]
    rest = [one for one in tree.body if one not in imports]
    tree.body = [*future, *reversed(others), *rest]
    return "# another comment\n" + ast.unparse(ast.fix_missing_locations(tree))


def test_every_claim_has_a_digest_of_its_own():
    assert len({code_digest(entry) for entry in ENTRIES.values()}) == len(ENTRIES)


def test_every_public_name_is_found_where_it_is_defined():
    import leadline

    for name in leadline.__all__:
        target, rest = installed().resolve("leadline", [name])
        assert isinstance(target, tuple), name
        assert not rest


TRACED = (
    "power-of-nine-tenths",
    "layernorm-jacobian-eigenvalues",
    "heads-are-a-sum",
    "gpt2-norms-moved",
    "two-residuals-per-block",
    "norms-do-not-matter-for-collapse",
    "output-is-a-sum-over-paths",
    "length-zero-path-keeps-rank",
)


@pytest.mark.parametrize("name", TRACED)
def test_what_runs_in_a_measurement_is_covered(name):
    """By another route: the functions of the package that really run, as Python reports them."""
    entry = ENTRIES[name]
    assert not entry.needs
    covered = used_by(entry.measure).keys
    names = {
        str(path): module
        for module, path in installed().files.items()
        if module.startswith("leadline.")
    }
    ran = {
        (names[code.co_filename], code.co_qualname.split(".")[0])
        for code in functions_run_by(lambda: entry.measure(0))
        if code.co_filename in names
    }
    machinery = ("leadline.claims.catalog", "leadline.claims.claim")
    missed = {
        (module, function)
        for module, function in ran - covered
        # what runs on import is no part of a measurement; a lambda has no name to look for
        if module not in machinery
        and not function.startswith("<")
        # a record carries numbers; how it makes lines of readings is followed
        and (not module.startswith("leadline.record") or module.endswith(".rows.selection"))
    }
    assert missed == set()
    assert (entry.measure.__module__, entry.measure.__name__) in ran


def functions_run_by(work) -> set:
    ran: set = set()

    def note(frame, event, _value):
        if event == "call":
            ran.add(frame.f_code)

    work()  # imports, and the functions that they call, are done after this
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return ran


# What is shown


def test_the_code_that_measured_is_shown_from_its_def_on():
    entry = CLAIMS.get("power-of-nine-tenths")
    assert source_of(entry).startswith("def power_of_nine_tenths(seed: int) -> Measured:")
    assert "return Measured(" in source_of(entry)
    assert place_of(entry).startswith("leadline.claims.measure.products, line ")
