"""Cases of the kernels after the model: grammar, penalties, drawing, log-probabilities, drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu_check.caches import noise
from benchmarks.gpu_check.cases import Case, gap, unequal, widened
from runners.common.philox import ACCEPT, DRAW, REDRAW, uniforms
from runners.triton.kernels.bitmask import apply_bitmask, apply_bitmask_reference
from runners.triton.kernels.distributions import write_distributions
from runners.triton.kernels.distributions import (
    write_distributions_reference as distributions_reference,
)
from runners.triton.kernels.logprobs import token_logprobs, token_logprobs_reference
from runners.triton.kernels.lossless_rejection import reject_drafts, reject_drafts_reference
from runners.triton.kernels.penalties import apply_penalties, apply_penalties_reference
from runners.triton.kernels.rejection import verify_drafts, verify_drafts_reference
from runners.triton.kernels.sample import sample_tokens, sample_tokens_reference
from runners.triton.kernels.stop_tokens import (
    suppress_stop_tokens,
    suppress_stop_tokens_reference,
)

if TYPE_CHECKING:
    from benchmarks.gpu_check.place import Place

KINDS = (
    *((0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.7, 50, 1.0, 0.0), (1.0, 0, 0.9, 0.0)),
    *((1.0, 0, 1.0, 0.1), (0.9, 20, 0.8, 0.05), (3.0, 1000, 0.99, 0.0), (1.0, 1, 1.0, 0.0)),
)
"""Temperature, top-k, top-p and min-p of the rows of a batch, in turn."""

WIDTH = 4


def sizes_of(place: Place) -> tuple[int, int]:
    """Rows and vocabulary."""
    return (8, 1000) if place.is_toy else (64, 128_256)


def whole(place: Place, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Integers on the device."""
    return torch.as_tensor(values).to(dtype).to(place.device)


def parameters(place: Place, rows: int) -> list[torch.Tensor]:
    """Temperature, top_k, top_p, min_p, seeds, positions, as `sample_tokens` takes them."""
    columns = zip(*(KINDS[row % len(KINDS)] for row in range(rows)), strict=True)
    dtypes = torch.float32, torch.int32, torch.float32, torch.float32
    found = [
        torch.tensor(column, dtype=dtype, device=place.device)
        for column, dtype in zip(columns, dtypes, strict=True)
    ]
    seeds, positions = torch.randint(0, 2**62, (rows,)), torch.randint(0, 2**34, (rows,))
    return [*found, seeds.to(place.device), positions.to(place.device)]


def drawn(place: Place, dtype: torch.dtype) -> float:
    """Tokens from the same numbers; a sum's rounding may move one, but not a greedy one."""
    rows, size = sizes_of(place)
    logits = noise(place, rows, size, dtype=dtype, scale=3.0)
    given = parameters(place, rows)
    tokens = torch.full((rows,), -1, dtype=torch.int32, device=place.device)
    sample_tokens(logits, *given, tokens)
    shares = torch.from_numpy(uniforms(given[4].tolist(), given[5].tolist())).to(place.device)
    expected = sample_tokens_reference(logits, *given[:4], shares)
    greedy = given[0] == 0
    wrong = not torch.equal(tokens[greedy], expected[greedy])
    return max(float(wrong), unequal(tokens[:, None], expected[:, None]))


def distributed(place: Place, dtype: torch.dtype) -> float:
    """Distributions of rows, of the limits that drawing leaves."""
    rows, size = sizes_of(place)
    logits = noise(place, rows, size, dtype=dtype, scale=3.0)
    given = parameters(place, rows)
    tokens = torch.full((rows,), -1, dtype=torch.int32, device=place.device)
    limits = torch.zeros(rows, 3, device=place.device)
    sample_tokens(logits, *given, tokens, limits=limits)
    chances, expected = (torch.empty(rows, size, device=place.device) for _ in range(2))
    write_distributions(logits, given[0], tokens, limits, chances)
    distributions_reference(logits, given[0], tokens, limits, expected)
    return gap((chances, expected))


def masked(place: Place, dtype: torch.dtype) -> float:
    """A grammar's bitmask on all rows but every third."""
    rows, size = sizes_of(place)
    logits = noise(place, rows, size, dtype=dtype)
    expected = logits.clone()
    words = whole(place, torch.randint(-(2**31), 2**31 - 1, (rows, -(-size // 32))))
    chosen = torch.randperm(rows)
    chosen[::3] = -1
    apply_bitmask(logits, words, whole(place, chosen))
    apply_bitmask_reference(expected, words, whole(place, chosen))
    return gap((logits, expected))


def stopped(place: Place, dtype: torch.dtype) -> float:
    """Up to two tokens of each row forbidden."""
    rows, size = sizes_of(place)
    logits = noise(place, rows, size, dtype=dtype)
    expected = logits.clone()
    stops = torch.randint(0, size, (rows, 2))
    stops[::3, 1] = -1
    suppress_stop_tokens(logits, whole(place, stops))
    suppress_stop_tokens_reference(expected, whole(place, stops))
    return gap((logits, expected))


def penalised(place: Place, dtype: torch.dtype) -> float:
    """All three penalties, drafts among the outputs, one row without any."""
    rows, size = sizes_of(place)
    rows = min(rows, 16)
    longest = 40 if place.is_toy else 3000
    logits = noise(place, rows, size, dtype=dtype, scale=3.0)
    lengths = torch.randint(longest // 2, longest, (rows,))
    owners = torch.randperm(rows)
    owners[1] = -1
    given = {
        "row_of": whole(place, owners),
        "lengths": whole(place, lengths),
        "prompt_lengths": whole(place, lengths // 2),
        "drafts": whole(place, torch.randint(0, size, (rows, WIDTH))),
        "num_drafts": whole(place, torch.arange(rows) % (WIDTH + 1)),
        "repetition": torch.full((rows,), 1.3, device=place.device),
        "presence": torch.full((rows,), 0.5, device=place.device),
        "frequency": torch.full((rows,), 0.25, device=place.device),
    }
    known = whole(place, torch.randint(0, size // 4, (rows, longest)))
    expected = widened(logits)
    apply_penalties_reference(expected, known, **given)
    apply_penalties(logits, known, **given)
    return gap((logits, expected))


def logprobs(place: Place, dtype: torch.dtype) -> float:
    """Log-probabilities of tokens; a rank that differs counts as an error of 1."""
    rows, size = sizes_of(place)
    logits = noise(place, rows, size, dtype=dtype, scale=3.0)
    tokens = whole(place, torch.randint(0, size, (rows,)))
    tokens[0] = logits[0].argmax()
    found, ranks = token_logprobs(logits, tokens)
    expected, right = token_logprobs_reference(logits.float(), tokens)
    return max(gap((found, expected)), float(not torch.equal(ranks, right)))


def verified(place: Place, dtype: torch.dtype) -> float:
    """Drafts that are right from none to all of the way, and requests that do not sample."""
    del dtype
    count = 8 if place.is_toy else 256
    drafts = torch.randint(0, 3, (count, WIDTH))
    number = torch.arange(count) % (WIDTH + 1)
    first = (number + 1).cumsum(0) - number - 1
    rows = torch.randint(0, 3, (int((number + 1).sum()),))
    first[::7] = -1
    given = [whole(place, values) for values in (rows, drafts, number, first)]
    found, expected = (
        (whole(place, torch.zeros(count, WIDTH + 1)), whole(place, torch.zeros(count)))
        for _ in range(2)
    )
    verify_drafts(*given, *found)
    verify_drafts_reference(*given, *expected)
    return gap(*zip(found, expected, strict=True))


def rejected(place: Place, dtype: torch.dtype) -> float:
    """Drafts of a drafter with a distribution; a sum's rounding may move a token."""
    del dtype
    count, size = (6, 200) if place.is_toy else (64, 32_000)
    target = noise(place, count * (WIDTH + 1), size, dtype=torch.float32, scale=2.0).softmax(-1)
    near = target.view(count, WIDTH + 1, size)[:, :WIDTH]
    proposed = (near * 0.7 + 0.3 / size).contiguous()
    drafts = torch.multinomial(proposed.flatten(0, 1), 1).view(count, WIDTH)
    number = torch.arange(count) % (WIDTH + 1)
    seeds, places = list(range(count)), torch.randint(0, 1000, (count,)).tolist()
    words = [
        [uniforms([seed] * (WIDTH + 1), range(start, start + WIDTH + 1), word) for word in WORDS]
        for seed, start in zip(seeds, places, strict=True)
    ]
    numbers = torch.tensor([[row[word].tolist() for row in words] for word in range(len(WORDS))])
    first = torch.arange(count) * (WIDTH + 1)
    shared = [whole(place, values) for values in (drafts, number, first)]
    found, expected = (
        (whole(place, torch.zeros(count, WIDTH + 1)), whole(place, torch.zeros(count)))
        for _ in range(2)
    )
    long = torch.int64
    reject_drafts(
        target, proposed, *shared, whole(place, seeds, long), whole(place, places, long), *found
    )
    reject_drafts_reference(target, proposed, *shared, numbers.to(place.device), *expected)
    return unequal(found[0], expected[0])


WORDS = (DRAW, ACCEPT, REDRAW)

SAMPLING = (
    Case("sample_tokens", "all kinds of rows", drawn, most=0.04),
    Case("write_distributions", "all kinds of rows", distributed, most=1e-5),
    Case("apply_bitmask", "random bits", masked, 0),
    Case("suppress_stop_tokens", "two a row", stopped, 0),
    Case("apply_penalties", "all three", penalised, 2),
    Case("token_logprobs", "random tokens and the likeliest", logprobs, most=1e-5),
    Case("verify_drafts", "up to four drafts", verified, 0),
    Case("reject_drafts", "up to four drafts", rejected, most=0.04),
)
