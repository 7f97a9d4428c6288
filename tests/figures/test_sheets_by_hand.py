"""Sheets and estimates with a different prime for every factor, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Formula, Study, Work, plain_of
from parcost_plugins.analysis.figures import plausibility, statistics
from parcost_plugins.calculators.sheets.pipelines import replays, sketches
from parcost_plugins.vocabulary import ModelFlops

from ..evaluation import faultless_result


def values(text: str) -> dict[str, Any]:
    return {
        figure.name.partition(".")[2]: figure.value for _, figure in faultless_result(text).figures
    }


def formula(text: str, name: str) -> str:
    (found,) = [f for _, f in faultless_result(text).figures if f.name.partition(".")[2] == name]
    return found.formula.text


# --- estimates ------------------------------------------------------------------------------

JOB = "batch = 30 sequences, dp = 6, sequence = 7, tp = 2, pp = 3, micro_batches = 4, nodes = 2"


def estimate(more: str) -> dict[str, Any]:
    return values(f"estimate e {{ {JOB}, {more} }}")


def test_compute_streaming_and_overhead_add_up_by_hand() -> None:
    # 5 samples of 7 tokens: 6 x 1100 x 35 / 6 = 38500 FLOP; 2 B of 1100 / 11 parameters
    found = estimate(
        "parameters = 1100, weight = 2 B, shards = 11, peak = 100 FLOPS dense, utilisation = 50 %, "
        "stream = 10 B/s per_direction, activations = 3, dispatch = 13 s, layers = 17, launch = 2 s"
    )
    assert found["compute"] == pytest.approx(770.0)
    assert found["streaming"] == pytest.approx((1 + 3 * 5) * 200 / 10)
    assert found["busy"] == pytest.approx(770 + 13 + 34)
    assert found["communication"] == 0.0
    assert found["idle"] == pytest.approx(817 * 2 / 4)
    assert found["step_time"] == pytest.approx(817 * 1.5)
    slow = estimate(
        "parameters = 1100, weight = 2 B, shards = 11, stream = 2 B/s per_direction, activations = 3, "
        "dispatch = 13 s"
    )
    assert slow["busy"] == pytest.approx(1600 + 13)
    fast = estimate("parameters = 1100, weight = 2 B, dispatch = 13 s")
    assert fast["busy"] == 13.0  # neither a peak nor a stream: the host alone
    nothing = estimate("compute = 5 s, peak = 1 FLOPS dense, outer = 1 B/s per_direction")
    assert (nothing["compute"], nothing["gradients"], nothing["busy"]) == (0.0, 0.0, 5.0)


def test_tensor_parallelism_reduces_four_times_in_a_layer_of_a_stage() -> None:
    # 5 samples x 7 tokens x 11 x 2 B = 770 B; a ring of two sends all of it once, in two rounds
    found = estimate(
        "compute = 1 s, layers = 12, hidden = 11, weight = 2 B, parameters = 600, shards = 3, "
        "inner = 10 B/s per_direction, inner_latency = 3 s, outer = 5 B/s per_direction"
    )
    ring = 770 / 10 + 2 * 3
    assert found["tensor"] == pytest.approx(4 * 12 / 3 * ring)
    gradients = 2 * 5 / 6 * 400 / 5  # 400 B over six replicas
    assert found["gradients"] == pytest.approx(gradients)
    assert found["communication"] == pytest.approx(16 * ring + gradients)


def test_messages_take_their_time_or_their_bytes() -> None:
    known = estimate("compute = 1 s, messages = 5, message = 30 B, outer = 3 B/s per_direction")
    assert known["communication"] == 50.0
    assert known["sent"] == 150.0
    assert "gradients" not in known  # the messages are all that is sent
    timed = estimate("compute = 1 s, messages = 5, message_time = 7 s")
    assert timed["communication"] == 35.0
    slow = "estimate e { compute = 1 s, messages = 5, message = 30 B }"
    assert values(slow)["communication"] == 0.0  # over no link that is known


def test_a_ridge_by_hand() -> None:
    # 6 N x 7 x 30 / 6 / 6 FLOP over 2 N x 2 B / 5: 35 over 0.8
    found = estimate(
        "parameters = 1 G, weight = 2 B, shards = 5, peak = 700 FLOPS dense, target = 50 %, "
        "outer = 10 B/s per_direction"
    )
    assert found["intensity"] == pytest.approx(43.75)
    assert found["ridge"] == 70.0
    assert found["fed"] == pytest.approx(0.625)
    assert found["batch_at_ridge"] == pytest.approx(48.0)
    assert found["batch_for_target"] == pytest.approx(24.0)
    more = "parameters = 1 G, weight = 2 B, shards = 5, peak = 70 FLOPS dense"
    assert estimate(f"{more}, outer = 10 B/s per_direction")["fed"] == 1.0


# --- links, grids ---------------------------------------------------------------------------


def test_ports_add_up_on_both_links() -> None:
    text = """
    link fast { bandwidth = 35 GB/s per_direction, ports = 3 }
    link slow { bandwidth = 7 GB/s per_direction, ports = 5, reference = fast, demand = 70 GB/s }
    """
    result = faultless_result(text)
    assert result.figure("slow.total_bidirectional") == 70e9
    assert result.figure("slow.slower") == 3.0
    assert result.figure("slow.headroom") == 0.5
    assert result.figure("slow.occupied") == 2.0


def test_a_grid_of_primes() -> None:
    found = values("grid g { tp = 2, cp = 3, pp = 5, dp = 7, node = 11 devices }")
    assert found["devices"] == 210
    assert found["replica"] == 30
    assert (found["nodes"], found["replica_nodes"]) == (20, 3)  # 19.1 and 2.7, rounded up
    assert found["fast_domain"] == 6
    apart = "grid g { tp = 2, cp = 3, pp = 5, dp = 7, ep = 13, node = 11 devices, experts = apart }"
    assert values(apart)["devices"] == 2730
    assert formula(apart, "devices") == "tp cp pp dp ep"
    assert formula(apart.replace("apart", "within"), "devices") == "tp cp pp dp"


@pytest.mark.parametrize(("experts", "devices"), [("within", 210), ("apart", 2730)])
def test_the_last_rank_is_one_less_than_devices(experts: str, devices: int) -> None:
    text = f"grid g {{ tp = 2, cp = 3, pp = 5, dp = 7, ep = 13, experts = {experts}, rank = %d }}"
    assert [d.id for d in faultless_result(text % (devices - 1)).diagnostics] == []
    (found,) = faultless_result(text % devices).diagnostics
    assert found.message == f"there is no rank {devices}: ranks are 0 to {devices - 1}"


@pytest.mark.parametrize(("cp", "warned"), [(3, False), (4, True)])
def test_a_fast_domain_may_fill_its_node(cp: int, warned: bool) -> None:
    text = f"grid g {{ tp = 2, cp = {cp}, node = 6 devices }}"
    assert ("grid-node" in {d.id for d in faultless_result(text).diagnostics}) is warned


# --- state ----------------------------------------------------------------------------------

RECIPE = """
use catalog.precisions.bf16
precision own extends bf16 {
  weights = 2 B, gradients = 3 B, optimizer = 7 B, reduction = 5 B, gather = 11 B
}
device card {
  memory = 80 GB, memory_bandwidth = 10 GB/s, bf16 = 1 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}
"""


def state(more: str) -> dict[str, Any]:
    return values(
        RECIPE + f"state s {{ parameters = 30 G, precision = own, tp = 3, pp = 5, {more} }}"
    )


def test_a_state_of_primes() -> None:
    found = state("dp = 4, layers = 6")
    assert found["weights"] == 60e9
    assert (found["gradients"], found["optimizer"], found["total"]) == (90e9, 210e9, 360e9)
    assert found["gradients_per_layer"] == 15e9
    assert found["parameters_per_stage"] == 6e9
    assert found["parameters_per_device"] == 2e9
    assert (found["bytes_per_parameter"], found["copies"]) == (12.0, 4.0)
    assert found["per_device"] == 24e9
    assert found["gradients_per_stage"] == 18e9


def test_a_device_reads_its_weights_and_sends_its_gradients() -> None:
    text = """
    link wire { bandwidth = 5 GB/s per_direction, ports = 2 }
    %s
    """
    sheet = (
        "state s { parameters = 30 G, precision = own, tp = 3, pp = 5, dp = 4, device = card, "
        "zero = %d, link = wire, micro_batches = 3 }"
    )
    found = {zero: values(RECIPE + text % (sheet % zero)) for zero in range(4)}
    assert found[0]["read_time"] == pytest.approx(2 * 2 / 10)
    # 2 G parameters of 5 B reduced and of 11 B gathered: 2 g, g + w, m g + w, m (g + 2 w)
    for zero, traffic in {0: 20, 1: 32, 2: 52, 3: 162}.items():
        assert found[zero]["traffic"] == traffic * 1e9
        assert found[zero]["ring_traffic"] == pytest.approx(traffic * 1e9 * 3 / 4)
        assert found[zero]["traffic_against_replicas"] == pytest.approx(traffic / 20)
        assert found[zero]["traffic_in_parameters"] == pytest.approx(traffic / 22)
        assert found[zero]["traffic_time"] == pytest.approx(traffic / 10)
        (figure,) = [
            f
            for _, f in faultless_result(RECIPE + text % (sheet % zero)).figures
            if f.name == "s.traffic"
        ]
        assert ("micro-batches" in figure.note) is (zero > 1)
        assert ("m" in figure.formula.inputs) is (zero > 1)


def test_room_of_a_state_by_hand() -> None:
    # 12 B of each of 30 G parameters; devices of 100 GB of which 90 are usable
    found = state("devices = 4, capacity = 100 GB, usable = 90 %")
    assert found["devices_needed"] == 4.0
    assert found["capacity"] == 360e9
    assert found["fits"] == 1.0  # to the byte
    assert found["filled"] == 1.0
    assert found["largest"] == 30e9
    assert found["largest_weights"] == 60e9
    assert found["beside_weights"] == 90e9 - 4e9
    assert found["widest_layer"] == pytest.approx((90e9 / 144) ** 0.5)
    less = state("devices = 3, capacity = 100 GB, usable = 90 %")
    assert less["fits"] == 0.0
    assert less["filled"] == pytest.approx(4 / 3)
    text = (
        RECIPE + "state s { parameters = 30 G, precision = own, capacity = 100 GB, usable = 90 % }"
    )
    (table,) = [
        s for _, s in faultless_result(text).sections if s.title == "Largest layer that fits, s"
    ]
    assert table.rows[0][1] == pytest.approx((90e9 / 144) ** 0.5)
    assert table.rows[0][2][0] == pytest.approx(7.5e9)
    assert [row[4][0] for row in table.rows] == [90e9] * 4


# --- pipelines ------------------------------------------------------------------------------


def test_a_pipeline_of_chunks_is_counted() -> None:
    found = values(
        "pipeline p { kind = interleaved, stages = 3, micro_batches = 6, chunks = 2, layers = 30, "
        "kept = 7 B, capacity = 1 kB, message = 1 MB, target = 20 % }"
    )
    assert (found["operations"], found["passes"]) == (36, 72)
    assert found["transfers_per_boundary"] == 12
    assert found["boundaries"] == 5
    assert (found["layers_per_stage"], found["layers_per_virtual_stage"]) == (10, 5)
    # the first device starts 2 (p - 1) + p + 1 chunks before its first backward pass
    assert found["in_flight"] == 8.0
    assert found["activations"] == 8 * 5 * 7
    assert found["activation_share"] == pytest.approx(0.28)
    # a quarter of busy time is idle at most: (p - 1) / (m v) = (p - 1) / 12 <= 1 / 4
    assert found["most_stages"] == 4.0
    # each pass back is twice as long: 2 slots of half a stage are idle, 1.5 s of 3 s a batch
    assert found["bubble_against_one_chunk"] == 0.5


def test_a_note_of_a_figure_says_both_directions() -> None:
    result = faultless_result("pipeline p { stages = 3, micro_batches = 6, message = 1 MB }")
    notes = {f.name.removeprefix("p."): f.note for _, f in result.figures}
    assert notes["message_size"] == ""
    assert notes["first_stage"] == notes["last_stage"] == "counted from 1"
    for name in ("round_trip", "boundary_traffic", "traffic", "boundary_rate"):
        assert notes[name] == "both directions"


def test_two_stages_have_a_boundary_and_a_bubble_that_chunks_shorten() -> None:
    found = values("pipeline p { stages = 2, micro_batches = 4 }")
    assert found["transfers_per_boundary"] == 8
    assert (found["bubble_reduction"], found["bubble_against_one_chunk"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("more", "rejected"),
    [
        ("target = 100 %", True),
        ("target = 99 %", False),
        ("target = 100 %, target_of = busy", False),
    ],
)
def test_a_target_leaves_time_to_work(more: str, rejected: bool) -> None:
    result = faultless_result(f"pipeline p {{ stages = 4, micro_batches = 8, {more} }}")
    assert ("pipeline-target" in {d.id for d in result.diagnostics}) is rejected


def test_a_bubble_without_an_end_needs_one_micro_batch() -> None:
    found = values("pipeline p { stages = 1, micro_batches = 4, target = 20 % }")
    assert found["fewest_micro_batches"] == found["fewest_micro_batches_below"] == 1.0


@pytest.mark.parametrize(
    ("kind", "m", "v", "textbook"),
    [("interleaved", 8, 2, True), ("zb_v", 8, 2, False), ("one_f_one_b", 1000, 1, True)],
)
def test_the_formula_of_textbooks_stands_where_it_holds(
    kind: str, m: int, v: int, textbook: bool
) -> None:
    for seconds in ("1 ns", "1 s", "1000 h"):  # whatever the unit of a pass is
        text = f"pipeline p {{ kind = {kind}, stages = 4, micro_batches = {m}, chunks = {v}, "
        result = faultless_result(text + f"forward = {seconds} }}")
        (note,) = [f.note for _, f in result.figures if f.name == "p.bubble"]
        assert note.startswith("(p - 1) / (m v + p - 1), p stages") is textbook


def test_a_bubble_may_be_off_that_of_textbooks_by_no_more_than_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parcost_plugins.calculators.sheets.pipelines._ROUNDING", 0.0)
    result = faultless_result("pipeline p { stages = 4, micro_batches = 8, forward = 1 s }")
    (note,) = [f.note for _, f in result.figures if f.name == "p.bubble"]
    assert note.startswith("(p - 1) / (m v + p - 1), p stages")


def test_the_longest_order_is_worked_out_and_none_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parcost_plugins.calculators.sheets.pipelines.LONGEST_ORDER", 24)

    def study(stages: int, m: int, v: int) -> Study:
        more = f"kind = interleaved, stages = {stages}, micro_batches = {m}, chunks = {v}"
        return parcost.load_text(f"pipeline p {{ {more} }}")[0].studies()[0]

    assert len(list(replays(study(3, 4, 2)))) == 0  # 4 is not a multiple of 3
    assert len(list(replays(study(2, 6, 2)))) == 1
    (check,) = sketches(study(2, 8, 2))
    assert check.id == "pipeline-size"  # type: ignore[union-attr]
    assert check.holds is False  # type: ignore[union-attr]
    assert check.inputs["passes"] == 32  # type: ignore[union-attr]
    assert check.subject == "p.micro_batches"  # type: ignore[union-attr]


# --- a step ---------------------------------------------------------------------------------

Bind = Callable[..., Study]


def work(pass_: Any, seconds: float, **more: Any) -> Work:
    return Work(name=pass_, seconds=seconds, pass_=pass_, formula=Formula(text="given"), **more)


def test_columns_of_a_step_stand_in_their_order(bind: Bind) -> None:
    study = bind({"memory.usable": 0.5}, terms=[work("F", 1.0), work("B", 2.0)])
    outcome = study.evaluate()
    found = {
        f.name: f for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    columns = sorted((f.column, name) for name, f in found.items() if f.column is not None)
    assert [name for _, name in columns] == [
        "step_time", "mfu", "memory", "bubble", "headroom", "exposed_communication",
        "tokens_per_second",
    ]  # fmt: skip
    assert [column for column, _ in columns] == [1, 2, 3, 4, 5, 6, 7]
    assert found["memory"].whole == 40 * 2**30
    assert "bubble_average" not in found  # one stage has no average


def test_executed_flops_are_averaged_over_devices(bind: Bind) -> None:
    """Two devices of two chunks, four micro-batches: each chunk 3 GFLOP, one of four 5 more."""
    terms = [
        work("F", 1.0, flops=3e9),
        work("B", 1.0, flops=5e9, count=(0.0, 0.0, 0.0, 1.0)),
    ]
    loaded = parcost.plugins.discovery.load().offers("schedules")["interleaved"][1]
    study = bind(
        {"cluster.devices": 2, "layout.pp": 2, "training.global_batch": 4, "schedule.chunks": 2,
         "training.micro_batches": 4, "schedule.kind": "interleaved"},
        schedules=[loaded], terms=terms,
    )  # fmt: skip
    outcome = study.evaluate()
    found = {
        f.name: f for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    executed = 4 * (4 * 3e9 + 5e9) / 2
    assert found["hfu"].formula.inputs["D"][0] == executed
    assert found["hfu"].value == pytest.approx(executed / outcome.step_seconds / 100e12)


@pytest.mark.slow
def test_equal_stages_idle_alike(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16, "wire.net.bandwidth": 1e30},
        terms=[work("F", 1.0), work("B", 2.0)],
    )
    outcome = study.evaluate()
    found = {
        f.name: f.value
        for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    assert found["bubble"] == found["bubble_average"] == pytest.approx(3 / 11)
    figures = {
        f.name: f for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    parts = {
        kind: plain_of(part) for kind, (part, _) in figures["step_time"].formula.inputs.items()
    }
    assert parts["bubble"] == pytest.approx(9.0)
    assert sum(parts.values()) == pytest.approx(33.0)
    memory = figures["memory"]
    assert memory.formula.value == memory.value == outcome.memory_bytes


def test_layers_are_dealt_to_the_last(bind: Bind) -> None:
    assert counts_of(bind, 8, 4)["layers_dealt"].value == 8
    assert counts_of(bind, 33, 33)["layers_dealt"].value == 33


def counts_of(bind: Bind, layers: int, stages: int) -> dict[str, Any]:
    study = bind({"small.layers": layers, "cluster.devices": stages, "layout.pp": stages})
    outcome = SimpleNamespace(pipeline=study.pipeline, device_alive=[1])
    return {f.name: f for f in statistics.counts(study, outcome)}  # type: ignore[arg-type]


def test_chunks_of_a_step_are_counted(bind: Bind) -> None:
    study = bind({"small.layers": 30, "cluster.devices": 3, "layout.pp": 3, "schedule.chunks": 2})
    outcome = SimpleNamespace(pipeline=study.pipeline, device_alive=[1])
    found = {f.name: f.value for f in statistics.counts(study, outcome)}  # type: ignore[arg-type]
    m = study.pipeline.micro_batches
    assert found["operations"] == 3 * m * 2
    assert found["layers_per_stage"] == 10
    assert found["layers_per_virtual_stage"] == 5


def test_a_replica_of_primes_takes_nodes(bind: Bind) -> None:
    racks = """
    fabric racks {
      level node { size = 4 devices, bandwidth = 1 GB/s per_direction, latency = 0 s }
      level net { bandwidth = 1 GB/s per_direction, latency = 0 s }
    }
    """
    values = {"cluster.devices": 42, "cluster.fabric": "racks", "layout.tp": 2, "layout.cp": 3}
    study = bind(values, text=racks)
    found = {f.name: f.value for f in statistics.sizes(study)}
    assert (found["replica_devices"], found["replicas"]) == (6, 7)
    assert (found["nodes"], found["replica_nodes"]) == (11, 2)  # 10.5 and 1.5, rounded up


def test_experts_are_sparse_by_those_that_a_token_leaves_out(bind: Bind) -> None:
    found = {
        f.name: f.value for f in statistics.sizes(bind({"small.experts": 12, "small.top_k": 3}))
    }
    assert found["expert_sparsity"] == 4.0


# --- what no step beats ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "holds", "mfu"), [(2.0, True, 100.0), (0.5, False, 400.0), (4.0, True, 50.0)]
)
def test_a_step_takes_its_flops_at_the_peak_of_all_devices(
    step: float, holds: bool, mfu: float, bind: Bind
) -> None:
    """8 x 1024 tokens on 8 devices of 100 TFLOP/s: two seconds for twice 100e12 FLOP each."""
    per_token = ModelFlops(name="f", kind="matmul", per_token=2e14 / 3 / 1024)
    study = bind(flops=[per_token])
    outcome = SimpleNamespace(step_seconds=step)
    check, likely = plausibility.rules(study, outcome)  # type: ignore[arg-type]
    assert check.holds is holds
    assert likely.id == "implausible-mfu"
    assert likely.holds or likely.severity == "warning"
    assert likely.holds is (mfu != 100.0)  # beyond 100 % it is an error already
    assert likely.inputs["mfu"] == pytest.approx(mfu)
    assert check.inputs["least"] == pytest.approx(2.0)
    assert check.inputs["mfu"] == pytest.approx(mfu)
    assert check.inputs["compute"] == "bf16"


def test_memory_is_the_sum_of_its_terms_to_the_byte() -> None:
    (memory,) = [
        figure
        for _, figure in faultless_result(
            "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"
            "use catalog.models.llama32_1b\nuse catalog.precisions.bf16\n"
            "cluster { devices = 8 }\ntraining { sequence = 2048, global_batch = 8 sequences }"
        ).figures
        if figure.name == "memory"
    ]
    assert memory.formula.value == pytest.approx(memory.value, rel=1e-12)
