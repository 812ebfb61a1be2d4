"""A GPU that is not there: kernels launched on it are compiled by Triton, and nothing runs.

The launchers themselves run, with tensors on torch's meta device, so what is compiled is what a
launch would compile: Triton decides by the same arguments which are multiples of 16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton.compiler import CompiledKernel

PLENTY = 2**30


def target(arch: str) -> GPUTarget:
    """What Triton calls an architecture: "sm_90", "gfx942"."""
    if arch.startswith("gfx"):
        return GPUTarget("hip", arch, 64)
    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


@define(eq=False)
class AbsentDevice:
    """In the place of Triton's driver; it keeps the jitted functions that were launched.

    It has as much memory as a kernel asks for, so that what is too much is measured and not raised.
    """

    arch: str
    launched: list[Any] = field(factory=list, init=False)

    @property
    def utils(self) -> AbsentDevice:
        return self

    def get_device_properties(self, device: str) -> dict[str, int]:
        return {"max_shared_mem": PLENTY}

    def load_binary(self, *_: Any) -> tuple[str, str, int, int, int]:
        """(module, function, registers, spills, most threads of a program)."""
        return "module", "function", 0, 0, PLENTY

    def get_current_target(self) -> GPUTarget:
        return target(self.arch)

    def get_current_device(self) -> str:
        return self.arch

    def get_current_stream(self, device: str) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        self.launched.append(source.fn)
        return lambda *_: None


def compile_launch(launch: Callable[[], None], arch: str) -> list[CompiledKernel]:
    """The kernels that `launch` would start on a GPU of this architecture, in that order."""
    device = AbsentDevice(arch)
    driver.set_active(device)
    launch()
    # popped, so that the next launch of the same kernel is seen again
    return [
        kernel
        for function in dict.fromkeys(device.launched)
        for kernel in function.device_caches.pop(arch)[0].values()
    ]
