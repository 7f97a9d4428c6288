"""Jobs of ms-swift."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from ..rows import mark_most, try_each
from .finetuning_files import SWIFT, importer_of, read, read_file
from .translations import settings

Run = Callable[..., Any]

FULL = SWIFT.replace("--deepspeed zero3", "").strip()


@pytest.mark.parametrize("program", ["/opt/venv/bin/swift", "$VENV/bin/swift"])
def test_a_command_with_a_folder_is_read_by_its_own_name(program: str) -> None:
    found = read("ms_swift", "swift sft", f"{program} sft")
    assert settings(found) == settings(read("ms_swift"))


@pytest.mark.slow
def test_ms_swift_accumulates_to_sixteen_sequences(run_command: Run) -> None:
    """3 sequences on each of 2 devices: ceil(16 / 6) is 3 micro-batches, and 18 sequences."""
    text = SWIFT.replace("--gradient_accumulation_steps 4", "").replace("=8", "=2")
    text = text.replace("batch_size 1", "batch_size 3").replace("Qwen3-8B", "Qwen3-0.6B")
    done = run_command(
        "eval", "run.sh", "--full", "--use", "catalog.systems.dgx_h100", files={"run.sh": text}
    )
    assert done.code == 0, done.err
    shown = " ".join(done.out.split())
    assert "training.global_batch 18 sequences" in shown
    assert "training.micro_batches 3 " in shown


def test_two_names_of_a_batch_with_other_values_are_an_error() -> None:
    one = importer_of("ms_swift")
    both = SWIFT.replace("--packing", "--batch_size 4 --packing")
    found = one.read(ImportFile("run.sh", both))
    assert found.problems
    message = found.problems[0].message
    assert "`per_device_train_batch_size` and `batch_size`" in message
    same = one.read(ImportFile("run.sh", both.replace("size 4", "size 1")))
    assert settings(same)["training.micro_batch"] == "1"
    assert not same.unknown


@pytest.mark.parametrize("named", ["fsdp2", "conf/own.json"])
def test_fsdp_of_ms_swift_is_a_word_or_a_file(named: str) -> None:
    """Both have the words of Trainer and its fsdp_config: FSDP 2 with its own checkpoints."""
    own = {"fsdp": "full_shard auto_wrap", "_note": "a comment"}
    own |= {"fsdp_config": {"fsdp_version": 2, "activation_checkpointing": True}}
    text = f"{FULL} --gradient_checkpointing false --fsdp {named}\n"
    found = read_file("ms_swift", ImportFile("run.sh", text, PLAIN, {named: json.dumps(own)}.get))
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert values["layout.zero"] == "3"
    assert values["training.recompute"] == "full"
    assert not any("backward_prefetch" in one.name for one in found.missing)  # of FSDP 1


def test_a_file_of_fsdp_that_is_not_there_is_a_question() -> None:
    """It was read as FSDP 1 that shards fully."""
    found = read_file("ms_swift", ImportFile("run.sh", f"{FULL} --fsdp conf/own.json\n"))
    reasons = {one.attribute: one.reason for one in found.questions}
    assert reasons["layout.zero"] == "`fsdp` names `conf/own.json`, which is not beside the file"


def test_a_file_is_read_by_the_name_that_the_script_gave_it() -> None:
    """The date in the path is unknown, and the same in both places."""
    own = '{"fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2}}'
    text = f"D=out_$(date +%s)\nF=$D/own.json\ncat > $F <<END\n{own}\nEND\n"
    found = read_file("ms_swift", ImportFile("run.sh", f"{text}{FULL} --fsdp $F\n"))
    assert not found.problems
    assert settings(found)["layout.zero"] == "3"
    other = text.replace("> $F", "> $D/other.json")
    found = read_file("ms_swift", ImportFile("run.sh", f"{other}{FULL} --fsdp $F\n"))
    assert "is a command, which parcost does not run" in found.problems[0].message


def test_a_command_of_ms_swift_2_is_read() -> None:
    text = (
        "NPROC_PER_NODE=8 swift sft --model_id_or_path Qwen/Qwen2.5-7B --sft_type full --batch_size 4 "
        "--torch_dtype bfloat16 --max_length 4096 --deepspeed default-zero3\n"
    )
    found = settings(read_file("ms_swift", ImportFile("run.sh", text)))
    expected = ("qwen25_7b", "4", "3")
    keys = ("training.model", "training.micro_batch", "layout.zero")
    assert tuple(found[one] for one in keys) == expected


@try_each(
    "values, flag, is_one",
    [
        ("1e-5 2e-5", "--learning_rate", True),
        ("1 2", "--seed", True),
        ("a b", "--output_dir out/run_", True),
        ("4096 8192", "--max_length", False),
        ("1 2", "--num_machines 1 --gradient_accumulation_steps", False),
    ],
)
def test_runs_of_a_loop_that_have_the_same_step_are_one_job(
    values: str, flag: str, is_one: bool
) -> None:
    """Runs over learning rates are one job; those over lengths are as many as there are."""
    text = SWIFT.replace("--max_length 4096", "").replace("--gradient_accumulation_steps 4", "")
    one = importer_of("ms_swift")
    loop = f"for X in {values}; do\n{text.rstrip()} {flag} $X\ndone\n"
    found = one.read(ImportFile("run.sh", loop, PLAIN, lambda _: None))
    assert bool(found.problems) != is_one
    if is_one:
        alone = one.read(ImportFile("run.sh", text, PLAIN, lambda _: None))
        assert settings(found) == settings(alone)
    else:
        assert "2 commands" in found.problems[0].message


def test_a_script_that_ends_ahead_of_its_command_says_so(run_command: Run) -> None:
    guard = 'MODEL=${MODEL:-.../model}\nif [[ $MODEL == *"..."* ]]; then\n  exit 1\nfi\n'
    script = guard + SWIFT.replace("Qwen/Qwen3-8B", "$MODEL")
    done = run_command("import", "run.sh", files={"run.sh": script})
    assert done.code == 2
    assert "the script exits here, before the command of ms-swift" in done.err
    assert "--> run.sh:3:3" in done.err
    done = run_command("import", "--set-env", "MODEL=Qwen/Qwen3-8B", "run.sh")
    assert done.code == 0, done.err
    assert "qwen3_8b" in done.out


@pytest.mark.parametrize(
    ("ahead", "options", "code", "algorithm"),
    mark_most(
        [
            ("", (), 1, "ulysses"),  # 4 ranks, and 2 heads of keys and values
            ("", ("--set=context.algorithm=hybrid", "--set=context.ulysses=2"), 0, "ulysses"),
            ("SEQUENCE_PARALLEL_IMPL=ring_attention ", (), 0, "all_gather"),
            ("SEQUENCE_PARALLEL_IMPL=ulysses ", (), 1, "ulysses"),
        ],
        4,
    ),
)
def test_sequence_parallelism_of_ms_swift_may_be_a_ring(
    run_command: Run, ahead: str, options: tuple[str, ...], code: int, algorithm: str
) -> None:
    text = SWIFT.replace("Qwen3-8B", "Qwen2.5-3B").rstrip()
    found = read("ms_swift", SWIFT, f"{ahead}{text} --sequence_parallel_size 4\n")
    assert settings(found)["context.algorithm"] == algorithm
    machine = "--use=catalog.systems.dgx_h100"
    files = {"run.sh": f"{ahead}{text} --sequence_parallel_size 4\n"}
    done = run_command("check", machine, *options, "run.sh", files=files)
    assert done.code == code, done.err


def test_a_program_whose_path_is_printed_by_python_is_read(run_command: Run) -> None:
    path = "import swift, os; print(os.path.join(os.path.dirname(swift.__file__), 'cli', 'sft.py'))"
    text = SWIFT.replace(
        "NPROC_PER_NODE=8 swift sft", f'torchrun --nproc_per_node 8 $(python3 -c "{path}")'
    )
    done = run_command("import", "run.sh", files={"run.sh": text})
    assert done.code == 0, done.err
    assert "qwen3_8b" in done.out
    assert settings(read("ms_swift", SWIFT, text)) == settings(read("ms_swift"))


def test_the_data_type_of_ms_swift_2_may_be_that_of_the_checkpoint() -> None:
    text = (
        "NPROC_PER_NODE=8 swift sft --model_id_or_path Qwen/Qwen2.5-7B --sft_type full "
        "--max_length 4096 --deepspeed default-zero3 --batch_size 4"
    )
    plain = read_file("ms_swift", ImportFile("run.sh", f"{text}\n"))
    for flags in ("--dtype AUTO", "--dtype AUTO --use_flash_attn true"):
        found = read_file("ms_swift", ImportFile("run.sh", f"{text} {flags}\n"))
        assert settings(found) == settings(plain)
        assert not found.questions
    off = read_file("ms_swift", ImportFile("run.sh", f"{text} --use_flash_attn false\n"))
    assert "use_flash_attn" in str(off)
