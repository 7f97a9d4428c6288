"""What a narrow type costs one small model, number by number.

Five layers of width 768, with 12 heads and 4 of keys and values of 64, and an MLP of 1024 with a
gate; a micro-batch has two sequences of 1024 tokens. A streaming kernel takes a second to start.
"""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Study

from ..evaluation import details_of
from ..rows import try_each

SPEC = """
device plain {{
  memory = 800 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, fp8 = 200 TFLOPS dense
  multiprocessors = 100, matmul_efficiency = 1, memory_efficiency = 1
}}
fabric wire {{ level net {{ bandwidth = 1 GB/s per_direction, latency = 0 s }} }}
precision mixed {{
  compute = bf16, narrow = fp8, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 0 B, norm_traffic = 0 B, cast_kernels = 3, {recipe}
}}
model small {{
  layers = 5, hidden = 768, heads = 12, kv_heads = 4, ffn = 1024, gated = on, vocabulary = 1024
  {model}
}}
kernels {{
  model = tiled, start = 1 s, memory_bound = {memory_bound}
  gemm_efficiency = 0.5, attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5
}}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
schedule {{ {schedule} }}
routing {{ {routing} }}
training {{ sequence = 1024, micro_batch = 2, global_batch = 16 sequences }}
{adapters}
"""
TOKENS = 2048
QKV, OUT, UP, DOWN = 768 * (768 + 2 * 256), 768 * 768, 768 * 2048, 1024 * 768
LINEAR = QKV + OUT + UP + DOWN
ALL = "cast = 4 B, weight_cast = 5 B, weight_copies = 3 B, amax_group = job"
TWO_STAGES: dict[str, Any] = {"devices": 2, "layout": "pp = 2", "schedule": "stages = [3, 2]"}


def study(recipe: str = ALL, **more: Any) -> Study:
    values = {
        "model": "",
        "memory_bound": "on",
        "devices": 1,
        "layout": "",
        "schedule": "",
        "routing": "",
        "adapters": "",
    }
    (scenario,) = parcost.load_text(SPEC.format(recipe=recipe, **{**values, **more}))
    return scenario.first


def own_terms(of: Study, hook: str = "terms") -> dict[tuple[str, str], Any]:
    found = of.contributions(hook)
    assert not of.faults
    return {
        (term.name, getattr(term, "pass_", "")): term
        for plugin, term in found
        if plugin.name == "precision"
    }


def test_a_tensor_is_cast_in_three_kernels() -> None:
    casts = {
        key: (t.bytes_, t.seconds, tuple(t.count))
        for key, t in own_terms(study()).items()
        if key[0].startswith("cast for")
    }
    expected = {}
    for name, inputs, outputs in (
        ("QKV projection", 768, 1280),
        ("attention output projection", 768, 768),
        ("MLP gate and up projection", 768, 2048),
        ("MLP down projection", 1024, 768),
    ):
        for pass_, width in (("F", inputs), ("B", outputs)):
            n = 4 * TOKENS * width
            expected[f"cast for {name}", pass_] = (n, pytest.approx(n / 1e12 + 3), (5.0,))
    assert casts == expected


def test_a_narrow_core_casts_its_inputs_and_the_gradient_of_its_output() -> None:
    """Twelve heads of queries, four of keys and four of values, of 64 elements each."""
    casts = own_terms(study(f"{ALL}, narrow_attention = on"))
    found = {pass_: casts["cast for attention core", pass_].bytes_ for pass_ in ("F", "B")}
    assert found == {"F": 4 * TOKENS * (12 + 4 + 4) * 64, "B": 4 * TOKENS * 12 * 64}
    assert ("cast for attention core", "F") not in own_terms(study())


@pytest.mark.parametrize(
    ("one_layout", "adapters", "moved"),
    [("on", "", 4 + 1), ("off", "", 4), ("on", "adapters { rank = 16 }", 4)],
)
def test_a_cast_is_transposed_where_products_take_one_layout(
    one_layout: str, adapters: str, moved: int
) -> None:
    text = SPEC.replace(
        "memory_efficiency = 1", f"memory_efficiency = 1, in_one_layout = {one_layout}"
    )
    usual = {"model": "", "layout": "", "schedule": "", "routing": "", "adapters": adapters}
    recipe = f"{ALL}, cast_transpose = 1 B"
    spec = text.format(recipe=recipe, memory_bound="on", devices=1, **usual)
    (scenario,) = parcost.load_text(spec)
    cast = own_terms(scenario.first)["cast for QKV projection", "F"]
    assert cast.bytes_ == moved * TOKENS * 768


def test_each_expert_of_a_rank_has_kernels_of_its_own() -> None:
    """Four of eight experts on a rank, each with a quarter of the two choices of each token."""
    more: dict[str, Any] = {
        "model": "experts = 8, top_k = 2, expert_ffn = 512",
        "devices": 2,
        "layout": "ep = 2",
        "routing": "capacity_factor = 1",
    }
    experts = {
        key: (t.bytes_, t.seconds)
        for key, t in own_terms(study(**more)).items()
        if "expert" in key[0] and key[1] == "F"
    }
    sizes = sorted(bytes_ for bytes_, _ in experts.values())
    # of 768 inputs, and of 512: 2048 x 2 tokens in all
    assert sizes == [4 * 2 * TOKENS * 512, 4 * 2 * TOKENS * 768]
    for bytes_, seconds in experts.values():
        assert seconds == pytest.approx(bytes_ / 1e12 + 3 * 4)


@try_each(
    "recipe, more, names",
    [
        (ALL, {}, {"cast for", "weight cast", "amax all-reduce"}),
        (ALL, {"memory_bound": "off"}, {"amax all-reduce"}),
        ("cast = 4 B", {}, {"cast for"}),
        ("weight_cast = 4 B", {}, {"weight cast"}),
        ("weight_cast = 4 B, weight_casts = pass", {"memory_bound": "off"}, set()),
        ("amax_group = tp", {}, {"amax all-reduce"}),
        ("cast = 1 B, weight_cast = 1 B", {}, {"cast for", "weight cast"}),
    ],
)
def test_unset_parts_of_a_recipe_cost_nothing(
    recipe: str, more: dict[str, Any], names: set[str]
) -> None:
    found = {name.split(" for ")[0] for name, _ in own_terms(study(recipe, **more))}
    assert found == {name.removesuffix(" for") for name in names}


@try_each(
    "gather, zero, reshard, each",
    [
        # A cast of whole weights ahead of each product that reads them.
        ("2 B", 3, "on", {"F": 5, "R": 5, "B": 5}),
        ("2 B, weight_column_cast = 7 B", 3, "on", {"F": 5, "R": 5, "B": 7}),
        ("1 B", 0, "on", {"F": 5, "R": 5, "B": 5}),
        # A shard of a half reads 2 B twice and writes 1; backward transposes 1 B of each weight.
        ("1 B", 3, "on", {"F": 5 / 2, "R": 0, "B": 5 / 2 + 2}),
        ("1 B", 3, "off", {"F": 5 / 2, "R": 0, "B": 2}),
    ],
)
def test_weights_are_cast_in_the_passes_that_read_them(
    gather: str, zero: int, reshard: str, each: dict[str, float]
) -> None:
    of = study(
        f"weight_cast = 5 B, weight_casts = pass, gather = {gather}, wide_gather = 2 B",
        devices=2,
        layout=f"zero = {zero} }}, sharding {{ reshard = {reshard} }}, recompute {{ mlp = on",
    )
    found = {key: t for key, t in own_terms(of).items() if key[0].startswith("weight cast")}
    assert {name for name, _ in found if "QKV" in name} == {"weight cast for QKV projection"}
    for pass_ in ("F", "B"):
        cast = found["weight cast for QKV projection", pass_]
        assert cast.bytes_ == each[pass_] * QKV
        assert tuple(cast.count) == (5,)
    again = found["weight cast for MLP gate and up projection", "R"]
    assert again.bytes_ == each["R"] * UP
    assert again.seconds == pytest.approx(each["R"] * UP / 1e12 + (3 if each["R"] else 0))


def test_weights_of_unequal_stages_are_cast_and_copied_by_stage() -> None:
    of = study(**TWO_STAGES)
    casts = {
        name: (t.bytes_, t.seconds, tuple(t.count))
        for (name, _), t in own_terms(of).items()
        if name.startswith("weight")
    }
    assert casts == {
        f"weight cast, stage {stage}": (
            5 * layers * LINEAR,
            pytest.approx(5 * layers * LINEAR / 1e12 + 3 * 4 * layers),  # kernels of matrices
            count,
        )
        for stage, layers, count in ((0, 3, (1.0, 0.0)), (1, 2, (0.0, 1.0)))
    }
    copies = {name: (t.bytes_, tuple(t.count)) for (name, _), t in own_terms(of, "memory").items()}
    assert copies == {
        "narrow weights, stage 0": (3 * 3 * LINEAR, (1.0, 0.0)),
        "narrow weights, stage 1": (3 * 2 * LINEAR, (0.0, 1.0)),
    }


def test_stages_that_hold_the_same_are_named_together() -> None:
    four: dict[str, Any] = {"devices": 4, "layout": "pp = 4", "schedule": "stages = [1, 2, 1, 1]"}
    names = [name for name, _ in own_terms(study(**four), "memory")]
    assert names == ["narrow weights, stages 0, 2 to 3", "narrow weights, stage 1"]
    empty: dict[str, Any] = {"devices": 2, "layout": "pp = 2", "schedule": "stages = [5, 0]"}
    assert [name for name, _ in own_terms(study(**empty), "memory")] == ["narrow weights, stage 0"]


@try_each("zero", [0, 1, 2, 3])
def test_copies_are_held_but_of_what_comes_and_goes(zero: int) -> None:
    of = study(layout=f"zero = {zero}", devices=2)
    assert bool(own_terms(of, "memory")) == (zero != 3)
    assert own_terms(study("cast = 4 B"), "memory") == {}
    assert [t.bytes_ for t in own_terms(study("weight_copies = 1 B"), "memory").values()] == [
        5 * LINEAR
    ]


@pytest.mark.slow
def test_the_stage_with_most_tensors_agrees_on_its_greatest_values() -> None:
    """Four products of three operands in each of three layers, 4 B each, of two ranks."""
    found = own_terms(study(**TWO_STAGES))
    for pass_, operands in (("F", 2), ("B", 1)):
        term = found["amax all-reduce", pass_]
        assert term.bytes_ == 4 * operands * 4 * 3
        assert term.seconds == pytest.approx(term.bytes_ / 1e9)
        assert term.formula.parts["t"].parts["n"].inputs["k"] == (operands * 12.0, "")
        assert term.count == (1.0, 1.0)


@pytest.mark.parametrize(("group", "seconds"), [("stage", 0.0), ("job", 96e-9)])
def test_ranks_of_one_stage_may_agree_by_themselves(group: str, seconds: float) -> None:
    found = own_terms(study(ALL.replace("job", group), **TWO_STAGES))
    assert found["amax all-reduce", "F"].seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("wide", "layers"), [("", 5), ("wide_first = 1, wide_last = 2", 2)])
def test_every_product_is_counted(wide: str, layers: int) -> None:
    of = study(f"{ALL}, {wide}" if wide else ALL)
    found = details_of(of, of.evaluate())
    (share,) = (f for _, f in found if f.name == "narrow_share")
    assert not of.faults
    # each product once forward and twice backward; the core meets half of all pairs, 3.5 times
    linear, head = 3 * 2 * TOKENS * LINEAR, 3 * 2 * TOKENS * 768 * 1024
    core = 7 * 2 * 4 * 1024**2 * 768 // 2 // 2
    assert share.formula.inputs["narrow"][0] == layers * linear
    assert share.formula.inputs["all"][0] == 5 * (linear + core) + head
    assert share.value == pytest.approx(layers * linear / (5 * (linear + core) + head))


def figure_values(of: Study) -> dict[str, Any]:
    found = {f.name: f for _, f in details_of(of, of.evaluate())}
    assert not of.faults
    return found


def test_the_narrow_peak_is_used_by_what_is_trained_in_a_second() -> None:
    of = study(devices=2)
    figure = figure_values(of)["mfu_fp8"]
    inputs = {name: value for name, (value, _) in figure.formula.inputs.items()}
    assert (inputs["tokens"], inputs["N"], inputs["peak"]) == (16 * 1024, 2, 2e14)
    flops = 16 * 1024 * inputs["C"]
    assert figure.value == pytest.approx(flops / (2 * inputs["T"] * 2e14), rel=1e-12)


def test_a_class_is_listed_with_what_is_held_and_sent_of_an_element() -> None:
    recipe = f"{ALL}, kept = 1 B, gather = 3 B, reduction = 5 B, tensor_gather = 1 B, scale = 4 B"
    found = figure_values(study(f"{recipe}, scale_block = 8, dispatch = 7 B, combine = 9 B"))
    assert found["narrow_bits"].value == 8 * (1 + 4 / 8)
    ratios = {
        name.removeprefix("bytes_of_"): figure.value
        for name, figure in found.items()
        if name.startswith("bytes_of_")
    }
    # of what has 2 B in bf16, and gradients of themselves; weights have 2 B and copies of 3 B
    assert ratios == {
        "operands_of_linear_layers": 1.5 / 2,
        "weights": 5 / 2,
        "gradients": 1.0,
        "saved_inputs_of_linear_layers": 1 / 2,
        "parameter_all_gather": 3 / 2,
        "gradient_reduction": 1.0,
        "tensor_parallel_all_gather": 1 / 2,
        "tensor_parallel_sums": 1.0,
        "pipeline_send_recv": 1.0,
        "expert_dispatch": 7 / 2,
        "expert_combine": 9 / 2,
        "keys_and_values_of_a_ring": 1.0,
    }


@pytest.mark.parametrize(("scale", "wider"), [(1, False), (2, True)])
def test_an_element_may_be_as_wide_as_it_was(scale: int, wider: bool) -> None:
    """A byte of an element and one of its own factor are the two of bf16."""
    found = study(f"scale = {scale} B").contributions("checks")
    checks = {check.id: check.holds for _, check in found}
    assert checks["scale-wider-than-elements"] != wider


def lora(*, narrow: str, recipe: str = "") -> dict[tuple[str, str], Any]:
    own = f"cast = 4 B, frozen_cast = 3 B, frozen_kernels = 2, weight_cast = 5 B, {recipe}"
    block = f"adapters {{ rank = 16, narrow = {narrow} }}"
    return own_terms(study(own, adapters=block))


def test_beside_frozen_weights_nothing_is_cast_along_columns() -> None:
    casts = lora(narrow="off")
    for pass_, width in (("F", 768), ("B", 1280)):
        term, n = casts["cast for QKV projection", pass_], 3 * TOKENS * width
        assert (term.bytes_, term.seconds) == (n, pytest.approx(n / 1e12 + 2))


def test_frozen_weights_are_cast_in_each_step_unless_they_are_parameters_in_fp8() -> None:
    assert lora(narrow="off")["weight cast", ""].bytes_ == 5 * 5 * LINEAR
    assert ("weight cast", "") not in lora(narrow="on")


@pytest.mark.parametrize(("copies", "bytes_"), [("", 2), ("weight_copies = 1 B", 1)])
def test_a_narrow_frozen_weight_is_held_once(copies: str, bytes_: float) -> None:
    own = study(f"cast = 4 B, {copies}", adapters="adapters { rank = 16, narrow = on }")
    (held,) = (t for _, t in own.contributions("memory") if t.name == "frozen weights")
    # Embedding, head, and norms stay wide; adapters are no frozen weights.
    wide = 2 * (2 * 1024 * 768 + 11 * 768)
    assert float(held.bytes_) == wide + 5 * bytes_ * LINEAR
