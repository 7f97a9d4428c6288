"""Jobs of torchtune."""

from __future__ import annotations

from collections.abc import Mapping

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from ..rows import try_each
from .finetuning_files import TORCHTUNE, importer_of, read, read_file
from .translations import assumptions, settings, uses


def test_a_key_beside_the_one_that_decides_raises_no_question() -> None:
    """A name made of the batch size is no batch size; without that key it might be."""
    more = "run_batch_size_name: bs=2\n"
    found = read("torchtune", "dtype: bf16\n", f"dtype: bf16\n{more}")
    assert not found.questions
    assert "run_batch_size_name" in [one.name for one in found.unknown]
    alone = read("torchtune", "batch_size: 2\n", more)
    assert "training.micro_batch" in [one.attribute for one in alone.questions]


def test_the_length_of_a_run_may_be_a_variable_that_is_not_known() -> None:
    script = "tune run --nproc_per_node 4 full_finetune_distributed --config run.yaml epochs=$N\n"
    file = ImportFile("run.sh", script, PLAIN, {"run.yaml": TORCHTUNE}.get)
    found = read_file("torchtune", file)
    assert settings(found)["cluster.devices"] == "4"


def test_torchtune_names_the_optimizer_that_it_does_not_know() -> None:
    (asked,) = read("torchtune", "torch.optim.AdamW", "own.Frugal").questions
    assert asked.reason.endswith("but the optimizer is frugal")


def test_torchtune_has_no_sliding_window() -> None:
    found = read("torchtune", "llama3_1.llama3_1_8b", "mistral.mistral_7b")
    assert settings(found)["model.window"] == "0"
    assert "models.mistral_7b" in uses(found)


def test_a_configuration_that_the_tool_finds_itself_is_assumed() -> None:
    """`tune run --config llama3_1/8B_full`: batches of 2 without accumulation, checkpoints, bf16."""
    one = importer_of("torchtune")
    words = "tokenizer.max_seq_len=4096 gradient_accumulation_steps=4"
    command = "tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full"
    found = one.read(ImportFile("run.sh", f"{command} {words}\n"))
    assert not found.questions
    values, assumed = settings(found), assumptions(found)
    assert values["training.micro_batch"] == "2"
    assert assumed["training.micro_batch"] == "torchtune 0.6.1: llama3_1/8B_full"
    assert values["training.micro_batches"] == "4"
    assert "training.micro_batches" not in assumed
    assert values["cluster.devices"] == "8"
    assert "models.llama31_8b" in uses(found)
    beside = {"llama3_1/8B_full": TORCHTUNE, "8B_full": TORCHTUNE}
    found = one.read(ImportFile("run.sh", f"{command} {words}\n", PLAIN, beside.get))
    assert "training.micro_batch" not in assumptions(found)
    other = command.replace("8B_full", "8B_mine")
    (problem,) = one.read(ImportFile("run.sh", f"{other}\n")).problems
    assert "`llama3_1/8B_mine` has the keys of the job" in problem.message


def test_a_degree_of_experts_that_torchtune_lacks_raises_a_question_of_its_attribute() -> None:
    file = ImportFile("run.yaml", f"{TORCHTUNE}expert_parallel_degree: 8\n")
    (question,) = read_file("torchtune", file).questions
    assert (question.attribute, question.answers) == ("layout.ep", ("--set layout.ep=1",))


@try_each(
    "lines, kept",
    [
        ("ac_mode: selective\nac_option: 2\n", {"recompute": "full", "every": "2", "first": "1"}),
        ("ac_mode: selective\nac_option: op\n", {"recompute": "full", "alternate": "on"}),
        ("ac_mode: full\n", {"recompute": "full"}),
        ("ac_mode: none\n", {"recompute": "none"}),
        ("ac_mode: full\nenable_activation_checkpointing: true\n", {"recompute": "none"}),
    ],
)
def test_layers_that_torchtune_recomputes_are_read(lines: str, kept: Mapping[str, str]) -> None:
    """With both keys neither of its two ways is taken."""
    text = TORCHTUNE.replace("enable_activation_checkpointing: True\n", lines)
    values = settings(read_file("torchtune", ImportFile("run.yaml", text)))
    found = {key.rpartition(".")[2]: one for key, one in values.items() if "recompute" in key}
    assert found == kept
