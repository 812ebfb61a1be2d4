"""How long a step takes: a sum of one term for each thing that costs time.

    t = base + weights + token * n + prefill_token * n_prefill
        + pair * sum q * (k + q / 2) + context * sum of decode contexts
        + decode * [any decode] + request * B

A sum fits measured kernels better than the textbook maximum of compute and memory time, and one
set of efficiencies fits several models and GPUs (measured on Vidur's public profiles, Agrawal et
al., MLSys 2024). Coefficients are data: one file for each model and GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import ConfigError, bad_field, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from framework.protocols import Batch

TERMS = (
    "base_ms",
    "weights_ms",
    "token_ms",
    "prefill_token_ms",
    "pair_ms",
    "context_ms",
    "decode_ms",
    "request_ms",
)


def _at_least_zero(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):  # type: ignore[operator]
        raise ConfigError(
            f"{attribute.name}: got {value!r}, allowed: milliseconds, a number of at least 0"
        )


def _count_or_none(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise bad_field(attribute.name, value, "an int of at least 1, or None")


@frozen(kw_only=True)
class LinearLatency:
    """A step's duration from the sums of its batch.

    Attributes:
        name: model and GPU.
        base_ms: of every step: launches, sampling.
        weights_ms: reading the weights once.
        token_ms: arithmetic of one token.
        prefill_token_ms: more for a token of a prefill.
        pair_ms: prefill attention, for each pair of a query and a key it sees.
        context_ms: decode attention, for each token of context.
        decode_ms: of a step with any decode.
        request_ms: of each request in the batch.
        kv_bytes_per_token: of the cache, or None if not known.
        num_kv_tokens: tokens of KV that fit, or None if not known.
        source: where the coefficients are from.
    """

    name: str = "unnamed"
    base_ms: float = field(default=0.0, validator=_at_least_zero)
    weights_ms: float = field(default=0.0, validator=_at_least_zero)
    token_ms: float = field(default=0.0, validator=_at_least_zero)
    prefill_token_ms: float = field(default=0.0, validator=_at_least_zero)
    pair_ms: float = field(default=0.0, validator=_at_least_zero)
    context_ms: float = field(default=0.0, validator=_at_least_zero)
    decode_ms: float = field(default=0.0, validator=_at_least_zero)
    request_ms: float = field(default=0.0, validator=_at_least_zero)
    kv_bytes_per_token: int | None = field(default=None, validator=_count_or_none)
    num_kv_tokens: int | None = field(default=None, validator=_count_or_none)
    source: str = ""

    def predict(self, batch: Batch) -> float:
        """Seconds for one step of this batch; 0 for an empty one, monotone in every sum."""
        if not batch.num_tokens:
            return 0.0
        total = (
            self.base_ms
            + self.weights_ms
            + self.token_ms * batch.num_tokens
            + self.prefill_token_ms * batch.num_prefill_tokens
            + self.pair_ms * batch.prefill_query_context
            + self.context_ms * batch.decode_context
            + self.request_ms * batch.num_requests
        )
        if batch.num_decodes:
            total += self.decode_ms
        return total / 1000.0

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of what costs anything, as `scaled` takes them."""
        return tuple(name for name in TERMS if getattr(self, name))

    def scaled(self, **factors: float) -> Self:
        """The same with some terms multiplied, for sensitivity studies.

        Raises:
            ConfigError: there is no such term.
        """
        for name in factors:
            if name not in TERMS:
                raise ConfigError(f"{name}: no such term.{did_you_mean(name, TERMS)}")
        changed = {name: getattr(self, name) * factor for name, factor in factors.items()}
        return attrs.evolve(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in a file."""
        return attrs.asdict(self)

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> Self:
        """Build from the contents of a file.

        Raises:
            ConfigError: a field is unknown or wrong.
        """
        known = [attribute.name for attribute in attrs.fields(cls)]
        for name in fields:
            if name not in known:
                raise ConfigError(
                    f"{name}: no such field of a latency model.{did_you_mean(name, known)}"
                )
        return cls(**fields)
