"""The cut of the step into stages, the hop between them, and layers that do not divide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Diagnostic, Edge, Op, PipelineShape, Schedule, Study, load_text
from parcost.engine.rules import diagnose, rules
from parcost_plugins.physics import layers

from ..rows import try_each

Bind = Callable[..., Study]


def hops(study: Study) -> list[Edge]:
    return [term for _, term in study.contributions("terms") if isinstance(term, Edge)]


def complaints(study: Study, *ids: str) -> list[Diagnostic]:
    return [diagnose(check, study) for check in rules(study).failed if check.id in ids]


def test_the_step_is_cut_as_layout_and_schedule_say(bind: Bind) -> None:
    cut = bind({"layout.pp": 4, "training.global_batch": 16}).pipeline
    assert (cut.schedule, cut.stages, cut.chunks, cut.micro_batches) == ("one_f_one_b", 4, 1, 8.0)


def test_a_hop_carries_the_residual_stream_of_a_micro_batch(bind: Bind) -> None:
    (edge,) = hops(bind({"layout.pp": 2, "training.micro_batch": 2}))
    assert edge.bytes_ == 2 * 1024 * 2 * 1024  # two bytes, s, b, h
    assert edge.seconds == pytest.approx(4194304 / 1e9)
    assert edge.resource == "net"


def test_sequence_parallelism_divides_the_hop(bind: Bind) -> None:
    (whole,) = hops(bind({"layout.pp": 2, "layout.tp": 4}))
    (share,) = hops(bind({"layout.pp": 2, "layout.tp": 4, "layout.sequence_parallel": "on"}))
    assert share.bytes_ == whole.bytes_ / 4


def test_one_stage_has_no_hop(bind: Bind) -> None:
    assert hops(bind()) == []


@pytest.mark.slow
def test_the_hop_of_the_worked_example_takes_0_39283_ms(bind: Bind) -> None:
    (edge,) = hops(
        bind(
            {
                "cluster.devices": 64,
                "wire.net.bandwidth": 45e9,
                "wire.net.latency": 20e-6,
                "small.hidden": 8192,
                "training.sequence": 8192,
                "layout.tp": 8,
                "layout.pp": 4,
                "layout.sequence_parallel": "on",
            }
        )
    )
    assert edge.seconds == pytest.approx(0.39283e-3, rel=1e-5)


@pytest.mark.parametrize(
    "machine, inside, across",
    [
        # 16 stages in a row, eight to a node. Inside: 81 % of 150 GB/s, 82 % of 450 GB/s.
        # Only boundary 7 to 8 leaves: 90 % of half of 12.5 GB/s, or of 50 GB/s.
        ("v100_sxm2_32g dgx_v100 fp16", 3.4e-6 + 2**24 / 121.5e9, 14e-6 + 2**24 / 11.25e9),
        ("h100_sxm hgx_h100 bf16", 3.4e-6 + 2**24 / 369e9, 14e-6 + 2**24 / 45e9),
    ],
)
def test_only_the_hop_that_leaves_the_node_is_slow(
    machine: str, inside: float, across: float
) -> None:
    device, fabric, precision = machine.split()
    (scenario,) = load_text(
        f"""
        use catalog.devices.{device}
        use catalog.fabrics.{fabric}
        use catalog.models.llama3_8b
        use catalog.precisions.{precision}
        cluster {{ devices = 64 }}
        layout {{ pp = 16, tp = 4, order = "pp-tp-dp", sequence_parallel = on }}
        training {{ sequence = 8192, micro_batch = 1, global_batch = 16 sequences }}
        """
    )
    (edge,) = hops(scenario.studies()[0])
    assert edge.boundaries == pytest.approx([inside] * 7 + [across] + [inside] * 7, rel=0.01)
    assert edge.seconds == max(edge.boundaries)
    # The head makes the last stage the slowest by far, so one round trip is exposed.
    (result,) = scenario.evaluate().results
    (line,) = [line for line in result.outcome.ledger if line.kind == "send_recv"]
    assert line.exposed == pytest.approx(2 * (14 * inside + across), rel=0.01)
    assert line.exposed == pytest.approx({"h": 2.14e-3, "v": 6.97e-3}[device[0]], rel=0.01)


def test_layers_that_do_not_divide_name_the_nearest_stages_and_a_list_that_fits(
    bind: Bind,
) -> None:
    (found,) = complaints(
        bind({"layout.pp": 4, "small.layers": 18, "schedule.assignment": "even"}), "layers-divide"
    )
    assert found.message == "18 layers are not divisible by pp 4"
    assert found.help == (
        "pp = 3 or 6 divides; or count both ends as layers: "
        "`schedule.count_embedding = on` with `schedule.count_head = on`; "
        "or shorten the first and last stage: `schedule.assignment = short_ends`; "
        "or deal them unevenly: `schedule.stages = [...]` with 2 times 5 and 2 times 4"
    )


@pytest.mark.slow
def test_counted_ends_and_chunks_are_in_the_message(bind: Bind) -> None:
    values = {"layout.pp": 4, "schedule.chunks": 2, "schedule.count_head": "on"}
    (found,) = complaints(bind(values), "layers-divide")
    assert found.message == "8 layers + head are not divisible by pp 4 x chunks 2 = 8"


def test_layers_that_divide_with_their_ends_pass(bind: Bind) -> None:
    ends = {"schedule.count_embedding": "on", "schedule.count_head": "on"}
    study = bind({"layout.pp": 4, "small.layers": 14, **ends})
    assert not complaints(study, "layers-divide")


@try_each(
    "assignment, count, expected",
    [
        ("front", 10, (3, 3, 2, 2)),
        ("fill", 10, (3, 3, 3, 1)),  # 3 is the least that four stages hold 10 in
        ("fill", 5, (2, 2, 1, 0)),
        ("ends", 10, (2, 3, 3, 2)),  # 12 with embedding and head
        ("ends", 12, (3, 4, 3, 2)),  # 14: 4, 4, 3, 3 less an end each
        ("front", 8, (2, 2, 2, 2)),
    ],
)
def test_layers_that_do_not_divide_are_dealt_by_the_rule_that_is_named(
    bind: Bind, assignment: str, count: int, expected: tuple[int, ...]
) -> None:
    values = {"layout.pp": 4, "small.layers": count, "schedule.assignment": assignment}
    study = bind(values)
    assert layers(study) == expected
    assert not complaints(study, "layers-divide", "layers-few")


def test_the_framework_deals_where_the_schedule_does_not_say() -> None:
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.models.llama31_405b
        use catalog.precisions.bf16_fsdp
        use catalog.frameworks.torchtitan
        cluster { devices = 80 }
        layout { pp = 10, tp = 8 }
        training { sequence = 8192, global_batch = 64 sequences }
        """
    )
    # 126 layers + embedding + head are 128: 13 on the first eight stages, 12 on the others
    assert layers(scenario.first) == (12, *[13] * 7, 12, 11)


def test_fewer_layers_than_stages_are_refused_however_they_are_dealt(bind: Bind) -> None:
    values = {"layout.pp": 8, "small.layers": 6, "schedule.assignment": "front"}
    (found,) = complaints(bind(values), "layers-few")
    assert found.message == "6 layers are too few for pp 8"
    assert found.help == "choose at most 6 stages"


@pytest.mark.slow
def test_a_list_of_stages_must_cover_the_stages_and_the_layers(bind: Bind) -> None:
    wrong = bind({"layout.pp": 4}, "schedule { stages = [3, 3, 3] }")
    assert [d.message for d in complaints(wrong, "stages-count", "stages-sum")] == [
        "`stages` has counts for 3 stages, but there are pp 4",
        "`stages` adds up to 9 layers, but the model has 8",
    ]
    right = bind({"layout.pp": 4}, "schedule { stages = [1, 3, 3, 1] }")
    assert not complaints(right, "stages-count", "stages-sum", "layers-divide")


class EvenSchedule(Schedule):
    name = "even"

    def order(self, *_: int) -> list[list[Op]]:
        raise AssertionError("asked for an order that does not exist")

    def limits(self, shape: PipelineShape) -> str | None:
        return "micro-batches come in pairs" if shape.micro_batches % 2 else None


def test_a_schedule_that_does_not_exist_there_says_why(bind: Bind) -> None:
    values = {"schedule.kind": "even", "training.global_batch": [24, 32]}
    study = bind(values, schedules=[EvenSchedule()])
    (check,) = [c for c in rules(study).failed if c.id == "schedule-limits"]
    assert list(check.holds) == [False, True]  # 3 and 4 micro-batches on each of 8 replicas
    assert diagnose(check, study).message == (
        "`even` does not run with pp 1 and 3 micro-batches: micro-batches come in pairs"
    )


def test_traffic_of_a_boundary_in_a_step() -> None:
    # 32 micro-batches of 4096 tokens over two stages at 50 GB/s: 64 messages of 67.1 MB
    (scenario,) = load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.precisions.bf16
        use catalog.models.llama2_70b
        fabric wire { level net { bandwidth = 50 GB/s per_direction, latency = 0 s } }
        cluster { devices = 2 }
        layout { pp = 2 }
        training { sequence = 4096, global_batch = 32 sequences }
        """
    )
    result = scenario.evaluate().results[0]
    assert result.figure("pp_send_recv_bytes") == pytest.approx(67.1e6, abs=0.05e6)
    assert result.figure("pp_transfers_per_boundary") == 64
    assert result.figure("pp_volume_per_boundary") == pytest.approx(4.295e9, abs=0.0005e9)
    assert result.figure("pp_time_per_boundary") == pytest.approx(85.9e-3, abs=0.05e-3)
    assert result.figure("pp_volume") == result.figure("pp_volume_per_boundary")


def test_the_turn_of_a_v_sends_nothing() -> None:
    # four virtual stages on devices 0, 1, 1 and 0: two messages each way, and three in a loop
    def volume(kind: str) -> float:
        (scenario,) = load_text(
            f"""
            use catalog.devices.h100_sxm
            use catalog.fabrics.hgx_h100
            use catalog.models.llama3_8b
            use catalog.precisions.bf16
            cluster {{ devices = 2 }}
            layout {{ pp = 2 }}
            schedule {{ kind = {kind}, chunks = 2 }}
            training {{ sequence = 1024, global_batch = 8 sequences }}
            """
        )
        return scenario.evaluate().results[0].figure("pp_volume")

    message = 1024 * 4096 * 2
    assert volume("zb_v") == 2 * 2 * 8 * message
    assert volume("interleaved") == 3 * 2 * 8 * message


def test_a_context_parallel_rank_hands_on_its_share() -> None:
    def hop(layout: str) -> float:
        (scenario,) = load_text(
            f"""
            use catalog.devices.h100_sxm
            use catalog.fabrics.hgx_h100
            use catalog.precisions.bf16
            use catalog.models.llama2_70b
            cluster {{ devices = 16 }}
            layout {{ {layout} }}
            training {{ sequence = 4096, global_batch = 32 sequences }}
            """
        )
        (edge,) = [
            t for _, t in scenario.studies()[0].contributions("terms") if isinstance(t, Edge)
        ]
        return float(edge.bytes_)

    assert hop("pp = 2, cp = 4") == hop("pp = 2") / 4


def test_chunks_of_a_single_stage_are_refused() -> None:
    text = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
schedule { kind = interleaved, chunks = 2 }
training { sequence = 1024, global_batch = 8 sequences }
"""
    (scenario,) = parcost.load_text(text)
    assert "chunks-alone" in {d.id for d in scenario.evaluate().diagnostics}
