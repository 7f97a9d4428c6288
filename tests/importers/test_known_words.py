"""The value of a key that is none of its words is an error, which lists them."""

from __future__ import annotations

import pytest

from parcost import ImportFile
from parcost.engine.session import Session
from parcost_formats.imports.reader import importers_of

from .test_bridge_commands import SECTIONS
from .test_gpt_neox import JOB as NEOX
from .test_levanter import JOB as LEVANTER
from .test_llm_foundry import JOB as FOUNDRY
from .test_maxtext import RUN as MAXTEXT
from .test_nemo import NEMO_1
from .test_olmo import JOB as OLMO
from .test_yaml_configs import LLAMA as NANOTRON
from .translations import settings

LLAMA = """{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
"num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "hidden_act": "silu"}"""
OF_A_JOB = {
    "huggingface": (LLAMA, '"hidden_act": "silu"', '"hidden_act": "foo"'),
    "nanotron": (NANOTRON, "hidden_act: silu", "hidden_act: foo"),
    "levanter": (LEVANTER, "  type: llama\n", "  type: llama\n  activation_function: foo\n"),
    "maxtext": (MAXTEXT, "", 'mlp_activations: ["foo", "linear"]\n'),
    "megatron": (SECTIONS, "model:\n", "model:\n  activation_func: torch.nn.functional.foo\n"),
}


@pytest.mark.parametrize("tool", OF_A_JOB)
def test_an_unknown_activation_lists_the_known_ones(tool: str) -> None:
    text, before, after = OF_A_JOB[tool]
    changed = text.replace(before, after, 1) if before else text + after
    assert changed != text
    name = "config.json" if tool == "huggingface" else "run.yaml"
    importer = importers_of(Session())[tool]
    (found,) = importer.read(ImportFile(name, changed)).problems
    assert "foo` is not known" in found.message
    assert {"silu", "gelu", "relu"} <= set(found.help.removeprefix("known: ").split(", "))
    assert "foo" in changed[found.start : found.end]
    assert not importer.read(ImportFile(name, changed.replace("foo", "silu"))).problems


def test_the_activation_of_the_feed_forward_of_llm_foundry() -> None:
    importer = importers_of(Session())["llm_foundry"]
    more = "  ffn_config: {ffn_act_fn: {name: foo, approximate: none}}\n"
    text = FOUNDRY.replace("model:\n", f"model:\n{more}", 1)
    (found,) = importer.read(ImportFile("run.yaml", text)).problems
    assert "`foo` is not known" in found.message


@pytest.mark.parametrize(
    ("value", "gated"), [("[relu, linear]", None), ("[relu]", "off"), ("[silu, linear]", None)]
)
def test_each_activation_of_maxtext_has_a_product(value: str, gated: str | None) -> None:
    """Two activations are multiplied, whatever their names: that is a gated feed-forward."""
    importer = importers_of(Session())["maxtext"]
    sizes = "base_emb_dim: 4096\nbase_num_query_heads: 32\nbase_num_decoder_layers: 32\n"
    text = MAXTEXT.replace('model_name: "llama3.1-70b"\n', sizes)
    text += f"base_mlp_dim: 14336\nbase_num_kv_heads: 8\nmlp_activations: {value}\n"
    assert settings(importer.read(ImportFile("run.yaml", text))).get("model.gated") == gated


#: A word of a key that chooses a part of the model or of the layout.
CHOSEN = {
    "gpt_neox": (NEOX, '"gas": 3', '"gas": 3, "mlp_type": "WORD"', "regular"),
    "nemo": (NEMO_1, "type: rope\n", "type: WORD\n", "rope"),
    "olmo": (OLMO, "", "distributed_strategy: WORD\n", "fsdp"),
}


@pytest.mark.parametrize("tool", CHOSEN)
def test_an_unknown_word_of_a_choice_is_an_error(tool: str) -> None:
    text, before, after, known = CHOSEN[tool]
    changed = text.replace(before, after, 1) if before else text + after
    importer = importers_of(Session())[tool]
    (found,) = importer.read(ImportFile("run.yaml", changed.replace("WORD", "foo"))).problems
    assert "`foo` is not known" in found.message
    assert known in found.help
    assert not importer.read(ImportFile("run.yaml", changed.replace("WORD", known))).problems


def test_words_of_nemo_that_choose_positions_and_shards() -> None:
    importer = importers_of(Session())["nemo"]
    text = NEMO_1.replace("type: rope\n", "type: alibi\n", 1)
    assert settings(importer.read(ImportFile("run.yaml", text)))["model.alibi"] == "on"
    text = NEMO_1.replace("trainer: {", "trainer: {strategy: {fsdp: foo}, ", 1)
    (found,) = importer.read(ImportFile("run.yaml", text)).problems
    assert (found.message, found.help[:6]) == (
        "`trainer.strategy.fsdp`: `foo` is not known",
        "known:",
    )
