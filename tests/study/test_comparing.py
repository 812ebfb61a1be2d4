"""A comparison in virtual time: what is run, what comes back, and that it can be repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from framework.errors import ConfigError, PluginError
from framework.study.compare import compare_policies, num_unserved
from framework.study.source import Source
from framework.study.study import Study
from framework.study.synthetic import make_workload

if TYPE_CHECKING:
    from pathlib import Path

SPEC = "poisson:rate=8,n=40,prompt=lognormal(600,0.7),output=lognormal(60,0.8)"
BROKEN = """
from framework import hookimpl

class Broken:
    @hookimpl
    def select_waiting(self, waiting):
        raise RuntimeError("no more")
"""


def study(*policies: str, text: str = SPEC, **options: Any) -> Study:
    return Study(policies=policies, source=Source(text=text), **options)


def compare(*policies: str, **options: Any) -> dict[str, Any]:
    return compare_policies(study(*policies, **options))[0]


def test_every_policy_meets_the_same_workload_of_each_seed() -> None:
    result = compare("fcfs", "sarathi", seeds=(3, 4))
    digests = {(run["seed"], run["workload"]) for run in result["runs"]}
    assert len(result["runs"]) == 4 and len(digests) == 2
    assert {run["outcome"]["num_requests"] for run in result["runs"]} == {40}


def test_curves_are_kept_of_the_first_seed_and_are_short() -> None:
    result = compare("fcfs", seeds=(0, 1))
    first, second = result["runs"]
    assert "curves" not in second
    curves = first["curves"]
    sizes = {len(curves[name]) for name in ("time_s", "kv_used_blocks", "running", "waiting")}
    assert len(sizes) == 1 and max(sizes) <= 300
    assert all(0 < len(pairs) <= 200 for pairs in curves["cdf"].values())


def test_several_processes_find_what_one_finds() -> None:
    asked = study("fcfs", "sarathi", seeds=(0, 1))
    seen: list[tuple[int, int]] = []
    alone, _ = compare_policies(asked)
    spread, host = compare_policies(
        asked, num_processes=2, progress=lambda *each: seen.append(each)
    )
    assert json.dumps(spread) == json.dumps(alone)
    assert sum(count for count, _ in seen) == 160
    assert all(run["scheduler_us_per_step"] > 0 for run in host["runs"])


def test_real_times_are_not_in_the_result() -> None:
    text = json.dumps(compare("fcfs"))
    assert "wall" not in text and "_us_" not in text


def test_hash_seeds_change_no_byte(tmp_path: Path) -> None:
    texts = []
    for hash_seed in ("1", "2"):
        path = tmp_path / f"{hash_seed}.json"
        command = (
            sys.executable,
            "-c",
            "import sys; from framework.cli import main; main()",
            *("compare", "fcfs", "priority", "sarathi", "--workload", SPEC),
            *("--tenants", "3", "--priorities", "0|5", "--json", str(path), "--jobs", "1"),
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


def test_loads_are_shares_of_the_measured_capacity() -> None:
    result = compare("fcfs", loads=(0.5, 1.2))
    rate = result["capacity"]["rate"]
    assert 10 < rate < 40
    low, high = result["runs"]
    assert low["factor"] / high["factor"] == pytest.approx(1.2 / 0.5)
    assert result["workload"]["rate"] / low["factor"] == pytest.approx(0.5 * rate)
    assert low["outcome"]["ttft_s"]["mean"] < high["outcome"]["ttft_s"]["mean"]


def test_a_capacity_may_be_given() -> None:
    result = compare("fcfs", loads=(0.5,), capacity=10.0)
    assert result["workload"]["rate"] / result["runs"][0]["factor"] == pytest.approx(5)


def test_a_backlog_grows_only_beyond_the_capacity() -> None:
    text = SPEC.replace("n=40", "n=400")
    result = compare("fcfs", text=text, loads=(0.5, 1.5), limits={"max_num_seqs": 32})
    low, high = (run["backlog_per_s"] for run in result["runs"])
    assert abs(low) < 0.2
    assert high > 2


def test_a_closed_loop_has_no_load() -> None:
    with pytest.raises(ConfigError, match="no rate that could be varied"):
        compare("fcfs", text="closed:users=4,n=20", loads=(0.5,))


def test_a_policy_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    broken = f"{tmp_path}/mine.py:Broken"
    result = compare("fcfs", broken)
    good, bad = result["runs"]
    assert good["outcome"]["reasons"] == {"stop": 40}
    assert "no more" in bad["error"]
    assert f"{broken} failed" in result["headline"]


def test_a_policy_that_leaves_requests_unserved_is_told() -> None:
    result = compare("fcfs", limits={"max_model_len": 300})
    count = num_unserved(result["runs"][0])
    assert count == sum(each.prompt_len >= 300 for each in make_workload(SPEC).arrivals) > 0
    assert f"fcfs left {count} of" in result["headline"]


def test_policies_that_make_no_difference_are_named() -> None:
    result = compare("fcfs", "priority", "sarathi")
    assert result["alike"] == [["fcfs", "priority"]]
    assert "fcfs and priority came out the same" in result["headline"]


def test_the_result_says_what_code_ran(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    result = compare(f"{tmp_path}/mine.py:Broken", "fcfs")
    mine, fcfs = (each["plugins"][-1] for each in result["policies"])
    assert mine["version"] is None and fcfs["version"].startswith("headway ")
    (tmp_path / "mine.py").write_text(BROKEN + "# changed\n")
    changed = compare(f"{tmp_path}/mine.py:Broken", "fcfs")["policies"]
    assert changed[0]["plugins"][-1]["sha256"] != mine["sha256"]
    assert changed[1]["plugins"][-1]["sha256"] == fcfs["sha256"]


def test_sensitivity_says_whether_the_ranking_survives() -> None:
    result = compare("fcfs", "sarathi", text=SPEC.replace("n=40", "n=15"), is_sensitive=True)
    found = result["sensitivity"]["metrics"]["itl_p99"]
    assert found["ranking"] == ["sarathi", "fcfs"]
    assert len(found["values"]) == 16
    assert "ranking" in result["headline"]


def test_one_policy_has_no_ranking_to_survive() -> None:
    result = compare("fcfs", text=SPEC.replace("n=40", "n=5"), is_sensitive=True)
    assert result["headline"].endswith("there are no two policies to rank")


def test_a_trace_is_resampled_where_seeds_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{i * i / 50},{100 + i},{5 + i % 7}\n" for i in range(40))
    path.write_text("time,prompt,output\n" + rows)
    one = compare("fcfs", text=str(path))
    two = compare("fcfs", text=str(path), seeds=(0, 1))
    assert one["workload"]["source"]["gaps"] == "as recorded"
    assert one["workload"]["resampled"] is False
    assert "drawn again" in two["workload"]["source"]["gaps"]
    assert two["runs"][0]["workload"] != two["runs"][1]["workload"]


def test_tenant_weights_count_in_the_service() -> None:
    source = Source(text=SPEC, classes={"tenants": "a|b", "weights": "1|4"})
    result, _ = compare_policies(attrs.evolve(study("fcfs"), source=source))
    service = result["runs"][0]["outcome"]["service"]
    assert 2 < service["a"] / service["b"] < 8


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"policies": ()}, ConfigError, "policies: got (), allowed: at least one"),
        ({"policies": ("fcfs", "fcfs")}, ConfigError, "each once"),
        ({"policies": ("fcsf",)}, PluginError, "Did you mean 'fcfs'"),
        ({"policies": ("fcfs",), "loads": (0.0,)}, ConfigError, "shares of the capacity"),
        ({"policies": ("fcfs",), "loads": (0.5, 0.5)}, ConfigError, "each once"),
        ({"policies": ("fcfs",), "loads": (0.5,), "capacity": 0.0}, ConfigError, "capacity: got 0"),
        ({"policies": ("fcfs",), "capacity": 8.0}, ConfigError, "with loads that are shares of it"),
        ({"policies": ("fcfs",), "horizon": float("nan")}, ConfigError, "horizon: got nan"),
        ({"policies": ("fcfs",), "limits": {"block_size": 0}}, ConfigError, "block_size: got 0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as told:
        Study(source=Source(text=SPEC), **options)
    assert words in str(told.value)


def test_a_workload_that_is_neither_is_told() -> None:
    with pytest.raises(ConfigError, match="a file that exists, or a SPEC"):
        Source(text="nowhere.csv")
