"""Recipes of NeMo 2 whose parts are functions, objects of other files, or unpacked arguments."""

from __future__ import annotations

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.nemo import NeMo

from ..rows import try_each
from .translations import settings, uses

FACTORIES = """\
from nemo import lightning as nl
from nemo.collections.llm import Llama3Config8B, LlamaModel, MockDataModule, pretrain
from nemo.collections.llm.utils import Partial, factory
from ours import adapters, batches

@factory
def model():
    return LlamaModel(Llama3Config8B())

@factory
def trainer(devices=8):
    shards = nl.MegatronStrategy(tensor_model_parallel_size=2)
    plugin = nl.MegatronMixedPrecision(precision="bf16-mixed")
    return nl.Trainer(devices=devices, num_nodes=2, strategy=shards, plugins=plugin)

@factory
def data():
    return MockDataModule(seq_length=4096, global_batch_size=64, micro_batch_size=1)

def recipe() -> Partial:
    return Partial(pretrain, model=model, trainer=trainer, data=data)
"""


def read(old: str = "", new: str = "") -> Translation:
    assert old in FACTORIES
    text = FACTORIES.replace(old, new) if old else FACTORIES
    return NeMo().read(ImportFile("recipe.py", text, ImportOptions()))


def test_a_function_that_a_recipe_names_is_called() -> None:
    found = read()
    expected = {
        "cluster.devices": "2 * 8",
        "layout.tp": "2",
        "training.sequence": "4096",
        "training.global_batch": "64 sequences",
    }
    assert expected.items() <= settings(found).items()
    assert {"models.llama3_8b", "precisions.bf16"} <= set(uses(found))
    assert not found.questions


@try_each(
    "old, new, asked",
    [
        ("trainer=trainer", "trainer=batches", "layout.tp"),
        ("data=data", "data=batches", "training.sequence"),
        ("model=model", "model=batches", "model"),
        ("data=data", "data=data, optim=batches", "layout.zero"),
        ("tensor_model_parallel_size=2", "**batches()", "layout.pp"),
    ],
)
def test_an_object_of_another_file_raises_questions(old: str, new: str, asked: str) -> None:
    """Without them a degree of the other file was 1."""
    reasons = {one.attribute: one.reason for one in read(old, new).questions}
    assert "another file" in reasons[asked]


def test_a_degree_beside_unpacked_arguments_raises_no_question() -> None:
    found = read("tensor_model_parallel_size=2", "tensor_model_parallel_size=2, **batches()")
    assert "layout.tp" not in {one.attribute for one in found.questions}


def test_adapters_of_another_file_are_rejected() -> None:
    (problem,) = read("data=data", "data=data, peft=adapters").problems
    assert "adapters" in problem.message


@try_each("value", ["1j", "[1]", "None", "b'1'", "..."])
def test_a_micro_batch_that_is_no_number_raises_a_question(value: str) -> None:
    text = (
        "from nemo.collections import llm\n\ndef recipe():\n"
        "    made = llm.llama3_8b.pretrain_recipe(num_nodes=1, num_gpus_per_node=8)\n"
        f"    made.data.micro_batch_size = {value}\n    return made\n"
    )
    questions = NeMo().translate("job.py", text).questions
    assert [one.attribute for one in questions] == ["training.micro_batch"]
