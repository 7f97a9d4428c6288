#!/bin/bash
GPUS_PER_NODE=8
NNODES=2
MODEL=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --vocab-size 32000 --seq-length 4096
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0
    --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall
)
LAYOUT=(
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8 --use-distributed-optimizer --sequence-parallel
)
torchrun --nnodes $NNODES --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py ${MODEL[@]} ${LAYOUT[@]} \
    --micro-batch-size 1 --global-batch-size 256 --bf16 --overlap-grad-reduce
