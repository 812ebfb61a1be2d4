"""Options of `headway serve`: from a TOML file and the command line, refused with one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")

from framework.cli.config_file import read_config
from framework.cli.serve import command
from framework.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

EVERYTHING = """
model = "smollm2"
plugin = ["priority", "spec_decode"]
host = "127.0.0.1"
port = 0
drain-s = 2
served_model_name = ["small"]
api_key = "secret"
cors-origin = ["https://chat.example"]
admin-key = "another"
max-body-bytes = 1000
max-queue = 5
max_per_tenant = 2
max-output-tokens = 100
restart = true
dtype = "float32"
device = "cpu"
threads = 1
runner = "torch"
num-blocks = 64
block-size = 16
max-num-seqs = 8
max-num-batched-tokens = 256
max-model-len = 512
num-spec-tokens = 2
async-scheduling = true
seed = 7
json = "out.json"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def into(text: str) -> Path:
        path = tmp_path / "serve.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return into


def parsed(*arguments: object) -> dict[str, Any]:
    """What the command would be called with."""
    with command.make_context("serve", [str(each) for each in arguments]) as context:
        return context.params


def test_a_file_may_say_everything(write: Callable[[str], Path]) -> None:
    found = parsed("--config", write(EVERYTHING))
    assert found["model"] == "smollm2" and found["plugins"] == ("priority", "spec_decode")
    assert (found["port"], found["drain_s"], found["restart"]) == (0, 2.0, True)
    assert found["model_names"] == ("small",) and found["api_key"] == "secret"
    assert (found["num_blocks"], found["async_scheduling"], found["seed"]) == (64, True, 7)
    options = {option.name for option in command.params} - {"config", "verbose", "help"}
    assert len(EVERYTHING.split("\n")) - 2 == len(options)


def test_the_command_line_wins(write: Callable[[str], Path]) -> None:
    arguments = ("other", "--port", 9, "--plugin", "vtc", "--config", write(EVERYTHING))
    found = parsed(*arguments)
    assert (found["model"], found["port"], found["plugins"]) == ("other", 9, ("vtc",))
    assert found["max_queue"] == 5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("prot = 1", ("prot: no such key. Did you mean 'port'", "max-queue")),
        ('port = "80"', ("port: got '80', allowed: an int",)),
        ("port = true", ("port: got True, allowed: an int",)),
        ("drain-s = []", ("drain-s: got [], allowed: a number",)),
        ("restart = 1", ("restart: got 1, allowed: true or false",)),
        ('plugin = "vtc"', ("plugin: got 'vtc', allowed: a list, each a string",)),
        ("plugin = [1]", ("plugin: got [1], allowed: a list, each a string",)),
        ("max-queue = 1\nmax_queue = 2", ("max_queue: it is given twice",)),
        ("[server]\nport = 1", ("server: no such key",)),
        ("config = 'x'", ("config: no such key",)),
        ("port = ", ("not TOML",)),
    ],
)
def test_a_wrong_line_is_told_with_its_file(
    write: Callable[[str], Path], line: str, words: tuple[str, ...]
) -> None:
    path = write(line)
    with pytest.raises(ConfigError) as raised:
        read_config(path, command)
    assert str(raised.value).startswith(f"{path}: ")
    for word in words:
        assert word in str(raised.value)


def test_the_help_page_names_the_model_that_is_served_by_default(
    headway: Callable[..., Result],
) -> None:
    told = " ".join(headway("serve", "--help").stdout.split())
    assert f"model directory. [default: {parsed()['model']}]" in told


def expect_refusal(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("headway: error: ")
    for word in words:
        assert word in result.stderr


def test_a_config_file_that_is_not_there(headway: Callable[..., Result], tmp_path: Path) -> None:
    expect_refusal(headway("serve", "--config", tmp_path / "no.toml"), "no.toml", "cannot be read")


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--port", 65536, "from 0 to 65535"),
        ("--drain-s", -1, "at least 0"),
        ("--max-queue", 0, "at least 1"),
        ("--max-body-bytes", 0, "at least 1"),
        ("--cors-origin", "chat.example", "https://HOST"),
        ("--max-output-tokens", 0, "at least 1"),
        ("--api-key", " ", "at least one ASCII character"),
        ("--admin-key", "", "at least one ASCII character"),
        ("--api-key", "secret\n", "no blanks at its ends"),
        ("--admin-key", " secret", "no blanks at its ends"),
        ("--api-key", "se\tcret", "all printable"),
        ("--served-model-name", "", "non-empty"),
    ],
)
def test_an_option_out_of_range(
    headway: Callable[..., Result], option: str, value: object, allowed: str
) -> None:
    expect_refusal(headway("serve", option, value), "got ", allowed)


@pytest.mark.parametrize("name", ["api_key", "admin_key"])
@pytest.mark.parametrize("value", ["", "secret\n"])
def test_a_variable_that_holds_no_key(
    headway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"HEADWAY_{name.upper()}", value)
    expect_refusal(headway("serve", "--port", 0), f"{name}: got ", "at least one ASCII character")


def test_a_port_that_is_taken(headway: Callable[..., Result], tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        expect_refusal(headway("serve", tmp_path, "--port", port), f"127.0.0.1 port {port}")


def test_a_host_that_others_reach_without_a_key_is_warned_about(
    headway: Callable[..., Result],
) -> None:
    result = headway("serve", "no-such-model", "--host", "0.0.0.0", "--port", 0)
    expect_refusal(result, "warning: host 0.0.0.0", "HEADWAY_API_KEY", "no-such-model")


def test_a_model_and_a_plugin_that_are_not_there(headway: Callable[..., Result]) -> None:
    expect_refusal(headway("serve", "smolm2", "--port", 0), "Did you mean 'smollm2'")
    expect_refusal(headway("serve", "--plugin", "priorty", "--port", 0), "'priority'")
