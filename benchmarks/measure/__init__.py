"""Measure the kernels of an accelerator and of its host, as tables that parcost reads.

    python -m benchmarks.measure --out DIR [--only products,attention] [--backend torch]

Nothing here imports parcost: a copy of this folder and PyTorch are enough.
"""
