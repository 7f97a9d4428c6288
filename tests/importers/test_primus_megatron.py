"""Jobs of Primus that Megatron-LM trains."""

from __future__ import annotations

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.megatron import Megatron

from ..rows import mark_most, try_each
from .megatron_files import (
    PRIMUS,
    Run,
    settings,
    small,
    values,
)

MODELS = {
    "small.yaml": "extends:\n  - base.yaml\nnum_layers: 4\nhidden_size: 128\nvocab_size: 512\n"
    "num_attention_heads: 4\nffn_hidden_size: 256\n",
    "models/base.yaml": "extends:\n  - ../../modules/megatron/pre_trainer.yaml\n"
    "normalization: RMSNorm\nhidden_dropout: 0.0\nattention_dropout: 0.0\n"
    "position_embedding_type: rope\ngroup_query_attention: true\nnum_query_groups: 2\n",
}


# 4 B of fp32 weights, 2 B of each moment.
NARROW = "exp_avg_dtype: bf16\n      exp_avg_sq_dtype: bf16"


def primus(text: str = PRIMUS, models: dict[str, str] | None = None) -> Translation:
    files = MODELS if models is None else models
    return Megatron().read(ImportFile("job.yaml", text, neighbor=files.get))


def test_a_job_of_primus_extends_files_of_models() -> None:
    found = primus()
    expected = {
        "model.layers": "4",
        "model.hidden": "128",
        "model.kv_heads": "2",
        "model.norm": "rms",
        "model.gated": "on",  # Primus fd1eeab, models/megatron/language_model.yaml
        "model.biases": "off",
        "layout.tp": "2",
        "layout.zero": "1",  # Primus fd1eeab, modules/megatron/pre_trainer.yaml
        "training.precision": "bf16",
        "training.recompute": "none",  # block, and none of the layers
        "training.dropout": "off",
        "training.global_batch": "128 sequences",
    }
    assert expected.items() <= values(found).items()
    assert settings(found)["model.layers"].assumption == "Primus fd1eeab: small.yaml"
    assert not found.questions


@pytest.mark.parametrize("key", ["includes", "bases"])
def test_older_files_of_primus_extend_others_by_another_key(key: str) -> None:
    files = {name: text.replace("extends", key, 1) for name, text in MODELS.items()}
    assert values(primus(models=files)) == values(primus())


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # Primus: mixtral_base.yaml, qwen2.5_base.yaml, deepseek_v3_base.yaml
        ("mixtral_8x7B_v0.1", {"routing.dispatcher": "alltoall", "layout.ep": "1"}),
        ("qwen3_30B_A3B", {"routing.dispatcher": "alltoall", "framework.permutation": "fused"}),
        ("deepseek_v3", {"routing.hide": "shared_experts", "layout.ep": "8"}),
    ],
)
def test_a_model_of_primus_brings_the_exchange_of_its_base(
    name: str, expected: dict[str, str]
) -> None:
    text = PRIMUS.replace("small.yaml", f"{name}.yaml").replace("method: block", "method: uniform")
    found = values(primus(text.replace("num_layers: 0", "num_layers: 1"), {}))
    assert expected.items() <= found.items()
    assert found["kernels.grouped_experts"] == "on"
    stated = text.replace(
        "micro_batch", "moe_token_dispatcher_type: allgather\n      micro_batch", 1
    )
    assert (
        values(primus(stated.replace("num_layers: 0", "num_layers: 1"), {}))["routing.dispatcher"]
        == "allgather"
    )


@pytest.mark.parametrize("name", ["gpt_oss_20B", "kimi_k2"])
def test_a_model_of_primus_that_differs_from_the_published_raises_a_question(name: str) -> None:
    found = primus(PRIMUS.replace("small.yaml", f"{name}.yaml"), {})
    assert "model" in [one.attribute for one in found.questions]


def test_a_switch_of_primus_may_be_a_number() -> None:
    on = primus(f"{PRIMUS}      sequence_parallel: 1\n")
    assert values(on)["layout.sequence_parallel"] == "on"
    off = primus(f"{PRIMUS}      sequence_parallel: 0\n")
    assert values(off)["layout.sequence_parallel"] == "off"


def test_variables_of_primus_have_their_defaults_or_values() -> None:
    text = PRIMUS.replace("parallel_size: 2", "parallel_size: ${TP:2}").replace(
        "model: small", "model: ${SIZE:small}"
    )
    found = primus(text)
    assert values(found)["layout.tp"] == "2"
    assert values(found)["model.layers"] == "4"
    why = "`TP` is not set in the file: its default there"
    assert settings(found)["layout.tp"].assumption == why
    options = ImportOptions(environment=(("TP", "4"),))
    found = Megatron().read(ImportFile("job.yaml", text, options, MODELS.get))
    assert values(found)["layout.tp"] == "4"
    (question,) = primus(text.replace("${TP:2}", "${TP}")).questions
    assert question.attribute == "layout.tp"
    assert "--set-env TP=VALUE" in question.answers


@pytest.mark.parametrize(
    ("model", "asks"), [("mixtral_8x7B_v0.1", False), ("deepseek_v2_lite", True)]
)
def test_latent_attention_that_is_off_changes_models_that_have_it(model: str, asks: bool) -> None:
    text = f"{PRIMUS.replace('small', model)}      multi_latent_attention: false\n"
    assert bool(primus(text, {}).questions) is asks


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("disable_bias_linear: false", "model.biases", "on"),
        (f"use_precision_aware_optimizer: true\n      {NARROW}", "precision.optimizer", "8 B"),
    ],
)
def test_a_pattern_of_ignored_keys_hides_no_flag(line: str, name: str, value: str) -> None:
    """`disable_*` and `exp_*` are names of Primus without effect; these flags are Megatron-LM's."""
    assert values(primus(PRIMUS.replace("lr_decay_iters: null", line)))[name] == value


@try_each(
    "pattern, every",
    [("[1, 0, 1, 0]", "2"), ("[1, 1, 1, 0]", "4"), ("[0, 0, 0, 0]", "1"), ("2", "2")],
)
def test_windows_of_primus_may_be_a_list(pattern: str, every: str) -> None:
    """1 is a layer with a window, and 0 one that sees everything."""
    found = primus(f"{PRIMUS}      window_size: [128, 0]\n      window_attn_skip_freq: {pattern}\n")
    assert not found.problems
    # A query sees itself and 128 tokens before it.
    assert values(found)["model.window"] == "129"
    assert values(found)["model.full_every"] == every


def test_layers_with_experts_of_primus_may_be_a_list() -> None:
    experts = "      num_experts: 8\n      moe_router_topk: 2\n      moe_ffn_hidden_size: 64\n"
    found = primus(f"{PRIMUS}{experts}      moe_layer_freq: [0, 1, 1, 1]\n")
    assert values(found)["model.dense_first"] == "1"


@pytest.mark.parametrize(("enabled", "errors"), [("true", 1), ("false", 0)])
def test_adapters_of_primus_are_one_error_if_they_are_on(enabled: str, errors: int) -> None:
    section = f"      lora:\n        enabled: {enabled}\n        dim: 16\n        alpha: 32\n"
    found = primus(PRIMUS + section)
    assert len(found.problems) == errors
    assert all("adapters of this tool" in one.message for one in found.problems)


def test_sharded_experts_of_primus_are_an_error() -> None:
    (problem,) = primus(f"{PRIMUS}      moe_fsep_sharding_degree: 2\n").problems
    assert "(FSEP) are not modeled" in problem.message


@pytest.mark.slow
def test_a_job_of_primus_without_its_model_file_changes_the_model_that_is_given(
    run_command: Run,
) -> None:
    """Llama 2 7B has RMSNorm, gates and 32,000 tokens; the file has 4 layers of it.

    A single attribute does not say what the model is, though it may be asked for, too.
    """
    lines = "      num_layers: 4\n      hidden_dropout: 0.0\n      attention_dropout: 0.0\n"
    text = PRIMUS.replace("small.yaml", "unknown.yaml") + lines + "      activation_func: swiglu\n"
    machine = ("--use=catalog.devices.mi300x", "--use=catalog.fabrics.mi300x_node")
    more = ("--set=cluster.devices=8", "run.yaml")
    for partial in ((), ("--set=model.gated=on",), ("--set=model.norm=rms",)):
        done = run_command("check", *machine, *partial, *more, files={"run.yaml": text})
        assert done.code == 2
        assert "`model` is not known" in done.out
    entry = "--use=catalog.models.llama2_7b"
    done = run_command("figures", "run.yaml", "parameters", *machine, entry, more[0])
    # 2 x 32,000 x 4,096 + 4 x (4 x 4,096^2 + 3 x 4,096 x 11,008 + 2 x 4,096) + 4,096
    assert "1,071,681,536" in done.out


def test_a_dense_model_of_primus_has_no_exchange() -> None:
    """Files of Primus state the degree of experts of dense models, too."""
    found = values(primus(f"{PRIMUS}      expert_model_parallel_size: 1\n"))
    assert not {"layout.etp", "routing.dispatcher"} & found.keys()


def test_a_missing_model_file_raises_a_question_about_the_exchange() -> None:
    text = PRIMUS.replace("small.yaml", "none.yaml") + "      expert_model_parallel_size: 8\n"
    asked = {one.attribute for one in primus(text, {}).questions}
    assert {"model", "routing.dispatcher"} <= asked
    stated = primus(f"{text}      moe_token_dispatcher_type: alltoall\n", {})
    assert "routing.dispatcher" not in {one.attribute for one in stated.questions}


STAGES = "      pipeline_model_parallel_size: 4\n"


OF_PRIMUS = f"{STAGES}      patch_primus_pipeline: true\n      pp_algorithm: "


OF_FORK = f"{STAGES}      patch_zero_bubble: true\n"


LIMIT = "      enable_zero_bubble: true\n      zero_bubble_max_pending_backward: "


ON_A_V = "      zero_bubble_v_schedule: true\n"


NARROWER = "      zero_bubble_v_schedule_mem_setup: "


@try_each(
    "lines, expected",
    [
        (f"{OF_PRIMUS}zbv-formatted", {"schedule.kind": "zb_v", "schedule.chunks": "2"}),
        (f"{OF_PRIMUS}zero-bubble", {"schedule.kind": "zb_h1"}),
        (f"{OF_PRIMUS}1f1b", {"schedule.kind": "one_f_one_b"}),
        (f"{OF_PRIMUS}zbv-formatted".replace("true", "false"), {}),
        (f"{OF_FORK}{LIMIT}4", {"schedule.kind": "zb_h1"}),
        (f"{OF_FORK}{LIMIT}8", {"schedule.kind": "zb_h2"}),
        (f"{LIMIT}8", {}),
        (
            f"{OF_FORK}{ON_A_V}{NARROWER}zb",
            {"schedule.kind": "zb_v", "schedule.chunks": "2"},
        ),
    ],
)
def test_pipelines_of_primus_are_schedules(lines: str, expected: dict[str, str]) -> None:
    """4 stages: a limit of 4 micro-batches pending is the memory of 1F1B, and 8 is twice that."""
    found = primus(f"{PRIMUS}{lines}\n")
    assert not [*found.problems, *found.questions, *found.unknown]
    stated = {key: one for key, one in values(found).items() if key.startswith("schedule.")}
    assert stated == expected
    has = any("megatron_zero_bubble" in one.value for one in found.uses)
    assert has is bool(expected)


@try_each(
    "lines, message",
    [
        (f"{OF_PRIMUS}v-half", "`v-half` is not modeled"),
        (f"{OF_FORK}{ON_A_V}", "V-Half, which trades time for memory, is not modeled"),
        (f"{OF_FORK}{ON_A_V}{NARROWER}min", "V-Min, which trades time"),
        (f"{OF_FORK}      enable_1f1b_v: true", "1F1B on a V is not modeled"),
        (f"{OF_FORK}{LIMIT}4\n      num_seq_splits: 2", "splits of a sequence"),
    ],
)
def test_a_pipeline_of_primus_that_the_language_lacks_is_an_error(lines: str, message: str) -> None:
    (problem,) = primus(f"{PRIMUS}{lines}\n").problems
    assert message in problem.message


@pytest.mark.parametrize(
    ("flags", "kind"),
    mark_most(
        [
            ("--zero-bubble-v-schedule --enable-zero-bubble", "zb_v"),
            ("--enable-zero-bubble --zero-bubble-max-pending-backward 2", "zb_h1"),
            ("--enable-zero-bubble --zero-bubble-max-pending-backward auto", ""),
            ("--use-zero-bubble", ""),
        ],
        4,
    ),
)
def test_zero_bubble_of_a_fork_is_a_schedule_of_its_profile(
    flags: str, kind: str, run_command: Run
) -> None:
    """Two stages; a copied answer is a schedule that the profile has, too."""
    job = small("--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 32")
    job = job.replace("layers 2", "layers 4") + " --vocab-size 1000 --use-distributed-optimizer"
    text = f"python pretrain_gpt.py --fp16 {job} {flags}"
    found = Megatron().translate("run.sh", text)
    assert not found.problems
    assert values(found).get("schedule.kind", "") == kind
    answers = [one.answers for one in found.questions if one.attribute == "schedule.kind"]
    assert bool(answers) is not bool(kind)
    options = ["--use=catalog.devices.h100_sxm", "--use=catalog.fabrics.hgx_h100"]
    options += ["--set=cluster.devices=8", *(one[0].replace(" ", "=") for one in answers)]
    done = run_command("check", *options, "run.sh", files={"run.sh": text})
    assert (done.code, "framework-lacks" in done.out + done.err) == (0, False), done.err


def test_a_dispatcher_of_primus_turbo_is_deepep() -> None:
    text = f"{PRIMUS}      num_experts: 4\n      use_turbo_deepep: true\n"
    assert values(primus(text))["routing.dispatcher"] == "deepep"


@pytest.mark.parametrize(
    ("key", "asks"),
    mark_most(
        [
            ("use_turbo_grouped_mlp: true", False),
            ("turbo_sync_free_moe_stage: 2", False),
            ("use_turbo_mega_moe: true", True),
            ("turbo_of_tomorrow_moe: true", True),
        ],
        4,
    ),
)
def test_kernels_of_primus_are_known_by_their_names(run_command: Run, key: str, asks: bool) -> None:
    text = f"{PRIMUS.replace('model: small.yaml', 'model: qwen3_30B_A3B.yaml')}      {key}\n"
    done = run_command("eval", "run.yaml", files={"run.yaml": text})
    assert (
        f"`{key.partition(':')[0]}`, which is not in parcost's table" in " ".join(done.err.split())
    ) is asks


def test_a_model_of_primus_that_is_missing_is_a_question_or_of_the_catalogue() -> None:
    found = primus(models={})
    assert "model" in [one.attribute for one in found.questions]
    found = primus(PRIMUS.replace("small.yaml", "llama2_7B.yaml"), {})
    assert values(found)["training.model"] == "llama2_7b"
    assert values(found)["training.dropout"] == "off"
    assert not found.questions


@try_each(
    "change, missing",
    [
        (("framework: megatron", "framework: torchtitan"), "of Primus is not supported"),
        (("pre_trainer:", "post_trainer:"), "of Primus is not supported"),
        (("micro_batch", "hybrid_attention_ratio: 0.25\n      micro_batch"), "Mamba layers"),
        (("micro_batch", "spec: [a.b, c]\n      micro_batch"), "layers of another module"),
    ],
)
def test_other_jobs_of_primus_are_rejected(change: tuple[str, str], missing: str) -> None:
    assert missing in primus(PRIMUS.replace(change[0], change[1], 1)).problems[0].message


def test_models_of_a_job_stand_beside_it(run_command: Run) -> None:
    files = {"job.yaml": PRIMUS, "small.yaml": MODELS["small.yaml"]}
    done = run_command("import", "job.yaml", files=files)
    assert "base.yaml" in done.err
    done = run_command("import", "job.yaml", files=MODELS)
    assert "layers     = 4" in done.out


@pytest.mark.parametrize(
    ("key", "attribute", "value"),
    [
        ("turbo_sync_free_moe_stage: 2", "routing.dispatcher", "deepep"),
        ("turbo_sync_free_moe_stage: 1", "routing.dispatcher", ""),
    ],
)
def test_a_key_of_primus_that_decides_is_read(key: str, attribute: str, value: str) -> None:
    models = {**MODELS, "small.yaml": f"{MODELS['small.yaml']}num_experts: 8\n"}
    text = PRIMUS.replace("micro_batch_size", f"{key}\n      micro_batch_size")
    assert (values(primus(text, models)).get(attribute) == value) or not value


def test_keys_of_primus_without_a_list_are_named() -> None:
    text = PRIMUS.replace("micro_batch_size", "use_turbo_mega_moe: true\n      micro_batch_size")
    assert any("use_turbo_mega_moe" in one.name for one in primus(text).unknown)
