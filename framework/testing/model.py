"""TokenRunner: a runner whose model is a function of request id and output position.

It keeps its own block tables, from `SchedulerOutput` alone, and a paged cache whose slots hold not
KV but the name of what was computed there: the whole prefix up to that token. Before it samples it
reads every slot of the request back, so a block that was handed on too early, shared wrongly or
found by a stale hash is an error here, and not a strange token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from attrs import define, field

from framework.errors import RunnerError
from framework.output import ConnectorMetadata, RunnerOutput

if TYPE_CHECKING:
    from framework.output import NewRequestData, SchedulerOutput

TokenFunction: TypeAlias = Callable[[str, int], int]
"""(request id, index among its output tokens) -> token."""
DraftFunction: TypeAlias = Callable[[str, int, int], list[int]]
"""(request id, index of the first one among its output tokens, how many) -> drafts."""

VOCABULARY = 32_000


def default_tokens(request_id: str, position: int) -> int:
    """Tokens without a pattern, the same in every process."""
    return crc32(f"{request_id}/{position}".encode()) % VOCABULARY


def partly_right(tokens: TokenFunction) -> DraftFunction:
    """Drafts of which, by turns, the first none, one, two, ... are right."""

    def drafts(request_id: str, position: int, count: int) -> list[int]:
        num_right = position % (count + 1)
        right = [tokens(request_id, position + index) for index in range(count)]
        return [token + (index >= num_right) for index, token in enumerate(right)]

    return drafts


@define(eq=False)
class _Row:
    """One request as the runner knows it.

    `names[p]` is the hash over the tokens and images up to p, and what else the KV depends on.
    """

    request_id: str
    num_prompt: int
    needs_pooling: bool
    seed: int
    tokens: list[int]
    blocks: list[int]
    images: dict[int, str]
    names: list[int] = field(factory=list)
    drafts: list[int] = field(factory=list)

    def name_until(self, end: int) -> list[int]:
        """`names`, known up to `end` at least."""
        names = self.names
        while len(names) < end:
            before = names[-1] if names else self.seed
            name = hash((before, self.tokens[len(names)]))
            if len(names) in self.images:
                name = hash((name, self.images[len(names)]))
            names.append(name)
        return names


@define(eq=False)
class _Work:
    """One request's share of a step: tokens at `start`, the last `drafts` of them unsure."""

    row: _Row
    start: int
    num_sure: int
    drafts: list[int | None]
    samples: bool


@define(eq=False)
class TokenRunner:
    """Runs plans at once, in the order of the calls.

    Args:
        block_size: tokens of one KV block.
        tokens: the model.
        drafts: what it proposes; None = it proposes nothing, and fills placeholders wrongly.
        paged: False if nobody in the stack owns blocks.
        salt: tells the cache salt of a request id, which no plan holds and no KV may cross.
        delay: tells for each transfer in how many further steps it is reported; None = at once.
    """

    block_size: int
    tokens: TokenFunction = default_tokens
    drafts: DraftFunction | None = None
    paged: bool = True
    salt: Callable[[str], str | None] | None = None
    delay: Callable[[], int] | None = None
    _rows: dict[str, _Row] = field(factory=dict, init=False)
    _cache: dict[int, list[int | None]] = field(factory=dict, init=False)
    _store: dict[bytes, list[int | None]] = field(factory=dict, init=False)
    _receiving: list[tuple[int, str]] = field(factory=list, init=False)
    _sending: list[tuple[int, str]] = field(factory=list, init=False)

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step.

        Raises:
            RunnerError: the plan cannot be run: unknown request, no slot for a token, a slot that
                does not hold what the request computed or shares.
        """
        for name in output.finished_req_ids:
            self._rows.pop(name, None)
        self._take_in(output)
        metadata = output.connector_metadata
        self._transfer(output, metadata if isinstance(metadata, ConnectorMetadata) else None)
        work = self._work(output)
        if self.paged:
            for item in work:
                self._write(item)
            for item in work:
                self._read(item)
        result = RunnerOutput([self._sample(item) for item in work])
        pooled = [item.row for item in work if item.samples and item.row.needs_pooling]
        result.pooler_outputs = {row.request_id: len(row.tokens) for row in pooled}
        proposed = {name: self._propose(name, count) for name, count in output.num_drafts.items()}
        if self.drafts is not None:
            result.draft_token_ids = proposed
        if isinstance(metadata, ConnectorMetadata):
            self._receiving += self._timed(output.step, metadata.receiving)
            self._sending += self._timed(output.step, metadata.sending)
        result.finished_recving, self._receiving = _due(output.step, self._receiving)
        result.finished_sending, self._sending = _due(output.step, self._sending)
        return result

    def close(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._cache.clear()
        self._store.clear()
        self._receiving.clear()
        self._sending.clear()

    def _take_in(self, output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            salt = None if self.salt is None else self.salt(new.request_id)
            self._rows[new.request_id] = _new_row(new, salt)
        cached = output.scheduled_cached_reqs
        for name in (*cached.req_ids, *output.num_scheduled_tokens):
            if name not in self._rows:
                raise RunnerError(
                    f"step {output.step}: {name!r} is to run, but the runner was never told of it"
                )
        for name in cached.resumed_req_ids:
            row = self._rows[name]
            row.tokens = list(cached.all_token_ids[name])
            row.names.clear()
            row.drafts = []
            row.blocks = []
        for name, blocks in cached.new_block_ids.items():
            self._rows[name].blocks += blocks

    def _transfer(self, output: SchedulerOutput, metadata: ConnectorMetadata | None) -> None:
        """Store, zero, load, drop."""
        if output.drop_kept:
            self._store.clear()
        for name, block in metadata.stores if metadata else ():
            self._store[name] = list(self._slots(block))
        for block in output.new_block_ids_to_zero:
            self._cache.pop(block, None)
        for name, block in metadata.loads if metadata else ():
            self._cache[block] = list(self._store[name])
        for name in metadata.drop if metadata else ():
            del self._store[name]

    def _timed(self, step: int, names: Iterable[str]) -> list[tuple[int, str]]:
        return [(step + (self.delay() if self.delay is not None else 0), name) for name in names]

    def _work(self, output: SchedulerOutput) -> list[_Work]:
        cached = output.scheduled_cached_reqs
        admitted = {new.request_id for new in output.scheduled_new_reqs} | cached.resumed_req_ids
        starts = {new.request_id: (new.num_computed_tokens, 0) for new in output.scheduled_new_reqs}
        columns = zip(cached.num_computed_tokens, cached.num_output_tokens, strict=True)
        starts.update(zip(cached.req_ids, columns, strict=True))
        work = []
        for name, num_tokens in output.num_scheduled_tokens.items():
            row, (computed, num_outputs) = self._rows[name], starts[name]
            planned = output.scheduled_spec_decode_tokens.get(name, [])
            num_sure = num_tokens - len(planned)
            samples = computed + num_sure == row.num_prompt + num_outputs
            # Of a step in flight the plan counts all drafts as accepted; the row knows better.
            start = len(row.tokens) - num_sure if samples else computed
            if not 0 <= start <= computed or start + num_sure > len(row.tokens):
                raise RunnerError(
                    f"step {output.step}: {name!r} is to compute {num_sure} tokens after "
                    f"{computed}; the runner knows {len(row.tokens)}"
                )
            padding: list[int | None] = [None] * len(planned)
            drafts = padding if name in admitted else _fill(row, planned)
            work.append(_Work(row, start, num_sure, drafts, samples))
        return work

    def _write(self, item: _Work) -> None:
        row, end = item.row, item.start + item.num_sure
        written: list[int | None] = [*row.name_until(end)[item.start : end]]
        name = row.names[end - 1]
        for token in item.drafts:
            name = hash((name, token))
            written.append(None if token is None else name)
        for position, value in enumerate(written, item.start):
            index, offset = divmod(position, self.block_size)
            if index >= len(row.blocks):
                raise RunnerError(
                    f"request {row.request_id!r} has no slot for position {position}: "
                    f"{len(row.blocks)} blocks of {self.block_size}"
                )
            self._slots(row.blocks[index])[offset] = value

    def _read(self, item: _Work) -> None:
        row = item.row
        for position, name in enumerate(row.names[: item.start + item.num_sure]):
            index, offset = divmod(position, self.block_size)
            if self._slots(row.blocks[index])[offset] != name:
                raise RunnerError(
                    f"request {row.request_id!r} finds something else at position {position} "
                    f"(block {row.blocks[index]}) than what it computed or shares"
                )

    def _slots(self, block: int) -> list[int | None]:
        slots = self._cache.get(block)
        if slots is None:
            slots = self._cache[block] = [None] * self.block_size
        return slots

    def _sample(self, item: _Work) -> list[int]:
        """Accepted drafts and one token more."""
        row = item.row
        if not item.samples or row.needs_pooling:
            return []
        position = len(row.tokens) - row.num_prompt
        sampled = [self.tokens(row.request_id, position)]
        for draft in item.drafts:
            if draft != sampled[-1]:
                break
            sampled.append(self.tokens(row.request_id, position + len(sampled)))
        row.tokens += sampled
        return sampled

    def _propose(self, name: str, count: int) -> list[int]:
        row = self._rows[name]
        if self.drafts is not None:
            row.drafts = self.drafts(name, len(row.tokens) - row.num_prompt, count)
        return row.drafts


def _new_row(new: NewRequestData, salt: str | None) -> _Row:
    blocks: Any = new.block_ids
    return _Row(
        new.request_id,
        len(new.prompt_token_ids),
        new.needs_pooling,
        crc32(repr((new.adapter or None, salt or None)).encode()),
        list(new.prompt_token_ids),
        list(blocks),
        {item.position: item.content_id for item in new.encoder_inputs},
    )


def _due(step: int, transfers: list[tuple[int, str]]) -> tuple[list[str], list[tuple[int, str]]]:
    """Names to report in this step, and what is left."""
    due = [name for at, name in transfers if at <= step]
    return due, [(at, name) for at, name in transfers if at > step]


def _fill(row: _Row, planned: list[int]) -> list[int | None]:
    """The drafts to verify; -1 stands for those that were proposed here."""
    own: list[int | None] = [*row.drafts, *[None] * len(planned)]
    return [own[index] if token == -1 else token for index, token in enumerate(planned)]
