"""Staging: fields arrive as they were sent, and lie where a captured graph will look for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runners.triton.staging import Staging

CPU = torch.device("cpu")


def fields(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Of every dtype, one of them empty."""
    draw = np.random.default_rng(seed)
    return {
        "ids": draw.integers(0, 2**40, count),
        "slots": draw.integers(-1, 2**30, count + 3, dtype=np.int32),
        "none": np.zeros(0, dtype=np.int64),
        "heat": draw.random(count * 2 + 1, dtype=np.float32),
    }


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_fields_arrive_as_they_were_sent(count: int) -> None:
    staging = Staging(CPU, 256)
    sent = fields(count)
    arrived = staging.upload(sent)
    assert list(arrived) == list(sent)
    for name, array in sent.items():
        assert np.array_equal(arrived[name].numpy(), array), name
        assert arrived[name].numpy().dtype == array.dtype
        assert array.size == 0 or arrived[name].data_ptr() % 16 == 0


def test_a_field_with_room_stays_where_it_is() -> None:
    staging = Staging(CPU, 4096, is_fixed=True)
    room = {"ids": 20, "slots": 30}
    places = set()
    for count in (1, 20, 5):
        sent = fields(count)
        arrived = staging.upload(sent, room)
        places.add((arrived["ids"].data_ptr(), arrived["slots"].data_ptr()))
        assert np.array_equal(arrived["slots"].numpy(), sent["slots"])
    assert len(places) == 1


def test_a_field_larger_than_its_room_is_refused() -> None:
    with pytest.raises(ValueError, match="ids has 9 elements, room is for 8"):
        Staging(CPU, 4096).upload(fields(9), {"ids": 8})


def test_a_fixed_buffer_does_not_grow() -> None:
    staging = Staging(CPU, 128, is_fixed=True)
    assert staging.holds(fields(3))
    assert not staging.holds(fields(50))
    with pytest.raises(ValueError, match=r"\d+ bytes are needed, 128 are there"):
        staging.upload(fields(50))


def test_another_buffer_grows_and_what_was_sent_before_lies_untouched() -> None:
    staging = Staging(CPU, 128)
    first, second = fields(3), fields(5000, seed=1)
    before = staging.upload(first)
    after = staging.upload(second)
    assert np.array_equal(before["heat"].numpy(), first["heat"])
    assert np.array_equal(after["heat"].numpy(), second["heat"])
    assert staging.holds(second)


def test_every_upload_is_whole_in_turn() -> None:
    """More uploads than there are host buffers."""
    staging = Staging(CPU, 4096)
    for seed in range(8):
        sent = fields(20 - seed, seed)
        arrived = staging.upload(sent)
        assert np.array_equal(arrived["ids"].numpy(), sent["ids"])
