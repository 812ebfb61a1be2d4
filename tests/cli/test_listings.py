from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from framework.cli.app import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

GOLDEN = Path(__file__).parents[1] / "oracle" / "golden"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    headway: Callable[..., Result], command: str
) -> None:
    result = headway(command, "--help")
    assert result.exit_code == 0
    assert f"Example: headway {command}" in result.stdout
    assert "--json FILE" in result.stdout and "-v, --verbose" in result.stdout
    assert command in headway("--help").stdout


def test_plugins_tells_hooks_and_versions(headway: Callable[..., Result], tmp_path: Path) -> None:
    result = headway("plugins", "--json", tmp_path / "out.json")
    assert result.exit_code == 0
    data = json.loads((tmp_path / "out.json").read_text())
    assert result.stdout.endswith(f"{data['headline']}\n")
    hooks = {each["name"]: each["hooks"] for each in data["plugins"]}
    assert {"fcfs", "priority", "kv_blocks", "chunked_prefill", "spec_decode"} <= set(hooks)
    assert "allocate" in hooks["kv_blocks"] and "order_waiting" in hooks["priority"]
    assert all(each["version"] and each["error"] is None for each in data["plugins"])


def test_models_tells_directories(headway: Callable[..., Result], tmp_path: Path) -> None:
    result = headway("models", "--json", tmp_path / "out.json")
    assert result.exit_code == 0
    (model,) = json.loads((tmp_path / "out.json").read_text())["models"]
    assert model["name"] == "smollm2"
    assert (model["directory"] is None) is not (model["error"] is None)
    assert result.stdout.startswith("smollm2  ")


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Two recordings, the second one with another token count in its third step."""
    for name in ("abort_running", "abort_waiting"):
        shutil.copy(GOLDEN / f"{name}.json.gz", tmp_path)
    path = tmp_path / "abort_waiting.json.gz"
    recording = json.loads(gzip.decompress(path.read_bytes()))
    scheduled = recording["steps"][2]["schedule"]["num_scheduled_tokens"]
    name = next(iter(scheduled))
    scheduled[name] += 7
    path.write_bytes(gzip.compress(json.dumps(recording).encode()))
    return tmp_path


def test_oracle_names_each_difference(headway: Callable[..., Result], recordings: Path) -> None:
    result = headway("oracle", recordings)
    assert result.exit_code == 1
    difference, headline = result.stdout.splitlines()
    assert difference.startswith("abort_waiting: step 2, schedule.num_scheduled_tokens")
    assert "ours" in difference and "recorded" in difference
    assert headline == "1 same, 1 differ"


def test_oracle_without_differences(
    headway: Callable[..., Result], recordings: Path, tmp_path: Path
) -> None:
    (recordings / "abort_waiting.json.gz").unlink()
    result = headway("oracle", recordings, "--json", tmp_path / "out.json")
    assert (result.exit_code, result.stdout) == (0, "1 same, 0 differ\n")
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["recordings"] == [{"name": "abort_running", "difference": None}]
