"""What experts, router and layout may not be, and what is said then."""

from __future__ import annotations

from collections.abc import Callable

import parcost
from parcost import Study

from ..rows import try_each

Mixture = Callable[..., Study]

DROPS = (
    "a capacity factor of 0.8 drops 20 % of the tokens of the busiest rank, which receives 1 "
    "times the mean load"
)

MANY = """model many {
  layers = 4, hidden = 512, heads = 8, ffn = 512, vocabulary = 1000, experts = 256, top_k = 16
}"""


def failures(study: Study) -> dict[str, tuple[str, str]]:
    """What fails, with message and help filled in."""
    found = {}
    for plugin, check in study.contributions("checks"):
        if plugin.name == "expert_parallel.rules" and check.holds is False:
            inputs = {k: f"{v:g}" if isinstance(v, float) else v for k, v in check.inputs.items()}
            if check.id == "capacity-drops":
                inputs = dict(check.inputs)
            found[check.id] = (check.message.format(**inputs), check.help.format(**inputs))
    return found


@try_each(
    "layout, routing, id, message, help",
    [
        (
            "ep = 48",
            "",
            "experts-divide",
            "256 experts are not divisible by ep = 48",
            "nearest legal: ep = 32 or 64",
        ),
        (
            "etp = 3, tp = 1",
            "",
            "expert-width-divide",
            "an expert FFN hidden size of 2048 is not divisible by etp = 3",
            "nearest legal: etp = 2 or 4",
        ),
        (
            "tp = 4, ep = 8",
            "",
            "experts-sequence-parallel",
            "without sequence parallelism, 4 tensor-parallel ranks would each send the same tokens to the experts",
            "write `sequence_parallel = on`, or ep = 1 with etp = 4",
        ),
        (
            "ep = 8",
            "distribution = measured, loads = [1, 2, 3]",
            "loads-count",
            "`loads` lists 3 experts with 6 tokens in total, but the model has 256 experts",
            "list a number of tokens for each of 256 experts, at least one above 0",
        ),
        (
            "ep = 8",
            "concentration = 100",
            "routing-unread",
            "`concentration` has no effect while the distribution is `uniform`",
            "write `distribution = dirichlet`, or leave it out",
        ),
        (
            "ep = 8",
            "distribution = balanced, capacity_factor = 0.8",
            "capacity-drops",
            DROPS,
            "write a factor of 1, which drops no tokens, or remove the capacity factor",
        ),
        (
            "ep = 64",
            "node_limit = 4",
            "node-limit-copies",
            "`node_limit` has no effect if each expert receives its own copy of a token",
            "write `deduplicate = on`, which sends one copy to each node",
        ),
    ],
)
def test_contradictions(
    mixture: Mixture, layout: str, routing: str, id: str, message: str, help: str
) -> None:
    devices = 192 if "48" in layout or "3" in layout else 64
    assert failures(mixture(layout, routing, devices=devices)) == {id: (message, help)}


def test_dropped_tokens_of_skewed_loads_are_reported_above_the_mean(
    mixture: Mixture,
) -> None:
    # 9 tokens for 8 experts: each has 1.25 x 9 / 8 = 1.40625 places, and one is sent 2.
    loads = "distribution = measured, loads = [2, 1, 1, 1, 1, 1, 1, 1], capacity_factor = {}"
    few = "use catalog.models.mixtral_8x7b"
    for ranks in (1, 8):  # experts fill up one by one, wherever they are
        found = failures(mixture(f"ep = {ranks}", loads.format(1.25), model=few))
        message, help = found.pop("capacity-drops")
        assert not found
        assert message == (
            "a capacity factor of 1.25 drops 6.6 % of the tokens: the busiest expert receives "
            "1.78 times the mean load"
        )
        assert (
            help == "write a factor of 1.78, which drops no tokens, or remove the capacity factor"
        )
    assert not failures(mixture("ep = 8", loads.format(1.78), model=few))
    skewed = failures(mixture("ep = 8", "imbalance = 1.645, capacity_factor = 1.25"))
    assert skewed["capacity-drops"][0].startswith("a capacity factor of 1.25 drops 24 % of the")


def test_a_token_cannot_visit_more_experts_than_there_are(mixture: Mixture) -> None:
    model = """use catalog.models.mixtral_8x7b
    model few extends mixtral_8x7b { top_k = 9 }"""
    study = mixture("", model=model, training="model = few")
    assert failures(study) == {
        "experts-visited": ("top_k = 9 is more than the 8 experts", "write `top_k` of at most 8")
    }


def test_shared_experts_divide_like_an_mlp(mixture: Mixture) -> None:
    study = mixture("tp = 3, ep = 1, sequence_parallel = on", devices=192)
    assert failures(study) == {
        "shared-width-divide": (
            "the FFN hidden size of shared experts, 2048, is not divisible by tp = 3",
            "nearest legal: tp = 2 or 4",
        )
    }


def test_a_limited_token_finds_its_experts(mixture: Mixture) -> None:
    # 32 nodes of 8 experts: a token for 16 experts needs two of them
    study = mixture("ep = 256", "deduplicate = on, node_limit = 1", devices=256, model=MANY)
    assert failures(study) == {
        "node-limit-experts": (
            "with node_limit = 1 a token can reach 8 experts, but top_k is 16",
            "write `node_limit` of at least 2",
        )
    }


def test_an_exchange_hides_under_shared_experts_only_where_there_are_some(
    mixture: Mixture,
) -> None:
    study = mixture("ep = 8", "hide = shared_experts", model="use catalog.models.mixtral_8x7b")
    assert list(failures(study)) == ["exchange-hides"]


def test_a_legal_mixture_breaks_no_rule(mixture: Mixture) -> None:
    assert not failures(mixture("ep = 64", "deduplicate = on, node_limit = 4"))
    assert not failures(mixture("tp = 2, ep = 8, sequence_parallel = on", "hide = shared_experts"))
    assert not failures(mixture("", model="use catalog.models.llama3_8b"))


@try_each(
    "schedule, said",
    [
        ("kind = one_f_one_b", ""),
        ("kind = interleaved, chunks = 2", ""),
        (
            "kind = gpipe",
            "`gpipe` does not pair the forward pass of one micro-batch with the backward pass of another",
        ),
        (
            "kind = zb_h1",
            "`zb_h1` does not pair the forward pass of one micro-batch with the backward pass of another",
        ),
        (
            "kind = dualpipe",
            "`dualpipe` already overlaps the all-to-all with the other pass of each pair",
        ),
    ],
)
def test_an_exchange_hides_under_pairs_where_the_schedule_runs_them(
    schedule: str, said: str
) -> None:
    """Eight layers on two stages, eight micro-batches."""
    steps = {}
    for hide in ("none", "pair"):
        (scenario,) = parcost.load_text(
            f"""
            use catalog.devices.h100_sxm
            use catalog.fabrics.hgx_h100
            use catalog.precisions.bf16
            model small {{
              layers = 8, hidden = 2048, heads = 16, vocabulary = 1024
              experts = 8, top_k = 2, expert_ffn = 4096
            }}
            cluster {{ devices = 16 }}
            layout {{ pp = 2, ep = 8 }}
            schedule {{ {schedule} }}
            routing {{ distribution = balanced, hide = {hide} }}
            training {{ sequence = 4096, micro_batch = 1, global_batch = 64 sequences }}
            """
        )
        result = scenario.evaluate().result
        found = [d.message for d in result.diagnostics if d.id == "exchange-pairs"]
        steps[hide] = result.outcome and result.outcome.step_seconds
    assert [message.rpartition("; ")[2] for message in found] == ([said] if said else [])
    if said:
        assert steps["pair"] is None
    else:
        assert steps["pair"] < steps["none"]
