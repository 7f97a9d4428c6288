"""Values that the language accepts never make a plugin of ours fail."""

from __future__ import annotations

import pytest
from spec_faults import fault
from spec_generator import Generator, bases, read

from parcost import SpecError
from parcost.engine.session import Session

from ..rows import mark_most

GENERATOR = Generator()
SESSION = Session(GENERATOR.plugins)

#: Found by hand or by the generator: a base, and what is set in it.
FOUND = {
    "no flows": ("", "sharing q { resource a { bandwidth = 1 GB/s per_direction } }"),
    "a bubble of all of the step": (
        "",
        "pipeline q { stages = 12, micro_batches = 4, forward = 2 ms, target = 1 }",
    ),
    "activations wider than fp32": ("dense", "precision recipe { activation = 5 B }"),
    "groups of a dragonfly in a list": (
        "networks",
        "network groups { groups = [32, 64], volume = 1 GB }",
    ),
    "groups of a fat tree": ("networks", "network tree { groups = 3 }"),
    "a rail in a list": ("networks", "network rails { per_node = [4, 8], radix = [32, 64] }"),
    "a share of a rank": ("sharded", "sharding { shard = 0.25 }"),
    "an estimate of gradients without bytes": ("sheets", "estimate by_flops { weight = 0 B }"),
    "values and indices of no bytes": ("sheets", "exchange sparse { index = 0 B, value = 0 B }"),
    "next to no rank": ("planned", "layout { zero = 2 }\nsharding { shard = 1e-18 }"),
    "more ranks than can be looked at": (
        "dense",
        "cluster { devices = 1e15 }\ntraining { global_batch = 5e14 sequences }",
    ),
    "no width": ("planned", "model planned { hidden = 0 }"),
    "all multiprocessors taken": ("contexts", "overlap { multiprocessors = 8 }"),
    "gradients of no bytes": ("latent", "precision narrow { gradients = 0 B }"),
    "no memory is usable": ("stages", "memory { usable = 0 }"),
    "rates of attention in a list": (
        "contexts",
        "kernels { attention_forward_efficiency = [10 %, 20 %] }",
    ),
    "more kernels of weights than of the backward pass": (
        "rates",
        "framework own { weight_kernels = 1000 }",
    ),
    "a table of no bandwidth": (
        "library",
        "tuning table { generation hopper { tree_more_nodes = 0 B/s } }",
    ),
    "serving by what cannot sum": ("served", "serving chat { collective = bruck }"),
    "wires of too many bytes": ("compressed", "local_updates { wire = 1e300 B }"),
    "a placement beside baselines in a list": (
        "placed",
        "placement routed { baseline_remote = [50 %, 25 %] }",
    ),
    "layouts of nodes in a list": ("sheets", "grid large { node = [2, 8] }"),
    "latent attention of no heads": ("planned", "model planned { kv_lora = 1000000 }"),
    "more stages than there are, and a mesh that would reduce": (
        "dense",
        "schedule { stages = [1, 1, 1, 1] }\nfabric net { level network { kind = mesh, in_network = on } }",
    ),
    "efficiency of next to nothing": (
        "dense",
        "kernels { streaming large { efficiency = 1e-300 } }",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mark_most(FOUND))
def test_what_once_failed_no_longer_does(name: str) -> None:
    base, more = FOUND[name]
    spec = bases()[base] if base else read("", "")
    for place, node in read("more", more).places():
        for attribute, value in node.attributes.items():
            spec = spec.with_value(place, attribute, value)
    ids = _ids(spec.text)
    assert "duplicate" not in ids
    assert fault(SESSION, spec.text) == ""


def _ids(text: str) -> list[str]:
    try:
        return [d.id for s in SESSION.load_text(text) for d in s.evaluate().diagnostics]
    except SpecError as error:
        return [d.id for d in error.diagnostics]


def test_a_table_without_rows_is_no_table() -> None:
    text = bases()["library"].text
    rows = "tuning bare {\n" + "\n".join(
        f"  {line}" for line in _table_lines() if not line.startswith("protocol")
    )
    assert fault(SESSION, text.replace("tuning = table", "tuning = bare") + rows + "\n}\n") == ""


def _table_lines() -> list[str]:
    return [
        *("ring_ll = 50 %", "ring_ll128 = 92 %", "tree = 92 %", "tree_ll = 25 %"),
        *("tree_ll128_one_node = 78 %", "tree_ll128_more_nodes = 90 %", "pat = 75 %"),
        *("pat_steps = 3.5", "pat_rank = 2.8 us", "collnet_direct_peer = 0.4 us"),
        *("collnet_network = 90 %", "simple_overhead = 3", "simple_ports = 2"),
        *("long_message = 64 B", "correction_from = 64 B", "tree_ll_correction = [100]"),
        *("tree_ll128_correction = [100]", "tree_simple_correction = [100]"),
        "host intel { ll_two_nodes = 1 GB/s, ll_more_nodes = 1 GB/s, overhead = 1 us }",
        (
            "generation hopper { payload = 20 GB/s, ll_one_node = 1 GB/s, ring_ll128 = 1 GB/s, "
            "tree_ll128_one_node = 1 GB/s, tree_ll128_two_nodes = 1 GB/s, "
            "tree_ll128_more_nodes = 1 GB/s, tree_one_node = 1 GB/s, tree_two_nodes = 1 GB/s, "
            "tree_more_nodes = 1 GB/s }"
        ),
    ]


@pytest.mark.parametrize(
    "text, near",
    [
        ("transfer t { operation = all_reduce, size = 1e31 B, ranks = 8 }", "1e+30 B"),
        ("transfer t { operation = all_reduce, size = 1 B, latency = 1e-40 s }", "1e-30 s"),
        ("transfer t { operation = all_reduce, size = [1 B, 1e31 B], ranks = 8 }", "1e+30 B"),
    ],
)
def test_magnitudes_that_overflow_in_products_are_refused(text: str, near: str) -> None:
    with pytest.raises(SpecError) as caught:
        SESSION.load_text(text)[0].evaluate()
    (said,) = caught.value.diagnostics
    assert said.id == "out-of-range"
    assert said.help == f"the nearest legal value is {near}"


@pytest.mark.slow
def test_the_bases_run_and_have_every_block() -> None:
    kinds = set()
    for spec in bases().values():
        (scenario,) = SESSION.load_text(spec.text)
        assert scenario.evaluate().exit_code == 0, spec.name
        kinds |= {place[-1][0] for place, _, _ in GENERATOR.attributes(spec)}
    without = {
        k
        for k, t in GENERATOR.types.items()
        if all(f.kind == "children" for f in t.fields.values())
    }
    # of the catalogue, which tests/anchors and tests/model/test_adapters.py change
    beside_anchors = {"job_spread", "quantization"}
    assert kinds == set(GENERATOR.types) - without - beside_anchors


def test_a_spec_is_written_as_it_was_read() -> None:
    for name, spec in bases().items():
        assert read(name, spec.text) == spec


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_settings_at_random_make_no_plugin_fail(hundred: int) -> None:
    for number in range(100 * hundred, 100 * (hundred + 1)):
        case = GENERATOR.random(seed=11, number=number)
        assert fault(SESSION, case.text) == "", case


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_attributes_at_their_edges_make_no_plugin_fail(part: int) -> None:
    """Every 131st of 68,000 cases, a prime number, so that no kind of value and no base is left out."""
    for case in GENERATOR.singles(131 * part, 1310):
        assert fault(SESSION, case.text, depth=1) == "", case
