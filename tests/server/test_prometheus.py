"""/metrics: vLLM's names, counts that add up, counters that never fall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.standin import Server

TEXT = "/v1/completions"
MODEL = '{model_name="scripted"}'


@pytest.mark.parametrize(
    "name",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:inter_token_latency_seconds_sum",
        "vllm:request_time_per_output_token_seconds_sum",
        "vllm:e2e_request_latency_seconds_sum",
        "vllm:request_queue_time_seconds_sum",
        "vllm:request_prompt_tokens_sum",
        "vllm:request_generation_tokens_sum",
        "headway:engine_up",
    ],
)
def test_there_is_a_metric(server: Server, name: str) -> None:
    assert server.metric(f"{name}{MODEL}") >= 0


def test_tokens_and_gaps_add_up(server: Server) -> None:
    for stream in (False, True):
        body = {"prompt": "abc", "max_tokens": 5, "n": 2, "stream": stream}
        assert server.post(TEXT, body).status_code == 200
    assert server.metric(f"vllm:prompt_tokens_total{MODEL}") == 12
    assert server.metric(f"vllm:generation_tokens_total{MODEL}") == 20
    assert server.metric(f"vllm:time_to_first_token_seconds_count{MODEL}") == 4
    assert server.metric(f"vllm:e2e_request_latency_seconds_count{MODEL}") == 4
    assert server.metric(f"vllm:request_generation_tokens_sum{MODEL}") == 20


def test_ends_are_counted_by_reason(server: Server) -> None:
    server.post(TEXT, {"prompt": "x", "stop": "c"})
    server.post(TEXT, {"prompt": "x"})
    for reason in ("stop", "length"):
        labels = f'{{finished_reason="{reason}",model_name="scripted"}}'
        assert server.metric(f"vllm:request_success_total{labels}") == 1


def test_refused_calls_are_counted_by_reason(server: Server) -> None:
    server.post(TEXT, {"prompt": ""})
    server.post(TEXT, {"prompt": "x", "model": "y"})
    for reason in ("invalid_value", "model_not_found"):
        labels = f'{{model_name="scripted",reason="{reason}"}}'
        assert server.metric(f"headway:requests_refused_total{labels}") == 1


def test_what_asks_for_no_output_is_not_counted_as_refused(server: Server) -> None:
    server("GET", "/favicon.ico")
    server.admin("POST", "swap", {"plugins": ["priorty"]})
    server("GET", "/admin/plugins")
    assert "requests_refused_total{" not in server("GET", "/metrics").text


def test_there_are_no_series_of_creation_times(server: Server) -> None:
    server.post(TEXT, {"prompt": "x"})
    assert "_created" not in server("GET", "/metrics").text


def test_hooks_are_told_by_plugin(server: Server) -> None:
    server.engine.hooks = [("fcfs", "order_waiting", 7, 0.5)]
    labels = '{hook="order_waiting",model_name="scripted",plugin="fcfs"}'
    assert server.metric(f"headway:hook_calls_total{labels}") == 7
    assert server.metric(f"headway:hook_seconds_total{labels}") == 0.5


def test_counters_do_not_fall_when_an_engine_begins_anew(server: Server) -> None:
    labels = '{hook="order_waiting",model_name="scripted",plugin="fcfs"}'
    found = []
    for calls in (7, 9, 2, 5):
        server.engine.hooks = [("fcfs", "order_waiting", calls, 0.5)]
        found.append(server.metric(f"headway:hook_calls_total{labels}"))
    assert found == [7, 9, 11, 14]


def test_the_last_figures_stay_where_the_engine_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.server.engine_metrics.PATIENCE_S", 0.01)
    assert server.metric(f"vllm:kv_cache_usage_perc{MODEL}") == 0.25
    server.engine.is_slow = True
    assert server.metric(f"vllm:kv_cache_usage_perc{MODEL}") == 0.25


def test_a_dead_engine_is_down_and_runs_nothing(server: Server) -> None:
    server("GET", "/metrics")
    server.engine.failure = "killed"
    assert server.metric(f"headway:engine_up{MODEL}") == 0
    assert server.metric(f"vllm:kv_cache_usage_perc{MODEL}") == 0
