"""Files of tools that pass arguments of Megatron-LM on, and of jobs that the language lacks."""

from __future__ import annotations

import json
import random

import pytest

from parcost import ImportFile, ImportOptions
from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.nemo import NeMo

from ..rows import try_each
from .megatron_files import (
    LLAMA,
    MIXTRAL,
    PRIMUS,
    Run,
    problems,
    settings,
    small,
    translate,
    values,
)
from .translations import assumptions

SWIFT = """\
NPROC_PER_NODE=4 megatron sft \\
    --model Qwen/Qwen3-8B --tuner_type full --tensor_model_parallel_size 4 \\
    --sequence_parallel true --max_length 4096 --global_batch_size 32 --save_steps 10
"""
ARGUMENTS = """\
ENV_VARS:
  NCCL_ALGO: Ring
MODEL_ARGS:
  --num-layers: 4
  --hidden-size: 128
  --num-attention-heads: 4
  --seq-length: 256
  --micro-batch-size: 1
  --bf16: true
  --use-distributed-optimizer: true
TEST_TYPE: regular
"""


@try_each(
    "text, devices",
    [
        (SWIFT, "4"),
        (f"NNODES=2 {SWIFT}", "8"),
        (f"export NNODES=3\n{SWIFT}", "12"),
        (SWIFT.removeprefix("NPROC_PER_NODE=4 "), None),
    ],
)
def test_variables_of_ms_swift_have_its_devices(text: str, devices: str | None) -> None:
    assert values(Megatron().translate("train.sh", text)).get("cluster.devices") == devices


def test_a_listed_argument_of_ms_swift_is_no_misspelled_one(run_command: Run) -> None:
    """`model_author` contains `model`, and says who the model claims to be made by."""
    files = {"train.sh": f"{SWIFT.rstrip()} --model_author me --model_name mine\n"}
    done = run_command("import", "train.sh", "--verbose", files=files)
    assert "was probably meant" not in done.err
    assert "ms-swift 4.6: it does not affect the step" in " ".join(done.err.split())


def test_a_checkpoint_of_ms_swift_names_its_model() -> None:
    """The name of the model with the ending of Megatron-Core is an assumption, any other a question."""
    text = SWIFT.replace("--model Qwen/Qwen3-8B", "--load ckpt/Qwen3-30B-A3B-mcore")
    found = Megatron().translate("train.sh", text)
    assert values(found)["training.model"] == "qwen3_30b_a3b"
    assert "by its name" in assumptions(found)["training.model"]
    (question,) = Megatron().translate("train.sh", text.replace("-mcore", "-tuned")).questions
    assert question.attribute == "model"
    assert "--use catalog.models.qwen3_30b_a3b" in question.answers


def test_a_command_of_ms_swift_has_its_defaults() -> None:
    found = Megatron().translate("train.sh", SWIFT)
    expected = {
        "training.model": "qwen3_8b",
        "training.precision": "bf16",
        "training.sequence": "4096",
        "training.micro_batch": "1",  # ms-swift 4.6.0, megatron_args.py
        "training.global_batch": "32 sequences",
        "training.recompute": "selective",
        "training.dropout": "off",
        "layout.tp": "4",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
    }
    assert expected.items() <= values(found).items()
    moe = values(Megatron().translate("train.sh", SWIFT.replace("Qwen3-8B", "Qwen3-30B-A3B")))
    assert moe["layout.etp"] == "1"  # Megatron-LM itself takes tp
    assert moe["kernels.grouped_experts"] == "on"
    assert settings(found)["layout.zero"].assumption == (
        "ms-swift 4.6: use_distributed_optimizer is true"
    )
    assert not found.questions


def test_more_arguments_of_ms_swift_are_those_of_megatron() -> None:
    """`megatron_extra_kwargs` was an unknown key, so that the job recomputed its attention alone."""
    more = '{"recompute_granularity": "full", "overlap_grad_reduce": true, "lr_warmup_init": 1e-6}'
    text = f"{SWIFT.rstrip()} --torch_dtype bfloat16 --megatron_extra_kwargs '{more}'\n"
    found = Megatron().translate("train.sh", text)
    assert values(found)["training.recompute"] == "full"
    assert values(found)["overlap.gradients"] == "on"
    assert [one.name for one in found.unknown] == ["packing"]
    (problem,) = Megatron().translate("train.sh", text.replace('"overlap', "overlap")).problems
    assert "`--megatron_extra_kwargs`: a JSON object is expected" in problem.message


def test_checkpoints_of_several_layers_ask_for_no_model() -> None:
    """`recompute_num_layers` has the words of `num_layers`, which the catalogue entry states."""
    text = SWIFT.replace("--model Qwen/Qwen3-8B", "--load ckpt/Qwen3-30B-A3B-mcore")
    full = "--recompute_granularity full --recompute_method uniform --recompute_num_layers 4"
    found = translate(Megatron(), "train.sh", f"{text.rstrip()} {full}\n")
    assert not found.questions
    assert [one.name for one in found.missing] == ["--recompute_num_layers"]


def test_recomputation_of_ms_swift_may_be_none() -> None:
    """Its parser has full, selective and none; Megatron-LM leaves the flag out."""
    text = f"{SWIFT.rstrip()} --recompute_granularity none\n"
    found = Megatron().translate("train.sh", text)
    assert not found.problems
    assert "training.recompute" not in values(found)  # the language records none unless stated
    assert Megatron().translate("run.sh", "pretrain_gpt.py --recompute-granularity none").problems


@try_each(
    "word, parallel", [("True", "on"), ("False", "off"), ("0", "off"), ("no", "off"), ("1", "on")]
)
def test_switches_of_ms_swift_have_a_word_behind_them(word: str, parallel: str) -> None:
    """The parser of transformers takes any case; `False` was a stray word, and the switch on."""
    text = SWIFT.replace("--sequence_parallel true", "")
    found = Megatron().translate("train.sh", f"{text.rstrip()} --sequence_parallel {word}\n")
    assert values(found)["layout.sequence_parallel"] == parallel
    assert word not in [one.name for one in found.unknown]


def test_a_switch_of_ms_swift_with_an_unknown_word_is_not_on() -> None:
    text = f"source env.sh\n{SWIFT.rstrip()} --tp_comm_overlap $OVERLAP\n"
    found = Megatron().translate("train.sh", text)
    assert "overlap.tensor" not in values(found)
    assert "--tp_comm_overlap" in [one.name for one in found.unknown]


def test_short_sequences_of_ms_swift_are_listed() -> None:
    for word, is_listed in (("", True), ("--packing false", True), ("--packing true", False)):
        text = SWIFT.replace("--packing true", "").replace("--max_length", f"{word} --max_length")
        unknown = [one.reason for one in Megatron().translate("train.sh", text).unknown]
        assert any("only the maximum length" in one for one in unknown) == is_listed


@try_each(
    "change, missing",
    [
        (("--max_length", "--task_type embedding --max_length"), "heads other than that"),
        (("--tuner_type full", "--tuner_type lora_llm"), "this tuner is not modeled"),
        (("--max_length", "--lora_rank 8 --max_length"), "adapters of this tool are not supported"),
        (("sft", "rlhf --rlhf_type dpo"), "preference training"),
    ],
)
def test_adapters_of_ms_swift_are_rejected(change: tuple[str, str], missing: str) -> None:
    found = Megatron().translate("train.sh", SWIFT.replace(*change))
    assert missing in found.problems[0].message


@pytest.mark.slow
def test_a_command_of_ms_swift_changes_the_model_that_is_given(run_command: Run) -> None:
    """Defaults of Megatron-LM, such as a tied embedding, are no changes of Llama 2."""
    text = SWIFT.replace("Qwen/Qwen3-8B", "mine/Unknown-7B --num_layers 4")
    machine = ("--use=catalog.devices.h100_sxm", "--use=catalog.fabrics.hgx_h100")
    done = run_command("check", *machine, "run.sh", files={"run.sh": text})
    assert "`model` is not known" in done.out
    words = ("figures", "run.sh", "parameters", *machine, "--use=catalog.models.llama2_7b")
    # As above: 2 x 32,000 x 4,096 + 4 x (4 x 4,096^2 + 3 x 4,096 x 11,008 + 2 x 4,096) + 4,096
    assert "1,071,681,536" in run_command(*words, files={"run.sh": text}).out


def test_arguments_in_yaml_are_those_of_a_command() -> None:
    found = Megatron().translate("model_config.yaml", ARGUMENTS)
    expected = {"model.layers": "4", "layout.zero": "1", "training.precision": "bf16"}
    assert expected.items() <= values(found).items()
    muon = Megatron().translate("a.yaml", ARGUMENTS.replace("TEST", "  --optimizer: muon\nTEST"))
    assert "the optimizer Muon is not modeled" in muon.problems[0].message


RECIPE = """\
DEPENDENCIES:
  dockerfile: |
    FROM image
    RUN case $X in "a") Y=b ;; esac
ENV_VARS: {NCCL_ALGO: Ring}
ARGS:
  # the model
  num_layers: 6
  hidden_size: 256
  num_attention_heads: 4
  vocab_size: 1000
  num_experts: 8
  moe_layer_freq: "'([0]*2+[1]*4)'"
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: ${STAGES}
  sequence_parallel: true
  use_distributed_optimizer: true
  recompute_granularity: selective
  recompute_modules:
  - layernorm
  seq_length: 512
  micro_batch_size: 2
  global_batch_size: 64
  overlap_grad_reduce: false
  bf16: true
  fp8_recipe: blockwise
  fp8_format: e4m3
"""


@pytest.mark.parametrize("name", ["ARGS", "megatron_args"])
def test_a_recipe_has_names_of_arguments(name: str) -> None:
    recipe = RECIPE.replace("\nARGS:", f"\n{name}:")
    assert Megatron().recognizes("run.yaml", recipe)
    options = ImportOptions(environment=(("STAGES", "3"),))
    found = Megatron().read(ImportFile("run.yaml", recipe, options))
    expected = {
        "model.layers": "6",
        "model.dense_first": "2",  # the shell takes the quotes away
        "layout.tp": "2",
        "layout.pp": "3",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "recompute.norms": "on",
        "training.micro_batch": "2",
        "training.precision": "fp8_blockwise",
    }
    assert expected.items() <= values(found).items()
    assert values(found)["overlap.gradients"] == "off"
    assert not found.questions


def test_the_answer_for_a_variable_of_a_recipe_can_be_pasted(run_command: Run) -> None:
    done = run_command("import", "run.yaml", files={"run.yaml": RECIPE})
    assert "choose one: --set-env STAGES=VALUE | --set layout.pp=1" in done.err
    for flags in ("--set-env STAGES=3", "--set layout.pp=3"):
        done = run_command("import", "run.yaml", *flags.split(), files={"run.yaml": RECIPE})
        assert done.code == 0
        assert " pp = 3 " in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("flags", "attribute"),
    [
        ("--optimizer lamb", "precision"),
        ("--optimizer cpu-adam", "offload.optimizer"),
        ("--optimizer hybridadam --optimizer-offload-fraction 1.0", "offload.optimizer"),
    ],
)
def test_an_optimizer_with_other_state_raises_a_question(flags: str, attribute: str) -> None:
    text = f"python pretrain_gpt.py --bf16 {small('--micro-batch-size 1')} {flags}"
    found = Megatron().translate("run.sh", text)
    assert attribute in {one.attribute for one in found.questions}


@try_each(
    "flags, attribute",
    [
        ("--enable-zero-bubble", "schedule.kind"),
        ("--use-dualpipev", "schedule.kind"),
        ("--enable-fp8", "precision"),
        ("--sliding-window 4096", "model.window"),
        ("--activation-offload", "offload.activations"),
    ],
)
def test_a_flag_of_a_fork_that_may_decide_raises_a_question(flags: str, attribute: str) -> None:
    text = f"python pretrain_gpt.py --bf16 {small('--micro-batch-size 1')} "
    found = Megatron().translate("run.sh", text + flags)
    assert attribute in {one.attribute for one in found.questions}
    plain = Megatron().translate("run.sh", f"{text} --colour 3")
    assert attribute not in {one.attribute for one in plain.questions}


def test_names_that_only_contain_such_a_word_or_in_capitals_are_as_before() -> None:
    text = f"python pretrain_gpt.py --bf16 {small('--micro-batch-size 1')} --optimizer AdamW "
    found = Megatron().translate("run.sh", f"{text} --exploration-rate 3")
    assert not found.problems
    assert "precision" not in {one.attribute for one in found.questions}


@try_each(
    "flag, message",
    [
        ("--use-lora", "`--use-lora`: adapters of this tool are not supported yet"),
        ("--lora-blocks 8", "`--lora-blocks`: adapters of this tool are not supported yet"),
        ("--enable-galore", "`--enable-galore`: low-rank gradients are not modeled"),
        ("--visual-model-size 2", "`--visual-model-size`: vision towers are not modeled yet"),
    ],
)
def test_a_flag_of_a_fork_for_other_training_is_rejected(flag: str, message: str) -> None:
    text = f"python pretrain_gpt.py --bf16 {small('--micro-batch-size 1')} "
    assert [one.message for one in Megatron().translate("a.sh", text + flag).problems] == [message]
    assert (
        not Megatron()
        .translate("a.yaml", ARGUMENTS.replace("TEST", "  --use-lora: false\nTEST"))
        .problems
    )


def test_an_optimizer_that_the_configuration_of_deepspeed_names_is_read() -> None:
    flags = small("--micro-batch-size 1")
    script = "python pretrain_gpt.py --bf16 --deepspeed --deepspeed_config ds.json " + flags
    text = '{"bf16": {"enabled": true}, "optimizer": {"type": "KIND", "params": {"lr": 1}}}'
    for kind, asks in (("OneBitAdam", True), ("Adam", False)):
        file = ImportFile("run.sh", script, neighbor={"ds.json": text.replace("KIND", kind)}.get)
        found = Megatron().read(file)
        reasons = [one.reason for one in found.questions if one.attribute == "precision"]
        assert any("the optimizer is onebitadam" in one for one in reasons) is asks


@try_each(
    "command, missing",
    [
        ("python pretrain_mamba.py {}", "Mamba layers are not modeled"),
        ("python examples/multimodal/train.py {}", "vision towers are not modeled"),
        ("python pretrain_t5.py {}", "encoder-decoder models are not modeled"),
        ("python pretrain_bert.py {}", "BERT is not supported"),
        ("python train_rl.py {}", "reinforcement learning"),
        ("python a.py {} --hybrid-layer-pattern M-M*", "Mamba layers are not modeled"),
        ("python a.py {} --spec megatron.core.models.mamba.mamba_layer_specs s", "Mamba layers"),
        ("python a.py {} --spec my.layers mine", "selects layers of another module"),
        ("python a.py {} --optimizer dist_muon", "the optimizer Muon"),
        ("python a.py {} --experimental-attention-variant dsa", "attention of the kind `dsa`"),
        ("python train.py {} --rollout-batch-size 32 --rm-type math", "generation within"),
    ],
)
def test_jobs_that_the_language_lacks_are_rejected_by_name(command: str, missing: str) -> None:
    found = Megatron().translate("run.sh", command.format(small("--micro-batch-size 1")))
    assert any(missing in one.message for one in found.problems)


def test_supervised_fine_tuning_in_a_folder_of_reinforcement_learning_is_read() -> None:
    text = f"python tasks/math_rl/sft.py {small('--micro-batch-size 1')}"
    assert not Megatron().translate("run.sh", text).problems


def test_known_layers_of_a_spec_change_nothing() -> None:
    flags = "--spec megatron.core.models.gpt.gpt_layer_specs get_gpt_layer_local_spec"
    assert not Megatron().translate("run.args", small(flags)).problems


def test_files_of_other_tools_are_not_those_of_nemo() -> None:
    layout = "tensor_model_parallel_size: 2\n"
    assert NeMo().recognizes("a.yaml", f"model:\n  {layout}trainer:\n  devices: 8\n")
    assert not NeMo().recognizes("a.yaml", f"policy:\n  megatron_cfg:\n    {layout}")
    assert not NeMo().recognizes("a.yaml", PRIMUS)


def test_resolvers_of_nemo_are_computed() -> None:
    text = (
        "trainer:\n  devices: 8\nmodel:\n  tensor_model_parallel_size: 1\n  num_layers: 2\n"
        "  hidden_size: 64\n  num_attention_heads: 4\n"
        "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n"
        "  global_batch_size: ${multiply:${multiply:2, 4}, ${trainer.devices}}\n"
    )
    found = values(NeMo().translate("a.yaml", text))
    assert found["model.ffn"] == "256"
    assert found["training.global_batch"] == "64 sequences"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_damage_of_a_file_raises(seed: int) -> None:
    draw = random.Random(seed)
    recipe = "def a():\n    cfg = llama3_8b_pretrain_config()\n    cfg.model.x = [1, 2]\n"
    texts = {"a.sh": MIXTRAL, "a.args": LLAMA, "a.yaml": PRIMUS, "a.py": recipe, "b.sh": SWIFT}
    signs = ["(", ")", "{", "}", "$", '"', "'", "`", ";", "\n", "\\", "[", "=", "--", ":", "<<A"]
    for name, text in texts.items():
        for _ in range(40):
            at, size = draw.randrange(len(text)), draw.randrange(4)
            damaged = text[:at] + "".join(draw.sample(signs, size)) + text[at + size :]
            found = Megatron().read(ImportFile(name, damaged))
            assert bool(found.blocks) != bool(found.problems)
    for text in ("f() )", "f() (", "f()", ") f()", "function f {", "a=(", "$((", "case x in", "}"):
        assert Megatron().translate("a.sh", text).problems


UNSET = """\
unset TP
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 96 --seq-length 64 \\
  --num-attention-heads 4 --vocab-size 320 --tensor-model-parallel-size ${TP} --bf16 \\
  --micro-batch-size 1 --global-batch-size 8 --attention-dropout 0.0 --hidden-dropout 0.0 $EXTRA
"""


def test_a_flag_names_the_variable_that_is_empty_behind_it() -> None:
    found = translate(Megatron(), "run.sh", UNSET)
    assert not found.problems
    reasons = {one.name: one.reason for one in found.unknown}
    (question,) = [one for one in found.questions if one.attribute == "layout.tp"]
    assert "`TP` has no value in the file" in question.reason
    assert question.answers[0] == "--set-env TP=VALUE"
    assert reasons["$EXTRA"] == "`EXTRA` is not set in the file"  # no value of --hidden-dropout
    assert values(found)["training.dropout"] == "off"


def test_flags_in_a_variable_have_the_values_of_other_variables() -> None:
    text = 'TP=8\nLAYERS=4\nARGS=" --tensor-model-parallel-size $TP --num-layers $LAYERS \\\n"\nALL="$ARGS --bf16"\n'
    found = Megatron().translate("model.sh", text)
    assert not found.problems
    assert (values(found)["layout.tp"], values(found)["model.layers"]) == ("8", "4")


def test_replicas_of_pytorch_reduce_buckets_beside_backward() -> None:
    found = values(translate(Megatron(), "run.args", small("--DDP-impl torch")))
    assert (found["layout.zero"], found["overlap.gradients"]) == ("0", "on")
    assert (found["overlap.bucket"], found["overlap.first_bucket"]) == ("25 MiB", "1 MiB")


@try_each(
    "deciding, harmless",
    [
        ("--rerun-mode report_determinism_stats", "--rerun-mode validate_results"),
        ("--DDP-impl FSDP", "--DDP-impl local"),
        ("--DDP-impl FSDP", "--DDP-impl torch"),
        ("--distributed-backend gloo", "--distributed-backend nccl"),
        ("--no-pin-cpu-grads", ""),
        ("--no-pin-cpu-params", ""),
        ("--overlap-cpu-optimizer-d2h-h2d", ""),
        ("--deterministic-mode", ""),
        ("--cpu-torch-adam", ""),
        ("--disable-moe-token-dropping", ""),
    ],
)
def test_a_flag_that_decides_is_listed_unless_its_value_is_harmless(
    deciding: str, harmless: str
) -> None:
    flag = deciding.partition(" ")[0]
    found = [
        {one.name for one in translate(Megatron(), "run.args", small(flags)).unknown}
        for flags in (deciding, harmless)
    ]
    assert flag in found[0]
    assert flag not in found[1]


def test_a_job_that_only_evaluates_is_rejected() -> None:
    assert any("it has no training step" in one for one in problems(small("--skip-train")))


@try_each(
    "section, value, is_named",
    [
        ("curriculum_learning", {"enabled": True}, True),
        ("curriculum_learning", {"enabled": False, "max_difficulty": 64}, False),
        ("zero_optimization", {"offload_optimizer": {"device": "cpu", "ratio": 0.3}}, True),
        ("zero_optimization", {"offload_optimizer": {"device": "cpu"}}, False),
    ],
)
def test_keys_of_the_engine_that_decide_are_named(
    section: str, value: dict[str, object], is_named: bool
) -> None:
    script = f"python pretrain_gpt.py --deepspeed --deepspeed_config ds.json {small('--bf16')}"
    neighbor = {"ds.json": json.dumps({"bf16": {"enabled": True}, section: value})}.get
    found = Megatron().read(ImportFile("run.sh", script, neighbor=neighbor))
    assert any(section in one.reason for one in found.unknown) == is_named


def test_the_model_of_a_function_is_an_error_in_slime() -> None:
    text = SLIME.replace("--debug", "--custom-model-provider-path mine.provider --debug")
    (problem,) = Megatron().translate("run.sh", text).problems
    assert "another file" in problem.message
    text = SLIME.replace("--debug", "--custom-config-path mine.yaml --debug")
    found = translate(Megatron(), "run.sh", text)
    assert "--custom-config-path" in {one.name for one in found.unknown}


@pytest.mark.parametrize(
    ("flag", "attribute", "value"),
    [
        ("--attention-head-type multiquery", "model.kv_heads", "1"),  # of BigCode
        ("--glu-activation geglu", "model.gated", "on"),  # of BigScience
        ("--model-parallel-size 2", "layout.tp", "2"),  # of Megatron-LM before 2.0
    ],
)
def test_flags_of_forks_are_read(flag: str, attribute: str, value: str) -> None:
    assert values(Megatron().translate("run.args", small(flag)))[attribute] == value


def test_fused_attention_of_a_script_for_rocm_is_that_of_the_device() -> None:
    launch = f"torchrun --nproc_per_node 8 pretrain_gpt.py {small('--attention-backend fused')}"
    assert values(translate(Megatron(), "run.sh", launch))["kernels.attention"] == "cudnn"
    rocm = f"export HSA_NO_SCRATCH_RECLAIM=1\n{launch}"
    assert "kernels.attention" not in values(translate(Megatron(), "run.sh", rocm))


SLIME = """\
MODEL_ARGS=(--num-layers 4 --hidden-size 128 --num-attention-heads 4 --vocab-size 1000)
ray job submit -- python3 train_async.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 \\
  ${MODEL_ARGS[@]} --rollout-batch-size 128 --global-batch-size 128 --seq-length 512 \\
  --loss-type sft_loss --debug-train-only --tensor-model-parallel-size 2
"""


def test_a_supervised_fine_tuning_of_slime_is_read() -> None:
    found = translate(Megatron(), "run.sh", SLIME)
    expected = {
        "cluster.devices": "16",
        "training.precision": "bf16",  # its defaults, beside those of Megatron-LM
        "layout.zero": "1",
        "layout.tp": "2",
        "training.micro_batch": "1",
        "training.global_batch": "128 sequences",
    }
    assert expected.items() <= values(found).items()
    assert not found.questions
    idle = translate(Megatron(), "run.sh", SLIME.replace(" --debug-train-only", ""))
    assert values(idle) == values(found)
    (engines,) = [one.reason for one in idle.unknown if one.name == "--loss-type"]
    assert engines.startswith("without --debug-train-only, generation engines start")
    generating = SLIME.replace("--loss-type sft_loss", "")
    (problem,) = Megatron().translate("run.sh", generating).problems
    assert problem.message.startswith("`--rollout-batch-size`: reinforcement")


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ("--max-tokens-per-gpu 9216", "18"),  # samples of 512 tokens
        ("--max-tokens-per-gpu 9216 --context-parallel-size 2", "36"),
        ("--max-tokens-per-gpu 9216 --micro-batch-size 4", "18"),  # which slime ignores
        ("", "SAMPLES"),
    ],
)
def test_micro_batches_of_slime_that_are_packed_by_tokens_raise_a_question(
    more: str, answer: str
) -> None:
    text = SLIME.replace("--debug", f"--use-dynamic-batch-size {more} --debug")
    found = translate(Megatron(), "run.sh", text)
    (asked,) = found.questions
    assert asked.attribute == "training.micro_batch"
    assert "as many samples as fit into --max-tokens-per-gpu" in asked.reason
    assert asked.answers[0] == f"--set training.micro_batch={answer}"
    assert text[asked.start : asked.end] == "--use-dynamic-batch-size"
    assert "training.micro_batch" not in values(found)


def test_a_file_for_yaml_cfg_is_read() -> None:
    text = (
        "language_model:\n  num_layers: 4\n  hidden_size: 128\n  num_attention_heads: 4\n"
        "  num_query_groups: 2\n  activation_func: swiglu\n  gated_linear_unit: False\n"
        "model_parallel:\n  tensor_model_parallel_size: 2\n  bf16: True\n"
        "use_distributed_optimizer: True\nmicro_batch_size: 3\nseq_length: 256\n"
    )
    found = translate(Megatron(), "own.yaml", text)
    expected = {
        "model.layers": "4",
        "model.kv_heads": "2",
        "model.gated": "on",
        "layout.tp": "2",
        "layout.zero": "1",
        "training.precision": "bf16",
        "training.micro_batch": "3",
    }
    assert not found.problems
    assert expected.items() <= values(found).items()
    geglu = text.replace("swiglu", "gelu").replace("unit: False", "unit: True")
    assert values(translate(Megatron(), "own.yaml", geglu))["model.gated"] == "on"
    plain = text.replace("swiglu", "gelu")
    assert values(translate(Megatron(), "own.yaml", plain)).get("model.gated", "off") == "off"


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("--cli-arg-yaml-cfgs conf/model.yaml", True),
        ("--cli-arg-yaml-cfgs conf/model.yaml --bf16", False),
        ("--px-data-cfgs conf/data.yaml", False),
    ],
)
def test_a_file_of_flags_of_a_fork_may_have_the_precision(flags: str, asked: bool) -> None:
    text = f"python pretrain_gpt.py {small('--micro-batch-size 1')} {flags}"
    found = Megatron().translate("run.sh", text)
    assert ("precision" in {one.attribute for one in found.questions}) is asked
