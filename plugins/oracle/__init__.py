"""Oracles: predictors that are told the true output lengths. No server can have one.

They bound what a policy could gain from a predictor. A study that finds a plugin with a method
`expect(request_id, num_output_tokens)` in the stack calls it just before the request arrives; the
policy still sees nothing but a prediction, and the result names the plugins that were told.
`NoisyOracle` multiplies each length by a factor of its own, log-normal with median 1; the factor
depends on the seed and the request's id alone, so all policies of a comparison err alike.
Hooks: predict_output_len, request_finished, scheduler_built.
"""

from __future__ import annotations

from random import Random

from attrs import define, field
from attrs.validators import ge, instance_of

from framework import Request, Setup, hookimpl


@define(eq=False)
class Oracle:
    """Predicts the true length; None for a request that it was not told of."""

    _lengths: dict[str, float] = field(factory=dict, init=False)

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Be told how many tokens a request will give."""
        self._lengths[request_id] = float(num_output_tokens)

    @hookimpl
    def predict_output_len(self, request: Request) -> float | None:
        """What was told."""
        return self._lengths.get(request.request_id)

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """Forget it."""
        self._lengths.pop(request.request_id, None)


@define(eq=False)
class NoisyOracle(Oracle):
    """Predicts the true length times a log-normal factor.

    Args:
        sigma: standard deviation of the factor's logarithm; 0.5 is a good predictor, 1 a poor one.
    """

    sigma: float = field(default=0.5, validator=[instance_of((int, float)), ge(0)])
    _seed: int = field(default=0, init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Learn the seed."""
        self._seed = setup.config.seed

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Be told, and err."""
        factor = Random(f"{self._seed}/{request_id}").lognormvariate(0.0, self.sigma)
        self._lengths[request_id] = max(1.0, num_output_tokens * factor)
