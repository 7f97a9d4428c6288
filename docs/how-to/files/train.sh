#!/bin/bash
#SBATCH --nodes=8
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-8}
MODEL=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64
    --group-query-attention --num-query-groups 8 --vocab-size 128256 --seq-length 8192
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0
)
LAYOUT="--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 \
    --num-virtual-stages-per-pipeline-rank 5 --sequence-parallel --use-distributed-optimizer"
torchrun --nnodes $NNODES --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py ${MODEL[@]} $LAYOUT \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-activations \
    --overlap-grad-reduce --overlap-param-gather
