"""The YAML of GPT-NeoX."""

from __future__ import annotations

import re

import pytest

from parcost_formats.tools.gpt_neox import GptNeoX

from ..rows import try_each
from .megatron_files import Run
from .translations import names, problems, settings, uses

JOB = """\
{
  "vocab-file": "./20B_tokenizer.json",
  "pipe-parallel-size": 2, "model_parallel_size": 2,
  "num-layers": 8, "hidden-size": 768, "num-attention-heads": 12, "seq-length": 1024,
  "pos-emb": "rotary", "no-weight-tying": true, "gpt_j_residual": true,
  "optimizer": {"type": "Adam", "params": {"lr": 1.0e-4, "betas": [0.9, 0.95]}},
  "zero_optimization": {"stage": 1, "overlap_comm": True, "reduce_bucket_size": 500000000},
  "train_micro_batch_size_per_gpu": 4, "gas": 3,
  "checkpoint-activations": true, "hidden-dropout": 0,
  "fp16": {"enabled": true, "type": "bfloat16"},
  "attention_config": [[["flash"], 8]],
}
"""


def test_a_job_has_the_keys_of_deepspeed_and_its_own() -> None:
    found = GptNeoX().translate("run.yml", JOB)
    got = settings(found)
    assert set(uses(found)) == {"frameworks.megatron_deepspeed", "precisions.bf16_zero"}
    wanted = {
        "layout.pp": "2",
        "layout.tp": "2",
        "layout.zero": "1",
        "model.layers": "8",
        "model.ffn": "3072",
        "model.tied": "off",
        "model.parallel_residual": "on",
        "model.vocabulary": "50_277",
        "training.micro_batch": "4",
        "training.micro_batches": "3",
        "training.recompute": "full",
        "training.dropout": "off",
        "training.flash_attention": "on",
    }
    assert {name: got[name] for name in wanted} == wanted
    assert "overlap.gradients" not in got  # its pipeline reduces behind backward


@try_each(
    "old, new, name, value",
    [
        ('"gas"', '"mlp_type": "llama", "gas"', "model.ffn", "2048"),
        ('"gas"', '"mlp_type": "llama", "intermediate_size": 3584, "gas"', "model.ffn", "3584"),
        # Of StableLM's branch: 8/3 of 768, up to a multiple of 500.
        ('"gas"', '"mlp_type": "gated", "mlp_multiple_of": 500, "gas"', "model.ffn", "2500"),
        ('"gas"', '"mlp_type": "gated", "activation": "silu", "gas"', "model.gated", "on"),
        ('"gas"', '"activation": "swiglu", "gas"', "model.ffn", "1024"),  # 2/3 of 3072, halved
        ('"gas"', '"intermediate_size": 4000, "gas"', "model.ffn", "4000"),
        ('"flash"', '"global"', "training.flash_attention", "off"),
        ('"pipe-parallel-size": 2', '"pipe-parallel-size": 0', "layout.pp", "1"),
        ('"gas"', '"norm": "rmsnorm", "gas"', "model.norm", "rms"),
        ('"gas"', '"norm": "te_rmsnorm", "gas"', "model.norm", "rms"),
        ('"gas"', '"norm": "non_parametric_layernorm", "gas"', "model.norm_weights", "0"),
        # 5000 x 2/3 = 3333, halved 1666; 1666 / 256 = 6.5
        ('"gas"', '"intermediate_size": 5000, "activation": "geglu", "gas"', "model.ffn", "1666"),
        (
            '"gas"',
            '"intermediate_size": 5000, "activation": "geglu", "mlp_multiple_of": 256, "gas"',
            "model.ffn",
            "1792",
        ),
        ('"gas"', '"mlp_multiple_of": 2048, "gas"', "model.ffn", "4096"),
        ('"gas"', '"use_qk_layernorm": true, "gas"', "model.qk_norm", "on"),
        ('"gas"', '"sliding_window_width": 256, "gas"', "model.window", "256"),
        (
            '"attention_config": [[["flash"], 8]]',
            '"te_mha": true',
            "training.flash_attention",
            "on",
        ),
    ],
)
def test_keys_set_attributes(old: str, new: str, name: str, value: str) -> None:
    assert old in JOB
    assert settings(GptNeoX().translate("run.yml", JOB.replace(old, new)))[name] == value


@try_each(
    "key, message",
    [
        ('"num_unique_layers": 2', "layers that share their weights"),
        ('"adapter": {"enabled": true}', "adapters of this tool are not supported"),
        ('"precision": "fp32"', "precision is fp32, but `bf16` is enabled"),
        ('"moe_num_experts": 8', "experts that are split over model-parallel ranks"),
        ('"num_experts": 8', "DeepSpeed experts in GPT-NeoX"),
    ],
)
def test_what_the_language_lacks_is_an_error(key: str, message: str) -> None:
    text = JOB.replace('"gas"', f'{key}, "gas"')
    assert any(message in found for found, _ in problems(GptNeoX(), text, "run.yml"))


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ('"use_bnb_optimizer": true', "precision"),
        ('"te_mha": true, "te_fp8_format": "hybrid"', "precision"),
    ],
)
def test_narrow_products_and_states_ask_for_the_precision(key: str, attribute: str) -> None:
    text = JOB.replace('"gas"', f'{key}, "gas"')
    asked = [one.attribute for one in GptNeoX().translate("run.yml", text).questions]
    assert asked == [attribute]


def test_wide_weight_gradients_are_part_of_the_answer(run_command: Run) -> None:
    """`te_fp8_wgrad` is on by default."""
    more = '"te_mha": true, "te_fp8_format": "hybrid", "te_fp8_wgrad": false, "num_gpus": 4, "gas"'
    files = {"run.yml": JOB.replace('"gas"', more)}
    asked = run_command("import", "run.yml", files=files)
    answer = "--use catalog.precisions.fp8_delayed --set precision.wide_weight_gradients=on"
    assert f"choose one: {answer} | --use catalog.precisions.bf16" in asked.err
    done = run_command("import", "run.yml", *answer.split(), files=files)
    assert done.code == 0
    assert "wide_weight_gradients = on" in done.out


def test_a_window_of_scores_in_memory_saves_nothing() -> None:
    text = JOB.replace('"gas"', '"sliding_window_width": 256, "gas"').replace("flash", "global")
    found = GptNeoX().translate("run.yml", text)
    assert "model.window" not in settings(found)
    assert "sliding_window_width" in names(found.missing)


def test_a_part_of_a_run_says_how_to_evaluate_the_whole() -> None:
    part = """# data and launcher
    {
      "vocab-file": "a/20B_tokenizer.json", "data-path": "a/b",
      "launcher": "slurm", "train-iters": 100,
      "tokenizer-type": "HFTokenizer",
    }"""
    assert GptNeoX().recognizes("local_setup.yml", part)
    assert not GptNeoX().recognizes("local_setup.json", part)
    assert not GptNeoX().recognizes("a.yml", "vocab-file: a\ntokenizer-type: b\n")
    ((message, _),) = problems(GptNeoX(), part, "local_setup.yml")
    assert "is only a part of the configuration of a GPT-NeoX run" in message


def test_an_unknown_tokenizer_asks_for_the_vocabulary() -> None:
    found = GptNeoX().translate("run.yml", JOB.replace("20B_tokenizer", "mine"))
    assert [one.attribute for one in found.questions] == ["model.vocabulary"]


def test_the_usual_tokenizer_has_the_vocabulary() -> None:
    text = re.sub(r' *"(?:vocab-file|tokenizer-type)": "[^"]*",\n', "", JOB)
    found = GptNeoX().translate("run.yml", text)
    assert settings(found)["model.vocabulary"] == "50_257"
    assert not found.questions


def test_arguments_of_megatron_in_yaml_are_no_file_of_gpt_neox() -> None:
    text = "MODEL_ARGS:\n  --num-layers: 2\n  --tensor-model-parallel-size: 2\n"
    assert GptNeoX().recognizes("run.yml", JOB)
    assert not GptNeoX().recognizes("model_config.yaml", text)


def test_keys_of_the_third_stage_of_deepspeed_are_known() -> None:
    """`cpu_offload_params` is the name of early releases of DeepSpeed."""
    more = '"stage": 3, "cpu_offload_params": true, "stage3_max_live_parameters": 6000000'
    text = JOB.replace('"pipe-parallel-size": 2', '"pipe-parallel-size": 0')
    found = GptNeoX().translate("run.yml", text.replace('"stage": 1', more))
    assert settings(found)["layout.zero"] == "3"
    assert "offload.parameters" in settings(found)
    assert not found.questions
    assert not found.unknown


SETUP = """\
{
  "data-path": "a/b", "vocab-file": "a/20B_tokenizer.json", "tokenizer-type": "HFTokenizer",
  "num_gpus": 8, "num_nodes": 2,
}
"""
MODEL = JOB.replace('  "vocab-file": "./20B_tokenizer.json",\n', "")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("model.yml", "setup.yml"), ("setup.yml", "model.yml")])
def test_files_of_one_run_are_one_study(run_command: Run, order: tuple[str, str]) -> None:
    files = {"model.yml": MODEL, "setup.yml": SETUP}
    done = run_command("import", *order, files=files)
    assert done.code == 0, done.err
    for line in ("vocabulary        = 50_277", "devices = 2 * 8", "layers            = 8"):
        assert line in done.out
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    whole = JOB.replace('"gas": 3', '"gas": 3, "num_gpus": 8, "num_nodes": 2')
    figures = [
        run_command("eval", *names, *machine, "--figures=step_time,memory", files=texts).out
        for names, texts in ((order, files), (("run.yml",), {"run.yml": whole}))
    ]
    first, second = (re.findall(r"(?:step time|memory) +([0-9.]+)", one) for one in figures)
    assert first == second
    assert len(first) == 2


def test_a_key_of_two_files_of_a_run_is_an_error(run_command: Run) -> None:
    """GPT-NeoX does not start with keys that two of its files have."""
    files = {"model.yml": MODEL, "setup.yml": SETUP.replace("{", '{"gas": 4,', 1)}
    done = run_command("import", "model.yml", "setup.yml", files=files)
    assert done.code == 2
    assert "`gradient_accumulation_steps` is also in `setup.yml`" in done.err


def test_degrees_may_be_in_another_file_than_the_model(run_command: Run) -> None:
    degrees = '  "pipe-parallel-size": 2, "model_parallel_size": 2,\n'
    files = {
        "model.yml": JOB.replace(degrees, '  "train-iters": 9,\n'),
        "degrees.yml": f"{{\n{degrees}}}\n",
    }
    done = run_command("import", "model.yml", "degrees.yml", files=files)
    assert done.code == 0, done.err
    assert "tp                  = 2" in done.out
    assert "pp                  = 2" in done.out


def test_experts_of_one_rank_are_read() -> None:
    """Layers of experts have no biases; dense layers beside them do."""
    more = '"moe_num_experts": 8, "moe_top_k": 2, "gas"'
    text = JOB.replace('"model_parallel_size": 2', '"model_parallel_size": 1').replace(
        '"gas"', more
    )
    got = settings(GptNeoX().translate("run.yml", text))
    expected = {
        "model.experts": "8",
        "model.top_k": "2",
        "model.mlp_biases": "off",
        "kernels.grouped_experts": "on",
    }
    assert expected.items() <= got.items()
    assert "model.moe_every" not in got
    every = text.replace('"moe_top_k": 2', '"moe_expert_interval": 4')
    got = settings(GptNeoX().translate("run.yml", every))
    assert (got["model.moe_every"], got["model.top_k"]) == ("4", "1")
    assert got["model.mlp_biases"] == "on"
    ((message, _),) = problems(GptNeoX(), every.replace('interval": 4', 'interval": 3'), "run.yml")
    assert "the 8 layers are not a multiple of 3" in message


LAUNCH = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=mi250:8
DIR=$(get_root)
CMD="$DIR/deepy.py $DIR/train.py {}"
$CMD
"""


@pytest.mark.parametrize(
    "words",
    ["-d conf model.yml setup", "$DIR/conf/model.yml conf/setup.yml", "conf/model conf/setup.yml"],
)
def test_a_launch_script_is_read_with_its_configurations(run_command: Run, words: str) -> None:
    """The devices are those of the scheduler, if no file states them."""
    setup = SETUP.replace('"num_gpus": 8, "num_nodes": 2,', "")
    files = {
        "go.sh": LAUNCH.format(words).replace("CMD=", "set -x\nCMD="),
        "conf/setup.yml": setup,
        ("model.yml" if "$DIR/conf" in words else "conf/model.yml"): MODEL,
    }
    done = run_command("import", "go.sh", files=files)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    for line in ("vocabulary = 50_277", "devices = 32", "layers = 8", "tp = 2"):
        assert line in text
    files["conf/setup.yml"] = SETUP
    assert "devices = 2 * 8" in run_command("import", "go.sh", files=files).out
    del files["conf/setup.yml"]
    done = run_command("import", "go.sh", files={"go.sh": files["go.sh"].replace("setup", "s2")})
    assert "is not in the folder of the script" in done.err


def test_a_key_of_two_files_of_a_launch_script_is_an_error(run_command: Run) -> None:
    files = {"go.sh": LAUNCH.format("a.yml b.yml"), "a.yml": MODEL}
    files["b.yml"] = SETUP.replace("{", '{"gas": 4,', 1)
    done = run_command("import", "go.sh", files=files)
    assert "`gradient_accumulation_steps` is in `a.yml` and in `b.yml`" in done.err


def test_a_batch_whose_parts_are_stated_has_the_devices() -> None:
    """192 = 4 x 3 x 16 replicas, of 2 x 2 devices each."""
    text = JOB.replace('"gas": 3', '"gas": 3, "train_batch_size": 192')
    assert settings(GptNeoX().translate("run.yml", text))["cluster.devices"] == "64"
    assert "cluster.devices" not in settings(GptNeoX().translate("run.yml", JOB))


@pytest.mark.parametrize(
    ("option", "place"),
    [("--save out/a", ""), ("--lr ${RATES[$I]}", ""), ("--train_batch_size 64", "64")],
)
def test_options_of_a_fork_are_not_configurations(
    run_command: Run, option: str, place: str
) -> None:
    """The word behind an option is its value; one that decides anything is an error there."""
    files = {"go.sh": LAUNCH.format(f"conf/model.yml conf/setup.yml {option}")}
    files |= {"conf/model.yml": MODEL, "conf/setup.yml": SETUP}
    done = run_command("import", "go.sh", files=files)
    assert bool(place) is (done.code != 0), done.err
    if place:
        assert "`--train_batch_size` is an option of a fork, which is not supported" in done.err
        assert "write `train_batch_size` into a file of the run" in done.err


def test_the_question_of_the_vocabulary_is_at_the_tokenizer() -> None:
    text = JOB.replace("./20B_tokenizer.json", "./own.model")
    (question,) = GptNeoX().translate("run.yml", text).questions
    assert question.attribute == "model.vocabulary"
    assert "own.model" in text[question.start : question.end]
