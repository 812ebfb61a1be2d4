"""Loading: what a string or an instance in a stack stands for, and what is said when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from framework import PluginError, hookimpl
from framework.stack import DEFAULT_STACK, build_manager, installed_plugins, load_plugin

MINE = """
from attrs import define
from framework import hookimpl

@define(eq=False)
class Mine:
    cap: int = 7
    words: tuple = ()

    @hookimpl
    def select_waiting(self, waiting):
        return None

ready = Mine(cap=3)
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


@define(eq=False)
class Chooses:
    """Has an opinion on the next request."""

    @hookimpl
    def select_waiting(self, waiting: Any) -> Any:
        return None


def not_loaded(spec: object) -> str:
    """What `load_plugin` says about this spec."""
    with pytest.raises(PluginError) as caught:
        load_plugin(spec)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------
# loading
# ---------------------------------------------------------------------------------------------


def test_the_default_stack_builds_from_installed_names_in_its_order() -> None:
    manager = build_manager(DEFAULT_STACK)
    assert [name for name, _ in manager.list_name_plugin()] == list(DEFAULT_STACK)


def test_each_load_by_name_gives_a_new_instance() -> None:
    assert load_plugin("fcfs") is not load_plugin("fcfs")


def test_an_instance_is_taken_as_it_is() -> None:
    plugin = Chooses()
    assert load_plugin(plugin) is plugin


def test_a_file_gives_its_class_with_arguments(mine: str) -> None:
    plugin: Any = load_plugin(f"{mine}:Mine(cap=256, words=('a)', 'b'))")
    assert (plugin.cap, plugin.words) == (256, ("a)", "b"))


def test_a_file_in_a_folder_with_parentheses_loads(tmp_path: Path) -> None:
    folder = tmp_path / "a (copy)"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    plugin: Any = load_plugin(f"{folder}/mine.py:Mine(cap=2)")
    assert plugin.cap == 2


def test_a_module_attribute_may_be_an_instance(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(mine).parent))
    plugin: Any = load_plugin("mine:ready")
    assert plugin.cap == 3
    assert "instance already and takes no arguments, got 'cap'" in not_loaded("mine:ready(cap=1)")


def test_a_class_is_refused_and_shown_as_a_call() -> None:
    assert "Chooses is a class" in not_loaded(Chooses)
    with pytest.raises(PluginError, match=r"write Chooses\(\)"):
        build_manager([Chooses])


def test_an_unknown_name_gets_close_matches_and_what_is_installed() -> None:
    message = not_loaded("kv_block")
    assert "no plugin is called 'kv_block'" in message
    assert "Did you mean 'kv_blocks'" in message
    assert all(plugin.name in message for plugin in installed_plugins())


def test_a_file_without_a_name_is_told_how_to_write_it() -> None:
    assert "write path/to/file.py:Name" in not_loaded("./mine.py")


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("chunked_prefill(capp=2)", ["no argument 'capp'", "Did you mean 'cap'", "Allowed: cap"]),
        ("chunked_prefill(256)", ["argument 256 has no name", "write name=256"]),
        ("chunked_prefill(cap=many)", ["argument 'cap'", "got many", "literal"]),
        ("chunked_prefill(cap={[]: 1})", ["argument 'cap'", "got {[]: 1}", "literal"]),
        ("chunked_prefill(cap=1, cap=2)", ["argument 'cap' comes twice"]),
        ("chunked_prefill(**{})", ["**{} is not allowed"]),
        ("chunked_prefill(cap=", ["'chunked_prefill(cap='", "do not end in a parenthesis"]),
        ("chunked_prefill(cap=2))", ["arguments cannot be read", "name(argument=value)"]),
        ("chunked_prefill(cap=-4)", ["'chunked_prefill'", "-4"]),
        ("no_such_module:Name", ["cannot import 'no_such_module'", "ModuleNotFoundError"]),
        ("framework.stack:buld_manager", ["no attribute 'buld_manager'", "'build_manager'"]),
        ("./no/such/file.py:Name", ["there is no file ./no/such/file.py"]),
    ],
)
def test_a_string_that_cannot_be_loaded_names_the_piece(spec: str, parts: list[str]) -> None:
    message = not_loaded(spec)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("def broken(:", ["mine.py raised SyntaxError"]),
        ("raise KeyError('k')", ["mine.py raised KeyError: 'k'"]),
        ("class Mine:\n def __init__(self, cap): pass", ["needs the argument 'cap'", "cap=..."]),
        ("class Mine:\n def __init__(self): 1 / 0", ["constructor raised ZeroDivisionError"]),
        ("import sys; sys.exit('bye')", ["mine.py raised SystemExit: bye"]),
        ("class Mine:\n def __init__(self): exit(3)", ["constructor raised SystemExit: 3"]),
        (
            "from framework import ConfigError\n"
            "class Mine:\n def __init__(self): raise ConfigError('cap: got 0')",
            ["Mine': cap: got 0"],
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(mine: str, source: str, parts: list[str]) -> None:
    Path(mine).write_text(source)
    message = not_loaded(f"{mine}:Mine")
    assert [part for part in parts if part not in message] == []


def test_a_file_that_failed_leaves_no_module_behind(mine: str) -> None:
    Path(mine).write_text("raise KeyError('k')")
    before = set(sys.modules)
    not_loaded(f"{mine}:Mine")
    assert {name for name in set(sys.modules) - before if "mine" in name} == set()


# ---------------------------------------------------------------------------------------------
# installed distributions: a second interpreter, so that this one's path stays as it is
# ---------------------------------------------------------------------------------------------


def distribution(folder: Path, name: str, entries: dict[str, str]) -> None:
    """Lay out what an installer leaves behind."""
    info = folder / f"{name}-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[headway.plugins]", *lines, ""]))


def run_with(folder: Path, code: str) -> str:
    """What the code prints where `folder` is first on the path, working or raising."""
    header = "import sys\nfrom framework.stack import *\nfrom framework import PluginError\n"
    guarded = "try:\n" + "\n".join(f"    {line}" for line in code.splitlines())
    script = f"{header}{guarded}\nexcept PluginError as error:\n    print(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(folder), "PATH": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_distribution_is_found_by_name_and_only_that_one_is_imported(
    tmp_path: Path,
) -> None:
    (tmp_path / "spam_headway.py").write_text(MINE)
    (tmp_path / "spoilt.py").write_text("raise RuntimeError('imported')")
    distribution(tmp_path, "spam", {"spam": "spam_headway:Mine", "spoilt": "spoilt:Mine"})
    out = run_with(
        tmp_path,
        "print([p for p in installed_plugins() if p.name == 'spam'])\n"
        "print(build_manager(['fcfs', 'spam(cap=9)']).get_plugin('mine').cap)\n"
        "load_plugin('spoilt')",
    )
    first, second, third = out.splitlines()
    assert "value='spam_headway:Mine', distribution='spam', version='2.5'" in first
    assert second == "9"
    assert "'spoilt' (spoilt:Mine of spam) cannot be imported, RuntimeError: imported" in third


def test_a_name_that_two_distributions_install_is_nobody_s(tmp_path: Path) -> None:
    distribution(tmp_path, "spam", {"same": "spam_headway:Mine"})
    distribution(tmp_path, "eggs", {"same": "eggs_headway:Mine"})
    message = run_with(tmp_path, "load_plugin('same')")
    assert "several distributions install a plugin called 'same'" in message
    assert "spam_headway:Mine of spam" in message
    assert "eggs_headway:Mine of eggs" in message


def test_a_package_that_hides_our_plugins_is_named(tmp_path: Path) -> None:
    other = tmp_path / "plugins" / "__init__.py"
    other.parent.mkdir()
    other.touch()
    message = run_with(tmp_path, "load_plugin('fcfs')")
    assert f"the package 'plugins' comes from {other}" in message
    assert "hides Headway's own" in message


def test_a_module_that_exits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "cannot import 'leaves_at_once', SystemExit: 3" in not_loaded("leaves_at_once:Mine")
