"""What is kept on the host: what leaves the device, what that sends, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Formula, Memory, Outcome, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost_plugins.schedules.interleaved import Interleaved
from parcost_plugins.vocabulary import Parameters

from ..evaluation import details_of
from ..rows import try_each

Bind = Callable[..., Study]

GIVEN = Formula(text="given")
LINK = {"plain.host_bandwidth": 50e9}
HOST = {**LINK, "offload.host_memory_bandwidth": 100e9}


ON_HOST = {"offload.optimizer": 1, "mixed.norm_traffic": 12}
FETCHES = "host_sums = fetch, update_gradients = 8 B, gradient_overlap = off"


def offload_study(
    bind: Bind, values: dict[str, Any], link: dict[str, Any] = LINK, framework: str = ""
) -> Study:
    """Bind a billion parameters that keep 8 GB of activations; 1 s forward, 2 s backward."""
    chosen = {"training.framework": "own"} if framework else {}
    return bind(
        {**link, **values, **chosen},
        f"framework own {{ {framework} }}\n" if framework else "",
        parameters=[Parameters(name="all", elements=1e9, total=1e9, count=(1.0,))],
        terms=[
            Work(name="f", seconds=1.0, pass_="F", formula=GIVEN),
            Work(name="b", seconds=2.0, pass_="B", formula=GIVEN),
        ],
        memory=[Memory(name="kept", bytes_=8e9, formula=GIVEN, per_micro_batch=True)],
    )


def outcome_of(study: Study) -> Outcome:
    outcome = evaluate(study)
    assert study.faults == []
    return outcome


def times(study: Study) -> dict[str, tuple[Any, Any]]:
    return {line.name: (line.exposed, line.hidden) for line in outcome_of(study).ledger}


def lines(study: Study) -> dict[str, Any]:
    return {line.name: line.bytes_ for line in outcome_of(study).memory_lines}


def details(study: Study) -> dict[str, Any]:
    outcome = outcome_of(study)
    return {f.name: f.value for _, f in details_of(study, outcome)}


def failures(study: Study) -> dict[str, Any]:
    checks = [check for _, check in study.contributions("checks")]
    return {check.id: check for check in checks if not np.all(check.holds)}


def test_a_host_that_updates_takes_gradients_and_returns_parameters(bind: Bind) -> None:
    study = offload_study(bind, {"offload.optimizer": 1, "layout.zero": 1}, HOST)
    found = times(study)
    # an eighth of a billion: 4 B there and 2 B back at 50 GB/s, 30 B of Adam at 100 GB/s
    assert found["gradients to the host"][0] == pytest.approx(0.5e9 / 50e9)
    assert found["updated parameters from the host"][0] == pytest.approx(0.25e9 / 50e9)
    assert found["optimizer update on the host"][0] == pytest.approx(3.75e9 / 100e9)
    assert "optimizer update" not in found
    assert "optimizer state" not in lines(study)
    assert details(study)["host_memory"] == pytest.approx((12e9 + 4e9) / 8)


@try_each(
    "zero, batch, device, sums, host",
    [
        # of 8 ranks; 12 B of state, 8 B for the update, 4 B of sums and 2 B of updated weights
        (1, 32, 4e9, 0, (12 + 8 + 4 + 2) * 1e9 / 8),
        (2, 32, 0, 3 * 0.01, (12 + 8 + 4 + 2) * 1e9 / 8),
        (2, 8, 0, 0, (12 + 8 + 2) * 1e9 / 8),
        (3, 32, 0, 4 * 0.01, (12 + 8 + 4) * 1e9 / 8),
        (3, 8, 0, 0.01, (12 + 8 + 4) * 1e9 / 8),
    ],
)
def test_sums_of_gradients_are_fetched_for_each_addition(
    bind: Bind, zero: int, batch: int, device: float, sums: float, host: float
) -> None:
    """DeepSpeed: a shard of 0.125e9 gradients of 4 B, 10 ms at 50 GB/s, in 4 micro-batches or 1."""
    values = {"layout.zero": zero, "training.global_batch": batch, **ON_HOST}
    study = offload_study(bind, values, HOST, FETCHES)
    found = times(study)
    for name in ("sums of gradients from the host", "sums of gradients to the host"):
        assert sum(found.get(name, (0, 0))) == pytest.approx(sums)
    # in the type of the update, 8 B each, once per step; scaled on the host: read and written
    assert found["gradients to the host"] == pytest.approx((1e9 / 50e9, 0.0))
    assert found["optimizer update on the host"][0] == pytest.approx((30 + 16) / 8 * 1e9 / 100e9)
    # on the device the norm reads 4 B, and a cast reads 4 and writes 8
    assert found["gradient norm and clipping"][0] == pytest.approx(16 / 8 * 1e9 / 0.5e12)
    assert lines(study).get("gradients", 0) == device
    # the buffer of the largest matrix is here the whole of one layer, but ZeRO 3 has none
    assert lines(study).get("buffer for a sum of gradients", 0) == (0 if zero == 3 else 4e9)
    assert details(study)["host_memory"] == pytest.approx(host)


@pytest.mark.parametrize(("zero", "check"), [(1, 36), (2, 36), (3, 0)])
def test_gradients_of_16_bits_on_their_way_to_the_host(bind: Bind, zero: int, check: int) -> None:
    """A copy in float64 (2 + 8), its norm (8), a check, a cast to fp32 (2 + 4); Adam (28 + 6)."""
    given = {"mixed.gradients": 2, "mixed.update_traffic": 44, "mixed.host_update_traffic": 34}
    values = {"layout.zero": zero, "training.global_batch": 8, **ON_HOST, **given}
    more = f"{FETCHES.replace('= 8 B', '= 4 B')}, norm_copy = 8 B, sent_check = 36 B"
    found = times(offload_study(bind, values, HOST, more))
    moved = 2 + 8 + 8 + 2 + 4 + check
    assert found["gradient norm and clipping"][0] == pytest.approx(moved / 8 * 1e9 / 0.5e12)
    # the host scales them: read and written
    assert found["optimizer update on the host"][0] == pytest.approx((34 + 8) / 8 * 1e9 / 100e9)


@pytest.mark.parametrize(("zero", "batch", "seconds"), [(2, 32, 0.01), (2, 8, 0.0), (3, 32, 0.04)])
def test_sums_may_be_sent_in_the_first_micro_batch_alone(
    bind: Bind, zero: int, batch: int, seconds: float
) -> None:
    """DeepSpeed from 0.15.4 on: of 4 micro-batches 3 fetch 0.5 GB at 50 GB/s, and 1 sends it."""
    values = {"layout.zero": zero, "training.global_batch": batch, **ON_HOST}
    found = times(offload_study(bind, values, HOST, f"{FETCHES}, returns_host_sums = off"))
    assert sum(found.get("sums of gradients to the host", (0, 0))) == pytest.approx(seconds)
    fetched = {(2, 32): 0.03, (2, 8): 0.0, (3, 32): 0.04}[zero, batch]
    assert sum(found.get("sums of gradients from the host", (0, 0))) == pytest.approx(fetched)


def test_sums_under_backward_hide_there(bind: Bind) -> None:
    values = {"layout.zero": 3, "training.global_batch": 32, **ON_HOST}
    found = times(offload_study(bind, {**values, "overlap.gradients": "on"}, HOST, FETCHES))
    assert found["sums of gradients to the host"] == (0.0, pytest.approx(0.04))
    assert found["gradients to the host"] == (0.0, pytest.approx(0.02))


def test_a_host_adds_gradients_of_each_micro_batch(bind: Bind) -> None:
    """FSDP2: 0.5 GB each of 4 times; the host adds 3 times 1.5 GB, and waits for those copies."""
    values = {"layout.zero": 3, "training.global_batch": 32, **ON_HOST}
    study = offload_study(bind, {**values, "overlap.gradients": "on"}, HOST, "host_sums = add")
    found = times(study)
    assert found["gradients to the host"] == (pytest.approx(0.03), pytest.approx(0.01))
    assert found["sums of gradients"] == (pytest.approx(3 * 1.5e9 / 100e9), 0.0)
    assert found["optimizer update on the host"][0] == pytest.approx((30 + 12) / 8 * 1e9 / 100e9)
    assert "gradient norm and clipping" not in found
    assert not any(name.startswith("gradient accumulation") for name in found)
    assert "gradients" not in lines(study)
    assert details(study)["host_memory"] == pytest.approx((12 + 4) / 8 * 1e9)


@pytest.mark.parametrize(
    ("optimizer", "parameters", "way", "seconds"),
    [
        (1, 1, None, 0.0),  # the host updates all of the weights, and holds them
        (0.75, 0.25, "from", 0.5 * 0.25e9 / 50e9),
        (0.25, 0.75, "to", 0.5 * 0.25e9 / 50e9),
    ],
)
def test_updated_parameters_cross_the_link_where_they_live_on_its_other_side(
    bind: Bind, optimizer: float, parameters: float, way: str | None, seconds: float
) -> None:
    """A rank has an eighth of a billion parameters, 0.25 GB, at 50 GB/s."""
    values = {"offload.optimizer": optimizer, "offload.parameters": parameters, "layout.zero": 3}
    found = times(offload_study(bind, values, HOST))
    crossed = {name: time for name, (time, _) in found.items() if name.startswith("updated")}
    assert crossed == (
        {f"updated parameters {way} the host": pytest.approx(seconds)} if way else {}
    )
    assert found["gradients to the host"][0] == pytest.approx(optimizer * 0.5e9 / 50e9)


def test_half_of_the_state_on_the_host_updates_half_there(bind: Bind) -> None:
    study = offload_study(bind, {"offload.optimizer": 0.5}, HOST)
    found = times(study)
    assert found["optimizer update"][0] == pytest.approx(15e9 / 0.5e12)
    assert found["optimizer update on the host"][0] == pytest.approx(15e9 / 100e9)
    assert lines(study)["optimizer state"] == 6e9


def test_state_that_the_device_updates_comes_and_goes_at_once(bind: Bind) -> None:
    study = offload_study(bind, {"offload.optimizer": 1, "offload.update": "device"})
    found = times(study)
    assert found["optimizer state from and to the host"][0] == pytest.approx(12e9 / 50e9)
    assert found["optimizer update"][0] == pytest.approx(30e9 / 0.5e12)


@pytest.mark.slow
def test_activations_go_in_forward_and_come_back_in_backward(bind: Bind) -> None:
    study = offload_study(bind, {"offload.activations": 0.5})
    found = times(study)
    # 4 GB at 50 GB/s hide under 1 s and 2 s
    assert found["activations to the host"] == pytest.approx((0.0, 0.08))
    assert found["activations back"] == pytest.approx((0.0, 0.08))
    held = lines(study)
    assert held["kept"] == 4e9
    assert details(study)["host_memory"] == 4e9
    assert details(study)["activation_memory"] == 4e9


def test_a_host_keeps_every_chunk_of_its_device_and_experts_besides(bind: Bind) -> None:
    values = {
        **LINK,
        "layout.pp": 2,
        "layout.ep": 2,
        "schedule.kind": "interleaved",
        "schedule.chunks": 2,
        "offload.optimizer": 1,
        "offload.update": "device",
    }
    each = (1.0, 1.0, 1.0, 1.0)
    study = bind(
        values,
        parameters=[
            Parameters(name="dense", elements=1e9, total=4e9, count=each),
            Parameters(name="experts", elements=2e9, total=8e9, count=each, expert=True),
        ],
        schedules=[Interleaved()],
    )
    # two of four virtual stages on a device, each of 3e9 parameters with 12 B of state
    assert details(study)["host_memory"] == pytest.approx(2 * 3e9 * 12)


@pytest.mark.parametrize(("overlap", "layers"), [("off", 1), ("on", 2)])
def test_what_the_layer_at_work_needs_is_back_on_the_device(overlap: str, layers: int) -> None:
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_8b
        cluster {{ devices = 8 }}
        layout {{ zero = 3 }}
        offload {{ activations = 100 %, overlap = {overlap} }}
        training {{ sequence = 8192, global_batch = 8 sequences }}
        """
    )
    found = {}
    for recompute in ("none", "selective", "full"):
        outcome = scenario.replace({"training.recompute": recompute}).evaluate().result.outcome
        assert outcome is not None
        found[recompute] = outcome.memory_bytes
        if recompute == "none":
            back = sum(
                line.bytes_ for line in outcome.memory_lines if "to and from the host" in line.name
            )
            # gate, up and their product; five tensors of the width of the model; keys and
            # values; four bytes of statistics for each of 32 heads
            token = 2 * 3 * 14_336 + 2 * 5 * 4096 + 2 * 2 * 1024 + 4 * 32
            assert back == layers * 8192 * token
            (sent,) = {line.term.bytes_ for line in outcome.ledger if "to the host" in line.name}
            # with the layer's input, and nothing of the head
            assert sent == 32 * 8192 * (token + 2 * 4096)
    assert found["none"] >= found["selective"] >= found["full"]


def test_a_slow_link_shows_what_does_not_hide(bind: Bind) -> None:
    slow = {"plain.host_bandwidth": 2e9}
    found = times(offload_study(bind, {"offload.activations": 1}, slow))
    assert found["activations to the host"] == pytest.approx((3.0, 1.0))
    assert found["activations back"] == pytest.approx((2.0, 2.0))
    found = times(offload_study(bind, {"offload.activations": 1, "offload.overlap": "off"}))
    assert found["activations to the host"] == pytest.approx((0.16, 0.0))


def test_sharded_parameters_come_for_each_gather(bind: Bind) -> None:
    values = {"offload.parameters": 1, "layout.zero": 3, "overlap.parameters": "on"}
    study = offload_study(bind, values)
    terms = [t for _, t in study.contributions("terms") if t.name == "parameters from the host"]
    assert [(t.pass_, t.bytes_) for t in terms] == [("F", 2e9 / 8), ("B", 2e9 / 8)]
    assert "weights" not in lines(study)


def test_activations_of_the_ends_stay_on_the_device(bind: Bind) -> None:
    """Three quarters of 8 GB of the layers leave, and none of the 2 GB of the head."""
    study = bind(
        {**LINK, "offload.activations": 0.75, "memory.fragmentation": 0.1},
        terms=[Work(name="f", seconds=1.0, pass_="F", formula=GIVEN)],
        memory=[
            Memory(name="kept", bytes_=8e9, formula=GIVEN, per_micro_batch=True),
            Memory(name="logits", bytes_=2e9, formula=GIVEN, per_micro_batch=True, resident=True),
        ],
    )
    held = lines(study)
    assert (held["kept"], held["logits"]) == (2e9, 2e9)
    assert held["fragmentation"] == pytest.approx(0.4e9)
    assert times(study)["activations to the host"] == pytest.approx((0.0, 6e9 / 50e9))
    assert details(study)["host_memory"] == 6e9


def test_all_activations_of_a_pipeline_leave_room_for_none(bind: Bind) -> None:
    study = bind(
        {**LINK, "layout.pp": 2, "offload.activations": 1, "memory.fragmentation": 0.06},
        parameters=[Parameters(name="all", elements=1e6, total=1e6, count=(1.0, 1.0))],
        memory=[
            Memory(name="kept", bytes_=1e9, formula=GIVEN, per_micro_batch=True, count=(1.0, 2.0))
        ],
    )
    outcome = outcome_of(study)
    assert "kept" not in {line.name for line in outcome.memory_lines}
    assert all(line.bytes_ > 0 for line in outcome.memory_lines)
    assert all(bytes_ >= 0 for bytes_ in outcome.device_memory)


@pytest.mark.slow
def test_what_is_on_the_host_neither_fragments_nor_makes_others_negative(bind: Bind) -> None:
    study = offload_study(bind, {"offload.activations": 0.75, "memory.fragmentation": 0.1})
    held = lines(study)
    # a quarter of 8 GB stays, and an allocator fragments that quarter
    assert held["kept"] == 2e9
    assert held["fragmentation"] == pytest.approx(0.2e9)
    assert "activations on the host" not in held
    assert details(study)["other_memory"] >= 0
    gone = offload_study(bind, {"offload.activations": 1, "memory.fragmentation": 0.1})
    assert all(bytes_ > 0 for bytes_ in lines(gone).values())
    assert details(gone)["activation_memory"] == 0
    assert details(gone)["other_memory"] >= 0


@pytest.mark.slow
def test_a_sweep_over_shares_gives_what_each_gives_alone(bind: Bind) -> None:
    def study(share: Any) -> Study:
        return offload_study(
            bind, {"offload.optimizer": share, "offload.activations": "offload.optimizer"}, HOST
        )

    together = outcome_of(study([0, 0.5, 1]))
    alone = [outcome_of(study(share)) for share in (0, 0.5, 1)]
    np.testing.assert_allclose(together.step_seconds, [o.step_seconds for o in alone], rtol=1e-12)
    np.testing.assert_allclose(together.memory_bytes, [o.memory_bytes for o in alone], rtol=1e-12)


@pytest.mark.parametrize("part", ["optimizer", "parameters", "activations"])
def test_offloading_needs_a_link_to_the_host(bind: Bind, part: str) -> None:
    study = offload_study(bind, {f"offload.{part}": 0.5, "layout.zero": 3}, {})
    found = diagnose(failures(study)["offload-needs-host-bandwidth"], study)
    of = {"optimizer": "optimizer state", "activations": "saved activations"}.get(part, part)
    assert found.message == (
        f"50 % of the {of} is offloaded, but the device has no `host_bandwidth`"
    )


def test_an_outer_state_on_the_host_needs_a_link_too(bind: Bind) -> None:
    study = offload_study(bind, {"local_updates.offload": "on", "local_updates.workers": 8}, {})
    assert "offload-needs-host-bandwidth" in failures(study)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_parameters_that_are_not_sharded_stay_on_the_device(bind: Bind, zero: int) -> None:
    study = offload_study(bind, {"offload.parameters": 1, "layout.zero": zero})
    assert "offload-needs-sharding" in failures(study)


def test_a_host_that_updates_says_how_fast(bind: Bind) -> None:
    assert "offload-needs-host-memory-bandwidth" in failures(
        offload_study(bind, {"offload.optimizer": 1})
    )
    assert "offload-needs-host-memory-bandwidth" not in failures(
        offload_study(bind, {"offload.optimizer": 1}, HOST)
    )


def test_a_host_that_is_too_small_says_so(bind: Bind) -> None:
    study = offload_study(bind, {"offload.optimizer": 1, "offload.host_memory": 10e9}, HOST)
    outcome = outcome_of(study)
    asked = study.plugins.ask("outcome_checks", study=study, outcome=outcome)
    (check,) = [check for _, check in asked if check.id == "host-does-not-fit"]
    assert diagnose(check, study).message == (
        "a device offloads 14.9 GiB, but the host memory has 9.3 GiB per device"
    )


def test_the_point_of_a_sweep_that_keeps_all_on_the_device_needs_no_host(bind: Bind) -> None:
    study = offload_study(bind, {"offload.optimizer": [0, 0.5]}, {})
    assert [list(check.holds) for check in failures(study).values()] == [[True, False]] * 2
    study = offload_study(bind, {"offload.parameters": [0, 0.5]})
    assert list(failures(study)["offload-needs-sharding"].holds) == [True, False]
