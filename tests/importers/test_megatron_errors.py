"""Errors in files of Megatron-LM."""

from __future__ import annotations

import pytest

from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.shell.launches import open_words
from parcost_formats.tools.shell.scripts import read_script

from ..rows import try_each
from .megatron_files import (
    Run,
    problems,
    read,
    reasons,
    small,
    translate,
    values,
)


@try_each(
    "flags, message",
    [
        ("--num-attention-heads", "a whole number of at least 1 is expected, but nothing is given"),
        (
            "--num-experts 4 --moe-router-topk 2 --topk 1",
            "`--moe-router-topk` is 2 here, but 1 elsewhere in the file",
        ),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 1",
            "--num-virtual-stages-per-pipeline-rank and --num-layers-per-virtual-pipeline-stage",
        ),
        (
            "--recompute-activations --recompute-granularity full",
            "--recompute-activations is selective, but --recompute-granularity is full",
        ),
        ("--bf16 --fp16", "--bf16 and --fp16 cannot be combined"),
        ("--bf16 --fp8-format hybrid --fp4-format e2m1", "cannot be combined"),
        (
            "--tensor-model-parallel-size",
            "a whole number of at least 1 is expected, but nothing is given",
        ),
        (
            "--tensor-model-parallel-size two",
            "a whole number of at least 1 is expected, but two is given",
        ),
        (
            "--tensor-model-parallel-size 0",
            "a whole number of at least 1 is expected, but 0 is given",
        ),
        (
            "--tensor-model-parallel-size 2 4",
            "a whole number of at least 1 is expected, but 2 4 is given",
        ),
        ("--num-experts 4 --moe-layer-freq __import__('os')", "a number or a list"),
        ("--num-experts 4 --moe-layer-freq [1]*99999999", "a number or a list"),
        ("--num-experts 4 --moe-layer-freq [1]*3", "the list has 3 layers, but --num-layers is 2"),
        ("--num-experts 4 --moe-layer-freq [1,0]", "cannot be expressed in a spec"),
        ("--num-experts 4 --moe-layer-freq 3", "the 2 layers are not a multiple of 3"),
        ("--pipeline-model-parallel-layout Ex|L", "`x` is not a layer"),
        (
            "--pipeline-model-parallel-layout tt",
            "`E` must be first and `L` last, each exactly once",
        ),
        ("--pipeline-model-parallel-layout E(t)*9999999L", "it has too many layers"),
        ("--pipeline-model-parallel-layout EtL", "it has 1 layers, but --num-layers is 2"),
        ("--pipeline-model-parallel-layout EttmL", "1 layers that predict further tokens"),
        ("--num-layers-per-virtual-pipeline-stage 3", "2 layers / pp 1 / 3 is not a whole number"),
        ("--cp-comm-type p2p a2a", "all layers must use one type"),
        ("--cp-comm-type mail", "`mail` is not known"),
        ("--normalization BatchNorm", "`BatchNorm` is not known"),
        ("--window-size wide", "two whole numbers are expected"),
        ("--hybrid-override-pattern M*M*", "Mamba layers are not modeled"),
        ("--deepspeed --ds-sequence-parallel-fpdt", "FPDT"),
        ("--use-torch-fsdp2 --use-distributed-optimizer", "cannot be combined with"),
        ("--hidden-dropout often", "a number is expected, but often is given"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_written(flags: str, message: str) -> None:
    text = small(flags)
    found = Megatron().translate("run.args", text).problems
    assert any(message in problem.message for problem in found), [p.message for p in found]
    for problem in found:
        assert text[problem.start : problem.end].startswith("--")


def test_a_conflict_is_shown_at_both_places() -> None:
    text = small("--num-experts 4 --moe-router-topk 2 --topk 1")
    found = Megatron().translate("run.args", text).problems
    assert [text[one.start : one.end] for one in found] == ["--moe-router-topk 2", "--topk 1"]


def test_of_a_flag_that_stands_twice_the_last_counts() -> None:
    text = small("--hidden-size 128 --tensor-model-parallel-size 1 --seq-length 512")
    found = read(text)
    assert values(found)["model.hidden"] == "128"
    assert values(found)["training.sequence"] == "512"
    (hidden,) = [
        one
        for block in found.blocks
        for one in block.settings
        if (block.kind, one.name) == ("model", "hidden")
    ]
    assert (text[hidden.start : hidden.end], hidden.assumption) == ("--hidden-size 128", "")
    (first,) = [one for one in found.ignored if one.name == "--hidden-size"]
    assert text[first.start : first.end] == "--hidden-size 96"
    assert (
        first.reason
        == "`--hidden-size` is set twice, first 96 and then 128: the last value is used"
    )
    script = "A='--micro-batch-size 4'\ntorchrun pretrain_gpt.py $A --micro-batch-size 2 "
    command = translate(Megatron(), "run.sh", script + small("--vocab-size 32").replace("\n", " "))
    assert values(command)["training.micro_batch"] != "4"


def test_variables_without_a_command_have_no_order() -> None:
    text = "A='--hidden-size 96 --num-layers 2'\nB='--hidden-size 128'"
    found = Megatron().translate("model.sh", text).problems
    assert [one.message for one in found] == [
        "`--hidden-size` is 96 here, but 128 elsewhere in the file",
        "`--hidden-size` is 128 here, but 96 elsewhere in the file",
    ]


def test_a_value_that_stands_there_twice_is_no_conflict() -> None:
    found = read(small("--hidden-size 96"))
    assert reasons(found)["--hidden-size"] == "it is set twice"


@try_each(
    "text, message, place",
    [
        ("python a.py --num-layers '2", "this quote is not closed", "'"),
        ('A="--num-layers 2\npython a.py $A', "this quote is not closed", '"'),
        ("python a.py --num-layers $(cat x", "this `(` has no `)`", "("),
        ("python a.py --num-layers ${N", "this `{` has no `}`", "{"),
        ("A=(--num-layers 2\npython a.py", "this `(` has no `)`", "("),
        ("python a.py --moe-layer-freq ([0]*3)", "the shell interprets this `(`", "("),
        ("A=(--layout E|L)\npython a.py", "`|` ends the word: quote it", "|"),
    ],
)
def test_a_text_that_is_no_script_is_an_error(text: str, message: str, place: str) -> None:
    (problem,) = Megatron().translate("run.sh", text).problems
    assert message in problem.message
    assert text[problem.start : problem.end] == place


def test_two_launches_are_an_error() -> None:
    text = f"python a.py {small()}\npython b.py {small()}\n"
    assert "an earlier command also has arguments" in problems(text, "run.sh")[0]


@pytest.mark.parametrize(
    "text", ["", "\x00", "echo hello", "#!/bin/bash\n", "--", "\\", "${", "$(("]
)
def test_a_file_without_arguments_is_an_error(run_command: Run, text: str) -> None:
    done = run_command("import", "--from", "megatron", "run.sh", files={"run.sh": text})
    assert done.code == 2
    assert "error[import]" in done.err


@pytest.mark.slow
def test_references_that_grow_without_end_are_an_error() -> None:
    doubling = "".join(f"A{n + 1}=$A{n}$A{n}\n" for n in range(60))
    text = f"A0=xxxxxxxx\n{doubling}python a.py {small('--save $A60')}\n"
    assert "expand to too much text" in problems(text, "run.sh")[0]


@pytest.mark.slow
def test_a_script_has_a_limit_of_words() -> None:
    message = "a script has 30,000 words at most"
    assert message in problems(f"python a.py {small('--bf16 ' * 30_000)}", "run.sh")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flood", "message"),
    [
        ("--warp-{n} {n} ", "a script has 30,000 words at most"),
        ("ARGS+=(--warp-{n} {n})\n", "a script has 30,000 words at most"),
        ("((((", "`--seq-length`: a whole number of at least 1 is expected, but 64 ((((("),
        ("$((", "references are nested too deeply"),
    ],
)
def test_a_megabyte_of_arguments_is_an_error(flood: str, message: str) -> None:
    body = "".join(flood.format(n=n) for n in range(1_000_000 // (len(flood) + 4)))
    text = f"{body}python a.py {small()} ${{ARGS[@]}}\n"
    if not flood.endswith("\n"):
        text = f"{small()} {body}"
    (problem,) = Megatron().translate("run.sh", text).problems
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    "options", ["--nproc-per-node 8 --nnodez 2", "--nproc-per-nod 8 --nnodes 2"]
)
def test_a_misspelled_count_of_torchrun_asks_for_the_devices(
    run_command: Run, options: str
) -> None:
    script = f"torchrun {options} pretrain_gpt.py {small()}".replace("\n", " ")
    done = run_command("import", "run.sh", files={"run.sh": script})
    said = " ".join(done.err.split())
    assert "`cluster.devices`" in said.partition("-->")[0]
    assert "is not an option of torchrun" in said


def test_a_job_that_misses_its_model_names_the_flags_of_no_table(run_command: Run) -> None:
    flags = "--hiden-dim 512 --layer-count 4 --bf16 --seq-length 512 --micro-batch-size 1"
    script = f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags} --global-batch-size 8\n"
    options = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    done = run_command("eval", "run.sh", *options, files={"run.sh": script})
    assert "missing: `training.model`" in done.err
    assert "not in parcost's table, so perhaps misspelled: `--hiden-dim`, `--layer-count`" in (
        done.err
    )
    script = script.replace("--hiden-dim 512 --layer-count 4 ", "")
    done = run_command("eval", "run.sh", *options, files={"run.sh": script})
    assert "missing: `training.model`" in done.err
    assert "misspelled" not in done.err


def test_an_unknown_flag_that_names_the_optimizer_leaves_sharding_open(run_command: Run) -> None:
    """Without it Megatron-LM keeps the whole optimizer state on every rank."""
    known = small("--micro-batch-size 1 --vocab-size 512 --bf16 --use-other-optim")
    done = run_command("import", "run.args", files={"run.args": known})
    assert "`layout.zero` is not known: `--use-other-optim`" in done.err
    sharded = f"{known} --use-distributed-optimizer"
    done = run_command("import", "run.args", files={"run.args": sharded})
    assert "`layout.zero` is not known" not in done.err


def test_a_command_whose_arguments_are_in_another_file_names_it(run_command: Run) -> None:
    script = "torchrun --nproc_per_node 8 pretrain_gpt2.py --config configs/small.yaml\n"
    done = run_command("eval", "run.sh", files={"run.sh": script})
    assert "`configs/small.yaml` may have the arguments of `pretrain_gpt2.py`" in done.err


def test_a_default_of_a_variable_is_a_value_of_the_file(run_command: Run) -> None:
    """The flag of no table resembles none that the file has not set."""
    flags = "--micro-batch-size 1 --vocab-size 512 --bf16 --tensor-model-parallel-size ${TP:-2}"
    script = f"torchrun --nproc_per_node 8 pretrain_gpt.py {small(flags)} --my-tensor-thing 4\n"
    done = run_command("import", "run.sh", files={"run.sh": script})
    assert "`layout.tp` is not known" not in done.err
    script = script.replace("--tensor-model-parallel-size ${TP:-2}", "")
    done = run_command("import", "run.sh", files={"run.sh": script})
    assert "`layout.tp` is not known" in done.err


def test_options_behind_a_program_are_not_those_of_torchrun() -> None:
    text = "torchrun --nproc_per_node 8 --nnodes 2 /opt/pretrain --num_nodes 2"
    (call,) = read_script(text).commands
    assert not any("torchrun" in word.unread for word in open_words(call.words))
