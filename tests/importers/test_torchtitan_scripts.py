"""Launch scripts of torchtitan, and files that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .torchtitan_files import TOML, read

Run = Callable[..., Any]

LAUNCH = "srun torchrun --nnodes 2 --nproc_per_node 8 {}\n"
SHARED = TOML.replace("data_parallel_shard_degree = 32\n", "")
FILES = {"runs/llama.toml": SHARED}


@pytest.mark.parametrize(
    "script",
    [
        LAUNCH.format("train.py --job.config_file runs/llama.toml --training.local_batch_size=2"),
        LAUNCH.format(
            "-m torchtitan.train --job.config-file ./runs/llama.toml --training.local-batch-size 2"
        ),
        'N=2\nA="--job.config_file runs/llama.toml"\n'
        + LAUNCH.format('-m own.train $A --training.batch_size $N "$@"'),
    ],
)
def test_a_command_is_read_with_its_file(run_command: Run, script: str) -> None:
    done = run_command("import", "go.sh", files=FILES | {"go.sh": script})
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    for part in ("devices = 16", "tp = 8", "micro_batch = 2 ", "global_batch = 256 sequences"):
        assert part in text


@pytest.mark.parametrize(
    ("start", "devices"),
    [("CONFIG_FILE=runs/llama.toml ./run_train.sh", "8"),
     ('NGPU=4 CONFIG_FILE="runs/llama.toml" bash run_train.sh', "4"),
     ("CONFIG_FILE=runs/llama.toml\nexport CONFIG_FILE NGPU=4\n../titan/run_train.sh", "4")],
)  # fmt: skip
def test_the_starter_of_torchtitan_is_known(run_command: Run, start: str, devices: str) -> None:
    flags = " --parallelism.tensor_parallel_degree 2 --compile.enable --model.converters float8"
    done = run_command("import", "go.sh", files=FILES | {"go.sh": f"{start}{flags}\n"})
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert f"devices = {devices}" in text
    assert "tp = 2" in text
    assert "fp8_torchao" in text
    assert "mode = eager" not in text


def test_the_starter_beside_the_script_is_followed(run_command: Run) -> None:
    starter = 'NGPU=${NGPU:-"8"}\ntorchrun --nproc_per_node=${NGPU} -m torchtitan.train --job.config_file ${CONFIG_FILE} "$@"\n'
    script = "NGPU=16 CONFIG_FILE=runs/llama.toml ./run_train.sh --training.seq_len 4096\n"
    files = FILES | {"go.sh": script, "run_train.sh": starter}
    done = run_command("import", "go.sh", files=files)
    assert done.code == 0, done.err
    assert "devices = 16" in done.out
    assert "= 4096" in done.out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--parallelism.data_parallel_shard_degree 4", "need 32 devices, but the launcher starts 16"),
        ("--parallelism.tensor_parallel_degree $T", "choose one: --set-env T=VALUE | --set layout.tp=1"),
        ("--training.gradient_accumulation_steps 4", "`training.global_batch` is not known"),
        ("; torchrun train.py --job.config_file b.toml", "2 commands of torchtitan, but exactly one is"),
    ],
)  # fmt: skip
def test_what_a_command_leaves_open(run_command: Run, more: str, message: str) -> None:
    script = LAUNCH.format(f"train.py --job.config_file runs/llama.toml {more}")
    text = SHARED.replace("global_batch_size = 256   # of a step\n", "")
    done = run_command("import", "go.sh", files={"go.sh": script, "runs/llama.toml": text})
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_a_command_without_its_file_is_refused(run_command: Run) -> None:
    script = LAUNCH.format("train.py --job.config_file $HERE/a.toml")
    done = run_command("import", "go.sh", files={"go.sh": script})
    assert "`$HERE/a.toml` has the other keys" in done.err


def test_the_type_of_states_of_a_fork_decides_the_precision(run_command: Run) -> None:
    """Stated types of the parameters do not have it."""
    text = TOML + '[optimizer]\nname = "AdamW"\nstate_dtype = "bfloat16"\n'
    text = text.replace("[training]\n", '[training]\ndtype = "bfloat16"\n')
    done = run_command("import", "run.toml", files={"run.toml": text})
    assert "`precision` is not known: `optimizer.state_dtype`" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("fetch_ahead = true", None),
        ("fancy_degree = 4", ("--set layout.tp=8", "--set layout.tp=1")),
    ],
)
def test_a_field_of_a_fork_beside_stated_degrees(
    line: str, answers: tuple[str, ...] | None
) -> None:
    """The question offered one rank where the file has eight; a switch is no degree."""
    text = TOML.replace("[parallelism]\n", f"[parallelism]\n{line}\n")
    found = read(text)
    asked = [one.answers for one in found.questions if one.attribute == "layout.tp"]
    assert asked == ([answers] if answers else [])
    assert f"parallelism.{line.split(maxsplit=1)[0]}" in {one.name for one in found.unknown}


def test_a_switch_of_a_fork_beside_a_stated_mode_is_listed() -> None:
    found = read(f"{TOML}[compile]\nenable = true\nfull_graph = false\n")
    assert not found.questions
    assert "compile.full_graph" in {one.name for one in found.unknown}


def test_a_family_in_no_table_asks_for_a_configuration_of_the_model_first() -> None:
    found = read(TOML.replace('name = "llama3"', 'name = "qwen3_next"'))
    (question,) = [one for one in found.questions if one.attribute == "model"]
    assert question.answers[0] == "--use config.json"


CHUNKS = ("--set", "training.loss_chunks=8")


@pytest.mark.parametrize(
    "script",
    [
        "NGPU=4 MODULE=llama3 CONFIG=llama3_70b ./run_train.sh --training.seq-len 4096\n",
        (
            "export MODULE=torchtitan_recipes.tests.models.llama3 CONFIG=llama3_70b NGPU=4\n"
            "bash run_train.sh --training.seq_len=4096\n"
        ),
        (
            "srun torchrun --nnodes 2 --nproc_per_node 2 -m torchtitan.train --module llama3 "
            '--config llama3_70b --training.seq_len 4096 "$@"\n'
        ),
        (
            "torchrun --nproc_per_node=4 -m torchtitan.train --config=llama3_70b \\\n"
            "  --module=llama3 --training.seq_len=4096\n"
        ),
    ],
)
def test_a_command_names_a_configuration_of_the_library(run_command: Run, script: str) -> None:
    """The 70B of torchtitan's registry has 8 ranks of tensor parallelism, which the flag halves."""
    script = script.replace("4096", "4096 --parallelism.tensor_parallel_degree 4")
    done = run_command("import", "go.sh", *CHUNKS, files={"go.sh": script})
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    for part in ("models.llama31_70b", "tp = 4 ", "micro_batch = 8 ", "sequence = 4096 "):
        assert part in text
    assert "recompute = full @assumed(" in text
    assert "devices = 4 " in text


OWN = """\
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

def small() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("8B"), training=TrainingConfig(local_batch_size=4))

def long() -> Trainer.Config:
    config = small()
    config.training.seq_len = 16384
    return config
"""


@pytest.mark.parametrize("path", ["config_registry.py", "own/jobs/config_registry.py"])
def test_a_command_names_a_configuration_of_a_file(run_command: Run, path: str) -> None:
    script = "NGPU=8 MODULE=own.jobs CONFIG=long ./run_train.sh --training.local_batch_size 2\n"
    done = run_command("import", "go.sh", files={"go.sh": script, path: OWN})
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    for part in ("models.llama3_8b", "micro_batch = 2 ", "sequence = 16_384 "):
        assert part in text.replace("16384", "16_384")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MODULE=llama3 CONFIG=llama3_tiny", "`llama3_tiny` is a function of `llama3/config_registry.py`"),
        ("MODULE=fork.models.llama3 CONFIG=llama3_8b", "--recipe llama3_8b` with --set for the rest"),
        ("MODULE=qwen3 CONFIG=llama3_8b", "`llama3_8b` is a function of `qwen3/config_registry.py`"),
        ("MODULE=llama3 CONFIG=$JOB", "`JOB` is not set in the file"),
        ("MODULE=llama3 CONFIG=''", "the command of torchtitan cannot be read"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_not_there_is_refused(
    run_command: Run, name: str, message: str
) -> None:
    done = run_command("import", "go.sh", files={"go.sh": f"{name} ./run_train.sh\n"})
    assert done.code == 2
    assert message in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--training.steps 10 activation-checkpoint:full", "recompute = full # activation-checkpoint:full"),
        ("activation_checkpoint:full-ac --training.steps 9", "recompute = full # activation"),
        ("--compile.enable activation-checkpoint:none", "recompute = none # activation-checkpoint:none"),
        ("--training.num-tokens-per-train-step 65536", "framework = torchtitan_2026_08"),
    ],
)  # fmt: skip
def test_classes_of_parts_in_a_command(run_command: Run, more: str, part: str) -> None:
    """The class of a part is a word of its own, which was read as a value of the flag before it."""
    script = f"MODULE=qwen3 CONFIG=qwen3_1_7b ./run_train.sh {more}\n"
    done = run_command("import", "go.sh", *CHUNKS, files={"go.sh": script})
    assert done.code == 0, done.err
    assert part in " ".join(done.out.split())


def test_a_loss_of_another_class_is_a_question(run_command: Run) -> None:
    script = "MODULE=qwen3 CONFIG=qwen3_1_7b ./run_train.sh --training.steps 5 loss:own\n"
    done = run_command("import", "go.sh", files={"go.sh": script})
    assert "`training.loss_chunks` is not known: `loss:own`" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("name", "devices", "parts"),
    [
        ("llama3_405b", 64, ("precisions.fp8_torchao", "mode = compiled", "tensor = pipelined")),
        ("deepseek_v3_16b", 8, ("ep = 8 ", "loss = logits", "mode = eager")),
    ],
)
def test_configurations_of_the_library_with_more_keys(
    run_command: Run, name: str, devices: int, parts: tuple[str, ...]
) -> None:
    module = name.rpartition("_")[0]
    script = f"NGPU={devices} MODULE={module} CONFIG={name} ./run_train.sh\n"
    done = run_command("import", "go.sh", *CHUNKS, files={"go.sh": script})
    assert done.code == 0, done.err
    for part in parts:
        assert part in " ".join(done.out.split())
