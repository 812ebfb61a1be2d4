"""LLM: a model and a plugin stack behind three calls: generate, chat, stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from framework.engine.front import Front
from framework.engine.prompts import Prompt
from framework.engine.settings import DEFAULT_BUDGET, DEFAULT_NUM_SEQS, EngineSettings
from framework.errors import ConfigError, HeadwayError, RequestError
from framework.sampling import SamplingParams
from framework.stack import complete_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from framework.engine.completion import Completion
    from framework.engine.models import LoadedModel
    from framework.engine.parent.remote import ProcessFront
    from framework.engine.prompts import Message, PromptLike
    from framework.loading import Spec
    from framework.protocols import Clock


class LLM:
    """Offline generation with a model under a plugin stack.

    Args:
        model: a name of `headway models`, or a model directory.
        plugins: the stack, last asked first; kv_blocks, chunked_prefill and fcfs are put beneath
            where nothing in it does their work.
        dtype: "float32", "bfloat16" or "float16"; None = the runner's choice.
        device: what the runner computes on; None = the runner's choice.
        num_blocks: KV blocks; None = as many as fit on the runner's device, or 1024 if it has no
            memory of its own.
        block_size: tokens of a block.
        max_num_seqs: most running requests.
        max_num_batched_tokens: token budget of one step.
        max_model_len: most tokens of a request; None = what the model allows.
        num_spec_tokens: most drafts of a request in one step; None = 4 if the stack proposes
            drafts, else 0.
        async_scheduling: plan one step ahead of the outputs.
        runner: a name of the entry-point group `headway.runners`.
        num_threads: CPU threads, or None for the runner's own choice.
        seed: of every random stream.
        own_process: run the engine in a process of its own; plugins are best named then, and a
            script needs `if __name__ == "__main__":`.

    Raises:
        ModelError, PluginError, ConfigError: something named here cannot be used.

    Example:
        >>> with LLM("smollm2", ["priority"]) as llm:
        ...     print(llm.chat([{"role": "user", "content": "Hello"}])[0].text)
    """

    def __init__(
        self,
        model: str | Path,
        plugins: Sequence[Spec] = (),
        *,
        dtype: str | None = None,
        device: str | None = None,
        num_blocks: int | None = None,
        block_size: int = 16,
        max_num_seqs: int = DEFAULT_NUM_SEQS,
        max_num_batched_tokens: int = DEFAULT_BUDGET,
        max_model_len: int | None = None,
        num_spec_tokens: int | None = None,
        async_scheduling: bool = False,
        runner: str = "torch",
        num_threads: int | None = None,
        seed: int = 0,
        own_process: bool = False,
    ) -> None:
        self._open(
            EngineSettings(
                model=model,
                plugins=plugins,
                dtype=dtype,
                device=device,
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                num_spec_tokens=num_spec_tokens,
                async_scheduling=async_scheduling,
                runner=runner,
                num_threads=num_threads,
                seed=seed,
            ),
            own_process=own_process,
        )

    def _open(self, settings: EngineSettings, *, own_process: bool) -> None:
        if own_process:
            try:
                from framework.engine.parent.remote import ProcessFront  # noqa: PLC0415
            except ImportError as error:
                raise ConfigError(
                    f"own_process: needs the package {error.name!r}: pip install 'headway[serve]'"
                ) from error
            self._front: Front | ProcessFront = ProcessFront(settings)
        else:
            self._front = Front(*settings.open())

    @classmethod
    def from_settings(cls, settings: EngineSettings, *, own_process: bool = False) -> Self:
        """An LLM of what is written down in one record.

        Raises:
            ModelError, PluginError, ConfigError: something named there cannot be used.
        """
        llm = cls.__new__(cls)
        llm._open(settings, own_process=own_process)
        return llm

    @classmethod
    def from_loaded(
        cls, model: LoadedModel, plugins: Sequence[Spec] = (), *, clock: Clock | None = None
    ) -> Self:
        """An LLM over a model that is in memory already; closing it closes the model's runner.

        Raises:
            PluginError: the stack cannot be built.
        """
        llm = cls.__new__(cls)
        llm._front = Front(model, complete_stack(plugins), clock=clock)
        return llm

    @property
    def front(self) -> Front:
        """The front and the engine core in this process.

        Raises:
            HeadwayError: the engine has a process of its own.
        """
        if not isinstance(self._front, Front):
            raise HeadwayError("front: this LLM has its engine in a process of its own")
        return self._front

    @property
    def model(self) -> LoadedModel:
        """The model in this process.

        Raises:
            HeadwayError: the engine has a process of its own.
        """
        return self.front.model

    def generate(
        self,
        prompts: PromptLike | Sequence[PromptLike],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Answer prompts; they all arrive now.

        Args:
            prompts: one or a list of: text, a conversation, token ids, a Prompt.
            sampling_params: one for all, or one each; a Prompt brings its own.

        Returns:
            One completion a prompt, in the order of the prompts.

        Raises:
            RequestError: a prompt is refused; nothing was run.
            PolicyError, StallError: a plugin failed, or the stack serves nobody; the requests
                were aborted and the LLM can be used again. An engine in a process of its own
                ends only the requests concerned: see `Completion.error`.
            EngineDeadError: that process has ended.
        """
        return self._front.answer(_as_prompts(prompts, sampling_params))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Answer a conversation, or several; see `generate`."""
        return self.generate(messages, sampling_params)

    def stream(
        self, prompt: PromptLike, sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Answer one prompt, yielding pieces of text as they become certain.

        Leaving the loop early aborts the request.

        Raises:
            RequestError: the prompt is refused, or there is no tokenizer.
        """
        if self._front.tokenizer is None:
            raise RequestError("stream needs a tokenizer and this model has none")
        asked = Prompt.of(prompt, sampling_params or SamplingParams(), "prompt")
        return self._front.stream_text(asked)

    def swap(self, plugins: Sequence[Spec]) -> list[str]:
        """Put another stack in place of this one, also while requests are under way.

        They lose what was computed and nothing else: each goes on to the output that it would
        have given. The plugins are new ones and hear of every unfinished request.

        Args:
            plugins: the stack, last asked first, completed as at the start.

        Returns:
            The names of the new stack.

        Raises:
            PluginError, PolicyError: it cannot be used; the old one stays, with everything.
            HeadwayError: blocks are being copied from or to external memory; try again later.
        """
        return self._front.swap(plugins)

    def close(self) -> None:
        """End what is running and give memory and threads back."""
        self._front.close()
        if isinstance(self._front, Front):
            self._front.model.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_prompts(prompts: Any, sampling_params: Any) -> list[Prompt]:
    listed = [prompts] if _is_one(prompts) else list(prompts)
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        params = [sampling_params or SamplingParams()] * len(listed)
    else:
        params = list(sampling_params)
    if len(params) != len(listed):
        raise RequestError(
            f"sampling_params: got {len(params)} for {len(listed)} prompts, "
            "allowed: one for all, or one each"
        )
    return [
        Prompt.of(prompt, each, f"prompt {index}")
        for index, (prompt, each) in enumerate(zip(listed, params, strict=True))
    ]


def _is_one(prompts: Any) -> bool:
    """One prompt, not a list of them: text, a Prompt, token ids, or messages."""
    if isinstance(prompts, str | Prompt):
        return True
    return bool(prompts) and isinstance(prompts[0], int | Mapping)
