"""One script that says, in at most eight minutes with a GPU, what the Triton runner is worth.

Are its kernels right, how close they and whole models come to what the hardware allows, how it
compares with transformers' continuous batching, and which kernel sizes suit this GPU. It needs the
repository and a Python with torch, triton, transformers, attrs and pluggy; nothing is installed or
downloaded. `--toy` runs the same code on the CPU, at toy size, in Triton's interpreter.

    python3 -m benchmarks.gpu_check --out DIR

conductor.py   a process and a share of the time for each part, results kept after each
part.py        the inside of such a process: one item after another
goals.py       the figures that are aimed at
machine.py, correctness.py, bandwidth.py, decode.py, peer.py, suite.py, tuning.py   the parts
captures.py, idle.py, *cases.py   pieces of the parts
place.py, caches.py, models.py, serving.py   what parts share: timing, data, models, the loop
"""
