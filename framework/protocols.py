"""What the core asks of others, and the small answers that cross the seam.

`Runner` executes plans, `Clock` tells the time, `KvView` shows the owner's blocks to policies,
`LatencyModel` predicts a step. Nothing here decides anything.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from framework.output import BlockIds, RunnerOutput, SchedulerOutput
    from framework.request import Request
    from framework.view import StepView


class Answer(Enum):
    """Answers that None, 0 and False cannot give."""

    HOLD = "nobody"
    """Nobody: no one is chosen, on purpose."""
    LATER = "not known yet"
    """The look-up cannot tell yet: ask again in a later step."""


HOLD: Final = Answer.HOLD
LATER: Final = Answer.LATER


@frozen
class Hit:
    """What an admission gets for nothing.

    Attributes:
        num_local_tokens: leading tokens found in the prefix cache.
        num_external_tokens: tokens after those that external KV holds.
        is_async: the external part arrives later; the request waits for it with its blocks.
        blocks: the owner's own note of the hit blocks, unread by the core.
    """

    num_local_tokens: int = 0
    num_external_tokens: int = 0
    is_async: bool = False
    blocks: Any = field(default=(), repr=False)

    @property
    def num_tokens(self) -> int:
        """Local and external tokens together."""
        return self.num_local_tokens + self.num_external_tokens


NO_HIT: Final = Hit()


@frozen
class ExternalHit:
    """Answer of `lookup_external`: tokens held beyond the local ones, and how they load."""

    num_tokens: int
    is_async: bool = False


@frozen
class Batch:
    """Sums over the requests of one step, all that a latency model needs.

    Attributes:
        num_tokens: tokens in the step.
        num_prefill_tokens: those of requests with more than one token.
        prefill_query_context: sum over prefills of q * (k + q / 2), q tokens after k computed.
        decode_context: sum over the others of their context length.
        num_decodes, num_requests: how many.
    """

    num_tokens: int = 0
    num_prefill_tokens: int = 0
    prefill_query_context: float = 0.0
    decode_context: int = 0
    num_decodes: int = 0
    num_requests: int = 0

    @classmethod
    def of(cls, num_tokens: int, num_computed_tokens: int) -> Batch:
        """One request that computes so many tokens after those it has."""
        if num_tokens <= 1:
            context = num_computed_tokens + 1
            return cls(1, 0, 0.0, context, 1, 1) if num_tokens else cls()
        pairs = num_tokens * (num_computed_tokens + num_tokens / 2)
        return cls(num_tokens, num_tokens, pairs, 0, 0, 1)

    def __add__(self, other: Batch) -> Batch:
        """Both in one step."""
        return Batch(
            self.num_tokens + other.num_tokens,
            self.num_prefill_tokens + other.num_prefill_tokens,
            self.prefill_query_context + other.prefill_query_context,
            self.decode_context + other.decode_context,
            self.num_decodes + other.num_decodes,
            self.num_requests + other.num_requests,
        )


class Clock(Protocol):
    """Tells the time in seconds; virtual clocks may stand still within a step."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes backwards."""


class LatencyModel(Protocol):
    """Predicts how long a step takes."""

    def predict(self, batch: Batch) -> float:
        """Seconds for one step of this batch; 0 for an empty one, monotone in every sum."""


class KvView(Protocol):
    """Read-only face of the owner of blocks. No call has a side effect."""

    @property
    def num_total_blocks(self) -> int:
        """Blocks that can be handed out (a reserved block is not counted)."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks nobody holds now, idle cached ones included."""

    @property
    def max_num_tokens(self) -> int:
        """Longest sequence that the empty pool can hold."""

    def num_blocks_needed(self, num_tokens: int) -> int:
        """Blocks that a lone request of so many stored tokens needs."""

    def block_ids(self, request: Request) -> BlockIds:
        """The request's whole block table (a copy)."""

    def num_freeable_blocks(self, request: Request) -> int:
        """Blocks that would become free if this request gave its own back."""

    def num_shared_blocks(self, request: Request) -> int:
        """Blocks of this request that another one holds too."""

    def peek_prefix(self, request: Request) -> int:
        """Tokens of the request that the prefix cache holds now."""

    def num_common_prefix_blocks(self, running: Sequence[Request]) -> int:
        """Leading blocks of the first running request that all the running ones hold."""

    def computed_block_ids(self, request: Request) -> BlockIds:
        """The leading blocks of its table that hold computed tokens (a copy)."""

    def fits(self, request: Request, step: StepView) -> bool:
        """Whether admitting the request would find blocks now."""

    def can_withdraw(self, request: Request) -> bool:
        """False if another request already relies on what this one was to compute this step."""


class Runner(Protocol):
    """Executes plans in the order they are handed out."""

    def execute(self, output: SchedulerOutput) -> RunnerOutput | Future[RunnerOutput]:
        """Run one step whole. Called once per plan, in order; empty plans too.

        With async scheduling a runner may return a Future and be called again before it is done;
        it then fills the -1 placeholders of the second plan itself.
        """

    def close(self) -> None:
        """Give memory and threads back; no call follows."""


class WaitingView(Protocol):
    """The waiting queue as policies see it: in order, without those set aside this step."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def __getitem__(self, index: int) -> Request: ...

    def rekey(self, request: Request) -> None:
        """Ask `order_waiting` again for this request and move it to its new place."""
