"""Hooks, resolved once: what the step loop calls instead of pluggy's general caller.

`resolve` turns a checked manager (see `stack`) into one positional callable per hook that returns,
raises and calls what pluggy would. Known differences: plugins registered later are not seen;
`add_hookcall_monitoring` needs the traced build, and hears nothing of hooks nobody implements; a
missing argument is an ordinary TypeError. Wrappers see a StopIteration of the body as in pluggy.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from framework import combine
from framework.hookspecs import KIND_OF, PARAMETERS, Collect, Limit, Observe, OwnOrder, SetUp
from framework.timing import HookTime, Times, timed, timed_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pluggy

    from framework.config import SchedulerConfig
    from framework.output import BlockIds, SchedulerOutput
    from framework.protocols import Answer, ExternalHit, Hit, KvView, WaitingView
    from framework.reports import Setup, StepReport
    from framework.request import PreemptMode, Request
    from framework.view import StepView


def _nothing(*_args: object) -> None:
    """Nobody implements this hook."""


NOTHING: Final[Callable[..., None]] = _nothing
"""What a hook without implementations resolves to; the loop may test `hooks.x is NOTHING`."""


@frozen(eq=False)
class Hooks:
    """One positional callable per hook, its parameters in the order of the spec.

    cap_num_new_tokens gives the least bound, the other limits False if anybody objects and else
    True, extend_output one joined dict. A hook without implementations is NOTHING.
    """

    select_waiting: Callable[[WaitingView, StepView], Request | Answer | None]
    order_running: Callable[[Sequence[Request], StepView], Iterable[Request] | None]
    pick_displaced: Callable[[Request, Sequence[Request], StepView], Request | Answer | None]
    pick_preempt_victim: Callable[[Request, Sequence[Request], StepView], Request | Answer | None]
    preempt_mode: Callable[[Request, bool, StepView], PreemptMode | None]
    pick_rejected: Callable[[WaitingView, StepView], Iterable[Request] | None]
    compute_num_new_tokens: Callable[[Request, int, Hit | None, StepView], int | None]
    split_prefill: Callable[[Request, int, StepView], int | None]
    compute_num_drafts: Callable[[Request, StepView], int | None]
    propose_drafts: Callable[[Request, int], list[int] | None]
    predict_output_len: Callable[[Request], float | None]

    match_prefix: Callable[[Request], Hit | None]
    allocate: Callable[[Request, int, Hit | None, StepView], BlockIds | bool | None]
    publish: Callable[[Request, int], None]
    withdraw: Callable[[Request, BlockIds], None]
    release: Callable[[Request], None]
    reset_prefix_cache: Callable[[], bool | None]
    kv_view: Callable[[SchedulerConfig], KvView | None]
    lookup_external: Callable[[Request, Hit], ExternalHit | Answer | None]
    external_allocated: Callable[[Request, BlockIds, Hit], None]
    store_external: Callable[[Request, BlockIds], None]
    allocate_encoder: Callable[[Request, int, StepView], Sequence[int] | None]
    release_encoder: Callable[[Request], Sequence[str] | None]
    order_waiting: Callable[[Request], Any]

    cap_num_new_tokens: Callable[[Request, int, StepView], int | None]
    may_admit: Callable[[Request, int, Hit, StepView], bool | None]
    is_ready: Callable[[Request], bool | None]
    may_release: Callable[[Request], bool | None]

    extend_output: Callable[[SchedulerOutput, StepView], Mapping[str, Any] | None]

    request_arrived: Callable[[Request, WaitingView], None]
    request_admitted: Callable[[Request, Hit, bool, StepView], None]
    request_preempted: Callable[[Request, PreemptMode, int, StepView], None]
    request_finished: Callable[[Request], None]
    step_planned: Callable[[SchedulerOutput, StepView], None]
    step_finished: Callable[[StepReport], None]

    scheduler_built: Callable[[Setup], None]

    _answered: Mapping[str, list[str]]

    def blame(self, hook: str) -> str:
        """The plugin that gave the last answer of `hook`; "a, b" where only a group is known."""
        return self._answered[hook][0]


def resolve(
    manager: pluggy.PluginManager, trace: bool = False, times: Times | None = None
) -> Hooks:
    """The hooks of a manager made by `build_manager`, each as one direct callable.

    Parameters:
        manager: nothing may be registered on it afterwards.
        trace: go through pluggy's callers, so that its call monitoring hears every call.
        times: where every implementation adds the time of its calls; None = none is timed. With
            `trace` nothing is: pluggy's monitoring can tell.
    """
    calls: dict[str, Callable[..., Any]] = {}
    answered: dict[str, list[str]] = {}
    for name, kind in KIND_OF.items():
        hook = _Hook(manager, kind, name, times)
        calls[name] = hook.traced(manager) if trace else hook.direct()
        answered[name] = hook.answered
    return Hooks(**calls, answered=answered)


class _Hook:
    """One hook while it is being resolved."""

    def __init__(
        self, manager: pluggy.PluginManager, kind: type, name: str, times: Times | None
    ) -> None:
        self.name = name
        self.times = times
        self.kind = kind
        self.parameters = PARAMETERS[name]
        implementations = getattr(manager.hook, name).get_hookimpls()[::-1]
        self.bodies = [one for one in implementations if not one.wrapper]
        if kind is OwnOrder:
            self.bodies = self.bodies[:1]
        self.wrappers = [one for one in implementations if one.wrapper]
        involved = dict.fromkeys(one.plugin_name for one in self.bodies + self.wrappers)
        self.everyone = ", ".join(involved) or "nobody"
        self.answered = [self.everyone]
        self.asked: combine.Asked = tuple(
            (one.plugin_name, self._positional(one)) for one in self.bodies
        )

    def direct(self) -> Callable[..., Any]:
        """The callable without pluggy in it."""
        if not self.wrappers:
            return self._combined(self.asked, self.answered) if self.asked else NOTHING
        wrappers = [self._positional(one) for one in self.wrappers]
        if self.kind in (Limit, Collect):
            return self._of_list(combine.wrapped(wrappers, combine.listed(self.asked)))
        if self.kind in (Observe, SetUp):
            return combine.wrapped(wrappers, combine.listed(self.asked))
        return combine.wrapped(wrappers, self._combined(self.asked, [""]))

    def traced(self, manager: pluggy.PluginManager) -> Callable[..., Any]:
        """The callable through pluggy's caller, by keyword."""
        if not self.bodies and not self.wrappers:
            return NOTHING
        caller = getattr(manager.hook, self.name)
        if self.kind is OwnOrder:
            bodies = [one for one in caller.get_hookimpls() if not one.wrapper]
            others = [one.plugin for one in bodies if one not in self.bodies]
            caller = manager.subset_hook_caller(self.name, others)
        by_keyword = ", ".join(f"{name}={name}" for name in self.parameters)
        call = _generated(self.parameters, by_keyword, caller)
        return self._of_list(call) if self.kind in (Limit, Collect) else call

    def _positional(self, implementation: pluggy.HookImpl) -> Callable[..., Any]:
        """The implementation, taking every parameter of the spec in the order of the spec."""
        function: Callable[..., Any] = implementation.function
        if implementation.argnames != self.parameters:
            function = _generated(self.parameters, ", ".join(implementation.argnames), function)
        if self.times is None:
            return function
        key = (implementation.plugin_name, self.name)
        total = self.times.setdefault(key, HookTime(*key))
        return (timed_wrapper if implementation.wrapper else timed)(function, total)

    def _combined(self, asked: combine.Asked, answered: list[str]) -> Callable[..., Any]:
        """Several implementations as one, by the rule of the kind."""
        if self.kind is Collect:
            return combine.joined(self.name, asked)
        if self.kind is Limit and self._says_bool():
            return combine.all_of(self.name, asked, answered)
        if len(asked) == 1:
            return asked[0][1]
        if self.kind is Limit:
            return combine.least(self.name, asked, answered)
        if self.kind in (Observe, SetUp):
            return combine.told(asked)
        return combine.first(asked, self.everyone, answered) if asked else NOTHING

    def _says_bool(self) -> bool:
        returns: str = inspect.signature(getattr(self.kind, self.name)).return_annotation
        return returns.startswith("bool")

    def _of_list(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Combine the list that a call in pluggy's manner returns."""

        def of_list(*args: Any) -> Any:
            answers = call(*args)
            if type(answers) is not list:
                allowed = "from a wrapper, the list of all answers"
                raise combine.wrong(self.everyone, self.name, answers, allowed)
            constant = tuple((self.everyone, combine.always(one)) for one in answers)
            return self._combined(constant, self.answered)(*args)

        return of_list


def _generated(
    parameters: Sequence[str], arguments: str, function: Callable[..., Any]
) -> Callable[..., Any]:
    """`lambda parameters: function(arguments)`; all names are names of a spec's parameters."""
    source = f"lambda {', '.join(parameters)}: function({arguments})"
    adapter: Callable[..., Any] = eval(source, {"function": function})
    return adapter
