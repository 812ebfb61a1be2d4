"""The engine: schedule, run, update; and the front that turns prompts into completions."""
