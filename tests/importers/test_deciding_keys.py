"""What decides the cost is read, assumed by a documented default, or asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from parcost_formats.tools.answers import option_attribute

from ..rows import mark_most

Run = Callable[..., Any]

#: A dense model of 32 layers on 8 devices, all of it stated.
SCRIPT = """torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
 --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
 --position-embedding-type rope --vocab-size 128256 --seq-length 4096 \\
 --micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 2 \\
 --use-distributed-optimizer --bf16
"""
MACHINE = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")


def replace(old: str, new: str) -> dict[str, str]:
    assert old in SCRIPT
    return {"train.sh": SCRIPT.replace(old, new)}


@pytest.mark.slow
def test_a_complete_script_asks_nothing(run_command: Run) -> None:
    done = run_command("eval", *MACHINE, "train.sh", files={"train.sh": SCRIPT})
    assert done.code == 0
    assert "not read" not in done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "strange", "attribute"),
    mark_most(
        [
            ("--bf16", "--use-bf16-please", "training.precision"),
            ("--use-distributed-optimizer", "--zero-optimizer", "layout.zero"),
            ("--tensor-model-parallel-size 2", "--tensor-width 2", "layout.tp"),
            ("--swiglu", "--swiglu-fused", "model.gated"),
            ("--num-query-groups 8", "--num-kv-groups 8", "model.kv_heads"),
            ("--num-layers 32", "--num-layers 32 --recompute-all", "training.recompute"),
            ("--num-layers 32", "--num-layers 32 --moe-count 8", "model.experts"),
        ],
        4,
    ),
)
def test_an_unknown_key_of_a_subject_is_a_question(
    run_command: Run, key: str, strange: str, attribute: str
) -> None:
    files = replace(key, strange)
    done = run_command("eval", *MACHINE, "train.sh", files=files)
    assert done.code == 2
    assert (
        f"error[import-question]: `{attribute}` is not known: `{strange.split()[-2 if strange[-1].isdigit() else -1]}`"
        in done.err
    )
    assert f"--set {attribute}=" in done.err
    assert "step" not in done.out


@pytest.mark.slow
def test_an_answer_removes_the_question_and_the_warning(run_command: Run) -> None:
    files = replace("--use-distributed-optimizer", "--zero-optimizer")
    done = run_command("eval", *MACHINE, "--set", "layout.zero=1", "train.sh", files=files)
    assert done.code == 0
    assert "--zero-optimizer" not in done.err + done.out


@pytest.mark.slow
def test_an_entry_replaces_what_is_assumed(run_command: Run) -> None:
    files = replace("--bf16", "")
    given = ("--use", "catalog.precisions.bf16")
    plain = run_command("figures", *MACHINE, "train.sh", "step_time", files=files)
    done = run_command("figures", *MACHINE, *given, "train.sh", "step_time")
    stated = run_command("figures", *MACHINE, "train.sh", "step_time", files={"train.sh": SCRIPT})
    assert done.out == stated.out != plain.out


def test_an_entry_that_contradicts_is_an_error_at_both_places(run_command: Run) -> None:
    given = ("--use", "catalog.precisions.fp32")
    done = run_command("eval", *MACHINE, *given, "train.sh", files={"train.sh": SCRIPT})
    assert done.code == 2
    assert "error[import-conflict]: precision is catalog.precisions.bf16 in `train.sh`" in done.err
    assert "--> train.sh:6" in done.err
    assert "use catalog.precisions.fp32" in done.err


def test_a_key_that_resembles_one_of_the_file_is_a_warning(run_command: Run) -> None:
    """A fork has keys of its own, such as the length of a document beside that of a sequence."""
    text = """deepspeed --num_gpus 4 --module openrlhf.cli.train_sft --bf16 --max_len 2048 \\
  --pretrain meta-llama/Llama-2-7b-hf --micro_train_batch_size 2 --doc_max_length 256
"""
    done = run_command("import", "run.sh", files={"run.sh": text})
    assert done.code == 0, done.err
    assert re.search(r"^ *sequence += 2048 ", done.out, re.MULTILINE)
    assert "unknown: doc_max_length" in done.err
    short = text.replace("--max_len 2048", "")
    assert "--set training.sequence=256" in run_command("import", "s.sh", files={"s.sh": short}).err


@pytest.mark.slow
def test_a_key_that_resembles_nothing_is_a_warning(run_command: Run) -> None:
    files = replace("--bf16", "--bf16 --warp-factor 9")
    done = run_command("eval", *MACHINE, "train.sh", files=files)
    assert done.code == 0
    assert "`--warp-factor`" in done.out


def test_a_spec_that_uses_a_file_answers_its_questions(run_command: Run) -> None:
    files = replace("--use-distributed-optimizer", "--zero-optimizer")
    spec = 'use "train.sh"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n'
    done = run_command("check", "job.par", files=files, job=spec)
    assert "error[import-question]: `layout.zero` is not known" in done.out
    done = run_command("check", "job.par", job=spec + "layout { zero = 1 }\n")
    assert done.code == 0


def test_a_file_without_one_key_of_its_tool_is_no_match(run_command: Run) -> None:
    files = {"sft.yaml": "stage: sft\ndo_train: true\ncutoff_len: 2048\n"}
    for command in ("eval", "import", "check"):
        done = run_command(command, "--from", "nanotron", "sft.yaml", files=files)
        assert done.code == 2
        assert "error[import-nothing]: no key of nanotron" in done.err + done.out


def test_keys_of_two_tools_are_an_error(run_command: Run) -> None:
    config = {"model_type": "llama", "zero_optimization": {"stage": 1}, "train_batch_size": 8}
    files = {"both.json": json.dumps(config)}
    done = run_command("eval", "both.json", files=files)
    assert done.code == 2
    assert "has keys of 2 formats: `deepspeed`, `huggingface`" in done.err
    assert "--from deepspeed" in done.err


@pytest.mark.slow
def test_a_file_of_too_many_keys_is_refused(run_command: Run) -> None:
    config = {"model_type": "llama", **{f"warp_{n}": n for n in range(20_000)}}
    done = run_command("eval", "config.json", files={"config.json": json.dumps(config)})
    assert done.code == 2
    assert "a configuration has 20,000 keys at most" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "key", "attribute"),
    [
        ("run.toml", "mode = ", "training.recompute"),
        ("run.toml", "pipeline_parallel_degree = ", "layout.pp"),
        ("run.toml", "dtype = ", "precision"),
        ("ds.json", '"bf16"', "precision"),
        ("ds.json", '"stage"', "layout.zero"),
        ("ds.json", '"device"', "offload.optimizer"),
        ("nano.yaml", "num_key_value_heads:", "model.kv_heads"),
        ("nano.yaml", "tp_mode:", "layout.sequence_parallel"),
        ("max.yml", "model_name:", "model"),
        ("max.yml", "per_device_batch_size:", "training.micro_batch"),
    ],
)
def test_a_key_of_another_release_raises_a_question(
    run_command: Run, name: str, key: str, attribute: str
) -> None:
    """Keys of sections that decide the cost, under a name that no table has."""
    text = OTHERS[name]
    assert key in text
    word = key.strip('":= ')
    files = {name: text.replace(key, key.replace(word, f"{word}_of_tomorrow"), 1)}
    given = ("--set", "cluster.devices=64", "--set", "training.sequence=4096")
    more = ("--use", "catalog.models.llama3_8b") if name == "ds.json" else ()
    done = run_command("eval", *MACHINE, *given, *more, name, files=files)
    assert done.code == 2
    assert "error[import-question]" in done.err
    assert f"`{attribute}`" in done.err
    assert f"{word}_of_tomorrow" in done.err
    done = run_command("eval", *MACHINE, *given, *more, name, files={name: text})
    assert "import-question" not in done.err


OTHERS = {
    "run.toml": (
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
        'seq_len = 4096\ndtype = "float32"\n[parallelism]\npipeline_parallel_degree = 2\n'
        '[activation_checkpoint]\nmode = "full"\nselective_ac_option = "op"\n'
    ),
    "ds.json": json.dumps(
        {
            "train_batch_size": 128,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}},
        }
    ),
    "nano.yaml": (
        "model: {dtype: bfloat16, model_config: {is_llama_config: true, hidden_size: 1024,\n"
        "  intermediate_size: 4096, num_hidden_layers: 8, num_attention_heads: 16,\n"
        "  num_key_value_heads: 4, vocab_size: 32000, tie_word_embeddings: false}}\n"
        "optimizer: {zero_stage: 1}\n"
        "parallelism: {dp: 32, tp: 2, pp: 1, tp_mode: REDUCE_SCATTER, recompute_layer: false}\n"
        "tokens: {sequence_length: 4096, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n"
    ),
    "max.yml": (
        "model_name: llama2-7b\nper_device_batch_size: 1\nremat_policy: full\nhardware: gpu\n"
        "max_target_length: 4096\n"
    ),
}


def test_an_answer_names_what_it_decides() -> None:
    """Only a `config.json` and entries of the catalogue are models."""
    answers = ("--use config.json", "--use catalog.models.gpt2_small", "--as llama3")
    assert {option_attribute(answer) for answer in answers} == {"model"}
    assert option_attribute("--use catalog.precisions.fp32") == "precision"
    for other in ("--use accelerate.yaml", "--use tune.json", "--use catalog.devices.h100_sxm"):
        with pytest.raises(KeyError):
            option_attribute(other)
