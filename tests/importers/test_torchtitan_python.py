"""Configurations of torchtitan in Python: functions of a file, and of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost import ImportFile, ImportOptions
from parcost_formats.tools.torchtitan import Torchtitan

from ..rows import try_each
from .megatron_files import reasons, settings, values
from .torchtitan_files import (
    MACHINE,
    PYTHON,
    TOML,
    Run,
    of_recipe,
    problems,
    questions,
    read,
)
from .translations import settings as texts


def test_a_python_configuration_of_tokens_is_the_same_job() -> None:
    one, other = values(read(TOML)), values(read(PYTHON, "config.py"))
    same = {"training.framework", "training.global_batch"}
    assert {k: v for k, v in one.items() if k not in same} == {
        k: v for k, v in other.items() if k not in same
    }
    assert other["training.global_batch"] == "2_097_152 tokens"  # 256 x 8192
    assert other["training.framework"] == "torchtitan_2026_08"


def test_a_configuration_made_of_another_one_is_read() -> None:
    text = PYTHON + (
        "\n\ndef wider() -> Trainer.Config:\n"
        "    config = llama3_70b()\n"
        "    config.parallelism.tensor_parallel_degree = 4\n"
        "    config.loss = ChunkedCELoss.Config(num_chunks=16)\n"
        "    return config\n"
    )
    for made in (text, text.replace(") -> Trainer.Config:", "):")):  # with and without types
        (problem,) = Torchtitan().translate("config.py", made).problems
        assert problem.help == "choose one: --recipe llama3_70b | --recipe wider"
        options = ImportOptions(recipe="wider")
        found = values(Torchtitan().read(ImportFile("config.py", made, options)))
        assert found["layout.tp"] == "4"
        assert found["training.loss_chunks"] == "16"
        assert found["training.model"] == "llama31_70b"


def test_a_function_that_others_call_is_none_of_several_if_its_name_is_private() -> None:
    text = PYTHON.replace("llama3_70b", "_start") + (
        "\n\ndef job():\n    config = _start()\n"
        "    config.parallelism.tensor_parallel_degree = 4\n    return config\n"
        "\n\ndef count():\n    return _start().training.steps\n"
    )
    assert values(read(text, "config.py"))["layout.tp"] == "4"


def test_the_name_of_the_only_configuration_is_no_option_without_effect(run_command: Run) -> None:
    done = run_command("check", *MACHINE, "config.py:llama3_70b", files={"config.py": PYTHON})
    assert "no effect" not in done.out
    done = run_command("check", *MACHINE, "run.toml:llama3_70b", files={"run.toml": TOML})
    assert "`--recipe llama3_70b` has no effect on `run.toml`" in done.out


def test_a_decorator_may_change_a_configuration() -> None:
    """The cache of Python returns the configuration as it is."""
    name = "def llama3_70b"
    found = read(PYTHON.replace(name, f"@faster(2)\n{name}"), "config.py")
    assert reasons(found)["@faster"] == "it is code that may change the configuration"
    assert values(found)["layout.tp"] == "8"
    assert not read(PYTHON.replace(name, f"@functools.cache\n{name}"), "config.py").unknown


def test_a_loop_is_not_run_and_is_no_condition() -> None:
    change = "for _ in range(2):\n        config.training.seq_len *= 2"
    found = Torchtitan().translate("job.py", CHANGED.replace("CHANGE", change))
    (question,) = [one for one in found.questions if one.attribute == "training.sequence"]
    assert "set inside a loop, which parcost does not run" in question.reason


def test_code_of_a_configuration_is_listed_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = PYTHON.replace(
        "    return Trainer", f"    open({str(mark)!r}, 'w')\n    return Trainer"
    ).replace("tensor_parallel_degree=8", "tensor_parallel_degree=int(input())")
    found = read(text, "config.py")
    assert not mark.exists()
    assert (
        reasons(found)["parallelism.tensor_parallel_degree"]
        == "it is code, which parcost does not run"
    )
    assert "is not read" in settings(found)["layout.tp"].assumption


@try_each(
    "text, message",
    [
        ("def a(:", "not Python"),
        ("x = 1", "no function that returns a Trainer.Config"),
        (
            PYTHON + PYTHON.replace("llama3_70b", "other"),
            "the file has 2 configurations: llama3_70b, other",
        ),
        (
            PYTHON.replace("8 * LENGTH", "8 * LENGTH + 1"),
            "65537 tokens is not a whole number of sequences",
        ),
        (PYTHON.replace("FullAC", "MemoryBudgetAC"), "the compiler decides"),
    ],
)
def test_what_is_wrong_with_python_is_an_error(text: str, message: str) -> None:
    assert message in problems(text, "config.py")[0]


def test_one_of_several_configurations_is_chosen() -> None:
    """A flavor that two families have is of the family of the function, or of the folder."""
    found = of_recipe("llama3_8b")
    assert values(found)["training.model"] == "llama3_8b"
    assert values(found)["training.micro_batch"] == "2"
    assert values(found)["recompute.alternate"] == "on"
    (problem,) = of_recipe("").problems
    assert "6 configurations: llama3_8b, llama3_8b_narrow, llama3_8b_float8" in problem.message
    assert problem.help.startswith("choose one: --recipe llama3_8b | --recipe llama3_8b_narrow |")
    (problem,) = of_recipe("llama3_8b_mouon").problems
    assert "did you mean `llama3_8b_muon`?" in problem.help


def test_a_flavor_of_two_families_is_a_question() -> None:
    found = of_recipe("m_8b", "mine.py")
    assert "cannot tell which model the flavor `8B` belongs to" in questions(found)["model"]
    assert found.questions[0].answers == ("--as llama3", "--as qwen3")
    assert values(of_recipe("m_8b", "mine.py", "qwen3"))["training.model"] == "qwen3_8b"
    assert values(of_recipe("m_8b", "qwen3/mine.py"))["training.model"] == "qwen3_8b"


@pytest.mark.parametrize(
    ("recipe", "attribute", "reason"),
    [
        (
            "llama3_8b_narrow",
            "precision",
            "NVFP4LinearConverter: there is no recipe with these matrix products",
        ),
        (
            "llama3_8b_muon",
            "precision",
            "have the optimizer state of Adam, but the optimizer is Muon",
        ),
        ("llama3_8b_pp", "layout.pp", "it is code, which parcost does not run"),
    ],
)
def test_what_decides_the_cost_and_is_not_read_is_a_question(
    recipe: str, attribute: str, reason: str
) -> None:
    assert reason in questions(of_recipe(recipe))[attribute]


CHANGED = """\
from torchtitan.models.llama3 import model_registry

def _base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=2, seq_len=8192),
    )

def widen(one, degree):
    one.parallelism.tensor_parallel_degree = degree

def job() -> Trainer.Config:
    config = _base()
    CHANGE
    return config
"""


@try_each(
    "change, path, value",
    [
        ("widen(config, 8)", "layout.tp", "8"),
        ("widen(config, degree=4)", "layout.tp", "4"),
        ("setattr(config.training, 'seq_len', 4096)", "training.sequence", "4096"),
        ("config.training = TrainingConfig(seq_len=4096)", "training.micro_batch", "8"),
        ("return replace(config, training=TrainingConfig())", "training.sequence", "2048"),
        ("config.training.local_batch_size *= 2", "training.micro_batch", "4"),
        ("if 2 > 1:\n        config.training.seq_len = 4096", "training.sequence", "4096"),
    ],
)
def test_changes_of_a_configuration_are_followed(change: str, path: str, value: str) -> None:
    """A section that is replaced has torchtitan's defaults: 8 sequences of 2,048."""
    found = Torchtitan().translate("job.py", CHANGED.replace("CHANGE", change))
    assert texts(found)[path] == value


def test_sections_that_functions_of_the_file_make_are_followed() -> None:
    """A section of a function, one changed by `replace`, and a condition on a known value."""
    text = CHANGED.replace("TrainingConfig(local_batch_size=2, seq_len=8192)", "batches(4)")
    text += "def batches(count):\n    return TrainingConfig(local_batch_size=count, seq_len=4096)\n"
    change = "config.parallelism = ParallelismConfig(tensor_parallel_degree=2)\n"
    change += "    config = replace(config, parallelism=replace("
    change += "config.parallelism, data_parallel_shard_degree=8))\n"
    change += "    if config.training.seq_len > 2048:\n"
    change += "        config.parallelism.context_parallel_degree = 2"
    found = texts(Torchtitan().translate("job.py", text.replace("CHANGE", change)))
    assert (found["training.micro_batch"], found["training.sequence"]) == ("4", "4096")
    assert (found["layout.tp"], found["layout.cp"]) == ("2", "2")
    assert found["cluster.devices"] == "32"  # 8 shards x 2 x 2


@try_each(
    "change, attribute",
    [
        ("if fast():\n        config.training = TrainingConfig(seq_len=4096)", "training.sequence"),
        ("if fast():\n        config.model_spec = model_registry('70B')", "model"),
        ("if fast():\n        setattr(config.training, 'seq_len', 4096)", "training.sequence"),
        ("config.training.seq_len = int(1e400)", "training.sequence"),
        ("config.training.seq_len = float(10 ** 400)", "training.sequence"),
        ("config.training.seq_len = int('long')", "training.sequence"),
        ("config.training.seq_len = 8 if 4096 in b'' else 16", "training.sequence"),
    ],
)
def test_a_change_that_needs_a_run_is_a_question(change: str, attribute: str) -> None:
    found = Torchtitan().translate("job.py", CHANGED.replace("CHANGE", change))
    assert attribute in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    "text",
    [
        CHANGED.replace("config = _base()", "config = adapt(_base())").replace("CHANGE", "pass"),
        CHANGED.replace("return config", "return adapt(_base())").replace("CHANGE", "pass"),
        CHANGED.replace("return Trainer.Config(", "return Other.Config(").replace("CHANGE", "pass"),
    ],
)
def test_a_configuration_of_another_file_is_an_error(text: str) -> None:
    """The defaults of torchtitan would stand for what that code sets."""
    (problem,) = Torchtitan().translate("job.py", text).problems
    assert "makes the configuration and is defined in another file" in problem.message


LIBRARY = """\
from torchtitan.models.llama3.config_registry import llama3_8b, llama3_405b
from torchtitan.trainer import Trainer

def start_config(name: str) -> Trainer.Config:
    config = llama3_8b()
    config.training.seq_len = 4096
    config.dump_folder = f"out/{name}"
    return config

def shard_weights() -> Trainer.Config:
    config = start_config("shard_weights")
    config.parallelism.data_parallel_shard_degree = 8
    return config

def tensor() -> Trainer.Config:
    config = start_config("tensor")
    config.parallelism.tensor_parallel_degree = 2
    return config
"""


def test_a_configuration_of_the_library_is_where_a_job_starts() -> None:
    """The 8B of torchtitan's registry: 1 sequence of 8,192 a rank, each second product saved.

    Releases compute its loss at once or in chunks, which is a question. `start_config` needs a
    name, so nobody runs it.
    """
    (problem,) = Torchtitan().translate("jobs.py", LIBRARY).problems
    assert problem.help == "choose one: --recipe shard_weights | --recipe tensor"
    options = ImportOptions(recipe="tensor")
    found = Torchtitan().read(ImportFile("jobs.py", LIBRARY, options))
    assert not found.problems
    assert values(found)["training.model"] == "llama3_8b"
    assert values(found)["training.micro_batch"] == "1"
    assert values(found)["training.sequence"] == "4096"
    assert values(found)["recompute.alternate"] == "on"
    assert values(found)["layout.tp"] == "2"
    asked = {one.attribute: list(one.answers) for one in found.questions}
    assert asked["training.loss_chunks"] == [f"--set training.loss_chunks={one}" for one in (8, 1)]


def test_a_configuration_of_the_library_that_is_not_known_is_an_error() -> None:
    text = LIBRARY.replace("= llama3_8b()", "= llama3_3b()")
    options = ImportOptions(recipe="tensor")
    (problem,) = Torchtitan().read(ImportFile("jobs.py", text, options)).problems
    assert "`llama3_3b` makes the configuration and is defined in another file" in problem.message


@try_each(
    "name, asks",
    [
        ("models/qwen3/config_registry.py", False),
        ("qwen3_4b.py", False),
        ("models/qwen3_5/config_registry.py", True),
        ("config_registry.py", True),
    ],
)
def test_a_flavor_of_one_family_is_not_that_of_another(name: str, asks: bool) -> None:
    """The 4B of Qwen3.5 is another model than the only 4B in the table."""
    text = CHANGED.replace("from torchtitan.models.llama3 import", "from . import")
    text = text.replace('"8B"', '"4B"').replace("CHANGE", "pass")
    found = Torchtitan().translate(name, text)
    assert ("model" in {one.attribute for one in found.questions}) is asks


def test_a_call_that_may_change_a_configuration_is_listed() -> None:
    found = Torchtitan().translate("job.py", CHANGED.replace("CHANGE", "tune(config, 3)"))
    assert "tune(config)" in {one.name for one in found.unknown}
