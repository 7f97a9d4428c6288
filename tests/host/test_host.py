"""A pass lasts as long as its kernels run, or as the host issues them, worked out by hand.

The machine is made of round numbers: products run at 50 TFLOP/s, links carry 1 GB/s, and
nothing else of the device takes time. One layer of 1024 has 2 x 1024 x 16 x 1024^2 FLOP in a
forward pass of 1024 tokens, and its attention 4 x 1024^2 x 1024 / 2.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Formula, Scenario, SpecError, Study, Work, hookimpl
from parcost.contract.outcome import Outcome
from parcost.plugins.discovery import load
from parcost_plugins.frameworks.host import NAME
from parcost_plugins.physics import layers

from ..rows import try_each

SPEC = """
device plain {{
  memory = 800 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}}
fabric wire {{ level net {{ bandwidth = 1 GB/s per_direction, latency = 0 s }} }}
precision mixed {{
  compute = bf16, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 0 B, norm_traffic = 0 B
}}
model small {{
  layers = {layers}, hidden = 1024, heads = 8, ffn = 4096, vocabulary = 1000, gated = on
  {model}
}}
framework ours {{
  fused_accumulation = on, issue = {issue}, forward_kernels = 10, backward_kernels = 20, weight_kernels = 4
  outer_kernels = 5, sharded_kernels = 3, graph_issue = 20 us
  core_kernels = 4, routing_kernels = 7, expert_kernels = 3, {framework}
}}
kernels {{
  model = constant, memory_bound = off
  gemm_efficiency = 0.5, attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5
  {kernels}
}}
overlap {{ gradients = off, parameters = off, tensor = off, bucket = 1 TB, multiprocessors = 0 }}
memory {{ usable = 1, context = 0 B, communicator = 0 B, fragmentation = 0 }}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 1024, global_batch = {batch} sequences, {training} }}
"""

RATE = 50e12
PRODUCTS = 2 * 1024 * 16 * 1024**2 / RATE  # of a layer, forward
CORE = 4 * 1024**2 * 1024 / 2 / RATE
FORWARD, BACKWARD = PRODUCTS + CORE, 2 * PRODUCTS + 2.5 * CORE
HEAD = 2 * 1024 * 1024 * 1000 / RATE  # forward, and twice that backward


def scenario(*, plugins: Any = None, **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "layers": 4,
        "model": "",
        "issue": "0 s",
        "framework": "",
        "kernels": "",
        "devices": 1,
        "layout": "",
        "batch": 1,
        "training": "",
    }
    (found,) = parcost.load_text(SPEC.format(**{**values, **more}), plugins=plugins)
    return found


def outcome(**more: Any) -> Outcome:
    (result,) = scenario(**more).evaluate().results
    assert not result.faults, result.faults
    assert result.outcome is not None
    return result.outcome


def exposed_host_seconds(found: Outcome, pass_: str = "") -> float:
    lines = [line for line in found.ledger if line.cause == "host" and pass_ in ("", line.pass_)]
    return float(sum(line.exposed for line in lines))


@pytest.mark.slow
def test_a_host_that_is_faster_than_the_device_hides() -> None:
    """A layer takes 0.73 ms forward, the host 10 kernels of 10 us."""
    device, both = outcome(), outcome(issue="10 us")
    assert device.step_seconds == pytest.approx(4 * (FORWARD + BACKWARD) + 3 * HEAD)
    assert both.step_seconds == device.step_seconds
    assert exposed_host_seconds(both) == 0
    hidden = sum(line.hidden for line in both.ledger if line.cause == "host")
    assert hidden == pytest.approx((4 * (10 + 20) + 2 * 5 + 2 * 10) * 10e-6)


def test_a_host_that_is_slower_than_the_device_is_the_step() -> None:
    """Four layers of 30 kernels, five at either end, and ten there on the way back."""
    found = outcome(issue="1 ms", batch=3)
    assert found.step_seconds == pytest.approx(3 * (4 * (10 + 20) + 2 * 5 + 2 * 10) * 1e-3)
    device = 3 * (4 * (FORWARD + BACKWARD) + 3 * HEAD)
    assert exposed_host_seconds(found) == pytest.approx(found.step_seconds - device)


#: A latent of keys and values, and of queries.
_LATENT = "kv_lora = 128, rope_dim = 32, nope_dim = 64, v_dim = 64"


@try_each(
    "model, framework, kernels",
    [
        ("qk_norm = on", "", (10 + 2) + (20 + 2 * 2)),
        ("qk_norm = on", "norm_kernels = 8, norm_backward_kernels = 16", 10 + 16 + 20 + 32),
        # two products of keys and values in place of one of all, which has queries too: 3 for 1
        (_LATENT, "", (10 + 2 + 1) + (20 + 2 * 2 + 2)),
        (f"{_LATENT}, q_lora = 256", "", (10 + 3 + 2) + (20 + 2 * 3 + 2 * 2)),
        (f"{_LATENT}, q_lora = 256", "separate_projections = on", (10 + 1 + 2) + (20 + 2 + 4)),
    ],
)
def test_further_norms_and_products_of_attention_are_kernels(
    model: str, framework: str, kernels: int
) -> None:
    found = outcome(issue="1 ms", model=model, framework=framework)
    assert found.step_seconds == pytest.approx((4 * kernels + 2 * 5 + 2 * 10) * 1e-3)


@pytest.mark.parametrize(
    ("model", "tensors"), [("", 4 + 2), ("norm = layer, biases = on", 4 + 4 + 2 * 2)]
)
def test_gradients_that_are_added_apart_take_a_kernel_for_each_tensor(
    model: str, tensors: int
) -> None:
    """A layer of four weights, with biases or without, and of two norms; the first is kept."""
    found = outcome(issue="1 ms", batch=3, kernels="fused_accumulation = off", model=model)
    kernels = 3 * (4 * (10 + 20) + 2 * 5 + 2 * 10) + 2 * 4 * tensors
    assert found.step_seconds == pytest.approx(kernels * 1e-3)


def test_a_host_that_waits_for_each_kernel_adds_its_time() -> None:
    """CUDA_LAUNCH_BLOCKING=1: 4 layers of 30 kernels and ends of 30, of 10 + 9 us, 3 times."""
    device = outcome(batch=3)
    both = outcome(batch=3, issue="10 us", kernels="launch_blocking = on")
    host = 3 * (4 * (10 + 20) + 2 * 5 + 2 * 10) * 19e-6
    assert both.step_seconds == pytest.approx(device.step_seconds + host, rel=1e-12)
    assert exposed_host_seconds(both) == pytest.approx(host, rel=1e-12)


@pytest.mark.parametrize(("below", "tensors"), [(100_000, 4 * 4 + 2), (2_000_000, 4 * 3)])
def test_the_device_waits_for_lists_of_shards(below: int, tensors: int) -> None:
    """Four weights in each of four layers, embedding and head: two gathers and a reduction each.

    The attention output has 1 M elements, and so have embedding and head.
    """
    layout = {"devices": 4, "batch": 4, "layout": "zero = 3"}
    free = outcome(**layout)
    lists = outcome(**layout, framework=f"list_issue = 50 us, whole_below = {below}")
    host = tensors * 3 * 4 * 50e-6
    assert exposed_host_seconds(lists) == pytest.approx(host, rel=1e-12)
    assert lists.step_seconds == pytest.approx(free.step_seconds + host, rel=1e-12)


def test_no_gather_overlaps_where_it_waits_for_the_device() -> None:
    """Gathers of four ranks hide under compute by default."""
    text = SPEC.replace("gradients = off, parameters = off", "gradients = off")
    found = []
    for more in ("", "gathers_wait = on"):
        values = {"layers": 4, "model": "", "issue": "0 s", "kernels": "", "training": ""}
        values |= {"devices": 4, "batch": 4, "layout": "zero = 3", "framework": more}
        (scenario,) = parcost.load_text(text.format(**values))
        ledger = scenario.evaluate().result.outcome.ledger
        found.append(sum(line.hidden for line in ledger if "all-gather" in line.name))
    assert found[0] > 0
    assert found[1] == 0


def test_issue_times_of_lists_do_not_decide_what_overlaps_in_a_sweep() -> None:
    """Four ranks gather; with no time for lists a point takes as long alone as in a sweep."""
    text = SPEC.replace("gradients = off, parameters = off", "gradients = off")
    steps = {}
    for times in ("0 s", "50 us", "[0 s, 50 us]"):
        more = f"list_issue = {times}"
        values = {"layers": 4, "model": "", "issue": "0 s", "kernels": "", "training": ""}
        values |= {"devices": 4, "batch": 4, "layout": "zero = 3", "framework": more}
        (scenario,) = parcost.load_text(text.format(**values))
        steps[times] = scenario.evaluate().result.outcome.step_seconds
    assert list(steps["[0 s, 50 us]"]) == pytest.approx([steps["0 s"], steps["50 us"]], rel=1e-12)


@pytest.mark.slow
def test_nothing_overlaps_with_a_host_that_waits_for_each_kernel() -> None:
    """Two ranks reduce gradients, which could hide under backward."""
    free, waits = (
        outcome(devices=2, batch=2, kernels=more) for more in ("", "launch_blocking = on")
    )
    assert waits.step_seconds == free.step_seconds  # the spec hides nothing in any case
    text = SPEC.replace("gradients = off", "gradients = on").replace("1 TB, multi", "1 MB, multi")
    found = {}
    for more in ("", "launch_blocking = on"):
        (scenario,) = parcost.load_text(
            text.format(
                layers=4,
                model="",
                issue="0 s",
                framework="",
                kernels=more,
                devices=2,
                layout="",
                batch=2,
                training="",
            )
        )
        (result,) = scenario.evaluate().results
        assert result.outcome is not None
        found[more] = result.outcome.step_seconds
    assert found[""] < found["launch_blocking = on"]
    assert found["launch_blocking = on"] == pytest.approx(free.step_seconds, rel=1e-9)


@pytest.mark.parametrize("layout", ["tp = 2, sequence_parallel = on", "cp = 2"], ids=["tp", "cp"])
def test_no_transfer_hides_beside_a_host_that_waits_for_each_kernel(layout: str) -> None:
    def hidden_seconds(more: str) -> float:
        found = outcome(devices=2, batch=2, layout=layout, kernels=more)
        return float(sum(line.hidden for line in found.ledger))

    assert hidden_seconds("") > 0.0
    assert hidden_seconds("launch_blocking = on") == 0.0


def test_a_pass_may_wait_and_another_not() -> None:
    """Of 2 layers the forward pass has 20 kernels and ends of 5, of 73 us each."""
    issue = 1.1 * (2 * FORWARD + HEAD) / 30
    found = outcome(layers=2, issue=f"{issue * 1e6:.9f} us")
    forward, backward = 30 * issue, (40 + 20) * issue
    least = 2 * BACKWARD + 2 * HEAD
    assert forward > 2 * FORWARD + HEAD
    assert found.step_seconds == pytest.approx(forward + max(backward, least), rel=1e-9)
    assert exposed_host_seconds(found, "F") == pytest.approx(0.1 * (2 * FORWARD + HEAD), rel=1e-6)


@try_each(
    "layout, forward, backward",
    [
        ("tp = 2", 10 + 2, 20 + 2),  # an all-reduce behind attention and MLP
        ("tp = 2, sequence_parallel = on", 10 + 4, 20 + 4 + 2),  # and saved inputs gathered
        ("dp = 2", 10, 20),
        ("dp = 2, zero = 3", 10 + 3, 20 + 6),  # gathered twice and reduced, of 3 kernels each
    ],
)
def test_collectives_are_issued_too(layout: str, forward: int, backward: int) -> None:
    found = outcome(issue="50 ms", devices=2, layout=layout, batch=2)
    m = 2 if "tp" in layout else 1
    work = sum(
        line.exposed + (line.hidden if line.cause == "host" else 0)
        for line in found.ledger
        if line.kind == "work" and line.cause == "host"
    )
    assert work == pytest.approx(m * (4 * (forward + backward) + 30) * 50e-3)


def test_exposed_communication_hides_the_host() -> None:
    """Two all-reduces of 2 MiB over 1 GB/s are 4.2 ms a layer and pass, and 22 kernels 3.3 ms."""
    message = 1024 * 1024 * 2
    reduction = 2 * message / 2 / 1e9
    layout = {"devices": 2, "layout": "tp = 2"}
    without, hidden = outcome(**layout), outcome(issue="150 us", **layout)
    assert 2 * reduction + FORWARD / 2 > 12 * 150e-6 > FORWARD
    assert hidden.step_seconds == without.step_seconds
    bound = outcome(issue="1 ms", **layout)
    assert bound.step_seconds > without.step_seconds


def test_what_hides_elsewhere_takes_no_room_from_the_host() -> None:
    """Gathers of FSDP hide under the passes that the host issues: the longest of three counts."""
    slow = {"devices": 2, "layout": "dp = 2, zero = 3", "batch": 2}
    hide = {"training": "micro_batch = 1"}
    plain = outcome(**slow, **hide)
    bound = outcome(issue="50 ms", **slow, **hide)
    passes = (4 * (13 + 26) + 30) * 50e-3
    assert bound.step_seconds == pytest.approx(
        passes + sum(x.exposed for x in bound.ledger if x.kind in ("once", "send_recv"))
    )
    assert bound.step_seconds > plain.step_seconds


def test_a_stage_of_a_pipeline_waits_for_its_own_host() -> None:
    """1F1B of two even stages and 3 micro-batches: 3 + 1 times a pass of each kind.

    A stage has 2 layers and one end: 25 kernels forward, and 50 backward.
    """
    found = outcome(issue="50 ms", devices=2, layout="pp = 2", batch=3)
    hops = sum(line.exposed for line in found.ledger if line.kind == "send_recv")
    assert found.step_seconds - hops == pytest.approx((3 + 1) * (25 + 50) * 50e-3)


@pytest.mark.parametrize(
    ("recompute", "kernels"),
    [("none", 0), ("full", 4 * 10), ("selective, flash_attention = off", 4 * 4)],
)
def test_recomputed_kernels_are_issued_again(recompute: str, kernels: int) -> None:
    found = outcome(issue="1 ms", training=f"recompute = {recompute}")
    assert found.step_seconds == pytest.approx((4 * 30 + 30 + kernels) * 1e-3)


def test_a_graph_of_a_layer_is_started_once_in_each_pass() -> None:
    found = outcome(issue="1 ms", kernels="cuda_graphs = layer")
    forward, backward = 4 * 20e-6 + 10e-3, 4 * 20e-6 + 20e-3
    assert forward > 4 * FORWARD + HEAD
    assert backward > 4 * BACKWARD + 2 * HEAD
    assert found.step_seconds == pytest.approx(forward + backward)


@pytest.mark.slow
def test_a_graph_of_the_iteration_leaves_nothing_to_wait_for() -> None:
    found = outcome(issue="1 ms", kernels="cuda_graphs = iteration")
    assert found.step_seconds == outcome().step_seconds
    by_framework = outcome(issue="1 ms", framework="cuda_graphs = iteration")
    assert by_framework.step_seconds == found.step_seconds
    run = outcome(issue="1 ms", framework="cuda_graphs = iteration", kernels="cuda_graphs = none")
    assert run.step_seconds == outcome(issue="1 ms").step_seconds


def test_a_compiled_layer_issues_fewer_kernels_behind_its_guards() -> None:
    compiled = "compiled_issue = 100 us, compiled_call = 300 us, compiled_kernels = 50 %"
    found = outcome(issue="1 ms", framework=compiled, kernels="mode = compiled")
    forward = 4 * (300e-6 + 5 * 100e-6) + 10e-3
    backward = 4 * (300e-6 + 10 * 100e-6) + 20e-3
    assert found.step_seconds == pytest.approx(forward + backward)


def test_an_unsupported_feature_of_a_framework_is_refused() -> None:
    (result,) = scenario(kernels="mode = compiled").evaluate().results
    assert "compiles-no-layers" in [d.id for d in result.diagnostics]
    text = SPEC.replace("graph_issue = 20 us", "")
    values = dict.fromkeys(("model", "framework", "layout", "training"), "")
    text = text.format(
        layers=4, issue="1 ms", devices=1, batch=1, kernels="cuda_graphs = layer", **values
    )
    (result,) = parcost.load_text(text)[0].evaluate().results
    assert "captures-no-graphs" in [d.id for d in result.diagnostics]


def test_gradients_of_weights_take_no_more_kernels_than_the_backward_pass() -> None:
    study = scenario().replace({"ours.weight_kernels": 21})
    (result,) = study.evaluate().results
    (rejected,) = [d for d in result.diagnostics if d.id == "too-many-weight-kernels"]
    assert rejected.message == "`weight_kernels` 21 is more than `backward_kernels` 20"
    assert rejected.help == "write at most 20"
    assert not result.faults


@pytest.mark.parametrize(
    ("framework", "kernels", "each"),
    [
        ("grouped_experts = on", "", 0),
        ("grouped_experts = off", "", 3 * 4),  # of 8 experts on 2 ranks
        ("grouped_experts = on", "grouped_experts = off", 3 * 4),
    ],
)
def test_experts_in_a_loop_issue_kernels_each(framework: str, kernels: str, each: int) -> None:
    experts = "experts = 8, top_k = 2, expert_ffn = 1024"
    found = outcome(
        issue="50 ms",
        model=experts,
        framework=framework,
        kernels=kernels,
        devices=2,
        layout="ep = 2",
        batch=2,
    )
    issued = sum(x.exposed + x.hidden for x in found.ledger if x.cause == "host")
    counts = 4  # of layers, each of which waits for the first kernel behind its counts
    assert issued == pytest.approx((4 * (30 + 3 * (7 + each)) + 30 + counts) * 50e-3)


def of_experts(name: str, pass_: str, **more: Any) -> float:
    """Return kernels of one layer of 8 experts on 2 ranks, by its term."""
    chosen = more.pop("kernels", "")
    (study,) = scenario(
        issue="1 ms",
        model="experts = 8, top_k = 2, expert_ffn = 1024",
        kernels=chosen,
        devices=2,
        layout="ep = 2",
        batch=2,
        **more,
    ).studies()
    return sum(
        float(term.seconds) * 1e3
        for plugin, term in study.contributions("terms")
        if plugin.name == "frameworks.host"
        and (term.name, getattr(term, "pass_", "")) == (name, pass_)
    )


@try_each(
    "framework, forward, backward",
    [
        ("", 7, 14),
        ("routing_backward_kernels = 9", 7, 9),
        # Four experts of a rank: a kernel more each, and twice that backward.
        ("grouped_kernels = 1", 7 + 4, 14 + 8),
        # Casts only where products run in a narrow type.
        ("grouped_kernels = 1, grouped_casts = 5", 7 + 4, 14 + 8),
    ],
)
def test_grouped_experts_issue_what_their_library_calls(
    framework: str, forward: int, backward: int
) -> None:
    found = {
        pass_: of_experts("waiting for the host, experts", pass_, framework=framework)
        for pass_ in "FB"
    }
    assert found == pytest.approx({"F": forward, "B": backward})


def test_biases_of_experts_are_issued_expert_by_expert() -> None:
    eager = "expert_biases = eager"
    (study,) = scenario(
        issue="1 ms",
        model="experts = 8, top_k = 2, expert_ffn = 1024, biases = on",
        framework=eager,
        devices=2,
        layout="ep = 2",
        batch=2,
    ).studies()
    found = {
        term.pass_: float(term.seconds)
        for plugin, term in study.contributions("terms")
        if plugin.name == "frameworks.host" and term.name == "waiting for the host, experts"
    }
    assert found == pytest.approx({"F": (7 + 2 * 4) * 1e-3, "B": (14 + 4 * 4) * 1e-3})


@pytest.mark.parametrize(("kernels", "waits"), [("", True), ("cuda_graphs = iteration", False)])
def test_the_device_waits_for_the_kernel_behind_counts(kernels: str, waits: bool) -> None:
    found = of_experts("waiting for token counts", "F", kernels=kernels)
    assert found == pytest.approx(1.0 if waits else 0.0)


def test_updates_of_single_tensors_are_issued_once_in_a_step() -> None:
    found = outcome(framework="update_kernels = 6", issue="10 us", batch=3)
    assert exposed_host_seconds(found) == pytest.approx(4 * 6 * 10e-6)


@pytest.mark.slow
def test_each_point_of_a_sweep_is_what_it_is_alone() -> None:
    values = "[1, 2, 4, 8]"
    rows = scenario(issue="400 us", devices=8, batch=8, layout=f"tp = {values}").evaluate().rows()
    steps = {row["layout.tp"]: row["step_time"] for row in rows}
    for tp in (1, 2, 4, 8):
        alone = outcome(issue="400 us", devices=8, batch=8, layout=f"tp = {tp}")
        assert steps[tp] == alone.step_seconds
        assert exposed_host_seconds(alone) > 0


def test_another_plugin_may_stand_in_for_the_host() -> None:
    """A host that takes a millisecond for each layer, whatever is in it."""

    def terms(study: Study) -> list[Work]:
        formula = Formula(text="s", inputs={"s": (0.01, "s")}, source="a profile")
        return [
            Work(
                name="our host",
                seconds=0.01,
                pass_=pass_,
                count=layers(study),
                resource="processor",
                window="",
                formula=formula,
                cause="host",
            )
            for pass_ in ("F", "B")
        ]

    plugins = load(("ours", SimpleNamespace(terms=hookimpl(terms))), without=["frameworks.host"])
    (result,) = scenario(plugins=plugins, issue="1 s", batch=2).evaluate().results
    assert result.figure("step_time") == pytest.approx(2 * 2 * 4 * 0.01)


@pytest.mark.slow
def test_graphs_are_a_lever_where_the_host_is_waited_for() -> None:
    def changes(issue: str) -> dict[str, float]:
        (result,) = scenario(issue=issue).evaluate().results
        (section,) = [s for _, s in result.sections if s.title == "Levers"]
        return {str(row[0]): float(row[2][0]) for row in section.rows}

    slow = changes("1 ms")
    device = outcome().step_seconds
    assert slow["CUDA graphs: kernels.cuda_graphs = iteration"] == pytest.approx(
        device / 150e-3 - 1.0
    )
    layers_ = slow["CUDA graphs: kernels.cuda_graphs = layer"]
    assert layers_ == pytest.approx(30.16 / 150 - 1.0)
    assert not any("CUDA graphs" in name for name in changes("10 us"))


def test_the_former_attribute_is_explained() -> None:
    text = "kernels { launch = 3 us }\ncluster { devices = 8 }\n"
    with pytest.raises(SpecError) as error:
        parcost.load_text(text)[0].evaluate()
    (found,) = [d for d in error.value.diagnostics if d.id == "unknown-attribute"]
    assert found.help is not None
    assert "framework NAME { issue = ... }" in found.help


# --- what is issued, kernel by kernel ---------------------------------------------------------

EXPERTS = "experts = 8, top_k = 2, expert_ffn = 1024"


def issue_terms(values: dict[str, Any] | None = None, **more: Any) -> dict[tuple[str, str], Any]:
    """Return seconds and occurrences on the first stage of the host's terms, by name and pass.

    A kernel takes a second, so that seconds count kernels and collectives.
    """
    (study,) = scenario(**{"issue": "1 s", **more}).replace(values or {}).studies()
    found = {
        (term.name.removeprefix("waiting for "), getattr(term, "pass_", "")): (
            term.seconds,
            term.count[0],
        )
        for plugin, term in study.contributions("terms")
        if plugin.name == "frameworks.host"
    }
    assert not study.faults
    return found


def of_layers(values: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found = issue_terms(values, **more)
    return {pass_: seconds for (name, pass_), (seconds, _) in found.items() if name == "the host"}


TWO: dict[str, Any] = {"devices": 2, "batch": 4}
SHARDED = "tp = 2, sequence_parallel = on"
COMPILED = "compiled_issue = 100 ms, compiled_call = 300 ms, compiled_kernels = 50 %"


@try_each(
    "more, values, kernels",
    [
        ({}, {}, {"F": 10, "B": 16, "W": 4}),
        ({}, {"ours.weight_kernels": 20}, {"F": 10, "W": 20}),
        # two all-reduces in each pass; or two gathers, two sums, and the saved inputs once more
        ({**TWO, "layout": "tp = 2"}, {}, {"F": 12, "B": 18, "W": 4}),
        ({**TWO, "layout": SHARDED}, {}, {"F": 14, "B": 20, "W": 6}),
        (
            {**TWO, "layout": SHARDED, "framework": "keeps_gathers = on"},
            {},
            {"F": 14, "B": 20, "W": 4},
        ),
        # in place of four collectives, three products and two transfers each
        (
            {**TWO, "layout": SHARDED},
            {"overlap.tensor": "pipelined", "overlap.chunks": 3},
            {"F": 10 + 20, "B": 16 + 20, "W": 6},
        ),
        # both halves of a micro-batch
        (
            {**TWO, "layout": "tp = 2", "training": "micro_batch = 2"},
            {"overlap.tensor": "split_batch"},
            {"F": 24, "B": 36, "W": 8},
        ),
        # gathers of three kernels in either pass, and a reduction
        ({**TWO, "layout": "zero = 3"}, {}, {"F": 13, "B": 16 + 6, "W": 4}),
        # recomputation
        ({"training": "recompute = full"}, {}, {"F": 10, "R": 10, "B": 16, "W": 4}),
        (
            {**TWO, "layout": "tp = 2", "training": "recompute = full"},
            {},
            {"F": 12, "R": 12, "B": 18, "W": 4},
        ),
        ({"training": "recompute = selective"}, {}, {"F": 10, "B": 16, "W": 4}),
        (
            {"training": "recompute = selective, flash_attention = off"},
            {},
            {"F": 10, "R": 4, "B": 16, "W": 4},
        ),
        (
            {"training": "recompute = selective", "framework": "reruns_core = on"},
            {},
            {"F": 10, "R": 1, "B": 16, "W": 4},
        ),
        ({"training": "flash_attention = off"}, {}, {"F": 10, "B": 16, "W": 4}),
        ({"framework": "reruns_core = on"}, {}, {"F": 10, "B": 16, "W": 4}),
        (
            {
                "training": "recompute = full, flash_attention = off",
                "framework": "reruns_core = on",
            },
            {},
            {"F": 10, "R": 10, "B": 16, "W": 4},
        ),
        # a graph takes 20 us, of which each half has one
        ({"kernels": "cuda_graphs = layer"}, {}, {"F": 20e-6, "B": 20e-6}),
        (
            {
                **TWO,
                "layout": "tp = 2",
                "training": "micro_batch = 2",
                "kernels": "cuda_graphs = layer",
            },
            {"overlap.tensor": "split_batch"},
            {"F": 40e-6, "B": 40e-6},
        ),
        # and a core that is run again is within the graph of the backward pass
        *(
            ({"kernels": "cuda_graphs = layer", **again}, {}, {"F": 20e-6, "B": 20e-6})
            for again in (
                {"training": "recompute = selective, flash_attention = off"},
                {"training": "recompute = selective", "framework": "reruns_core = on"},
            )
        ),
        (
            {"kernels": "cuda_graphs = layer", "training": "recompute = full"},
            {},
            {"F": 20e-6, "R": 20e-6, "B": 20e-6},
        ),
        # guards once in each pass, half of the kernels at a tenth, and collectives as they were
        (
            {**TWO, "layout": SHARDED, "framework": COMPILED, "kernels": "mode = compiled"},
            {},
            {"F": 0.3 + 0.5 + 4, "B": 0.3 + 0.8 + 4, "W": 0.2 + 2},
        ),
        (
            {
                **TWO,
                "layout": "tp = 2",
                "framework": f"mode = compiled, {COMPILED}",
                "training": "micro_batch = 2",
            },
            {"overlap.tensor": "split_batch"},
            {"F": 2 * (0.3 + 0.5 + 2), "B": 2 * (0.3 + 0.8 + 2), "W": 2 * 0.2},
        ),
        (
            {**TWO, "layout": SHARDED, "framework": COMPILED, "kernels": "mode = compiled"},
            {"ours.issue": 0.5},
            {"F": 0.3 + 0.5 + 2, "B": 0.3 + 0.8 + 2, "W": 0.2 + 1},
        ),
        # what is rejected is worth nothing
        ({"kernels": "mode = compiled"}, {}, {}),
    ],
)
def test_a_layer_issues_so_many_kernels_in_each_pass(
    more: dict[str, Any], values: dict[str, Any], kernels: dict[str, float]
) -> None:
    assert of_layers(values, **more) == pytest.approx(kernels)


def test_a_graph_that_the_framework_has_not_takes_no_time() -> None:
    values = dict.fromkeys(("model", "framework", "layout", "training"), "")
    text = SPEC.replace("graph_issue = 20 us", "").format(
        layers=4, issue="1 s", devices=1, batch=1, kernels="cuda_graphs = layer", **values
    )
    found = parcost.load_text(text)[0].first.contributions("terms")
    assert not [t for plugin, t in found if (plugin.name, t.name) == ("frameworks.host", NAME)]


def test_all_kernels_of_backward_may_make_gradients_of_weights() -> None:
    (study,) = scenario().replace({"ours.weight_kernels": 20}).studies()
    checks = {check.id: check.holds for _, check in study.contributions("checks")}
    assert checks["too-many-weight-kernels"]


def test_every_layer_and_end_is_issued_and_updated_on_its_stage() -> None:
    found = issue_terms(framework="update_kernels = 6", devices=2, batch=2, layout="pp = 2")
    host, ends = "the host", "the host, embedding and head"
    assert found == {
        (host, "F"): (10, 2),
        (host, "B"): (16, 2),
        (host, "W"): (4, 2),
        (ends, "F"): (5, 1),
        (ends, "B"): (10, 1),
        ("the host, update", ""): (6, 2),
    }
    alone = issue_terms()
    assert alone[ends, "F"] == (5, 2)
    assert alone[host, "F"] == (10, 4)
    assert ("the host, update", "") not in alone


def test_a_host_that_takes_no_time_is_not_waited_for() -> None:
    assert issue_terms(issue="0 s", model=EXPERTS, framework="update_kernels = 6") == {}


def test_a_sweep_over_the_host_has_all_of_its_terms() -> None:
    more: dict[str, Any] = {
        "model": EXPERTS,
        "framework": "update_kernels = 6",
        "training": "recompute = full",
    }
    alone, swept = issue_terms(**more), issue_terms({"ours.issue": [1.0, 3.0]}, **more)
    assert {key: list(seconds) for key, (seconds, _) in swept.items()} == {
        key: [seconds, 3 * seconds] for key, (seconds, _) in alone.items()
    }


RECIPE = {"plain.fp8": 2e14, "mixed.narrow": "fp8", "mixed.cast_kernels": 3}


@try_each(
    "model, framework, values, forward, backward",
    [
        ("", "", {}, 7, 14),
        # of 8 experts, each with so many kernels: 2, and twice that backward
        ("", "grouped_kernels = 2", {}, 7 + 8 * 2, 14 + 8 * 4),
        ("", "grouped_experts = off", {}, 7 + 8 * 3, 14 + 8 * 6),
        # five casts of three kernels in either pass, of grouped products in a narrow type
        (
            "",
            "grouped_kernels = 2, grouped_casts = 5",
            RECIPE,
            7 + 8 * (2 + 15),
            14 + 8 * (4 + 15),
        ),
        ("", "grouped_kernels = 2, grouped_casts = 5", {}, 7 + 8 * 2, 14 + 8 * 4),
        ("", "grouped_experts = off, grouped_casts = 5", RECIPE, 7 + 8 * 3, 14 + 8 * 6),
        # biases, where the model has them and the framework adds them one by one
        ("biases = on", "expert_biases = eager", {}, 7 + 8 * 2, 14 + 8 * 4),
        ("biases = on", "expert_biases = fused", {}, 7, 14),
        ("biases = off", "expert_biases = eager", {}, 7, 14),
        (
            "biases = on",
            "expert_biases = eager, grouped_kernels = 2, grouped_casts = 5",
            RECIPE,
            7 + 8 * (2 + 15 + 2),
            14 + 8 * (4 + 15 + 4),
        ),
    ],
)
def test_eight_experts_issue_so_many_kernels(
    model: str, framework: str, values: dict[str, Any], forward: int, backward: int
) -> None:
    found = issue_terms(values, model=f"{EXPERTS}, {model}", framework=framework)
    name = "the host, experts"
    of_experts = {pass_: seconds for (n, pass_), (seconds, _) in found.items() if n == name}
    assert of_experts == pytest.approx({"F": forward, "B": backward})


@try_each(
    "more, capacity, experts, counts",
    [
        ({}, None, "FB", "F"),
        ({"training": "recompute = full"}, None, "FRB", "FR"),
        # a capacity fixes the shapes, so that nothing is read and a graph may hold all of it
        ({}, 1.25, "FB", ""),
        ({"kernels": "cuda_graphs = layer"}, 1.25, "", ""),
        ({"kernels": "cuda_graphs = layer"}, None, "FB", "F"),
    ],
)
def test_experts_are_issued_and_counted_where_no_graph_holds_them(
    more: dict[str, Any], capacity: float | None, experts: str, counts: str
) -> None:
    values = {} if capacity is None else {"routing.capacity_factor": capacity}
    found = issue_terms(values, model=EXPERTS, **more)
    passes = {
        name: "".join(pass_ for n, pass_ in found if n == name)
        for name in ("the host, experts", "token counts")
    }
    assert passes == {"the host, experts": experts, "token counts": counts}
    assert all(found["token counts", pass_] == (1.0, 4) for pass_ in counts)
