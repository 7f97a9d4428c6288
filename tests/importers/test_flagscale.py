"""Jobs of FlagScale: an experiment, and the file of its training."""

from __future__ import annotations

import pytest

from parcost import ImportFile
from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.nemo import NeMo

from ..rows import try_each
from .megatron_files import Run, translate, values

FLAGSCALE = """\
system:
  tensor_model_parallel_size: 2
  use_distributed_optimizer: true
  precision:
    bf16: true
model:
  num_layers: 4
  hidden_size: 768
  num_attention_heads: 4
  seq_length: ${experiment.length}
  micro_batch_size: 1
  global_batch_size: 16
  swiglu: true
  multiple_of: 256
  hidden_dim_multiplier: 1.3
data:
  tokenizer:
    vocab_size: 1000
"""


EXPERIMENT = """\
defaults:
  - train: small
experiment:
  length: 512
  task:
    backend: megatron
  runner:
    nnodes: 2
    nproc_per_node: 8
"""


def test_an_experiment_of_flagscale_joins_the_file_of_its_training() -> None:
    files = {"train/small.yaml": FLAGSCALE}
    found = Megatron().read(ImportFile("train.yaml", EXPERIMENT, neighbor=files.get))
    expected = {
        "cluster.devices": "16",
        "layout.tp": "2",
        "layout.zero": "1",
        "training.precision": "bf16",
        "training.sequence": "512",
        "model.vocabulary": "1000",
        # 4 x 768 x 2 / 3 = 2048, x 1.3 = 2662, up to 11 x 256.
        "model.ffn": "2816",
    }
    assert expected.items() <= values(found).items()
    assert not found.questions


@pytest.mark.parametrize(
    ("key", "attribute", "value"),
    [
        ("schedules_method: dualpipev", "schedule.kind", "dualpipe_v"),
        ("schedules_method: dualpipev", "schedule.chunks", "2"),
        ("moe_fb_overlap: true", "routing.hide", "pair"),
    ],
)
def test_a_schedule_of_flagscale_is_read(key: str, attribute: str, value: str) -> None:
    experts = "  num_experts: 4\n  moe_router_topk: 2\n  moe_ffn_hidden_size: 256\n"
    text = FLAGSCALE.replace("model:\n", f"model:\n{experts}").replace(
        "system:\n", f"system:\n  {key}\n"
    )
    assert values(Megatron().translate("7b.yaml", text))[attribute] == value
    spoilt = text.replace("dualpipev", "zigzag")
    if spoilt != text:
        (problem,) = Megatron().translate("7b.yaml", spoilt).problems
        assert "`zigzag` is not known" in problem.message


def test_pairs_of_a_schedule_hide_the_exchange_once() -> None:
    experts = "  num_experts: 4\n  moe_router_topk: 2\n  moe_ffn_hidden_size: 256\n"
    keys = "  schedules_method: dualpipev\n  moe_fb_overlap: true\n"
    text = FLAGSCALE.replace("model:\n", f"model:\n{experts}")
    found = values(Megatron().translate("7b.yaml", text.replace("system:\n", f"system:\n{keys}")))
    assert found["schedule.kind"] == "dualpipe_v"
    assert "routing.hide" not in found


@pytest.mark.slow
def test_a_framework_has_the_schedule_that_its_own_flag_turns_on(run_command: Run) -> None:
    """MindSpeed and FlagScale add DualPipeV to a Megatron-LM that has none."""
    key = "  schedules_method: dualpipev\n  pipeline_model_parallel_size: 2\n"
    text = FLAGSCALE.replace("system:\n", f"system:\n{key}").replace("${experiment.length}", "512")
    options = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command(
        "check", *options, "--set=cluster.devices=16", "7b.yaml", files={"7b.yaml": text}
    )
    assert (done.code, "has no `schedule.kind" in done.err + done.out) == (0, False), done.err
    plain = run_command(
        "check",
        *options,
        "--set=cluster.devices=16",
        "--set=schedule.kind=zb_v",
        "7b.yaml",
        files={"7b.yaml": text},
    )
    assert "does not support `schedule.kind = zb_v`" in plain.err + plain.out


def test_a_missing_training_of_flagscale_raises_a_question() -> None:
    found = Megatron().translate("train.yaml", EXPERIMENT)
    assert "model" in [one.attribute for one in found.questions]


def test_a_training_of_flagscale_is_none_of_nemo() -> None:
    assert Megatron().recognizes("7b.yaml", FLAGSCALE)
    assert not NeMo().recognizes("7b.yaml", FLAGSCALE)


@try_each(
    "key, value, is_named",
    [
        ("enable_flag_gems", "true", True),
        ("embedding_weights_in_fp32", "true", True),
        ("extra_vocab_size", "293", True),
        ("extra_valid_data_path", "data", False),
    ],
)
def test_a_key_of_flagscale_that_decides_is_listed(key: str, value: str, is_named: bool) -> None:
    text = FLAGSCALE.replace("model:\n", f"model:\n  {key}: {value}\n")
    found = translate(Megatron(), "train.yaml", text)
    assert any(key in one.name for one in found.unknown) == is_named


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("use_engram", "n-gram tables (Engram)"),
        ("enable_hyper_connections", "several residual streams"),
        ("num_residual_streams", "several residual streams"),
    ],
)
def test_a_part_of_the_model_that_a_fork_adds_is_rejected(key: str, reason: str) -> None:
    for value, is_rejected in (("true", True), ("false", False)):
        text = FLAGSCALE.replace("model:\n", f"model:\n  {key}: {value}\n")
        found = Megatron().translate("train.yaml", text)
        assert [reason in one.message for one in found.problems] == [True] * is_rejected
