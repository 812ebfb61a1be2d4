"""The simulated runner: no model, virtual time from a latency model. For policy studies."""

from runners.simulated.runner import SimulatedRunner

__all__ = ["SimulatedRunner"]
