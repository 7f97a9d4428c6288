"""``auto`` picks of the algorithms of the communication library in use."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Collective, Group, Library, Session, SpecError, hookimpl
from parcost.contract.plugin import Plugin
from parcost.plugins.discovery import Plugins, load
from parcost_formats.rendering.cells import plugin_note as chosen

from ..rows import try_each

SPEC = """
use catalog.devices.{device}
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = 64 }}
layout {{ tp = 2, zero = 1, sequence_parallel = on }}
{more}
training {{ sequence = 8192, micro_batch = 1, global_batch = 128 sequences }}
"""


def choice(operation: str, n: float, group: str, device: str = "h100_sxm", more: str = "") -> str:
    study = parcost.load_text(SPEC.format(device=device, more=more))[0].first
    return study.collective(operation, n, group).algorithm


# What NCCL runs: rings and trees, each with the protocol for the size; grouped messages.
@try_each(
    "operation, n, group, name",
    [
        ("all_gather", 32e6, "tp", "ring_simple"),
        ("all_gather", 1e4, "dp", "ring_ll"),
        ("reduce_scatter", 1e4, "dp", "ring_ll"),
        ("all_reduce", 1e4, "dp", "tree_ll"),
        ("all_reduce", 1e10, "dp", "nvls_tree"),
        ("all_to_all", 1e4, "dp", "pairwise"),
        ("gather", 1e4, "dp", "linear"),
    ],
)
def test_nvidia_devices_use_what_nccl_has(operation: str, n: float, group: str, name: str) -> None:
    assert choice(operation, n, group) == name


@try_each(
    "library, operation, name",
    [
        ("any", "all_gather", "halving_doubling"),
        ("mpi", "all_gather", "recursive_doubling"),
        ("rccl", "all_gather", "ring_ll"),
        ("nccl_text_book", "all_gather", "ring"),
        ("rccl_text_book", "all_gather", "ring"),
        ("mpi", "all_to_all", "bruck"),
    ],
)
def test_a_study_names_another_library(library: str, operation: str, name: str) -> None:
    more = f"collectives {{ library = {library} }}"
    assert choice(operation, 1e4, "dp", more=more) == name


def test_amd_devices_use_rccl_and_tpus_any() -> None:
    assert choice("all_gather", 1e4, "dp", "mi300x") == "ring_ll128"
    assert choice("all_gather", 1e4, "dp", "tpu_v5e") == "halving_doubling"


def test_parallel_trees_gather_where_each_rank_has_a_node() -> None:
    """With tp = 8 a replica has one rank on each of 8 nodes: 3 rounds of 14 us, not 7."""
    more = "collectives { library = nccl_text_book }"
    study = parcost.load_text(SPEC.format(device="h100_sxm", more=more).replace("tp = 2", "tp = 8"))
    call = study[0].first.collective("all_gather", 0.0, "dp")
    assert (call.algorithm, call.seconds) == ("pat", pytest.approx(3 * 14e-6))


def test_what_is_read_of_a_library_is_of_a_release() -> None:
    cited = {
        name: library.source.split(",")[0]
        for name, (_, library) in load().offers("libraries").items()
    }
    assert cited == {
        "nccl": "NCCL 2.30",
        "rccl": "RCCL",
        "nccl_text_book": "NCCL 2.30: algorithms estimated by rounds and bytes",
        "rccl_text_book": "RCCL: algorithms estimated by rounds and bytes",
        "mpi": "Thakur",
    }


def test_a_device_without_a_table_has_the_algorithms_of_text_books() -> None:
    more = "device h100_sxm { generation = unknown }"
    assert choice("all_reduce", 1e10, "dp", more=more) == "ring"


def test_every_library_has_an_algorithm_for_what_a_step_needs() -> None:
    for name, (_, library) in load().offers("libraries").items():
        known = load().offers("collectives")
        for operation, names in library.algorithms.items():
            for one in names:
                assert operation in known[one][1].operations, (name, operation, one)
        assert {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"} <= {*library.algorithms}


class Magic(Collective):
    """An algorithm of somebody else that takes no time."""

    name = "magic"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
    source = "wishful thinking"

    def seconds(self, operation: str, n: Any, group: Group) -> Any:  # noqa: ARG002
        return 0.0 * n


class Foreign:
    """A plugin with an algorithm, and a library that has it."""

    @hookimpl
    def collectives(self) -> list[Magic]:
        return [Magic()]

    @hookimpl
    def libraries(self) -> list[Library]:
        return [Library(name="ours", source="ours", algorithms={"all_gather": ("magic",)})]


def session() -> Session:
    return Session(load(("foreign", Foreign())))


@pytest.mark.slow
def test_an_algorithm_of_another_plugin_moves_no_study_of_a_library() -> None:
    text = SPEC.format(device="h100_sxm", more="")
    plain = parcost.load_text(text)[0].evaluate().result.figure("step_time")
    assert session().load_text(text)[0].evaluate().result.figure("step_time") == plain
    free = SPEC.format(device="h100_sxm", more="collectives { library = any }")
    assert session().load_text(free)[0].first.collective("all_gather", 1e9, "dp").seconds == 0
    own = SPEC.format(device="h100_sxm", more="collectives { library = ours }")
    assert session().load_text(own)[0].first.collective("all_gather", 1e9, "dp").seconds == 0


def test_an_algorithm_outside_of_the_library_is_an_error() -> None:
    own = SPEC.format(device="h100_sxm", more="collectives { library = ours }")
    with pytest.raises(SpecError) as caught:
        session().load_text(own)[0].first.collective("all_reduce", 1e9, "dp")
    (found,) = caught.value.diagnostics
    assert found.message == "no algorithm of the library `ours` offers `all_reduce`"


def test_plugins_from_outside_are_known() -> None:
    assert [plugin.name for plugin in load(("foreign", Foreign())).foreign] == ["foreign"]


def test_the_head_of_a_report_names_plugins_from_outside() -> None:
    ours = Plugin("ring", "parcost", "1.0", object())
    theirs = Plugin("gossip", "gossip-plugin", "2.1", object())
    assert chosen(Plugins((ours, theirs))) == "; with: `gossip` of gossip-plugin 2.1"
    assert chosen(Plugins((ours,))) == ""
