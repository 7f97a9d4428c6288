"""Autocast of PyTorch: before each GEMM, fp32 weights are cast to the type of the GEMM.

The weight gradient is cast back to the type of the weight. Under ZeRO 3 the gathered weights are
cast, if they have another type. A quantized base is dequantized to the type of the GEMMs, and needs
no cast.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub

from parcost import Memory, Real, Study, Work, formula, map_counts, occurs
from parcost.numeric import any_of, where
from parcost_plugins.physics.kernel_times import kernel_work
from parcost_plugins.physics.run_choices import shards_weights
from parcost_plugins.vocabulary import Adapters, Gemm, KernelChoice, Stream, Training
from parcost_plugins.vocabulary.causes import BUFFERS

SOURCE = (
    "PyTorch, aten/src/ATen/autocast_mode.cpp: cached_cast casts a float32 weight ahead of its "
    "product, and keeps the copy of a trained one up to the end of autocast"
)


def casts(study: Study) -> Iterator[Work]:
    """Yield the cast of each weight before its GEMM, and of each weight gradient after it."""
    if not study[KernelChoice].memory_bound:
        return
    narrow = study[Training].precision.activation
    for product, held in _products(study):
        is_weight_gradient = product.pass_ == "W"
        columns = product.m if is_weight_gradient else product.k
        wide = where(held > narrow, 1.0, 0.0)
        bytes_ = wide * (held + narrow) * product.batch * product.n * columns
        cast = Stream(
            name=f"autocast of {'gradient' if is_weight_gradient else 'weight'}, {product.name}",
            bytes_=bytes_,
            kernels=wide,
            pass_=product.pass_,
            count=product.count,
            source=SOURCE,
        )
        yield kernel_work(cast, study)


def copies(study: Study) -> Iterator[Memory]:
    """Yield the copies of weights that autocast makes and keeps for a micro-batch.

    Backward reads the copies of layers that are not recomputed. Copies of trained weights in
    recomputed layers live until the end of forward.
    """
    narrow = study[Training].precision.activation
    forward = [(one, held) for one, held in _products(study) if one.pass_ == "F"]
    recomputed_counts = {one.name: one.count for one, _ in _products(study) if one.pass_ == "R"}
    trained = {one.name for one, _ in _products(study) if one.pass_ == "W"}
    for product, held in forward:
        bytes_ = formula(
            "n k e, a copy of n x k weights",
            n=product.batch * product.n,
            k=product.k,
            e=(where(held > narrow, narrow, 0.0), "B"),
            source=SOURCE,
        )
        recomputed = recomputed_counts.get(product.name)
        kept = product.count
        if recomputed is not None:
            kept = map_counts(sub, kept, recomputed)
        if occurs(kept):
            yield Memory(
                name=f"autocast copy, {product.name}",
                cause=BUFFERS,
                bytes_=bytes_,
                count=kept,
                per_micro_batch=True,
                moments=("forward", "loss", "backward", "end_of_backward"),
            )
        if recomputed is not None and product.name in trained:
            yield Memory(
                name=f"autocast copy until the loss, {product.name}",
                cause=BUFFERS,
                bytes_=bytes_,
                count=recomputed,
                moments=("forward", "loss"),
            )


def _products(study: Study) -> Iterator[tuple[Gemm, Real]]:
    """Yield the GEMMs with weights in a wider type, and the bytes per weight element."""
    precision, adapters = study[Training].precision, study.get(Adapters)
    # Parameters that are narrow themselves, as in MXFP8, may have several copies.
    narrow, trained = precision.activation, precision.wide_weights
    frozen = trained if adapters is None else adapters.weights
    if shards_weights(study):
        trained = precision.gather
        frozen = trained if adapters is None else narrow
    if not (any_of(trained > narrow) or any_of(frozen > narrow)):
        return
    for product in study.operators:
        if not isinstance(product, Gemm) or product.role == "attention" or product.wide:
            continue
        if product.pass_ not in ("F", "R", "W"):
            continue
        layers = product.role in ("linear", "expert")
        if adapters is not None and adapters.base is not None and layers:
            continue
        held = trained if product.role == "adapter" else frozen
        if any_of(held > narrow):
            yield product, held
