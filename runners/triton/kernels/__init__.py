"""Triton kernels, one a file: the kernel, its launcher, its torch reference, and where it is from.

All arithmetic is fp32, block offsets are int64, strides are arguments. Nothing here touches a
driver when it is imported, and no launcher waits for the device.
"""
