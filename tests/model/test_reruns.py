"""Selective recomputation of an attention core that keeps no scores."""

from __future__ import annotations

from collections.abc import Callable

from parcost import Study
from parcost_plugins.vocabulary import FusedAttention

from ..rows import try_each

StudyOf = Callable[..., Study]


@try_each(
    "framework, recompute, again",
    [
        ("megatron_core", "selective", True),
        ("nemo", "selective", True),
        ("megatron_core", "none", False),
        ("torchtitan", "selective", False),
        ("generic", "selective", False),
    ],
)
def test_megatron_runs_a_fused_core_again(
    framework: str, recompute: str, again: bool, study_of: StudyOf
) -> None:
    study = study_of(
        "llama3_8b",
        training=f"framework = {framework}, recompute = {recompute}",
        extra=f"use catalog.frameworks.{framework}",
    )
    cores = {op.pass_: op for op in study.operators if isinstance(op, FusedAttention)}
    assert ("R" in cores) == again
    if again:
        # As often and as long as forward.
        assert cores["R"].flops == cores["F"].flops
        assert cores["R"].count == cores["F"].count
