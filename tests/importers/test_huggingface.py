"""Configurations of Hugging Face: parameters, keys, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_plugins.importers.json_text import JsonTextError, read_object

Run = Callable[..., Any]

# Configurations of published models, and how many parameters their authors count.
MODELS: dict[str, Any] = json.loads(
    Path(__file__).with_suffix(".json").with_name("huggingface.json").read_text(encoding="utf-8")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_has_its_published_parameters(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS[name]["config"]), encoding="utf-8")
    (study,) = parcost.load_text(JOB, str(tmp_path / "job.par"))
    report = study.evaluate()
    assert report.result.figure("parameters") == MODELS[name]["parameters"]
    assert not [d for d in report.diagnostics if d.id.startswith("import")]


def test_a_configuration_is_evaluated_at_once(run_command: Run) -> None:
    done = run_command("eval", *OPTIONS, "config.json", files={"config.json": config_text()})
    assert done.code == 0
    assert "step time" in done.out


def test_the_imported_spec_is_what_is_evaluated(run_command: Run) -> None:
    spec = run_command("import", "config.json", files={"config.json": config_text()}).out
    job = JOB.replace('use "config.json" as model\n', "").replace("layout { tp = 1 }\n", "")
    direct = run_command("eval", *OPTIONS, "config.json", "--format", "jsonl")
    again = run_command("eval", "job.par", "--format", "jsonl", files={"job.par": job + spec})
    first, second = (json.loads(done.out)["results"][0]["figures"] for done in (direct, again))
    assert {n: f["value"] for n, f in first.items()} == {n: f["value"] for n, f in second.items()}


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ({"num_key_value_heads": None}, {}),
        ({"num_key_value_heads": 2}, {"kv_heads": "2"}),
        ({"model_type": "qwen2"}, {"qkv_biases": "on"}),
        ({"attention_bias": True}, {"qkv_biases": "on"}),
        ({"attention_bias": True, "mlp_bias": True}, {"biases": "on"}),
        ({"sliding_window": 128, "use_sliding_window": False}, {}),
        ({"model_type": "mistral"}, {"window": "4096"}),
        ({"model_type": "mistral", "sliding_window": None}, {}),
        (
            {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2},
            {"window": "128", "full_every": "2"},
        ),
        ({"sliding_window": 128, "layer_types": ["full_attention"] * 4}, {}),
        ({"sliding_window": 128, "layer_types": ["sliding_attention"] * 4}, {"window": "128"}),
        (
            {"model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": [0, 1]},
            {"qk_norm": "on", "experts": "8", "dense_first": "2"},
        ),
    ],
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
        ({"model_type": None}, "models of the type `` are not known"),
        ({"hidden_size": "wide"}, "`hidden_size`: a whole number is expected"),
        ({"hidden_size": True}, "`hidden_size`: a whole number is expected"),
        ({"mlp_bias": True}, "`mlp_bias`: biases in the MLP alone cannot be written"),
        (
            {"sliding_window": 128, "layer_types": ["full_attention", "sliding_attention"]},
            "`layer_types`: these layers follow no pattern of one full layer in every n layers",
        ),
        (
            {"num_experts": 8, "mlp_only_layers": [3]},
            "`mlp_only_layers`: only the first layers can be dense",
        ),
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


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"model_type": "llama"', '{"a": 1}}', "[" * 100_000, "\x00"]
)
def test_a_text_that_is_no_object_is_an_error(run_command: Run, text: str) -> None:
    done = run_command(
        "import", "--from", "huggingface", "config.json", files={"config.json": text}
    )
    assert done.code == 2
    assert "error[import]" in done.err


def test_a_rule_names_the_key_of_the_file(run_command: Run) -> None:
    text = config_text(num_attention_heads=6)
    done = run_command("check", *OPTIONS, "config.json", files={"config.json": text})
    assert done.code == 2
    assert "`num_attention_heads` is `model.heads` here" in done.out
    line = 1 + text[: text.index('"num_attention_heads"')].count("\n")
    assert f"config.json:{line}:3" in done.out


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


def test_a_list_of_unknown_keys_has_an_end(run_command: Run) -> None:
    text = config_text(**{f"warp_{i}": i for i in range(1, 1002)})
    done = run_command("import", "config.json", files={"config.json": text})
    assert "warp_500 and 501 more\n" in done.err
    assert len(done.err) < 10_000


def test_only_the_text_model_of_several_is_read(run_command: Run) -> None:
    text = json.dumps({"model_type": "llava", "text_config": SMALL, "vision_config": {"depth": 3}})
    found = model_of(run_command, text)
    assert found["layers"] == "4"
    done = run_command("import", "config.json")
    assert "vision_config.depth: only the text model is read" in done.err


def test_two_files_that_contradict_are_refused(run_command: Run) -> None:
    names = ["a/config.json", "b/config.json"]
    for name, layers in zip(names, (4, 5), strict=True):
        Path(name).parent.mkdir()
        Path(name).write_text(config_text(num_hidden_layers=layers), encoding="utf-8")
    done = run_command("import", *names)
    assert done.code == 2
    assert "`model.layers` is 4 in `a/config.json`, and 5 in `b/config.json`" in done.err


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
    with pytest.raises(JsonTextError, match="`a` stands here") as error:
        read_object('{"a": 1, "b": 2, "a": 1}')
    assert error.value.at == 17
