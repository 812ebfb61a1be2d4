from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from framework.cli.report import progress, rate, share, show_table, write_json

if TYPE_CHECKING:
    from pathlib import Path


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_json_goes_into_a_pipe_and_leaves_it_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(pipe, {"a": 1})
        assert json.loads(os.read(reader, 100)) == {"a": 1}
    finally:
        os.close(reader)
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_json_goes_where_a_link_points(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out.json")
    write_json(tmp_path / "link", {"a": 1})
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}


def test_json_files_are_readable_by_others(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {})
    assert (tmp_path / "out.json").stat().st_mode & stat.S_IRUSR
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "out.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    write_json(None, {})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_a_dash() -> None:
    assert (share(0, 0), rate(None)) == ("-", "-")
    assert (share(1, 4), rate(2.04)) == ("25%", "2.0")


def test_a_table_takes_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("title", ("policy", "count"), [("mine[red]", "1")], numbers=True)
    assert "mine[red]" in capsys.readouterr().out


def test_columns_that_do_not_fit_a_terminal_get_a_table_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    names = [f"a/long/policy.py:Name{number}" for number in range(3)]
    show_table("", ("", *names), [("TTFT p50 s", "1.25", "2.25", "3.25")], numbers=True)
    shown = capsys.readouterr().out
    assert shown.count("TTFT p50 s") == 3
    assert all(word in shown for word in (*names, "1.25", "2.25", "3.25"))


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("things", 2) as advance:
        advance(1)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
