"""Files of Megatron-LM, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import parcost
from parcost import ImportedValue, Importer, Translation
from parcost_formats.tools.megatron import Megatron

Run = Callable[..., Any]

MACHINE = (
    *("--from", "megatron", "--use", "catalog.devices.h100_sxm"),
    *("--use", "catalog.fabrics.hgx_h100"),
)
NARROW_STATE = "--main-params-dtype fp16 --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8"
LLAMA = """\
--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672
--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm
--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope
--max-position-embeddings 8192 --vocab-size 128256 --make-vocab-size-divisible-by 64
--hidden-dropout 0.0 --attention-dropout 0.0 --seq-length 8192
--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4
--num-virtual-stages-per-pipeline-rank 5 --sequence-parallel --use-distributed-optimizer
--micro-batch-size 1 --global-batch-size 128 --bf16 --overlap-grad-reduce --overlap-param-gather
"""
DEEPSEEK = """\
--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-layernorm --kv-channels 128
--num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-router-topk 8
--moe-router-enable-expert-bias --moe-shared-expert-intermediate-size 2048 --moe-grouped-gemm
--moe-token-dispatcher-type flex --swiglu --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 129280 --make-vocab-size-divisible-by 1
--pipeline-model-parallel-size 8 --pipeline-model-parallel-layout Et*3|(tt|)*29|L
--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --seq-length 4096
--micro-batch-size 1 --global-batch-size 1024 --bf16 --use-distributed-optimizer
"""
MIXTRAL = """\
#!/bin/bash
# One node of eight, unless the scheduler says otherwise.
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"1"}
TOKENIZER=/data/tokenizer.model
LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES   # of the job
    --master_port 6000
)
MODEL=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --swiglu
    --normalization RMSNorm
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --position-embedding-type rope
    # --qk-layernorm
    --tokenizer-type Llama2Tokenizer
    --tokenizer-model ${TOKENIZER}
)
MODEL+=(--num-experts 8 --moe-router-topk 2)
LAYOUT="
    --tensor-model-parallel-size 1 \\
    --pipeline-model-parallel-size 4 \\
    --expert-model-parallel-size 8
    --sequence-parallel"
if [ -n "$DEBUG" ]; then
    MODEL+=(--num-query-groups 4 --log-interval 1)
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py \\
    "${MODEL[@]}" ${LAYOUT} \\
    --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer \\
    --data-path $1 --save $(date +%s) 2>&1 | tee log.txt
"""


def settings(found: Translation) -> dict[str, ImportedValue]:
    """Return the settings of blocks, as ``layout.tp``."""
    return {f"{block.kind}.{one.name}": one for block in found.blocks for one in block.settings}


def translate(importer: Importer, name: str, text: str) -> Translation:
    """Return the translation of a file without errors; every place is one in the file."""
    found = importer.translate(name, text)
    assert not found.problems, [problem.message for problem in found.problems]
    for place in (*settings(found).values(), *found.ignored, *found.unknown):
        assert 0 <= place.start <= place.end <= len(text)
    return found


def values(found: Translation) -> dict[str, str]:
    return {path: setting.value for path, setting in settings(found).items()}


def file_values(found: Translation) -> dict[str, str]:
    """Return the values that a file states: those without an assumption."""
    return {path: one.value for path, one in settings(found).items() if not one.assumption}


def reasons(found: Translation) -> dict[str, str]:
    """Return why keys are not read, by their names."""
    return {key.name: key.reason for key in (*found.ignored, *found.unknown)}


def read(text: str, name: str = "run.args") -> Any:
    return translate(Megatron(), name, text)


def small(*flags: str) -> str:
    """Return the arguments of a model of two layers, and *flags*."""
    return " ".join(
        ["--num-layers 2 --hidden-size 96 --num-attention-heads 4 --seq-length 64", *flags]
    )


def problems(text: str, name: str = "run.args") -> list[str]:
    return [problem.message for problem in Megatron().translate(name, text).problems]


def figures(folder: Path, text: str, devices: int, name: str = "run.args", more: str = "") -> Any:
    (folder / name).write_text(text, encoding="utf-8")
    spec = (
        f'use "{name}"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n{more}'
        f"cluster {{ devices = {devices} }}\n"
    )
    (study,) = parcost.load_text(spec, str(folder / "job.par"))
    return study.evaluate().result


PRIMUS = """\
exp_name: mine
modules:
  pre_trainer:
    config: pre_trainer.yaml
    framework: megatron
    model: small.yaml
    overrides:
      tensor_model_parallel_size: 2
      micro_batch_size: 1
      seq_length: 2048
      recompute_granularity: full
      recompute_method: block
      recompute_num_layers: 0
      lr_decay_iters: null
"""
