"""Workloads made by rule: what is asked for is what arrives; no option touches another."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import pytest

from framework.errors import ConfigError
from framework.request import Slo
from framework.study.recipe import is_spec
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload

if TYPE_CHECKING:
    from pathlib import Path

    from framework.study.workload import Workload


def gaps(workload: Workload) -> list[float]:
    times = [0.0, *(arrival.time for arrival in workload.arrivals)]
    return [after - before for before, after in pairwise(times)]


def spread(values: list[float]) -> float:
    return pstdev(values) / fmean(values)


def test_poisson_arrivals_have_the_rate_and_a_variation_of_one() -> None:
    found = gaps(make_workload("poisson:rate=8,n=4000"))
    assert fmean(found) == pytest.approx(1 / 8, rel=0.05)
    assert spread(found) == pytest.approx(1, abs=0.07)


def test_gamma_arrivals_have_the_variation_asked_for() -> None:
    found = gaps(make_workload("gamma:rate=8,cv=3,n=6000"))
    assert fmean(found) == pytest.approx(1 / 8, rel=0.12)
    assert spread(found) == pytest.approx(3, rel=0.12)


def test_constant_arrivals_are_even() -> None:
    assert gaps(make_workload("constant:rate=4,n=10")) == [0.25] * 10


def test_lognormal_lengths_have_the_mean_asked_for() -> None:
    workload = make_workload("poisson:n=4000,prompt=lognormal(1000,0.7),output=lognormal(200,1.0)")
    assert fmean(each.prompt_len for each in workload.arrivals) == pytest.approx(1000, rel=0.05)
    assert fmean(each.output_len for each in workload.arrivals) == pytest.approx(200, rel=0.08)


def test_python_values_mean_what_the_text_means() -> None:
    text = make_workload("poisson:rate=3,n=50,prompt=[5,7],tenants=a*3|b,priority=0*2|4,slo=1/0.5")
    python = make_workload(
        rate=3,
        n=50,
        prompt=[5, 7],
        tenants={"a": 3, "b": 1},
        priority={0: 2, 4: 1},
        slo=Slo(ttft_s=1.0, tpot_s=0.5),
    )
    assert list(text.arrivals) == list(python.arrivals)


def test_the_seed_changes_everything_and_equal_seeds_nothing() -> None:
    one, same, other = (make_workload("poisson:n=50", seed=seed) for seed in (1, 1, 2))
    assert one.digest == same.digest
    assert not {each.time for each in one.arrivals} & {each.time for each in other.arrivals}


@pytest.mark.parametrize("option", ["prompt=7", "rate=9", "tenants=5", "slo=1/-", "prefixes=0"])
def test_an_option_does_not_shift_the_streams_of_others(option: str) -> None:
    base = "poisson:n=80,rate=3,tenants=a*2|b,priority=0|1,prefixes=4,"
    name, _, value_of_it = option.partition("=")
    plain, changed = make_workload(base), make_workload(base, **{name: value_of_it})
    columns = {
        "rate": lambda each: each.time,
        "output": lambda each: each.output_len,
        "tenants": lambda each: each.tenant,
        "priority": lambda each: each.priority,
        "slo": lambda each: each.slo,
        "prompt": lambda each: each.prompt_len - sum(size for _, size in each.prefix),
        "prefixes": lambda each: each.prefix,
    }
    for column, value in columns.items():
        is_same = list(map(value, plain.arrivals)) == list(map(value, changed.arrivals))
        assert is_same == (column != name), column


def test_tenants_come_by_their_shares_and_bring_weights() -> None:
    workload = make_workload("poisson:n=2000,tenants=a*3|b,weights=1|2")
    share = sum(each.tenant == "a" for each in workload.arrivals) / 2000
    assert share == pytest.approx(0.75, abs=0.03)
    assert workload.tenant_weights == {"a": 1.0, "b": 2.0}


def test_slo_classes_come_by_their_shares() -> None:
    workload = make_workload("poisson:n=2000,slo=1/0.05*2|20/-|-/-")
    found = [each.slo for each in workload.arrivals]
    assert found.count(Slo(ttft_s=1.0, tpot_s=0.05)) == pytest.approx(1000, abs=80)
    assert found.count(Slo(ttft_s=20.0)) == pytest.approx(500, abs=70)
    assert None in found


def test_chats_of_one_group_begin_alike() -> None:
    workload = make_workload("poisson:n=60,prefixes=3,prefix=uniform(100,900),prompt=20")
    prefixes = {each.prefix for each in workload.arrivals}
    assert len(prefixes) == len({name for ((name, _),) in prefixes}) == 3
    assert all(each.prompt_len == each.prefix[0][1] + 20 for each in workload.arrivals)
    assert simulate_policy(workload).outcome.prefix_hit_rate > 0.8  # type: ignore[operator]


def test_a_chat_goes_on_from_what_was_said() -> None:
    workload = make_workload("poisson:n=100,turns=geometric(4),think=3,prompt=50,tenants=4")
    by_id = {each.request_id: each for each in workload.arrivals}
    later = [each for each in workload.arrivals if each.parent is not None]
    assert len(later) > 50
    for each in later:
        parent = by_id[each.parent or ""]
        assert each.prompt_len == parent.prompt_len + parent.output_len + 50
        assert each.tenant == parent.tenant
        assert each.time == 3


def test_a_child_never_arrives_before_its_parent_ended() -> None:
    workload = make_workload("closed:users=4,n=60,think=2,prompt=40,output=10,turns=3")
    columns = simulate_policy(workload).meter.columns
    ends = sorted(map(sum, zip(columns["arrival"], columns["e2e"], strict=True)))
    later = sorted(columns["arrival"])[4:]
    assert all(time == pytest.approx(end + 2) for end, time in zip(ends[:56], later, strict=True))


def test_a_closed_loop_has_at_most_its_users_at_once() -> None:
    workload = make_workload("closed:users=4,n=80,prompt=40,output=10")
    meter = simulate_policy(workload).meter
    assert max(running + waiting for _, _, running, waiting, _ in meter.series.points) <= 4


def test_a_new_chat_of_a_user_shares_nothing_with_the_last() -> None:
    workload = make_workload("closed:users=2,n=40,prompt=200,output=10,turns=1")
    assert simulate_policy(workload).outcome.prefix_hit_rate == 0


def test_what_is_too_long_is_clipped_and_counted() -> None:
    workload = make_workload("poisson:n=50,prompt=[10,5000],output=300,max_len=1000")
    assert max(each.prompt_len + each.output_len for each in workload.arrivals) == 1000
    assert workload.counts["clipped"] == sum(each.prompt_len > 10 for each in workload.arrivals)


def test_a_chat_that_would_not_fit_begins_anew_and_is_counted() -> None:
    workload = make_workload("closed:users=1,n=30,turns=30,prompt=100,output=100,max_len=1000")
    assert max(each.prompt_len + each.output_len for each in workload.arrivals) == 1000
    assert workload.counts["chats that began anew"] == 5


def test_parts_run_side_by_side_and_share_no_prefix() -> None:
    one = "poisson:rate=5,n=100,tenants=a,prefixes=2"
    workload = make_workload(f"{one} + poisson:rate=10,n=100,tenants=b,prefixes=2")
    times = [each.time for each in workload.arrivals]
    assert times == sorted(times)
    names = {tenant: set() for tenant in "ab"}  # type: ignore[var-annotated]
    for each in workload.arrivals:
        names[each.tenant or ""].add(each.prefix[0][0])
    assert not names["a"] & names["b"]
    alone = make_workload(one).arrivals
    assert [each for each in workload.arrivals if each.tenant == "a"] == list(alone)


def test_lengths_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("a,tokens\n1,30\n2,50\n")
    workload = make_workload(f"poisson:n=40,prompt=file({path},tokens)")
    assert {each.prompt_len for each in workload.arrivals} == {30, 50}


def test_lengths_of_a_trace_are_drawn_in_pairs(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n30,3\n50,5\n0,7\n")
    workload = make_workload(f"poisson:n=40,lengths={path}")
    pairs = {(each.prompt_len, each.output_len) for each in workload.arrivals}
    assert pairs == {(30, 3), (50, 5)}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("poison:n=4", "allowed: poisson"),
        ("poisson:prmpt=4", "Did you mean 'prompt'"),
        ("poisson:n=0", "n: got '0'"),
        ("poisson:rate=-1", "rate: got '-1'"),
        ("poisson:prompt=lognormal(5)", "prompt: got 'lognormal(5)'"),
        ("poisson:prompt=lognormal(0,1)", "a mean above 0"),
        ("poisson:output=a*2|b", "output: got 'a'"),
        ("poisson:slo=1", "slo: got '1'"),
        ("poisson:priority=low", "priority: got 'low'"),
        ("poisson:tenants=a*0", "tenants: got 'a*0'"),
        ("poisson:tenants=a|a", "names that differ"),
        ("poisson:tenants=3,weights=1|2", "one for each of 3 tenants"),
        ("poisson:prompt=file(nowhere.csv,a)", "no file 'nowhere.csv'"),
        ("poisson:8", "name=value"),
        ("poisson:n=4,n=5", "each option once"),
        ("poisson:n=4+poisson:rate=3,n=5", "joined by ' + '"),
        ("poisson:n=4,cv=3", "allowed: cv with gamma"),
        ("closed:n=4,rate=3", "allowed: rate with poisson"),
        ("constant:n=4,users=3", "allowed: users with closed"),
        ("poisson:n=²", "n: got '²'"),
        ("poisson:tenants=0", "tenants: got '0'"),
    ],
)
def test_what_is_wrong_is_named(spec: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_workload(spec)
    assert words in str(error.value)


def test_an_empty_column_of_lengths_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a\n")
    with pytest.raises(ConfigError, match="a file with at least one row"):
        make_workload(f"poisson:prompt=file({tmp_path}/empty.csv,a)")


def test_a_spec_is_told_from_a_file() -> None:
    assert is_spec("poisson:rate=8") and is_spec("closed")
    assert not is_spec("../traces/azure.csv.gz")
