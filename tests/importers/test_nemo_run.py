"""Commands of NeMo 2, which name a recipe of its library."""

from __future__ import annotations

import pytest

from parcost_formats.tools.nemo import NeMo

from .translations import assumptions, settings, uses

RECIPE = """\
import nemo_run as run
from nemo.collections import llm

def one_recipe():
    recipe = llm.{call}
    recipe.trainer.strategy.tensor_model_parallel_size = 2
    recipe.data.global_batch_size = 256
    return recipe
"""
SET = "trainer.strategy.tensor_model_parallel_size=2 data.global_batch_size=256"


@pytest.mark.parametrize(
    ("factory", "call"),
    [
        ("pretrain --factory llama3_8b", "llama3_8b.pretrain_recipe()"),
        ("pretrain --factory='llama3_8b(num_nodes=2)'", "llama3_8b.pretrain_recipe(num_nodes=2)"),
        (
            "finetune --factory 'llama31_8b(peft_scheme=None)'",
            "llama31_8b.finetune_recipe(peft_scheme=None)",
        ),
    ],
)
def test_a_command_has_the_values_of_its_recipe_in_python(factory: str, call: str) -> None:
    command = NeMo().translate("run.sh", f"nemo llm {factory} {SET} -y\n")
    recipe = NeMo().translate("run.py", RECIPE.format(call=call))
    assert settings(command) == settings(recipe)
    assert settings(command)["layout.tp"] == "2"
    assert assumptions(command) == assumptions(recipe)
    assert uses(command) == uses(recipe)


@pytest.mark.parametrize(
    ("command", "message", "help"),
    [
        ("pretrain -y", "it names no recipe", "--factory NAME"),
        ("pretrain --factory llama3_8bb", "`llama3_8bb` is not in parcost's table", "`llama3_8b`"),
        ("pretrain --factory $R", "`R` is not set in the file", "--set-env R=VALUE"),
        ("pretrain --factory 'llama3_8b(pace=3)'", "the settings of `pace`", ""),
        ("finetune --factory 'llama31_8b(peft_scheme=\"dora\")'", "adapters of this class", ""),
    ],
)
def test_a_command_whose_recipe_is_not_known(command: str, message: str, help: str) -> None:
    (found,) = NeMo().translate("run.sh", f"nemo llm {command}\n").problems
    assert message in found.message
    assert help in found.help
