"""Every shipped policy does what any policy must."""

from __future__ import annotations

import pytest
from shipped import POLICIES

from framework.stack import parse_stack
from framework.testing import check_policy

PREDICTING = ["noisy_oracle+sjf_predicted", "oracle+srpt", "history_quantile+past_future"]


@pytest.mark.parametrize("policy", [*POLICIES, *PREDICTING])
def test_a_shipped_plugin_conforms(policy: str) -> None:
    check_policy(parse_stack(policy), num_seeds=1, shrinks=False)
