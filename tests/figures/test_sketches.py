"""Pipelines, grids, estimates and data sheets that need no model: each against hand arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost.language.diagnostics import Severity
from parcost.language.errors import SpecError

from ..evaluation import faultless_result
from ..rows import try_each

RECIPE = "use catalog.precisions.bf16_zero_paper\n"


def values(text: str) -> dict[str, Any]:
    result = faultless_result(text)
    assert [d.message for d in result.diagnostics if d.severity is Severity.ERROR] == []
    return {figure.name.partition(".")[2]: figure.value for _, figure in result.figures}


def refusals(text: str) -> dict[str, str]:
    return {d.id: d.message for d in faultless_result(text).diagnostics}


# --- pipelines ----------------------------------------------------------------------------


def pipeline(more: str) -> dict[str, Any]:
    return values(f"pipeline p {{ stages = 4, micro_batches = 8, {more} }}")


def test_both_bubbles_stand_under_their_own_names() -> None:
    found = pipeline("forward = 1 s")
    assert found["step_time"] == 33.0  # (8 + 3) slots of 1 + 2
    assert (found["busy"], found["idle"]) == (24.0, 9.0)
    assert found["bubble"] == pytest.approx(3 / 11)
    assert found["bubble_overhead"] == pytest.approx(3 / 8)
    assert found["bubble"] + found["efficiency"] == pytest.approx(1.0)


def test_chunks_divide_the_bubble_and_not_the_work() -> None:
    found = pipeline("kind = interleaved, chunks = 2, forward = 1 s, layers = 24")
    assert (found["busy"], found["idle"]) == (24.0, 4.5)
    assert found["bubble_against_one_chunk"] == 0.5
    assert found["bubble_reduction"] == 2.0
    assert found["bubble"] == pytest.approx(3 / (8 * 2 + 3))
    assert found["layers_per_virtual_stage"] == 3.0
    assert (found["first_stage"], found["last_stage"]) == (1.0, 5.0)  # round robin


def test_a_split_backward_pass_shortens_the_bubble() -> None:
    # Of F = B = W, ZB-H1 idles (p - 1)(F + B - W) instead of (p - 1)(F + B + W).
    whole = pipeline("forward = 1 s, backward = 2 s")
    split = pipeline("forward = 1 s, backward = 2 s, kind = zb_h1")
    assert (whole["idle"], split["idle"]) == (9.0, 3.0)


def test_gpipe_keeps_all_and_one_f_one_b_as_many_as_stages_behind() -> None:
    assert pipeline("kind = gpipe")["in_flight"] == 8.0
    for stage in range(4):
        found = pipeline(f"stage = {stage}")
        assert found["in_flight"] == 4.0 - stage
        assert found["warm_up"] == 3.0 - stage


def test_saved_bytes_are_live_micro_batches_times_layers() -> None:
    found = pipeline("layers = 96, kept = 100 MB, capacity = 80 GB")
    assert found["activations"] == 4 * 24 * 100e6
    assert found["activation_share"] == pytest.approx(9.6 / 80)


def test_the_fewest_micro_batches_are_at_the_target_or_below_it() -> None:
    eight = "stages = 8, micro_batches = 8"
    at_most = values(f"pipeline p {{ {eight}, target = 10 % }}")
    assert at_most["fewest_micro_batches"] == 63.0  # 7 / 70 is exactly a tenth
    assert at_most["fewest_micro_batches_below"] == 64.0
    busy = values(f"pipeline p {{ {eight}, target = 10 %, target_of = busy }}")
    assert busy["fewest_micro_batches"] == 70.0
    assert busy["fewest_micro_batches_below"] == 71.0
    page = values("pipeline p { stages = 4, micro_batches = 8, target = 20 % }")
    assert (page["fewest_micro_batches"], page["most_stages"]) == (12.0, 3.0)


@pytest.mark.slow
def test_the_fewest_micro_batches_keep_what_they_promise() -> None:
    for target in (5, 12, 33):
        wanted = values(f"pipeline p {{ stages = 6, micro_batches = 4, target = {target} % }}")
        fewest = int(wanted["fewest_micro_batches"])
        assert (
            values(f"pipeline p {{ stages = 6, micro_batches = {fewest} }}")["bubble"]
            <= target / 100
        )
        one_less = values(f"pipeline p {{ stages = 6, micro_batches = {fewest - 1} }}")
        assert one_less["bubble"] > target / 100


def test_a_boundary_is_crossed_twice_for_each_micro_batch() -> None:
    shape = "batch = 512 sequences, sequence = 2048, hidden = 8192"
    found = values(f"pipeline p {{ stages = 8, micro_batches = 32, {shape}, period = 2 s }}")
    message = 16 * 2048 * 8192 * 2
    assert found["message_size"] == message
    assert found["round_trip"] == 2 * message
    assert found["transfers_per_boundary"] == 64
    assert found["boundary_traffic"] == 64 * message
    assert found["traffic"] == 7 * 64 * message
    assert found["boundary_rate"] == 32 * message
    assert "message_size" not in pipeline("batch = 8 sequences")


@try_each(
    "kind, chunks, changes",
    [
        ("one_f_one_b", 1, 3),
        ("interleaved", 2, 7),  # the ring goes round twice
        ("zb_v", 2, 6),  # down and up again: the last device turns them without a message
        ("dualpipe_v", 2, 6),
        ("dualpipe", 1, 3),  # half of them go the other way
    ],
)
def test_a_message_is_sent_where_the_next_stage_is_on_another_device(
    kind: str, chunks: int, changes: int
) -> None:
    found = pipeline(f"kind = {kind}, chunks = {chunks}, message = 1 MB")
    assert found["transfers"] == 2 * 8 * changes
    assert found["traffic"] == 2 * 8 * changes * 1e6


@try_each(
    "kind, idle, span, textbook",
    [
        # p = 4, m = 8, F = B = W = 1. Qi et al. 2023, table 2: without a barrier ZB-H1 idles
        # (p - 1) (F + B - W) and ZB-H2 (p - 1) (F + B - 2 W); with one, none less than (p - 1) F.
        ("one_f_one_b", 9, 33, True),
        ("gpipe", 9, 33, True),
        ("zb_h1", 3, 27, False),
        ("zb_h2", 3, 24, False),
    ],
)
def test_a_schedule_idles_with_and_without_a_barrier(
    kind: str, idle: float, span: float, textbook: bool
) -> None:
    result = faultless_result(f"pipeline p {{ stages = 4, micro_batches = 8, kind = {kind} }}")
    found = {f.name.removeprefix("p."): (f.value, f.note) for _, f in result.figures}
    assert found["idle"][0] == pytest.approx(idle)
    assert found["bubble"][0] == pytest.approx(idle / (24 + idle))
    assert found["longest_span"][0] == pytest.approx(span)
    assert found["span_bubble"][0] == pytest.approx(1 - 24 / span)
    # the formula of textbooks stands under the schedules that it is the formula of
    assert found["bubble"][1].startswith("(p - 1) / (m v + p - 1), p stages") is textbook
    assert found["bubble_overhead"][1].startswith("(p - 1) / (m v), p stages") is textbook


def test_a_single_stage_sends_nothing_and_never_idles() -> None:
    found = values("pipeline p { stages = 1, micro_batches = 4 }")
    assert found["idle"] == found["transfers_per_boundary"] == found["boundaries"] == 0.0
    assert found["transfers"] == 0
    # there is no bubble that chunks could shorten
    assert "bubble_reduction" not in found
    assert "bubble_against_one_chunk" not in found


def test_a_pipeline_that_no_schedule_runs_says_why() -> None:
    text = "pipeline p { kind = gpipe, stages = 4, micro_batches = 8, chunks = 2 }"
    assert "chunk" in refusals(text)["pipeline-schedule"]
    late = refusals("pipeline p { stages = 4, micro_batches = 8, stage = 4 }")
    assert late["pipeline-stage"] == "there is no stage 4: stages are 0 to 3"


# --- grids --------------------------------------------------------------------------------


def test_degrees_multiply_and_experts_reuse_ranks() -> None:
    found = values("grid g { tp = 8, pp = 4, dp = 16, ep = 8 }")
    assert (found["devices"], found["replica"]) == (512.0, 32.0)
    assert (found["nodes"], found["replica_nodes"]) == (64.0, 4.0)
    assert found["batch_share"] == 1 / 16
    apart = values("grid g { tp = 8, pp = 8, dp = 8, ep = 8, experts = apart }")
    assert apart["devices"] == 4096.0


@try_each("rank", range(24))
def test_coordinates_are_those_of_counting_up(rank: int) -> None:
    found = values(f'grid g {{ tp = 2, pp = 3, dp = 4, order = "tp-cp-pp-dp", rank = {rank} }}')
    ranks = [(t, p, d) for d in range(4) for p in range(3) for t in range(2)]
    assert (found["tp_rank"], found["pp_rank"], found["dp_rank"]) == ranks[rank]


def test_layouts_of_a_machine_are_counted_one_by_one() -> None:
    # 64 devices: 7 + 6 + 5 + 4 powers of two are left for pp at tp = 1, 2, 4, 8.
    assert values("grid g { machine = 64 devices }")["layouts"] == 22.0


def test_a_grid_has_its_rules() -> None:
    assert "ranks are 0 to 7" in refusals("grid g { tp = 8, rank = 8 }")["grid-rank"]
    assert "does not fit" in refusals("grid g { tp = 8, cp = 2 }")["grid-node"]
    assert "once" in refusals('grid g { order = "tp-tp-dp-pp" }')["grid-order"]


# --- estimates ----------------------------------------------------------------------------

RINGS = "inner = 100 GB/s per_direction, outer = 10 GB/s per_direction, outer_latency = 1 ms"


def estimate(more: str) -> dict[str, Any]:
    return values(f"estimate e {{ {more} }}")


def test_compute_is_six_flops_for_a_parameter_and_token() -> None:
    found = estimate(
        "parameters = 1 G, batch = 8 sequences, sequence = 1000, dp = 4, tp = 2, "
        "peak = 100 TFLOPS dense, utilisation = 50 %"
    )
    assert found["compute"] == pytest.approx(6e9 * 2000 / 2 / 50e12)
    assert found["busy"] == found["compute"]


def test_gradients_are_reduced_in_one_ring_or_by_levels() -> None:
    job = f"parameters = 1 G, dp = 16, compute = 1 s, {RINGS}"
    flat = estimate(job)["gradients"]
    assert flat == pytest.approx(2 * 15 / 16 * 2e9 / 10e9 + 30 * 1e-3)
    levels = estimate(f"{job}, reduction = hierarchical")["gradients"]
    across = 2 * 1 / 2 * 0.25e9 / 10e9 + 2 * 1e-3
    assert levels == pytest.approx(2 * 7 / 8 * 2e9 / 100e9 + across)
    nested = estimate(f"{job}, reduction = nested_rings")["gradients"]
    within = 2 * 7 / 8 * 2e9 / 100e9
    assert nested == pytest.approx(within + across + within / 8)
    assert nested > levels


def test_the_bubble_is_idle_time_or_what_some_tools_make_of_it() -> None:
    job = "compute = 1 s, pp = 4, dp = 1, micro_batches = 6"
    honest = estimate(job)
    assert honest["idle"] == pytest.approx(3 / 6)
    assert honest["bubble"] == pytest.approx(3 / 9)
    tool = estimate(f"{job}, bubble = share_of_busy")
    assert tool["idle"] == pytest.approx(3 / 9)
    assert tool["step_time"] < honest["step_time"]


def test_an_efficiency_is_worth_that_many_devices() -> None:
    found = estimate("compute = 80 ms, communication = 20 ms, devices = 256, batch = 64 sequences")
    assert found["efficiency"] == pytest.approx(0.8)
    assert found["equivalent_devices"] == pytest.approx(204.8)
    assert found["lost_devices"] == pytest.approx(51.2)
    assert found["overhead"] == pytest.approx(0.25)
    assert found["communication_share"] == pytest.approx(0.2)
    assert found["samples_per_second"] == pytest.approx(640.0)
    assert found["hideable"] == pytest.approx(0.02)


def test_an_estimate_is_compared_with_its_baseline() -> None:
    both = """
    estimate slow { compute = 1 s, communication = 1 s }
    estimate fast { compute = 1 s, communication = 0.25 s, baseline = slow }
    """
    result = faultless_result(both)
    assert result.figure("fast.efficiency_gain") == pytest.approx(0.3)
    assert result.figure("fast.speedup") == pytest.approx(1.6)


def test_intensity_is_three_halves_of_the_tokens() -> None:
    machine = "peak = 1000 TFLOPS dense, outer = 100 GB/s per_direction"
    found = estimate(f"parameters = 1 G, batch = 2 sequences, sequence = 2000, {machine}")
    assert found["intensity"] == 1.5 * 4000  # 6 N tokens over 2 N and two bytes
    assert found["ridge"] == 10_000.0
    assert found["fed"] == pytest.approx(0.6)
    assert found["batch_at_ridge"] == pytest.approx(2 / 0.6)
    assert found["batch_for_target"] == pytest.approx(0.9 * 2 / 0.6)


def test_an_estimate_sweeps_like_anything_else() -> None:
    text = "estimate e { compute = 1 s, pp = 4, dp = 1, micro_batches = [1, 3, 6] }"
    assert faultless_result(text).figure("e.idle") == pytest.approx([3.0, 1.0, 0.5])


def test_an_estimate_of_nothing_is_refused() -> None:
    assert "estimate-compute" in refusals("estimate e { dp = 8 }")
    job = "compute = 1 s, dp = 16, outer = 10 GB/s per_direction, reduction = hierarchical"
    assert "estimate-inner" in refusals(f"estimate e {{ {job} }}")


# --- data sheets --------------------------------------------------------------------------


def test_a_link_is_the_same_by_lane_by_bits_and_by_both_directions() -> None:
    for said in (
        "lane = 100 Gbps, lanes = 4",
        "bandwidth = 400 Gbps per_direction",
        "bandwidth = 100 GB/s bidirectional",
    ):
        found = values(f"link l {{ {said} }}")
        assert found["bandwidth"] == 50e9
        assert found["bit_rate"] == 400e9
        assert found["bidirectional"] == 100e9


def test_a_line_code_takes_its_part() -> None:
    found = values("link l { lane = 16 Gbps, lanes = 16, payload_bits = 128, line_bits = 130 }")
    assert found["bandwidth"] == pytest.approx(31.507692e9)


def test_links_are_compared_like_for_like() -> None:
    text = """
    link nvlink { bandwidth = 900 GB/s bidirectional }
    link port { bandwidth = 400 Gbps per_direction, reference = nvlink, demand = 2 GB/s }
    link node { bandwidth = 400 Gbps per_direction, ports = 8, reference = nvlink }
    """
    result = faultless_result(text)
    assert result.figure("port.slower") == 9.0
    assert result.figure("port.headroom") == 25.0
    assert result.figure("port.occupied") == 0.04
    assert result.figure("node.total") == 400e9
    assert result.figure("node.slower") == 1.125


def test_a_link_without_a_rate_is_refused() -> None:
    assert "link-bandwidth" in refusals("link l { ports = 8 }")


def test_a_machine_has_dense_peaks_and_says_the_sparse_ones() -> None:
    found = values("use catalog.devices.h100_sxm\nmachine m { devices = 8 }")
    assert found["peak"] == 8 * 989e12
    assert found["sparse_peak"] == 2 * found["peak"]
    assert found["memory"] == 8 * 81_559 * 2**20  # nvidia-smi lists 81,559 MiB
    assert found["memory_bandwidth"] == pytest.approx(8 * 3.35e12)
    text = "use catalog.devices.a100_sxm_80g\nmachine m { compute = fp8 }"
    assert "has no fp8 peak" in refusals(text)["machine-peak"]


# --- state --------------------------------------------------------------------------------


@try_each("zero, each", [(0, 112.0), (1, 38.5), (2, 26.25), (3, 14.0)])
def test_zero_shares_out_one_class_after_another(zero: int, each: float) -> None:
    found = values(RECIPE + f"state s {{ parameters = 7 G, dp = 8, zero = {zero} }}")
    assert found["per_device"] == pytest.approx(each * 1e9)
    assert found["copies"] == pytest.approx(8 * each / 112)


def test_what_replicas_send_is_twice_their_gradients_and_sharded_ones_half_as_much_again() -> None:
    plain = values(RECIPE + "state s { parameters = 7 G, dp = 8 }")
    assert plain["traffic"] == 28e9
    assert plain["ring_traffic"] == 28e9 * 7 / 8
    sharded = values(RECIPE + "state s { parameters = 7 G, dp = 8, zero = 3 }")
    assert sharded["traffic_against_replicas"] == 1.5
    assert sharded["traffic_in_parameters"] == 3.0


def test_sharded_parameters_are_sent_for_every_micro_batch() -> None:
    # 7 G parameters over 8 ranks: 28 GB of fp32 gradients once, 14 GB of weights once or twice
    state = "use catalog.precisions.bf16\nstate s {{ parameters = 7 G, dp = 8, {} }}"
    sent = {
        (zero, m): values(state.format(f"zero = {zero}, micro_batches = {m}"))["ring_traffic"]
        for zero in range(4)
        for m in (1, 8)
    }
    of_one = {0: 56, 1: 42, 2: 42, 3: 56}
    of_eight = {0: 56, 1: 42, 2: 8 * 28 + 14, 3: 8 * 56}
    for zero in range(4):
        assert sent[zero, 1] == pytest.approx(of_one[zero] * 1e9 * 7 / 8)
        assert sent[zero, 8] == pytest.approx(of_eight[zero] * 1e9 * 7 / 8)


def test_tensor_and_pipeline_parallelism_share_gradients_out() -> None:
    found = values(RECIPE + "state s { parameters = 175 G, tp = 8, pp = 8 }")
    assert found["gradients_per_stage"] == 43.75e9
    assert found["gradients_per_device"] == pytest.approx(5.46875e9)


def test_a_state_that_fills_some_devices_exactly_needs_no_further_one() -> None:
    found = values(RECIPE + "state s { parameters = 65 G, capacity = 80 GB, tp = 8 }")
    assert found["devices_needed"] == 13.0
    assert found["fits"] == 0.0
    assert found["largest"] == 40e9
    assert found["widest_layer"] == pytest.approx(20412.4, abs=0.1)


def test_a_sheet_needs_a_recipe() -> None:
    with pytest.raises(SpecError, match="precision"):
        parcost.load_text("state s { parameters = 7 G }")[0].evaluate()


def test_a_layer_may_be_wider_on_more_tensor_parallel_ranks() -> None:
    """80 GB at 16 B of each of 12 h^2 parameters: h = sqrt(80e9 / 192) = 20,412; twice on 4 ranks."""
    (scenario,) = parcost.load_text(
        "use catalog.precisions.bf16\n"
        "precision sixteen extends bf16 { weights = 2 B, gradients = 2 B, optimizer = 12 B }\n"
        "state wide { parameters = 7 G, precision = sixteen, capacity = 80 GB }\n"
    )
    (section,) = (
        s
        for _, s in scenario.evaluate().result.sections
        if s.title == "Largest layer that fits, wide"
    )
    assert [row[0] for row in section.rows] == [1, 2, 4, 8]
    assert section.rows[0][1] == pytest.approx(20412.4, abs=0.1)
    assert section.rows[2][1] == pytest.approx(2 * 20412.4, abs=0.2)
    assert section.rows[2][3][0] == pytest.approx(4 * 80e9)
