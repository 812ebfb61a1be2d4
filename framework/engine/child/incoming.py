"""What a front sends, made into a request or refused, before anything reaches the scheduler."""

from __future__ import annotations

import time
from math import isfinite
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from framework.errors import RequestError, did_you_mean
from framework.request import Request
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from framework.engine.protocol import Add

LONGEST_NAME = 512
MOST_WAVES = 1 << 32
_SAMPLING = {one.name: one.default for one in attrs.fields(SamplingParams)}


@frozen(kw_only=True)
class Accepts:
    """What the engine can serve; fixed at its start, so any thread may read it.

    Attributes:
        max_model_len: most tokens of a request.
        vocab_size: tokens that the model knows, or None.
        eos_token_ids: tokens that end an output.
        pools: whether the runner can answer pooling requests.
    """

    max_model_len: int
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pools: bool = False

    def request(self, add: Add) -> Request:
        """The scheduler's record of a request.

        Args:
            add: as it came.

        Raises:
            RequestError: a field is not allowed; the message names it.
        """
        _check_name("request_id", add.request_id)
        if add.tenant is not None:
            _check_name("tenant", add.tenant)
        if not 0 <= add.request_wave < MOST_WAVES:
            raise RequestError(
                f"request_wave: got {add.request_wave}, allowed: 0 to {MOST_WAVES - 1}"
            )
        self._check_prompt(add)
        if add.needs_pooling and not self.pools:
            raise RequestError("needs_pooling: got True, allowed: False (the runner cannot pool)")
        return Request(
            add.request_id,
            add.prompt_token_ids,
            self._sampling_params(add),
            arrival_time=min(_moment("arrival_time", add.arrival_time), time.monotonic()),
            priority=add.priority,
            tenant=add.tenant,
            deadline=None if add.deadline is None else _moment("deadline", add.deadline),
            eos_token_ids=self.eos_token_ids,
            needs_pooling=add.needs_pooling,
            kv_transfer_params=add.kv_transfer_params,
        )

    def _sampling_params(self, add: Add) -> SamplingParams:
        params = sampling_params(add.sampling)
        if self.vocab_size is not None and (params.logprobs or 0) > self.vocab_size:
            raise RequestError(
                f"logprobs: got {params.logprobs}, allowed: at most {self.vocab_size}, "
                "the tokens that the model knows"
            )
        return params

    def _check_prompt(self, add: Add) -> None:
        tokens = add.prompt_token_ids
        longest = self.max_model_len - (0 if add.needs_pooling else 1)
        if not 1 <= len(tokens) <= longest:
            raise RequestError(
                f"prompt_token_ids: got {len(tokens)} tokens, allowed: 1 to {longest} "
                f"(max_model_len {self.max_model_len})"
            )
        most = (1 << 32) if self.vocab_size is None else self.vocab_size
        wrong = next((token for token in (min(tokens), max(tokens)) if not 0 <= token < most), None)
        if wrong is not None:
            raise RequestError(
                f"prompt_token_ids: got {wrong}, allowed: 0 to {most - 1}, "
                "the tokens that the model knows"
            )


def _check_name(field: str, name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME:
        raise RequestError(
            f"{field}: got {len(name)} characters, allowed: 1 to {LONGEST_NAME} of them"
        )


def sampling_params(fields: dict[str, Any]) -> SamplingParams:
    """Sampling parameters from the fields that are not the default.

    Raises:
        RequestError: a field is unknown or has a wrong value.
    """
    for name in fields:
        if name not in _SAMPLING:
            raise RequestError(
                f"sampling: no such field {name[:LONGEST_NAME]!r}."
                f"{did_you_mean(name[:LONGEST_NAME], _SAMPLING)}"
            )
    try:
        return SamplingParams(**fields)
    except (ValueError, TypeError) as error:
        raise RequestError(str(error)) from error


def sampling_fields(params: SamplingParams) -> dict[str, Any]:
    """The fields that an engine must know: those that are not the default, without `stop`."""
    return {
        name: value
        for name, default in _SAMPLING.items()
        if name != "stop" and (value := getattr(params, name)) != default
    }


def _moment(name: str, value: float) -> float:
    if not (isfinite(value) and value >= 0):  # the monotonic clock begins at 0
        raise RequestError(
            f"{name}: got {value!r}, allowed: seconds on the machine's monotonic clock"
        )
    return value
