"""Configurations of Hugging Face: parameters, keys, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_formats.tools.huggingface import HuggingFace
from parcost_formats.tools.json_text import JsonTextError, read_object

from ..rows import mark_most
from .translations import names

Run = Callable[..., Any]

# Configurations of published models, and how many parameters their authors count.
MODELS: dict[str, Any] = json.loads(
    Path(__file__).with_suffix(".json").with_name("huggingface.json").read_text(encoding="utf-8")
)
# Parameters of the model that transformers 5.23 builds (routers' correction buffers included).
TYPES: list[Any] = json.loads(
    Path(__file__).with_name("huggingface_types.json").read_text(encoding="utf-8")
)
JOB = """
use "config.json" as model
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 1 }
training { sequence = 1024, global_batch = 32 sequences }
"""
SMALL = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
GROUPS = {"num_key_value_heads": 8}
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 64}
SIZES = {"kv_heads": "8", "head_dim": "64"}
OLMO3 = {"model_type": "olmo3", "sliding_window": 128}
OF_OLMO3 = {"qk_norm": "on", "qk_norm_whole": "on"}
MPT = {
    "model_type": "mpt", "hidden_size": None, "d_model": 512, "n_heads": 8, "n_layers": 4,
    "num_hidden_layers": None, "num_attention_heads": None, "intermediate_size": None,
    "num_key_value_heads": None, "expansion_ratio": 2, "max_seq_len": 256,
}  # fmt: skip
OF_MPT = {"tied": "on", "norm": "layer", "norm_weights": "1", "gated": "off"}
OF_NEMOTRON = {"norm": "layer", "gated": "off", "squared_relu": "on"}
MIXTURE = {
    "model_type": "qwen3_moe",
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}
OF_MIXTURE = {"qk_norm": "on", "experts": "8", "top_k": "2", "expert_ffn": "256", **SIZES}
OPTIONS = [
    *("--from", "huggingface"),
    *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
    *("--use", "catalog.precisions.bf16", "--set", "cluster.devices=8"),
    *("--set", "training.sequence=1024", "--set", "training.global_batch=32 sequences"),
]


def config_text(**changes: Any) -> str:
    return json.dumps({**SMALL, **changes}, indent=2)


def model_of(run: Run, text: str, name: str = "config.json") -> dict[str, str]:
    """Return the attributes of the model that a configuration is read as."""
    done = run("import", name, files={name: text})
    assert done.code == 0, done.err
    lines = [line.split("#")[0].split("@")[0] for line in done.out.splitlines()]
    pairs = [line.partition("=") for line in lines if "=" in line]
    return {name.strip(): value.strip().replace("_", "") for name, _, value in pairs}


def parameters_of(config: Any, tmp_path: Path) -> Any:
    """Return the parameters of a configuration, which is read without a question or a warning."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (study,) = parcost.load_text(JOB.replace("1024", "64"), str(tmp_path / "job.par"))
    report = study.evaluate()
    assert not [d for d in report.diagnostics if d.id.startswith("import")]
    return report.result.figure("parameters")


@pytest.mark.parametrize(
    "name",
    ["glm-4.5", "minimax-m2.5", "qwen3-coder-480b-a35b", "ling-1t", "phi-4", "gemma-3-27b-text"],
)
def test_a_new_model_has_its_published_parameters(name: str, tmp_path: Path) -> None:
    assert parameters_of(MODELS[name]["config"], tmp_path) == MODELS[name]["parameters"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_has_its_published_parameters(name: str, tmp_path: Path) -> None:
    assert parameters_of(MODELS[name]["config"], tmp_path) == MODELS[name]["parameters"]


@pytest.mark.slow
@pytest.mark.parametrize("row", TYPES, ids=[row["config"]["model_type"] for row in TYPES])
def test_a_model_type_has_the_parameters_that_transformers_builds(row: Any, tmp_path: Path) -> None:
    """Small models, with biases drawn at random, and models of which nearly all is a default."""
    assert parameters_of(row["config"], tmp_path) == row["parameters"]


def test_glm_4_5_by_hand() -> None:
    h, attention = 5120, 5120 * (96 + 2 * 8) * 128 + (96 + 2 * 8) * 128 + 96 * 128 * 5120
    each = attention + 2 * h + 2 * 128  # norms of the layer, and of queries and keys
    dense = 3 * h * 12288
    mixture = (160 + 1) * 3 * h * 1536 + 160 * h + 160
    total = 92 * each + 3 * dense + 89 * mixture + 2 * 151552 * h + h
    assert total == MODELS["glm-4.5"]["parameters"] == 352_797_829_024


def test_ling_1t_by_hand() -> None:
    h = 8192
    each = h * (64 + 2 * 8) * 128 + 64 * 128 * h + 2 * h + 2 * 128
    mixture = (256 + 1) * 3 * h * 2048 + 256 * h + 256
    total = 80 * each + 4 * 3 * h * 18432 + 76 * mixture + 2 * 157184 * h + h
    assert total == MODELS["ling-1t"]["parameters"] == 999_705_328_640


@pytest.mark.slow
def test_a_configuration_is_evaluated_at_once(run_command: Run) -> None:
    done = run_command("eval", *OPTIONS, "config.json", files={"config.json": config_text()})
    assert done.code == 0
    assert "step time" in done.out


@pytest.mark.slow
def test_the_imported_spec_is_what_is_evaluated(run_command: Run) -> None:
    spec = run_command("import", "config.json", files={"config.json": config_text()}).out
    job = JOB.replace('use "config.json" as model\n', "").replace("layout { tp = 1 }\n", "")
    direct = run_command("eval", *OPTIONS, "config.json", "--format", "jsonl")
    again = run_command("eval", "job.par", "--format", "jsonl", files={"job.par": job + spec})
    first, second = (json.loads(done.out)["results"][0]["figures"] for done in (direct, again))
    assert {n: f["value"] for n, f in first.items()} == {n: f["value"] for n, f in second.items()}


#: A type with windows in its last layers, and no key that turns them off.
DOTS1 = {"model_type": "dots1", "n_routed_experts": 8, "num_experts_per_tok": 2}
DOTS1 |= {"moe_intermediate_size": 64, "sliding_window": 128, **GROUPS}
OF_DOTS1 = {"experts": "8", "top_k": "2", "expert_ffn": "64", "kv_heads": "8"}
OF_DOTS1 |= {"qk_norm": "on", "router_bias": "on"}


@pytest.mark.parametrize(
    ("changes", "attributes"),
    mark_most(
        [
            ({"num_key_value_heads": None}, {}),
            ({"num_key_value_heads": 2}, {"kv_heads": "2"}),
            ({"model_type": "qwen2", **GROUPS}, {"qkv_biases": "on", "kv_heads": "8"}),
            ({"attention_bias": True}, {"qkv_biases": "on", "output_bias": "on"}),
            ({"mlp_bias": True}, {"mlp_biases": "on"}),
            (
                {**QWEN3, "sliding_window": 128, "use_sliding_window": False},
                {"qk_norm": "on", **SIZES},
            ),
            (
                {
                    **QWEN3,
                    "sliding_window": 128,
                    "use_sliding_window": True,
                    "max_window_layers": 2,
                },
                {"qk_norm": "on", **SIZES, "window": "128", "full_layers": "[0, 1]"},
            ),
            ({"model_type": "mistral", **GROUPS}, {"window": "4096", "kv_heads": "8"}),
            ({**DOTS1, "max_window_layers": 9}, OF_DOTS1),
            (
                {**DOTS1, "max_window_layers": 3},
                {**OF_DOTS1, "window": "128", "full_layers": "[0, 1, 2]"},
            ),
            ({"model_type": "mistral", **GROUPS, "sliding_window": None}, {"kv_heads": "8"}),
            (
                {**OLMO3, "layer_types": ["sliding_attention", "full_attention"] * 2},
                {**OF_OLMO3, "window": "128", "full_every": "2"},
            ),
            (
                {**OLMO3, "layer_types": ["full_attention", *["sliding_attention"] * 3]},
                {**OF_OLMO3, "window": "128", "full_layers": "[0]"},
            ),
            ({**OLMO3, "layer_types": ["full_attention"] * 4}, OF_OLMO3),
            ({**OLMO3, "layer_types": ["sliding_attention"] * 4}, {**OF_OLMO3, "window": "128"}),
            ({**OLMO3}, {**OF_OLMO3, "window": "128", "full_every": "4"}),
            ({**MIXTURE, "mlp_only_layers": [0, 1]}, {**OF_MIXTURE, "dense_first": "2"}),
            ({**MIXTURE, "decoder_sparse_step": 2}, {**OF_MIXTURE, "moe_every": "2"}),
            ({**MIXTURE, "mlp_only_layers": [3]}, {**OF_MIXTURE, "dense_layers": "[3]"}),
            (
                {**MIXTURE, "mlp_only_layers": [0], "decoder_sparse_step": 2},
                {**OF_MIXTURE, "moe_every": "2"},
            ),
            ({**MIXTURE, "num_experts": 0}, {"qk_norm": "on", **SIZES}),
            (
                {**MPT, "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2}},
                {**OF_MPT, "alibi": "on", "kv_heads": "2"},
            ),
            (
                {**MPT, "attn_config": {"attn_type": "multiquery_attention", "alibi": False}},
                {**OF_MPT, "kv_heads": "1", "positions": "256"},
            ),
            (
                {**MPT, "attn_config": {"alibi": False, "rope": True}},
                OF_MPT,
            ),
            ({"model_type": "nemotron", "kv_channels": 64}, {**OF_NEMOTRON, "head_dim": "64"}),
            (
                {"model_type": "cohere2", "use_gated_activation": True, "sliding_window": None},
                {"norm": "layer", "norm_weights": "1", "norms": "1", "parallel_residual": "on"}
                | {"tied": "on"},
            ),
        ]
    ),
)
def test_keys_that_depend_on_others(
    run_command: Run, changes: dict[str, Any], attributes: dict[str, str]
) -> None:
    plain = {"layers": "4", "hidden": "512", "heads": "8", "ffn": "1024", "vocabulary": "1000"}
    assert model_of(run_command, config_text(**changes)) == plain | attributes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "warp"}, "models of the type `warp` are not known"),
        ({"model_type": None}, "the file has no `model_type`, which decides norms"),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "`LlamaForSequenceClassification`: a classification head is not modeled yet",
        ),
        (
            {"architectures": ["LlamaForCausalLMEagle3"]},
            "`LlamaForCausalLMEagle3`: a draft model of speculative decoding is not modeled yet",
        ),
        ({"model_type": "jamba"}, "`jamba`: Mamba layers are not modeled yet"),
        ({"hidden_size": "wide"}, "`hidden_size`: a whole number is expected"),
        ({"hidden_size": [1]}, "`hidden_size`: a whole number is expected"),
        ({"hidden_size": [8, 8, 8, 8]}, "`hidden_size`: a whole number is expected"),
        ({"vocab_size": [1000]}, "`vocab_size`: a whole number is expected"),
        ({"intermediate_size": [1024]}, "`intermediate_size`: a whole number is expected"),
        (
            {"intermediate_size": [1024, 1024]},
            "`intermediate_size`: it lists 2 layers, but the model has 4",
        ),
        ({"intermediate_size": []}, "`intermediate_size`: a whole number is expected"),
        ({"hidden_size": True}, "`hidden_size`: a whole number is expected"),
        ({"attention_bias": 3}, "`attention_bias`: true or false is expected"),
        (
            {"model_type": "olmo3", "layer_types": ["full_attention", "sliding_attention"]},
            "`layer_types`: it lists 2 layers, but the model has 4",
        ),
        (
            {"model_type": "qwen3", "layer_types": ["linear_attention"] * 4},
            "`layer_types`: layers of the kind `linear_attention` are not modeled yet",
        ),
        (
            {"model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": [4]},
            "`mlp_only_layers`: layer 4 is listed, but the 4 layers are 0 to 3",
        ),
        (
            {"model_type": "qwen2_moe", "shared_expert_intermediate_size": "auto"},
            "`shared_expert_intermediate_size`: a whole number is expected",
        ),
        (
            {"num_attention_heads": 6},
            "`num_attention_heads`: a hidden size of 512 / 6 heads is 85.3333",
        ),
        (
            {"num_key_value_heads": 3},
            "`num_key_value_heads`: 8 query heads / 3 KV heads is 2.66667",
        ),
        ({"index_topk": 2048}, "`index_topk`: sparse attention (DSA) is not modeled yet"),
        (
            {"model_type": "deepseek_v3", "attention_bias": True},
            "`attention_bias`: parcost models `deepseek_v3` only with the value false",
        ),
        ({"num_experts": 8, "n_routed_experts": 4}, "`n_routed_experts`: 4 contradicts"),
    ],
)
def test_what_no_model_can_say_is_an_error_at_its_key(
    run_command: Run, changes: dict[str, Any], message: str
) -> None:
    text = config_text(**changes)
    done = run_command("import", "config.json", files={"config.json": text})
    assert done.code == 2
    assert f"error[import]: {message}" in done.err
    key = list(changes)[-1]
    line = 1 + text[: text.index(f'"{key}"')].count("\n")
    assert f"config.json:{line}:" in done.err


def test_a_null_size_leads_to_a_question_at_its_key(run_command: Run) -> None:
    text = config_text(hidden_size=None)
    done = run_command("import", "config.json", files={"config.json": text})
    assert "`model.hidden` is not known: `hidden_size` is null" in done.err
    line = 1 + text[: text.index('"hidden_size"')].count("\n")
    assert f"config.json:{line}:" in done.err


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("minimax-m2.5", {"attn_type_list": [1] * 62}),
        ("hunyuan-a13b", {"use_mixed_mlp_moe": True, "moe_topk": [8] * 32, "use_cla": False}),
    ],
)
def test_keys_of_published_files_that_ask_for_nothing_change_nothing(
    name: str, changes: dict[str, Any]
) -> None:
    """Every layer has softmax attention; the shared MLP is the shared expert."""
    plain = MODELS[name]["config"]
    found = HuggingFace().translate("config.json", json.dumps({**plain, **changes}))
    usual = HuggingFace().translate("config.json", json.dumps(plain))
    assert not found.problems
    assert [one.value for one in found.blocks[0].settings] == [
        one.value for one in usual.blocks[0].settings
    ]
    mixed = {**plain, "attn_type_list": [1] * 61 + [0]}
    (problem,) = HuggingFace().translate("config.json", json.dumps(mixed)).problems
    assert "linear attention layers are not modeled yet" in problem.message


def test_a_number_of_experts_under_another_name_raises_a_question_with_its_value() -> None:
    text = config_text(moe_num_active_primary_experts=2, moe_num_primary_experts=64, moe_width=256)
    found = HuggingFace().translate("config.json", text).questions
    (question,) = (one for one in found if one.attribute == "model.experts")
    assert question.answers[0] == "--set model.experts=64"


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("attn_config", "qk_ln", True, "parcost models `mpt` only with the value false"),
        ("attn_config", "attn_type", "sparse", "attention of the type `sparse` is not modeled"),
        ("ffn_config", "ffn_type", "mptmoe", "a feed-forward of the type `mptmoe` is not modeled"),
    ],
)
def test_parts_of_mpt_that_the_language_lacks_are_errors(
    part: str, key: str, value: Any, message: str
) -> None:
    text = config_text(**{**MPT, part: {key: value}})
    (problem,) = HuggingFace().translate("config.json", text).problems
    assert f"`{part}.{key}`: {message}" in problem.message


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"model_type": "llama"', '{"a": 1}}', "[" * 100_000, "\x00"]
)
def test_a_text_that_is_no_object_is_an_error(run_command: Run, text: str) -> None:
    done = run_command(
        "import", "--from", "huggingface", "config.json", files={"config.json": text}
    )
    assert done.code == 2
    assert "error[import]" in done.err


@pytest.mark.slow
def test_an_unknown_key_is_listed(run_command: Run) -> None:
    text = config_text(warp_factor=9)
    done = run_command("check", *OPTIONS, "config.json", files={"config.json": text})
    assert done.code == 0
    assert (
        "`config.json` has 1 key not in parcost's table of transformers 4 and 5: `warp_factor`"
        in (done.out)
    )
    assert "`warp_factor`" in done.out
    listed = run_command("import", "config.json")
    assert "unknown: warp_factor" in listed.err


@pytest.mark.slow
def test_a_list_of_unknown_keys_has_an_end(run_command: Run) -> None:
    text = config_text(**{f"warp_{i}": i for i in range(1, 1002)})
    done = run_command("import", "config.json", files={"config.json": text})
    assert "warp_500 and 501 more\n" in done.err
    assert len(done.err) < 10_000


TOWER = {
    "model_type": "llava",
    "text_config": SMALL,
    "vision_config": {"depth": 3, "model_type": "clip_vision_model"},
}


@pytest.mark.slow
def test_a_model_with_a_tower_is_evaluated_as_text_on_demand_only(run_command: Run) -> None:
    files = {"config.json": json.dumps(TOWER)}
    done = run_command("eval", *OPTIONS, "config.json", files=files)
    assert done.code == 2
    text = done.out + done.err
    assert "`llava` has a vision tower, which is not modeled yet" in text
    assert "--text-only" in text
    done = run_command("import", "--text-only", "--verbose", "config.json")
    assert done.code == 0, done.err
    assert "layers     = 4" in done.out
    assert "--text-only leaves out the parameters and the time of `vision_config`" in done.out
    assert "vision_config.depth: only the text model is evaluated" in done.err
    done = run_command("eval", *OPTIONS, "--text-only", "config.json")
    assert done.code == 0, done.out
    assert "`vision_config (left out by --text-only)`" in " ".join(done.out.split())


def test_defaults_that_a_text_part_leaves_out_are_assumed(run_command: Run) -> None:
    config = {
        "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "intermediate_size": 10240},
        "vision_config": {"hidden_size": 1152},
    }
    done = run_command(
        "import", "--text-only", "config.json", files={"config.json": json.dumps(config)}
    )
    assert done.code == 0, done.err
    assert (
        'heads      = 8 @assumed("transformers 5.23: default of Gemma3TextConfig'
        '.num_attention_heads")' in done.out
    )
    assert "vocabulary = 262_208 @assumed(" in done.out


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"peft_type": "LOHA", "r": 16, "target_modules": ["q_proj"]}, "PEFT adapters"),
        ({"_class_name": "A", "_diffusers_version": "0.30.0"}, "diffusion transformers are"),
    ],
)
def test_adapters_and_diffusion_transformers_are_refused_by_name(
    run_command: Run, config: Any, name: str
) -> None:
    done = run_command("import", "config.json", files={"config.json": json.dumps(config)})
    assert done.code == 2
    assert name in done.err
    assert "not modeled yet" in done.err


@pytest.mark.slow
def test_an_unknown_type_is_read_as_another_one_on_demand(run_command: Run) -> None:
    text = json.dumps({**SMALL, **MIXTURE, "model_type": "warp_moe"})
    done = run_command("import", "config.json", files={"config.json": text})
    assert done.code == 2
    assert "`--as qwen3_moe` reads its keys as those of `qwen3_moe`" in done.err
    done = run_command("import", "--as", "qwen3_moe", "config.json")
    assert done.code == 0, done.err
    assert "read as qwen3_moe because of --as" in done.out
    assert "experts    = 8" in done.out
    done = run_command("import", "--as", "qwen3_mow", "config.json")
    assert done.code == 2
    assert "did you mean `qwen3_moe`?" in done.err
    done = run_command("eval", *OPTIONS, "--as", "qwen3_moe", "config.json")
    assert done.code == 0, done.out
    assert "`model_type (read as qwen3_moe by --as)`" in " ".join(done.out.split())


def test_windows_of_a_type_that_has_none_are_read_on_demand_only(run_command: Run) -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    files = {"config.json": config_text(sliding_window=128, layer_types=kinds)}
    done = run_command("check", *OPTIONS, "config.json", files=files)
    assert done.code == 0
    assert "that are not used: `sliding_window`" in done.out
    assert "models of the type `llama` have no windows" in done.out
    done = run_command("import", "--as", "llama", "config.json")
    assert "window     = 128" in done.out
    assert "full_every = 2" in done.out


@pytest.mark.parametrize(
    ("key", "attribute"),
    mark_most(
        [
            ("num_hidden_layers", "layers"),
            ("hidden_size", "hidden"),
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("vocab_size", "vocabulary"),
            ("intermediate_size", "ffn"),
            ("num_experts", "experts"),
            ("num_experts_per_tok", "top_k"),
            ("moe_intermediate_size", "expert_ffn"),
            ("head_dim", "head_dim"),
            ("tie_word_embeddings", "tied"),
        ]
    ),
)
def test_a_misspelled_key_that_decides_raises_a_question(
    run_command: Run, key: str, attribute: str
) -> None:
    config: dict[str, Any] = {**SMALL, **MIXTURE, "tie_word_embeddings": True}
    value = config.pop(key)
    config[f"{key}x"] = value
    done = run_command("eval", *OPTIONS, "config.json", files={"config.json": json.dumps(config)})
    assert done.code == 2
    assert f"`{key}x` is not a key of transformers" in done.err
    answer = f"--set model.{attribute}={'on' if value is True else value}"
    assert answer in done.err


def test_two_files_that_contradict_are_refused(run_command: Run) -> None:
    names = ["a/config.json", "b/config.json"]
    for name, layers in zip(names, (4, 5), strict=True):
        Path(name).parent.mkdir()
        Path(name).write_text(config_text(num_hidden_layers=layers), encoding="utf-8")
    done = run_command("import", *names)
    assert done.code == 2
    assert "`model.layers` is 4 in `a/config.json`, but 5 in `b/config.json`" in done.err


def test_a_file_of_no_known_tool_is_refused(run_command: Run) -> None:
    done = run_command("import", "notes.txt", files={"notes.txt": "buy milk"})
    assert done.code == 2
    assert "`notes.txt` is not a spec, and its format was not recognised" in done.err
    done = run_command("import", "--from", "huggingfase", "notes.txt")
    assert "did you mean `huggingface`?" in done.err


def test_the_result_of_an_import_is_canonical(run_command: Run) -> None:
    files = {"config.json": config_text()}
    run_command("import", "config.json", "--out", "model.par", files=files)
    assert run_command("fmt", "--check", "model.par").code == 0


def test_places_of_entries_are_those_of_the_text() -> None:
    text = '{ "a" : [1, {"b": 2}], "c": {"d": "x\\"y"}, "e": null }'
    entries = read_object(text)
    assert {key: entry.value for key, entry in entries.items()} == {
        "a": [1, {"b": 2}],
        "c.d": 'x"y',
        "e": None,
    }
    assert [text[e.start : e.end] for e in entries.values()] == [
        '"a" : [1, {"b": 2}]',
        '"d": "x\\"y"',
        '"e": null',
    ]
    with pytest.raises(JsonTextError):
        read_object("[]")
    with pytest.raises(JsonTextError, match="`a` is defined twice") as error:
        read_object('{"a": 1, "b": 2, "a": 1}')
    assert error.value.start == 17


@pytest.mark.parametrize(
    ("key", "deciding", "harmless"),
    [
        ("layerdrop", 0.1, 0.0),
        ("output_attentions", True, False),
        ("output_hidden_states", True, False),
    ],
)
def test_a_key_that_decides_is_listed_unless_it_is_off(
    key: str, deciding: Any, harmless: Any
) -> None:
    for value, is_listed in ((deciding, True), (harmless, False)):
        found = HuggingFace().translate("config.json", config_text(**{key: value}))
        assert (key in names(found.unknown)) == is_listed


def test_how_a_checkpoint_is_stored_has_a_reason() -> None:
    text = config_text(quantization_config={"quant_method": "fp8"})
    found = HuggingFace().translate("config.json", text)
    (key,) = [one for one in found.ignored if one.name.startswith("quantization")]
    assert "`precision` sets the types of training" in key.reason


@pytest.mark.parametrize(
    ("changes", "message", "place"),
    [
        ({"num_hidden_layers": 1_000_000}, "`layers` must be at most 100000", "num_hidden_layers"),
        ({"num_key_value_heads": 0}, "8 query heads need KV heads", "num_key_value_heads"),
        (
            {"num_attention_heads": 10**14, "num_key_value_heads": 3},
            "100000000000000 query heads / 3 KV heads is 3.33333e+13, a fraction",
            "num_key_value_heads",
        ),
    ],
)
def test_an_import_says_at_once_what_an_evaluation_would_reject(
    run_command: Run, changes: dict[str, Any], message: str, place: str
) -> None:
    files = {"config.json": json.dumps(SMALL | changes, indent=1)}
    done = run_command("import", "config.json", files=files)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.split())
    line = files["config.json"].split(f'"{place}"')[0].count("\n") + 1
    assert f"config.json:{line}:" in done.err
