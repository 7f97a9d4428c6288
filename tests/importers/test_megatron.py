"""Arguments of Megatron-LM: sizes, layouts, places, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import ImportedValue, Importer, Translation
from parcost_plugins.importers.megatron import Megatron

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


def figures(folder: Path, text: str, devices: int, name: str = "run.args") -> Any:
    (folder / name).write_text(text, encoding="utf-8")
    spec = (
        f'use "{name}"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n'
        f"cluster {{ devices = {devices} }}\n"
    )
    (study,) = parcost.load_text(spec, str(folder / "job.par"))
    return study.evaluate().result


# Models


def test_llama_70b_has_its_published_parameters(tmp_path: Path) -> None:
    # 128,256 rows are a multiple of 64 x tp 4 = 256: nothing is padded.
    assert figures(tmp_path, LLAMA, 64).figure("parameters") == 70_553_706_496


def test_the_vocabulary_is_padded_by_the_default(tmp_path: Path) -> None:
    # 128 x tp 4 = 512: 250.5 times, so 251 x 512 = 128,512 rows. The fullest stage has one of
    # the two tables, a fourth of it on each rank, at 2 bytes for each parameter.
    text = LLAMA.replace("--make-vocab-size-divisible-by 64", "")
    (tmp_path / "one").mkdir()
    plain, padded = figures(tmp_path / "one", LLAMA, 64), figures(tmp_path, text, 64)
    assert "layout.vocabulary_multiple" not in file_values(read(text))
    more = padded.figure("weights_memory") - plain.figure("weights_memory")
    assert more == (128_512 - 128_256) * 8192 / 4 * 2


def test_deepseek_v3_has_its_published_parameters(tmp_path: Path) -> None:
    assert figures(tmp_path, DEEPSEEK, 64).figure("parameters") == 671_026_419_200


def test_gpt_2_is_made_of_defaults(tmp_path: Path) -> None:
    # The published 124,439,808: learned positions, biases, one table for both ends.
    text = (
        "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
        "--max-position-embeddings 1024 --tokenizer-type GPT2BPETokenizer "
        "--micro-batch-size 1 --fp16"
    )
    found = read(text)
    assert {"model.gated": "off", "model.norm": "layer", "model.tied": "on"}.items() <= (
        values(found).items()
    )
    assert figures(tmp_path, text, 8).figure("parameters") == 124_439_808


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ("", {"model.ffn": "384"}),  # 4 x 96
        ("--swiglu", {"model.ffn": "256", "model.gated": "on"}),  # 4 x 96 x 2/3
        ("--swiglu --ffn-hidden-size 100", {"model.ffn": "100"}),
        ("--squared-relu", {"model.gated": "off", "model.ffn": "384"}),
        ("--group-query-attention --num-query-groups 2", {"model.kv_heads": "2"}),
        ("--group-query-attention", {"model.kv_heads": "1"}),
        ("--padded-vocab-size 512", {"model.vocabulary": "512"}),
        ("--disable-bias-linear --add-qkv-bias", {"model.biases": "off", "model.qkv_biases": "on"}),
        ("--max-position-embeddings 64", {"model.positions": "64"}),
        ("--window-size 127,0", {"model.window": "128"}),
        ("--window-size (127,0) --window-attn-skip-freq 6", {"model.full_every": "6"}),
        ("--window-size 127,0 --window-attn-skip-freq [1,0]*1", {"model.full_every": "2"}),
        ("--num-experts 4 --moe-layer-freq 2", {"model.moe_every": "2", "model.top_k": "2"}),
        ("--num-experts 4 --moe-layer-freq [0]+[1]*1", {"model.dense_first": "1"}),
        ("--num-experts 0", {}),
        ("--tensor-model-parallel-size 2 --num-experts 4", {"layout.etp": "2"}),
        ("--use-tp-pp-dp-mapping", {"layout.order": '"tp-cp-pp-dp"'}),
    ],
)
def test_flags_and_defaults_of_models(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


def test_query_groups_need_their_switch() -> None:
    found = read(small("--num-query-groups 2"))
    assert "model.kv_heads" not in values(found)
    assert "--group-query-attention" in reasons(found)["--num-query-groups"]


def test_a_vocabulary_that_nothing_states_is_listed() -> None:
    found = read(small("--tokenizer-type HuggingFaceTokenizer"))
    assert [key.name for key in found.unknown] == ["--vocab-size"]
    assert "model.vocabulary" not in file_values(found)


# Layouts


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ("", {"layout.zero": "0"}),
        ("--use-distributed-optimizer", {"layout.zero": "1"}),
        ("--use-megatron-fsdp", {"layout.zero": "3"}),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim", {"layout.zero": "1"}),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy no_shard",
            {"layout.zero": "0"},
        ),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
            {"layout.zero": "2"},
        ),
        ("--use-torch-fsdp2", {"layout.zero": "3"}),
        (
            "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward",
            {"layout.zero": "3", "sharding.reshard": "off"},
        ),
        (
            "--use-distributed-optimizer --num-distributed-optimizer-instances 4",
            {"sharding.shard": "layout.dp * layout.cp / 4"},
        ),
        ("--cp-comm-type a2a", {"context.algorithm": "ulysses"}),
        (
            "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4",
            {"context.algorithm": "hybrid", "context.ulysses": "2"},
        ),
    ],
)
def test_what_ranks_share_out(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ("--num-virtual-stages-per-pipeline-rank 3", {"schedule.chunks": "3"}),
        # 24 layers, 4 devices: 6 of each, 2 of a chunk.
        ("--num-layers-per-virtual-pipeline-stage 2", {"schedule.chunks": "3"}),
        (
            "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 6",
            {"schedule.stages": "[4, 7, 7, 6]"},
        ),
        ("--decoder-last-pipeline-num-layers 3", {"schedule.stages": "[7, 7, 7, 3]"}),
        (
            "--decoder-first-pipeline-num-layers 6 --num-virtual-stages-per-pipeline-rank 2",
            {"schedule.stages": "[3, 3, 3, 3, 3, 3, 3, 3]"},
        ),
        (
            "--pipeline-model-parallel-layout Ett|t*8|(t)*8|t*6L",
            {"schedule.stages": "[2, 8, 8, 6]"},
        ),
        (
            "--pipeline-model-parallel-layout E,t*3|(ttt|)*7,L",
            {"schedule.chunks": "2"},
        ),
        (
            "--account-for-embedding-in-pipeline-split",
            {"schedule.count_embedding": "on"},
        ),
    ],
)
def test_stages_of_a_pipeline(flags: str, attributes: dict[str, str]) -> None:
    text = small(flags, "--pipeline-model-parallel-size 4").replace("layers 2", "layers 24", 1)
    if "(ttt|)*7" in flags:  # 3 + 7 x 3 layers on nine parts are no multiple of four
        assert "9 stages are no multiple of pp 4" in problems(text)[0]
    else:
        assert attributes.items() <= values(read(text)).items()


def test_the_layout_of_a_large_model_is_read() -> None:
    found = values(read(DEEPSEEK))
    stages = json.loads(found["schedule.stages"])
    assert stages == [3, *[2] * 29, 0, 0]
    assert sum(stages) == 61
    assert found["schedule.chunks"] == "4"
    assert found["model.dense_first"] == "3"
    assert "model.moe_every" not in found


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ("", {"training.precision": "fp32"}),
        ("--fp16", {"training.precision": "fp16"}),
        ("--bf16 --fp8-format hybrid", {"training.precision": "fp8_delayed"}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", {"training.precision": "mxfp8"}),
        ("--bf16 --fp4-format e2m1", {"training.precision": "nvfp4"}),
        # 2 of the gradient, 2 x 12 of the state, 2 of the weight.
        (
            "--bf16 --grad-reduce-in-bf16",
            {"precision.gradients": "2 B", "precision.update_traffic": "28 B"},
        ),
        # 2 + 2 + 1 bytes of state: 4 of the gradient, 2 x 5, 2 of the weight.
        (
            f"--bf16 --use-precision-aware-optimizer {NARROW_STATE}",
            {"precision.optimizer": "5 B", "precision.update_traffic": "16 B"},
        ),
        (
            "--bf16 --fp8-format hybrid --fp8-param-gather",
            {"precision.weights": "1 B", "precision.update_traffic": "29 B"},
        ),
        (
            "--bf16 --fp8-format hybrid --first-last-layers-bf16 --num-layers-at-end-in-bf16 2",
            {"precision.wide_first": "1", "precision.wide_last": "2"},
        ),
    ],
)
def test_recipes(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ("", {"training.dropout": "on"}),
        ("--hidden-dropout 0 --attention-dropout 0.0", {"training.dropout": "off"}),
        ("--hidden-dropout 0", {"training.dropout": "on"}),
        ("--recompute-activations", {"training.recompute": "selective"}),
        ("--recompute-granularity selective", {"training.recompute": "selective"}),
        (
            "--recompute-granularity selective --recompute-modules layernorm mlp",
            {"training.recompute": "none", "recompute.norms": "on", "recompute.mlp": "on"},
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            {"training.recompute": "full", "recompute.layers": "3"},
        ),
        ("--ddp-bucket-size 40000000", {"overlap.bucket": "40_000_000 * 4 B"}),
        ("--optimizer-cpu-offload", {"offload.optimizer": "100 %"}),
        ("--attention-backend fused", {"kernels.attention": "cudnn"}),
        ("--cuda-graph-impl local", {"kernels.cuda_graphs": "layer"}),
        (
            "--cuda-graph-impl local --cuda-graph-scope full_iteration",
            {"kernels.cuda_graphs": "iteration"},
        ),
        (
            "--num-experts 4 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
            {"routing.dispatcher": "hybridep"},
        ),
        ("--num-experts 4 --moe-permute-fusion", {"framework.permutation": "fused"}),
        ("--num-experts 4 --overlap-moe-expert-parallel-comm", {"routing.hide": "pair"}),
    ],
)
def test_how_the_job_runs(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


# Scripts


def test_a_script_of_arrays_and_variables_is_read() -> None:
    found = translate(Megatron(), "train.sh", MIXTRAL)
    expected = {
        "cluster.devices": "8",
        "model.layers": "32",
        "model.kv_heads": "8",
        "model.experts": "8",
        "model.vocabulary": "32_000",
        "layout.pp": "4",
        "layout.ep": "8",
        "layout.sequence_parallel": "on",
        "training.global_batch": "256 sequences",
    }
    assert expected.items() <= values(found).items()
    assert "model.qk_norm" not in values(found)  # a comment


def test_a_key_has_its_own_place_in_a_script() -> None:
    found = translate(Megatron(), "train.sh", MIXTRAL)
    for path, setting in settings(found).items():
        if setting.key.startswith("--") and path != "cluster.devices":
            assert MIXTRAL[setting.start : setting.end].startswith(setting.key), path
    devices = settings(found)["cluster.devices"]
    assert MIXTRAL[devices.start : devices.end] == "--nnodes $NNODES"
    assert "`SLURM_NNODES` is not set in the file" in devices.assumption


def test_flags_under_a_condition_are_listed() -> None:
    found = translate(Megatron(), "train.sh", MIXTRAL)
    assert [key.name for key in found.unknown] == ["--num-query-groups"]
    assert "under a condition" in found.unknown[0].reason
    assert "--log-interval" in {key.name for key in found.ignored}


def test_a_check_says_which_flag_may_be_meant(run_command: Run) -> None:
    text = MIXTRAL.replace("--tensor-model-parallel-size", "--tensor-model-paralel-size")
    assert text != MIXTRAL
    done = run_command("check", *MACHINE, "train.sh", files={"train.sh": text})
    assert "`--tensor-model-paralel-size`: did you mean `--tensor-model-parallel-size`?" in done.out


def test_a_rule_names_the_flag_of_a_script(run_command: Run) -> None:
    done = run_command("check", *MACHINE, "train.sh", files={"train.sh": MIXTRAL})
    assert done.code == 1
    # pp 4 x ep 8 = 32 ranks, and the node has 8: two ranks of a stage.
    assert "error[experts-ranks]" in done.out
    line = 1 + MIXTRAL[: MIXTRAL.index("--expert-model-parallel-size")].count("\n")
    assert f"train.sh:{line}:5" in done.out
    assert "`--expert-model-parallel-size` is `layout.ep` here" in done.out
    assert "`--sequence-parallel` is `layout.sequence_parallel` here" in done.out
    nodes = MIXTRAL.replace('"1"', '"4"')
    done = run_command("check", *MACHINE, "four.sh", files={"four.sh": nodes})
    assert "experts-ranks" not in done.out


def test_layers_that_do_not_divide_are_an_error_at_a_flag(run_command: Run) -> None:
    text = LLAMA.replace("--num-layers 80", "--num-layers 82")
    options = [*MACHINE, "--set", "cluster.devices=64"]
    done = run_command("check", *options, "run.args", files={"run.args": text})
    assert done.code == 1
    assert "82 layers are not divisible by pp 4 x chunks 5 = 20" in done.out
    assert "`--pipeline-model-parallel-size` is `layout.pp` here" in done.out


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py {}", "32"),
        ("torchrun --nnodes=4 --nproc-per-node=8 pretrain_gpt.py {}", "32"),
        ("torchrun --standalone --nproc_per_node 4 pretrain_gpt.py {}", "4"),
        ("GPUS_PER_NODE=8\nNNODES=3\npython pretrain_gpt.py {}", "24"),
        ("WORLD_SIZE=$((8 * (2 + 1)))\npython pretrain_gpt.py {}", "24"),
        ("#SBATCH --nodes=16\ntorchrun --nproc_per_node 8 --nnodes $SLURM_NNODES x.py {}", "128"),
        ("#SBATCH -N 4\nsrun --nodes=4 --ntasks-per-node=8 python -u a.py {}", "32"),
        ('C="python a.py {} $@"\nsrun --nodes=2 --ntasks-per-node=4 sh -c "$C"', "8"),
        ("bash -c 'torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py {}'", "16"),
        ('CMD="torchrun --nnodes 2 --nproc_per_node 8 a.py {}"\neval $CMD', "16"),
        ("main() {{\n  torchrun --nnodes 2 --nproc_per_node 8 a.py {}\n}}\nmain", "16"),
    ],
)
def test_devices_of_a_script(script: str, devices: str) -> None:
    found = translate(Megatron(), "run.sh", script.format(small()))
    assert values(found)["cluster.devices"] == devices
    assert values(found)["model.layers"] == "2"


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("", "`TP` is not set in the file"),
        ("TP=$(rm -rf /)", "`$(rm -rf /)` is a command, and none is run"),
        ("TP=`reboot`", "``reboot`` is a command, and none is run"),
        ("TP=$2", "argument 2 of the script is not known"),
        ("TP=$((NODES / 2))", "`NODES` is not set in the file"),
        ("if true; then TP=4; fi", "`TP` is set under a condition, which is not run"),
        ("[ $X = 1 ] && TP=4", "`TP` is set under a condition, which is not run"),
        ("TP=${X%%.*}", "`${X%%.*}` is not read"),
    ],
)
def test_a_value_that_needs_a_run_is_listed(assignment: str, reason: str) -> None:
    text = f"{assignment}\npython a.py {small('--tensor-model-parallel-size $TP')}\n"
    found = translate(Megatron(), "run.sh", text)
    assert dict(reasons(found))["--tensor-model-parallel-size"] == reason
    setting = settings(found)["layout.tp"]
    assert setting.value == "1"
    assert reason in setting.assumption
    assert text[setting.start : setting.end] == "--tensor-model-parallel-size $TP"


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"A=$(touch {mark})\n`touch {mark}`\ntouch {mark}\npython a.py {small('--x $A')}\n"
    translate(Megatron(), "run.sh", text)
    assert not mark.exists()


def test_a_file_of_variables_alone_is_read() -> None:
    text = f'export MODEL_ARGS="\n  {small()}\n  --swiglu"\n'
    assert values(translate(Megatron(), "conf.sh", text))["model.gated"] == "on"


def test_an_array_of_words_with_blanks_is_split() -> None:
    text = f'A=("--fp8-format hybrid" "--bf16")\npython a.py {small()} ${{A[@]}}\n'
    found = translate(Megatron(), "run.sh", text)
    assert values(found)["training.precision"] == "fp8_delayed"
    place = settings(found)["training.precision"]
    assert text[place.start : place.end] == "--fp8-format hybrid"


def test_unknown_flags_are_listed_with_what_may_be_meant() -> None:
    found = read(small("--tensor-model-paralel-size 2 --frobnicate 9"))
    assert reasons(found)["--tensor-model-paralel-size"] == (
        "did you mean `--tensor-model-parallel-size`?"
    )
    assert reasons(found)["--frobnicate"] == ""
    assert {key.name for key in found.unknown} >= {"--frobnicate"}


# Errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--num-attention-heads", "`--num-attention-heads` is 4 here, and set elsewhere"),
        ("--hidden-size 128", "`--hidden-size` is 96 here, and 128 elsewhere in the file"),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 1",
            "--num-virtual-stages-per-pipeline-rank and --num-layers-per-virtual-pipeline-stage",
        ),
        (
            "--recompute-activations --recompute-granularity full",
            "--recompute-activations is selective, and --recompute-granularity is full",
        ),
        ("--bf16 --fp16", "--bf16 and --fp16 do not go together"),
        ("--bf16 --fp8-format hybrid --fp4-format e2m1", "do not go together"),
        (
            "--tensor-model-parallel-size",
            "a whole number from 1 on is expected, and nothing follows",
        ),
        (
            "--tensor-model-parallel-size two",
            "a whole number from 1 on is expected, and two follows",
        ),
        ("--tensor-model-parallel-size 0", "a whole number from 1 on is expected, and 0 follows"),
        (
            "--tensor-model-parallel-size 2 4",
            "a whole number from 1 on is expected, and 2 4 follows",
        ),
        ("--num-experts 4 --moe-layer-freq __import__('os')", "a number or a list"),
        ("--num-experts 4 --moe-layer-freq [1]*99999999", "a number or a list"),
        ("--num-experts 4 --moe-layer-freq [1]*3", "the list has 3 layers, and --num-layers 2"),
        ("--num-experts 4 --moe-layer-freq [1,0]", "follow no pattern that can be written"),
        ("--num-experts 4 --moe-layer-freq 3", "the 2 layers are no multiple of 3"),
        ("--pipeline-model-parallel-layout Ex|L", "`x` is no layer"),
        ("--pipeline-model-parallel-layout tt", "one E stands first, and one L last"),
        ("--pipeline-model-parallel-layout E(t)*9999999L", "it has too many layers"),
        ("--pipeline-model-parallel-layout EtL", "it has 1 layers, and --num-layers 2"),
        ("--pipeline-model-parallel-layout EttmL", "1 layers that predict further tokens"),
        ("--num-layers-per-virtual-pipeline-stage 3", "2 layers / pp 1 / 3 is no whole number"),
        ("--cp-comm-type p2p a2a", "all layers have one way here"),
        ("--cp-comm-type mail", "mail is not known"),
        ("--normalization BatchNorm", "BatchNorm is not known"),
        ("--window-size wide", "two whole numbers are expected"),
        ("--hybrid-override-pattern M*M*", "layers of Mamba cannot be written"),
        ("--use-torch-fsdp2 --use-distributed-optimizer", "does not go together with"),
        ("--hidden-dropout often", "a number is expected, and often follows"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_written(flags: str, message: str) -> None:
    text = small(flags)
    found = Megatron().translate("run.args", text).problems
    assert any(message in problem.message for problem in found), [p.message for p in found]
    for problem in found:
        assert text[problem.start : problem.end].startswith("--")


def test_a_conflict_is_shown_at_both_places() -> None:
    text = small("--hidden-size 128")
    found = Megatron().translate("run.args", text).problems
    assert [text[one.start : one.end] for one in found] == ["--hidden-size 96", "--hidden-size 128"]


def test_a_value_that_stands_there_twice_is_no_conflict() -> None:
    found = read(small("--hidden-size 96"))
    assert reasons(found)["--hidden-size"] == "it stands there twice"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("python a.py --num-layers '2", "this quote has no end", "'"),
        ('A="--num-layers 2\npython a.py $A', "this quote has no end", '"'),
        ("python a.py --num-layers $(cat x", "this `(` has no `)`", "("),
        ("python a.py --num-layers ${N", "this `{` has no `}`", "{"),
        ("A=(--num-layers 2\npython a.py", "this `(` has no `)`", "("),
        ("python a.py --moe-layer-freq ([0]*3)", "the shell takes this `(` for its own", "("),
        ("A=(--layout E|L)\npython a.py", "`|` ends the word: quote it", "|"),
    ],
)
def test_a_text_that_is_no_script_is_an_error(text: str, message: str, place: str) -> None:
    (problem,) = Megatron().translate("run.sh", text).problems
    assert message in problem.message
    assert text[problem.start : problem.end] == place


def test_two_launches_are_an_error() -> None:
    text = f"python a.py {small()}\npython b.py {small()}\n"
    assert "another command with arguments" in problems(text, "run.sh")[0]


@pytest.mark.parametrize(
    "text", ["", "\x00", "echo hello", "#!/bin/bash\n", "--", "\\", "${", "$(("]
)
def test_a_file_without_arguments_is_an_error(run_command: Run, text: str) -> None:
    done = run_command("import", "--from", "megatron", "run.sh", files={"run.sh": text})
    assert done.code == 2
    assert "error[import]" in done.err


def test_references_that_grow_without_end_are_an_error() -> None:
    doubling = "".join(f"A{n + 1}=$A{n}$A{n}\n" for n in range(60))
    text = f"A0=xxxxxxxx\n{doubling}python a.py {small('--save $A60')}\n"
    assert "become too much text" in problems(text, "run.sh")[0]


@pytest.mark.slow
@pytest.mark.parametrize("flood", ["--warp-{n} {n} ", "ARGS+=(--warp-{n} {n})\n", "((((", "$(("])
def test_a_megabyte_of_arguments_has_an_answer(flood: str) -> None:
    body = "".join(flood.format(n=n) for n in range(1_000_000 // (len(flood) + 4)))
    text = f"{body}python a.py {small()} ${{ARGS[@]}}\n"
    if not flood.endswith("\n"):
        text = f"{small()} {body}"
    found = Megatron().translate("run.sh", text)
    assert found.blocks or found.problems


# Recipes of Megatron-Bridge


RECIPE = '''\
"""A recipe."""
import torch
import torch.nn.functional as F
from megatron.bridge.recipes.common import _pretrain_common

LENGTH = 8 * 1024


def llama_64gpu_config():
    """Ä."""
    cfg = _pretrain_common()
    cfg.model = GPTModelProvider(
        num_layers=80,
        hidden_size=8192,
        ffn_hidden_size=28672,
        num_attention_heads=64,
        num_query_groups=8,
        vocab_size=128256,
        seq_length=LENGTH,
        activation_func=F.silu,
        normalization="RMSNorm",
        gated_linear_unit=True,
        position_embedding_type="rope",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        add_bias_linear=False,
        share_embeddings_and_output_weights=False,
    )
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 2 + 2
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = bool(cfg.model.tensor_model_parallel_size > 1)
    cfg.model.pipeline_dtype = torch.bfloat16
    cfg.model.recompute_granularity = None
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    cfg.ddp.overlap_grad_reduce = False
    cfg.ddp.grad_reduce_in_fp32 = False
    cfg.checkpoint.save = "x"
    return cfg
'''


def test_a_recipe_is_read(tmp_path: Path) -> None:
    found = translate(Megatron(), "recipe.py", RECIPE)
    expected = {
        "layout.tp": "4",
        "layout.pp": "4",
        "layout.sequence_parallel": "on",
        "schedule.chunks": "5",
        "training.sequence": "8192",
        "training.global_batch": "128 sequences",
        "precision.gradients": "2 B",
        "overlap.gradients": "off",
        "model.biases": "off",
        "model.tied": "off",
    }
    assert expected.items() <= file_values(found).items()
    # The function that recipes start from sets the rest.
    assumed = settings(found)["layout.zero"]
    assert (assumed.value, "_pretrain_common" in assumed.assumption) == ("1", True)
    assert not found.unknown
    assert figures(tmp_path, RECIPE, 64, "recipe.py").figure("parameters") == 70_553_706_496


def test_an_attribute_of_a_recipe_has_its_place() -> None:
    found = translate(Megatron(), "recipe.py", RECIPE)
    places = {setting.key: setting for setting in settings(found).values()}
    for key in ("cfg.model.tensor_model_parallel_size", "cfg.train.global_batch_size"):
        assert RECIPE[places[key].start : places[key].end].startswith(f"{key} = ")
    one = places["cfg.model.num_layers"]
    assert RECIPE[one.start : one.end] == "num_layers=80"


def test_a_recipe_of_a_model_of_hugging_face() -> None:
    text = (
        "def small_config():\n"
        "    cfg = _pretrain_common()\n"
        '    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_provider()\n'
        '    cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"\n'
        "    cfg.model.seq_length = 4096\n"
        "    return cfg\n"
    )
    found = translate(Megatron(), "recipe.py", text)
    assert "catalog.models.llama3_8b" in [use.value for use in found.uses]
    assert "catalog.precisions.fp8_current" in [use.value for use in found.uses]
    # Megatron-Bridge 067f987df, recipes/common.py: two sequences of a micro-batch, 32 of a step.
    assert values(found)["training.micro_batch"] == "2"
    assert values(found)["training.global_batch"] == "32 sequences"


def test_code_of_a_recipe_is_listed_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = (
        "import os\n"
        "def my_config(n):\n"
        f"    os.system('touch {mark}')\n"
        f"    open({str(mark)!r}, 'w')\n"
        "    cfg = base_config()\n"
        "    cfg.model.tensor_model_parallel_size = int(os.environ['TP'])\n"
        "    cfg.model.context_parallel_size = n\n"
        "    if n > 1:\n"
        "        cfg.model.pipeline_model_parallel_size = 2\n"
        "    cfg.model.warp_factor = 9\n"
        "    return cfg\n"
    )
    found = translate(Megatron(), "recipe.py", text)
    assert not mark.exists()
    why = reasons(found)
    assert why["cfg.model.tensor_model_parallel_size"] == "it is code, and none is run"
    assert why["cfg.model.context_parallel_size"] == "`n` has no value in this file"
    assert "condition" in why["cfg.model.pipeline_model_parallel_size"]
    assert why["base_config"] == "what it sets is in another file"
    assert "cfg.model.warp_factor" in why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def a(:\n", "no Python"),
        ("", "the file has no recipe"),
        ("print('hello')\n", "the file has no recipe"),
        (
            "def a():\n    cfg.model.seq_length = 1\ndef b():\n    cfg.model.seq_length = 2\n",
            "the file has several recipes (a, b)",
        ),
        ("(" * 100_000, "no Python"),
        ("x = " + "-" * 100_000 + "1", "no"),
        ("def a():\n    cfg.model.seq_length = 9**9**9\n", ""),
        ("\x00", "no Python"),
        ("def a():\n    cfg.model.seq_length = 1if x else 2\n", ""),
    ],
)
def test_python_that_is_no_recipe_has_an_answer(text: str, message: str) -> None:
    found = Megatron().translate("recipe.py", text)
    if message:
        assert message in found.problems[0].message
    else:
        assert "cfg.model.seq_length" in reasons(found)


@pytest.mark.parametrize(
    ("name", "text"), [("run.args", DEEPSEEK), ("train.sh", MIXTRAL), ("recipe.py", RECIPE)]
)
def test_a_part_of_a_file_has_an_answer(name: str, text: str) -> None:
    for end in range(0, len(text), 17):
        found = Megatron().translate(name, text[:end])
        assert found.blocks or found.problems or found.unknown


def test_the_file_is_recognized() -> None:
    importer = Megatron()
    assert importer.recognizes("run.args", LLAMA)
    assert importer.recognizes("run.sh", MIXTRAL)
    assert importer.recognizes("recipe.py", RECIPE)
    assert not importer.recognizes("notes.txt", "buy milk")


def test_a_translation_is_what_is_evaluated(run_command: Run) -> None:
    options = ["--set", "cluster.devices=64", "--format", "jsonl"]
    direct = run_command("eval", *MACHINE, *options, "run.args", files={"run.args": LLAMA})
    uses = MACHINE[2:]
    spec = run_command("import", "run.args", *uses).out
    again = run_command(
        "eval",
        "job.par",
        "--format",
        "jsonl",
        files={"job.par": f"{spec}\ncluster {{ devices = 64 }}\n"},
    )
    first, second = (json.loads(done.out)["results"][0]["figures"] for done in (direct, again))
    assert {n: f["value"] for n, f in first.items()} == {n: f["value"] for n, f in second.items()}
