"""Attributes that are written and not read are reported, with what they wait for."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import parcost
from parcost import Diagnostic
from parcost_plugins.vocabulary import Overlap

from ..rows import mark_most, try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
device roomy extends h100_sxm {{ memory = 1 TB }}
cluster {{ device = roomy, devices = 16 }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 32 sequences }}
{more}
"""


def unread_warnings(more: str) -> list[Diagnostic]:
    report = parcost.load_text(SPEC.format(more=more))[0].evaluate()
    return [d for d in report.result.diagnostics if d.id == "no-effect"]


AWAY = "offload { optimizer = 10 % }"

# Text of the spec; the report; and the text that makes it read.
UNREAD = [
    ("schedule { group = 4 }", "`group`", "schedule { kind = interleaved, chunks = 4 }"),
    ("schedule { overlap = 50 % }", "`overlap`", "schedule { kind = dualpipe }"),
    ("overlap { chunks = 4 }", "`chunks`", "overlap { tensor = pipelined }"),
    ("overlap { chunk_overhead = 1 us }", "`chunk_overhead`", "overlap { tensor = pipelined }"),
    ("schedule { stages = [32], count_head = on }", "`count_head`", ""),
    ("context { double_buffer = off }", "`double_buffer`", "layout { cp = 2 }"),
    ("routing { capacity_factor = 1.25 }", "`capacity_factor`", ""),
    ("collectives { channels = 8, links = 18 }", "`channels`, `links`", ""),
    ("collectives { launch = 5 us }", "`launch`", ""),
    ("compression { density = 2 % }", "`density`", "compression { method = top_k }"),
    ("compression { rank = 4 }", "`rank`", "compression { method = power_sgd }"),
    ("sharding { prefetch = 2 }", "`prefetch`", "layout { zero = 3 }"),
    (
        "sharding { replicate = micro_batch }",
        "`replicate`",
        "sharding { shard = 8 }\nlayout { zero = 3 }",
    ),
    ("sharding { bucket_copy = on }", "`bucket_copy`", "layout { zero = 0 }"),
    ("kernels { narrow_gemm_efficiency = 60 % }", "`narrow_gemm_efficiency`", ""),
    ("datacenter { pue = 1.3, activity = 80 % }", "`pue`, `activity`", "energy { }"),
    (
        "checkpoint { interval = 1 h, storage = 100 GB/s, nodes = 4 }",
        "`nodes`",
        "checkpoint { node_bandwidth = 5 GB/s }",
    ),
    ("schedule { transfers = blocking }", "`transfers`", "layout { pp = 2 }"),
    ("schedule { messages = scattered }", "`messages`", "layout { pp = 2, tp = 2 }"),
    ("schedule { count_head = on }", "`count_head`", "layout { pp = 2 }"),
    ("schedule { count_embedding = on }", "`count_embedding`", "layout { pp = 2 }"),
    (
        "overlap { gradients = off, parameters = off, bucket = 1 MB }",
        "`bucket`",
        "",
    ),
    ("overlap { gradients = off, first_bucket = 1 MB }", "`first_bucket`", ""),
    (
        "overlap { gradients = off, parameters = off, multiprocessors = 9 }",
        "`multiprocessors`",
        "",
    ),
    ("collectives { context = ring }", "`context`", "layout { cp = 2 }"),
    ("collectives { pipeline = direct }", "`pipeline`", "layout { pp = 2 }"),
    ("collectives { tensor = ring }", "`tensor`", "layout { tp = 2 }"),
    ("kernels { static_power = 30 % }", "`static_power`", ""),
    ("kernels { lowest_voltage = 50 % }", "`lowest_voltage`", ""),
    ("memory { communicator = 9 MB, peers = 3 }", "`peers`", ""),
    ("memory { communicator = 9 MB, channels = 9 }", "`channels`", ""),
    ("memory { communicator = 9 MB, connection = 9 MB }", "`connection`", ""),
    ("model llama3_8b { rope_dim = 64, v_dim = 64 }", "`rope_dim`, `v_dim`", ""),
    ("model llama3_8b { saved = 1 MB }", "`saved`", ""),
    ("precision bf16 { wide_first = 2 }", "`wide_first`", "precision bf16 { narrow = fp8 }"),
    ("precision bf16 { dispatch = 1 B }", "`dispatch`", ""),
    (
        "precision bf16 { tensor_gather = 1 B }",
        "`tensor_gather`",
        "layout { tp = 2, sequence_parallel = on }",
    ),
    ("offload { host_memory_bandwidth = 1 GB/s }", "`host_memory_bandwidth`", AWAY),
    ("offload { update = device }", "`update`", AWAY),
    ("offload { host_memory = 1 TB }", "`host_memory`", AWAY),
    ("offload { overlap = off }", "`overlap`", "offload { activations = 10 % }"),
    ("local_updates { fragments = 2 }", "`fragments`", "local_updates { workers = 2, period = 8 }"),
    ("local_updates { overlap_steps = 2 }", "`overlap_steps`", ""),
    ("local_updates { offload = on }", "`offload`", ""),
]


def merge(one: str, other: str) -> str:
    """Return both texts, a block of the same kind made one."""
    kind, _, inside = one.partition(" { ")
    blocks = [b for b in other.split("\n") if b]
    for i, block in enumerate(blocks):
        if block.startswith(f"{kind} {{ "):
            blocks[i] = f"{kind} {{ {inside.removesuffix(' }')}, {block.partition(' { ')[2]}"
            return "\n".join(blocks)
    return "\n".join([one, *blocks])


@pytest.mark.parametrize(("written", "named", "needs"), mark_most(UNREAD))
def test_an_unread_attribute_is_a_warning(written: str, named: str, needs: str) -> None:
    (found,) = unread_warnings(merge(written, "layout { zero = 1 }"))
    owner = re.match(r"`(.*?)\.", found.message)[1]  # type: ignore[index]
    listed = named.replace("`, `", f"`, `{owner}.").replace("`", f"`{owner}.", 1)
    assert found.message == f"{listed} {'have' if ',' in named else 'has'} no effect"
    assert found.help is not None
    assert found.help.startswith("it needs ")
    if needs:
        assert unread_warnings(merge(written, needs)) == []


@pytest.mark.parametrize("written", ["gradient_check = on", "gradient_average = scaled"])
def test_sharded_gradients_are_neither_scaled_nor_checked_apart(written: str) -> None:
    name = written.partition(" ")[0]
    text = f"sharding {{ {written} }}\nlayout {{ zero = %d }}"
    (found,) = unread_warnings(text % 2)
    assert found.message == f"`sharding.{name}` has no effect"
    assert unread_warnings(text % 1) == []


@pytest.mark.parametrize(
    ("layout", "warnings"),
    [("pp = 2", 1), ("pp = 2, tp = 2", 0), ("pp = 2, tp = 2, sequence_parallel = on", 1)],
)
def test_ranks_send_shares_of_what_they_all_have(layout: str, warnings: int) -> None:
    found = unread_warnings(f"layout {{ {layout} }}\nschedule {{ messages = scattered }}")
    assert [d.message for d in found] == ["`schedule.messages` has no effect"] * warnings


@pytest.mark.parametrize(("offload", "warnings"), [("on", 0), ("off", 1)])
def test_host_memory_is_read_where_outer_state_is_offloaded(offload: str, warnings: int) -> None:
    local = f"local_updates {{ method = outer, workers = 2, period = 10, offload = {offload} }}"
    assert len(unread_warnings(f"offload {{ host_memory = 1 TB }}\n{local}")) == warnings


@try_each(
    "kernels, device, named",
    [
        ("static_power = 30 %", "power = 700 W, power_cap = 500 W", []),
        ("lowest_voltage = 95 %", "power = 700 W, power_cap = 500 W", []),
        ("", "in_one_layout = on", ["`roomy.in_one_layout` has no effect"]),
        ("", "static_power = 30 %", ["`roomy.static_power` has no effect"]),
        ("", "static_power = 30 %, power = 700 W, power_cap = 500 W", []),
    ],
)
def test_facts_of_a_device_of_ones_own_wait_for_what_reads_them(
    kernels: str, device: str, named: list[str]
) -> None:
    text = SPEC.replace("memory = 1 TB", f"memory = 1 TB, {device}")
    kernels = f"kernels {{ {kernels} }}\n" if kernels else ""
    report = parcost.load_text(text.format(more=f"{kernels}layout {{ zero = 1 }}"))[0].evaluate()
    assert [d.message for d in report.result.diagnostics if d.id == "no-effect"] == named


@pytest.mark.parametrize(
    "attribute",
    mark_most(
        [
            "buffer_factor = 3",
            "hide = pair",
            "distribution = uniform",
            "counts = 9 B",
            "node_limit = 1",
        ]
    ),
)
def test_how_tokens_are_spread_waits_for_several_ranks(attribute: str) -> None:
    name = attribute.partition(" ")[0]
    for ep, named in ((1, [f"`routing.{name}` has no effect"]), (8, [])):
        more = f"layout {{ zero = 1, ep = {ep} }}\nrouting {{ {attribute} }}"
        report = parcost.load_text(EXPERTS.format(more=more))[0].evaluate()
        found = [d.message for d in report.result.diagnostics if d.id == "no-effect"]
        assert found == named


def test_a_single_worker_has_no_outer_optimizer() -> None:
    (found,) = unread_warnings("local_updates { workers = 1, method = outer }")
    assert found.message == "`local_updates.method` has no effect"
    assert found.help == "it needs `local_updates.workers` above 1"


@pytest.mark.parametrize(("ep", "count"), [(1, 1), (8, 0)])
def test_the_algorithm_of_an_exchange_waits_for_several_ranks(ep: int, count: int) -> None:
    more = f"layout {{ zero = 1, ep = {ep} }}\ncollectives {{ expert = pairwise }}"
    report = parcost.load_text(EXPERTS.format(more=more))[0].evaluate()
    assert [d.id for d in report.result.diagnostics].count("no-effect") == count


def test_recomputed_parts_of_wholly_recomputed_layers_are_a_warning() -> None:
    whole, parts = "layout { zero = 1 }", "recompute { norms = on%s }"
    full = SPEC.replace("micro_batch = 1", "micro_batch = 1, recompute = full")

    def unread_messages(text: str, more: str) -> list[str]:
        report = parcost.load_text(text.format(more=f"{whole}\n{parts % more}"))[0].evaluate()
        return [d.message for d in report.result.diagnostics if d.id == "no-effect"]

    assert unread_messages(full, "") == ["`recompute.norms` has no effect"]
    assert unread_messages(full, ", every = 2") == []
    assert unread_messages(SPEC, "") == []


@pytest.mark.slow
def test_the_balance_of_ulysses_ranks_is_a_warning() -> None:
    base = "layout { zero = 1, cp = 2 }\n"
    (found,) = unread_warnings(base + "context { algorithm = ulysses, balance = contiguous }")
    assert found.message == "`context.balance` has no effect"
    assert unread_warnings(base + "context { algorithm = ring, balance = contiguous }") == []


def test_unread_attributes_of_the_catalogue_are_no_warning() -> None:
    assert unread_warnings("") == []


@pytest.mark.parametrize(
    "default",
    ["schedule { group = 1 }", "overlap { chunks = 1 }", "context { double_buffer = on }"],
)
def test_a_written_default_is_no_warning(default: str) -> None:
    assert unread_warnings(default) == []


def test_a_fact_with_a_source_may_wait_to_be_used() -> None:
    assert unread_warnings('datacenter { pue = 1.3 @measured("our meters") }') == []


# Mixtral sends 2 of 8 experts to each token.
EXPERTS = SPEC.replace("llama3_8b", "mixtral_8x7b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "value", "dispatchers"),
    [
        ("deepep_rate", "3 GB/s", ["deepep"]),
        ("hybridep_multiprocessors", "17", ["hybridep"]),
        ("outer_efficiency", "71 %", ["deepep", "hybridep"]),
        ("deduplicate", "on", ["alltoall"]),
    ],
)
def test_attributes_of_another_dispatcher_have_no_effect(
    attribute: str, value: str, dispatchers: list[str]
) -> None:
    for dispatcher in ("alltoall", "allgather", "deepep", "hybridep"):
        routing = f"routing {{ dispatcher = {dispatcher}, {attribute} = {value} }}"
        text = EXPERTS.format(more=f"layout {{ ep = 8 }}\n{routing}")
        report = parcost.load_text(text)[0].evaluate()
        messages = [d.message for d in report.result.diagnostics if d.id == "no-effect"]
        expected = [] if dispatcher in dispatchers else [f"`routing.{attribute}` has no effect"]
        assert messages == expected, dispatcher


PIPELINED = "layout { tp = 2, sequence_parallel = on }\noverlap { tensor = pipelined, chunks = 4 }"


@pytest.mark.slow
def test_two_threads_evaluate_one_study_without_a_trace_in_its_blocks() -> None:
    scenario = parcost.load_text(SPEC.format(more=PIPELINED))[0]
    before = type(scenario.first[Overlap])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda _: scenario.evaluate(), range(12)))
    finally:
        sys.setswitchinterval(interval)
    found = [d.id for report in reports for d in report.result.diagnostics]
    assert "no-effect" not in found
    assert type(scenario.first[Overlap]) is before
    assert len({report.result.figure("step_time") for report in reports}) == 1
