"""DeepSpeed, FSDP and replicas under the Hugging Face Trainer: files, precision, launchers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from ..rows import try_each
from .finetuning_files import (
    BATCHES,
    DEEPSPEED,
    KEPT,
    ON_DISK,
    TRL,
    TRL_YAML,
    importer_of,
    read,
    read_file,
)
from .translations import assumptions, settings, uses

Run = Callable[..., Any]


CHECKPOINTS = "gradient_checkpointing: true"


def test_experts_that_deepspeed_shards_are_read_in_a_job_of_the_trainer() -> None:
    experts = {"enabled": True, "autoep_size": 4}
    engine = json.dumps({"zero_optimization": {"stage": 2}, "expert_parallel": experts})
    found = read("llamafactory", "bf16: true", "bf16: true\ndeepspeed: ds.json", ds=engine)
    assert settings(found)["layout.ep"] == "4"


def test_fsdp_recomputes_though_the_trainer_does_not() -> None:
    """The key of FSDP decides, and the one of the trainer beside it has no effect."""
    sharded = "fsdp: [full_shard]\nfsdp_config: {fsdp_activation_checkpointing: true}"
    found = read("axolotl", CHECKPOINTS, f"{CHECKPOINTS.replace('true', 'false')}\n{sharded}")
    assert not found.problems
    assert settings(found)["training.recompute"] == "full"


def test_a_file_of_deepspeed_beside_the_job_is_read() -> None:
    """ZeRO 3 in bf16 as the trainer says: 16 bytes per parameter."""
    auto = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'
    old, new = "bf16: true", "bf16: true\ndeepspeed: conf/z3.json"
    found = read("llamafactory", old, new, **{"conf/z3": auto})
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert uses(found)[-1] == "precisions.bf16_zero"
    wide = auto.replace('"stage": 3', '"stage": 3, "reduce_bucket_size": "auto"')
    found = read("llamafactory", old, new, **{"conf/z3": wide})
    size = "training.model.hidden * training.model.hidden"
    assert settings(found)["overlap.bucket"] == f"{size} * training.precision.reduction"
    (asked,) = read("llamafactory", old, new.replace("z3", "own")).questions
    assert asked.attribute == "layout.zero"
    assert "`conf/own.json`, which is not beside the file" in asked.reason
    assert "--set layout.zero=2" in asked.answers


@try_each(
    "name, stage",
    [
        ("conf/zero3.json", "3"),
        ("ds_config_zero2.json", "2"),
        ("conf/stage_1.json", "1"),
        ("ds_z3_config.json", "3"),
        ("zero3_offload.json", None),
        ("zero2_to_zero3.json", None),
        ("zero30.json", None),
        ("ds_config.json", None),
    ],
)
def test_the_name_of_a_missing_file_of_deepspeed_has_its_stage(
    name: str, stage: str | None
) -> None:
    """What else the file has is listed as unknown; with offload it is asked for."""
    found = read("axolotl", CHECKPOINTS, f"{CHECKPOINTS}\ndeepspeed: {name}")
    if stage is None:
        assert found.questions
        return
    assert settings(found)["layout.zero"] == stage
    why = f"the name of `{name.rpartition('/')[2]}`, which is not beside the file"
    assert assumptions(found)["layout.zero"] == why
    (left,) = [one for one in found.missing if one.name == "deepspeed"]
    assert f"ZeRO {stage} is assumed from the name" in left.reason
    assert uses(found)[-1] == "precisions.bf16_zero"


@try_each(
    "more, asked",
    [
        ("--deepspeed ds.json", {"layout.zero", "precision"}),
        ("--deepspeed", {"layout.zero", "precision"}),
        ("--deepspeed --zero_stage 2", {"precision"}),
        ("--deepspeed ds.json --bf16", {"layout.zero"}),
    ],
)
def test_types_of_a_configuration_of_deepspeed_that_is_not_there_raise_questions(
    more: str, asked: set[str]
) -> None:
    """Scripts of DeepSpeed-Chat have fp16 in their own configuration; fp32 was taken."""
    script = f"deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf {more} "
    script += "--max_seq_len 512 --per_device_train_batch_size 4 --gradient_accumulation_steps 1\n"
    one = importer_of("trl")
    found = one.read(ImportFile("run.sh", script))
    assert {one.attribute for one in found.questions} == asked
    assert settings(found)["training.sequence"] == "512"
    if "zero_stage" in more:
        assert settings(found)["layout.zero"] == "2"


@pytest.mark.slow
def test_what_a_file_that_is_not_there_decides_stays_a_warning(run_command: Run) -> None:
    """--set layout.zero answers the question; offload and buckets of the file stay unknown."""
    script = TRL.replace("--bf16", "--bf16 --deepspeed ds.json")
    hardware = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    answer = ("--set", "layout.zero=3", "--warnings")
    done = run_command("eval", "run.sh", *hardware, *answer, files={"run.sh": script})
    assert "affect step time but could not be used: `deepspeed`" in " ".join(done.out.split())
    (lacking,) = (one for one in read("trl", "--bf16", "--bf16 --deepspeed ds.json").missing)
    assert "offloading, buckets and recomputation" in lacking.reason


def test_a_launcher_whose_file_is_not_there_raises_questions() -> None:
    """DeepSpeed and FSDP keep weights in fp32 beside those of the script; replicas do not."""
    found = read("trl", "--num_processes", "--config_file zero2.yaml --num_processes")
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}


def test_states_of_eight_bits_take_two_bytes_and_their_scales() -> None:
    """Two moments of 1 B, and 4 B per 256 elements of each: 2.03125 B; a master of 4 B more."""
    values = settings(read("axolotl", "adamw_torch_fused", "adamw_bnb_8bit"))
    assert values["precision.optimizer"] == "2.03125 B"
    text = "adamw_bnb_8bit\ndeepspeed: z3.json"
    bf16 = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    values = settings(read("axolotl", "adamw_torch_fused", text, z3=bf16))
    assert values["precision.optimizer"] == "6.03125 B"


def test_two_narrow_types_exclude_one_another() -> None:
    one = importer_of("trl")
    text = TRL.replace("--bf16", "--fp16 --bf16")
    assert text != TRL
    messages = {problem.message for problem in one.read(ImportFile("run.sh", text)).problems}
    assert messages == {
        "`bf16`: bf16 and fp16 cannot both be enabled",
        "`fp16`: bf16 and fp16 cannot both be enabled",
    }


def test_batches_of_a_file_of_deepspeed_have_to_agree_with_the_trainer() -> None:
    engine = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}'
    old, new = "bf16: true", "bf16: true\ndeepspeed: z2.json"
    first, second = read("llamafactory", old, new, z2=engine).problems
    assert "`per_device_train_batch_size` and `train_micro_batch_size_per_gpu`" in first.message
    assert first.message == second.message
    values = settings(read("llamafactory", old, new, z2=engine.replace("2,", "1,")))
    assert values["layout.zero"] == "2"
    batch = '{"train_batch_size": 64, "zero_optimization": {"stage": 2}}'
    values = settings(read("llamafactory", old, new, z2=batch))
    assert values["training.global_batch"] == "64 sequences"


EACH_BATCH = "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}"


@try_each(
    "lines, accumulate",
    [
        ("gradient_accumulation_steps: 8\nfsdp: [full_shard, auto_wrap]", "whole"),
        ("gradient_accumulation_steps: 1\nfsdp: [full_shard, auto_wrap]", "whole"),
        ("gradient_accumulation_steps: 8\nfsdp: [no_shard]", None),
        ("gradient_accumulation_steps: 8", None),
        (
            f"gradient_accumulation_steps: 8\nfsdp: [full_shard, auto_wrap]\n{EACH_BATCH}",
            "shard",
        ),
    ],
)
def test_gradients_under_fsdp_are_whole_up_to_the_last_micro_batch(
    lines: str, accumulate: str | None
) -> None:
    """Trainer reduces them in the last micro-batch alone, unless each is stated.

    Whole gradients have the type of FSDP, and sharded ones that of the fp32 shards. A single
    micro-batch is the last one.
    """
    found = settings(read("axolotl", "gradient_accumulation_steps: 4", lines))
    assert found.get("sharding.accumulate") == accumulate
    assert found.get("precision.whole_gradients") == ("2 B" if "fsdp" in lines else None)
    assert "precision.gradients" not in found


def test_half_a_folder_name_is_no_shipped_file() -> None:
    """`my_accelerate_configs/zero3.yaml` is the user's own file, whose stage is not known."""
    one = importer_of("trl")
    launch = TRL.replace("--num_processes 8", "--config_file my_accelerate_configs/zero3.yaml")
    found = one.read(ImportFile("run.sh", launch))
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}
    assert "cluster.devices" not in settings(found)


def test_a_launch_without_a_configuration_asks_for_that_of_the_machine() -> None:
    """`accelerate launch` alone reads a file in the home folder, which may shard."""
    one = importer_of("trl")
    found = one.read(ImportFile("run.sh", TRL.replace(" --num_processes 8", "")))
    asked = {one.attribute: one for one in found.questions}
    assert asked.keys() == {"layout.zero", "precision"}
    assert "the one of the machine decides" in asked["layout.zero"].reason
    assert "--use accelerate.yaml" in asked["layout.zero"].answers
    stated = one.read(ImportFile("run.sh", TRL.replace("--num_processes 8", "--multi_gpu")))
    assert settings(stated)["layout.zero"] == "0"


def test_lion_has_one_moment() -> None:
    """Weights of 4 B: reads gradient, weight and moment, writes weight and moment: 4 x 5 B."""
    found = read("llamafactory", "bf16: true", "bf16: true\noptim: lion_32bit")
    assert not found.problems
    assert settings(found)["precision.optimizer"] == "4 B"
    assert settings(found)["precision.update_traffic"] == "20 B"


@try_each(
    "tool, name, zero",
    [
        ("llamafactory", "examples/deepspeed/ds_z3_config.json", "3"),
        ("llamafactory", "./examples/deepspeed/ds_z2_config.json", "2"),
        ("axolotl", "deepspeed_configs/zero1.json", "1"),
        ("axolotl", "/workspace/axolotl/deepspeed_configs/zero3_bf16.json", "3"),
    ],
)
def test_a_file_of_deepspeed_that_the_tool_brings_is_assumed(
    tool: str, name: str, zero: str
) -> None:
    """16 bytes per parameter, as in every file of DeepSpeed with `auto` and bf16."""
    found = read(tool, "bf16: true\n", f"bf16: true\ndeepspeed: {name}\n")
    assert not found.questions
    assert settings(found)["layout.zero"] == zero
    assert uses(found)[-1] == "precisions.bf16_zero"
    assert name.rpartition("/")[2] in assumptions(found)["layout.zero"]
    own = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}}'
    found = read(tool, "bf16: true\n", "bf16: true\ndeepspeed: z.json\n", z=own)
    assert "layout.zero" not in assumptions(found)


def test_a_trainer_may_name_its_engine_as_deepspeed_does() -> None:
    text = DEEPSPEED.replace("--deepspeed ds.json", "--deepspeed_config ds.json")
    found = read_file("trl", ImportFile("run.sh", text, PLAIN, ON_DISK.get))
    assert settings(found)["layout.zero"] == "2"


def test_tensor_parallelism_of_deepspeed_is_read() -> None:
    own = '{"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4}}'
    line = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True "
        "--per_device_train_batch_size 2 --max_seq_length 4096 --deepspeed ds.json\n"
    )
    found = read_file("trl", ImportFile("run.sh", line, neighbor={"ds.json": own}.get))
    assert settings(found)["layout.tp"] == "4"


@pytest.mark.parametrize(
    ("recipe", "framework", "gradients"),
    [
        ("bf16_fsdp", "frameworks.transformers", "whole"),
        ("bf16_zero", "frameworks.deepspeed", None),
    ],
)
def test_the_answer_on_precision_chooses_the_engine(
    recipe: str, framework: str, gradients: str | None
) -> None:
    """FSDP waits for the last of four micro-batches, and DeepSpeed has types of its own."""
    text = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 1\nbf16: true\n"
    options = evolve(
        PLAIN, uses=(f"catalog.precisions.{recipe}",), settings=(("layout.zero", "3"),)
    )
    one = importer_of("trl")
    found = one.read(ImportFile("a.yaml", text + "gradient_accumulation_steps: 4\n", options))
    assert framework in uses(found)
    assert settings(found).get("sharding.accumulate") == gradients


def test_a_configuration_without_a_launcher_asks_what_it_shards() -> None:
    found = read_file("trl", ImportFile("run.yaml", TRL_YAML))
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}
    engine = read_file("trl", ImportFile("run.yaml", f"{TRL_YAML}distributed_type: MULTI_GPU\n"))
    assert not engine.questions
    assert settings(engine)["layout.zero"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        "distributed_type: FSDP\nfsdp_config: {fsdp_reshard_after_forward: true}\n",
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
    ],
)
def test_a_launcher_in_a_file_of_its_own_decides_on_the_copies_of_weights(
    run_command: Callable[..., Any], launcher: str
) -> None:
    """Weights, gradients and two moments of 4 B in FSDP; 2 + 2 + 12 B in DeepSpeed."""
    more = "mixed_precision: bf16\nnum_processes: 8\n"
    files = {"run.yaml": TRL_YAML, "launch.yaml": f"{launcher}{more}"}
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    command = ["figures", "run.yaml", "--use", "launch.yaml", *machine, "bytes_per_parameter"]
    done = run_command(*command, files=files)
    assert done.code == 0, done.err
    assert "16 B" in done.out


def test_narrow_states_beside_a_launcher_are_listed() -> None:
    options = evolve(PLAIN, files=("launch.yaml",))
    text = f"{TRL_YAML}optim: adamw_8bit\n"
    found = read_file("trl", ImportFile("run.yaml", text, options))
    assert "optim" in {one.name for one in found.missing}


def test_sharding_of_the_command_line_leaves_no_replicas() -> None:
    options = evolve(PLAIN, settings=(("layout.zero", "3"),))
    found = read_file("trl", ImportFile("run.sh", TRL, options))
    assert not {"layout.zero", "overlap.bucket"} & settings(found).keys()
    assert not any("DistributedDataParallel" in one.assumption for one in found.uses)


@pytest.mark.parametrize("adapters", ["", " --use_peft --lora_r 16"])
@pytest.mark.parametrize(
    "launch, given",
    [
        ("accelerate launch --multi_gpu --num_processes 8", ()),
        ("accelerate launch --num_processes 8", (("layout.zero", "0"),)),
        ("accelerate launch", (("layout.zero", "0"), ("cluster.devices", "8"))),
    ],
)
def test_replicas_have_nothing_of_fsdp(
    launch: str, given: tuple[tuple[str, str], ...], adapters: str
) -> None:
    """The recipe of replicas was called `bf16_fsdp`, and `--set layout.zero=0` was FSDP."""
    words = f"{launch} trl/scripts/sft.py --model_name_or_path Qwen/Qwen3-4B --bf16 true"
    text = f"{words} --max_length 4096 --packing true --per_device_train_batch_size 1{adapters}\n"
    options = evolve(PLAIN, settings=given)
    found = read_file("trl", ImportFile("run.sh", text, options))
    assert {"layout.zero", "overlap.bucket"} <= settings(found).keys()
    facts = [*uses(found), *(one.assumption for one in found.uses), *assumptions(found).values()]
    assert not [one for one in facts if "fsdp" in one.replace("deepspeed or fsdp", "").lower()]
    if launch != "accelerate launch":
        assert "precisions.bf16_autocast" in uses(found)
        return
    (asked,) = [one for one in found.questions if one.attribute == "precision"]
    assert "--use catalog.precisions.bf16_autocast" in asked.answers


def test_states_of_8_bits_that_a_recipe_replaces_are_listed() -> None:
    options = evolve(PLAIN, uses=("catalog.precisions.bf16_fsdp",))
    text = f"{TRL_YAML}optim: paged_adamw_8bit\n"
    found = read_file("trl", ImportFile("run.yaml", text, options))
    reasons = {one.name: one.reason for one in found.missing}
    assert (
        reasons["optim"]
        == "--use replaces the recipe, including the optimizer states of paged_adamw_8bit"
    )


@try_each(
    "launcher, arguments, types, recipe",
    [
        # Trainer starts DeepSpeed: it fills in `auto`, and its own type is on where it is missing.
        ("torchrun", "--deepspeed ds.json --bf16 True", {"bf16": "auto"}, "bf16_zero"),
        ("torchrun", "--deepspeed ds.json --bf16 True", {"fp16": "auto"}, "bf16_zero"),
        ("torchrun", "--deepspeed ds.json --fp16 True", {"bf16": "auto"}, "fp16_zero"),
        ("torchrun", "--deepspeed ds.json --bf16 True", {"fp16": False}, "bf16_zero"),
        ("torchrun", "--deepspeed ds.json", {"bf16": "auto", "fp16": "auto"}, "fp32"),
        ("torchrun", "--deepspeed ds.json", {"bf16": True}, "bf16_zero"),
        # Accelerate starts it: the type is that of its own mixed precision.
        ("accelerate bf16", "", {"bf16": "auto", "fp16": "auto"}, "bf16_zero"),
        ("accelerate bf16", "", {"fp16": "auto"}, "bf16_zero"),
        ("accelerate fp16", "", {"bf16": "auto"}, "fp16_zero"),
        ("accelerate no", "", {"bf16": "auto"}, "fp32"),
        ("accelerate bf16", "", {"bf16": False}, "fp32"),
    ],
)
def test_deepspeed_has_the_types_that_its_file_leaves_to_trainer_or_accelerate(
    launcher: str, arguments: str, types: dict[str, Any], recipe: str
) -> None:
    program, _, mixed = launcher.partition(" ")
    start = f"{program} --nproc_per_node 8"
    if mixed:
        start = (
            f"accelerate launch --mixed_precision {mixed} --num_processes 8 --use_deepspeed "
            "--deepspeed_config_file ds.json"
        )
    engine: dict[str, Any] = {one: {"enabled": value} for one, value in types.items()}
    beside = {"ds.json": json.dumps({**engine, "zero_optimization": {"stage": 3}})}
    script = f"{start} {BATCHES} {arguments}\n"
    found = read_file("trl", ImportFile("run.sh", script, PLAIN, beside.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert [one for one in uses(found) if "precisions" in one] == [f"precisions.{recipe}"]


def test_a_type_that_deepspeed_turns_off_and_trainer_on_is_an_error() -> None:
    beside = {"ds.json": '{"bf16": {"enabled": false}, "zero_optimization": {"stage": 3}}'}
    script = f"torchrun --nproc_per_node 8 {BATCHES} --bf16 True --deepspeed ds.json\n"
    (problem,) = read_file("trl", ImportFile("run.sh", script, PLAIN, beside.get)).problems
    assert problem.message.startswith("`bf16.enabled`: it is false")
    assert problem.beside is not None
    assert problem.beside.name == "ds.json"


def test_flags_of_accelerate_launch_decide_as_the_keys_of_its_file_do() -> None:
    """8 devices: 4 shards x 2 ranks of a sequence, compiled, in mixed precision."""
    flags = (
        "--use_fsdp --fsdp_version 2 --mixed_precision bf16 --num_processes 8 "
        "--use_parallelism_config true --parallelism_config_dp_shard_size 4 --parallelism_config_cp_size 2 "
        "--dynamo_backend inductor"
    )
    keys = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
        "fsdp_config: {fsdp_version: 2}\nparallelism_config:\n"
        "  parallelism_config_dp_shard_size: 4\n  parallelism_config_cp_size: 2\n"
        "dynamo_config: {dynamo_backend: INDUCTOR}\n"
    )
    scripts = (
        f"accelerate launch {flags} {BATCHES}\n",
        f"accelerate launch --config_file fsdp.yaml {BATCHES}\n",
    )
    for script in scripts:
        found = read_file("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.yaml": keys}.get))
        assert not found.questions
        values = settings(found)
        assert values["layout.zero"] == "3"
        assert values["layout.dp"] == "4"
        assert values["layout.cp"] == "2"
        assert values["cluster.devices"] == "8"
        assert values["kernels.mode"] == "compiled"
        assert "precisions.bf16_fsdp" in uses(found)


@try_each(
    "flags, switch, path, value",
    [
        ("--use_fsdp --fsdp_version 2 --parallelism_config_tp_size 2", "use_parallelism_config true",
         "layout.tp", "2"),
        ("--fsdp_sharding_strategy FULL_SHARD", "use_fsdp", "layout.zero", "3"),
        ("--zero_stage 3", "use_deepspeed", "layout.zero", "3"),
    ],
)  # fmt: skip
def test_options_of_the_launcher_need_the_option_that_turns_them_on(
    flags: str, switch: str, path: str, value: str
) -> None:
    """Accelerate 1.12, utils/launch.py: without it they have no effect."""
    script = f"accelerate launch --num_processes 8 {flags} {BATCHES} --bf16 --dtype bfloat16\n"
    asked = {one.attribute: one for one in read_file("trl", ImportFile("run.sh", script)).questions}
    assert "Accelerate ignores" in asked[path].reason
    assert asked[path].answers[0] == f"--set {path}={value}"
    on = script.replace("accelerate launch", f"accelerate launch --{switch}")
    assert settings(read_file("trl", ImportFile("run.sh", on)))[path] == value


def test_an_unknown_option_of_the_launcher_wins_over_its_file() -> None:
    """The file says 8 devices in bf16; the command starts another number, or another type."""
    file = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
    launch = "accelerate launch --config_file fsdp.yaml"

    def read_launch(flag: str) -> Any:
        script = f"{launch} {flag} {BATCHES}\n"
        return read_file("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.yaml": file}.get))

    found = read_launch("--num_processes $GPUS")
    (question,) = found.questions
    assert question.attribute == "cluster.devices"
    assert question.answers == ("--set-env GPUS=VALUE", "--set cluster.devices=8")
    assert "cluster.devices" not in settings(found)
    assert settings(read_launch("--num_processes 4"))["cluster.devices"] == "4"
    (problem,) = read_launch("--mixed_precision $TYPE").problems
    assert problem.message == "`mixed_precision`: `TYPE` is not set in the file"
    assert not read_launch("").questions


def test_devices_that_a_launcher_leaves_open_are_a_question_with_the_reason() -> None:
    """`NODES=$NODES` keeps a variable of the environment; it was taken as empty, and one node."""
    launch = "NODES=$NODES\ntorchrun --nproc_per_node 8 --nnodes $NODES"
    found = read_file("trl", ImportFile("run.sh", f"{launch} {BATCHES}\n"))
    reasons = {one.attribute: one.reason for one in found.questions}
    assert "`NODES` is not set in the file" in reasons["cluster.devices"]
    assert "cluster.devices" not in settings(found)


@pytest.mark.parametrize(
    ("text", "reshard"),
    [
        ('{"fsdp_version": 2}', "off"),
        ('{"version": 2, "reshard_after_forward": true}', None),
        ('{"version": 1, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}', "off"),
    ],
)
def test_a_file_of_fsdp_beside_a_script_of_trainer_is_read(text: str, reshard: str | None) -> None:
    """A strategy of --fsdp stands unless FSDP 2 states what it does after forward."""
    script = (
        f'torchrun --nproc_per_node 8 {BATCHES} --bf16 True --fsdp "shard_grad_op auto_wrap" '
        "--fsdp_config fsdp.json\n"
    )
    found = read_file("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.json": text}.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert settings(found).get(KEPT) == reshard
    (question,) = read_file("trl", ImportFile("run.sh", script, PLAIN)).questions
    assert "which is not beside the file" in question.reason
    assert question.answers == ("--set layout.zero=0", "--set layout.zero=3")


@try_each(
    "options, prefetch, open_",
    [
        ("{}", None, True),  # transformers 4 runs FSDP 1, and 5 FSDP 2
        ('{"version": 1}', "0", False),
        ('{"version": 2}', None, False),
        ('{"backward_prefetch": "backward_pre"}', None, False),
    ],
)
def test_a_trainer_that_starts_fsdp_gathers_ahead_by_its_version(
    options: str, prefetch: str | None, open_: bool
) -> None:
    script = f'torchrun --nproc_per_node 8 {BATCHES} --bf16 True --fsdp "full_shard auto_wrap" '
    script += "--fsdp_config fsdp.json\n"
    found = read_file("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.json": options}.get))
    assert settings(found).get("sharding.prefetch") == prefetch
    missing = {one.name for one in found.missing}
    assert ("fsdp_config.fsdp_backward_prefetch" in missing) == open_


@pytest.mark.parametrize(
    ("words", "is_listed"), [("full_shard", True), ("full_shard auto_wrap", False)]
)
def test_a_trainer_that_does_not_wrap_layers_is_listed(words: str, is_listed: bool) -> None:
    script = f'torchrun --nproc_per_node 8 {BATCHES} --bf16 True --fsdp "{words}"\n'
    found = read_file("trl", ImportFile("run.sh", script))
    assert settings(found)["layout.zero"] == "3"
    assert ("fsdp" in {one.name for one in found.missing}) == is_listed


def test_options_of_fsdp_in_another_file_leave_the_stated_sharding() -> None:
    """The words of `fsdp` have it, so that only what the file may add is listed."""
    script = "torchrun --nproc_per_node 8 my.py --model_name_or_path Qwen/Qwen3-4B --bf16 \\\n"
    script += "  --dtype float32 --per_device_train_batch_size 1 --fsdp_config own.json"
    found = read("trl", TRL, f'{script} --fsdp "full_shard auto_wrap"\n')
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert "fsdp_config" in [one.name for one in found.missing]


@try_each(
    "tool, line, kernel",
    [
        ("llamafactory", "flash_attn: fa3", "flash_3"),
        ("llamafactory", "flash_attn: fa2", None),
        ("axolotl", "attn_implementation: flash_attention_3", "flash_3"),
        ("axolotl", "attn_implementation: kernels-community/vllm-flash-attn3", "flash_3"),
        ("axolotl", "attn_implementation: flash_attention_4", "flash_4"),
        ("axolotl", "attn_implementation: flex_attention", None),
    ],
)
def test_a_newer_attention_kernel_is_taken_where_a_job_names_it(
    tool: str, line: str, kernel: str | None
) -> None:
    found = read(tool, "bf16: true", f"bf16: true\n{line}")
    assert settings(found).get("kernels.attention") == kernel
    assert "training.flash_attention" not in settings(found)


def test_an_error_about_a_file_that_a_command_names_points_into_it(run_command: Run) -> None:
    """8 devices x 2 sequences are 16, of which 20 are no multiple."""
    zero = (
        '{"zero_optimization": {"stage": 3},\n "bf16": {"enabled": true},\n'
        ' "train_batch_size": 20,\n "gradient_accumulation_steps": 1}\n'
    )
    job = (
        "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-4B --bf16"
        " --block_size 4096 --per_device_train_batch_size 2 --deepspeed conf/zero.json\n"
    )
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    files = {"jobs/run.sh": job, "jobs/conf/zero.json": zero}
    done = run_command("check", *machine, "jobs/run.sh", files=files)
    assert done.code == 1
    assert " --> jobs/conf/zero.json:3:2" in done.out
    assert "`train_batch_size` is `training.global_batch` here" in done.out


@try_each(
    "flag, is_whole",
    [
        ("", True),
        ("--fsdp_auto_wrap_policy NO_WRAP", True),
        ("--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP", False),
    ],
)
def test_a_launcher_says_whether_layers_are_gathered_one_by_one(flag: str, is_whole: bool) -> None:
    command = f"accelerate launch --num_processes 8 --use_fsdp {flag} {BATCHES}\n"
    found = read_file("trl", ImportFile("run.sh", command))
    missing = [one.name for one in found.missing]
    assert ("fsdp_config.fsdp_auto_wrap_policy" in missing) == is_whole


@try_each(
    "flag, attribute",
    [
        ("--fsdp_shrding_strategy SHARD_GRAD_OP", "sharding.reshard"),
        ("--fsdp_offload_parms true", "offload.optimizer"),
        ("--fsdp_nonsense 3", ""),
    ],
)
def test_a_misspelled_option_of_the_launcher_is_named(
    run_command: Run, flag: str, attribute: str
) -> None:
    command = f"accelerate launch --num_processes 8 --use_fsdp {flag} {BATCHES}\n"
    done = run_command("import", "run.sh", files={"run.sh": command})
    said = " ".join(f"{done.out} {done.err}".split())
    assert flag.split(maxsplit=1)[0].lstrip("-") in said
    assert attribute in said
