from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from framework import ConfigError, ModelError, PluginError
from framework.engine.models import (
    LoadedModel,
    limits_for,
    list_models,
    resolve_model,
    runner_class,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_directory_with_a_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(tmp_path) == tmp_path
    assert resolve_model(str(tmp_path)) == tmp_path


def test_other_directories_and_files_are_not(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"it has no config\.json"):
        resolve_model(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="it is a file"):
        resolve_model(tmp_path / "file")


def test_an_unknown_name_is_refused_with_close_ones() -> None:
    with pytest.raises(ModelError, match="Did you mean 'smollm2'"):
        resolve_model("smollm")


def test_the_packaged_model_is_listed() -> None:
    assert "smollm2" in [name for name, _ in list_models()]


def test_runners_are_found_by_name() -> None:
    assert runner_class("scripted").__name__ == "ScriptedRunner"
    with pytest.raises(PluginError, match="Did you mean 'scripted'"):
        runner_class("skripted")


def test_the_length_is_the_models_own_unless_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 64}}')
    assert limits_for(tmp_path, {"max_model_len": None}).max_model_len == 64
    assert limits_for(tmp_path, {"max_model_len": 32}).max_model_len == 32
    with pytest.raises(ConfigError, match="max_model_len: got 65"):
        limits_for(tmp_path, {"max_model_len": 65})


def test_a_model_without_a_length_gets_the_default(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert limits_for(tmp_path, {"max_model_len": None}).max_model_len == 8192
    with pytest.raises(ConfigError, match="num_block: no such field"):
        limits_for(tmp_path, {"num_block": 3})


def test_a_broken_config_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[1]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json"):
            limits_for(tmp_path, {})


def test_blocks_are_1024_unless_given_or_told_by_the_runner(
    tmp_path: Path, model: Callable[..., LoadedModel]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert limits_for(tmp_path, {"num_blocks": None}).num_blocks == 1024
    assert limits_for(tmp_path, {"num_blocks": 9}).num_blocks == 9
    plain = model()
    assert (plain.num_blocks_that_fit(), plain.dtype) == (None, None)

    class OnDevice:
        dtype = "bfloat16"

        def num_blocks_that_fit(self) -> int:
            return 77

    told = evolve(plain, runner=OnDevice())
    assert (told.num_blocks_that_fit(), told.dtype) == (77, "bfloat16")
