"""The torch runner: a real model on the CPU, paged attention in plain torch.

loading.py    which models can run, and how their attention is routed here
linear.py     faster linear layers and norms for the CPU
attention.py  the paged cache and attention over a flat batch
runner.py     plan in, tokens out
"""

from runners.torch_paged.runner import TorchRunner

__all__ = ["TorchRunner"]
