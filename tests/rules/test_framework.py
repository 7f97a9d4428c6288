"""What a framework has: rules reject the rest, and say where that is known from."""

from __future__ import annotations

import pytest

import parcost
from parcost import Diagnostic, SpecError
from parcost_plugins.vocabulary import Framework, Training
from parcost_plugins.vocabulary.offers import active_offers, offers_of, target_of, value_texts

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
{uses}
cluster  {{ devices = 64 }}
layout   {{ {layout} }}
schedule {{ {schedule} }}
training {{ sequence = 8192, global_batch = 128 sequences, recompute = {recompute} }}
{more}
"""


def spec(
    framework: str = "",
    layout: str = "tp = 2, pp = 4",
    schedule: str = "",
    recompute: str = "full",
    more: str = "",
) -> str:
    uses = f"use catalog.frameworks.{framework}" if framework else ""
    return SPEC.format(uses=uses, layout=layout, schedule=schedule, recompute=recompute, more=more)


def refusals(text: str) -> list[Diagnostic]:
    (scenario,) = parcost.load_text(text)
    try:
        found = scenario.evaluate().diagnostics
    except SpecError as error:
        found = list(error.diagnostics)
    return [d for d in found if d.id.startswith("framework-")]


def test_a_schedule_that_megatron_lacks_is_refused_with_what_it_has_and_where_that_is_read() -> (
    None
):
    text = spec("megatron_core", schedule="kind = zb_v, chunks = 2")
    (found,) = refusals(text)
    assert found.id == "framework-lacks"
    assert "`megatron_core`" in found.message
    assert "`schedule.kind = zb_v`" in found.message
    assert "d98e8a64dd" in found.message  # the version that was read
    notes = "\n".join(found.notes)
    assert "`one_f_one_b`, `interleaved`" in notes
    assert "schedules.py" in notes
    assert found.help is not None
    assert "one_f_one_b" in found.help
    assert found.labels[0].span.text == "kind = zb_v"


@pytest.mark.slow
def test_a_stage_of_zero_that_pipelines_of_deepspeed_lack() -> None:
    """DeepSpeed has ZeRO 0 to 3, and 0 and 1 with pipelines."""
    for zero, legal in ((0, True), (1, True), (2, False), (3, False)):
        found = refusals(spec("deepspeed", f"tp = 2, pp = 4, zero = {zero}"))
        assert (not found) == legal, zero
    assert not refusals(spec("deepspeed", "tp = 2, zero = 3"))
    (rejected,) = refusals(spec("deepspeed", "tp = 2, pp = 4, zero = 3"))
    assert "with pp above 1" in rejected.message
    assert rejected.help is not None
    assert rejected.help.startswith("use 1,")


@pytest.mark.parametrize("framework", ["torchtitan", "pytorch_fsdp", "fsdp_composer"])
def test_fsdp_that_keeps_parameters_is_no_stage_2(framework: str) -> None:
    """Whole parameters between steps, as ZeRO 2 has them, exist under no strategy of FSDP."""
    (rejected,) = refusals(spec(framework, "zero = 2"))
    assert "`sharding { reshard = off }`" in "\n".join(rejected.notes)
    assert not refusals(spec(framework, "zero = 3", more="sharding { reshard = off }"))


@pytest.mark.parametrize(
    ("framework", "layout", "schedule", "recompute", "legal"),
    [
        ("megatron_core", "tp = 2, pp = 4", "kind = interleaved, chunks = 2", "full", True),
        ("megatron_core", "tp = 2, pp = 4", "kind = gpipe", "full", False),
        ("megatron_core", "tp = 2, zero = 3", "", "selective", True),
        ("megatron_core_0_9", "tp = 2, zero = 3", "", "selective", False),
        ("megatron_core_0_9", "tp = 2, zero = 1", "", "selective", True),
        ("megatron_lm_2021", "tp = 2, zero = 1", "", "full", False),
        ("megatron_lm_2021", "tp = 2", "", "selective", False),
        ("megatron_lm_2021", "tp = 2, sequence_parallel = on", "", "full", False),
        ("megatron_lm_2023", "tp = 2, zero = 1, sequence_parallel = on", "", "selective", True),
        ("megatron_lm_2023", "tp = 2, zero = 2", "", "full", False),
        ("torchtitan", "pp = 4, zero = 3", "kind = zb_v, chunks = 2", "full", True),
        ("torchtitan", "pp = 4, zero = 3", "kind = dualpipe_v, chunks = 2", "full", True),
        ("torchtitan_0_1", "pp = 4, zero = 3", "kind = dualpipe_v, chunks = 2", "full", False),
        ("torchtitan", "pp = 4, zero = 3", "kind = zb_h1", "full", False),
        ("torchtitan", "tp = 2, zero = 1", "", "full", False),
        ("torchtitan", "tp = 2, zero = 3", "", "selective", False),
        ("fsdp_composer", "pp = 4", "", "full", False),
        ("fsdp_composer", "zero = 3", "", "full", True),
        ("maxtext", "pp = 4, zero = 3", "kind = one_f_one_b", "full", False),
        ("maxtext", "pp = 4, zero = 3", "kind = gpipe", "full", True),
        ("maxtext", "tp = 2, zero = 3", "", "full", True),  # no pipeline, and no schedule
        ("deepspeed", "pp = 4", "kind = interleaved, chunks = 2", "full", False),
        ("megatron_deepspeed", "tp = 2, pp = 4, zero = 1", "", "selective", True),
        ("", "pp = 4, zero = 3", "kind = zb_h1", "selective", True),
    ],
)
def test_what_frameworks_have(
    framework: str, layout: str, schedule: str, recompute: str, legal: bool
) -> None:
    assert (not refusals(spec(framework, layout, schedule, recompute))) == legal


@pytest.mark.slow
def test_defaults_of_the_framework_are_never_refused() -> None:
    """Reductions of DeepSpeed's pipelines hide under nothing, and nobody has to say so."""
    assert not refusals(spec("deepspeed", "pp = 4"))
    (found,) = refusals(spec("deepspeed", "pp = 4", more="overlap { gradients = on }"))
    assert "`overlap.gradients = on`" in found.message


OWN = """
framework ours {
  version = "1.0"
  offers %s
}
"""


def own_diagnostics(
    offer: str, layout: str = "tp = 2, pp = 4", schedule: str = ""
) -> list[Diagnostic]:
    return refusals(spec("", layout, schedule, more=OWN % offer))


def test_a_framework_of_ones_own_says_what_it_has() -> None:
    offer = 'degrees { attribute = "layout.tp", values = "1, 2, 4", since = "8 since 1.1" }'
    assert not own_diagnostics(offer)
    (found,) = own_diagnostics(offer, "tp = 8, pp = 4")
    assert "`ours` 1.0 does not support `layout.tp = 8`" in found.message
    assert [*found.notes] == ["it supports `1`, `2`, `4`; 8 since 1.1"]  # and no source
    assert found.help is not None
    assert found.help.startswith("use 4,")


@pytest.mark.slow
def test_points_of_a_sweep_are_refused_one_by_one() -> None:
    offer = 'degrees { attribute = "layout.tp", values = "1, 2" }'
    (scenario,) = parcost.load_text(spec("", "tp = [1, 2, 4], zero = 1", more=OWN % offer))
    with_offer = scenario.evaluate()
    (free,) = parcost.load_text(spec("", "tp = [1, 2, 4], zero = 1"))
    assert None not in [row["step_time"] for row in free.evaluate().rows()]
    steps = {row["layout.tp"]: row["step_time"] for row in with_offer.rows()}
    assert [tp for tp, step in steps.items() if step is None] == [4]


@try_each(
    "offer, says, severity",
    [
        ('x { attribute = "layout.tq", values = "1" }', "no attribute `layout.tq`", "error"),
        ('x { attribute = "layout.tp", values = ",," }', "`,,` lists no value", "error"),
        ('x { attribute = "layout.order", values = "a" }', "neither a number nor", "error"),
        ('x { attribute = "layout.tp", values = "two" }', "`two` is not a number", "error"),
        ('x { attribute = "schedule.kind", values = "one_f" }', "has no value `one_f`", "warning"),
    ],
)
def test_a_statement_about_nothing_is_a_mistake(offer: str, says: str, severity: str) -> None:
    found = [d for d in own_diagnostics(offer) if d.id == "framework-offer-unknown"]
    assert [d.severity.value for d in found] == [severity]
    assert says in found[0].message
    assert found[0].help


def test_a_statement_without_values_is_withdrawn() -> None:
    more = 'framework ours extends megatron_core { offers schedules { values = "" } }'
    chosen = "kind = zb_v, chunks = 2"
    text = spec("megatron_core", schedule=chosen, more=more)
    text = text.replace("recompute = full", "recompute = full, framework = ours")
    assert not refusals(text)


def catalogue() -> list[tuple[parcost.Study, Framework]]:
    found = []
    for entry in sorted(_names()):
        study = parcost.load_text(spec(entry))[0].first
        found.append((study, study[Training].framework))
    return found


def _names() -> list[str]:
    from pathlib import Path

    import parcost_specs

    folder = Path(next(iter(parcost_specs.__path__))) / "frameworks"
    return [path.stem for path in folder.glob("*.par")]


def test_every_statement_of_the_catalogue_is_about_something_and_has_a_source() -> None:
    frameworks = catalogue()
    assert len(frameworks) >= 15
    for study, framework in frameworks:
        assert framework.label == "generic" or framework.version
        for offer in active_offers(framework):
            where = f"{framework.label}.{offer.label}"
            assert target_of(study, offer) is not None, where
            origin = study.origin(offer, "values")
            assert origin is not None, where
            assert origin.source, where
            assert value_texts(offer), where


@pytest.mark.slow
def test_defaults_of_a_framework_are_among_what_it_has() -> None:
    judged = set()
    for _, framework in catalogue():
        for attribute, default in (
            ("context.algorithm", framework.context),
            ("overlap.gradients", "on" if framework.gradient_overlap else "off"),
            ("overlap.parameters", "on" if framework.parameter_overlap else "off"),
            ("overlap.tensor", framework.tensor_overlap),
            ("routing.dispatcher", framework.dispatcher),
            ("schedule.transfers", framework.transfers),
            ("sharding.accumulate", framework.accumulate),
        ):
            for offer in offers_of(framework, attribute):
                assert default in value_texts(offer), framework.label
                judged.add(attribute)
    assert judged >= {"context.algorithm", "overlap.gradients"}


def test_the_generic_framework_refuses_nothing() -> None:
    study = parcost.load_text(spec())[0].first
    assert not study[Training].framework.offers


def test_schedules_of_the_plugins_agree_with_the_profiles() -> None:
    """What a schedule says of who has it, and what the frameworks say that they have."""
    profiles = {
        "Megatron-LM": "megatron_core",
        "DeepSpeed": "deepspeed",
        "PyTorch": "torchtitan",
    }
    study = parcost.load_text(spec())[0].first
    for name, profile in profiles.items():
        framework = parcost.load_text(spec(profile))[0].first[Training].framework
        (offer,) = offers_of(framework, "schedule.kind")
        schedules = study.plugins.offers("schedules").items()
        says = {kind for kind, (_, s) in schedules if name in getattr(s, "frameworks", ())}
        assert set(value_texts(offer)) == says


def test_a_run_that_took_place_is_not_refused_for_a_version_that_is_a_guess() -> None:
    more = "framework megatron_core { enforced = off }"
    assert not refusals(spec("megatron_core", schedule="kind = zb_v, chunks = 2", more=more))
