"""What formulas cite: papers that say what the formula says, all of which are in the list."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parcost_plugins
from parcost import Study

from ..rows import try_each

StudyOf = Callable[..., Study]

PLUGINS = Path(parcost_plugins.__file__).parent
LISTED = (PLUGINS.parents[1] / "docs" / "sources.md").read_text(encoding="utf-8")

#: What Korthikanti et al. 2022 count: a layer of GPT (4.1) and the two ends (4.3).
COUNTED = {
    "layer input",
    "attention input",
    "queries",
    "keys",
    "values",
    "attention probabilities",
    "attention dropout mask",
    "attention probabilities after dropout",
    "attention output",
    "MLP norm input",
    "MLP input",
    "MLP up",
    "MLP activation",
    "residual dropout masks",
    "embedding dropout mask",
    "final norm input",
    "head input",
    "logits",
    "logits gradient",
    "loss softmax",
}
MODELS = {
    "gpt3_175b": "flash_attention = off, dropout = on",
    "llama3_8b": "",
    "gemma2_27b": "",
    "bloom_176b": "",
    "deepseek_v3_mtp": "recompute = full",
    "gpt_oss_120b": "loss_chunks = 4",
}
NOMINAL = "model own { layers = 32, hidden = 4096, parameters = 8 G, saved = 34 B * hidden }"


@try_each("model, training", [*MODELS.items(), (NOMINAL, "")])
def test_a_paper_without_experts_is_not_cited_for_experts(
    study_of: StudyOf, model: str, training: str
) -> None:
    cited = {
        term.name.split(", ")[0]
        for _, term in study_of(model, training=training).contributions("memory")
        if "Korthikanti" in term.formula.source
    }
    latent = {"queries", "keys", "values"} if model.startswith("deepseek") else set()
    assert cited <= COUNTED - latent
    assert bool(cited) is (model != NOMINAL)


def test_every_tensor_that_a_model_keeps_has_a_source(study_of: StudyOf) -> None:
    for model, training in MODELS.items():
        for _, term in study_of(model, training=training).contributions("memory"):
            if term.per_micro_batch:
                assert term.formula.source, term.name


def papers() -> Iterator[tuple[str, str]]:
    """Yield every author with a year that a string of the plugins names."""
    pattern = re.compile(r"([A-Z][\w-]+)(?: et al\.|(?:,? (?:and )?[A-Z]\w+)*) ((?:19|20)\d\d)\b")
    for path in sorted(PLUGINS.parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not pattern.search(text):
            continue
        tree = ast.parse(text)
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in documented:
                yield from pattern.findall(str(node.value))


@pytest.mark.slow
def test_every_paper_that_a_formula_cites_is_in_the_list() -> None:
    found = set(papers())
    assert ("Korthikanti", "2022") in found
    missing = {
        (author, year)
        for author, year in found
        if not re.search(rf"\b{author}\b[^|]*\b{year}\b", LISTED)
    }
    assert missing == set()


def test_papers_of_several_versions_are_cited_by_name_and_year(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3_mtp")
    cited = {one.source for one in (*study.operators, *study.parameters)}
    assert {
        "DeepSeek-AI 2024 (DeepSeek-V2), section 2.1",
        "DeepSeek-AI 2024 (DeepSeek-V3), section 2.2",
        "Dao 2023 (FlashAttention 2), section 3.1",
    } <= cited
