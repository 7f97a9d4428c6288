"""YAML with places, and the configurations of nanotron."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.nanotron import Nanotron
from parcost_formats.tools.yaml_text import (
    LONGEST,
    MOST_VALUES,
    YamlTextError,
    read_mapping,
)

from ..rows import mark_most, try_each
from .translations import assumptions, names, problems, settings, uses


def test_keys_have_the_places_of_their_values() -> None:
    text = "a: 1\nb:\n  c: [x, y]\n  d:\n  - e: true\n  - f: null\n"
    found = read_mapping(text)
    assert {key: (one.value, text[one.start : one.end]) for key, one in found.items()} == {
        "a": (1, "a: 1"),
        "b.c": (["x", "y"], "c: [x, y]"),
        "b.d.0.e": (True, "e: true"),
        "b.d.1.f": (None, "f: null"),
    }


def test_plain_values_are_what_yaml_has_them_as() -> None:
    text = "a: no\nb: 'no'\nc: 1e-5\nd: 1.0e-5\ne: 1_000\nf: {}\ng: 2024-01-02\nh: 010\n"
    found = {key: one.value for key, one in read_mapping(text).items()}
    assert found == {
        "a": False, "b": "no", "c": "1e-5", "d": 1e-5, "e": 1000, "f": {}, "g": "2024-01-02",
        "h": 8,
    }  # fmt: skip


def test_aliases_and_merge_keys_are_followed() -> None:
    text = "base: &b {x: 1, y: 2}\nuse: *b\nown:\n  <<: *b\n  y: 3\n"
    found = {key: one.value for key, one in read_mapping(text).items()}
    assert found == {"base.x": 1, "base.y": 2, "use.x": 1, "use.y": 2, "own.x": 1, "own.y": 3}


def laughs(depth: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message", "part"),
    mark_most(
        [
            (laughs(9), f"more than {MOST_VALUES:,} values", None),
            ("a: &a [*a]\n", "nested too deeply", None),
            ("a: &a {b: *a}\n", "nested too deeply", None),
            ("a: " + "[" * 2000 + "]" * 2000, "nested too deeply", None),
            (
                "a: !!python/object/apply:os.system [ls]\n",
                "asks for an object",
                "!!python/object/apply:os.system [ls]",
            ),
            ("a: !Thing {x: 1}\n", "`!Thing` asks for an object", "!Thing {x: 1}"),
            ("a: !!binary aGk=\n", "values of `!!binary` are not supported", "!!binary aGk="),
            ("!!python/name:os.system x: 1\n", "asks for an object", None),
            ("a: 1\na: 2\n", "`a` is defined twice", "a: 2"),
            ("? [x, y]\n: 1\n", "a key is a plain value", None),
            ("a: [1\n", "expected ',' or ']'", None),
            ("a: \x07\n", "special characters are not allowed", None),
            ("- a\n", "a mapping is expected", None),
            ("", "a mapping is expected", None),
            ("a: 1\n---\nb: 2\n", "but found another document", None),
            ("<<: 3\n", "a merge key takes mappings", None),
            ("a: x" + "y" * LONGEST, "more than the 262,144 of a configuration", None),
        ]
    ),
)
def test_a_text_that_is_no_configuration_is_an_error(
    text: str, message: str, part: str | None
) -> None:
    with pytest.raises(YamlTextError) as caught:
        read_mapping(text)
    assert message in str(caught.value)
    if part is not None:
        assert text[caught.value.start : caught.value.end] == part


def test_without_pyyaml_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, run_command: Callable[..., Any]
) -> None:
    original = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    done = run_command("import", "a.yaml", files={"a.yaml": "distributed_type: FSDP\n"})
    assert done.code == 2
    assert "pip install 'parcost[yaml]'" in done.out + done.err


# nanotron ---------------------------------------------------------------------------------------

LLAMA = """\
general: {project: p, run: r, seed: 1}
model:
  dtype: bfloat16
  ddp_bucket_cap_mb: 25
  make_vocab_size_divisible_by: 2
  init_method: {std: 0.02}
  model_config:
    is_llama_config: true
    hidden_act: silu
    hidden_size: 1024
    intermediate_size: 4096
    num_hidden_layers: 8
    num_attention_heads: 16
    num_key_value_heads: 4
    vocab_size: 50000
    max_position_embeddings: 4096
    rope_scaling: null
    tie_word_embeddings: false
optimizer:
  zero_stage: 1
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler: {learning_rate: 3.0e-4}
  optimizer_factory: {name: adamW, adam_beta1: 0.9}
parallelism:
  dp: 4
  tp: 2
  pp: 2
  tp_mode: REDUCE_SCATTER
  tp_linear_async_communication: false
  pp_engine: 1f1b
  recompute_layer: true
tokens: {sequence_length: 2048, micro_batch_size: 3, batch_accumulation_per_replica: 8, train_steps: 5}
"""
QWEN = """\
model:
  dtype: bfloat16
  model_config:
    is_qwen2_config: true
    hidden_size: 512
    intermediate_size: 1024
    num_hidden_layers: 6
    num_attention_heads: 8
    vocab_size: 1000
    sliding_window_size: 256
    attention_bias: true
    moe_config:
      num_experts: 16
      top_k: 4
      moe_intermediate_size: 256
      enable_shared_expert: true
      shared_expert_intermediate_size: 128
      layers: [2, 3, 4, 5]
      token_dispatcher_type: allgather
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: false, optimizer_factory: {name: sgd}}
parallelism: {dp: 8, tp: 1, pp: 2, expert_parallel_size: 4, context_parallel_size: 2, tp_recompute_allgather: false}
tokens: {sequence_length: 1024, micro_batch_size: 2, batch_accumulation_per_replica: 4, train_steps: 5}
"""


def nanotron(text: str) -> Translation:
    return Nanotron().translate("run.yaml", text)


def test_evaluation_and_kernels_of_nanotron_ask_for_nothing(run_command: Any) -> None:
    """`lighteval` has a layout of its own; `use_fa3` is a key of a fork, and is off."""
    more = "lighteval:\n  parallelism: {dp: 8, tp: 4, recompute_granularity: null}\n"
    text = LLAMA.replace("    hidden_act: silu\n", "    use_fa3: false\n", 1)
    done = run_command("import", "run.yaml", files={"run.yaml": text + more})
    assert done.code == 0, done.err
    found = nanotron(text.replace("use_fa3: false", "use_fa3: true"))
    assert "model.model_config.use_fa3" in names(found.missing)


def test_a_launch_script_of_nanotron_is_read_with_its_configuration(run_command: Any) -> None:
    """The launcher starts the devices that the degrees need; a count that is not known is none."""
    launch = "#!/bin/bash\nsrun torchrun --nnodes={} --nproc_per_node=8 run_train_x.py --config-file c/run.yaml\n"
    files = {"go.slurm": launch.format(2), "run.yaml": LLAMA}
    for nodes in (2, "$NODES"):
        done = run_command("import", "go.slurm", files=files | {"go.slurm": launch.format(nodes)})
        assert done.code == 0, done.err
        assert "devices = 16" in " ".join(done.out.split())
        assert "global_batch = (3 * 8 * layout.dp) sequences" in " ".join(done.out.split())
    files["go.slurm"] = launch.format(1)
    done = run_command("import", "go.slurm", files=files)
    assert "the degrees need 16 devices, but the launcher starts 8" in done.err


def test_a_llama_of_nanotron_is_read() -> None:
    found = nanotron(LLAMA)
    assert settings(found) == {
        "cluster.devices": "16",
        "training.global_batch": "(3 * 8 * layout.dp) sequences",
        "training.recompute": "full",
        "training.sequence": "2048",
        "training.micro_batch": "3",
        "training.micro_batches": "8",
        "schedule.kind": "one_f_one_b",
        "layout.sequence_parallel": "on",
        "layout.zero": "1",
        "layout.dp": "4",
        "layout.tp": "2",
        "layout.pp": "2",
        "layout.vocabulary_multiple": "2",
        "overlap.tensor": "off",
        "overlap.gradients": "off",  # sums in fp32 under ZeRO 1 are one buffer
        "model.layers": "8",
        "model.hidden": "1024",
        "model.heads": "16",
        "model.kv_heads": "4",
        "model.ffn": "4096",
        "model.vocabulary": "50_000",
        "model.tied": "off",
    }
    assert uses(found) == ["frameworks.nanotron", "precisions.bf16"]
    assert not found.unknown
    assert not found.missing
    assumed = {"cluster.devices", "training.global_batch", "overlap.gradients"}
    assert set(assumptions(found)) == assumed
    plain = settings(nanotron(LLAMA.replace("zero_stage: 1", "zero_stage: 0")))
    assert plain["overlap.bucket"] == "50 MiB"  # of gradients in 16 bits, reduced in 32
    assert plain["overlap.gradients"] == "on"


def test_a_study_of_nanotron_has_the_batch_and_the_parameters(tmp_path: Any) -> None:
    """3 x 8 x 4 = 96 sequences; 8 layers of h = 1024 with 4 of 16 heads, f = 4096, V = 50000."""
    (tmp_path / "run.yaml").write_text(LLAMA, encoding="utf-8")
    (scenario,) = parcost.load_text(
        'use "run.yaml"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n',
        str(tmp_path / "job.par"),
    )
    from parcost_plugins.vocabulary import Training

    report = scenario.evaluate()
    assert not [one for one in report.diagnostics if one.severity.value == "error"]
    attention = 1024 * 1024 * 2 + 2 * 1024 * 256
    total = 8 * (attention + 3 * 1024 * 4096 + 2 * 1024) + 2 * 50_000 * 1024 + 1024
    assert report.result.figure("parameters") == total
    assert scenario.studies()[0][Training].global_batch == 96


def test_a_vocabulary_of_nanotron_has_rows_for_all_ranks() -> None:
    """The multiple of the file is 1: it is one of the ranks, too."""
    rows = "layout.vocabulary_multiple"
    odd = re.sub(
        r"vocab_size: \d+", "vocab_size: 50257", re.sub(r"\n  tp: \d+", "\n  tp: 4", LLAMA)
    )
    odd = re.sub(r"divisible_by: \d+", "divisible_by: 1", odd)
    assert settings(nanotron(odd))[rows] == "ceil(training.model.vocabulary / layout.tp)"
    even = odd.replace("vocab_size: 50257", "vocab_size: 50256")
    assert settings(nanotron(even)).get(rows, "1") == "1"


def test_another_engine_of_replicas_asks_for_what_is_sharded() -> None:
    """Of a fork of nanotron: FSDP2 in place of DDP, beside a stage of ZeRO."""
    text = LLAMA.replace("parallelism:\n", "parallelism:\n  dp_engine: fsdp2\n")
    (question,) = nanotron(text).questions
    assert question.attribute == "layout.zero"
    assert not nanotron(text.replace("fsdp2", "ddp")).questions


def test_a_mixture_of_experts_of_nanotron_is_read() -> None:
    found = nanotron(QWEN)
    values = settings(found)
    assert {name: value for name, value in values.items() if name.startswith("model.")} == {
        "model.layers": "6",
        "model.hidden": "512",
        "model.heads": "8",
        "model.ffn": "1024",
        "model.vocabulary": "1000",
        "model.window": "256",
        "model.qkv_biases": "on",
        "model.experts": "16",
        "model.top_k": "4",
        "model.expert_ffn": "256",
        "model.shared_experts": "1",
        "model.shared_ffn": "128",
        "model.dense_first": "2",
        "model.tied": "off",
    }
    assert values["cluster.devices"] == "32"
    assert (values["layout.ep"], values["layout.cp"]) == ("4", "2")
    assert values["routing.dispatcher"] == "allgather"
    assert values["schedule.kind"] == "gpipe"
    assert "afab" in assumptions(found)["schedule.kind"]
    assert uses(found) == ["frameworks.nanotron", "precisions.bf16_pure"]
    assert names(found.missing) == {"parallelism.tp_recompute_allgather"}
    assert [one.attribute for one in found.questions] == ["precision"]


@try_each(
    "old, new, message",
    [
        ("zero_stage: 1", "zero_stage: 2", "nanotron has ZeRO 0 and 1"),
        ("pp_engine: 1f1b", "pp_engine: dualpipe", "`dualpipe` is not known"),
        ("dp: 4", "dp: many", "a whole number"),
        ("dtype: bfloat16", "dtype: int4", "`int4` is not known"),
        ("hidden_size: 1024", "hidden_size: -1", "a whole number of at least 1"),
    ],
)
def test_an_error_stands_at_its_value(old: str, new: str, message: str) -> None:
    (found,) = problems(Nanotron(), LLAMA.replace(old, new), "run.yaml")
    assert message in found[0]
    assert found[1] == new


def test_a_stage_of_data_with_a_length_of_its_own_raises_a_question() -> None:
    stages = "data_stages:\n- {name: a, start_training_step: 1}\n"
    longer = f"{stages}- {{name: b, start_training_step: 9, sequence_length: 65536}}\n"
    assert not nanotron(LLAMA + stages).questions
    (question,) = nanotron(LLAMA + longer).questions
    assert question.attribute == "training.sequence"
    assert "--set training.sequence=65536" in question.answers


def test_keys_of_nanotron_ahead_of_0_3_decide_nothing() -> None:
    more = "profile:\nlearning_rate_scheduler: {lr_warmup_steps: 1}\n"
    text = LLAMA.replace("  dtype:", "  tokenizer_name_or_path: a/b\n  seed: 1\n  dtype:")
    found = nanotron(text.replace("zero_stage: 1", "zero_stage: 1\n  learning_rate: 1.0") + more)
    assert settings(found) == settings(nanotron(LLAMA))
    assert not found.questions
    assert not found.unknown


@try_each(
    "line, missing",
    [
        ("flex_attention_mask: causal", []),
        ("flex_attention_mask: document", ["model.model_config.flex_attention_mask"]),
        ("_use_doc_masking: true", ["model.model_config._use_doc_masking"]),
        ("use_position_embeddings: true", ["model.model_config.use_position_embeddings"]),
        ("use_position_embeddings: false", []),
    ],
)
def test_masks_and_positions_of_nanotron_are_listed(line: str, missing: list[str]) -> None:
    found = nanotron(LLAMA.replace("  model_config:\n", f"  model_config:\n    {line}\n"))
    assert [one.name for one in found.missing] == missing
    assert not found.unknown


def test_a_class_that_no_mark_names_raises_a_question() -> None:
    text = LLAMA.replace("is_llama_config: true", "is_llama_config: false")
    assert text != LLAMA
    (question,) = nanotron(text).questions
    assert question.attribute == "model"
    assert question.answers == ("--as llama", "--as qwen2", "--as starcoder2")
    file = ImportFile("a.yaml", text, ImportOptions(family="llama"))
    assert settings(Nanotron().read(file)) == settings(nanotron(LLAMA))


def test_a_model_in_8_bits_raises_a_question() -> None:
    found = nanotron(LLAMA.replace("dtype: bfloat16", "dtype: float8")).questions
    answers = {one.attribute: one.answers for one in found}
    assert answers["precision"][0] == "--use catalog.precisions.fp8_delayed"


def test_layers_with_experts_that_follow_no_pattern_are_an_error() -> None:
    (found,) = problems(Nanotron(), QWEN.replace("[2, 3, 4, 5]", "[1, 3, 5]"), "run.yaml")
    assert "only the first layers can be dense" in found[0]
