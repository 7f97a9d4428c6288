"""Python scripts with ``SFTTrainer``, which are interpreted and not run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile, Translation

from .finetuning_files import importer_of
from .translations import assumptions, names, settings, uses

Run = Callable[..., Any]

QLORA = """import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

RANK = 32


def load(name):
    base = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    return AutoModelForCausalLM.from_pretrained(
        name, quantization_config=base, device_map="auto", dtype=torch.bfloat16
    )


def main():
    model = load("Qwen/Qwen3-8B")
    adapters = LoraConfig(r=RANK, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    arguments = SFTConfig(
        output_dir="out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_length=2048,
        packing=True,
        bf16=True,
    )
    trainer = SFTTrainer(model=model, args=arguments, peft_config=adapters, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    main()
"""

FULL = """import argparse

from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--checkpoints", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
trainer = SFTTrainer(
    model,
    TrainingArguments(
        "out",
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=4,
        deepspeed={"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}},
        bf16=True,
    ),
    max_seq_length=1024,
    packing=True,
)
trainer.train()
"""

#: The arguments of the trainer that are those of SFTConfig in new releases.
TO_CONFIG = (
    ("    max_seq_length=1024,\n    packing=True,\n", ""),
    ("=4,\n", "=4,\n        max_length=1024,\n        packing=True,\n"),
)

EACH = "for one in model.parameters():\n    "
GRAD = "`requires_grad` chooses the trained parameters"


def read(text: str, *changes: tuple[str, str]) -> Translation:
    """Return what TRL's importer reads in a script after some changes."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return importer_of("trl").read(ImportFile("train.py", text))


def the_problem(text: str, *changes: tuple[str, str]) -> str:
    """Return the message of the only error of a script."""
    (problem,) = read(text, *changes).problems
    return problem.message


def test_arguments_of_the_objects_are_the_keys_of_a_job() -> None:
    """A function of the file is followed to the model that it loads."""
    found = read(QLORA)
    values = settings(found)
    assert "models.qwen3_8b" in uses(found)
    assert values["training.micro_batch"] == "2"
    assert values["training.micro_batches"] == "4"
    assert values["training.sequence"] == "2048"
    assert values["training.recompute"] == "full"
    assert values["adapters.rank"] == "32"
    assert values["adapters.base"] == "nf4"
    assert values["adapters.dropout"] == "on"
    assert (values["adapters.query"], values["adapters.key"]) == ("on", "off")


@pytest.mark.parametrize(
    ("place", "devices"),
    [
        ('"auto"', "1"),
        ('{"": 0}', "1"),
        ("None", ""),
        ('{"": rank}', ""),
        ("where()", ""),
    ],
)
def test_a_device_map_of_constants_has_one_process(place: str, devices: str) -> None:
    """A map that depends on the process says nothing about their number."""
    found = read(QLORA, ('"auto"', place))
    assert settings(found).get("cluster.devices", "") == devices
    assert ("cluster.devices" in assumptions(found)) == bool(devices)


def test_defaults_of_peft_are_assumed() -> None:
    found = read(QLORA, ("r=RANK, lora_dropout=0.1, ", ""))
    assert settings(found)["adapters.rank"] == "8"
    assert assumptions(found)["adapters.rank"] == "PEFT 0.18: r is 8"
    assert settings(found)["adapters.dropout"] == "off"


def test_adapters_of_a_model_are_those_of_the_trainer() -> None:
    """The model is prepared, wrapped, and handed to the trainer without a configuration."""
    wrapped = "    model = get_peft_model(prepare_model_for_kbit_training(model), adapters)\n"
    found = read(
        QLORA,
        ("    arguments = ", f"{wrapped}    arguments = "),
        (" peft_config=adapters,", ""),
    )
    assert settings(found)["adapters.rank"] == "32"
    assert settings(found)["training.recompute"] == "full"


def test_defaults_of_options_are_assumed() -> None:
    found = read(FULL)
    values = settings(found)
    assert values["training.micro_batch"] == "2"
    assert values["training.sequence"] == "1024"
    assert values["layout.zero"] == "3"
    reason = "`batch_size` has this default in the file"
    assert assumptions(found)["training.micro_batch"] == reason


def test_training_arguments_have_defaults_of_their_own() -> None:
    """Those of SFTConfig recompute and are in bf16."""
    found = read(FULL)
    assert settings(found)["training.recompute"] == "none"
    assert "gradient_checkpointing is false" in assumptions(found)["training.recompute"]
    config = read(FULL, ("TrainingArguments", "SFTConfig"), *TO_CONFIG)
    assert settings(config)["training.recompute"] == "full"


def test_arguments_that_the_trainer_has_no_more_have_the_defaults_of_their_release() -> None:
    """SFTConfig of TRL 0.15, the last release with `tokenizer`, does not recompute."""
    change = ("TrainingArguments", "SFTConfig")
    for name, places in (
        ("tokenizer", (*TO_CONFIG, ("    ),\n)\n", "    ), tokenizer=tokenizer)\n"))),
        ("max_seq_length", ()),
        ("packing", (("    max_seq_length=1024,\n", ""), ("4,\n", "4, max_length=1024,\n"))),
    ):
        found = read(FULL, change, *places)
        assert settings(found)["training.recompute"] == "none", name
        assert f"TRL 0.15, which has `{name}`" in assumptions(found)["training.recompute"]


def test_max_seq_length_leaves_two_releases() -> None:
    """It is an argument of SFTConfig of TRL 0.13 to 0.19: bf16 is a default of 0.19 alone."""
    text = FULL.replace("TrainingArguments", "SFTConfig").replace("max_seq_length", "max_length")
    older = ("    max_length=1024,\n    packing=True,\n", "")
    within = ("=4,\n", "=4,\n        max_seq_length=1024, packing=True,\n")
    found = read(text, older, within)
    assert settings(found)["training.recompute"] == "none"
    assert "TRL 0.18" in assumptions(found)["training.recompute"]
    assert "bf16" not in [one.name for one in found.missing]
    engine = ('        deepspeed={"zero_optimization": {"stage": 0}},\n        bf16=True,\n', "")
    text = text.replace(', "bf16": {"enabled": True}', "").replace('": 3', '": 0')
    (open_key,) = [one for one in read(text, older, within, engine).missing if one.name == "bf16"]
    assert "TRL 0.19" in open_key.reason


def test_adapters_beside_a_quantized_model_have_a_type_by_bf16_and_fp16() -> None:
    """TRL casts them to bf16 with bf16 alone; with fp16 they stay in float32."""
    assert "precisions.bf16_pure" in uses(read(QLORA))
    assert "precisions.bf16_autocast" in uses(read(QLORA, ("bf16=True", "fp16=True")))
    found = read(QLORA, ("bf16=True", "bf16=False"))
    (question,) = [one for one in found.questions if one.attribute == "precision"]
    assert "the script decides" in question.reason


def test_a_model_that_makes_checkpoints_by_a_call_recomputes() -> None:
    call = "model.gradient_checkpointing_enable()\ntrainer = "
    assert settings(read(FULL, ("trainer = ", call)))["training.recompute"] == "full"
    call = f"if args.checkpoints:\n    {call}"
    assert settings(read(FULL, ("trainer = ", call)))["training.recompute"] == "none"


def test_a_value_under_a_condition_that_is_not_known_is_an_error() -> None:
    """What such a condition sets is neither taken nor left out."""
    found = read(
        FULL,
        ("trainer = ", "size = 2\nif ready():\n    size = 4\ntrainer = "),
        ("args.batch_size", "size"),
    )
    (problem,) = found.problems
    assert problem.message.startswith("`per_device_train_batch_size`")
    assert problem.help == "write its value in place of it"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trainer = ", f"{EACH}one.requires_grad = False\ntrainer = ", GRAD),
        ("trainer = ", f"{EACH}one.requires_grad_(False)\ntrainer = ", GRAD),
        ("trainer = ", "freeze(model)\ntrainer = ", "`freeze` may change what is trained"),
        ("model = AutoModelForCausalLM.from_pretrained", "model = load", "cannot be read"),
        (
            "AutoModelForCausalLM",
            "AutoModelForSequenceClassification",
            "not a causal language model",
        ),
        (
            "packing=True,\n",
            "optimizers=mine(),\n",
            "`optimizers` of `SFTTrainer` is not supported",
        ),
        ("packing=True,\n", "peft_config=IA3Config(),\n", "only LoraConfig is supported"),
        ("TrainingArguments(\n", "chosen(\n", "the arguments of `SFTTrainer` cannot be read"),
    ],
)
def test_what_is_not_followed_is_an_error(old: str, new: str, message: str) -> None:
    assert message in the_problem(FULL, (old, new))


GIVEN = "kw = {'max_length': 2048, 'bf16': True}\n    "


@pytest.mark.parametrize(
    ("change", "sequence"),
    [
        ("kw.update(max_length=8192)", 8192),
        ("kw.setdefault('max_length', 4096)", 2048),
        ("del kw['max_length']", 1024),
        ("kw.update(json.load(file))", None),
        ("kw = {**kw, **json.load(file)}", None),
        ("kw |= json.load(file)", None),
        ("kw[name()] = 8192", None),
        ("kw.pop(name())", None),
        ("kw.clear()", None),
    ],
)
def test_changes_of_unpacked_arguments(change: str, sequence: int | None) -> None:
    """A change that is not followed leaves no argument as it was."""
    found = read(
        QLORA,
        ("arguments = SFTConfig(", f"{GIVEN}{change}\n    arguments = SFTConfig(**kw,"),
        ("        max_length=2048,\n", ""),
        ("        bf16=True,\n", ""),
    )
    if sequence is None:
        assert "arguments unpacked with `*` or `**` are not supported" in [
            one.message for one in found.problems
        ]
    else:
        assert settings(found)["training.sequence"] == str(sequence)


@pytest.mark.parametrize("change", ["targets.extend(more())", "targets.pop()", "targets[0] = 'k'"])
def test_changes_of_a_list_that_are_not_followed_are_errors(change: str) -> None:
    targets = '["q_proj", "v_proj"]'
    made = f"targets = {targets}\n    {change}\n    adapters = LoraConfig("
    found = the_problem(QLORA, (targets, "targets"), ("adapters = LoraConfig(", made))
    assert found.startswith("`lora_target_modules`")


@pytest.mark.parametrize(
    "made",
    [
        "x = 1\n" + "x = (x, x)\n" * 60,
        "x = {}\n" + "x = {'a': x, 'b': x}\n" * 60,
        "x = {}\nx['a'] = x\n",
        "x = {}\ny = {'a': x}\nx['b'] = y\n",
        "x = LoraConfig()\n" + "x = LoraConfig(a=x, b=x)\n" * 60,
        "x = LoraConfig()\nx.a = x\n",
    ],
)
def test_values_that_share_parts_are_read_once(made: str) -> None:
    """Their parts, counted each time, are more than a computer can look at."""
    found = read(QLORA, ("RANK = 32\n", made), ("r=RANK", "r=x"))
    assert found.problems


@pytest.mark.parametrize("argument", ["use_dora=True", "layers_to_transform=[1]", 'bias="all"'])
def test_an_argument_of_adapters_that_is_not_modeled_is_an_error(argument: str) -> None:
    message = the_problem(QLORA, ("r=RANK", f"r=RANK, {argument}"))
    assert argument.partition("=")[0] in message


EARLY = """    if not torch.cuda.is_available():
        print("no device")
        return
    try:
        data = load_dataset("d")
    except OSError:
        return
    model = """


def test_a_function_that_may_return_early_is_read_to_its_end() -> None:
    """A job that trains did not return, and no exception ended it."""
    assert settings(read(QLORA, ("    model = ", EARLY))) == settings(read(QLORA))


def test_what_follows_an_early_return_is_not_certain() -> None:
    """What a function sets behind a return under a condition is neither taken nor left out."""
    tuned = """def tune(one):
    if ready():
        return
    one.gradient_accumulation_steps = 16


def main():
"""
    found = read(
        QLORA, ("def main():\n", tuned), ("    trainer = ", "    tune(arguments)\n    trainer = ")
    )
    (problem,) = found.problems
    assert problem.message.startswith("`gradient_accumulation_steps`")


def test_a_value_set_after_the_trainer_is_made_is_an_error() -> None:
    late = "    arguments.per_device_train_batch_size = 8\n    trainer.train()"
    message = the_problem(QLORA, ("    trainer.train()", late))
    assert message == "`per_device_train_batch_size` is set after the trainer is created"


def test_a_script_of_two_trainers_is_an_error() -> None:
    twice = ("trainer.train()", "SFTTrainer(model=model, args=args)")
    message = "the script creates 2 trainers objects of `SFTTrainer` that can be read; exactly one is expected"
    assert the_problem(FULL, twice) == message


def test_a_script_is_read_from_the_command_line(run_command: Run) -> None:
    hardware = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "train.py", *hardware, files={"train.py": QLORA})
    assert "step time" in done.out, done.err
    assert "15,335,424" in done.out


PLAIN = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=2)
options = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=options.batch_size,
    gradient_accumulation_steps=4, deepspeed="zero.json", bf16=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
trainer.train()
"""
ZERO = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'


def test_a_program_with_the_trainer_of_transformers() -> None:
    """Its data have the length of a sequence, and its gradients are not checkpointed."""
    found = importer_of("trl").read(ImportFile("train.py", PLAIN, neighbor={"zero.json": ZERO}.get))
    values = settings(found)
    assert values["training.micro_batch"] == "2"
    assert values["training.recompute"] == "none"
    assert values["layout.zero"] == "2"
    assert "training.sequence" not in values


def test_a_script_starts_a_program_beside_it(run_command: Run) -> None:
    files = {"run.py": PLAIN, "zero.json": ZERO}
    script = "pip install trl\ntorchrun --nproc_per_node 8 run.py{}\npython eval.py --tasks x\n"
    done = run_command("import", "go.sh", files={"go.sh": script.format(""), **files})
    assert done.code == 0
    assert "micro_batch   = 2" in done.out
    assert "devices = 8  # --nproc_per_node" in done.out
    more = script.format(" --batch-size 5")
    done = run_command("import", "go.sh", files={"go.sh": more, **files})
    assert "micro_batch   = 5" in done.out
    other = script.format(" --size 5")
    done = run_command("import", "go.sh", files={"go.sh": other, **files})
    assert done.code == 2
    assert "`run.py`: it declares no option `--size`, but the command sets it" in done.err


def test_an_error_of_a_program_stands_there(run_command: Run) -> None:
    files = {"run.py": PLAIN.replace("Trainer(model", "Trainer(optimizers=x, model")}
    done = run_command("check", "go.sh", files={"go.sh": "torchrun run.py\n", **files})
    assert "`optimizers` of `Trainer` is not supported" in done.out
    assert "run.py:12" in done.out


def test_a_notebook_is_read_as_one_process(run_command: Run) -> None:
    install = ["%%capture\n", "!pip install trl\n", "import os"]
    cells = [
        {"cell_type": "markdown", "source": ["SFTTrainer(args)"]},
        {"cell_type": "code", "source": install},
        {"cell_type": "code", "source": ["%%bash\n", "if true; then ls; fi"]},
        *({"cell_type": "code", "source": part} for part in QLORA.split("\n\n\n", 1)),
    ]
    text = json.dumps({"cells": cells, "nbformat": 4}, indent=1)
    found = importer_of("trl").read(ImportFile("tune.ipynb", text))
    assert settings(found)["training.sequence"] == "2048"
    assert settings(found)["cluster.devices"] == "1"
    wrong = text.replace("max_length=2048", "max_length=lookup(7)")
    done = run_command("check", "tune.ipynb", files={"tune.ipynb": wrong})
    assert "`lookup` comes from another file" in done.out
    line = next(number for number, one in enumerate(wrong.splitlines(), 1) if "lookup" in one)
    assert f"tune.ipynb:{line}:" in done.out


UNSLOTH = """from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel, is_bfloat16_supported

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen3-8B-unsloth-bnb-4bit", max_seq_length=2048, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(
    model, r=16, lora_alpha=16, lora_dropout=0, use_gradient_checkpointing="unsloth",
    target_modules=["q_proj", "v_proj"], random_state=7,
)
trainer = SFTTrainer(
    model=model, tokenizer=tokenizer, packing=True,
    args=SFTConfig(
        per_device_train_batch_size=2, gradient_accumulation_steps=4,
        fp16=not is_bfloat16_supported(), bf16=is_bfloat16_supported(),
    ),
)
trainer.train()
model.save_pretrained_merged("out", tokenizer)
"""


def test_adapters_of_unsloth() -> None:
    """Its models are quantized twice, and its checkpoints are kept on the host."""
    found = read(UNSLOTH)
    expected = {
        "training.model": "qwen3_8b",
        "training.sequence": "2048",
        "training.recompute": "full",
        "training.micro_batch": "2",
        "adapters.rank": "16",
        "adapters.query": "on",
        "adapters.base": "nf4_double",
        "adapters.dropout": "off",
        "offload.activations": "100 %",
        "cluster.devices": "1",
    }
    values = settings(found)
    assert expected.items() <= values.items()
    assert values.get("adapters.up", "off") == "off"
    assert "quantizations.nf4_double" in uses(found)
    assert [one.name for one in found.missing] == ["FastLanguageModel()"]
    plain = settings(read(UNSLOTH, ('checkpointing="unsloth"', "checkpointing=True")))
    assert "offload.activations" not in plain
    kept = read(UNSLOTH, ("load_in_4bit=True", "load_in_4bit=False"))
    assert "adapters.base" not in settings(kept)


def test_lengths_of_unsloth_are_one_number() -> None:
    """Its trainer cuts to the shorter of both, and says so while it runs."""
    args = "per_device_train_batch_size=2,"
    same = read(UNSLOTH, (args, f"{args} max_length=2048,"))
    assert settings(same)["training.sequence"] == "2048"
    assert "max_seq_length" not in names(same.unknown)
    longer = read(UNSLOTH, (args, f"{args} max_length=4096,"))
    assert all("set `training.sequence` to different values" in p.message for p in longer.problems)
    assert longer.problems


def test_kernels_of_unsloth_are_a_limit_of_the_prediction(run_command: Run) -> None:
    options = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("check", "tune.py", *options, files={"tune.py": UNSLOTH})
    said = " ".join(done.out.split())
    assert "`FastLanguageModel()`: parcost has no times of unsloth's own kernels" in said
    assert "the script needs no change" in said


@pytest.mark.parametrize(
    "value", ["{}", "dict()", "[]", '""', "True", 'float("inf")', "-1", "1e30"]
)
def test_a_length_that_is_no_number_is_an_error(value: str) -> None:
    found = read(QLORA, ("max_length=2048", f"max_length={value}"))
    assert [one.message.partition(",")[0] for one in found.problems] == [
        "`max_length`: a whole number "
        + (
            "below 10^15 is expected"
            if value in ("1e30", 'float("inf")')
            else "of at least 1 is expected"
        )
    ]


def test_a_length_without_a_limit_is_a_question() -> None:
    found = read(QLORA, ("max_length=2048", "max_length=None"))
    asked = {one.attribute: one.reason for one in found.questions}
    assert asked["training.sequence"] == "`max_length` is null: sequences of the data are not cut"


@pytest.mark.parametrize("joins", [True, False])
def test_a_notebook_of_nbformat_3_is_read(joins: bool) -> None:
    lines = QLORA.splitlines(keepends=True)
    sources = [lines[:9], lines[9:]]
    cells = [
        {"cell_type": "code", "input": "".join(one) if joins else one, "outputs": []}
        for one in sources
    ]
    cells.insert(0, {"cell_type": "markdown", "source": "# tuning"})
    notebook = {"nbformat": 3, "worksheets": [{"cells": cells}]}
    importer = importer_of("trl")
    assert importer.recognizes("tune.ipynb", json.dumps(notebook))
    found = importer.read(ImportFile("tune.ipynb", json.dumps(notebook)))
    assert settings(found)["training.sequence"] == "2048"


@pytest.mark.parametrize(
    "text", ["{}", "[]", "x", '{"nbformat": 3, "worksheets": [{"cells": []}]}']
)
def test_a_notebook_without_code_is_named(run_command: Run, text: str) -> None:
    done = run_command("import", "tune.ipynb", files={"tune.ipynb": text})
    assert done.code == 2
    assert "`tune.ipynb` is not a notebook with code" in done.err


ENGINE = PLAIN.replace('"zero.json"', "options.deepspeed")
PARSER = 'parser.add_argument("--deepspeed"{})\n'


@pytest.mark.parametrize(
    ("old", "new", "command", "message", "help"),
    [
        (
            "options = parser.parse_args()",
            "from settings import options",
            "",
            "`deepspeed`: `options.deepspeed` comes from another file, which parcost does not read",
            "write its value in place of it",
        ),
        (
            "options = parser.parse_args()",
            f"{PARSER.format('')}options = parser.parse_args()",
            "--deepspeed $CONFIG",
            "`deepspeed`: `CONFIG` is not set in the file",
            "give the variable: --set-env CONFIG=VALUE",
        ),
    ],
)
def test_the_reason_and_the_answer_are_those_of_the_option_of_deepspeed(
    old: str, new: str, command: str, message: str, help: str
) -> None:
    files = {"run.py": ENGINE.replace(old, new)}
    script = f"accelerate launch --num_processes 8 run.py {command}\n"
    found = importer_of("trl").read(ImportFile("go.sh", script, neighbor=files.get))
    assert (message, help) in [(one.message, one.help) for one in found.problems]


def test_a_switch_of_deepspeed_that_is_off_starts_no_engine() -> None:
    off = PARSER.format(', action="store_true"')
    text = ENGINE.replace("options = parser.parse_args()", f"{off}options = parser.parse_args()")
    script = "accelerate launch --num_processes 8 run.py\n"
    found, plain = (
        importer_of("trl").read(ImportFile("go.sh", script, neighbor={"run.py": one}.get))
        for one in (text, PLAIN.replace('deepspeed="zero.json", ', ""))
    )
    assert settings(found) == settings(plain)
    assert uses(found) == uses(plain)
