"""Headway: a pluggable scheduling framework for LLM inference.

The public names. A policy author needs `hookimpl`, `Request` and `HOLD`; a researcher also
`Scheduler`, `SchedulerConfig` and `LLM`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework.clock import VirtualClock
from framework.config import SchedulerConfig
from framework.errors import (
    ConfigError,
    EngineDeadError,
    HeadwayError,
    ModelError,
    PluginError,
    PolicyError,
    RequestError,
    RunnerError,
    StallError,
)
from framework.hookspecs import API_VERSION, hookimpl
from framework.latency import LinearLatency
from framework.output import (
    CachedRequestData,
    ConnectorMetadata,
    NewRequestData,
    RunnerOutput,
    SchedulerOutput,
    StepResult,
    TokenLogprobs,
)
from framework.plan import Refusal
from framework.protocols import (
    HOLD,
    LATER,
    Answer,
    Batch,
    Clock,
    ExternalHit,
    Hit,
    KvView,
    LatencyModel,
    Runner,
    WaitingView,
)
from framework.reports import Setup, StepReport, TokenCounts
from framework.request import EncoderInput, PreemptMode, Request, Slo, Status
from framework.sampling import SamplingParams
from framework.scheduler import Scheduler
from framework.stack import DEFAULT_STACK
from framework.stash import Stash, StashKey
from framework.view import StepView

if TYPE_CHECKING:
    from framework.engine.llm import LLM

__all__ = [
    "API_VERSION",
    "DEFAULT_STACK",
    "HOLD",
    "LATER",
    "LLM",
    "Answer",
    "Batch",
    "CachedRequestData",
    "Clock",
    "ConfigError",
    "ConnectorMetadata",
    "EncoderInput",
    "EngineDeadError",
    "ExternalHit",
    "HeadwayError",
    "Hit",
    "KvView",
    "LatencyModel",
    "LinearLatency",
    "ModelError",
    "NewRequestData",
    "PluginError",
    "PolicyError",
    "PreemptMode",
    "Refusal",
    "Request",
    "RequestError",
    "Runner",
    "RunnerError",
    "RunnerOutput",
    "SamplingParams",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutput",
    "Setup",
    "Slo",
    "StallError",
    "Stash",
    "StashKey",
    "Status",
    "StepReport",
    "StepResult",
    "StepView",
    "TokenCounts",
    "TokenLogprobs",
    "VirtualClock",
    "WaitingView",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    """`LLM` comes when it is asked for: a policy author does not pay for the front end."""
    if name == "LLM":
        from framework.engine.llm import LLM  # noqa: PLC0415

        return LLM
    raise AttributeError(f"module 'framework' has no attribute {name!r}")
