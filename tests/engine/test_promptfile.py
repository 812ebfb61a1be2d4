from __future__ import annotations

from pathlib import Path

import pytest

from framework.engine.promptfile import read_prompts
from framework.errors import RequestError


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_line_brings_all_its_fields(tmp_path: Path) -> None:
    line = (
        '{"prompt": "hi", "id": "a", "priority": 2, "tenant": "t", "arrival_s": 1.5,'
        ' "max_tokens": 7, "stop": ["x"], "ignore_eos": true}'
    )
    (prompt,) = read_prompts(write(tmp_path, line))
    assert (prompt.prompt, prompt.request_id, prompt.priority) == ("hi", "a", 2)
    assert (prompt.tenant, prompt.arrival_s) == ("t", 1.5)
    params = prompt.sampling_params
    assert (params.max_tokens, params.stop, params.ignore_eos) == (7, ("x",), True)


def test_defaults_give_way_to_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": "a", "max_tokens": 1}', "", '{"prompt": "b"}')
    first, second = read_prompts(path, {"max_tokens": 9, "temperature": 0})
    assert first.sampling_params.max_tokens == 1
    assert second.sampling_params.max_tokens == 9
    assert first.sampling_params.temperature == 0


def test_names_come_from_the_line_number(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": "a"}', "", '{"prompt": "b", "id": 5}')
    assert [prompt.request_id for prompt in read_prompts(path)] == ["line-1", "5"]


def test_separators_of_other_kinds_do_not_end_a_line(tmp_path: Path) -> None:
    (prompt,) = read_prompts(write(tmp_path, '{"prompt": "a\u2028b"}'))
    assert prompt.prompt == "a\u2028b"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "not JSON"),
        ("[1]", "got a JSON list, allowed: an object"),
        ('{"promt": "a"}', "promt: no such key. Did you mean 'prompt'"),
        ('{"id": "x"}', "exactly one"),
        ('{"prompt": "a", "id": "one"}', "'one' is taken by line 1"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens: got 0"),
        ('{"prompt": "a", "temperature": -1}', "temperature: got -1"),
        ('{"prompt": "a", "ignore_eos": "no"}', "ignore_eos: got 'no'"),
        ('{"prompt": "a", "stop": 5}', "sampling fields"),
        ('{"prompt": "a", "arrival_s": "soon"}', "arrival_s: got 'soon'"),
        ('{"messages": [{"role": "user"}]}', "role and content"),
        ('{"prompt": null}', "exactly one"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, named: str) -> None:
    path = write(tmp_path, '{"prompt": "a", "id": "one"}', line)
    with pytest.raises(RequestError) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path} line 2: ")
    assert named in str(caught.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no prompt"):
        read_prompts(write(tmp_path, ""))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none\.jsonl: cannot be read: No such file"):
        read_prompts(tmp_path / "none.jsonl")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="not UTF-8"):
        read_prompts(path)


def test_the_demo_prompts_show_every_kind() -> None:
    prompts = read_prompts("demo")
    assert len(prompts) == 40
    assert {prompt.priority for prompt in prompts} == {0, 5, 9}
    assert len({prompt.tenant for prompt in prompts}) == 4
    systems = [prompt.messages[0]["content"] for prompt in prompts if prompt.messages]
    assert max(map(systems.count, systems)) == 10
