"""What replicas send, term by term: bytes, seconds, and what may hide, of round numbers.

Links carry 1 GB/s without latency, so that the seconds of a ring are the gigabytes that a rank
sends; four ranks send 3/4 of a message in a gather, and 3/2 in an all-reduce.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

import parcost
from parcost import Once, Study, Work
from parcost.report.figures import figures_by_name

from ..rows import try_each
from .data_terms import FOUR, OVERLAP, Bind, details, once_terms, ours, parameters_record

COPIES = {**FOUR, "kernels.memory_bound": "on"}  # each with its time


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
    last = (1.5, 2.0, 1.0)  # the last layer is gathered beside the head, of which any part hides it
    assert_terms(
        work(fsdp(bind)),
        {
            ("embedding parameter all-gather", "F"): (*lead, None),
            ("first parameter all-gather", "F"): first,
            ("parameter all-gather", "F"): hidden,
            ("head parameter all-gather", "F"): (*trail, 4 / 5),
            ("first parameter all-gather", "B"): last,
            ("parameter all-gather", "B"): hidden,
            ("embedding parameter all-gather", "B"): (*lead, 4 / 5),
            ("head gradient reduce-scatter", "W"): (*trail, 4 / 5),
            ("gradient reduce-scatter", "W"): hidden,
            ("last gradient reduce-scatter", "W"): first,
            ("embedding gradient reduce-scatter", "W"): (*lead, None),
        },
    )
    # FSDP's root has both ends: one gather ahead, kept through backward, and one reduction behind.
    both = {("parameter all-gather of embedding and head", "F"): (7.5, 10.0, None)}
    assert_terms(
        work(fsdp(bind, "framework roots { ends_together = on }", training__framework="roots")),
        {
            **both,
            ("first parameter all-gather", "F"): first,
            ("parameter all-gather", "F"): hidden,
            ("first parameter all-gather", "B"): last,
            ("parameter all-gather", "B"): hidden,
            ("gradient reduce-scatter", "W"): hidden,
            ("last gradient reduce-scatter", "W"): first,
            ("gradient reduce-scatter of embedding and head", "W"): (7.5, 10.0, None),
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


@try_each(
    "more, hiding",
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
        ("head parameter all-gather, stage 1", (0.0, 1.0)): (3.0, 6e9, 4 / 5),
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
            ("head parameter all-gather", "F"): (3.0, 4.0, 0.0),
            ("first parameter all-gather", "B"): (1.5, 2.0, 1.0),
            ("head gradient reduce-scatter", "W"): (6.0, 8.0, 0.0),
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
            "head gradient shard all-reduce": (3.0, 3.0, 4 / 5),
            "gradient shard all-reduce": (1.0, 1.0, 4 / 5),
            "last gradient shard all-reduce": (1.0, 1.0, None),
            "embedding gradient shard all-reduce": (2.0, 2.0, None),
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
    name = ("embedding parameter all-gather", "B")
    assert name in work(fsdp(bind))
    assert name not in work(fsdp(bind, small__tied="on"))
    values = {**FOUR, "layout.zero": 3, "layout.pp": 2, "small.tied": "on"}
    parameters = [parameters_record(1e9, (1.0, 0.0), "before"), parameters_record(1e9, (4.0, 4.0))]
    apart = work(bind(values, parameters=parameters))
    assert ("embedding parameter all-gather, stage 0", "B") in apart


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

    gathered, reduced = (
        "copies of gathered parameters",
        "copies of gradients into the reduction buffer",
    )
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
    assert found["copies of gradients into the reduction buffer", "B"] == pytest.approx(7 * (2 + 2))


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


H2, H = 2048**2, 2048  # elements of a square matrix, and of a norm


#: Bytes for each element of a bucket of H2: joined at seven borders of shards of eight ranks, and of
#: those an eighth copied back.
JOINED = 7 * H2 / (4 * (16 * H2 + 2 * H) + 2 * 32_000 * H + H) * (4 + 4 / 8)


@pytest.mark.parametrize(
    ("zero", "bucket", "reduction", "expected"),
    [
        # q, k, v and output have a bucket each, gate, up and down fit in none; two norms share
        (3, H2, 2, 4 * H2 * 8 + 12 * H2 * 4 + 2 * H * 12),
        # ZeRO 2 joins buckets that hold parts of the shards of several ranks, a part of them
        (2, H2, 2, 4 * H2 * (8 + JOINED) + 12 * H2 * (4 + 4 * JOINED) + 2 * H * (8 + JOINED)),
        (2, 500_000_000, 2, (16 * H2 + 2 * H) * (8 + 4.5)),  # one bucket, of all ranks
        # in fp32 there and back
        (2, H2, 4, 4 * H2 * (20 + JOINED) + 12 * H2 * (16 + 4 * JOINED) + 2 * H * (20 + JOINED)),
        (3, 500_000_000, 2, (16 * H2 + 2 * H) * 12),
        # in fp32 each is cast, 6 B, and divided, 8 B, behind a copy in bf16, 4 B
        (3, H2, 4, 4 * H2 * 18 + 12 * H2 * 14 + 2 * H * 18),
        # once in two micro-batches; division is a term of the end of the step
        (1, H2, 2, (4 * H2 * (4 + JOINED) + 12 * H2 * 4 * JOINED + 2 * H * (4 + JOINED)) / 2),
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
      framework ours {{
        bucket_copies = on, gradient_staging = {staged}, separate_projections = on
        reduce_scatter = off
      }}
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
        if copy.name.startswith("copies of gradients into the reduction buffer")
        and list(copy.count) == [4]
    ]
    assert found == ([] if expected is None else [pytest.approx(expected)])


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
        found.append(
            any("gradients into the reduction buffer" in copy.name for copy in _copies(study))
        )
    assert found == [True, False]
