"""Scripts of Megatron-DeepSpeed: the engine, its configuration, and its flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost import ImportFile
from parcost_formats.tools.megatron import Megatron

from ..rows import try_each
from .megatron_files import (
    figures,
    problems,
    read,
    reasons,
    small,
    values,
)


@pytest.mark.parametrize(
    ("flags", "entry"), [("", "megatron_core"), ("--deepspeed", "megatron_deepspeed")]
)
def test_the_engine_of_deepspeed_is_a_framework_of_its_own(flags: str, entry: str) -> None:
    assert f"catalog.frameworks.{entry}" in [one.value for one in read(small(flags)).uses]


@try_each(
    "slots, devices",
    [
        ("localhost:0,1,2,3", "4"),
        ("a:0-3@b:0,2", "6"),
        ("localhost", None),  # all of its devices
    ],
)
def test_slots_of_the_launcher_are_devices(slots: str, devices: str | None) -> None:
    """`--include` of `deepspeed` lists the devices of each node."""
    text = f"deepspeed --include {slots} pretrain_gpt.py --num-layers 8 --deepspeed\n"
    assert values(read(text)).get("cluster.devices") == devices


#: A script that writes the configuration of its engine, whose name has the number of the job.
ENGINE = """CONFIG=./ds_config.$SLURM_JOB_ID.json
STAGE=0
cat <<END > $CONFIG
{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": $STAGE}, "bf16": {"enabled": true}}
END
ARGS="--deepspeed --deepspeed_config=$CONFIG --deepspeed-activation-checkpointing"
python pretrain_gpt.py --bf16 $ARGS """


@try_each(
    "old, new, attributes, recipe",
    [
        ("", "", {"layout.zero": "1"}, "bf16_deepspeed"),
        ("STAGE=0", "STAGE=2", {"layout.zero": "2"}, "bf16_zero"),
        (
            '"bf16"',
            '"data_types": {"grad_accum_dtype": "fp32"}, "bf16"',
            {"layout.zero": "1"},
            "bf16_deepspeed",
        ),
        (
            "$STAGE}",
            '3, "offload_optimizer": {"device": "cpu"}}',
            {"layout.zero": "3", "offload.optimizer": "100 %"},
            "bf16_zero",
        ),
        (
            "--deepspeed-act",
            "--cpu-optimizer --deepspeed-act",
            {"offload.optimizer": "100 %"},
            "bf16_deepspeed",
        ),
    ],
)
def test_the_configuration_that_a_script_writes_decides_on_the_engine(
    old: str, new: str, attributes: dict[str, str], recipe: str
) -> None:
    """Without ZeRO, bf16 runs in an optimizer that shards its states: 20 bytes, 8 on each rank."""
    found = read((ENGINE + small()).replace(old, new), "run.sh")
    assert not {"layout.zero", "precision"} & {one.attribute for one in found.questions}
    assert attributes.items() <= values(found).items()
    assert f"catalog.precisions.{recipe}" in [one.value for one in found.uses]


def engine(configuration: str, flags: str = "") -> str:
    """Return a script that writes the configuration of its engine into ds.json."""
    command = f"python pretrain_gpt.py --deepspeed --deepspeed_config ds.json {small(flags)}"
    return f"cat <<END > ds.json\n{configuration}\nEND\n{command}\n"


@try_each(
    "configuration, flags, attributes",
    [
        (
            '{"train_batch_size": 512, "gradient_accumulation_steps": 16}',
            "--micro-batch-size 2",
            {"training.global_batch": "512 sequences", "training.micro_batches": "16"},
        ),
        (
            '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 16}',
            "",
            {
                "training.global_batch": "(16 * micro_batch * layout.dp) sequences",
                "training.micro_batch": "4",
            },
        ),
        (
            '{"train_micro_batch_size_per_gpu": 4}',
            "--global-batch-size 64 --micro-batch-size 4",
            {"training.global_batch": "64 sequences", "training.micro_batch": "4"},
        ),
        ('{"fp16": {"enabled": true}}', "", {"training.precision": "fp16", "layout.zero": "0"}),
        ('{"fp16": {"enabled": false}}', "", {"training.precision": "fp32"}),
        (
            '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
            "--zero-stage 3",
            {"training.precision": "bf16_zero", "layout.zero": "3"},
        ),
    ],
)
def test_the_configuration_of_deepspeed_states_what_flags_leave_out(
    configuration: str, flags: str, attributes: dict[str, str]
) -> None:
    found = read(engine(configuration, flags), "run.sh")
    assert attributes.items() <= values(found).items()
    assert not {"--deepspeed_config", "--deepspeed"} & reasons(found).keys()


def test_a_configuration_that_a_command_may_change_raises_a_question_with_it() -> None:
    text = "sed -i s/1/$S/ ds.json\npython pretrain_gpt.py --deepspeed --deepspeed_config ds.json "
    beside = {"ds.json": '{"zero_optimization": {"stage": 1}}'}
    found = Megatron().read(ImportFile("run.sh", text + small(), neighbor=beside.get))
    (reason,) = {one.reason for one in found.questions if one.attribute == "layout.zero"}
    assert "`sed -i s/1/$S/ ds.json` in line 1 may change it" in reason


@pytest.mark.slow
def test_the_accumulation_of_a_configuration_gives_the_batch(tmp_path: Path) -> None:
    """Micro-batches of 4 x 16 x 8 replicas are 512 sequences of 64 tokens: 32,768 tokens."""
    sizes = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 16}'
    text = engine(sizes, "--bf16 --vocab-size 512 --hidden-dropout 0 --attention-dropout 0")
    found = figures(tmp_path, text, 8, "run.sh")
    assert found.figure("tokens_per_second") * found.figure("step_time") == pytest.approx(32_768)


@try_each(
    "configuration, flags, messages",
    [
        (
            '{"bf16": {"enabled": true},\n"train_micro_batch_size_per_gpu": 4}',
            "--micro-batch-size 1",
            [
                "`train_micro_batch_size_per_gpu (ds.json:2)`: it is 4, but --micro-batch-size is 1",
                "`--micro-batch-size`: it is 1 here, but train_micro_batch_size_per_gpu (ds.json:2) is 4",
            ],
        ),
        (
            '{"bf16": {"enabled": true}}',
            "--fp16",
            [
                "`bf16.enabled (ds.json:1)`: bf16.enabled (ds.json:1) and --fp16 cannot be combined",
                "`--fp16`: bf16.enabled (ds.json:1) and --fp16 cannot be combined",
            ],
        ),
        (
            '{"bf16": {"enabled": false}}',
            "--bf16",
            [
                "`bf16.enabled (ds.json:1)`: it is false, but --bf16 is true",
                "`--bf16`: it is true here, but bf16.enabled (ds.json:1) is false",
            ],
        ),
        (
            '{"zero_optimization": {"stage": 1}}',
            "--zero-stage 3",
            [
                "`zero_optimization.stage (ds.json:1)`: it is 1, but --zero-stage is 3",
                "`--zero-stage`: it is 3 here, but zero_optimization.stage (ds.json:1) is 1",
            ],
        ),
        (
            '{"steps_per_print": 10}',  # no stage, which is stage 0
            "--zero-stage 1",
            [
                "`zero_optimization.stage (ds.json)`: it is 0, but --zero-stage is 1",
                "`--zero-stage`: it is 1 here, but zero_optimization.stage (ds.json) is 0",
            ],
        ),
        (
            '{"zero_optimization": {"stage": 2}}',
            "--use-distributed-optimizer",
            [
                "`--use-distributed-optimizer`: the option means ZeRO 1, but the DeepSpeed options have stage 2: remove one of the two"
            ],
        ),
        (
            '{"zero_optimization": {"stage": true}}',
            "",
            ["`--deepspeed_config`: `ds.json`: the stages of ZeRO are 0 to 3"],
        ),
        (
            '{"train_batch_size": "auto"}',
            "",
            [
                '`train_batch_size (ds.json:1)`: a whole number of at least 1 is expected, but "auto" is given'
            ],
        ),
        (
            '{"fp16": {"enabled": "yes"}}',
            "",
            ['`fp16.enabled (ds.json:1)`: it is a flag without a value, but "yes" is given'],
        ),
    ],
)
def test_a_flag_and_a_configuration_have_to_agree(
    configuration: str, flags: str, messages: list[str]
) -> None:
    assert set(messages) <= set(problems(engine(configuration, flags), "run.sh"))


def test_a_flag_of_unknown_value_has_that_of_the_configuration() -> None:
    text = engine('{"train_micro_batch_size_per_gpu": 4}', "--micro-batch-size $2")
    found = read(text, "run.sh")
    assert "training.micro_batch" not in {one.attribute for one in found.questions}
    assert values(found)["training.micro_batch"] == "4"
    assert "has the value" in reasons(found)["--micro-batch-size"]


def test_half_precision_without_a_master_copy_is_listed() -> None:
    text = engine('{"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}')
    why = reasons(read(text, "run.sh"))["--deepspeed_config"]
    assert "fp16.fp16_master_weights_and_grads" in why


@pytest.mark.parametrize("flag", ["--ds-sequence-parallel-size", "--ds_sequence_parallel_size"])
def test_sequences_are_traded_for_heads_by_the_flag_of_deepspeed_alone(flag: str) -> None:
    assert values(read(small(f"{flag} 4")))["context.algorithm"] == "ulysses"
    assert "context.algorithm" not in values(read(small("--context-parallel-size 4")))


def test_a_stage_of_zero_is_0_to_3() -> None:
    assert "`5` is not known" in problems(small("--deepspeed --zero-stage 5"))[0]


def test_states_on_a_disk_are_rejected() -> None:
    script = ENGINE.replace("$STAGE}", '3, "offload_param": {"device": "nvme"}}')
    (problem,) = problems(script + small(), "run.sh")
    assert "offloading to NVMe cannot be expressed in a spec" in problem


def test_one_expert_of_megatron_deepspeed_is_none() -> None:
    assert "model.experts" not in values(read(small("--deepspeed --num-experts 1")))
