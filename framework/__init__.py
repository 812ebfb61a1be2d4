"""Headway: a pluggable scheduling framework for LLM inference.

The public names. A policy author needs `hookimpl`, `Request` and `HOLD`; a researcher also
`Scheduler`, `SchedulerConfig`, and `LLM` or `AsyncEngine`.
"""

from __future__ import annotations

from importlib import import_module
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
    from framework.engine.client import AsyncEngine
    from framework.engine.llm import LLM
    from framework.engine.prompts import Prompt
    from framework.engine.settings import EngineSettings

__all__ = [
    "API_VERSION",
    "DEFAULT_STACK",
    "HOLD",
    "LATER",
    "LLM",
    "Answer",
    "AsyncEngine",
    "Batch",
    "CachedRequestData",
    "Clock",
    "ConfigError",
    "ConnectorMetadata",
    "EncoderInput",
    "EngineDeadError",
    "EngineSettings",
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
    "Prompt",
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


_LATE = {
    "LLM": "llm",
    "AsyncEngine": "client",
    "EngineSettings": "settings",
    "Prompt": "prompts",
}
"""Names that come when they are asked for: a policy author does not pay for a front end."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        try:
            return getattr(import_module(f"framework.engine.{_LATE[name]}"), name)
        except ImportError as error:
            error.add_note(f"{name} needs an extra: pip install 'headway[serve]'")
            raise
    raise AttributeError(f"module 'framework' has no attribute {name!r}")
