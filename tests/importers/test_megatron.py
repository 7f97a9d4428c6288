"""Arguments of Megatron-LM: sizes, layouts, places, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parcost_formats.tools.megatron import Megatron

from ..rows import mark_most, try_each
from .megatron_files import (
    DEEPSEEK,
    LLAMA,
    MACHINE,
    MIXTRAL,
    NARROW_STATE,
    Run,
    figures,
    file_values,
    problems,
    read,
    reasons,
    settings,
    small,
    translate,
    values,
)

# Models


def test_llama_70b_has_its_published_parameters(tmp_path: Path) -> None:
    # 128,256 rows are a multiple of 64 x tp 4 = 256: nothing is padded.
    assert figures(tmp_path, LLAMA, 64).figure("parameters") == 70_553_706_496


@pytest.mark.slow
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


@try_each(
    "flags, attributes",
    [
        ("", {"model.ffn": "384"}),  # 4 x 96
        ("--swiglu", {"model.ffn": "256", "model.gated": "on"}),  # 4 x 96 x 2/3
        ("--swiglu --ffn-hidden-size 100", {"model.ffn": "100"}),
        ("--squared-relu", {"model.gated": "off", "model.ffn": "384"}),
        ("--squared-relu", {"model.squared_relu": "on"}),
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
        ("--num-experts 4 --moe-layer-freq \"'[0]+[1]*1'\"", {"model.dense_first": "1"}),
        ("--num-experts 0", {}),
        ("--tensor-model-parallel-size 2 --num-experts 4", {"layout.etp": "2"}),
        ("--use-tp-pp-dp-mapping", {"layout.order": '"tp-cp-pp-dp"'}),
        ("--ddp-average-in-collective", {"sharding.gradient_average": "scaled_experts"}),
        ("--calculate-per-token-loss", {"sharding.gradient_average": "scaled"}),
        ("--no-check-for-nan-in-loss-and-grad", {"sharding.gradient_check": "off"}),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim",
            {"sharding.gradient_average": "collective", "sharding.gradient_check": "off"},
        ),
    ],
)
def test_flags_and_defaults_of_models(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


def test_query_groups_need_their_switch() -> None:
    found = read(small("--num-query-groups 2"))
    assert "model.kv_heads" not in values(found)
    assert "--group-query-attention" in reasons(found)["--num-query-groups"]


def test_a_vocabulary_that_nothing_states_raises_a_question() -> None:
    found = read(small("--tokenizer-type HuggingFaceTokenizer"))
    assert "model.vocabulary" in [one.attribute for one in found.questions]
    assert "model.vocabulary" not in values(found)


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/data/tokenizer.model", False),
        ("/data/llama2_en.model", False),
        ("$FOLDER/ours-100k.model", True),
    ],
)
def test_a_tokenizer_of_llama_with_other_tokens_raises_a_question(path: str, is_own: bool) -> None:
    found = read(small(f"--tokenizer-type Llama2Tokenizer --tokenizer-model {path}"))
    assert (values(found).get("model.vocabulary") == "32_000") is not is_own
    reasons_of = [one.reason for one in found.questions if one.attribute == "model.vocabulary"]
    assert len(reasons_of) == is_own
    assert all("has the tokens of ours-100k.model" in one for one in reasons_of)


@try_each(
    "flags, attributes",
    [
        # The default of pretrain_gpt.py reads merges; GPT-2 has 50,257 tokens.
        ("--vocab-file v.json --merge-file $1", {"model.vocabulary": "50_257"}),
        ("--pad-vocab-size-to 250880", {"model.vocabulary": "250_880"}),
        ("--tokenizer-model meta-llama/Llama-3.1-8B-Instruct", {"model.vocabulary": "128_256"}),
        (
            "--position-embedding-type alibi --embed-layernorm",
            {"model.alibi": "on", "model.embedding_norm": "on"},
        ),
        ("--checkpoint-activations", {"training.recompute": "full"}),
        ("--deepspeed --zero-stage 2", {"layout.zero": "2"}),
        (
            "--deepspeed --ds-sequence-parallel-size 4 --checkpoint-in-cpu --use-flash-attn-v2",
            {
                "layout.cp": "4",
                "context.algorithm": "ulysses",
                "offload.activations": "100 %",
                "kernels.attention": "flash_2",
            },
        ),
        (
            "--normalization rmsnorm --num-key-value-heads 2",
            {"model.norm": "rms", "model.kv_heads": "2"},
        ),
        (
            "--pp-partition-method type:transformer|embedding",
            {"schedule.count_embedding": "on", "schedule.count_head": "on"},
        ),
        # Megatron-DeepSpeed: experts in every second layer.
        (
            "--deepspeed --num-experts 8 --topk 1 --moe-expert-parallel-size 4",
            {"model.experts": "8", "model.moe_every": "2", "model.top_k": "1", "layout.ep": "4"},
        ),
    ],
)
def test_flags_of_forks_are_read(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


@try_each(
    "script, asked",
    [
        ("pretrain_gpt.py", set()),
        ("tools/my_pretrain_gpt.py", set()),
        ("train.py", set()),
        ("pretrain_llama.py", {"model.gated", "model.norm", "model.biases", "model.tied"}),
        ("pretrain_llama.py --swiglu --disable-bias-linear", {"model.norm", "model.tied"}),
    ],
)
def test_layers_of_a_script_of_a_fork_raise_questions(script: str, asked: set[str]) -> None:
    """Llama in a script of a fork is gated without a flag: the defaults hold for Megatron-LM."""
    found = read(f"torchrun --nproc_per_node 8 {script} {small()} --vocab-size 512")
    layers = {one.attribute for one in found.questions if one.attribute.startswith("model.")}
    assert layers == asked


def test_a_file_of_a_model_asks_for_the_job_with_its_own_reason() -> None:
    """The variable of the flag that the question points at is no answer to it."""
    found = read("MODEL_ARGS=(--hidden-size $WIDTH --num-layers 4 --num-attention-heads 8)")
    asked = {one.attribute: one for one in found.questions}
    assert asked["model.hidden"].answers[0] == "--set-env WIDTH=VALUE"
    assert "only the arguments of a model" in asked["layout.tp"].reason
    assert asked["layout.tp"].answers == ("--set layout.tp=1", "--set layout.tp=8")


@pytest.mark.parametrize(
    "flag", ["--bf16=false", "--bf16 false", "--use-distributed-optimizer true"]
)
def test_a_value_of_a_switch_is_an_error_as_in_the_tool(flag: str) -> None:
    (message,) = problems(small(flag))
    assert "it is a flag without a value" in message


def test_flags_of_the_first_releases_are_read() -> None:
    """GPT-NeoX 1 and Megatron-LM 1: the pipeline of --pipe-parallel-size was dropped."""
    flags = "--num-layers 24 --hidden-size 1536 --num-attention-heads 16 --seq-length 1024 --fp16"
    old = f"deepspeed pretrain_gpt2.py {flags} --model-parallel-size 2 --pipe-parallel-size 4 "
    found = read(f"{old} --batch-size 4 --gas 16", "run.sh")
    stated = values(found)
    assert (stated["layout.tp"], stated["layout.pp"]) == ("2", "4")
    assert stated["training.micro_batch"] == "4"
    assert stated["training.global_batch"] == "(16 * micro_batch * layout.dp) sequences"
    lost = read(f"{old} --batch-size 4 --deepspeed --deepspeed_config ds.json", "run.sh")
    asked = {one.attribute: one.reason for one in lost.questions}
    assert "the file that it names does not exist" in asked["training.global_batch"]


@pytest.mark.parametrize(
    "flag", ["--distribute-checkpointed-activations", "--partition-activations"]
)
def test_shared_inputs_of_recomputed_layers_raise_no_question(flag: str) -> None:
    found = read(small(f"--checkpoint-activations {flag}"))
    assert "training.recompute" not in {one.attribute for one in found.questions}
    assert values(found)["training.recompute"] == "full"
    assert flag in reasons(found)


def test_a_script_without_flags_names_the_file_that_it_starts() -> None:
    text = "# pretrain_gpt.py --num-layers\nexport TP=2\nbash train/inner.sh\n"
    (problem,) = Megatron().translate("run.sh", text).problems
    assert "`train/inner.sh`, which the script starts" in problem.message
    assert text[problem.start : problem.end] == "train/inner.sh"


def test_all_unknown_variables_of_a_product_are_one_answer() -> None:
    """The second one was asked for in a second round."""
    text = "DP=$((NODES * RANKS))\npython pretrain_gpt.py "
    found = read(text + small("--global-batch-size $((DP * 8))"), "run.sh")
    asked = next(one for one in found.questions if one.attribute == "training.global_batch")
    assert asked.answers[0] == "--set-env NODES=VALUE --set-env RANKS=VALUE"


def test_a_script_that_names_its_model_asks_for_it_there() -> None:
    flags = "--tensor-model-parallel-size 1 --micro-batch-size 1 --bf16 --seq-length 1024"
    text = f"torchrun --nproc_per_node 8 aiak/train.py {flags} --model-name own-7b"
    (asked,) = read(text, "run.sh").questions
    assert asked.attribute == "model"
    assert text[asked.start : asked.end] == "--model-name own-7b"
    (problem,) = Megatron().translate("run.sh", f"{text} --num-latent-frames 81").problems
    assert "diffusion models are not modeled" in problem.message


def test_a_variable_of_flags_behind_an_unknown_switch_is_no_value() -> None:
    command = small("--bf16 --switch-of-a-fork $ARGS")
    found = read(f'ARGS="--log-interval 1"\npython pretrain_gpt.py {command}', "run.sh")
    (one,) = [one for one in found.unknown if one.name == "--switch-of-a-fork"]
    assert "has no value" not in one.reason


def test_a_script_of_another_tool_with_flags_of_the_same_names_is_rejected() -> None:
    flags = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 8 --bf16"
    (message,) = problems(f"torchrun tune.py {flags} --base-model m --zero-stage 3\n", "run.sh")
    assert "it is not a script of Megatron-LM" in message
    assert not problems(f"torchrun tune.py {flags} --tensor-model-parallel-size 2\n", "run.sh")


def test_a_checkpoint_needs_the_width_of_experts_beside_that_of_the_mlp() -> None:
    flags = "--num-experts 8 --ffn-hidden-size 14336 --use-checkpoint-args"
    (question,) = (q for q in read(small(flags)).questions if q.attribute == "model.expert_ffn")
    assert list(question.answers) == ["--set model.expert_ffn=14336"]


def test_a_flag_without_effect_may_stand_twice() -> None:
    found = read(small("--save-interval 10 --eval-iters 1 --save-interval 20 --eval-iters -1"))
    assert not found.problems


@pytest.mark.parametrize(
    "launcher",
    ["mpirun -np 16 -x PATH", "srun -n 16", "deepspeed --num_nodes 2 --num_gpus 8"],
)
def test_a_launcher_has_the_devices(launcher: str) -> None:
    found = translate(Megatron(), "run.sh", f"{launcher} pretrain_gpt.py {small('')}")
    assert values(found)["cluster.devices"] == "16"


# Layouts


RING_OF_RINGS = "--context-parallel-size 8 --cp-comm-type a2a+p2p"


@try_each(
    "flags, attributes",
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
            f"{RING_OF_RINGS} --hierarchical-context-parallel-sizes 2 4",
            {"context.algorithm": "hybrid", "context.ulysses": "2"},
        ),
    ],
)
def test_what_ranks_share_out(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


@try_each(
    "flags, attributes",
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
        # 24 layers on the three stages after the embedding
        ("--standalone-embedding-stage", {"schedule.stages": "[0, 8, 8, 8]"}),
    ],
)
def test_stages_of_a_pipeline(flags: str, attributes: dict[str, str]) -> None:
    text = small(flags, "--pipeline-model-parallel-size 4").replace("layers 2", "layers 24", 1)
    if "(ttt|)*7" in flags:  # 3 + 7 x 3 layers on nine parts are not a multiple of four
        assert "9 stages are not a multiple of pp 4" in problems(text)[0]
    else:
        assert attributes.items() <= values(read(text)).items()


def test_a_stage_for_the_embedding_alone_leaves_layers_that_divide() -> None:
    text = small("--standalone-embedding-stage", "--pipeline-model-parallel-size 4")
    assert "2 layers are not divisible by the 3 stages after the embedding" in problems(text)[0]
    alone = read(small("--standalone-embedding-stage", "--pipeline-model-parallel-size 1"))
    assert "schedule.stages" not in values(alone)


def test_the_layout_of_a_large_model_is_read() -> None:
    found = values(read(DEEPSEEK))
    stages = json.loads(found["schedule.stages"])
    assert stages == [3, *[2] * 29, 0, 0]
    assert sum(stages) == 61
    assert found["schedule.chunks"] == "4"
    assert found["model.dense_first"] == "3"
    assert "model.moe_every" not in found


@try_each(
    "flags, attributes",
    [
        ("", {"training.precision": "fp32"}),
        ("--fp16", {"training.precision": "fp16"}),
        ("--bf16 --fp8-format hybrid", {"training.precision": "fp8_delayed"}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", {"training.precision": "mxfp8"}),
        ("--bf16 --fp4-format e2m1", {"training.precision": "nvfp4"}),
        (
            "--bf16 --grad-reduce-in-bf16",
            {
                "precision.gradients": "2 B",
                # a cast (6), Adam (16 and 12), and a copy of the master (6); the norm of fp32
                "precision.update_traffic": "40 B",
                "precision.norm_traffic": "12 B",
            },
        ),
        # 2 + 2 + 1 bytes of state: 4 of the gradient, 2 x 5, a copy of the master (4 + 2).
        (
            f"--bf16 --use-precision-aware-optimizer {NARROW_STATE}",
            {"precision.optimizer": "5 B", "precision.update_traffic": "20 B"},
        ),
        (
            "--bf16 --fp8-format hybrid --fp8-param-gather --use-distributed-optimizer",
            {"precision.weights": "1 B", "precision.update_traffic": "33 B"},
        ),
        (
            "--bf16 --fp8-format hybrid --first-last-layers-bf16 --num-layers-at-end-in-bf16 2",
            {"precision.wide_first": "1", "precision.wide_last": "2"},
        ),
    ],
)
def test_recipes(flags: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(small(flags))).items()


@try_each(
    "flags, attributes",
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
        (
            "--pipeline-model-parallel-size 2 --no-align-param-gather",
            {"overlap.gather_start": "arrival"},
        ),
        (
            "--optimizer-cpu-offload --use-precision-aware-optimizer",
            {"offload.optimizer": "100 %"},
        ),
        ("--attention-backend fused", {"kernels.attention": "cudnn"}),
        ("--transformer-impl local", {"kernels.attention": "unfused"}),
        ("--transformer-impl local --use-flash-attn", {"kernels.attention": "flash_2"}),
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


@pytest.mark.parametrize(("share", "listed"), [("1.0", False), ("0.5", True)])
def test_a_part_of_a_head_that_is_rotated_is_listed(share: str, listed: bool) -> None:
    found = translate(Megatron(), "train.sh", f"python a.py {small(f'--rotary-percent {share}')}")
    assert ("--rotary-percent" in {key.name for key in found.unknown}) is listed


def test_flags_under_a_condition_raise_a_question() -> None:
    found = translate(Megatron(), "train.sh", MIXTRAL)
    (asked,) = found.questions
    assert asked.attribute == "model.kv_heads"
    assert "inside `if`, which parcost does not evaluate" in asked.reason
    assert [*asked.answers][:2] == ["--set-env DEBUG=1", "--set-env DEBUG="]
    assert "--log-interval" in {key.name for key in found.ignored}


def test_a_check_says_which_flag_may_be_meant(run_command: Run) -> None:
    text = MIXTRAL.replace("--tensor-model-parallel-size 1", "--tensor-model-paralel-size 2")
    assert text != MIXTRAL
    done = run_command("check", *MACHINE, "train.sh", files={"train.sh": text})
    assert done.code == 2
    assert "error[import-question]: not known: `model.kv_heads`, `layout.tp`" in done.out
    assert "`layout.tp`: `--tensor-model-paralel-size`" in " ".join(done.out.split())
    assert "`--tensor-model-parallel-size` was probably meant" in " ".join(done.out.split())
    done = run_command("check", *MACHINE, "train.sh", "--set", "layout.tp=1")
    assert "paralel" not in done.out


@pytest.mark.slow
def test_a_rule_names_the_flag_of_a_script(run_command: Run) -> None:
    options = ["--set", "model.kv_heads=8"]
    done = run_command("check", *MACHINE, *options, "train.sh", files={"train.sh": MIXTRAL})
    assert done.code == 1, done.out
    # pp 4 x ep 8 = 32 ranks, and the node has 8: two ranks of a stage.
    assert "error[experts-ranks]" in done.out
    line = 1 + MIXTRAL[: MIXTRAL.index("--expert-model-parallel-size")].count("\n")
    assert f"train.sh:{line}:5" in done.out
    assert "`--expert-model-parallel-size` is `layout.ep` here" in done.out
    assert "`--sequence-parallel` is `layout.sequence_parallel` here" in done.out
    nodes = MIXTRAL.replace('"1"', '"4"')
    done = run_command("check", *MACHINE, "four.sh", files={"four.sh": nodes})
    assert "experts-ranks" not in done.out


@pytest.mark.slow
def test_layers_that_do_not_divide_are_an_error_at_a_flag(run_command: Run) -> None:
    """As in Megatron-Core: num_layers should be divisible by pipeline_model_parallel_size."""
    text = LLAMA.replace("--num-layers 80", "--num-layers 82")
    options = [*MACHINE, "--set", "cluster.devices=64"]
    done = run_command("check", *options, "run.args", files={"run.args": text})
    assert done.code == 1
    assert "error[layers-divide]: 82 layers are not divisible by pp 4 x chunks 5 = 20" in done.out
    assert "is `layout.pp` here; Megatron-Core stops" in done.out
    assert "--decoder-last-pipeline-num-layers" in done.out
    options += ["--set", "schedule.assignment=short_ends"]
    assert run_command("check", *options, "run.args").code == 0
    done = run_command("check", *MACHINE, "run.args", "--set", "layout.pp=1", files={})
    assert "layers-divide" not in done.out


@pytest.mark.parametrize(
    ("more", "stated"),
    [("", True), ("--account-for-embedding-in-pipeline-split", False), ("--num-layers 9", False)],
)
def test_an_even_cut_is_assumed_if_layers_do_not_divide(more: str, stated: bool) -> None:
    text = f"python a.py {small('--pipeline-model-parallel-size 3')} --num-layers 8 {more}"
    found = translate(Megatron(), "train.sh", text)
    assert ("schedule.assignment" in settings(found)) is stated


@try_each(
    "script, devices",
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py {}", "32"),
        ("torchrun --nnodes=4 --nproc-per-node=8 pretrain_gpt.py {}", "32"),
        ("torchrun --standalone --nproc_per_node 4 pretrain_gpt.py {}", "4"),
        ("GPUS_PER_NODE=8\nNNODES=3\npython pretrain_gpt.py {}", "24"),
        ("WORLD_SIZE=$((8 * (2 + 1)))\npython pretrain_gpt.py {}", "24"),
        ("#SBATCH --nodes=16\ntorchrun --nproc_per_node 8 --nnodes $SLURM_NNODES x.py {}", "128"),
        ("#SBATCH --nodes=4 --gpus-per-node=8\nsrun python a.py {}", "32"),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:h100:8 # all\nsrun python a.py {}", "16"),
        (
            "cat <<EOF > job.sh\n#SBATCH --nodes=2\nsrun --ntasks-per-node=8 --nodes 2 python a.py {}\nEOF\nsbatch job.sh",
            "16",
        ),
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


@pytest.mark.parametrize("starter", ["torchrun", "python -m torch.distributed.run", "deepspeed"])
def test_a_task_that_starts_ranks_is_no_device(starter: str) -> None:
    ranks = "--num_gpus" if starter == "deepspeed" else "--nproc_per_node"
    text = (
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n"
        f"N=$(nvidia-smi -L | wc -l)\nsrun {starter} {ranks} $N a.py {small()}\n"
    )
    assert "cluster.devices" not in values(read(text))
    known = text.replace("#SBATCH --ntasks", "#SBATCH --gpus-per-node=8\n#SBATCH --ntasks")
    assert values(read(known))["cluster.devices"] == "32"


@try_each(
    "assignment, reason",
    [
        ("", "`TP` is not set in the file"),
        ("TP=$(rm -rf /)", "`$(rm -rf /)` is a command, which parcost does not run"),
        ("TP=`reboot`", "``reboot`` is a command, which parcost does not run"),
        ("TP=$2", "argument 2 of the script is unknown"),
        ("TP=$((NODES / 2))", "`NODES` is not set in the file"),
        ("[ $X = 1 ] && TP=4", "`TP` is set inside `if`, which parcost does not evaluate"),
        ("TP=${X%%.*}", "`X` is not set in the file"),
        ("TP=$(echo 1 | sort)", "`$(echo 1 | sort)` is a command, which parcost does not run"),
    ],
)
def test_a_value_that_needs_a_run_raises_a_question(assignment: str, reason: str) -> None:
    text = f"{assignment}\npython a.py {small('--tensor-model-parallel-size $TP')}\n"
    found = translate(Megatron(), "run.sh", text)
    (one,) = [one for one in found.questions if one.attribute == "layout.tp"]
    assert (one.attribute, reason in one.reason) == ("layout.tp", True)
    assert "--set layout.tp=1" in one.answers
    assert "layout.tp" not in settings(found)
    assert text[one.start : one.end] == "--tensor-model-parallel-size $TP"


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


def test_the_name_of_a_file_is_no_code(run_command: Run) -> None:
    """A file may have a line break in its name; what is written begins with that name."""
    name = "h\nsharding { prefetch = 3 }\n#.args"
    text = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1\n"
    done = run_command(
        "import", "--set", "model.vocabulary=32000", name, "--from", "megatron", files={name: text}
    )
    assert not [line for line in done.out.splitlines() if line.startswith("sharding")]
    assert r"h\nsharding" in done.out


def test_arguments_in_files_that_are_not_there_name_these_files() -> None:
    text = """source models/sizes.sh
. train_args.sh
torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]}
"""
    (problem,) = Megatron().translate("run.sh", text).problems
    assert (
        "`models/sizes.sh` and `train_args.sh`, which the script sources, are not"
        in problem.message
    )
    assert text[problem.start : problem.end] == "source models/sizes.sh"


@pytest.mark.parametrize("command", ["$ARGS $MORE", "$ARGS $(yq .MODEL_ARGS model.yaml)"])
def test_output_of_a_command_that_has_the_sizes_is_one_error(command: str) -> None:
    """No flag ahead of it takes it as a value, and no default is doubted."""
    text = f"""MORE=$(yq .MODEL_ARGS model.yaml | tr ' ' '=')
ARGS="--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 4"
torchrun --nproc_per_node 8 pretrain_gpt.py {command}
"""
    (problem,) = Megatron().translate("run.sh", text).problems
    assert problem.message.startswith("the arguments with the sizes of the model are not known")
    assert text[problem.start : problem.end] in ("$MORE", "$(yq .MODEL_ARGS model.yaml)")
    assert "write its output into the script" in problem.help
    degrees = "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 4"
    sized = text.replace(degrees, small())
    assert not Megatron().translate("run.sh", sized).problems


@pytest.mark.parametrize(
    ("pp", "flags", "stages"),
    mark_most(
        [
            (2, "--decoder_last_pipeline_num_layers 17", "[19, 17]"),  # of 36 layers
            (2, "--decoder_first_pipeline_num_layers 17", "[17, 19]"),
            (
                4,
                "--decoder_first_pipeline_num_layers 8 --decoder_last_pipeline_num_layers 6",
                "[8, 11, 11, 6]",
            ),
        ],
        3,
    ),
)
def test_stages_of_a_model_by_its_name_have_its_layers(
    run_command: Run, pp: int, flags: str, stages: str
) -> None:
    text = (
        f"NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B {flags} --max_length 4096 "
        f"--pipeline_model_parallel_size {pp} --global_batch_size 32\n"
    )
    options = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("show", "go.sh", *options, files={"go.sh": text})
    assert done.code == 0, done.err
    assert f"stages = {stages}" in " ".join(done.out.split())


@try_each(
    "flag, hint",
    [
        ("--zorp 8", ""),
        ("--gradient-checkpointing", ""),
        ("--use-zorp-optim", ""),
        ("--hidden-dropuot 0", "did you mean `--hidden-dropout`?"),
    ],
)
def test_only_a_similar_flag_is_proposed(flag: str, hint: str) -> None:
    """Dashes and words that many flags have are no similarity."""
    found = read(small(flag))
    assert [one.reason for one in found.unknown if one.name == flag.split(maxsplit=1)[0]] == [hint]


def test_the_stage_of_zero_without_its_engine_is_a_question() -> None:
    """Megatron-LM has no such flag, and Megatron-DeepSpeed reads it beside --deepspeed."""
    found = read(small("--bf16 --zero-stage 3"))
    (question,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "`--zero-stage` is of Megatron-DeepSpeed" in question.reason
    assert question.answers == ("--set layout.zero=0", "--set layout.zero=3")
    found = read(small("--bf16 --deepspeed --zero-stage 3"))
    assert not [one for one in found.questions if one.attribute == "layout.zero"]


def test_options_of_torchrun_in_a_file_of_arguments_are_of_the_launcher(run_command: Run) -> None:
    """A part of a script has no command; four nodes of eight devices are 32."""
    text = "TORCH=(--nnodes 4 --nproc_per_node 8 --rdzv-id 1)\nARGS=(--num-layers 8 --bf16)\n"
    found = translate(Megatron(), "part.sh", text)
    assert values(found)["cluster.devices"] == "32"
    assert not found.unknown
    done = run_command("eval", "part.sh", files={"part.sh": text.replace("8 --rdzv", "$N --rdzv")})
    assert "perhaps misspelled" not in done.out + done.err
    assert "`--nproc_per_node $N`" in done.out + done.err
