"""Headway: a pluggable scheduling framework for LLM inference.

The public names. A policy author needs `hookimpl`, `Request` and `HOLD`; a researcher also
`Scheduler`, `SchedulerConfig` and `LLM`.
"""

from __future__ import annotations

from framework.config import SchedulerConfig
from framework.errors import (
    ConfigError,
    HeadwayError,
    ModelError,
    PluginError,
    PolicyError,
    RequestError,
    RunnerError,
    StallError,
)
from framework.hookspecs import API_VERSION, hookimpl
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
from framework.request import EncoderInput, PreemptMode, Request, Status
from framework.sampling import SamplingParams
from framework.scheduler import Scheduler
from framework.stack import DEFAULT_STACK
from framework.stash import Stash, StashKey
from framework.view import StepView

__all__ = [
    "API_VERSION",
    "DEFAULT_STACK",
    "HOLD",
    "LATER",
    "Answer",
    "Batch",
    "CachedRequestData",
    "Clock",
    "ConfigError",
    "ConnectorMetadata",
    "EncoderInput",
    "ExternalHit",
    "HeadwayError",
    "Hit",
    "KvView",
    "LatencyModel",
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
    "StallError",
    "Stash",
    "StashKey",
    "Status",
    "StepReport",
    "StepResult",
    "StepView",
    "TokenCounts",
    "TokenLogprobs",
    "WaitingView",
    "hookimpl",
]
