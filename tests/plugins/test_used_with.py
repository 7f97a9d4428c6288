"""A block of a third party says what its attributes wait for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import parcost
from parcost import BYTES, Check, Memory, Real, Study, block, hookimpl, quantity, switch
from parcost.plugins.discovery import load

GiB = 2.0**30
SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.gpt2_small
use catalog.precisions.bf16
cluster {{ devices = 8 }}
layout {{ zero = 0 }}
training {{ sequence = 1024, micro_batch = 1, global_batch = 64 sequences }}
{more}
"""


@block("cache", label="none", used_with={("size", "spare"): "`cache.used = on`"})
class Cache:
    """Memory that a site sets aside."""

    used: bool = switch(default=False, doc="whether there is any")
    size: Real = quantity(BYTES, default=1.0, doc="bytes of it")
    spare: Real = quantity(BYTES, default="cache.size", doc="bytes beside it")


def memory(study: Study) -> Iterator[Memory]:
    cache = study[Cache]
    if cache.used:
        size = parcost.formula("n + s", n=(cache.size, "B"), s=(cache.spare, "B"))
        yield Memory(
            name="cache", cause="cache", bytes_=size, count=(1.0,), moments=("forward", "backward")
        )


def checks(study: Study) -> Iterator[Check]:
    """A rule validates what is written; that is no effect."""
    size = study[Cache].size
    yield Check(id="cache", holds=size < 1e12, subject="cache.size", message="too large")


PLUGIN = SimpleNamespace(
    blocks=hookimpl(lambda: [Cache]), memory=hookimpl(memory), checks=hookimpl(checks)
)


def warnings(more: str, *, check: bool = False) -> list[tuple[str, str | None]]:
    text = SPEC.format(more=more)
    (scenario,) = parcost.load_text(text, plugins=load(("cache", PLUGIN)))
    results = scenario.evaluate().results
    assert not [fault for result in results for fault in result.faults]
    found = scenario.check() if check else [d for r in results for d in r.diagnostics]
    return [(d.message, d.help) for d in found if d.id == "no-effect"]


NEEDS = "it needs `cache.used = on`"


@pytest.mark.slow
@pytest.mark.parametrize("check", [False, True])
def test_an_attribute_that_is_not_read_is_a_warning_with_what_it_waits_for(check: bool) -> None:
    one = [("`cache.size` has no effect", NEEDS)]
    assert warnings("cache { size = 1 GiB }", check=check) == one
    both = [("`cache.size`, `cache.spare` have no effect", NEEDS)]
    assert warnings("cache { size = 1 GiB, spare = 2 GiB }", check=check) == both
    assert warnings("cache { used = on, size = 1 GiB, spare = 2 GiB }", check=check) == []


def test_a_default_or_a_fact_with_a_source_is_no_warning() -> None:
    assert warnings("cache { size = 1 B }") == []
    assert warnings('cache { size = 1 GiB @measured("here") }') == []


def test_an_attribute_that_others_follow_is_read_with_them() -> None:
    """`spare` is `size` by default, so that a plugin that reads `spare` alone uses `size`."""

    def spare_memory(study: Study) -> Iterator[Memory]:
        spare = parcost.formula("s", s=(study[Cache].spare, "B"))
        yield Memory(
            name="cache", cause="cache", bytes_=spare, count=(1.0,), moments=("forward", "backward")
        )

    only = SimpleNamespace(blocks=hookimpl(lambda: [Cache]), memory=hookimpl(spare_memory))
    text = SPEC.format(more="cache { size = 1 GiB }")
    (scenario,) = parcost.load_text(text, plugins=load(("cache", only)))
    result = scenario.evaluate().result
    assert not result.faults
    assert [d for d in result.diagnostics if d.id == "no-effect"] == []


@pytest.mark.slow
def test_points_of_a_sweep_that_do_not_read_it_are_named() -> None:
    (found,) = warnings("cache { used = [off, on], size = 1 GiB }")
    assert found == ("`cache.size` has no effect (at used = off)", NEEDS)
    assert warnings("cache { used = on, size = [1 GiB, 2 GiB] }") == []
    (swept,) = warnings("cache { size = [1 GiB, 2 GiB] }")
    assert swept == ("`cache.size` has no effect", NEEDS)


def test_evaluating_again_says_the_same() -> None:
    """What is read is recorded for each evaluation, and no block keeps it."""
    text = SPEC.format(more="cache { size = 1 GiB }")
    (scenario,) = parcost.load_text(text, plugins=load(("cache", PLUGIN)))
    first, second = scenario.evaluate().result, scenario.evaluate().result
    assert [d.id for d in first.diagnostics] == [d.id for d in second.diagnostics]
    assert type(first.study[Cache]) is Cache
