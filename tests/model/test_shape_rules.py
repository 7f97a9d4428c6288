"""What a model may not be, and what is said then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study

from ..rows import try_each

StudyOf = Callable[..., Study]

SHAPE = "layers = 4, hidden = 512, heads = 8, ffn = 512, vocabulary = 100"


def failures(study: Study) -> dict[str, str]:
    """What fails, with its message filled in."""
    found = {}
    for _, check in study.contributions("checks"):
        if check.holds is False or (not isinstance(check.holds, bool) and not check.holds.all()):
            inputs = {k: f"{v:g}" if isinstance(v, float) else v for k, v in check.inputs.items()}
            found[check.id] = check.message.format(**inputs)
    return found


@try_each(
    "more, id, message",
    [
        ("shared_experts = 1", "experts-shared", "`experts` is 0"),
        ("dense_first = 1", "experts-dense-first", "`experts` is 0"),
        ("top_k = 2", "experts-routed", "`experts` is 0"),
        ("q_lora = 64", "latent-queries", "`kv_lora` is 0"),
        ("full_every = 2", "window-full", "needs other layers with a window"),
        ("window = 4096", "window-wide", "4096 tokens is not shorter than the sequence of 2048"),
        ("window = 64, full_every = 5", "full-layers-none", "and the model has 4 layers"),
        ("delta_heads = 8, full_every = 9", "full-layers-none", "no layer attends to all tokens"),
        ("head_dim = 0", "heads-sized", "a head of attention has the size 0"),
        ("kv_lora = 64, v_dim = 0", "heads-sized", "a head of attention has the size 0"),
        ("delta_heads = 8, delta_key_dim = 0", "heads-sized", "a head of a gated delta net"),
        ("experts = 8, dense_first = 5", "dense-layers", "`dense_first` is 5"),
        ("experts = 8, parameters = 1 G", "nominal-experts", "model `m` has both"),
    ],
)
def test_attributes_that_contradict_one_another(
    study_of: StudyOf, more: str, id: str, message: str
) -> None:
    found = failures(study_of(f"model m {{ {SHAPE}, {more} }}"))
    assert list(found) == [id]
    assert message in found[id]


@try_each(
    "more, broken",
    [
        ("experts = 1, shared_experts = 1", []),
        ("experts = 1, top_k = 1, dense_first = 4", []),
        ("kv_lora = 1, q_lora = 1", []),
        ("q_lora = 1", ["latent-queries"]),
        ("window = 1, full_every = 1", []),
        ("window = 1, full_every = 4", []),
        ("kv_lora = 64, head_dim = 0, nope_dim = 8, v_dim = 8", []),
        ("full_every = 1", ["window-full"]),
        ("window = 2047", []),
        ("window = 2048", ["window-wide"]),
        ("alibi = on", []),
        ("alibi = on, positions = 1", ["alibi-with-positions"]),
        ("positions = 2048", []),
        ("positions = 2047", ["positions-few"]),
    ],
)
def test_one_is_enough(study_of: StudyOf, more: str, broken: list[str]) -> None:
    assert list(failures(study_of(f"model m {{ {SHAPE}, {more} }}"))) == broken


@try_each(
    "training, holds",
    [
        ("document = 2048", True),
        ("document = 2049", False),
        ("documents = [1, 2047]", True),
        ("documents = [2, 2047]", False),
    ],
)
def test_documents_fill_their_sequence_to_the_token(
    study_of: StudyOf, training: str, holds: bool
) -> None:
    assert (failures(study_of("llama3_8b", training=training)) == {}) is holds


def test_a_single_expert_may_be_run_again(study_of: StudyOf) -> None:
    model = f"model m {{ {SHAPE}, experts = 1 }}"
    assert not failures(study_of(model, extra="recompute { moe = on }"))


@pytest.mark.parametrize(
    ("training", "id", "message"),
    [
        ("documents = [1000, 1000]", "documents-fill", "2000 tokens do not add up to"),
        ("document = 4096", "document-long", "4096 tokens does not fit"),
        (
            "document = 1024, documents = [1024, 1024]",
            "documents-twice",
            "all of them to 1024 tokens",
        ),
    ],
)
def test_documents_that_do_not_fit_their_sequence(
    study_of: StudyOf, training: str, id: str, message: str
) -> None:
    found = failures(study_of("llama3_8b", training=training))
    assert list(found) == [id]
    assert message in found[id]


@try_each(
    "recompute, id",
    [
        ("every = 2", "recompute-layers"),
        ("layers = 2", "recompute-layers"),
        ("up_projection = on", "recompute-latent"),
        ("moe = on", "recompute-experts"),
    ],
)
def test_recomputation_of_what_is_not_there(study_of: StudyOf, recompute: str, id: str) -> None:
    assert list(failures(study_of("llama3_8b", extra=f"recompute {{ {recompute} }}"))) == [id]


def test_every_model_of_the_catalogue_is_consistent(study_of: StudyOf) -> None:
    for model in ("deepseek_v3_mtp", "gpt_oss_20b", "qwen15_moe_a2_7b", "palm_540b", "bert_large"):
        devices = 64
        sequence = 512 if model == "bert_large" else 2048
        found = failures(study_of(model, devices=devices, sequence=sequence))
        assert not found, model


def test_a_model_without_a_shape_lists_its_missing_attributes() -> None:
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        model m { layers = 4, hidden = 512 }
        cluster { devices = 1 }
        training { sequence = 128, global_batch = 1 sequences }
        """
    )
    result = scenario.evaluate().result
    assert not result.legal
    (diagnostic,) = result.diagnostics
    assert diagnostic.message == "model `m` has no `heads`, `vocabulary`"
    assert "parameters = ..." in (diagnostic.help or "")


def test_a_nominal_model_that_sends_activations_needs_a_width(study_of: StudyOf) -> None:
    found = failures(study_of("model m { layers = 4, parameters = 1 G }", layout="tp = 2"))
    assert list(found) == ["nominal-width"]
