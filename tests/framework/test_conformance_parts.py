"""So do the shipped plugins that decide something else than who is served."""

from __future__ import annotations

import pytest
from shipped import PARTS

from framework.stack import parse_stack
from framework.testing import check_policy


@pytest.mark.parametrize("policy", PARTS)
def test_a_shipped_plugin_conforms(policy: str) -> None:
    check_policy(parse_stack(policy), num_seeds=1, shrinks=False)
