"""Configurations of tools without a reader: each is rejected by the name of its tool."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from parcost.plugins.discovery import load
from parcost_formats.tools.finetuning import TuningTool
from parcost_formats.tools.nemo import NeMo
from parcost_formats.tools.unread_tools import UnreadTools

from ..rows import mark_most, try_each

FILES = {
    "ArcticTraining": (
        "type: sft\nmicro_batch_size: 1\ndeepspeed:\n  zero_optimization: {stage: 3}\n"
        "model:\n  name_or_path: a/b\ndata:\n  sources: [c]\n"
    ),
    "ROLL": "a:\n  training_args: {b: 1}\n  strategy_args:\n    strategy_name: megatron_train\n",
    "PaddleNLP": '{"model_name_or_path": "m", "tensor_parallel_degree": 2, "sharding": "stage1"}',
    "picotron": '{"distributed": {"pp_engine": "1f1b"}, "training": {"seq_length": 128}}',
    "the FSDP example of awsome-distributed-training": (
        "spec:\n- --max_context_width=4096\n- --hidden_width=8192\n"
    ),
    "Fast-LLM": "model:\n  base_model:\n    vocab_size: 9\n  distributed:\n    training_dtype: bf16\n",
    "NeuronX Distributed Training": (
        "model_source: hf\ntrainer:\n  devices: 32\ndistributed_strategy:\n"
        "  tensor_model_parallel_size: 8\nmodel:\n  num_layers: 4\n"
    ),
    "Amazon Nova": 'run:\n  model_type: "amazon.nova-x"\ntraining_config:\n  max_length: 8\n',
    "the trainer of Composer before 0.11 (hparams)": (
        "train_dataset:\n  lm: {split: train}\nmodel:\n  gpt2:\n    use_pretrained: false\n"
        "total_batch_size: 512\ngrad_accum: 32\n"
    ),
    "the model parallelism library of SageMaker (SMP)": (
        "trainer: {devices: 8}\nuse_smp_model: true\nmodel:\n  shard_degree: 8\n  hidden_size: 64\n"
    ),
    "Oumi": (
        "model:\n  model_name: a/b\n  model_max_length: 9\ntraining:\n  trainer_type: TRL_SFT\n"
    ),
    "VeOmni": (
        "model:\n  model_path: a\ndata:\n  train_size: 9\ntrain:\n"
        "  data_parallel_mode: fsdp2\n  micro_batch_size: 1\n"
    ),
    "dolomite-engine": "model_args:\n  model_name: m\ndistributed_args:\n  stage: 3\n",
}


SCRIPTS = {
    "InternEvo": ("run.py", "parallel = dict(\n    zero1=dict(size=8),\n)\ngrad_scaler = dict()\n"),
    "XTuner": ("run.py", "from mmengine.hooks import X\naccumulative_counts = 4\n"),
    "XTuner (dumped)": ("run.py", "model = dict(\n    type='xtuner.model.SupervisedFinetune')\n"),
    "ColossalAI": ("run.py", "from colossalai.amp import AMP_TYPE\nparallel = dict(pipeline=2)\n"),
    "Megatron-LLM of epfLLM": (
        "run.sh",
        (
            "torchrun --nproc_per_node 8 finetune.py --tensor_model_parallel_size 4 --use_rms_norm "
            "--model_name llama2 --bf16 --global_batch_size 64 --micro_batch_size 2\n"
        ),
    ),
    "EasyContext": (
        "run.sh",
        "accelerate launch train.py --batch-size 1 --seq-length 64000 --parallel_mode ulysses\n",
    ),
    "unsloth (Python)": (
        "run.ipynb",
        '{"cells": [{"source": ["from trl import SFTTrainer\\n", "FastModel.from_pretrained()"]}]}',
    ),
    "EasyDeL (Python)": (
        "run.py",
        "import transformers\nimport easydel as ed\nargs = ed.TrainingArguments(total_batch_size=24)\n",
    ),
    "the command line of NeMo 2": ("run.sh", "nemo llm train model=llama3_8b -y\n"),
    "EasyLM": ("run.sh", "python -m EasyLM.models.llama.llama_train --dtype='fp32'\n"),
    "llama-recipes": ("run.sbatch", "torchrun finetuning.py --enable_fsdp --pure_bf16\n"),
    "OLMo-core in open-instruct": (
        "run.sh",
        "torchrun olmo_core_finetune.py --model_name_or_path m --per_device_train_batch_size 1\n",
    ),
    "prime-rl": ("sft.toml", 'max_steps = 9\n[model]\nname = "a/b"\n[data]\nseq_len = 64\n'),
    "llm.c": ("run.sh", "mpirun -np 8 ./train_gpt2cu -b 4 -t 64 -d 2048 -z 1\n"),
    "fairseq": ("run.sh", "srun fairseq-train data --arch transformer_lm --fp16\n"),
    "metaseq": ("run.sh", "python -m metaseq.launcher.opt_baselines -n 2 -g 8\n"),
    "open_lm": ("run.sbatch", "srun python -m open_lm.main --model m1b --batch-size 10 --fsdp\n"),
    "ms-swift 1": ("run.sh", "python llm_sft.py --sft_type full --batch_size 1\n"),
}


@try_each("tool", SCRIPTS)
def test_a_script_of_a_tool_without_a_reader_names_the_tool(tool: str) -> None:
    name, text = SCRIPTS[tool]
    assert UnreadTools().recognizes(name, text)
    assert not UnreadTools().recognizes("run.yaml", text)
    (problem,) = UnreadTools().translate(name, text).problems
    title = tool.removesuffix(" (dumped)")
    assert f"a configuration of {title}, which parcost does not import" in problem.message


@try_each("tool", FILES)
def test_a_file_of_a_tool_without_a_reader_names_the_tool(tool: str) -> None:
    text = FILES[tool]
    name = "run.json" if text.startswith("{") else "run.yaml"
    assert UnreadTools().recognizes(name, text)
    (problem,) = UnreadTools().translate(name, text).problems
    assert f"a configuration of {tool}, which parcost does not import" in problem.message
    assert "parcost eval config.json --use catalog.devices" in problem.help


def test_arguments_without_a_trainer_name_what_is_missing() -> None:
    """Jobs of `Trainer` in Python are read; this file has only a part of one."""
    text = (
        "from transformers import TrainingArguments, Trainer\nargs = TrainingArguments(bf16=True)\n"
    )
    assert UnreadTools().recognizes("run.py", text)
    (problem,) = UnreadTools().translate("run.py", text).problems
    assert "has arguments of Trainer or TRL (Python), but no trainer" in problem.message
    assert "name the file that makes the trainer" in problem.help


MANIFESTS = {
    "Kubernetes": "apiVersion: batch/v1\nkind: Job\nspec:\n  command: [torchrun, train.py]\n",
    "SkyPilot": "resources:\n  accelerators: H100:8\nrun: |\n  torchrun train.py\n",
    "Azure Machine Learning": "command: python train.py\ncompute: azureml:gpus\n",
    "Beaker": "version: v2\ntasks:\n- command: [torchrun, train.py]\n",
    "dstack": "type: task\ncommands:\n  - torchrun train.py\n",
}


@try_each("tool", MANIFESTS)
def test_a_file_that_starts_a_command_says_to_read_the_command(tool: str) -> None:
    assert UnreadTools().recognizes("run.yaml", MANIFESTS[tool])
    (problem,) = UnreadTools().translate("run.yaml", MANIFESTS[tool]).problems
    assert f"a configuration of {tool}, which parcost does not import" in problem.message
    assert "copy the command that it starts into a script" in problem.help


def test_a_script_of_llama_recipes_is_none_of_trainer() -> None:
    text = f"{SCRIPTS['llama-recipes'][1]} --gradient_accumulation_steps 8\n"
    assert not TuningTool("trl").recognizes("run.sbatch", text)


def test_a_file_of_paddlenlp_is_none_of_trainer() -> None:
    text = FILES["PaddleNLP"].replace("{", '{"per_device_train_batch_size": 1, ', 1)
    assert not TuningTool("trl").recognizes("run.json", text)
    assert not UnreadTools().recognizes("run.json", '{"model_name_or_path": "m"}')


@pytest.mark.parametrize(
    "text",
    [
        "colossalai run a.py --model_name_or_path m --per_device_train_batch_size 8\n",
        SCRIPTS["OLMo-core in open-instruct"][1],
    ],
)
def test_a_script_with_arguments_of_trainer_is_of_its_own_tool(text: str) -> None:
    assert UnreadTools().recognizes("run.sh", text)
    assert not TuningTool("trl").recognizes("run.sh", text)


def test_a_file_of_neuronx_is_none_of_nemo() -> None:
    assert not NeMo().recognizes("run.yaml", FILES["NeuronX Distributed Training"])


def test_a_script_that_names_its_experiment_in_a_variable_leads_to_it(run_command: Any) -> None:
    script = "export NNODES=2\nexport EXP=${EXP:-/code/conf/llama.yaml}\nexport DATA=/data\n"
    done = run_command("eval", "config.sh", files={"config.sh": script})
    assert done.code == 2
    assert "starts another file, which describes the job: `/code/conf/llama.yaml`" in done.err


def test_flags_of_epfllm_are_rejected_with_their_names_in_megatron(run_command: Any) -> None:
    """The script reaches this reader, and no other tool reads it."""
    name, text = SCRIPTS["Megatron-LLM of epfLLM"]
    done = run_command("eval", name, files={name: text})
    assert "a configuration of Megatron-LLM of epfLLM" in done.err
    assert "--normalization RMSNorm for --use_rms_norm" in done.err


@pytest.mark.parametrize(
    ("name", "line"),
    mark_most(
        [
            ("job.yaml", "  tensor_parallel_degree: 2\n"),
            ("job.sh", "CONFIG_FILE=a.toml\n"),
            (
                "job.py",
                "from transformers import Trainer\nTrainer(\nFastLanguageModel.from_pretrained\n",
            ),
            ("job.sh", "import swift "),
        ],
        4,
    ),
)
def test_the_time_of_a_recognition_is_linear(name: str, line: str) -> None:
    """Patterns with two open repetitions took minutes for five times as much."""
    text = line * (80_000 // len(line))
    start = perf_counter()
    for one in load().offers("importers").values():
        assert isinstance(one[1].recognizes(name, text), bool)
    assert perf_counter() - start < 3
