"""Compile every kernel ahead of time for every architecture, without a GPU, and judge the result.

`python -m runners.triton.aot` (`make aot`). It shows that a kernel compiles, fits in shared
memory, spills no registers and uses the instructions it should; not that it is right or fast.
"""
