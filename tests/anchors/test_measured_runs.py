"""Logs and rows as anchors: which steps count, what a log says of its run, what is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parcost import Translation
from parcost_measured.anchors.measured_runs import MeasuredRuns
from parcost_plugins.vocabulary.anchor import read_settings

from ..rows import try_each

MEGATRON = (
    " [2025-05-01 10:00:00] iteration {i:8d}/     100 | consumed samples: {n:12d} | elapsed time per "
    "iteration (ms): {ms} | learning rate: 1.0E-04 | global batch size: {batch:5d} | lm loss: {loss} "
    "| grad norm: 1.2 | number of skipped iterations: {skipped:3d} | number of nan iterations: 0 |"
)


def megatron(
    i: int, ms: object, *, batch: int = 64, loss: str = "8.1E+00", skipped: int = 0
) -> str:
    return MEGATRON.format(i=i, n=i * batch, ms=ms, batch=batch, loss=loss, skipped=skipped)


def read(text: str, name: str = "train.log") -> Translation:
    assert MeasuredRuns().recognizes(name, text)
    return MeasuredRuns().translate(name, text)


def values(found: Translation, at: int = 0) -> dict[str, str]:
    assert not found.problems, found.problems
    return {one.name: one.value for one in found.blocks[at].settings}


def list_reasons(found: Translation) -> dict[str, str]:
    return {key.name: key.reason for key in found.unknown}


def test_the_median_leaves_out_the_first_steps_and_survives_slow_ones() -> None:
    times = [9000, 800, *[410 + i % 3 for i in range(28)]]
    times[20] = 5000  # a checkpoint
    text = "\n".join(megatron(i, ms) for i, ms in enumerate(times, 1))
    found = values(read(text))
    assert found["step_time"].startswith("0.411 s @measured(")
    assert "median of 20 of 30 steps" in found["step_time"]
    assert read_settings(found["settings"].strip('"')) == {"training.global_batch": "64 sequences"}


def test_lines_of_forks_of_megatron_are_read() -> None:
    of_primus = [megatron(i, f"{400 + i}.0/13240.9") for i in range(1, 4)]
    assert values(read("\n".join(of_primus)))["step_time"].startswith("0.4025 s")
    length = " actual seqlen: 2048 |"
    of_deepspeed = [megatron(i, 400.0).replace("global", "gloabl") + length for i in range(1, 31)]
    found = values(read("\n".join(of_deepspeed)))
    assert read_settings(found["settings"].strip('"')) == {
        "training.global_batch": "64 sequences",
        "training.sequence": "2048",
    }


def test_lines_of_a_fork_with_seconds_are_read() -> None:
    lines = [megatron(i, 0.4 + i * 1e-3).replace("(ms)", "(s)") for i in range(1, 4)]
    found = values(read("\n".join(lines)))
    assert found["step_time"].startswith("0.4025 s")
    assert read_settings(found["settings"].strip('"')) == {"training.global_batch": "64 sequences"}


def test_steps_that_are_no_measurement_are_named_by_line_and_reason() -> None:
    lines = [megatron(i, 400.0 + i) for i in range(1, 31)]
    lines[20] = megatron(21, 100.0, loss="nan")
    lines[21] = megatron(22, 100.0, skipped=1)
    lines[22] = megatron(23, 100.0, batch=32)
    lines[23] = megatron(24, 0.0)
    lines[24] = "validation loss at iteration 25 | lm loss value: 8.0E+00 | lm loss PPL: 3.0E+03 |"
    found = read("\n".join(lines))
    assert list_reasons(found) == {
        "line 21": "loss or gradient norm is not a number",
        "line 22": "it has skipped steps",
        "line 23": "a batch of 32, while most steps have 64",
        "line 24": "its time is 0.0",
    }
    assert values(found)["steps"] == "15"


def test_after_a_restart_the_first_steps_are_left_out_again() -> None:
    lines = [megatron(i, 400.0) for i in range(1, 31)]
    lines += [megatron(i, 9000.0) for i in range(21, 31)]
    lines += [megatron(i, 400.0) for i in range(31, 41)]
    found = values(read("\n".join(lines)))
    assert found["step_time"].startswith("0.4 s")
    assert found["steps"] == "30"


def test_steps_before_a_change_of_the_layout_are_left_out() -> None:
    def start(tp: int) -> str:
        return f"using world size: 16, data-parallel size: {16 // tp}, tensor-model-parallel size: {tp}"

    lines = [start(4), *[megatron(i, 400.0) for i in range(1, 31)]]
    lines += [start(2), *[megatron(i, 300.0) for i in range(31, 61)]]
    found = read("\n".join(lines))
    assert values(found)["step_time"].startswith("0.3 s")
    settings = read_settings(values(found)["settings"].strip('"'))
    assert settings["layout.tp"] == "2"
    assert list_reasons(found)["line 2"] == "`layout.tp` changed at line 32"


def test_arguments_of_megatron_say_how_and_what_ran() -> None:
    arguments = {
        "bf16": "True",
        "fp8": "None",
        "hidden_size": "4096",
        "num_layers": "32",
        "pipeline_model_parallel_size": "2",
        "recompute_granularity": "None",
        "sequence_parallel": "True",
        "tensor_model_parallel_size": "4",
        "virtual_pipeline_model_parallel_size": "4",
    }
    lines = [f"  {name} {'.' * (46 - len(name))} {value}" for name, value in arguments.items()]
    lines += [megatron(i, 400.0) for i in range(1, 31)]
    memory = "[Rank {}] (after 10 iterations) memory (MB) | allocated: 1.0 | max allocated: {} | reserved: 1 | max reserved: {}"
    lines += [memory.format(0, 2048.0, 3072.0), memory.format(8, 1024.0, 4096.0)]
    found = values(read("\n".join(lines)))
    assert read_settings(found["settings"].strip('"')) == {
        "layout.pp": "2",
        "training.recompute": "none",
        "layout.sequence_parallel": "on",
        "layout.tp": "4",
        "training.global_batch": "64 sequences",
        "schedule.kind": "interleaved",
        "schedule.chunks": "4",
    }
    assert read_settings(found["job"].strip('"')) == {
        "precision.compute": "bf16",
        "precision.narrow": "none",
        "model.hidden": "4096",
        "model.layers": "32",
    }
    assert (found["allocated"], found["reserved"]) == ("2 GiB", "4 GiB")


NEMO = (
    "Training epoch 0, iteration {i}/99 | lr: 1e-05 | global_batch_size: 128 | global_step: {i} | "
    "reduced_train_loss: 9.1 | train_step_timing in s: {s} | consumed_samples: 128"
)
BAR = "Epoch 0: : {i}%|#| {i}/100 [10:48<00:00, global_step={i}, train_step_timing in s={s}]\r"
TITAN = (
    "\x1b[31m[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - step: {i:2}  loss:  8.1  "
    "memory: 40.50GiB(51.2%)  tps: 6,{i:03d}  tflops: 350.1  mfu: 35.4%\x1b[39m"
)
MESH = "Building 3-D device mesh with ['dp_replicate', 'dp_shard', 'tp'], [2, 4, 8]"
DEVICE = "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory"
TQDM = " {i}%|#         | {i}/1000 [00:41<1:08:12,  {s}s/it]\r"
EVALUATION = " {i}%|#         | {i}/25 [00:41<1:08:12,  0.11s/it]\r"


@try_each(
    "text, name, value, steps",
    [
        (
            "\n".join(NEMO.format(i=i, s=9 if i < 5 else 2.5) for i in range(30)),
            "step_time",
            "2.5 s",
            "20",
        ),
        ("".join(BAR.format(i=i, s=2.25) for i in range(1, 41)), "step_time", "2.25 s", "30"),
        (
            "\n".join([DEVICE, MESH, *(TITAN.format(i=i) for i in range(1, 31))]),
            "tokens_per_second_per_device",
            "6020.5",
            "20",
        ),
        (
            "".join(TQDM.format(i=i, s=4.1) for i in range(1, 41))
            + "".join(EVALUATION.format(i=i) for i in range(1, 21)),
            "step_time",
            "4.1 s",
            "30",
        ),
        ("{'train_runtime': 500.0, 'train_steps_per_second': 0.25}", "step_time", "4 s", "1"),
    ],
)
def test_logs_of_other_tools_have_steps(text: str, name: str, value: str, steps: str) -> None:
    found = values(read(text))
    assert found[name].startswith(f"{value} @measured")
    assert found["steps"] == steps


def test_torchtitan_says_its_mesh_its_device_and_what_it_reserved() -> None:
    found = values(read("\n".join([DEVICE, MESH, *(TITAN.format(i=i) for i in range(1, 31))])))
    assert read_settings(found["settings"].strip('"')) == {
        "layout.tp": "8",
        "layout.dp": "8",
        "cluster.devices": "64",
        "layout.pp": "1",
        "layout.cp": "1",
    }
    assert found["job"] == '"device = h100_sxm"'
    assert found["reserved"] == "40.5 GiB"


def test_ranks_that_log_the_same_steps_and_bars_that_are_drawn_again_count_once() -> None:
    def titan(rank: int, i: int) -> str:
        return f"[rank{rank}]:[titan] - root - INFO - step: {i:2}  loss:  8.1  tps: {5000 + rank}"

    lines = [titan(rank, i) for i in range(1, 31) for rank in (3, 0)]
    found = values(read("\n".join(lines)))
    assert found["steps"] == "20"
    assert found["tokens_per_second_per_device"].startswith("5003 ")
    bars = "".join(TQDM.format(i=i // 2, s=4.1) for i in range(2, 82))
    assert values(read(bars))["steps"] == "30"


def test_evaluation_beside_training_is_named() -> None:
    text = "".join(TQDM.format(i=i, s=4.1) for i in range(1, 21))
    text += EVALUATION.format(i=1)
    assert list_reasons(read(text)) == {
        "line 1": "a progress bar of 25 steps next to one of 1000: evaluation"
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            megatron(1, 100.0, loss="nan"),
            "all steps of the log are excluded: line 1: loss or gradient",
        ),
        (megatron(1, "inf"), "its time is inf"),
        (megatron(9, 400.0), "line 1: a step after a start"),
    ],
)
def test_a_log_without_a_step_that_counts_is_an_error(text: str, message: str) -> None:
    (problem,) = read(text).problems
    assert message in problem.message


ROW: dict[str, Any] = {
    "id": "a-1",
    "source": "ours",
    "source_key": "ours",
    "model": {"name": "m", "layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "seq": 2048},
    "hardware": {"gpu": "H100 SXM", "gpus": 16},
    "parallel": {"tp": 2, "pp": 2, "dp": 4, "sequence_parallel": True},
    "batch": {"micro": 1, "global": 16},
    "precision": "bf16",
    "recompute": "full",
    "measured": {"step_time_s": 1.5},
}


def test_a_row_is_an_anchor_and_rows_with_flaws_are_named() -> None:
    bad = {**ROW, "id": "b", "measured": {"step_time_s": 1.5, "mfu": 1.3}}
    composed = {**ROW, "id": "c", "synthetic": True}
    text = "\n".join([json.dumps(ROW), json.dumps(bad), "{", json.dumps(composed)])
    found = read(text, "runs.jsonl")
    assert [block.label for block in found.blocks] == ["a_1"]
    assert values(found)["step_time"].startswith("1.5 s @measured")
    assert read_settings(values(found)["settings"].strip('"')) == {
        "cluster.devices": "16",
        "layout.tp": "2",
        "layout.pp": "2",
        "layout.cp": "1",
        "layout.dp": "4",
        "schedule.kind": "one_f_one_b",
        "schedule.chunks": "1",
        "layout.sequence_parallel": "on",
        "training.sequence": "2048",
        "training.micro_batch": "1",
        "training.global_batch": "16 sequences",
        "training.recompute": "full",
    }
    job = read_settings(values(found)["job"].strip('"'))
    assert job["device"] == "h100_sxm"
    assert (job["precision.compute"], job["precision.narrow"]) == ("bf16", "none")
    reasons = list_reasons(found)
    assert "no device exceeds its peak" in reasons["line 2 (b)"]
    assert "not JSON" in reasons["line 3"]
    assert "composed" in reasons["line 4 (c)"]
