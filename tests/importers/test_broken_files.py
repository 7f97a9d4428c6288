"""Files with changes drawn at random: a translation or diagnostics, and never an exception."""

from __future__ import annotations

import random
import re
import time

import pytest

from parcost import Importer, ImportFile
from parcost.engine.session import Session
from parcost_formats.imports.reader import importers_of
from parcost_formats.imports.translation import importer_for
from parcost_formats.tools.accelerate import Accelerate
from parcost_formats.tools.automodel import Automodel
from parcost_formats.tools.deepspeed import DeepSpeed
from parcost_formats.tools.maxtext import MaxText
from parcost_formats.tools.nanotron import Nanotron
from parcost_formats.tools.nccl_tests import CollectiveLog
from parcost_formats.tools.slurm import SlurmFile
from parcost_formats.tools.topology import TopologyMatrix
from parcost_formats.tools.torchtitan import Torchtitan

from ..rows import mark_most, try_each
from .finetuning_files import TRL
from .test_accelerate import FSDP_1, FSDP_2
from .test_automodel import RECIPE
from .test_cluster_files import BLOCKS, HGX, HOSTS, JOB, PAIRS, TREE
from .test_flagscale import FLAGSCALE
from .test_maxtext import MODEL, RUN, SCRIPT
from .test_nccl_tests import ONE_NODE, json_log, log
from .test_nemo_rl import RL_MEGATRON
from .test_torchtitan import PYTHON, TOML
from .test_yaml_configs import LLAMA, QWEN

FILES: list[tuple[Importer, str, str]] = [
    (CollectiveLog(), "a.log", log(ONE_NODE, 8, 1, 1.75)),
    (CollectiveLog(), "a.json", json_log()),
    *((SlurmFile(), "a.conf", text) for text in (TREE, BLOCKS, HOSTS, JOB)),
    *((TopologyMatrix(), "a.txt", text) for text in (HGX, PAIRS)),
    *((Accelerate(), "a.yaml", text) for text in (FSDP_1, FSDP_2)),
    *((Nanotron(), "a.yaml", text) for text in (LLAMA, QWEN)),
    *((MaxText(), "a.yml", text) for text in (RUN, MODEL)),
    (MaxText(), "a.sh", SCRIPT),
    (Automodel(), "a.yaml", RECIPE),
    (DeepSpeed(), "a.json", '{"train_batch_size": 64, "zero_optimization": {"stage": 3}}'),
    (Torchtitan(), "a.toml", TOML),
    (Torchtitan(), "a.py", PYTHON),
]
PIECES = [
    *(
        "9" * 5000,
        "\u00b2",
        "\u0663",
        "-1",
        "null",
        "[]",
        "{}",
        "auto",
        "1e999",
        "nan",
        ".inf",
        "-0",
    ),
    *("", "x", "0", "[[1]]", "{a: b}", "true", "1.5", "\x00", "SwitchName=\n", "=", "[0-", "GPU0"),
    *("[1-99999999999]", "# ", "[a.b]", "99999999999999999999", "lambda: 1", '"', "a: !!x 1\n"),
]


def change(text: str, draw: random.Random) -> str:
    """Return *text* with a piece put in, a word replaced, or a line left out."""
    how = draw.randrange(3)
    if how == 0:
        at = draw.randrange(len(text) + 1)
        return text[:at] + draw.choice(PIECES) + text[at + draw.randrange(6) :]
    words = list(re.finditer(r"[\w.+-]+", text))
    if how == 1 and words:
        word = draw.choice(words)
        return text[: word.start()] + draw.choice(PIECES) + text[word.end() :]
    lines = text.splitlines(keepends=True) or [""]
    del lines[draw.randrange(len(lines))]
    return "".join(lines)


@pytest.mark.parametrize("seed", mark_most(range(4), 4))
def test_a_broken_file_is_a_diagnostic(seed: int) -> None:
    draw = random.Random(seed)
    for importer, name, text in FILES:
        for _ in range(12):
            broken = text
            for _ in range(draw.randint(1, 3)):
                broken = change(broken, draw)
            importer.recognizes(name, broken)
            found = importer.translate(name, broken)
            for problem in found.problems:
                assert problem.message
                assert 0 <= problem.start <= problem.end <= len(broken) + 1


@pytest.mark.parametrize("start", mark_most(["", "{", "ARGS:\n", "modules:\n"], 4))
@pytest.mark.parametrize("blanks", ["\n" * 20_000, f"{' ' * 200}\n" * 100])
def test_blank_lines_take_time_in_proportion_to_their_number(start: str, blanks: str) -> None:
    """Searches that begin anew at every blank line took minutes for five times as much."""
    importers = importers_of(Session()).values()
    before = time.process_time()
    for name in ("a.yaml", "a.json", "a.toml", "a.sh", "a.py", "a.conf"):
        for one in importers:
            one.recognizes(name, start + blanks)
    assert time.process_time() - before < 2


@try_each("digits", ["0x" + "f" * 4000, "0b" + "1" * 90_000])
@try_each(
    "importer, name, text, number",
    [
        (Torchtitan(), "a.py", PYTHON, "steps=1000"),
        (Torchtitan(), "a.toml", TOML, "seq_len = 8_192"),
        (Nanotron(), "a.yaml", LLAMA, "micro_batch_size: 3"),
    ],
)
def test_a_number_that_is_no_quantity_is_an_error_at_its_place(
    importer: Importer, name: str, text: str, number: str, digits: str
) -> None:
    """Python writes no integer of more than 4300 digits, however it was read."""
    assert number in text
    broken = text.replace(number, re.sub(r"\d[\d_]*", digits, number))
    (problem, *_) = importer.translate(name, broken).problems
    assert digits in broken[problem.start : problem.end]
    assert digits not in problem.message


@try_each(
    "name, text, old, new, message",
    [
        ("a.yaml", FLAGSCALE, "multiple_of: 256", "multiple_of: abc", "a number above 0"),
        ("a.yaml", FLAGSCALE, "multiple_of: 256", "multiple_of: -1", "a number above 0"),
        (
            "a.yaml",
            FLAGSCALE,
            "hidden_dim_multiplier: 1.3",
            "hidden_dim_multiplier: .nan",
            "above 0",
        ),
        (
            "a.yaml",
            FLAGSCALE,
            "use_distributed_optimizer: true",
            "use_distributed_optimizer: []",
            "true or false is expected, but [] is given",
        ),
        ("a.toml", TOML, "seq_len = 8_192", "seq_len = {}", "`training.seq_len`"),
        (
            "a.sh",
            TRL,
            "--gradient_accumulation_steps 4",
            '--gradient_accumulation_steps ""',
            "a whole number",
        ),
        (
            "a.yaml",
            RL_MEGATRON,
            "activation_checkpointing: true",
            "activation_checkpointing: abc",
            "true or false",
        ),
    ],
)
def test_a_value_of_another_kind_is_an_error_where_a_default_was_taken(
    name: str, text: str, old: str, new: str, message: str
) -> None:
    assert old in text
    importer = importer_for(name, text, importers_of(Session()))
    assert not importer.read(ImportFile(name, text)).problems
    found = importer.read(ImportFile(name, text.replace(old, new, 1)))
    assert any(message in one.message for one in found.problems), found.problems


def test_a_key_of_a_million_parts_is_an_error_at_once() -> None:
    key = ".".join(["a"] * 1_000_000)
    text = f'{{"{key}": 1, "model_type": "llama", "hidden_size": 4096}}'
    (problem,) = importers_of(Session())["huggingface"].read(ImportFile("a.json", text)).problems
    assert problem.message == "a key has 1,000 characters at most"
