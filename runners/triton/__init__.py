"""The Triton runner: a transformers model on a GPU, with our own kernels and CUDA graphs.

loading.py    which models can run, and how their attention is routed here
fusing.py     which modules are replaced by fused ones (modules.py), each checked
cache.py      the paged cache, and attention over it
feed.py       a step's way to the device: staging.py, block tables (tables.py), inputs.py
graphs.py     captured decode steps
sampler.py    drawing and verifying on the device, and its way back (drawn.py, late.py)
transfers.py  blocks to and from external memory
memory.py     how many blocks fit; devices.py: on what
runner.py     plan in, tokens out
kernels/      one kernel a file
configs.py    their sizes, from table.json; tuner/ finds them, aot/ compiles them without a GPU
"""

from runners.triton.runner import TritonRunner

__all__ = ["TritonRunner"]
