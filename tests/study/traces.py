"""Small traces in every format, as their publishers write them."""

from __future__ import annotations

import json
from pathlib import Path

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "traces"
"""Traces as published, where they are at hand."""

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURSTGPT_2 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
Total tokens,Log Type
5.5,0a,3,ChatGPT,472,18,490,Conversation log
"""


def json_lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(time: int, prompt: int, output: int, *hash_ids: int) -> dict[str, object]:
    return {
        "timestamp": time,
        "input_length": prompt,
        "output_length": output,
        "hash_ids": list(hash_ids),
    }


def bailian(
    chat: int, parent: int, time: float, prompt: int, output: int, *hash_ids: int
) -> dict[str, object]:
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        **mooncake(0, prompt, output, *hash_ids),
        "timestamp": time,
        "type": "text",
        "turn": 1,
    }
