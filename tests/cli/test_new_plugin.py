"""`headway new-plugin` writes a project that works as it stands; so does the example."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "headway-shortest-prompt"
HEADWAY = "from framework.cli import main; main()"


def test_a_generated_project_passes_its_own_tests(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    assert headway("new-plugin", "my-idea", "--dir", tmp_path).exit_code == 0
    told = run(tmp_path / "headway-my-idea", "-m", "pytest", "-q", "-W", "error")
    assert "2 passed" in told
    told = run(tmp_path / "headway-my-idea", "-m", "pytest", "-q", "benchmarks", *BRIEFLY)
    assert "1 passed" in told


@pytest.mark.parametrize("name", ["Mine", "my idea", "1st", "class.py", "a__b"])
def test_a_name_that_is_none_is_refused(
    headway: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    result = headway("new-plugin", name, "--dir", tmp_path)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused(headway: Callable[..., Result], tmp_path: Path) -> None:
    result = headway("new-plugin", "fcfs", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "headway has installed a plugin 'fcfs' already" in result.output


def test_a_folder_that_exists_is_left_alone(headway: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "headway-mine").mkdir()
    assert headway("new-plugin", "mine", "--dir", tmp_path).exit_code == 2
    assert list((tmp_path / "headway-mine").iterdir()) == []


def test_the_example_is_built_installed_and_run_from_outside_the_tree(tmp_path: Path) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    shutil.copytree(EXAMPLE, project)
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run(tmp_path, "-m", "pip", "install", *offline, "--target", str(site), str(project))
    shutil.rmtree(project / "headway_shortest_prompt")  # what is installed is what is tested
    told = run(tmp_path, "-c", HEADWAY, "plugins", path=site)
    assert "shortest_prompt" in told
    told = run(tmp_path, "-c", HEADWAY, "check", "shortest_prompt", "--seeds", "1", path=site)
    assert "shortest_prompt: 9 checks passed, 1 exempt" in told
    assert "3 passed" in run(project, "-m", "pytest", "-q", path=site)


BRIEFLY = ("--policy", "headway_my_idea:MyIdea", "--benchmark-disable")


def run(folder: Path, *arguments: str, path: Path | None = None) -> str:
    """Run Python in a folder; its output."""
    variables = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
