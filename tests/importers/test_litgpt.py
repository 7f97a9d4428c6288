"""The YAML of LitGPT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import ImportFile
from parcost_formats.tools.litgpt import LitGpt

from ..rows import mark_most, try_each
from .translations import assumptions, names, problems, settings, uses

Run = Callable[..., Any]

PRETRAIN = """\
model_name: Llama-3.2-1B
out_dir: out
precision: bf16-mixed
data: TinyLlama
train: {global_batch_size: 256, micro_batch_size: 2, lr_warmup_steps: 20, max_seq_length: 2048}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 4.0e-4}}
devices: 8
num_nodes: 2
tokenizer_dir: t
"""
FINETUNE = PRETRAIN.replace("model_name: Llama-3.2-1B", "checkpoint_dir: c/meta-llama/Llama-3.2-1B")


@pytest.mark.parametrize(("old", "new"), [("", ""), ("devices: 8", "devices: auto")])
def test_gradients_wait_for_the_last_micro_batch(old: str, new: str) -> None:
    """However many there are: the devices, and with them the micro-batches, may not be known."""
    found = LitGpt().translate("run.yaml", PRETRAIN.replace(old, new, 1))
    assert settings(found)["sharding.accumulate"] == "whole"
    assert "gradients between micro-batches" not in names(found.missing)


def test_a_default_that_the_file_states_is_no_assumption() -> None:
    text = PRETRAIN.replace("train: {", "train: {tie_embeddings: false, ")
    without, stated = (LitGpt().translate("run.yaml", one) for one in (PRETRAIN, text))
    assert settings(without)["model.tied"] == settings(stated)["model.tied"] == "off"
    assert "model.tied" in assumptions(without)
    assert "model.tied" not in assumptions(stated)


def test_pretraining_shards_within_nodes_and_keeps_activations() -> None:
    found = LitGpt().translate("run.yaml", PRETRAIN)
    expected = {
        "cluster.devices": "2 * 8",
        "sharding.shard": "8",
        "layout.zero": "3",
        "training.recompute": "none",
        "training.global_batch": "256 sequences",
        "training.micro_batch": "2",
        "training.sequence": "2048",
        "precision.gather": "4 B",
        "precision.reduction": "2 B",
        "kernels.mode": "compiled",
    }
    assert expected.items() <= settings(found).items()
    assert {"models.llama32_1b", "precisions.bf16_fsdp"} <= set(uses(found))
    assert not found.questions


@try_each(
    "old, new, path, value",
    [
        ("out_dir", "out_dir", "training.recompute", "full"),
        ("devices: 8\nnum_nodes: 2\n", "", "training.recompute", "none"),  # one device
        ("devices: 8\nnum_nodes: 2\n", "", "layout.zero", "0"),
        ("micro_batch_size: 2, ", "", "training.micro_batch", "1"),
        ("precision: bf16-mixed\n", "", "precision.gather", "4 B"),
        ("bf16-mixed", "16-mixed", "precision.compute", "fp16"),
        ("bf16-mixed", "16", "precision.gather", "4 B"),
        ("bf16-mixed", "16-true", "precision.compute", "fp16"),
        ("bf16-mixed", "16-true", "precision.gather", "2 B"),
    ],
)
def test_full_fine_tuning_recomputes_blocks_on_several_devices(
    old: str, new: str, path: str, value: str
) -> None:
    found = LitGpt().translate("run.yaml", FINETUNE.replace(old, new))
    assert settings(found)[path] == value
    assert assumptions(found)["layout.zero"].startswith("LitGPT 0.5: finetune_full")


@try_each(
    "old, new, attribute",
    [
        (", max_seq_length: 2048", "", "training.sequence"),
        ("Llama-3.2-1B", "my-own", "model"),
        ("model_name: Llama-3.2-1B", "model_config: {n_layer: 4}", "model"),
        ("AdamW", "SGD", "precision"),
    ],
)
def test_what_a_file_leaves_open_raises_a_question(old: str, new: str, attribute: str) -> None:
    found = LitGpt().translate("run.yaml", PRETRAIN.replace(old, new))
    assert [one.attribute for one in found.questions] == [attribute]


def test_a_frozen_model_without_adapters_is_an_error() -> None:
    assert problems(LitGpt(), f"{FINETUNE}quantize: bnb.nf4\n", "run.yaml")


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("transformer-engine", "FSDP of Lightning rejects `transformer-engine`"),
        ("64-true", "FSDP of Lightning rejects `64-true`"),
        ("fp16", "`fp16` is not a precision of Lightning"),
        ("8-true", "`8-true` is not a precision of Lightning"),
    ],
)
def test_a_precision_that_lightning_does_not_have(precision: str, message: str) -> None:
    """A device by itself may use Transformer Engine, for which no recipe is known."""
    text = PRETRAIN.replace("bf16-mixed", precision)
    (found,) = problems(LitGpt(), text, "run.yaml")
    assert found == (f"`precision`: {message}", f"precision: {precision}")
    alone = text.replace("devices: 8", "devices: 1").replace("num_nodes: 2", "num_nodes: 1")
    asked = {one.attribute for one in LitGpt().translate("run.yaml", alone).questions}
    assert ("precision" in asked) == ("rejects" in message)


COMMAND = """B=2
litgpt download meta-llama/Llama-3.2-1B
litgpt pretrain Llama-3.2-1B --config conf/run.yaml --train.micro_batch_size $B --devices=4
litgpt chat out
"""


def test_a_command_is_read_over_its_configuration() -> None:
    """Words of the command come before keys of the file: 2 nodes of 4 devices, micro-batches of 2."""
    importer = LitGpt()
    assert importer.recognizes("run.sh", COMMAND)
    assert not importer.recognizes("run.sh", "litgpt chat out\n")
    text = PRETRAIN.replace("micro_batch_size: 2", "micro_batch_size: 8")
    beside = {"conf/run.yaml": text.replace("model_name: Llama-3.2-1B", "model_name: other")}
    found = importer.read(ImportFile("run.sh", COMMAND, neighbor=beside.get))
    expected = {
        "cluster.devices": "2 * 4",
        "training.micro_batch": "2",
        "training.global_batch": "256 sequences",
        "training.sequence": "2048",
    }
    assert expected.items() <= settings(found).items()
    assert "models.llama32_1b" in uses(found)
    assert not found.questions
    full = COMMAND.replace("pretrain Llama-3.2-1B", "finetune_full c/meta-llama/Llama-3.2-1B")
    again = importer.read(ImportFile("run.sh", full, neighbor=beside.get))
    assert settings(again)["training.recompute"] == "full"


@try_each(
    "script, message",
    [
        (
            COMMAND,
            "`conf/run.yaml` has the other keys, but is not in the folder of the script",
        ),
        (COMMAND.replace("B=2\n", ""), "`train.micro_batch_size`: `B` is not set in the file"),
        ("litgpt finetune a/b\n", "adapters are supported only in a configuration file"),
        (
            f"{COMMAND}{COMMAND}",
            "the script has 2 trainings of LitGPT, but exactly one is expected",
        ),
        (f"cd $X\n{COMMAND}", "`cd $X` in line 1 changes to an unknown folder"),
    ],
)
def test_a_command_that_is_not_complete_is_an_error(script: str, message: str) -> None:
    (problem,) = LitGpt().read(ImportFile("run.sh", script)).problems
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "parameters"),
    mark_most(
        [
            (PRETRAIN, 1_235_814_400 + 128_256 * 2048),
            (PRETRAIN.replace("train: {", "train: {tie_embeddings: true, "), 1_235_814_400),
            (FINETUNE, 1_235_814_400 + 128_256 * 2048),
        ],
        3,
    ),
)
def test_the_head_has_weights_of_its_own_unless_pretraining_ties_it(
    run_command: Run, text: str, parameters: int
) -> None:
    """Llama 3.2 1B has 1,235,814,400 parameters, and an embedding of 128,256 x 2,048 among them."""
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    words = ("figures", "run.yaml", "parameters", "--from", "litgpt", *machine)
    done = run_command(*words, files={"run.yaml": text})
    assert f"{parameters:,}" in done.out


@pytest.mark.parametrize("command", ["pretrain_mixed", "finetune_all"])
def test_a_command_that_litgpt_does_not_have_is_rejected_by_its_name(command: str) -> None:
    text = f"litgpt {command} pythia-160m --train.max_seq_length 2048\n"
    assert LitGpt().recognizes("run.sh", text)
    (problem,) = LitGpt().translate("run.sh", text).problems
    assert problem.message.startswith(f"`litgpt {command}` is not a command of LitGPT")
    assert text[problem.start : problem.end] == command
    assert problem.help.endswith(": pretrain or finetune_full")


OWN = """\
model_name: mine
model_config:
  name: mine
  n_layer: 6
  n_head: 8
  n_embd: 512
  n_query_groups: 2
  intermediate_size: 1536
  vocab_size: 1000
  mlp_class_name: LLaMAMLP
  norm_class_name: RMSNorm
  bias: false
  parallel_residual: false
  norm_1: true
"""


def test_a_dense_model_is_read_by_its_sizes() -> None:
    """1000 words are 1024, a multiple of 512; the head has weights of its own."""
    found = LitGpt().translate("run.yaml", PRETRAIN.replace("model_name: Llama-3.2-1B\n", OWN))
    expected = {
        "model.layers": "6",
        "model.heads": "8",
        "model.kv_heads": "2",
        "model.hidden": "512",
        "model.ffn": "1536",
        "model.vocabulary": "1024",
        "model.gated": "on",
        "model.norm": "rms",
        "model.biases": "off",
        "model.parallel_residual": "off",
        "model.tied": "off",
    }
    assert expected.items() <= settings(found).items()
    assert not found.questions
    assert not found.unknown


@try_each(
    "old, new",
    [
        ("LLaMAMLP", "LLaMAMoE"),
        ("  norm_1: true", "  norm_1: false"),
        ("  norm_1: true", "  norm_qk: true"),
        ("  n_embd: 512\n", ""),
        ("  intermediate_size: 1536\n", ""),
    ],
)
def test_a_model_of_other_parts_raises_a_question(old: str, new: str) -> None:
    text = PRETRAIN.replace("model_name: Llama-3.2-1B\n", OWN.replace(old, new))
    questions = LitGpt().translate("run.yaml", text).questions
    assert "model" in {one.attribute for one in questions}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Llama-3-8B", 8_030_261_248),  # meta-llama/Meta-Llama-3-8B
        ("pythia-70m", 70_426_624),  # table 1 of the paper of Pythia, and its README
        ("pythia-1b", 1_011_781_632),
        ("EleutherAI/pythia-12b-deduped", 11_846_072_320),
        ("open_llama_3b", 3_426_473_600),  # openlm-research/open_llama_3b
    ],
)
def test_a_name_of_litgpt_has_its_published_parameters(
    name: str, parameters: int, tmp_path: Path
) -> None:
    text = PRETRAIN.replace("Llama-3.2-1B", name)
    found = LitGpt().translate("run.yaml", text)
    assert "models" not in assumptions(found)
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    machine = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
    (study,) = parcost.load_text(f'use "run.yaml"\n{machine}', str(tmp_path / "job.par"))
    assert study.evaluate().result.figure("parameters") == parameters


def test_a_model_config_and_a_batch_are_enough_to_recognize_a_file() -> None:
    text = OWN + "train: {micro_batch_size: 4, max_seq_length: 2048}\n"
    assert LitGpt().recognizes("run.yaml", text)
    assert not LitGpt().recognizes("run.yaml", text.replace("n_embd", "hidden"))


def test_the_question_of_an_unknown_name_quotes_it() -> None:
    found = LitGpt().translate("run.yaml", PRETRAIN.replace("Llama-3.2-1B", "Llama-3-9B"))
    (question,) = found.questions
    assert question.reason == "`Llama-3-9B` is not in parcost's table"


def test_a_model_of_neox_has_four_times_its_width() -> None:
    text = OWN.replace("  intermediate_size: 1536\n", "").replace("LLaMAMLP", "GptNeoxMLP")
    found = LitGpt().translate("run.yaml", PRETRAIN.replace("model_name: Llama-3.2-1B\n", text))
    assert settings(found)["model.ffn"] == "2048"
    assert settings(found)["model.gated"] == "off"
