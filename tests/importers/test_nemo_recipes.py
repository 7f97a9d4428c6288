"""Recipes and scripts of NeMo 2 in Python, and those of its library."""

from __future__ import annotations

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.nemo import NeMo

from ..rows import try_each
from .translations import assumptions, settings, uses

RECIPE = """\
import nemo_run as run
from nemo import lightning as nl
from nemo.collections.llm import LlamaModel, Llama3Config8B, LoRA, pretrain
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_mixed

def trainer(tp: int = 2, nodes: int = 4, callbacks=None) -> run.Config:
    strategy = run.Config(
        nl.MegatronStrategy, tensor_model_parallel_size=tp, context_parallel_size=2
    )
    return run.Config(
        nl.Trainer, strategy=strategy, plugins=bf16_mixed(), num_nodes=nodes, devices=8,
        callbacks=callbacks,
    )

def pretrain_recipe(nodes: int = 4, fast: bool = False) -> run.Partial:
    recipe = run.Partial(
        pretrain,
        model=run.Config(LlamaModel, config=run.Config(Llama3Config8B)),
        trainer=trainer(nodes=nodes, callbacks=[run.Config(TimingCallback)]),
        data=run.Config(MockDataModule, seq_length=4096, global_batch_size=64, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
    if fast:
        recipe.trainer.strategy.context_parallel_size = 1
    recipe.trainer.callbacks.append(
        run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True)
    )
    return recipe
"""


def recipe_of(text: str, name: str = "") -> Translation:
    return NeMo().read(ImportFile("recipe.py", text, ImportOptions(recipe=name)))


def test_a_recipe_of_nemo_2_in_python_is_read() -> None:
    found = recipe_of(RECIPE)
    expected = {
        "cluster.devices": "4 * 8",
        "layout.tp": "2",
        "layout.cp": "2",
        "layout.zero": "1",
        "overlap.tensor": "pipelined",
        "training.sequence": "4096",
        "training.micro_batch": "1",
        "training.global_batch": "64 sequences",
    }
    assert expected.items() <= settings(found).items()
    assert uses(found) == ["frameworks.nemo", "models.llama3_8b", "precisions.bf16"]
    assert not found.questions


SCRIPT = """\
import argparse
from nemo import lightning as nl
from nemo.collections import llm
from megatron.core.optimizer import OptimizerConfig

def main(args):
    data = llm.MockDataModule(seq_length=1024, global_batch_size=64, micro_batch_size=2)
    config = llm.GPTConfig(num_layers=12, hidden_size=768, ffn_hidden_size=3072,
                           num_attention_heads=12, vocab_size=50257)
    strategy = nl.MegatronStrategy(tensor_model_parallel_size=2)
    trainer = nl.Trainer(devices=8, num_nodes=args.nodes, strategy=strategy,
                         plugins=nl.MegatronMixedPrecision(precision="bf16-mixed"))
    optimizer = nl.MegatronOptimizerModule(
        config=OptimizerConfig(optimizer="adam", use_distributed_optimizer=True))
    llm.train(model=llm.GPTModel(config, tokenizer=data.tokenizer), data=data, trainer=trainer,
              optim=optimizer)

if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
"""


def script(text: str) -> Translation:
    return NeMo().read(ImportFile("train.py", text, ImportOptions()))


def test_a_script_of_nemo_2_without_a_recipe_is_read() -> None:
    assert NeMo().recognizes("train.py", SCRIPT)
    found = script(SCRIPT.replace("args.nodes", "4"))
    expected = {
        "cluster.devices": "4 * 8",
        "layout.tp": "2",
        "layout.pp": "1",
        "layout.zero": "1",
        "training.sequence": "1024",
        "training.micro_batch": "2",
        "training.global_batch": "64 sequences",
        "training.dropout": "on",
        "model.layers": "12",
        "model.gated": "off",
        "model.vocabulary": "50_257",
    }
    assert expected.items() <= settings(found).items()
    assert uses(found) == ["frameworks.nemo", "precisions.bf16"]
    assert {"layout.pp", "layout.cp"} <= set(assumptions(found))


@pytest.mark.parametrize(
    ("old", "name", "value"),
    [
        (", use_distributed_optimizer=True", "layout.zero", "0"),
        ("tensor_model_parallel_size=2", "layout.tp", "1"),
        (", micro_batch_size=2", "training.micro_batch", "4"),
    ],
)
def test_what_a_script_of_nemo_2_leaves_out_is_an_assumption(
    old: str, name: str, value: str
) -> None:
    assert old in SCRIPT
    found = script(SCRIPT.replace("args.nodes", "4").replace(old, ""))
    assert settings(found)[name] == value
    assert "NeMo" in assumptions(found)[name]


def test_an_argument_of_a_script_of_nemo_2_raises_a_question() -> None:
    text = SCRIPT.replace("tensor_model_parallel_size=2", "tensor_model_parallel_size=args.tp")
    asked = {one.attribute for one in script(text).questions}
    assert asked == {"cluster.devices", "layout.tp"}


def test_an_option_of_a_script_of_nemo_2_has_its_default() -> None:
    """Options that the file declares were unknown; a training in `pretrain_recipe` was rejected."""
    parser = "    main(argparse.ArgumentParser().parse_args())\n"
    own = (
        "    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--nodes", type=int, default=3)\n'
        '    parser.add_argument("--tp", type=int)\n    main(parser.parse_args())\n'
    )
    text = SCRIPT.replace(parser, own)
    named = text.replace("main(", "pretrain_recipe(").replace(
        "    llm.train", "    return llm.train"
    )
    for one in (text, named):
        found = script(one)
        assert settings(found)["cluster.devices"] == "3 * 8"
        assert "`nodes` has this default in the file" in assumptions(found)["cluster.devices"]
        assert not found.questions


def test_a_script_of_nemo_2_that_trains_twice_is_an_error() -> None:
    call = SCRIPT[SCRIPT.index("    llm.train(") : SCRIPT.index("if __name__")]
    (problem,) = script(SCRIPT.replace(call, call + call)).problems
    assert problem.message == "the script trains twice"


def test_an_object_of_a_recipe_may_be_in_itself() -> None:
    inside = "    recipe.trainer.strategy.parent = recipe\n    return recipe"
    found = recipe_of(RECIPE.replace("    return recipe", inside))
    assert settings(found) == settings(recipe_of(RECIPE))


def test_a_degree_that_is_code_in_a_recipe_of_nemo_2_raises_a_question() -> None:
    found = recipe_of(RECIPE.replace("parallel_size=tp", "parallel_size=args.tp"))
    assert [one.attribute for one in found.questions] == ["layout.tp"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    return recipe\n",
            "    recipe.peft = run.Config(DoRA)\n    return recipe\n",
            "adapters of this class are not supported",
        ),
        ("    return recipe\n", "    return tune(recipe)\n", "`tune` changes the recipe"),
        ("run.Partial(\n        pretrain,", "llama3.pretrain_recipe(\n", "comes from another file"),
    ],
)
def test_a_recipe_of_nemo_2_that_is_not_followed_is_rejected(
    old: str, new: str, message: str
) -> None:
    (problem,) = recipe_of(RECIPE.replace(old, new, 1)).problems
    assert message in problem.message


def recipe_with(kind: str, sizes: str) -> Translation:
    text = RECIPE.replace("run.Config(Llama3Config8B", f"run.Config({kind}, {sizes}")
    return recipe_of(text.replace("Llama3Config8B", kind))


def test_a_class_without_sizes_has_the_defaults_of_its_family() -> None:
    """GPTConfig of NeMo 2 has LayerNorm, no gate, biases, tied tables and learned positions."""
    found = recipe_with("GPTConfig", "num_layers=4, hidden_size=64, num_attention_heads=4")
    expected = {"norm": "layer", "gated": "off", "biases": "on", "tied": "on"}
    expected["positions"] = "training.sequence"
    got = settings(found)
    assert {name: got[f"model.{name}"] for name in expected} == expected
    assert assumptions(found)["model.gated"] == "NeMo 2.5: GPTConfig"
    assert [one.attribute for one in found.missing] == ["model.vocabulary"]
    llama = recipe_with("LlamaConfig", "num_layers=4, vocab_size=99")
    assert (settings(llama)["model.gated"], settings(llama)["model.vocabulary"]) == ("on", "99")
    assert not llama.missing
    sized = recipe_with("Nemotron3Config4B", "num_layers=4, vocab_size=99")
    assert [one.attribute for one in sized.questions] == ["model"]
    strange = recipe_with("WarpConfig", "num_layers=4, vocab_size=99")
    assert [one.attribute for one in strange.questions] == ["model"]


LIBRARY = """\
import nemo_run as run
from nemo.collections import llm
from nemo.collections.llm.recipes import deepseek_v3 as deepseek
from nemo.collections.llm.recipes.llama3_8b import pretrain_recipe

def one_recipe():
    recipe = {call}
    recipe.data.global_batch_size = 64
    return recipe
"""


@try_each(
    "call, expected",
    [
        (
            "llm.llama3_8b.pretrain_recipe(num_nodes=2)",
            {"cluster.devices": "2 * 8", "layout.tp": "1", "layout.cp": "2"},
        ),
        (
            "pretrain_recipe(num_gpus_per_node=4)",
            {"cluster.devices": "1 * 4", "training.sequence": "8192"},
        ),
        (
            "deepseek.pretrain_recipe(performance_mode=True)",
            {"cluster.devices": "128 * 8", "layout.ep": "64", "precision.optimizer": "8 B"},
        ),
        (
            "llm.llama31_8b.finetune_recipe('d', 'n', peft_scheme=None, seq_length=1024)",
            {"cluster.devices": "1 * 8", "layout.tp": "2", "training.sequence": "1024"},
        ),
    ],
)
def test_a_recipe_of_nemos_library_has_its_values_of_release_2_5(
    call: str, expected: dict[str, str]
) -> None:
    found = recipe_of(LIBRARY.format(call=call))
    assert {**expected, "training.global_batch": "64 sequences"}.items() <= settings(found).items()
    assert assumptions(found)["training.micro_batch"].startswith("NeMo 2.5: ")
    assert "training.global_batch" not in assumptions(found)


@pytest.mark.parametrize(
    "start",
    ["run.run(found, executor=local)", "with run.Experiment('x') as e:\n        e.add(found)"],
)
def test_a_file_that_starts_its_recipe_is_read_with_what_it_changes(start: str) -> None:
    """4 nodes of 8 and micro-batches of 2, where the function alone has 1 node and 1."""
    text = LIBRARY.replace("def one_recipe():", "def one_recipe(nodes=1):")
    text = text.format(call="llm.llama3_8b.pretrain_recipe(num_nodes=nodes)")
    main = "def main():\n    found = one_recipe({})\n    found.data.micro_batch_size = 2\n    {}\n"
    end = "if __name__ == '__main__':\n    main()\n"
    found = settings(recipe_of(text + main.format("nodes=4", start) + end))
    assert (found["cluster.devices"], found["training.micro_batch"]) == ("4 * 8", "2")
    asked = recipe_of(text + main.format("nodes=read().nodes", start) + end)
    assert [one.attribute for one in asked.questions] == ["cluster.devices"]
    assert "cluster.devices" not in {**settings(asked), **assumptions(asked)}  # nor 1 node


@try_each(
    "call, message",
    [
        ("llm.llama3_8b.finetune_recipe(peft_scheme='dora')", "adapters of this class"),
        ("llm.llama3_8b.pretrain_recipe(pace=3)", "the settings of `pace` of"),
        (
            "llm.llama3_8b.pretrain_recipe(performance_mode=args.fast)",
            "the value of performance_mode",
        ),
        (
            "llm.mamba2_8b.pretrain_recipe()",
            "comes from another file, which parcost does not read",
        ),
    ],
)
def test_a_recipe_of_nemos_library_that_is_not_known_is_rejected(call: str, message: str) -> None:
    (problem,) = recipe_of(LIBRARY.format(call=call)).problems
    assert message in problem.message


OWN = """\
def tune(recipe, ranks=2):
    recipe.trainer.strategy.context_parallel_size = ranks
    recipe.model.config.recompute_granularity = "full"
"""


@pytest.mark.parametrize("call", ["tune(recipe, ranks=4)", "tune(recipe=recipe, ranks=4)"])
def test_a_function_of_a_file_beside_a_recipe_of_nemo_changes_it(call: str) -> None:
    text = LIBRARY.format(call="llm.llama3_8b.pretrain_recipe(num_nodes=2)")
    text = text.replace("    return", f"    {call}\n    return")
    text = f"from mine.tools import tune\n{text}"
    found = NeMo().read(ImportFile("recipe.py", text, neighbor={"mine/tools.py": OWN}.get))
    expected = {"layout.cp": "4", "training.recompute": "full", "cluster.devices": "2 * 8"}
    assert expected.items() <= settings(found).items()
    (place,) = {
        text[one.start : one.end]
        for block in found.blocks
        for one in block.settings
        if one.name == "recompute"
    }
    assert place == call
    (problem,) = recipe_of(text).problems
    assert "`mine/tools.py` is not beside this file" in problem.message


def test_arguments_of_a_performance_script_raise_questions() -> None:
    call = "set_primary_perf_configs(pretrain_recipe(), 'pre_train', nodes)"
    asked = {one.attribute for one in recipe_of(LIBRARY.format(call=call)).questions}
    wanted = {"cluster.devices", "layout.tp", "layout.pp", "precision", "training.recompute"}
    assert wanted <= asked


def test_several_recipes_of_nemo_2_need_a_name() -> None:
    text = f"{RECIPE}\n\ndef other_recipe() -> run.Partial:\n    return pretrain_recipe(nodes=1)\n"
    assert "--recipe other_recipe" in recipe_of(text).problems[0].help
    assert settings(recipe_of(text, "other_recipe"))["cluster.devices"] == "1 * 8"
    assert "no configuration `no`" in recipe_of(text, "no").problems[0].message


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("gradient_accumulation_fusion", "kernels.fused_accumulation"),
        ("moe_grouped_gemm", "kernels.grouped_experts"),
    ],
)
def test_a_kernel_that_a_recipe_turns_off_is_off(line: str, path: str) -> None:
    text = LIBRARY.format(call="llm.llama3_8b.pretrain_recipe()")
    more = f"    recipe.model.config.{line} = False\n    recipe.data.global"
    assert settings(recipe_of(text.replace("    recipe.data.global", more)))[path] == "off"
