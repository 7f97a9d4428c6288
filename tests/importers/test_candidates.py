"""A file that no importer recognizes names the nearest format, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_litgpt import PRETRAIN
from .test_yaml_configs import LLAMA as NANOTRON
from .torchtitan_files import TOML

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "text", "message", "help"),
    [
        (
            "run.toml",
            TOML.replace("[training]", "[trainning]"),
            "of its 10 keys are of torchtitan",
            "`trainning`: did you mean `training`?; or read it so with --from torchtitan",
        ),
        (
            "run.yaml",
            PRETRAIN.replace("tokenizer_dir: t\n", ""),
            "keys are of LitGPT",
            "the keys that identify the format are missing: one of ",
        ),
        (
            "run.yaml",
            NANOTRON.replace("\nparallelism:", "\nparalelism:"),
            "keys are of nanotron",
            "`paralelism`: did you mean `parallelism`?",
        ),
    ],
)
def test_the_nearest_format_of_an_unknown_file(
    run_command: Run, name: str, text: str, message: str, help: str
) -> None:
    done = run_command("import", name, files={name: text})
    assert done.code == 2
    shown = " ".join(done.err.split())
    assert message in shown
    assert help in shown


_ANY_TOOL = "learning_rate: 1e-4\nsteps: 9\ndtype: bfloat16\nrun_name: a\nlog_period: 10\n"


@pytest.mark.parametrize("text", ["foo: 1\nbar: {baz: 2}\n", "model: a\n", _ANY_TOOL])
def test_a_file_with_no_known_keys_names_no_format(run_command: Run, text: str) -> None:
    done = run_command("import", "run.yaml", files={"run.yaml": text})
    assert "choose a format of `parcost import --list`" in done.err
