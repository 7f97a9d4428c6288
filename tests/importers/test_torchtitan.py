"""Configurations of torchtitan, in TOML and in Python: values, places, and what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import parcost
from parcost_formats.tools.torchtitan import Torchtitan
from parcost_formats.tools.torchtitan.toml_text import TomlTextError, read_toml

from ..rows import try_each
from .megatron_files import reasons, settings, values
from .torchtitan_files import (
    MACHINE,
    PYTHON,
    TOML,
    Run,
    of_recipe,
    problems,
    questions,
    read,
)

OF_ENDS = "pipeline_parallel_{}_stage_less_layers = {}"


def toml(**sections: str) -> str:
    """Return sections of a configuration; each is lines of keys."""
    named = {"model": 'name = "llama3"\nflavor = "8B"', **sections}
    return "\n".join(f"[{name}]\n{lines}" for name, lines in named.items())


def pipeline(lines: str, training: str = "", model: str = "") -> str:
    """Return a configuration with four stages."""
    own = {"model": model} if model else {}
    return toml(parallelism=f"pipeline_parallel_degree = 4\n{lines}", training=training, **own)


def test_a_toml_configuration_is_read() -> None:
    found = read(TOML)
    expected = {
        "cluster.devices": "256",  # 32 x 8
        "layout.tp": "8",
        "layout.zero": "3",
        "layout.sequence_parallel": "on",
        "training.model": "llama31_70b",
        "training.sequence": "8192",
        "training.micro_batch": "8",
        "training.global_batch": "256 sequences",
        "training.recompute": "full",
        "training.framework": "torchtitan",
        "training.precision": "bf16_fsdp",
    }
    assert expected.items() <= values(found).items()
    assert not found.unknown


@pytest.mark.parametrize(("name", "text"), [("run.toml", TOML), ("config.py", PYTHON)])
def test_a_key_has_its_own_place(name: str, text: str) -> None:
    for setting in settings(read(text, name)).values():
        if setting.key:
            last = setting.key.rpartition(".")[2]
            assert text[setting.start : setting.end].startswith(last)
    batch = settings(read(TOML))["training.global_batch"]
    assert TOML[batch.start : batch.end] == "global_batch_size = 256"


@pytest.mark.parametrize(("name", "text"), [("run.toml", TOML), ("config.py", PYTHON)])
def test_the_model_has_its_published_parameters(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    machine = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
    (study,) = parcost.load_text(f'use "{name}"\n{machine}', str(tmp_path / "job.par"))
    assert study.evaluate().result.figure("parameters") == 70_553_706_496


@try_each(
    "family, flavor, entry",
    [
        ("llama3", "405B", "llama31_405b"),
        ("llama3", "8B_flex", "llama3_8b"),
        ("deepseek_v3", "16B", "deepseek_v2_lite"),
        ("deepseek_v3", "236B", "deepseek_v2"),
        ("deepseek_v3", "671B", "deepseek_v3"),
        ("llama4", "17bx16e", "llama4_scout"),
        ("qwen3", "30B-A3B", "qwen3_30b_a3b"),
    ],
)
def test_flavors(family: str, flavor: str, entry: str) -> None:
    found = read(toml(model=f'name = "{family}"\nflavor = "{flavor}"'))
    assert f"catalog.models.{entry}" in [use.value for use in found.uses]
    assert values(found)["training.model"] == entry
    source = f"from torchtitan.models.{family} import model_registry\n" + PYTHON.replace(
        "from torchtitan.models.llama3 import model_registry\n", ""
    ).replace('"70B"', f'"{flavor}"')
    assert values(read(source, "config.py"))["training.model"] == entry


@try_each(
    "lines, attributes",
    [
        ("", {"layout.zero": "3", "layout.tp": "1"}),
        ("data_parallel_shard_degree = 1", {"layout.zero": "0"}),
        ("data_parallel_shard_degree = 1\ncontext_parallel_degree = 2", {"layout.zero": "3"}),
        (
            "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8",
            {"sharding.shard": "8", "cluster.devices": "16"},
        ),
        (
            "data_parallel_replicate_degree = 2",
            {"sharding.shard": "layout.dp * layout.cp / 2"},
        ),
        ('fsdp_reshard_after_forward = "never"', {"sharding.reshard": "off"}),
        (
            'context_parallel_degree = 2\ncontext_parallel_rotate_method = "alltoall"',
            {"context.algorithm": "ring"},
        ),
    ],
)
def test_layouts(lines: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(toml(parallelism=lines))).items()


def test_the_rest_of_the_ranks_leaves_the_devices_open() -> None:
    found = read(toml(parallelism="data_parallel_shard_degree = -1"))
    assert "cluster.devices" not in values(found)


def test_experts_need_a_model_with_experts() -> None:
    lines = "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 1"
    dense = read(toml(parallelism=lines))
    assert "layout.ep" not in values(dense)
    assert reasons(dense)["parallelism.expert_parallel_degree"] == "a model without experts"
    mixed = read(toml(model='name = "deepseek_v3"\nflavor = "16B"', parallelism=lines))
    assert values(mixed)["layout.ep"] == "4"
    assert values(mixed)["layout.etp"] == "1"


@try_each(
    "lines, attributes",
    [
        ("", {"schedule.kind": "one_f_one_b"}),
        ('pipeline_parallel_schedule = "GPipe"', {"schedule.kind": "gpipe"}),
        (
            'pipeline_parallel_schedule = "Interleaved1F1B"',
            {"schedule.kind": "interleaved", "schedule.chunks": "2"},
        ),
        # 32 + 1 + 1 layers of 3: 12 stages, three of each device.
        (
            'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_layers_per_stage = 3',
            {"schedule.chunks": "3"},
        ),
        (
            f"{OF_ENDS.format('first', 0)}\n{OF_ENDS.format('last', 2)}",
            {"schedule.stages": "[9, 9, 8, 6]"},  # 34 layers: 9, 9, 8, 8, less 0 and 2
        ),
        (
            'module_fqns_per_model_part = [["embed", "layers.0"], ["layers.1"], [], ["layers.2"]]',
            {"schedule.stages": "[1, 1, 0, 1]"},
        ),
        (
            'pipeline_parallel_split_points = ["layers.8", "layers.16", "layers.30"]',
            {"schedule.stages": "[8, 8, 14, 2]"},
        ),
        ('pipeline_parallel_schedule = "ZBVZeroBubble"', {"schedule.kind": "zb_v"}),
    ],
)
def test_pipelines(lines: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(pipeline(lines))).items()


def test_a_local_batch_is_cut_into_micro_batches_of_a_pipeline() -> None:
    found = read(pipeline("pipeline_parallel_microbatch_size = 2", "local_batch_size = 16"))
    assert values(found)["training.micro_batch"] == "2"
    assert values(found)["training.global_batch"] == "(16 * layout.dp) sequences"


def test_tokens_of_a_pipeline_are_those_of_a_micro_batch() -> None:
    text = PYTHON.replace("256 * LENGTH", "-1").replace(
        "tensor_parallel_degree=8", "pipeline_parallel_degree=4, num_pp_microbatches=6"
    )
    found = values(read(text, "config.py"))
    assert found["training.micro_batch"] == "8"
    assert found["training.global_batch"] == "(393_216 * layout.dp) tokens"  # 8 x 8192 x 6
    assert found["kernels.cuda_graphs"] == "none"


@try_each(
    "lines, attributes",
    [
        ('mode = "none"', {"training.recompute": "none"}),
        ('mode = "full"', {"training.recompute": "full"}),
        ("", {"training.recompute": "full", "recompute.every": "2", "recompute.first": "1"}),
        (
            'mode = "selective"\nselective_ac_option = "op"',
            {"training.recompute": "full", "recompute.alternate": "on"},
        ),
        (
            'mode = "selective"\nselective_ac_option = "3"',
            {"recompute.every": "3", "recompute.first": "2"},
        ),
        ('mode = "full"\nearly_stop = true', {"recompute.stops_early": "on"}),
        ('mode = "full"\nearly_stop = false', {"recompute.stops_early": "off"}),
    ],
)
def test_recomputation(lines: str, attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(toml(activation_checkpoint=lines))).items()


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"activation_checkpoint": 'mode = "none"'}, "nothing is recomputed"),
        (
            {"compile": "enable = true"},
            "the compiler does not save tensors that backward does not need",
        ),
    ],
)
def test_an_early_stop_without_effect_is_not_set(sections: dict[str, str], reason: str) -> None:
    own = sections.get("activation_checkpoint", 'mode = "full"')
    found = read(toml(**sections | {"activation_checkpoint": f"{own}\nearly_stop = true"}))
    assert "recompute.stops_early" not in values(found)
    ignored = {one.name: one.reason for one in found.ignored}
    assert ignored["activation_checkpoint.early_stop"] == reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "compiled", "early"),
    [
        ("batch_size", "false", True),  # 0.1 takes the default of PyTorch
        ("local_batch_size", "false", False),
        ("local_batch_size", "true", True),
    ],
)
def test_recomputation_stops_early_as_in_its_release(
    run_command: Run, key: str, compiled: str, early: bool
) -> None:
    text = toml(
        activation_checkpoint='mode = "full"',
        compile=f"enable = {compiled}",
        training=f"{key} = 1\nseq_len = 4096",
    )
    outputs = []
    for stops in ([], ["--set", "recompute.stops_early=on"]):
        options = [*MACHINE, "--set", "cluster.devices=8", *stops, "--format", "jsonl"]
        done = run_command("eval", *options, "run.toml", files={"run.toml": text})
        outputs.append(json.loads(done.out)["results"][0]["figures"]["step_time_seconds"]["value"])
    assert (outputs[0] == outputs[1]) == early


@try_each(
    "sections, attributes",
    [
        ({"training": 'dtype = "bfloat16"'}, {"precision.reduction": "4 B"}),
        ({"training": 'mixed_precision_param = "float32"'}, {"training.precision": "fp32"}),
        (
            {"model": 'name = "llama3"\nflavor = "8B"\nconverters = ["float8"]'},
            {"precision.gather": "2 B", "training.precision": "own"},
        ),
        (
            {
                "model": 'flavor = "405B"\nconverters = ["quantize.linear.float8"]',
                "quantize.linear.float8": "enable_fsdp_float8_all_gather = true",
            },
            {"training.precision": "fp8_torchao"},
        ),
        (
            {
                "model": 'flavor = "405B"\nconverters = ["quantize.linear.float8"]',
                "quantize.linear.float8": 'recipe_name = "rowwise"',
            },
            {"training.precision": "fp8_torchao_rows"},
        ),
        ({"compile": "enable = true"}, {"kernels.mode": "compiled"}),
        (
            {"compile": 'enable = true\ncomponents = ["loss"]'},
            {"kernels.mode": "eager", "training.loss": "logits"},
        ),
        (
            {"compile": 'enable = true\ncomponents = ["model"]'},
            {"kernels.mode": "compiled", "training.loss": "eager"},
        ),
        ({"training": "compile = true"}, {"kernels.mode": "compiled"}),
        (
            {"training": "enable_cpu_offload = true"},
            {"offload.optimizer": "100 %", "offload.parameters": "100 %"},
        ),
        (
            {
                "compile": "enable = true",
                "parallelism": "tensor_parallel_degree = 2\nenable_async_tensor_parallel = true",
            },
            {"overlap.tensor": "pipelined"},
        ),
    ],
)
def test_how_the_job_runs(sections: dict[str, str], attributes: dict[str, str]) -> None:
    assert attributes.items() <= values(read(toml(**sections))).items()


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("parallelism", "tensor_parallel_degree = [4]"),
        ("parallelism", "pipeline_parallel_degree = [2]"),
        ("parallelism", "data_parallel_shard_degree = [8]"),
        ("training", "local_batch_size = [2]"),
        ("training", "seq_len = [4096]"),
    ],
)
def test_a_list_is_no_number(section: str, line: str) -> None:
    text = toml(**{section: line})
    (problem,) = Torchtitan().translate("run.toml", text).problems
    assert f" [{line.partition('[')[2]} is " in problem.message
    assert text[problem.start : problem.end] == line


def float8_by(recipe: str) -> str:
    """Return a job in float8 whose scaling factors a *recipe* decides."""
    model = 'flavor = "405B"\nconverters = ["quantize.linear.float8"]'
    return toml(model=model, **{"quantize.linear.float8": f'recipe_name = "{recipe}"'})


@pytest.mark.parametrize("rows", [False, True])
def test_float8_over_parameters_in_bf16_keeps_both(rows: bool, tmp_path: Path) -> None:
    """Two moments in bf16 take 4 B over 8 shards, with products in fp8 and without.

    Without the converter a step takes more time.
    """
    recipe = {"quantize.linear.float8": 'recipe_name = "rowwise"'} if rows else {}
    machine = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
    seconds = {}
    for converters in ("", 'converters = ["quantize.linear.float8"]'):
        text = toml(
            model=f'name = "llama3"\nflavor = "8B"\n{converters}',
            training='dtype = "bfloat16"\nseq_len = 4096',
            parallelism="data_parallel_shard_degree = 8",
            **(recipe if converters else {}),
        )
        (tmp_path / "run.toml").write_text(text)
        (study,) = parcost.load_text(f'use "run.toml"\n{machine}', str(tmp_path / "job.par"))
        result = study.evaluate().result
        assert result.figure("optimizer_memory") == pytest.approx(4 * 8_030_261_248 / 8, rel=1e-3)
        seconds[bool(converters)] = result.figure("step_time")
    assert seconds[True] < 0.9 * seconds[False]


@pytest.mark.parametrize(
    ("recipe", "precision"),
    [
        ("llama3_8b_float8", "fp8_torchao_rows"),
        ("llama3_8b_float8_by_tensor", "fp8_torchao"),
    ],
)
def test_float8_of_a_model_has_factors_for_rows_unless_stated(recipe: str, precision: str) -> None:
    assert values(of_recipe(recipe))["training.precision"] == precision


@pytest.mark.slow
def test_sizes_of_an_unknown_flavor_come_from_a_configuration(run_command: Run) -> None:
    """Two layers of 4 x 64^2 + 3 x 64 x 128 + 2 x 64, two embeddings of 100 x 64, and a norm."""
    sizes = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
    }
    text = toml(
        model='name = "llama3"\nflavor = "34B"',
        training="seq_len = 4096",
        parallelism="data_parallel_shard_degree = 8",
    )
    files = {"run.toml": text, "config.json": json.dumps(sizes)}
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    asked = run_command("eval", "run.toml", *machine, files=files)
    assert "`34B` of llama3 is not in parcost's table" in asked.err
    (answer,) = re.findall("help: add (--use .*)", asked.err)
    done = run_command("figures", "run.toml", "parameters", *machine, *answer.split(), files=files)
    assert "95,040" in done.out


def test_weight_gradients_in_high_precision_are_a_question() -> None:
    """Rows are cast twice for two products, and once without the weight gradient."""
    found = questions(read(float8_by("rowwise_with_gw_hp")))
    assert "weight gradients in high precision" in found["precision"]


def test_a_recipe_of_float8_with_a_typo_is_an_error() -> None:
    (problem,) = Torchtitan().translate("run.toml", float8_by("rowwize")).problems
    assert "`rowwize` is not known" in problem.message
    assert problem.help == "known: tensorwise, rowwise, rowwise_with_gw_hp"


def test_unknown_keys_are_listed(run_command: Run) -> None:
    text = f"{TOML}\n[warp]\nfactor = 9\n"
    assert [key.name for key in read(text).unknown] == ["warp.factor"]
    done = run_command("check", *MACHINE, "run.toml", files={"run.toml": text})
    assert "warning[import-unknown]" in done.out
    assert "`warp.factor`" in done.out


def test_a_rule_names_the_key_of_the_file(run_command: Run) -> None:
    text = TOML.replace("tensor_parallel_degree = 8", "tensor_parallel_degree = 7")
    done = run_command("check", *MACHINE, "run.toml", files={"run.toml": text})
    assert done.code == 1
    assert "`parallelism.tensor_parallel_degree` is `layout.tp` here" in done.out
    line = 1 + text[: text.index("tensor_parallel_degree")].count("\n")
    assert f"run.toml:{line}:1" in done.out


@try_each(
    "text, message",
    [
        ("[model", "not TOML"),
        ("a = 1\na = 2", "not TOML"),
        ("x = 1", "the file has no section of torchtitan"),
        (
            toml(parallelism="tensor_parallel_degree = 0"),
            "a whole number of at least 1 is expected",
        ),
        (toml(parallelism='tensor_parallel_degree = "two"'), "a whole number of at least 1"),
        (toml(parallelism="data_parallel_shard_degree = -2"), "is not a number of at least 1"),
        (pipeline('pipeline_parallel_schedule = "InterleavedZeroBubble"'), "is not modeled"),
        (pipeline("pipeline_parallel_layers_per_stage = 3"), "make 12 stages of 3"),
        (pipeline('pipeline_parallel_split_points = ["norm"]'), "names such as layers.8"),
        (
            pipeline('module_fqns_per_model_part = [["layers.0"]]'),
            "1 stages cannot be distributed evenly over 4 pipeline ranks",
        ),
        (
            pipeline("pipeline_parallel_microbatch_size = 3", "local_batch_size = 8"),
            "a local batch of 8 is not a multiple of 3",
        ),
        (
            toml(activation_checkpoint='mode = "memory_budget"'),
            "the compiler decides what to recompute for a budget",
        ),
        (
            toml(activation_checkpoint='selective_ac_option = "some"'),
            "`some` is neither `op` nor a number of layers",
        ),
        ("[" * 100_000, "not TOML"),
        ("a = 1" + "0" * 5000, "too many digits"),
        ("a." * 20_000 + "a = 1", "more than 32 parts"),
        ("a = " + "[" * 100_000, ""),
    ],
)
def test_what_is_wrong_with_toml_is_an_error(text: str, message: str) -> None:
    found = problems(text)
    assert found
    assert message in found[0]


def test_places_of_toml() -> None:
    text = 'a.b = 1\n[c]\nd = "x # y"  # z\ne = [\n  1,\n]\n[f.g]\n"h" = true\n'
    found = read_toml(text)
    shown = {key: text[one.start : one.end] for key, one in found.items()}
    assert shown == {"a.b": "a.b = 1", "c.d": 'd = "x # y"', "c.e": "e = [", "f.g.h": '"h" = true'}
    with pytest.raises(TomlTextError) as error:
        read_toml("a = 1\nb = = 2\n")
    assert (error.value.start, error.value.end) == (10, 11)


def test_the_file_is_recognized() -> None:
    importer = Torchtitan()
    assert importer.recognizes("run.toml", TOML)
    assert importer.recognizes("config.py", PYTHON)
    assert not importer.recognizes("pyproject.toml", "[project]\n")
    assert not importer.recognizes("a.py", "print()")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [("run.toml", TOML), ("config.py", PYTHON)])
def test_a_translation_is_what_is_evaluated(run_command: Run, name: str, text: str) -> None:
    direct = run_command("eval", *MACHINE, "--format", "jsonl", name, files={name: text})
    spec = run_command("import", name, *MACHINE[2:]).out
    again = run_command("eval", "job.par", "--format", "jsonl", files={"job.par": spec})
    first, second = (json.loads(done.out)["results"][0]["figures"] for done in (direct, again))
    assert {n: f["value"] for n, f in first.items()} == {n: f["value"] for n, f in second.items()}


@try_each(
    "text, message",
    [
        (toml(model='name = "llama3"\nflavor = "9B"'), "`9B` of llama3 is not in parcost's table"),
        (toml(model='name = "llama3"\nflavor = "debugmodel"'), "is not in parcost's table"),
        (toml(model='name = "warp"\nflavor = "8B"'), "the family `warp` is not in parcost's table"),
        (toml(model='flavor = "8B"'), "cannot tell which model the flavor `8B` belongs to"),
    ],
)
def test_a_model_that_is_not_known_is_a_question(text: str, message: str) -> None:
    assert message in questions(read(text))["model"]


# 256 devices: 4 replicas of 8 x 8; 64 sequences of each in 8 micro-batches, one of each stage.
OF_2024 = """\
[job]
description = "old"
[model]
name = "llama3"
flavor = "70B"
norm_type = "rmsnorm"
[training]
batch_size = 64
seq_len = 8192
data_parallel_degree = 4
tensor_parallel_degree = 8
enable_fp8_linear = true
[experimental]
pipeline_parallel_degree = 8
pipeline_parallel_schedule = "1f1b"
context_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""


def test_keys_of_2024_are_read() -> None:
    assert Torchtitan().recognizes("run.toml", OF_2024)
    found = read(OF_2024)
    assert not found.unknown
    assert not found.questions
    assert {
        "cluster.devices": "256",
        "layout.tp": "8",
        "layout.pp": "8",
        "layout.zero": "3",
        "schedule.kind": "one_f_one_b",
        "training.micro_batch": "8",
        "training.global_batch": "(64 * layout.dp) sequences",
        "training.framework": "torchtitan_0_1",
    }.items() <= values(found).items()
    assert [use.value for use in found.uses][-1] == "catalog.precisions.fp8_torchao"
    assert settings(found)["training.micro_batch"].assumption == (
        "torchtitan 0.0: pipeline_parallel_microbatches is the number of stages"
    )


def test_a_vocabulary_of_a_job_replaces_that_of_its_flavor() -> None:
    text = OF_2024.replace("seq_len = 8192", "seq_len = 8192\nvocab_size = 256")
    found = values(read(text))
    assert (found["training.model"], found["model.vocabulary"]) == ("titan", "256")
    (model,) = [block for block in read(text).blocks if block.kind == "model"]
    assert model.label == "titan extends llama31_70b"
    assert "model.vocabulary" not in values(read(OF_2024))


def test_two_names_of_one_field_have_to_agree() -> None:
    text = OF_2024.replace("[experimental]", "[experimental]\n") + (
        "[parallelism]\npipeline_parallel_degree = 4\n"
    )
    found = problems(text)
    assert len(found) == 2
    assert "set the same field to different values" in found[0]


def test_replicas_of_2024_are_a_question() -> None:
    text = OF_2024.replace("batch_size = 64", 'batch_size = 64\ndata_parallel_type = "ddp"')
    assert "`ddp`" in questions(read(text))["layout.zero"]


def test_without_fsdp_mixed_precision_has_no_effect_beside_tensor_parallelism() -> None:
    text = toml(parallelism="data_parallel_shard_degree = 1\ntensor_parallel_degree = 8")
    assert values(read(text))["training.precision"] == "fp32"
    plain = toml(parallelism="data_parallel_shard_degree = 1")
    assert values(read(plain))["training.precision"] == "bf16_fsdp"


def test_sizes_of_a_flavor_that_the_catalogue_lacks_are_written(tmp_path: Path) -> None:
    """Qwen3 0.6B: 28 layers of 15,730,944, the embedding of 155,582,464, and a norm of 1024."""
    text = toml(
        model='name = "qwen3"\nflavor = "0.6B"',
        training="seq_len = 4096",
        parallelism="data_parallel_shard_degree = 8",
    )
    (tmp_path / "run.toml").write_text(text)
    machine = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
    (study,) = parcost.load_text(f'use "run.toml"\n{machine}', str(tmp_path / "job.par"))
    assert study.evaluate().result.figure("parameters") == 596_049_920


def test_the_type_of_reductions_is_read() -> None:
    narrow = 'dtype = "bfloat16"\nmixed_precision_reduce = "bfloat16"'
    assert "precision.reduction" not in values(read(toml(training=narrow)))
    wide = values(read(toml(training='dtype = "bfloat16"')))
    assert wide["precision.reduction"] == "4 B"
    half = values(read(toml(training='mixed_precision_reduce = "bfloat16"')))
    assert half["precision.reduction"] == "2 B"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (toml(fault_tolerance="enable = true"), "replicas of TorchFT"),
        (
            toml(model='name = "llama3"\nflavor = "8B"\nconverters = ["lora"]'),
            "adapters of this tool",
        ),
        (
            toml(
                model='name = "llama3"\nflavor = "8B"\nconverters = ["float8"]',
                training='mixed_precision_param = "float32"',
            ),
            "FP8 matrix products between layers in float32",
        ),
    ],
)
def test_what_the_language_lacks_is_refused_by_name(text: str, message: str) -> None:
    assert message in problems(text)[0]


def test_the_family_of_2024_is_that_of_llama_2() -> None:
    found = read(toml(model='name = "llama"\nflavor = "7B"', training='fp8_linear = ""'))
    assert values(found)["training.model"] == "llama2_7b"
    assert values(found)["training.framework"] == "torchtitan_0_1"


def test_a_pipeline_that_runs_several_times_a_step_asks_for_the_batch_of_one_run() -> None:
    """torchtitan accumulates 256 / (4 replicas * 8 sequences) = 8 runs of the pipeline."""
    stages = "pipeline_parallel_degree = 8\ndata_parallel_shard_degree = 4"
    text = TOML.replace("data_parallel_shard_degree = 32", stages)
    (asked,) = read(text).questions
    assert asked.attribute == "training.global_batch"
    assert "256 sequences / (4 replicas * 8) = 8 times per step" in asked.reason
    assert list(asked.answers) == [
        "--set 'training.global_batch=32 sequences'",
        "--set 'training.global_batch=256 sequences'",
    ]


def test_a_number_as_text_is_an_error() -> None:
    lines = 'tensor_parallel_degree = "4"\npipeline_parallel_degree = 1000000000000000000'
    found = problems(toml(training='seq_len = "8192"', parallelism=lines))
    large = "a whole number below 10^15 is expected, but 1000000000000000000 is given"
    text = "a number is expected, but this is text"
    assert found == [
        f"`training.seq_len`: {text}",
        f"`parallelism.tensor_parallel_degree`: {text}",
        f"`parallelism.pipeline_parallel_degree`: {large}",
    ]


def test_degrees_must_give_the_devices(run_command: Run) -> None:
    """torchtitan stops unless replicas x shards x tp are the devices: 7 x 4 is not 64."""
    text = toml(parallelism="data_parallel_shard_degree = 7\ntensor_parallel_degree = 4")
    more = ("--set", "cluster.devices=64")
    done = run_command("check", "job.toml", *MACHINE, *more, files={"job.toml": text})
    assert done.code == 1
    assert "tp 4 x pp 1 x dp 7 = 28, but the cluster has 64 devices" in done.out


def test_a_batch_of_too_few_devices_is_no_error_of_its_own(run_command: Run) -> None:
    text = toml(parallelism="tensor_parallel_degree = 8\npipeline_parallel_degree = 4")
    more = ("--set", "cluster.devices=8")
    done = run_command("check", "job.toml", *MACHINE, *more, files={"job.toml": text})
    assert "error[devices-few]: tp 8 x pp 4 = 32 devices are needed" in done.out
    assert "batch-whole" not in done.out
