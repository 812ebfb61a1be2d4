"""Our records in the form of the recordings: plain lists and dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.output import CachedRequestData, SchedulerOutput, StepResult


def planned(output: SchedulerOutput) -> dict[str, Any]:
    """A plan; its block ids and ids of ended requests as plain lists."""
    return {
        "num_scheduled_tokens": dict(output.num_scheduled_tokens),
        "total_num_scheduled_tokens": output.total_num_scheduled_tokens,
        "new": [
            {
                "id": new.request_id,
                "num_computed_tokens": new.num_computed_tokens,
                "block_ids": list(new.block_ids),
            }
            for new in output.scheduled_new_reqs
        ],
        "cached": _continuing(output.scheduled_cached_reqs),
        "spec_token_ids": {
            name: list(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()
        },
        "preempted": list(output.preempted_req_ids),
        "finished_req_ids": sorted(output.finished_req_ids),
        "num_common_prefix_blocks": output.num_common_prefix_blocks,
    }


def _continuing(cached: CachedRequestData) -> list[dict[str, Any]]:
    columns = zip(cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True)
    return [
        {
            "id": name,
            "resumed": name in cached.resumed_req_ids,
            "num_computed_tokens": num_computed,
            "num_output_tokens": num_output,
            "new_block_ids": list(cached.new_block_ids.get(name, ())),
        }
        for name, num_computed, num_output in columns
    ]


def kept(result: StepResult) -> dict[str, dict[str, Any]]:
    """{id: tokens kept and how it ended} of the requests that gave output."""
    outputs: dict[str, dict[str, Any]] = {
        name: {"token_ids": list(tokens)}
        for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True)
    }
    for name, reason in result.finish_reasons.items():
        outputs.setdefault(name, {"token_ids": []})["finish_reason"] = reason
    for name, stop in result.stop_reasons.items():
        outputs[name]["stop_reason"] = stop
    return outputs
