"""What replicas send, term by term: bytes, seconds, and what may hide, of round numbers.

Links carry 1 GB/s without latency, so that the seconds of a ring are the gigabytes that a rank
sends; four ranks send 3/4 of a message in a gather, and 3/2 in an all-reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import parcost
from parcost import Formula, Once, Study, Work
from parcost.engine.evaluation import diagnose
from parcost.engine.reduce import evaluate
from parcost.plugins.discovery import load
from parcost.report.figures import figures_by_name
from parcost_plugins.vocabulary import Parameters

from ..rows import mark_most

Bind = Callable[..., Study]

FOUR = {"cluster.devices": 4, "training.global_batch": 4}
COPIES = {**FOUR, "kernels.memory_bound": "on"}  # each with its time
OVERLAP = {"overlap.gradients": "on", "overlap.parameters": "on"}
GIVEN = Formula(text="given")


def parameters_record(
    elements: float, count: Sequence[float] = (1.0,), place: Any = "layer", expert: bool = False
) -> Parameters:
    name = f"{place} {count} {expert} {elements}"
    return Parameters(
        name=name, elements=elements, total=elements, count=count, place=place, expert=expert
    )


def ours(study: Study) -> list[Any]:
    found = [term for plugin, term in study.contributions("terms") if ".data" in plugin.name]
    assert study.faults == []
    return found


def once_terms(study: Study) -> dict[str, Any]:
    """Return seconds, gigabytes, the share of the pass beside, and the tail of each term."""
    return {
        term.name: (term.seconds, term.bytes_ / 1e9, term.beside, term.tail)
        for term in ours(study)
        if isinstance(term, Once)
    }


def work(study: Study) -> dict[tuple[str, str], Any]:
    """Return seconds, gigabytes and the share that may hide of each term in a micro-batch."""
    return {
        (term.name, term.pass_): (
            term.seconds,
            term.bytes_ / 1e9,
            None if term.window is None else term.share,
        )
        for term in ours(study)
        if isinstance(term, Work)
    }


def assert_terms(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    assert set(found) == set(expected)
    for name, numbers in expected.items():
        assert found[name] == pytest.approx(numbers), name


# --- once per step ------------------------------------------------------------------------


def test_gradients_leave_in_buckets_and_parameters_come_in_buckets(bind: Bind) -> None:
    values = {**FOUR, **OVERLAP, "layout.zero": 1}
    assert_terms(
        once_terms(bind(values, parameters=[parameters_record(1e9)])),
        {
            "gradient reduce-scatter": (3.0, 4.0, 3 / 4, 0.75),
            "parameter all-gather": (1.5, 2.0, 3 / 4, 0.375),
        },
    )


@pytest.mark.parametrize(("bucket", "count"), [(1e9, 4.0), (4e9, None)])
def test_the_formula_counts_buckets(bind: Bind, bucket: float, count: float | None) -> None:
    values = {**FOUR, **OVERLAP, "overlap.bucket": bucket}
    (term,) = ours(bind(values, parameters=[parameters_record(1e9)]))
    formula = term.formula
    assert (formula.text == "N t") == (count is not None)
    assert formula.inputs.get("N") == (None if count is None else (count, ""))


def test_gradients_without_overlap_are_one_message(bind: Bind) -> None:
    values = {**FOUR, "layout.zero": 1, "overlap.first_bucket": 5e8}
    assert_terms(
        once_terms(bind(values, parameters=[parameters_record(1e9)])),
        {
            "gradient reduce-scatter": (3.0, 4.0, 0.0, 3.0),
            "parameter all-gather": (1.5, 2.0, 0.0, 1.5),
        },
    )


def test_a_smaller_first_bucket_leaves_the_rest_of_backward_to_the_others(bind: Bind) -> None:
    """Half a gigabyte of four leaves first: seven eighths of backward are left."""
    values = {**FOUR, **OVERLAP, "overlap.first_bucket": 5e8}
    assert_terms(
        once_terms(bind(values, parameters=[parameters_record(1e9)])),
        {
            "gradient all-reduce": (5.25, 3.5, 7 / 8 * 3 / 4, 5.25 / 4),
            "smaller gradient bucket": (0.75, 0.5, 7 / 8, 0.0),
        },
    )


@pytest.mark.slow
def test_a_first_bucket_of_a_byte_takes_as_long_as_a_byte(bind: Bind) -> None:
    values = {**FOUR, **OVERLAP, "overlap.first_bucket": 1}
    found = once_terms(bind(values, parameters=[parameters_record(1e9)]))
    assert found["smaller gradient bucket"][0] == pytest.approx(1.5e-9)


def test_gradients_that_fit_in_the_first_bucket_leave_nothing_behind(bind: Bind) -> None:
    """400 MB in six messages of a ring, 10 ms each to start."""
    values = {**FOUR, **OVERLAP, "overlap.first_bucket": 5e8, "wire.net.latency": 0.01}
    assert_terms(
        once_terms(bind(values, parameters=[parameters_record(1e8)])),
        {
            "gradient all-reduce": (0.0, 0.0, 0.0, 0.0),
            "smaller gradient bucket": (0.66, 0.4, 0.0, 0.0),
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("latency", [0.0, 0.01])
def test_each_point_of_a_sweep_over_buckets_is_what_it_is_alone(bind: Bind, latency: float) -> None:
    def numbers_of(first: Any, bucket: Any) -> dict[str, Any]:
        values = {"overlap.first_bucket": first, "overlap.bucket": bucket}
        values |= {**FOUR, **OVERLAP, "wire.net.latency": latency}
        return once_terms(bind(values, parameters=[parameters_record(1e9)]))

    swept = numbers_of([2.5e8, 5e8, 1e9], 5e8)
    for i, first in enumerate((2.5e8, 5e8)):
        alone = numbers_of(first, 5e8)
        alone.setdefault("smaller gradient bucket", (0.0, 0.0, 1.0, 0.0))
        for name, numbers in alone.items():
            points = [np.broadcast_to(column, 3)[i] for column in swept[name]]
            assert points == pytest.approx(numbers)


@pytest.mark.parametrize(("often", "whole"), [("step", True), ("micro_batch", False)])
def test_shares_of_hybrid_sharding_leave_in_buckets_too(
    bind: Bind, often: str, whole: bool
) -> None:
    """Two ranks share 4 GB out; each adds its 2 GB up with the other half of the ranks."""
    values = {**FOUR, **OVERLAP, "sharding.shard": 2, "sharding.replicate": often}
    one = bind({**values, "layout.zero": 1}, parameters=[parameters_record(1e9)])
    across = "all-reduce of gradient shards"
    assert_terms(
        once_terms(one),
        {
            "gradient reduce-scatter": (2.0, 4.0, 3 / 4, 0.5),
            across: (2.0, 2.0, 3 / 4, 0.5),
            "parameter all-gather": (1.0, 2.0, 3 / 4, 0.25),
        },
    )
    two = bind({**values, "layout.zero": 2}, parameters=[parameters_record(1e9)])
    shares = {across: (2.0, 2.0, 3 / 4, 0.5)} if whole else {}
    assert_terms(once_terms(two), {**shares, "parameter all-gather": (1.0, 2.0, 3 / 4, 0.25)})
    crossing = {
        (f"last {across}", "W"): (0.5, 0.5, None),
        (across, "W"): (1.5, 1.5, 3 / 4),
    }
    assert_terms(
        work(two),
        {
            ("last gradient bucket", "W"): (0.5, 1.0, None),
            ("gradient reduce-scatter", "W"): (1.5, 3.0, 3 / 4),
            **({} if whole else crossing),
        },
    )


@pytest.mark.slow
def test_without_zero_there_are_no_shares_to_add_up(bind: Bind) -> None:
    """It is rejected, and worked out as if nothing were said of shares."""
    study = bind({"sharding.shard": 2}, parameters=[parameters_record(1e9)])
    assert_terms(once_terms(study), {"gradient all-reduce": (7.0, 4.0, 0.0, 7.0)})


# --- in every micro-batch -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bucket", "last", "others"),
    [(1.5e9, (1.0, 4 / 3), (2.0, 8 / 3, 2 / 3)), (5e9, (3.0, 4.0), (0.0, 0.0, 0.0))],
)
def test_zero_2_reduces_in_buckets_of_which_the_last_has_nothing_to_hide_under(
    bind: Bind, bucket: float, last: tuple[float, ...], others: tuple[float, ...]
) -> None:
    values = {**FOUR, **OVERLAP, "layout.zero": 2, "overlap.bucket": bucket}
    assert_terms(
        work(bind(values, parameters=[parameters_record(1e9)])),
        {("last gradient bucket", "W"): (*last, None), ("gradient reduce-scatter", "W"): others},
    )


def fsdp(bind: Bind, text: str = "", **more: Any) -> Study:
    """Bind five layers of 2 GB between ends of 4 and of 6 GB, in two bytes on the wire."""
    values = {
        **FOUR,
        **OVERLAP,
        "layout.zero": 3,
        "small.layers": 5,
        "mixed.reduction": 2,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    parameters = [
        parameters_record(2e9, place="before"),
        parameters_record(1e9, (5.0,)),
        parameters_record(3e9, place="after"),
    ]
    return bind(values, text, parameters=parameters)


@pytest.mark.slow
def test_zero_3_gathers_and_reduces_layer_by_layer(bind: Bind) -> None:
    # a gather or a reduction of n GB takes 3/4 n; what hides has 4/5 of the pass
    first, hidden, lead, trail = (1.5, 2.0, None), (1.5, 2.0, 4 / 5), (3.0, 4.0), (4.5, 6.0)
    assert_terms(
        work(fsdp(bind)),
        {
            ("leading parameter all-gather", "F"): (*lead, None),
            ("first parameter all-gather", "F"): first,
            ("parameter all-gather", "F"): hidden,
            ("trailing parameter all-gather", "F"): (*trail, 4 / 5),
            ("first parameter all-gather", "B"): first,
            ("parameter all-gather", "B"): hidden,
            ("leading parameter all-gather", "B"): (*lead, 4 / 5),
            ("trailing gradient reduce-scatter", "W"): (*trail, 4 / 5),
            ("gradient reduce-scatter", "W"): hidden,
            ("last gradient reduce-scatter", "W"): first,
            ("leading gradient reduce-scatter", "W"): (*lead, None),
        },
    )
    # FSDP's root has both ends: one gather ahead, kept through backward, and one reduction behind.
    both = {("parameter all-gather of both ends", "F"): (7.5, 10.0, None)}
    assert_terms(
        work(fsdp(bind, "framework roots { ends_together = on }", training__framework="roots")),
        {
            **both,
            ("first parameter all-gather", "F"): first,
            ("parameter all-gather", "F"): hidden,
            ("first parameter all-gather", "B"): first,
            ("parameter all-gather", "B"): hidden,
            ("gradient reduce-scatter", "W"): hidden,
            ("last gradient reduce-scatter", "W"): first,
            ("gradient reduce-scatter of both ends", "W"): (7.5, 10.0, None),
        },
    )
    counts = {(t.name, t.pass_): tuple(t.count) for t in ours(fsdp(bind))}
    others = {name for name, count in counts.items() if count == (4.0,)}
    assert others == {
        ("parameter all-gather", "F"),
        ("parameter all-gather", "B"),
        ("gradient reduce-scatter", "W"),
    }
    assert {count for name, count in counts.items() if name not in others} == {(1.0,)}


@pytest.mark.parametrize(
    ("more", "hiding"),
    [
        ({}, {"F", "B", "W"}),
        ({"sharding__prefetch": 0}, {"F", "W"}),
        ({"overlap__parameters": "off"}, {"W"}),
        ({"overlap__gradients": "off"}, {"F", "B"}),
    ],
)
def test_gathers_hide_that_are_issued_ahead_and_may_hide(
    bind: Bind, more: dict[str, Any], hiding: set[str]
) -> None:
    found = work(fsdp(bind, **more))
    assert {pass_ for (_, pass_), (_, _, share) in found.items() if share is not None} == hiding


def test_stages_of_a_pipeline_that_keep_parameters_gather_in_the_first_micro_batch(
    bind: Bind,
) -> None:
    """Two ranks gather layers of 2 GB at 1 GB/s, five on a stage, and a head of 6 GB."""
    values = {**FOUR, **OVERLAP, "layout.zero": 3, "layout.pp": 2, "training.global_batch": 20}
    values |= {"small.layers": 10, "sharding.reshard": "off", "sharding.accumulate": "whole"}
    parameters = [
        parameters_record(1e9, (5.0, 5.0)),
        parameters_record(3e9, (0.0, 1.0), place="after"),
    ]
    study = bind(values, parameters=parameters)
    found = {(t.name, tuple(t.count)): t for t in ours(study) if "all-gather" in t.name}
    assert all(isinstance(t, Once) and t.when == "fill" for t in found.values())
    assert {key: (t.seconds, t.bytes_, t.beside) for key, t in found.items()} == {
        ("first parameter all-gather, stage 0", (1.0, 0.0)): (1.0, 2e9, 0.0),
        ("parameter all-gather, stage 0", (4.0, 0.0)): (1.0, 2e9, 4 / 5),
        ("first parameter all-gather, stage 1", (0.0, 1.0)): (1.0, 2e9, 0.0),
        ("parameter all-gather, stage 1", (0.0, 4.0)): (1.0, 2e9, 4 / 5),
        ("trailing parameter all-gather, stage 1", (0.0, 1.0)): (3.0, 6e9, 4 / 5),
    }
    # the fuller stage gathers 16 GB and reduces 32, of which a rank of two sends half
    assert details(study)["dp_volume"] == (16e9 + 32e9) / 2
    for more in ({"sharding.reshard": "on"}, {"sharding.accumulate": "shard"}):
        again = bind({**values, **more}, parameters=parameters)
        assert all(isinstance(t, Work) for t in ours(again) if "all-gather" in t.name)


def test_one_layer_has_no_other_to_hide_under(bind: Bind) -> None:
    values = {**FOUR, **OVERLAP, "layout.zero": 3, "small.layers": 1}
    found = work(
        bind(values, parameters=[parameters_record(1e9), parameters_record(2e9, place="after")])
    )
    assert_terms(
        found,
        {
            ("first parameter all-gather", "F"): (1.5, 2.0, None),
            ("trailing parameter all-gather", "F"): (3.0, 4.0, 0.0),
            ("first parameter all-gather", "B"): (1.5, 2.0, None),
            ("trailing gradient reduce-scatter", "W"): (6.0, 8.0, 0.0),
            ("last gradient reduce-scatter", "W"): (3.0, 4.0, None),
        },
    )


def test_shares_of_layers_cross_in_every_micro_batch(bind: Bind) -> None:
    """Of a layer of 2 GB a rank of two keeps 1 GB, which two ranks add up."""
    study = fsdp(bind, sharding__shard=2, sharding__replicate="micro_batch")
    found = {name: numbers for (name, _), numbers in work(study).items() if "shard" in name}
    assert_terms(
        found,
        {
            "trailing gradient shard all-reduce": (3.0, 3.0, 4 / 5),
            "gradient shard all-reduce": (1.0, 1.0, 4 / 5),
            "last gradient shard all-reduce": (1.0, 1.0, None),
            "leading gradient shard all-reduce": (2.0, 2.0, None),
        },
    )


@pytest.mark.parametrize(("framework", "more"), [("torchtitan", 3), ("megatron_core", 0)])
def test_groups_add_up_their_shards_as_often_as_the_framework_does(
    framework: str, more: int
) -> None:
    """A rank of 2 x 8 has an eighth of the gradients, in fp32, and sends it once in an all-reduce.

    FSDP does so in each of four micro-batches: three times more than once a step.
    """
    text = f"""
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.precisions.bf16
      use catalog.frameworks.{framework}
      model m {{ layers = 4, hidden = 2048, heads = 16, ffn = 8192, vocabulary = 32_000 }}
      cluster {{ devices = 16 }}
      layout {{ zero = 3 }}
      sharding {{ shard = 8, accumulate = shard }}
      training {{ sequence = 1024, micro_batch = 1, global_batch = 64 sequences }}
    """
    sent = []
    for each in (text, text.replace("shard = 8", "shard = 8, replicate = step")):
        (scenario,) = parcost.load_text(each)
        found = figures_by_name(scenario.evaluate().result)
        sent.append(float(found["dp_volume"].value))
    share = 4 * float(found["parameters"].value) / 8
    assert sent[0] - sent[1] == pytest.approx(more * share)


@pytest.mark.slow
def test_a_tied_embedding_is_kept_only_where_both_ends_are_one_stage(bind: Bind) -> None:
    name = ("leading parameter all-gather", "B")
    assert name in work(fsdp(bind))
    assert name not in work(fsdp(bind, small__tied="on"))
    values = {**FOUR, "layout.zero": 3, "layout.pp": 2, "small.tied": "on"}
    parameters = [parameters_record(1e9, (1.0, 0.0), "before"), parameters_record(1e9, (4.0, 4.0))]
    apart = work(bind(values, parameters=parameters))
    assert ("leading parameter all-gather, stage 0", "B") in apart


def _copies(study: Study) -> list[Work]:
    terms = [term for _, term in study.contributions("terms")]
    return [term for term in terms if term.name.startswith("copies of ")]


def test_copies_out_of_and_into_buffers_are_of_every_parameter(bind: Bind) -> None:
    framework = "framework ours { gather_copies = 1, reduction_copy = divided }"
    parameters = [
        parameters_record(3.0, (4.0, 4.0)),
        parameters_record(5.0, (4.0, 4.0)),
        parameters_record(7.0, (0.0, 1.0), "after"),
    ]

    def numbers_of(values: dict[str, Any], text: str = framework) -> dict[tuple[str, str], Any]:
        study = bind({**COPIES, "layout.pp": 2, **values}, text, parameters=parameters)
        streams = _copies(study)
        return {
            (op.name.split(":")[0], f"{op.pass_} {tuple(op.count)}"): op.bytes_ for op in streams
        }

    gathered, reduced = "copies of gathered parameters", "copies of gradients to be reduced"
    every, last = "(4.0, 4.0)", "(0.0, 1.0)"
    # Gathered in 2 B, which are read and written; gradients of 2 B are joined and divided. The
    # head stays gathered from forward to backward.
    whole = {
        (gathered, f"F {every}"): 8 * 4.0,
        (gathered, f"F {last}"): 7 * 4.0,
        (gathered, f"B {every}"): 8 * 4.0,
        (reduced, f"B {every}"): 8 * 8.0,
        (reduced, f"B {last}"): 7 * 8.0,
    }
    assert numbers_of({"layout.zero": 3}) == whole
    assert numbers_of({"layout.zero": 2}) == {}
    kept = numbers_of({"layout.zero": 3, "sharding.reshard": "off"})
    assert kept == {key: n for key, n in whole.items() if key[0] == reduced or "F" in key[1]}
    late = numbers_of(  # once per step, spread over 20 / 2 micro-batches
        {"layout.zero": 3, "sharding.accumulate": "whole", "training.global_batch": 20}
    )
    spread = {key: n / 10 if key[0] == reduced else n for key, n in whole.items()}
    assert late == pytest.approx(spread)
    kept_up_to_the_last = numbers_of(
        {
            "layout.zero": 3,
            "sharding.accumulate": "whole",
            "sharding.reshard": "off",
            "training.global_batch": 20,
        }
    )
    assert kept_up_to_the_last == pytest.approx({key: whole[key] / 10 for key in kept})
    one = "framework ours { gather_copies = 2 }"
    assert set(numbers_of({"layout.zero": 3}, one)) == {key for key in whole if key[0] == gathered}


def test_a_loop_over_layers_copies_what_it_gathers_ahead_and_reduces_behind(bind: Bind) -> None:
    """8 elements in layers, gathered and made in 2 B: 4 B a copy. The head is in no loop."""
    held = [
        parameters_record(3.0, (4.0,)),
        parameters_record(5.0, (4.0,)),
        parameters_record(7.0, (1.0,), "after"),
    ]
    text = "framework ours { loop_copies = on }"
    wide = {**COPIES, "layout.zero": 3, "mixed.gather": 2, "mixed.wide_gather": 2}

    def copies(values: dict[str, Any]) -> list[tuple[str, str, Any]]:
        study = bind(values, text, parameters=held)
        return [(op.name.partition(" for")[0], op.pass_, op.bytes_) for op in _copies(study)]

    gradients = ("copies of gradients", "B", 8 * 4)
    forward, backward = (("copies of parameters", pass_, 8 * 4) for pass_ in "FB")
    assert copies(wide) == [forward, backward, gradients]
    assert copies({**wide, "sharding.reshard": "off"}) == [forward, gradients]
    assert copies({**wide, "layout.zero": 2}) == []


def test_copies_have_the_type_of_the_message_and_gradients_are_of_what_is_trained(
    bind: Bind,
) -> None:
    """A layer of 600 frozen elements in 4.5 bits, 50 frozen ones in 2 B and an adapter of 7."""
    text = """
      quantization nf4 { element = 0.5 B, scale = 4 B, scale_block = 64 }
      adapters { rank = 1, base = nf4, weights = 2 B }
      framework ours { gather_copies = 1, reduction_copy = joined }
    """
    held = [
        evolve(parameters_record(600.0, (4.0,)), linear=True),
        parameters_record(50.0, (4.0,)),
        evolve(parameters_record(7.0, (4.0,)), adapter=True),
    ]
    study = bind({**COPIES, "layout.zero": 3, "mixed.reduction": 2}, text, parameters=held)
    found = {(op.name.partition(":")[0], op.pass_): op.bytes_ for op in _copies(study)}
    gathered = 2 * (600 * 0.5625 + 50 * 2 + 7 * 2)
    assert found["copies of gathered parameters", "F"] == pytest.approx(gathered)
    assert found["copies of gathered parameters", "B"] == pytest.approx(gathered)
    assert found["copies of gradients to be reduced", "B"] == pytest.approx(7 * (2 + 2))


def test_a_narrow_gather_is_copied_as_it_came(bind: Bind) -> None:
    """Linear layers gathered in fp8, the head in bf16; gradients are joined in bf16."""
    text = "framework ours { gather_copies = 1, reduction_copy = joined }"
    held = [parameters_record(600.0, (4.0,)), parameters_record(50.0, (1.0,), "after")]
    narrow = {"mixed.gather": 1, "mixed.wide_gather": 2, "layout.zero": 3}
    study = bind({**COPIES, **narrow}, text, parameters=held)
    found = [(op.pass_, tuple(op.count), op.bytes_) for op in _copies(study)]
    assert found == [
        ("F", (4.0,), 600 * 2),
        ("F", (1.0,), 50 * 4),
        ("B", (4.0,), 600 * 2),  # the head stays gathered
        ("B", (4.0,), 600 * 6),
        ("B", (1.0,), 50 * 6),
    ]


# --- volumes ------------------------------------------------------------------------------

LOW_RANK = {"compression.method": "power_sgd", "compression.rank": 4}


@pytest.mark.parametrize(
    ("zeros", "values"),
    mark_most(
        [
            ((0, 1, 2, 3), {}),
            ((1, 2, 3), {"layout.cp": 2}),
            ((1, 2, 3), {"sharding.shard": 2}),
            ((1, 2, 3), {"sharding.shard": 4, "sharding.replicate": "micro_batch"}),
            ((2, 3), {"sharding.accumulate": "whole"}),
            ((3,), {"sharding.accumulate": "whole", "sharding.shard": 2}),
            ((3,), {"sharding.reshard": "off"}),
            ((3,), {"sharding.keep_last": "on"}),
            ((3,), {"small.tied": "on"}),
            ((0, 1, 3), {"local_updates.workers": 4, "local_updates.period": 5}),
            ((0, 2), {"local_updates.workers": 2, "local_updates.wire": 3}),
            *(
                (zeros, {"compression.method": method, "compression.scale": scale})
                for zeros, method, scale in (
                    ((0, 1, 2, 3), "fp16", 0),
                    ((0, 1), "bf16", 0),
                    ((0, 1, 2, 3), "int8", 4),
                    ((0, 2), "int4", 6),
                    ((0,), "one_bit", 4),
                    ((0,), "top_k", 0),
                )
            ),
            ((0,), LOW_RANK),
            ((0,), {**LOW_RANK, "compression.minimum_rate": 20}),
        ]
    ),
)
def test_the_volume_is_what_the_links_carry(
    bind: Bind, zeros: tuple[int, ...], values: dict[str, Any]
) -> None:
    """All links carry 1 GB/s: the seconds of all terms in a step are the gigabytes sent."""
    for zero in zeros:
        study = bind(
            {**values, "layout.zero": zero, "training.global_batch": 24, "small.layers": 5},
            parameters=[
                parameters_record(2e9, place="before"),
                parameters_record(1024.0 * 3072, (5.0,)),
                parameters_record(1024.0 * 300, (10.0,)),
                parameters_record(1024.0, (10.0,)),
                parameters_record(3e9, place="after"),
            ],
        )
        m = study.pipeline.micro_batches
        seconds = sum(
            term.seconds * np.sum(term.count) * (m if isinstance(term, Work) else 1.0)
            for term in ours(study)
            if term.resource != "hbm"
        )
        assert details(study)["dp_volume"] == pytest.approx(seconds * 1e9, rel=1e-9), zero


def details(study: Study) -> dict[str, Any]:
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in study.plugins.ask("details", study=study, outcome=outcome)}
    assert study.faults == []
    return {**found, "step": outcome.step_seconds}


def test_one_replica_of_nothing_sends_nothing(bind: Bind) -> None:
    values = {"cluster.devices": 1, "training.global_batch": 1}
    found = details(bind(values, parameters=[parameters_record(0.0)]))
    volumes = ("dp_volume", "dp_volume_replicas", "dp_volume_total", "gradient_bytes")
    assert [found[name] for name in volumes] == [0.0] * 4


@pytest.mark.parametrize(("tied", "gathered"), [("on", 44 + 40), ("off", 44 + 40 + 4)])
def test_a_few_parameters_are_gathered_to_the_byte(bind: Bind, tied: str, gathered: int) -> None:
    """Four before five layers of eight each; forward all, backward all but a tied embedding."""
    values = {**FOUR, "layout.zero": 3, "small.layers": 5, "small.tied": tied}
    study = bind(
        values, parameters=[parameters_record(4.0, place="before"), parameters_record(8.0, (5.0,))]
    )
    assert details(study)["dp_volume"] == 3 / 4 * (4 * 44 + 2 * gathered)


def test_experts_send_over_their_own_replicas(bind: Bind) -> None:
    """Eight replicas of 4 GB, and two of the 8 GB of experts."""
    found = details(
        bind(
            {"layout.ep": 4},
            parameters=[parameters_record(1e9), parameters_record(2e9, expert=True)],
        )
    )
    plain = 2 * 7 / 8 * 4e9 + 2 * 1 / 2 * 8e9
    assert found["dp_volume"] == pytest.approx(plain)
    assert found["dp_volume_replicas"] == pytest.approx(plain)
    assert found["gradient_bytes"] == pytest.approx(12e9)


@pytest.mark.slow
def test_the_stage_that_holds_most_sends_most_and_all_of_them_the_total(bind: Bind) -> None:
    """24 devices: two stages, of four layers each and one with the head besides."""
    values = {"cluster.devices": 24, "layout.tp": 2, "layout.cp": 3, "layout.pp": 2}
    values |= {"training.sequence": 1152, "layout.zero": 1, "mixed.reduction": 4}
    for head in ((0.0, 1.0), (1.0, 0.0)):
        study = bind(
            values,
            parameters=[parameters_record(1e9, (4.0, 4.0)), parameters_record(3e9, head, "after")],
        )
        found = details(study)
        # six ranks hold the same: 5/6 of 4 B reduced and of 2 B gathered
        assert found["dp_volume"] == pytest.approx(5 / 6 * 6 * 7e9)
        assert found["dp_volume_replicas"] == pytest.approx(2 * 5 / 6 * 4 * 7e9)
        assert found["dp_volume_against_replicas"] == pytest.approx(6 / 8)
        assert found["dp_volume_total"] == pytest.approx(5 / 6 * 6 * 11e9 * 12)
        assert found["gradient_bytes"] == pytest.approx(28e9)
        assert found["gradient_chunk"] == pytest.approx(28e9 / 6)
        assert "equivalent_step_time" not in found


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"compression.method": "fp16"}, 2 * 1e9 / 2),
        ({"compression.method": "top_k", "compression.density": 0.01}, 0.01 * (4 + 4) * 1e9),
    ],
)
def test_a_ring_sends_gradients_as_they_are_compressed(
    bind: Bind, values: dict[str, Any], part: float
) -> None:
    """Half of 2 B for each on two ranks; of top-k a rank passes on whole parts of the others."""
    values = {"cluster.devices": 2, "mixed.reduction": 4, **values}
    found = details(bind(values, parameters=[parameters_record(1e9)]))
    assert found["gradient_chunk"] == pytest.approx(part)


def test_steps_that_progress_less_are_worth_more_of_them(bind: Bind) -> None:
    values = {"compression.method": "fp16", "compression.steps": 1.5}
    found = details(bind(values, parameters=[parameters_record(1e9)]))
    assert found["equivalent_step_time"] == pytest.approx(1.5 * found["step"])


@pytest.mark.slow
def test_a_micro_batch_whose_backward_pass_is_as_long_as_the_reduction(bind: Bind) -> None:
    """1.2 s on two ranks, of which three quarters hide; three sequences take 340 ms backward.

    The reduction and its compression count, but neither what is gathered nor a forward pass.
    """
    values = {
        **OVERLAP,
        "cluster.devices": 2,
        "training.micro_batch": 3,
        "training.global_batch": 12,
        "overlap.bucket": 3e8,
    }
    work_ = [
        Work(name=p, seconds=s, pass_=p, formula=GIVEN)  # type: ignore[arg-type]
        for p, s in (("F", 7.0), ("B", 0.2), ("W", 0.1), ("R", 0.04))
    ]
    zero = bind(values, parameters=[parameters_record(3e8)], terms=work_)
    found = details(zero)
    assert found["reduction_time"] == pytest.approx(1.2)
    # the pass has 340 ms, of which three quarters of the buckets see 3/4
    assert found["overlap_efficiency"] == pytest.approx(0.75 * 0.34 / 1.2)
    assert found["micro_batch_for_overlap"] == 11  # 3 x 1.2 / 0.34 = 10.6
    one = details(
        bind({**values, "layout.zero": 1}, parameters=[parameters_record(3e8)], terms=work_)
    )
    assert one["reduction_time"] == pytest.approx(0.6)
    assert one["micro_batch_for_overlap"] == 6  # 5.3
    squeezed = {**values, "compression.method": "fp16", "compression.cast_traffic": 5}
    half = details(bind(squeezed, parameters=[parameters_record(3e8)], terms=work_))
    assert half["reduction_time"] == pytest.approx(0.6 + 1.5e9 / 0.5e12)


# --- compression --------------------------------------------------------------------------


def test_low_rank_factors_are_of_each_matrix_that_shrinks(bind: Bind) -> None:
    """Rank 4 of width 1024: matrices of 3072 columns shrink to 2 x 4 x 4096 B, others do not.

    At least 8 times smaller they have to be: 8 x 4 x 4096 < 1024 x 3072, and 8 x 4 x 1064
    is more than 1024 x 40 - as well as 8 x 4 x 1024 x 33 / 32 than 1024 x 33 - as it is.
    """
    matrices, small, vectors = 1024.0 * 3072, 1024.0 * 33, 1024.0
    values = {
        **FOUR,
        **LOW_RANK,
        "compression.minimum_rate": 8,
        "compression.factor": 2,
        "plain.matmul_efficiency": 0.25,
        "small.layers": 5,
    }
    study = bind(
        values,
        parameters=[
            parameters_record(matrices, (5.0,)),
            parameters_record(small, (5.0,)),
            parameters_record(vectors, (10.0,)),
        ],
    )
    rows, columns, whole = 5 * 4 * 2 * 1024, 5 * 4 * 2 * 3072, 4 * (5 * small + 10 * vectors)
    found = once_terms(study)
    sent = rows + columns + whole
    assert found["gradient all-reduce"][:2] == pytest.approx((1.5 * sent / 1e9, sent / 1e9))
    flops = 5 * (6 * 4 * matrices + 2 * 1024 * 4**2)
    (term,) = (t for t in ours(study) if t.name == "gradient compression")
    assert term.formula.inputs["F"] == (flops, "FLOP")
    elements = 5 * matrices + 5 * small + 10 * vectors
    streamed = 20 * elements
    assert found["gradient compression"][:2] == pytest.approx(
        (streamed / 0.5e12 + flops / 25e12, streamed / 1e9)
    )


@pytest.mark.parametrize(("columns", "shrinks"), [(1024.0, False), (1025.0, True)])
def test_a_matrix_that_is_as_small_as_its_factors_is_sent_as_it_is(
    bind: Bind, columns: float, shrinks: bool
) -> None:
    """Rank 256 at a rate of 2: 512 (1024 + w) against 1024 w, the same for w = 1024."""
    values = {**FOUR, **LOW_RANK, "compression.rank": 256, "compression.minimum_rate": 2}
    study = bind(
        {**values, "compression.factor": 1}, parameters=[parameters_record(1024.0 * columns)]
    )
    n = 256 * (1024 + columns) if shrinks else 4 * 1024 * columns
    found = once_terms(study)
    assert found["gradient all-reduce"][1] == pytest.approx(n / 1e9)
    flops = (6 * 256 * 1024 * columns + 2 * 1024 * 256**2) * shrinks
    expected = 20 * 1024 * columns / 0.5e12 + flops / 100e12
    assert found["gradient compression"][0] == pytest.approx(expected)


def test_low_rank_factors_of_experts_are_their_own(bind: Bind) -> None:
    n, of_experts = 1024.0 * 1024, 1024.0 * 2048
    study = bind(
        {**LOW_RANK, "layout.ep": 4},
        parameters=[parameters_record(n), parameters_record(of_experts, expert=True)],
    )
    found = once_terms(study)
    assert found["gradient all-reduce"][1] * 1e9 == pytest.approx(4 * 4 * 2048)
    assert found["gradient all-reduce of experts"][1] * 1e9 == pytest.approx(4 * 4 * 3072)
    flops = 6 * 4 * of_experts + 2 * 1024 * 16
    seconds = 20 * of_experts / 0.5e12 + flops / 100e12
    assert found["gradient compression of experts"][0] == pytest.approx(seconds)


def test_low_rank_factors_are_of_what_a_stage_holds(bind: Bind) -> None:
    n = 1024.0 * 1024
    values = {**FOUR, **LOW_RANK, "layout.pp": 2}
    study = bind(
        values,
        parameters=[
            parameters_record(n, (4.0, 4.0)),
            parameters_record(2 * n, (0.0, 1.0), "after"),
        ],
    )
    found = once_terms(study)
    first, last = 4 * 4 * 4 * 2048, 4 * 4 * 4 * 2048 + 4 * 4 * 3072
    assert found["gradient all-reduce, stage 0"][1] * 1e9 == pytest.approx(first)
    assert found["gradient all-reduce, stage 1"][1] * 1e9 == pytest.approx(last)


def test_one_replica_compresses_nothing(bind: Bind) -> None:
    values = {"cluster.devices": 1, "training.global_batch": 1, "compression.method": "int8"}
    assert (
        once_terms(bind(values, parameters=[parameters_record(1e9)]))["gradient compression"][0]
        == 0.0
    )


@pytest.mark.parametrize(
    ("values", "every"),
    [
        ({"layout.zero": 1}, False),
        ({"layout.zero": 2}, True),
        ({"layout.zero": 3}, True),
        ({"layout.zero": 3, "sharding.accumulate": "whole"}, False),
    ],
)
def test_reductions_per_micro_batch_are_compressed_there(
    bind: Bind, values: dict[str, Any], every: bool
) -> None:
    study = bind(
        {**FOUR, **values, "compression.method": "int8"}, parameters=[parameters_record(1e9)]
    )
    (found,) = [term for term in ours(study) if term.name == "gradient compression"]
    assert isinstance(found, Work) == every
    assert found.formula.inputs["F"] == (0.0, "FLOP")
    assert found.bytes_ == 12e9


@pytest.mark.slow
def test_levels_are_exchanged_one_by_one_only_where_that_is_faster(bind: Bind) -> None:
    """8 GB among nodes of 2: half at 10 GB/s, and 3/4 of 4 GB at 1 GB/s; or 7/8 at once."""
    text = """
    fabric nodes {
      level node { size = 2 devices, bandwidth = 10 GB/s per_direction, latency = 0 s }
      level net { bandwidth = 1 GB/s per_direction, latency = %s }
    }
    """
    values = {"compression.method": "int8", "compression.scale": 0, "cluster.fabric": "nodes"}
    values["layout.zero"] = 1
    name = "gradient reduce-scatter"
    by_levels = once_terms(bind(values, text % "0 s", parameters=[parameters_record(8e9)]))[name][0]
    assert by_levels == pytest.approx(4 / 10 + 3)
    two = {**values, "cluster.devices": 2, "training.global_batch": 2}
    node = bind(two, text % "0 s", parameters=[parameters_record(8e9)])
    assert once_terms(node)[name][0] == pytest.approx(0.4)
    texts = [term.formula.text.startswith("the faster of") for term in ours(node)]
    assert not any(texts)


def test_the_formula_of_an_exchange_has_the_bytes_of_both_halves(bind: Bind) -> None:
    values = {**FOUR, "compression.method": "int8", "compression.scale": 0}
    terms = {term.name: term for term in ours(bind(values, parameters=[parameters_record(1e9)]))}
    formula = terms["gradient all-reduce"].formula
    assert formula.text == "sum(t)"
    assert [part.inputs["n"] for part in formula.parts.values()] == [(1e9, "B")] * 2


def test_a_single_gradient_is_sent_as_it_is(bind: Bind) -> None:
    found = once_terms(bind({**FOUR, **LOW_RANK}, parameters=[parameters_record(1.0)]))
    assert found["gradient all-reduce"][1] == pytest.approx(4e-9)


# --- local updates and copies -------------------------------------------------------------


def test_a_meeting_is_an_average_over_the_steps_between(bind: Bind) -> None:
    """Four workers in three parts every 12 steps: 2 x 3/4 of a third of 3 B, a quarter as often.

    Two replicas of a worker share the parameters out from ZeRO 1 on.
    """
    values = {
        "local_updates.workers": 4,
        "local_updates.period": 12,
        "local_updates.fragments": 3,
        "local_updates.wire": 3,
        "local_updates.overlap_steps": 2,
        "training.global_batch": 40,
        "layout.zero": 1,
    }
    study = bind(values, parameters=[parameters_record(4e9)])
    # of 2 GB in each part half a step's five micro-batches are beside it
    seconds, bytes_, beside, _ = once_terms(study)["outer all-reduce"]
    assert (seconds, bytes_, beside) == pytest.approx((1.5 * 2 / 4, 2 / 4, 2 * 5 / 4))


@pytest.mark.parametrize(("zero", "shards"), [(0, 1), (1, 2)])
def test_two_stages_that_run_both_ways_add_their_copies_up(
    bind: Bind, zero: int, shards: int
) -> None:
    (dualpipe,) = (s for _, s in load().offers("schedules").values() if s.name == "dualpipe")
    values = {"layout.pp": 2, "schedule.kind": "dualpipe", "layout.zero": zero}
    values |= {"cluster.devices": 4, "training.global_batch": 16}
    study = bind(values, schedules=[dualpipe], parameters=[parameters_record(1e9, (1.0, 1.0))])
    seconds, bytes_, _, _ = once_terms(study)["all-reduce between copies of a stage"]
    assert (seconds, bytes_) == pytest.approx((4 / shards, 4 / shards))
    usual = bind(
        {"layout.pp": 2, "layout.zero": zero}, parameters=[parameters_record(1e9, (1.0, 1.0))]
    )
    assert "all-reduce between copies of a stage" not in once_terms(usual)


def test_what_the_last_stage_holds_twice_is_added_up_twice(bind: Bind) -> None:
    twice = Parameters(name="tied", elements=1e9, total=0.0, count=(0.0, 2.0), place="after")
    values = {**FOUR, "layout.pp": 2, "small.layers": 8}
    study = bind(values, parameters=[parameters_record(1e6, (4.0, 4.0)), twice])
    assert once_terms(study)["shared embedding all-reduce"][:2] == pytest.approx((8.0, 8.0))


# --- rules --------------------------------------------------------------------------------

SHARDS = {"layout.zero": 1}
IDS = (
    "shard-divides",
    "shard-without-zero",
    "shard-of-experts",
    "sharding-unused",
    "workers-one",
    "workers-divide",
    "workers-experts",
    "fragments-many",
    "overlap-long",
    "compression-needs-whole-gradients",
    "compression-hybrid",
)


def workers(
    workers: int = 2, period: int = 100, fragments: int = 1, steps: int = 0
) -> dict[str, int]:
    return {
        "local_updates.workers": workers,
        "local_updates.period": period,
        "local_updates.fragments": fragments,
        "local_updates.overlap_steps": steps,
    }


def complaints(bind: Bind, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the rules of data parallelism say, on eight devices."""
    study = bind(values, parameters=[parameters_record(1e9, [1.0] * values.get("layout.pp", 1))])
    checks = [c for _, c in study.contributions("checks") if c.id in IDS and not np.all(c.holds)]
    assert study.faults == []
    return {check.id: diagnose(check, study) for check in checks}


@pytest.mark.parametrize(
    ("values", "failed"),
    [
        ({}, set()),
        # shares of the ranks that hold the same: 4 x 2, less the other workers
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 8}, set()),
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 4}, set()),
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 4, **workers()}, set()),
        ({**SHARDS, "sharding.shard": 3}, {"shard-divides"}),
        ({**SHARDS, "sharding.shard": 2.5}, {"shard-divides"}),
        ({**SHARDS, "cluster.devices": 9, "sharding.shard": 3}, set()),
        ({**SHARDS, "cluster.devices": 9, "sharding.shard": 4}, {"shard-divides"}),
        ({**SHARDS, "cluster.devices": 5, "layout.tp": 2}, set()),  # others say it
        ({"sharding.shard": 4}, {"shard-without-zero"}),
        ({"sharding.shard": 8}, set()),
        ({"sharding.shard": [4, 8]}, {"shard-without-zero"}),
        ({**SHARDS, "sharding.shard": 4, "layout.ep": 2}, {"shard-of-experts"}),
        ({**SHARDS, "sharding.shard": 8, "layout.ep": 2}, set()),
        # choices that change nothing
        ({"layout.zero": 2, "sharding.reshard": "off"}, {"sharding-unused"}),
        ({"layout.zero": 2, "sharding.reshard": "on"}, set()),
        ({"layout.zero": 3, "sharding.reshard": "off"}, set()),
        ({"layout.zero": 3, "sharding.keep_last": "on"}, set()),
        ({"layout.zero": 1, "sharding.keep_last": "on"}, {"sharding-unused"}),
        ({"layout.zero": 1, "sharding.accumulate": "whole"}, {"sharding-unused"}),
        ({"layout.zero": 1, "sharding.accumulate": "shard"}, set()),
        ({"layout.zero": 2, "sharding.accumulate": "whole"}, set()),
        # workers
        (workers(1, period=1), set()),
        (workers(1, period=2), {"workers-one"}),
        (workers(1, period=2, fragments=3), {"workers-one"}),
        (workers(3), {"workers-divide"}),
        ({**workers(2), "cluster.devices": 7}, {"workers-divide"}),
        ({**workers(2), "cluster.devices": 5, "layout.tp": 2}, set()),
        (workers(16), {"workers-divide"}),
        ({**workers(2), "layout.ep": 2}, {"workers-experts"}),
        ({**workers(1), "layout.ep": 2}, {"workers-one"}),
        ({"local_updates.workers": [1, 2], "layout.ep": 2}, {"workers-experts"}),
        (workers(period=10, fragments=10), set()),
        (workers(period=10, fragments=11), {"fragments-many"}),
        (workers(period=10, fragments=11, steps=5), {"fragments-many"}),
        (workers(period=10, fragments=10, steps=1), set()),
        (workers(period=10, fragments=10, steps=2), {"overlap-long"}),
        (workers(period=10, fragments=2, steps=5), set()),
        (workers(period=10, fragments=2, steps=6), {"overlap-long"}),
        # compression
        ({"compression.method": "top_k"}, set()),
        ({"compression.method": "top_k", "layout.zero": 1}, {IDS[9]}),
        ({"compression.method": "int8", "layout.zero": 1}, set()),
        ({"compression.method": "int8", "layout.zero": 1, "layout.cp": 2}, set()),
        ({"compression.method": "int8", "layout.zero": 1, "layout.cp": 2, **workers()}, set()),
        (
            {"compression.method": "int8", "layout.zero": 1, "sharding.shard": 2},
            {"compression-hybrid"},
        ),
    ],
)
def test_incompatible_settings_are_refused(
    bind: Bind, values: dict[str, Any], failed: set[str]
) -> None:
    assert set(complaints(bind, values)) == failed


def test_a_shard_among_workers_says_how_many_ranks_there_are(bind: Bind) -> None:
    found = complaints(bind, {**SHARDS, **workers(), "layout.cp": 2, "sharding.shard": 3})
    assert found["shard-divides"].message == (
        "shards of 3 ranks do not divide the 4 ranks (dp 4 x cp 2 / 2 workers) that hold the "
        "same parameters"
    )
    assert found["shard-divides"].help == "shard over 2 or 4 ranks"


def test_what_would_do_in_place_of_a_meeting_that_is_too_long(bind: Bind) -> None:
    found = complaints(bind, workers(period=10, fragments=3, steps=4))
    assert found["overlap-long"].help == "write `overlap_steps` of at most 3"
    assert found["overlap-long"].message == (
        "an exchange of 4 steps does not end before the next one: 3 fragments are exchanged in 10 steps"
    )
    assert complaints(bind, workers(3))["workers-divide"].help == "take 2 or 4 workers"


H2, H = 2048**2, 2048  # elements of a square matrix, and of a norm


@pytest.mark.parametrize(
    ("zero", "bucket", "reduction", "expected"),
    [
        # q, k, v and output have a bucket each, gate, up and down fit in none; two norms share
        (3, H2, 2, 4 * H2 * 8 + 12 * H2 * 4 + 2 * H * 12),
        (2, H2, 2, 4 * H2 * 8 + 12 * H2 * 4 + 2 * H * 12),
        (3, 500_000_000, 2, (16 * H2 + 2 * H) * 12),
        # in fp32 each is cast, 6 B, and divided, 8 B, behind a copy in bf16, 4 B
        (3, H2, 4, 4 * H2 * 18 + 12 * H2 * 14 + 2 * H * 18),
        # once in two micro-batches; division is a term of the end of the step
        (1, H2, 2, (4 * H2 * 4 + 2 * H * 8) / 2),
        (0, H2, 2, None),
    ],
)
@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_are_copied_through_the_buckets_of_deepspeed(
    zero: int, bucket: int, reduction: int, expected: float | None, overlap: bool
) -> None:
    size = f"bucket = {bucket * reduction} B" if overlap else ""
    staged = 1 if overlap else bucket
    text = f"""
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.precisions.bf16
      precision own extends bf16 {{ reduction = {reduction} B }}
      framework ours {{ bucket_copies = on, gradient_staging = {staged}, separate_projections = on }}
      model m {{ layers = 4, hidden = {H}, heads = 16, ffn = 8192, vocabulary = 32_000 }}
      cluster {{ devices = 8 }}
      layout {{ zero = {zero} }}
      overlap {{ gradients = on, {size} }}
      training {{
        sequence = 1024, micro_batch = 1, global_batch = 16 sequences
        precision = own, model = m, framework = ours
      }}
    """
    (study,) = parcost.load_text(text)[0].studies()
    found = [
        copy.bytes_
        for copy in _copies(study)
        if copy.name.startswith("copies of gradients to be reduced") and list(copy.count) == [4]
    ]
    assert found == ([] if expected is None else [expected])


def test_one_buffer_of_gradients_is_reduced_in_place() -> None:
    text = """
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.models.llama3_8b
      use catalog.frameworks.deepspeed
      use catalog.precisions.bf16
      precision own extends bf16 { gradient_copies = COPIES }
      cluster { devices = 8 }
      layout { zero = 1 }
      training { sequence = 1024, micro_batch = 1, global_batch = 16 sequences, precision = own }
    """
    found = []
    for each in ("0 B", "2 B"):
        (study,) = parcost.load_text(text.replace("COPIES", each))[0].studies()
        found.append(any("gradients to be reduced" in copy.name for copy in _copies(study)))
    assert found == [True, False]
