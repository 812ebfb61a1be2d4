"""Drawn: what a step sampled, on the device, and on its way to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import define, field

from framework import TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.state import ScheduledRow


@define(eq=False)
class Logprobs:
    """Of N positions, in order of the requests that asked.

    Attributes:
        own: [N] fp32, of the drawn token.
        ranks: [N] int32, from 1.
        values, tokens: [N, most], the likeliest ones.
    """

    own: torch.Tensor
    ranks: torch.Tensor
    values: torch.Tensor
    tokens: torch.Tensor


@define(eq=False)
class Drawn:
    """Tokens of R requests; their copy to the host is queued at once and waited for when read.

    Attributes:
        rows: the requests.
        tokens: [R, drafts + 1] int32: accepted drafts and one more, then -1.
        counts: [R] int32; 0 = the request does not sample.
        logprobs: of all positions of the rows that asked, or None.
    """

    rows: Sequence[ScheduledRow]
    tokens: torch.Tensor
    counts: torch.Tensor
    logprobs: Logprobs | None = None
    _host: list[torch.Tensor] = field(init=False)
    _copied: torch.cuda.Event | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        sent = [self.tokens, self.counts]
        if self.logprobs is not None:
            found = self.logprobs
            sent += [found.own, found.ranks, found.values, found.tokens]
        is_cuda = self.tokens.device.type == "cuda"
        self._host = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_cuda) for tensor in sent
        ]
        for target, tensor in zip(self._host, sent, strict=True):
            target.copy_(tensor, non_blocking=True)
        if is_cuda:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def to_host(self) -> tuple[list[list[int]], dict[str, list[TokenLogprobs]]]:
        """Tokens of each request, and log-probabilities where asked for; waits for the device."""
        if self._copied is not None:
            self._copied.synchronize()
        tokens, counts, *others = (tensor.tolist() for tensor in self._host)
        sampled = [row[:count] for row, count in zip(tokens, counts, strict=True)]
        if not others:
            return sampled, {}
        return sampled, self._logprobs(counts, *others)

    def _logprobs(
        self,
        counts: list[int],
        own: list[float],
        ranks: list[int],
        values: list[list[float]],
        tokens: list[list[int]],
    ) -> dict[str, list[TokenLogprobs]]:
        found: dict[str, list[TokenLogprobs]] = {}
        first = 0
        for row, count in zip(self.rows, counts, strict=True):
            most = row.state.params.logprobs
            if most is None or not row.samples:
                continue
            found[row.state.request_id] = [
                TokenLogprobs(
                    own[index],
                    ranks[index],
                    dict(zip(tokens[index][:most], values[index][:most], strict=True)),
                )
                for index in range(first, first + count)
            ]
            first += row.num_drafts + 1
        return found
