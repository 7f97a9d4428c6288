"""Where a newcomer looks first for a concept: there it is."""

from __future__ import annotations

import re
from pathlib import Path

from ..rows import try_each

ROOT = Path(__file__).parents[2]
CORE, PLUGINS = "core/parcost", "plugins/parcost_plugins"
FORMATS = "plugins/parcost_formats"

#: A concept, the file of its name, and what is defined there.
CONCEPTS = [
    ("the price of a ring", f"{PLUGINS}/collectives/ring.py", "class Ring"),
    ("the order of 1F1B", f"{PLUGINS}/schedules/one_f_one_b.py", "class OneFOneB"),
    ("what ZeRO 3 gathers", f"{PLUGINS}/parallelism/data/zero3.py", "all_gather"),
    ("heads that TP does not divide", f"{PLUGINS}/parallelism/tensor/rules.py", "heads"),
    ("what hides under what", f"{CORE}/engine/overlap.py", "def hide"),
    ("the pipeline bubble", f"{CORE}/engine/ledger.py", "def bubble_line"),
    ("the strongest levers", f"{PLUGINS}/analysis/advice/levers.py", "def gains"),
    ("what recomputing each part saves", f"{PLUGINS}/analysis/advice/recomputation.py", "def "),
    ("the best checkpoint interval", f"{PLUGINS}/operations/failures.py", "def daly"),
    ("CUDA graphs", f"{PLUGINS}/frameworks/host.py", "cuda_graphs"),
    ("objectives of a search", f"{PLUGINS}/search_space/objective.py", "Objective("),
    ("the screen", f"{FORMATS}/rendering/screen.py", "def page("),
    ("the full report", f"{FORMATS}/rendering/full_report.py", "def result_items("),
    ("the JSON of a report", f"{FORMATS}/rendering/report_data.py", "def report"),
    ("the units", f"{CORE}/language/units.py", "def unit"),
    ("MFU", f"{PLUGINS}/analysis/figures/model.py", "mfu"),
    ("claims of `expect`, judged", f"{CORE}/expectations/claims.py", "class Claims"),
    (
        "flags of Megatron-LM",
        "plugins/parcost_formats/tools/tables/megatron.toml",
        "\ntensor_model_parallel_size",
    ),
    ("the page of HTML", "plugins/parcost_formats/html/page.py", "def page"),
    ("names that become values", f"{CORE}/binding/binder.py", "class Binder"),
    (
        "measured runs, evaluated",
        "plugins/parcost_measured/validation/evaluation.py",
        "def evaluate_cases(",
    ),
    ("two versions, compared", "plugins/parcost_apps/diff/changes.py", "def compare"),
    ("a step over time", "plugins/parcost_apps/timeline/step_trace.py", "class TrainingTrace"),
    ("casts of FP8", f"{PLUGINS}/precision/casts.py", "def "),
    ("ring attention", f"{PLUGINS}/parallelism/context/ring.py", "ring"),
    ("launches of the host", f"{PLUGINS}/frameworks/host.py", "launch"),
    ("the Pareto front of a search", f"{CORE}/search/front.py", "class Front"),
    ("neighbours of the best layout", "plugins/parcost_apps/search/sensitivity.py", "def neigh"),
    ("a config.json of Hugging Face", f"{FORMATS}/tools/huggingface/model.py", "class Config"),
    ("keys of DeepSpeed", f"{FORMATS}/tools/tables/deepspeed.toml", "zero_optimization"),
    ("fused attention", f"{PLUGINS}/kernels/attention.py", "def core"),
    ("sliding windows", f"{PLUGINS}/physics/attention_mask.py", "window"),
    ("days, energy and cost of a run", f"{PLUGINS}/operations/resources.py", "energy"),
    (
        "jobs that are not supported",
        f"{FORMATS}/tools/unsupported.py",
        "def find_unsupported_features",
    ),
    ("the server for editors", "plugins/parcost_apps/editor/server.py", "def serve"),
]


@try_each("concept, file, has", CONCEPTS)
def test_a_concept_is_in_the_file_of_its_name(concept: str, file: str, has: str) -> None:
    path = ROOT / file
    assert path.is_file(), f"{concept}: {file}"
    assert re.search(re.escape(has), path.read_text(encoding="utf-8")), f"{file} lacks `{has}`"
