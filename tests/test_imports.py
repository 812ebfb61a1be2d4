"""Who may import whom, and what `import framework` must leave alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import framework

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for top in ("framework", "plugins", "runners")
    for path in (ROOT / top).rglob("*.py")
)

LAYERS = (
    {"errors", "config", "sampling", "stash", "request", "hashing", "ngram", "clock"}
    | {"prefixes"},
    {"output", "protocols", "reports", "latency"},
    {"waiting", "plan"},
    {"hookspecs"},
    {"stack", "hooks", "combine", "checks", "loading", "arguments", "timing", "blaming"},
    {"books", "answers", "view", "places", "room", "arrival", "admission", "handout"}
    | {"update", "assembly", "opening", "swapping", "scheduler"},
    {"engine", "metrics"},
    {"study", "testing", "server"},
    {"cli"},
)
"""The parts of framework, left to right; each may import its own layer and those before it."""

BASE = {"attrs", "pluggy"}
COMMAND_LINE = BASE | {"click", "rich"}
SERVER = BASE | {
    "msgspec",
    "fastapi",
    "starlette",
    "uvicorn",
    "h11",
    "pydantic",
    "prometheus_client",
}
MESSAGES = BASE | {"msgspec", "zmq"}
MESSAGE_FILES = {
    f"framework/engine/{name}.py"
    for name in (
        "protocol",
        "child/receiving",
        "child/sending",
        "child/running",
        "parent/connection",
    )
}
"""They are imported by those alone who want the engine in a process of its own."""
PLUGGY_FILES = {f"framework/{name}.py" for name in ("hookspecs", "stack", "hooks")}
PLAIN_MODULES = {"framework.hashing", "framework.ngram", "framework.prefixes"}
"""Helpers without state that plugins may use besides framework's public names."""


def imports(tree: ast.AST, *, in_function: bool = False) -> Iterator[tuple[str, bool]]:
    """(dotted name, inside a function) of each import that runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import on line {node.lineno}"
            yield from ((f"{node.module}.{alias.name}", in_function) for alias in node.names)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, in_function=in_function or inside)


def layer(part: str) -> int:
    places = [place for place, names in enumerate(LAYERS) if part in names]
    assert places, f"framework/{part} has no place in LAYERS"
    return places[0]


def violations(path: str, source: str) -> list[str]:
    """The imports of one file that its place forbids."""
    rule = {"framework": of_framework, "plugins": of_plugin, "runners": of_runner}
    forbids = rule[path.partition("/")[0]]
    found = imports(ast.parse(source))
    return [name for name, in_function in found if forbids(path, name, in_function)]


def of_framework(path: str, name: str, in_function: bool) -> bool:
    top, _, rest = name.partition(".")
    if top == "framework":
        part, own = rest.partition(".")[0], path.split("/")[1].removesuffix(".py")
        if own == "__init__":
            return False
        # A public name, imported from the package itself, would be a circle.
        return part in framework.__all__ or layer(part) > layer(own)
    if top == "pluggy":
        return path not in PLUGGY_FILES
    if top == "pytest":
        return path != "framework/testing/fixtures.py"
    allowed = MESSAGES if path in MESSAGE_FILES else BASE
    for folder, packages in (("cli", COMMAND_LINE), ("server", SERVER)):
        allowed = packages if path.startswith(f"framework/{folder}/") else allowed
    known = top in sys.stdlib_module_names or top in allowed
    return top in ("plugins", "runners") or not (known or in_function)


def of_plugin(path: str, name: str, in_function: bool) -> bool:
    top, _, rest = name.partition(".")
    if top == "framework":
        return rest not in framework.__all__ and name.rpartition(".")[0] not in PLAIN_MODULES
    if top == "plugins":
        return rest.partition(".")[0] != path.split("/")[1]
    known = top in sys.stdlib_module_names or top == "attrs"
    return top == "runners" or not (known or in_function)


def of_runner(path: str, name: str, in_function: bool) -> bool:
    top, _, rest = name.partition(".")
    if top == "runners":
        return rest.partition(".")[0] not in (path.split("/")[1].removesuffix(".py"), "common")
    return top == "plugins"


@pytest.mark.parametrize("path", FILES)
def test_each_file_imports_only_what_its_place_allows(path: str) -> None:
    assert violations(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("framework/request.py", "from framework.output import BlockIds"),
        ("framework/plan.py", "from framework import hooks"),
        ("framework/plan.py", "from framework import Request"),
        ("framework/hooks.py", "import framework.scheduler"),
        ("framework/engine/core.py", "from framework.cli import main"),
        ("framework/scheduler.py", "from plugins.fcfs import Fcfs"),
        ("framework/scheduler.py", "def f():\n    import runners.scripted"),
        ("framework/scheduler.py", "import pluggy"),
        ("framework/scheduler.py", "if True:\n    import torch"),
        ("framework/engine/llm.py", "class A:\n    import click"),
        ("plugins/fcfs/__init__.py", "from plugins.priority import Priority"),
        ("plugins/fcfs/__init__.py", "from framework.scheduler import Scheduler"),
        ("plugins/fcfs/__init__.py", "def f():\n    from runners import scripted"),
        ("plugins/fcfs/__init__.py", "import torch"),
        ("runners/scripted.py", "from plugins.fcfs import Fcfs"),
        ("runners/scripted.py", "from runners.torch_paged import TorchRunner"),
    ],
)
def test_a_forbidden_import_is_seen(path: str, line: str) -> None:
    assert len(violations(path, line)) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("framework/request.py", "if TYPE_CHECKING:\n    from framework.output import BlockIds"),
        ("framework/scheduler.py", "from framework import hooks, places"),
        ("framework/engine/llm.py", "def f():\n    import torch"),
        ("framework/cli/app.py", "import click"),
        ("plugins/fcfs/key.py", "from plugins.fcfs.other import key"),
        ("plugins/fcfs/__init__.py", "from framework import Request, hookimpl"),
        ("runners/triton/kernels.py", "from runners.common.flat import flatten"),
    ],
)
def test_an_allowed_import_passes(path: str, line: str) -> None:
    assert violations(path, line) == []


def test_importing_framework_leaves_heavy_packages_alone() -> None:
    heavy = ["torch", "transformers", "click", "rich", "numpy", "plugins", "runners", "zmq"]
    code = f"import framework, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
