"""The packaged small model, whole, through the Triton runner."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, AutoTokenizer

from framework import ModelError, Request, SamplingParams, Scheduler, SchedulerConfig
from runners.common.smollm2 import model_directory
from runners.triton import TritonRunner
from tests.runners.driving import PLAIN, drive

PROMPT = "The capital of France is"
NUM_TOKENS = 16
CONFIG = SchedulerConfig(num_blocks=8, block_size=16, max_model_len=64, max_num_seqs=2)


@pytest.mark.model
def test_greedy_tokens_are_those_that_transformers_generates(device: str) -> None:
    try:
        directory = model_directory()
    except ModelError as error:
        pytest.skip(str(error))
    prompt = AutoTokenizer.from_pretrained(directory)(PROMPT)["input_ids"]
    original = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    out = original.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=NUM_TOKENS, eos_token_id=-1
    )
    runner = TritonRunner.from_model(directory, CONFIG, dtype="float32", device=device)
    scheduler = Scheduler(CONFIG, PLAIN)
    request = Request("r", prompt, SamplingParams(max_tokens=NUM_TOKENS, temperature=0))
    scheduler.add_request(request)
    drive(scheduler, runner)
    assert prompt + request.output_token_ids == out[0].tolist()
