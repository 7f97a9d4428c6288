"""Studies as settings of the tools that run them, and read back from there."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest

import parcost
from parcost import SettingsWriter, Study
from parcost.engine.study import SpecStudy
from parcost_apps.export.settings import (
    LostAttribute,
    lost_attributes,
    read_back,
    resolved_attributes,
    writer_of,
)
from parcost_plugins.vocabulary import Training

from ..rows import mark_most

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
TOOLS = ("megatron", "megatron_bridge", "torchtitan", "torchtitan@0.2.2", "deepspeed", "nemo")

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.megatron_core
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 4, pp = 2, cp = 2, sequence_parallel = on, zero = 1, vocabulary_multiple = 128 }
schedule { kind = interleaved, chunks = 4 }
context { algorithm = ulysses }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences, recompute = selective }
recompute { norms = on }
overlap { gradients = on, parameters = on }
"""


def flags(script: str) -> dict[str, list[str]]:
    """Return the flags of a script, by a reader that is not ours: the words of a shell."""
    found: dict[str, list[str]] = {}
    inside = script.partition("ARGS=(")[2].partition("\n)")[0]
    for word in split(inside, comments=True):
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


@pytest.mark.slow
def test_flags_of_megatron_are_those_of_the_study(run_command: Run) -> None:
    done = run_command("export", "megatron", "job.par", job=SPEC)
    assert done.code == 0
    found = flags(done.out)
    stated = {
        "--tensor-model-parallel-size": ["4"],
        "--pipeline-model-parallel-size": ["2"],
        "--context-parallel-size": ["2"],
        "--cp-comm-type": ["a2a"],
        "--num-virtual-stages-per-pipeline-rank": ["4"],
        "--sequence-parallel": [],
        "--use-distributed-optimizer": [],
        "--num-layers": ["32"],
        "--hidden-size": ["4096"],
        "--num-query-groups": ["8"],
        "--ffn-hidden-size": ["14336"],
        "--vocab-size": ["128256"],
        "--make-vocab-size-divisible-by": ["128"],
        "--bf16": [],
        "--seq-length": ["8192"],
        "--micro-batch-size": ["1"],
        "--global-batch-size": ["128"],
        "--recompute-granularity": ["selective"],
        "--recompute-modules": ["core_attn", "layernorm"],
        "--overlap-grad-reduce": [],
        "--overlap-param-gather": [],
    }
    assert {name: found.get(name) for name in stated} == stated
    assert "--use-megatron-fsdp" not in found
    assert "torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py" in done.out
    assert done.out.startswith("#!/usr/bin/env bash\n# `job` of `job.par` for Megatron-LM")
    assert "a tokenizer: --tokenizer-type" in done.err
    assert "No setting in the tool" not in done.err


@pytest.mark.slow
def test_a_shell_reads_the_script(run_command: Run, own_folder: Path) -> None:
    import subprocess

    assert run_command("export", "megatron", "job.par", "--out", "run.sh", job=SPEC).code == 0
    text = (own_folder / "run.sh").read_text().replace("torchrun", "printf '%s\\n'")
    (own_folder / "print.sh").write_text(text)
    shown = subprocess.run(
        ["bash", "print.sh", "--mock-data"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert shown[:5] == ["--nnodes", "8", "--nproc-per-node", "8", "pretrain_gpt.py"]
    assert shown[-1] == "--mock-data"
    assert "--recompute-modules" in shown


@pytest.mark.slow
def test_a_script_of_ours_has_no_unknown_key(run_command: Run) -> None:
    assert run_command("export", "megatron", "job.par", "--out", "run.sh", job=SPEC).code == 0
    assert "without effect: listed by --verbose" in run_command("import", "run.sh").err
    done = run_command("import", "run.sh", "--verbose")
    assert ", 0 unknown" in done.err
    assert "without effect: $@: flags added by the user" in done.err


@pytest.mark.slow
def test_what_has_no_setting_is_named(run_command: Run) -> None:
    text = SPEC + "kernels { gemm_efficiency = 70 % }\ncompression { method = int8 }\n"
    text += 'term extra { seconds = 1 ms, per = step, source = "a guess" }\n'
    done = run_command("export", "megatron", "job.par", job=text)
    assert done.code == 0
    for line in (
        "kernels: gemm_efficiency = 70 %",
        "compression: method = int8",
        "term: extra",
    ):
        assert line in done.err
        assert f"#   {line}" in done.out


@pytest.mark.parametrize(
    ("tool", "change", "message"),
    mark_most(
        [
            (
                "megatron",
                ("kind = interleaved, chunks = 4", "kind = zb_h1"),
                "`schedule.kind` is zb_h1",
            ),
            ("megatron", ("llama3_8b", "olmo2_7b"), "`model.qk_norm_whole` is on"),
            ("nemo", ("zero = 1", "zero = 2"), "`layout.zero` is 2"),
            ("nemo", ("llama3_8b", "gemma2_9b"), "`model.norms` is 4"),
            ("torchtitan", ("llama3_8b", "llama2_7b"), "no flavor of the model `llama2_7b`"),
            ("torchtitan", ("recompute = selective", "recompute = none"), "has no `ulysses`"),
            ("nemo", ("zero = 1", "zero = 3"), "`layout.zero` is 3"),
            ("deepspeed", ("zero = 1", "zero = 3"), "does not support ZeRO 3"),
            ("deepspeed", ("algorithm = ulysses", "algorithm = ring"), "not `ring`"),
        ],
        4,
    ),
)
def test_another_job_is_an_error(
    run_command: Run, tool: str, change: tuple[str, str], message: str
) -> None:
    assert change[0] in SPEC
    job = SPEC.replace(*change).replace("frameworks.megatron_core", "frameworks.generic")
    done = run_command("export", tool, "job.par", job=job)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert ".par:" in done.err  # the line that sets it


@pytest.mark.slow
def test_a_job_with_adapters_is_an_error_unless_code_makes_them(run_command: Run) -> None:
    job = (ROOT / "specs" / "examples" / "adapters.par").read_text(encoding="utf-8")
    done = run_command("export", "torchtitan", "job.par", "--study", "lora", job=job)
    assert (done.code, done.out) == (2, "")
    assert "`adapters.rank` is 16" in done.err
    done = run_command("export", "deepspeed", "job.par", "--study", "lora", job=job)
    assert done.code == 0
    assert "adapters and the data type of frozen weights, in code" in done.err


@pytest.mark.slow
def test_wrong_input_is_a_diagnostic(run_command: Run) -> None:
    assert "did you mean `megatron`?" in run_command("export", "megatorn", "job.par", job=SPEC).err
    unwritten = run_command("export", "nanotron", "job.par", job=SPEC)
    assert "files of `nanotron` can be imported, but no plugin writes its settings" in unwritten.err
    assert "tools: deepspeed, megatron, megatron_bridge" in unwritten.err
    swept = SPEC.replace("tp = 4", "tp = [2, 4]")
    done = run_command("export", "megatron", "job.par", job=swept)
    assert done.code == 2
    assert "`layout.tp` is swept" in done.err
    done = run_command("export", "megatron", "job.par", "--set", "layout.tp=3", job=SPEC)
    assert (done.code, done.out) == (1, "")  # as the rules of an evaluation have it
    assert run_command("export", "megatron").code == 2
    done = run_command("export", "megatron", "job.par", "--out", "nowhere/run.sh")
    assert done.code != 0
    two = SPEC + "study a {}\nstudy b {}\n"
    done = run_command("export", "megatron", "job.par", "--out", "run.sh", job=two)
    assert done.code == 2
    assert "choose one with --study" in done.err
    assert run_command("export", "megatron", "job.par", "--study", "b", job=two).code == 0
    listed = run_command("export", "--list").err
    assert all(tool in listed for tool in TOOLS)


@pytest.mark.slow
def test_a_name_with_a_newline_stays_in_its_comment(run_command: Run) -> None:
    hostile = "a\nrm -rf x.par"
    done = run_command("export", "megatron", hostile, files={hostile: SPEC})
    assert done.code == 0
    assert "\nrm -rf" not in done.out


@pytest.mark.slow
def test_torchtitan_gets_toml_and_python(run_command: Run) -> None:
    job = (
        SPEC.replace("frameworks.megatron_core", "frameworks.torchtitan")
        .replace("zero = 1", "zero = 3")
        .replace("recompute = selective", "recompute = full")
        .replace("ulysses", "all_gather")
        .replace("chunks = 4", "chunks = 2")
        .replace("precisions.bf16", "precisions.bf16_fsdp")
        .replace("recompute { norms = on }", "")
        .replace("vocabulary_multiple = 128", "vocabulary_multiple = 1")
    )
    old = tomllib.loads(run_command("export", "torchtitan@0.2.2", "job.par", job=job).out)
    assert old["model"] == {"name": "llama3", "flavor": "8B"}
    assert old["training"]["local_batch_size"] == 32  # of 4 replicas, in one pass of the pipeline
    assert old["training"]["global_batch_size"] == 128
    assert old["parallelism"]["data_parallel_shard_degree"] == 4
    assert old["parallelism"]["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert old["activation_checkpoint"]["mode"] == "full"
    new = run_command("export", "torchtitan", "job.par", job=job).out
    (call,) = (
        node
        for node in ast.walk(ast.parse(new))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "TrainingConfig"
    )
    training = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert training["num_tokens_per_microbatch_per_dp_rank"] == 8192
    assert training["num_tokens_per_train_step"] == 128 * 8192
    assert "num_pp_microbatches=32" in new


@pytest.mark.slow
def test_torchtitan_gets_the_recipe_of_wide_weight_gradients(run_command: Run) -> None:
    job = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.torchtitan
use catalog.models.llama31_8b
use catalog.precisions.fp8_torchao_rows
precision wide extends fp8_torchao_rows { wide_weight_gradients = on }
cluster { devices = 8 }
layout { zero = 3 }
training { precision = wide, sequence = 8192, micro_batch = 1, global_batch = 8 sequences }
"""
    done = run_command("export", "torchtitan@0.2.2", "job.par", job=job)
    assert 'recipe_name = "rowwise_with_gw_hp"' in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "loss", "enabled", "parts"),
    [
        ("compiled", "logits", True, None),
        ("compiled", "eager", True, ["model"]),
        ("eager", "logits", True, ["loss"]),
        ("eager", "eager", False, None),
    ],
)
def test_torchtitan_compiles_the_model_and_the_loss_apart(
    run_command: Run, mode: str, loss: str, enabled: bool, parts: list[str] | None
) -> None:
    job = f"""
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.torchtitan
use catalog.models.llama31_8b
use catalog.precisions.bf16_fsdp
cluster {{ devices = 8 }}
layout {{ zero = 3 }}
kernels {{ mode = {mode} }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 8 sequences, loss = {loss} }}
"""
    found = tomllib.loads(run_command("export", "torchtitan@0.2.2", "job.par", job=job).out)
    assert found["compile"].get("enable", False) == enabled
    assert found["compile"].get("components") == parts
    new = run_command("export", "torchtitan", "job.par", job=job).out
    assert ("components=" in new) == (parts is not None)


@pytest.mark.slow
def test_deepspeed_gets_numbers(run_command: Run) -> None:
    job = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.deepspeed
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { zero = 3 }
offload { optimizer = 50 %, host_memory_bandwidth = 50 GB/s }
training { sequence = 4096, micro_batch = 2, global_batch = 96 sequences, recompute = full }
"""
    done = run_command("export", "deepspeed", "job.par", job=job)
    found = json.loads(done.out)  # without comments, which the loader of transformers rejects
    assert found["train_batch_size"] == 96
    assert found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_accumulation_steps"] == 3
    assert found["zero_optimization"]["stage"] == 3
    assert found["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "ratio": 0.5}
    assert found["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "auto" not in done.out
    assert "the model in code, with sequences of 4096 tokens" in done.err


@pytest.mark.slow
def test_an_export_evaluates_to_the_same_step(run_command: Run) -> None:
    """Through files and options, as a user would."""
    assert run_command("export", "megatron", "job.par", "--out", "run.sh", job=SPEC).code == 0
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    again = run_command("eval", "--from", "megatron", "run.sh", *machine, "--format", "json")
    assert again.code == 0
    here = run_command("eval", "job.par", "--format", "json")
    found = [json.loads(done.out)["reports"][0]["results"][0] for done in (here, again)]
    for name in ("step_seconds", "makespan_seconds"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-12)
    totals = [result["memory"]["total_bytes"] for result in found]
    assert totals[1] == pytest.approx(totals[0], rel=1e-12)


@pytest.mark.slow
def test_a_search_emits_its_best_layout(run_command: Run) -> None:
    options = ("--over", "tp=2,4", "--axes", "tp,zero")
    done = run_command("search", "job.par", *options, "--emit", "megatron", job=SPEC)
    assert done.code == 0
    listed = json.loads(run_command("search", "job.par", *options, "--format", "json").out)
    for rank, one in enumerate(listed["best"][:2], 1):
        emitted = run_command(
            "search", "job.par", *options, "--emit", "megatron", "--rank", str(rank)
        ).out
        assert "Best layout" not in emitted
        assert flags(emitted)["--tensor-model-parallel-size"] == [str(one["values"]["layout.tp"])]
    done = run_command("search", "job.par", *options, "--emit", "megatron", "--rank", "99")
    assert done.code == 2
    assert "--rank 99 is not listed" in done.err
    done = run_command("search", "job.par", *options, "--emit", "megatron", "--out", "run.sh")
    assert "Best layout" in done.out
    assert Path("run.sh").read_text().startswith("#!")
    assert "no plugin writes" in run_command("search", "job.par", "--emit", "x").err


@pytest.mark.slow
def test_what_a_writer_leaves_out_is_listed(tmp_path: Path, run_command: Run) -> None:
    plugin = tmp_path / "others.py"
    plugin.write_text(
        "from parcost import SettingsWriter, ToolSettings, hookimpl\n"
        "class A(SettingsWriter):\n"
        "    name, reader, title = 'a_tool', 'megatron', 'a tool'\n"
        "    outside = ('cluster', 'collectives', 'memory', 'accuracy')\n"
        "    def write(self, study):\n"
        "        return ToolSettings(text='--num-layers 32 --hidden-size 4096 '\n"
        "                            '--num-attention-heads 32 --seq-length 8192 --bf16\\n')\n"
        "class B(A):\n"
        "    name = 'b_tool'\n"
        "    def write(self, study):\n"
        "        return 'flags'\n"
        "@hookimpl\n"
        "def settings_writers():\n"
        "    return [A(), B()]\n"
    )
    done = run_command("export", "a_tool", "job.par", "--plugin", str(plugin), job=SPEC)
    assert "layout.tp = 4 (there: 1)" in done.err.replace("\n", " ")
    done = run_command("export", "b_tool", "job.par", "--plugin", str(plugin), job=SPEC)
    assert done.code == 3
    assert "`write` returned" in done.err


LIAR = """
from parcost import SettingsWriter, ToolSettings, hookimpl
class Liar(SettingsWriter):
    name, reader, title = 'liar', 'megatron', 'a tool'
    outside = ('cluster', 'collectives', 'memory', 'accuracy')
    essential = ('layout.tp', 'layout.sequence_parallel', 'schedule.stages')
    def write(self, study):
        text = ('--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 8192 '
                '--bf16 --global-batch-size 128 --pipeline-model-parallel-size 2 %s\\n')
        return ToolSettings(text=text, same=dict.fromkeys([*self.essential, 'schedule'], 'a lie'))
@hookimpl
def settings_writers():
    return [Liar()]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "change", "message"),
    [
        ("", ("tp = 4", "tp = 4"), "`layout.tp` is 4, but a tool uses 1"),
        ("--tensor-model-parallel-size 4 --sequence-parallel", ("tp = 4", "tp = 4"), ""),
        ("", ("tp = 4", "tp = 1"), ""),  # where sequence parallelism has no effect
        ("", ("tp = 4", "tp = 1"), "`schedule.stages` is [20, 12]"),
    ],
)
def test_what_is_essential_is_the_same_only_if_it_costs_the_same(
    tmp_path: Path, run_command: Run, flags: str, change: tuple[str, str], message: str
) -> None:
    plugin = tmp_path / "liar.py"
    plugin.write_text(LIAR.replace("%s", flags))
    stages = ", stages = [20, 12]" if "stages" in message else ""
    job = SPEC.replace("kind = interleaved, chunks = 4", f"kind = one_f_one_b{stages}")
    done = run_command(
        "export", "liar", "job.par", "--plugin", str(plugin), job=job.replace(*change)
    )
    assert done.code == (2 if message else 0), done.err
    assert message in done.err


@pytest.mark.slow
def test_the_commands_of_the_guide_run(run_command: Run) -> None:
    text = (ROOT / "docs" / "guide" / "export.md").read_text()
    spec = text.partition("```par study\n")[2].partition("```")[0]
    commands = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(commands) == 4
    for command in commands:
        assert run_command(*split(command)[1:], job=spec).code == 0, command
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    assert run_command("eval", "--from", "megatron", "run.sh", *machine).code == 0


@pytest.mark.slow
def test_a_model_without_a_job_lists_what_a_job_needs(run_command: Run) -> None:
    config = {
        "model_type": "llama", "vocab_size": 128256, "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    }  # fmt: skip
    files = {"config.json": json.dumps(config)}
    options = ["--from", "huggingface", "config.json", "--set", "cluster.devices=64"]
    done = run_command("eval", *options, files=files)
    assert done.code == 2
    assert done.err.count("error") == 1
    added = " ".join(done.err.split()).partition("add options such as ")[2]
    assert "cluster.devices" not in added
    again = run_command("eval", *options, *split(added))
    assert again.code == 1  # it runs, and does not fit without a layout
    assert "tokens" in again.out


# Round trips


@pytest.fixture(scope="module")
def session() -> parcost.Session:
    return parcost.Session()


@pytest.fixture(scope="module")
def studies(session: parcost.Session) -> list[SpecStudy]:
    """Return every shipped study that trains, bound once for all tools."""
    return list(_studies(session))


def _studies(session: parcost.Session) -> Iterator[SpecStudy]:
    for path in sorted((ROOT / "specs").glob("*/*.par")):
        if path.parent.name not in ("runs", "examples"):
            continue
        for scenario in session.load(path, keep=False):
            try:
                one = scenario.replace({name: values[0] for name, values in scenario.axes}).first
            except parcost.SpecError:  # an axis that only a sweep can set
                continue
            if one.trains:
                yield one


def restored(
    study: Study, other: Study, lost: list[LostAttribute], writer: SettingsWriter, same: Any
) -> Study:
    """Return what was read back with all that the settings are said to lack."""
    training = other[Training]
    values: dict[str, str] = {}
    for one in lost:
        kind, _, name = one.path.partition(".")
        if kind == "framework":
            values["training.framework"] = vars(study[Training].framework)["label"]
            continue
        block = {"precision": training.precision, "model": training.model}.get(kind)
        values[f"{vars(block)['label'] if block is not None else kind}.{name}"] = one.value
    before, after = (resolved_attributes(one, writer.outside) for one in (study, other))
    for path, one in before.items():  # what the framework of the tool decides alike
        kind, _, name = path.partition(".")
        if kind == "precision" and one.is_given:  # also what follows from what is lost
            values[f"{vars(training.precision)['label']}.{name}"] = one.text
        decided = path in after and after[path].place and kind not in ("framework", "model")
        if one.is_given and not one.place and decided and kind not in same and path not in same:
            values[path] = one.text
    return other.replace(values)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_every_study_that_a_tool_can_run_comes_back(
    tool: str, session: parcost.Session, studies: list[SpecStudy]
) -> None:
    writer = writer_of(session, tool)
    count = 0
    for bound in studies:
        study = bound.fresh()
        settings = writer.write(study)
        if settings.problems:
            continue
        other = read_back(study, writer, settings.text, session)
        lost = [
            one
            for one in lost_attributes(study, other, writer, session)
            if not any(
                one.path == path or one.path.startswith(f"{path}.") for path in settings.same
            )
        ]
        if any(
            one.path.startswith("term.")
            or any(one.path == path or one.path.startswith(f"{path}.") for path in writer.essential)
            for one in lost
        ):
            continue  # which is an error, or a term of the spec's own
        again = restored(study, other, lost, writer, settings.same)
        first, second = study.evaluate(), again.evaluate()
        where = f"{study.path}, {study.name}"
        assert second.step_seconds == pytest.approx(first.step_seconds, rel=1e-12), where
        assert second.memory_bytes == pytest.approx(first.memory_bytes, rel=1e-12), where
        count += 1
    assert count >= {"torchtitan": 5, "deepspeed": 60}.get(tool.partition("@")[0], 80)


@pytest.mark.slow
def test_several_studies_are_refused(run_command: Run) -> None:
    done = run_command("export", "megatron", "a.par", "b.par", a=SPEC, b=SPEC)
    assert done.code == 2
    assert "`parcost export` writes one study, but the files have 2" in done.err
    assert done.out == ""
