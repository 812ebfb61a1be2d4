"""Kernel tests run in Triton's interpreter, or with KERNEL_TESTS=gpu on a GPU.

The mode is fixed when triton is imported, so these tests have a process of their own:
`make test-kernels`.
"""

from __future__ import annotations

import os
import sys

import pytest

# numpy multiplies for the interpreter: its threads would only wait for one another, busily
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
torch = pytest.importorskip("torch")

MODE = os.environ.get("KERNEL_TESTS", "interpret")
if MODE != "gpu":
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("triton is already imported: run make test-kernels", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
torch.set_num_threads(1)


@pytest.fixture
def device() -> str:
    """Where kernel tests keep their tensors."""
    return "cuda" if MODE == "gpu" else "cpu"


@pytest.fixture(params=[torch.float32, torch.float16], ids=["fp32", "fp16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """bfloat16 cannot be tested here: the interpreter multiplies its bit patterns."""
    return request.param


def pytest_configure(config: pytest.Config) -> None:
    """Triton's interpreter turns arrays of one element into numbers, which numpy will refuse."""
    config.addinivalue_line("filterwarnings", "ignore:Conversion of an array:DeprecationWarning")
