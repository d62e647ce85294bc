"""The tree keeps its shape: small files, small folders, one name for one idea, no import circle."""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST

ROOT = Path(__file__).parents[1]
SDS = ROOT / "sds"
# Limits of size hold here. Files of tests and benchmarks may be long and their folders crowded, as
# tests/vol and benchmarks are: each file is one suite or one table, found by the name of what it
# tests or measures.
SOURCES = (SDS, ROOT / "native", ROOT / "alembic")
FOLDERS = ("alembic", "benchmarks", "deploy", "docs", "native", "scripts", "sds", "tests")
SUFFIXES = {".py", ".pyi", ".c", ".cpp", ".h", ".inc"}
MAX_LINES = 600
MAX_MODULES = 25
# "What is asked" is a riddle, "Queries of a table" a heading.
FIRST_WORDS_OF_RIDDLES = {
    "As", "By", "From", "How", "Its", "Of", "That", "Those", "What", "Where", "Whether", "Which",
    "Who", "Why",
}  # fmt: skip
# Modules here are named after commands and resources, which other packages implement.
NAMED_AFTER_OTHERS = ("sds.cli.commands", "sds.server.api.routers")
# What cuts across the tree, or is of no package of it.
SUITES = {
    "benchmarks", "data", "deploy", "differential", "end_to_end", "faults", "mpi", "native",
    "packaging", "robustness", "vol",
}  # fmt: skip


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path
    for path in sorted(SDS.rglob("*.py"))
    if (path.parent / "__init__.py").exists() and path.name != "__main__.py"
}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"} - {"sds"}


def source_files():
    found = chain.from_iterable(folder.rglob("*") for folder in SOURCES)
    return [path for path in found if path.suffix in SUFFIXES]


def test_no_source_file_is_long():
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in source_files()
    }
    assert {path for path, n in lines.items() if n > MAX_LINES} == set()


def docstrings(path):
    """Of a module, its classes and functions, and of what is assigned: line and first line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip().split("\n")[0]


def test_docstrings_begin_with_a_verb_or_a_noun():
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in source_files()
        if path.suffix in {".py", ".pyi"}
        for number, line in docstrings(path)
        if line.partition(" ")[0] in FIRST_WORDS_OF_RIDDLES
    ] == []


def test_no_folder_is_crowded():
    # A source file and its header are one module.
    modules = {path.with_suffix("") for path in source_files() if path.name != "__init__.py"}
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in modules)
    assert {folder: n for folder, n in folders.items() if n > MAX_MODULES} == {}


def test_no_two_modules_have_one_name():
    named = defaultdict(list)
    for name in MODULES.keys() - PACKAGES:
        package, _, last = name.rpartition(".")
        if package not in NAMED_AFTER_OTHERS:
            named[last].append(name)
    assert [sorted(names) for names in named.values() if len(names) > 1] == []


class Imports(ast.NodeVisitor):
    """Modules that a module imports: at its start, while it runs, or for types alone."""

    def __init__(self, path):
        self.found = set()
        self.visit(ast.parse(path.read_text(encoding="utf-8")))

    def visit_Import(self, node):
        self.found.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node):
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            self.found.add(name if name in MODULES else node.module)


def test_no_module_imports_in_a_circle():
    graph = {
        name: {found for found in Imports(path).found if found in MODULES and found != "sds"}
        for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_every_package_is_named_in_a_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layered = [one for one in settings["tool"]["importlinter"]["contracts"] if "containers" in one]
    assert all(one["exhaustive"] for one in layered)
    named = {
        f"{container}.{name.strip()}"
        for one in layered
        for container in one["containers"]
        for layer in one["layers"]
        for name in layer.split("|")
    }
    below = {package for package in PACKAGES if package not in NAMED_AFTER_OTHERS}
    assert below - named == set()


def test_tests_mirror_the_tree():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    first = {name.split(".")[1] for name in PACKAGES}
    assert folders - SUITES - first - {"__pycache__"} == set()
    homes = defaultdict(set)
    for name in MODULES.keys() - PACKAGES:
        package, _, last = name.rpartition(".")
        homes[last].add(ROOT.joinpath("tests", *package.split(".")[1:]))
    astray = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in SUITES
        and (found := homes.get(path.stem.removeprefix("test_")))
        and path.parent not in found
    ]
    assert astray == []


def test_the_longest_files_exist():
    assert [name for name in LONGEST_FIRST if not (ROOT / name).exists()] == []


def documents():
    above = ("ARCHITECTURE", "CONTRIBUTING", "README", "native/README", "tests/README")
    return [ROOT / f"{name}.md" for name in above] + sorted((ROOT / "docs").rglob("*.md"))


def path_in_tree(document):
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=path_in_tree)
def test_what_documents_name_exists(document):
    text = document.read_text(encoding="utf-8")
    named = re.findall(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*/]", text)
    # A decision is named by its number.
    gone = {p for p in named if not [*ROOT.glob(p.rstrip("/")), *ROOT.glob(f"{p}-*.md")]}
    assert gone == set()


def anchors(document):
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", documents(), ids=path_in_tree)
def test_links_of_documents_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    within = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text)
    named = re.findall(r"(?<![\w./(-])(docs/[\w/-]+\.md)#([\w-]+)", text)
    targets = [(document.parent / path if path else document, anchor) for path, anchor in within]
    targets += [(ROOT / path, anchor) for path, anchor in named]
    astray = [
        f"{path}#{anchor}"
        for path, anchor in targets
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]
    assert astray == []


@pytest.mark.parametrize("document", documents(), ids=path_in_tree)
def test_names_in_documents_are_those_of_modules(document):
    text = document.read_text(encoding="utf-8")
    unknown = set()
    for name in re.findall(r"(?<![\w./-])sds(?:\.[a-z_]\w*)+(?=[.\w]*`)", text):
        if name not in MODULES and name.rpartition(".")[0] not in MODULES:
            unknown.add(name)
    assert unknown == set()
