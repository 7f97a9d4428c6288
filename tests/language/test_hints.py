"""Hints: what somebody meant who wrote a word of another tool, or a unit too few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import SpecError
from parcost.language.diagnostics import Diagnostic

from ..rows import try_each

USES = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
"""
BLOCKS = {
    "cluster": "cluster { devices = 64 }",
    "layout": "layout { tp = 2, zero = 1, sequence_parallel = on }",
    "training": "training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }",
}


def diagnostics_of(text: str = "", **blocks: str) -> list[Diagnostic]:
    spec = "\n".join([USES, *(BLOCKS | blocks).values(), text])
    try:
        (scenario,) = parcost.load_text(spec)
        return list(scenario.evaluate().diagnostics)
    except SpecError as error:
        return list(error.diagnostics)


def helps(text: str = "", **blocks: str) -> str:
    return "\n".join(d.help or "" for d in diagnostics_of(text, **blocks))


def test_a_name_with_a_leading_digit_has_a_hint() -> None:
    assert helps("schedule { kind = 1f1b }") == "did you mean `one_f_one_b`?"


def test_capitals_are_no_other_name() -> None:
    assert helps(layout="layout { TP = 8, zero = 1 }") == "did you mean `tp`?"


def test_an_entry_of_a_catalogue_is_found_by_its_last_name() -> None:
    assert helps("use llama31_405b") == "did you mean `use catalog.models.llama31_405b`?"


def test_a_name_in_quotes_differs_from_a_string() -> None:
    said = helps(cluster='cluster { devices = 64, device = "h100" }')
    assert said == "write a name without quotes; did you mean `h100_sxm`?"


@try_each("path", ["nosuch.tp", "cluster.tp", "laout.tp", "layout.tpp"])
def test_a_path_is_near_a_block_or_an_attribute(path: str) -> None:
    (scenario,) = parcost.load_text("layout { tp = 2 }", overrides={path: "2"})
    with pytest.raises(SpecError) as error:
        scenario.evaluate()
    assert error.value.diagnostics[0].help == "did you mean `layout.tp`?"


def test_a_rate_in_bits_lacks_its_second() -> None:
    transfer = "transfer t { operation = all_reduce, size = 1 GB total, ranks = 8, "
    said = helps(transfer + "bandwidth = 400 Gb per_direction }")
    assert said == "write `400 Gbps per_direction`"
    assert not diagnostics_of(transfer + "bandwidth = 400 Gbps per_direction }")
    assert not diagnostics_of(transfer + "bandwidth = 400 Gb/s per_direction }")


@pytest.mark.parametrize("batch", ["64 sequences * 4", "64 * 4 sequences"])
def test_a_word_inside_of_a_product_is_moved_behind_it(batch: str) -> None:
    training = f"training {{ sequence = 8192, micro_batch = 1, global_batch = {batch} }}"
    said = helps(training=training)
    assert said == "write the qualifier after the whole value: `(64 * 4) sequences`"
    assert not diagnostics_of(training=training.replace(batch, "(64 * 4) sequences"))


def test_a_block_is_no_attribute_and_the_attribute_is_named() -> None:
    assert "did you mean `kind`? it is one of the schedules" in helps(
        "pipeline p { schedule = gpipe, stages = 4, micro_batches = 8, forward = 2 ms }"
    )


def test_stages_that_are_proposed_divide_the_devices() -> None:
    """61 layers are cut unevenly on 8 or 16 stages, and 64 devices are divisible by both."""
    odd = "model odd extends llama3_8b { layers = 61 }"
    training = (
        "training { model = odd, sequence = 8192, micro_batch = 1, global_batch = 128 sequences }"
    )
    said = helps(odd, layout="layout { pp = 12, zero = 1 }", training=training)
    assert "pp = 8 or 16 divides" in said
    said = helps(odd, layout="layout { pp = 8, zero = 1 }", training=training)
    assert "the framework needs an option for this split" in said


def test_a_second_block_is_a_second_study() -> None:
    assert "write several studies" in helps("cluster { devices = 32 }")


def test_groups_that_a_border_cuts_do_not_reach_beyond_it() -> None:
    heads = (
        "model three extends llama3_8b { heads = 24, kv_heads = 24, hidden = 3072, ffn = 12288 }"
    )
    (said,) = (
        d.message
        for d in diagnostics_of(
            heads,
            cluster="cluster { devices = 24 }",
            layout="layout { tp = 3, zero = 1 }",
            training="training { model = three, sequence = 8190, micro_batch = 1, "
            "global_batch = 128 sequences }",
        )
        if d.id == "tp-wider-than-fast-domain"
    )
    assert said.startswith("tensor-parallel groups of 3 do not divide the 8 devices of level")


@try_each(
    "block, line, help",
    [
        ("training", "micro_batch_size = 1", "did you mean `micro_batch`?"),
        ("training", "micro_batchsize = 1", "did you mean `micro_batch`?"),
        ("training", "microbatchsize = 1", "did you mean `micro_batch`?"),
        ("training", "microbatch = 1", "did you mean `micro_batch`?"),
        ("training", "microbatches = 1", "did you mean `micro_batches`?"),
        ("training", "globalBatch = 8 sequences", "did you mean `global_batch`?"),
        ("training", "mbs = 1", "write `micro_batch`"),
        ("training", "gbs = 8", "write `global_batch`"),
        ("training", "tensor = 8", "`tensor` is an attribute of `collectives` and of `overlap`"),
        ("cluster", "gpus = 8", "write `devices`"),
        ("cluster", "num_gpus = 8", "write `devices`"),
        ("cluster", "world_size = 8", "write `devices`"),
        ("layout", "gpus = 8", "write `devices` in `cluster`"),
        ("layout", "tensor = 8", "write `tp`"),
        ("layout", "tensor_parallel = 8", "write `tp`"),
        ("layout", "pipeline = 8", "write `pp`"),
        ("layout", "pipeline_parallel = 8", "write `pp`"),
        ("layout", "data_parallel = 8", "write `dp`"),
        ("layout", "context_parallel = 8", "write `cp`"),
        ("layout", "expert_parallel = 8", "write `ep`"),
        ("layout", "vpp = 2", "write `chunks` in `schedule`"),
        ("layout", "virtual_pipeline = 2", "write `chunks` in `schedule`"),
        ("layout", "fsdp = on", "write `zero = 3`"),
        ("layout", "distributed_optimizer = on", "write `zero = 1`"),
        ("training", "seq_length = 4096", "write `sequence`"),
        ("layout", "tensor_model_parallel_size = 8", "write `tp`"),
        ("layout", "pipeline_model_parallel_size = 8", "write `pp`"),
        ("layout", "use_distributed_optimizer = on", "write `zero = 1`"),
        ("layout", "virtual_pipeline_model_parallel_size = 2", "write `chunks` in `schedule`"),
        ("training", "vocab_size = 32000", "write `vocabulary` in `model`"),
        ("model", "num_query_groups = 8", "write `kv_heads`"),
    ],
)
def test_names_of_other_tools_lead_to_those_of_here(block: str, line: str, help: str) -> None:
    if block == "model":
        said = helps(f"model mine extends llama3_8b {{ {line} }}").partition("\n")[2]
    else:
        said = helps(**{block: BLOCKS[block].replace(" }", f", {line} }}")})
    assert said.splitlines()[0] == help


@try_each(
    "path, help",
    [
        ("layout.tensor", "write `layout.tp`"),
        ("tensor_parallel", "write `layout.tp`"),
        ("parallelism.tp_size", "write `layout.tp`"),
        ("layout.virtual_pipeline", "write `schedule.chunks`"),
        ("vpp", "write `schedule.chunks`"),
        ("layout.fsdp", "write `layout.zero = 3`"),
        ("cluster.gpus", "write `cluster.devices`"),
        ("training.model.num_layers", "write `training.model.layers`"),
        ("training.microbatchsize", "did you mean `training.micro_batch`?"),
        ("layout.tpp", "did you mean `layout.tp`?"),
    ],
)
def test_a_path_of_another_tool_leads_to_the_path_of_here(path: str, help: str) -> None:
    (scenario,) = parcost.load_text("\n".join([USES, *BLOCKS.values()]), overrides={path: "2"})
    with pytest.raises(SpecError) as error:
        scenario.check()
    assert [d.help for d in error.value.diagnostics] == [help]


def test_aliases_stand_for_attributes_that_there_are() -> None:
    types = parcost.load_text(USES + "\n".join(BLOCKS.values()))[0].plugins.blocks
    aliases = {
        (kind, alias): instead.partition(" = ")[0]
        for kind, type_ in types.items()
        for alias, instead in type_.aliases.items()
    }
    assert len(aliases) > 40
    for (kind, alias), instead in aliases.items():
        block, _, attribute = instead.rpartition(" { ")  # a block of another kind, or none
        assert attribute in types[block.partition(" ")[0] or kind].fields
        assert alias not in types[kind].fields


def test_an_entry_is_imported_where_the_catalogue_has_it_alone() -> None:
    batch = "sequence = 8192, global_batch = 128 sequences"
    said = helps(training=f"training {{ {batch}, precision = fp8 }}").splitlines()[0]
    assert said.startswith("did you mean `fp8_blockwise` or `fp8_current` or ")
    assert said.endswith("more names that begin like this? import it from `catalog.precisions`")
    said = helps(training=f"training {{ {batch}, precision = mxfp8 }}").splitlines()[0]
    assert said == "import it: `use catalog.precisions.mxfp8`"
    said = helps(training=f"training {{ {batch}, precision = unheard_of }}").splitlines()[0]
    assert said == "`parcost catalog` lists what can be imported"


def test_a_divisor_that_leaves_a_remainder_is_underlined() -> None:
    text = "model odd { layers = 8, hidden = 4096, heads = 30, vocabulary = 32000 }"
    training = "training { model = odd, sequence = 8192, global_batch = 128 sequences }"
    (found,) = [d for d in diagnostics_of(text, training=training) if d.id == "not-whole"]
    assert found.message == "`hidden` 4096 is not divisible by `heads` 30"
    assert found.labels[0].span.text == "heads = 30"
    assert found.help is not None
    assert found.help.startswith("take heads = 16 or 32, or write `head_dim`, which is ")


def test_a_device_written_by_hand_is_named_with_what_it_lacks() -> None:
    device = "device mine { memory = 80 GiB, memory_bandwidth = 3 TB/s, bf16 = 900 TFLOPS dense "
    cluster = "cluster { device = mine, devices = 64 }"
    assert "`device mine extends NAME { ... }`" in helps(device + "}", cluster=cluster)
    whole = ", multiprocessors = 100, matmul_efficiency = 0.7, memory_efficiency = 0.8 }"
    found = diagnostics_of(device + whole, cluster=cluster)
    (lacks,) = [d for d in found if d.id == "no-attention-kernel"]
    assert lacks.labels[0].span.text.startswith("device")


def test_a_block_that_a_device_names_is_proposed(run_command: Callable[..., Any]) -> None:
    """The device of the catalogue names the fabric of its nodes, which the study lacks."""
    text = (
        "use catalog.devices.rtx_a6000\nuse catalog.models.llama3_8b\n"
        "use catalog.precisions.bf16\ncluster { devices = 1 }\n"
        "training { sequence = 2048, micro_batch = 1, global_batch = 16 sequences }\n"
    )
    done = run_command("check", "job.par", job=text)
    assert done.code == 2
    assert "`use catalog.fabrics.pcie4_roce_200g` is usual for `rtx_a6000`" in done.out


OPTION = "the framework needs an option for this split (`parcost export` writes it); write `schedule.assignment = short_ends` or `schedule.stages` to confirm it"


@try_each(
    "blocks, where, help",
    [
        (
            {"layout": "layout { pp = 4, zero = 1 }\nschedule { kind = interleaved, chunks = 3 }"},
            "chunks = 3",
            OPTION,
        ),
        (
            {"layout": "layout { pp = 4, zero = 1 }\nschedule { chunks = 2 }"},
            "chunks = 2",
            "take `schedule.chunks = 1` or `schedule.kind = interleaved`",
        ),
        (
            {"layout": "layout { pp = 2, zero = 1 }\nschedule { stages = [16, 15] }"},
            "stages = [16, 15]",
            "list 1 more in all, or leave `schedule.stages` out",
        ),
        (
            {"training": BLOCKS["training"].replace("micro_batch = 1", "micro_batch = 3")},
            "global_batch = 128 sequences",
            "take 96 or 192 sequences, or micro_batch = 2 or 4",
        ),
        (
            {"layout": "layout { tp = 8, pp = 4 }", "cluster": "cluster { devices = 16 }"},
            "devices = 16",
            "take 32 devices or a multiple of them, or pp = 2",
        ),
        (
            {"layout": "layout { cp = 3 }", "cluster": "cluster { devices = 96 }"},
            "sequence = 8192",
            "take 8190 or 8196 tokens, or cp = 2 or 4",
        ),
    ],
)
def test_a_rule_points_at_what_was_written_and_says_what_would_do(
    blocks: dict[str, str], where: str, help: str
) -> None:
    found = diagnostics_of(**blocks)
    assert (where, help) in [(d.labels[0].span.text, d.help) for d in found if d.labels]


def test_a_sweep_of_the_command_line_is_where_a_rule_points() -> None:
    text = "\n".join([USES, *(BLOCKS | {"layout": "layout { pp = 4, zero = 1 }"}).values()])
    (scenario,) = parcost.load_text(text, overrides={"schedule.chunks": "[2, 4]"})
    places = {d.labels[0].span.source.name for d in scenario.evaluate().diagnostics if d.labels}
    assert places == {"set schedule.chunks"}


@pytest.mark.parametrize(
    ("value", "id", "help"),
    [
        ("80", "missing-unit", "write `80 GB` or `80 GiB`"),
        ("80 Gb", "bit-for-byte", "write `80 GB` if bytes are meant, or `bytes(80 Gb)`"),
    ],
)
def test_a_claim_of_memory_underlines_its_value(value: str, id: str, help: str) -> None:
    (found,) = diagnostics_of(f"expect {{ memory <= {value} }}")
    assert (found.id, found.labels[0].span.text, found.help) == (id, value, help)


@pytest.mark.parametrize(("written", "warns"), [("8k", True), ("8 Ki", False), ("8000", False)])
def test_a_sequence_in_thousands_is_pointed_out(written: str, warns: bool) -> None:
    training = BLOCKS["training"].replace("8192", written)
    found = [d for d in diagnostics_of(training=training) if d.id == "decimal-sequence"]
    assert [d.message for d in found] == warns * ["a sequence of 8k is 8,000 tokens; 8 Ki is 8,192"]


def test_two_blocks_on_one_line_are_separated() -> None:
    text = "fabric f { level a { size = 8 devices } level b { size = 9 devices } }"
    with pytest.raises(SpecError) as caught:
        parcost.load_text(text)[0].evaluate()
    (found,) = (d for d in caught.value.diagnostics if d.id == "syntax")
    assert found.help == "a comma or a new line separates blocks: `a { ... }, b { ... }`"


FABRIC = """
use catalog.devices.h100_sxm
fabric mine {
  level node { size = 8 devices, bandwidth = 900 GB/s bidirectional, latency = 3 us }
  level network { bandwidth = 400 Gbps per_direction, latency = 14 us }
}
cluster { devices = 8, device = h100_sxm, fabric = mine }
"""


def test_a_typo_in_a_block_inside_another_is_hinted_at() -> None:
    """`network` is a kind of block too, which the study lacks; its level of that name is meant."""
    path = "network.bandwith"
    (scenario,) = parcost.load_text(FABRIC, overrides={path: "1 GB/s per_direction"})
    with pytest.raises(SpecError) as caught:
        scenario.check()
    (found,) = caught.value.diagnostics
    assert found.message == f"there is no attribute `{path}`"
    assert found.help == "did you mean `network.bandwidth`?"


def test_errors_of_the_file_stand_beside_those_of_an_override() -> None:
    """The block that `--set` names may be in the file, with an error."""
    text = FABRIC.replace("level network", "levl network")
    (scenario,) = parcost.load_text(text, overrides={"network.bandwidth": "1 GB/s per_direction"})
    with pytest.raises(SpecError) as caught:
        scenario.check()
    messages = " ".join(d.message for d in caught.value.diagnostics)
    assert "`network.bandwidth`" in messages
    assert "`levl`" in messages


@pytest.mark.parametrize(
    ("entry", "help"),
    [
        ("catalog.fabrics.hgx_h100", "write `hgx_h100`, which is imported"),
        ("catalog.fabrics.aws_p5", "import it: `use catalog.fabrics.aws_p5`"),
    ],
)
def test_a_whole_path_of_the_catalogue_leads_to_its_name(entry: str, help: str) -> None:
    found = diagnostics_of(cluster=f"cluster {{ devices = 64, fabric = {entry} }}")
    assert help in [d.help for d in found]


def test_a_value_of_a_block_that_a_study_lacks_needs_the_block() -> None:
    """No `let` is of help: the name is one of the language."""
    with pytest.raises(SpecError) as error:
        parcost.load_text("layout { tp = 2 * training.micro_batch }")[0].evaluate()
    found = {one.message: one for one in error.value.diagnostics}
    one = found["the study has no `training`, which `layout.tp` needs"]
    assert one.id == "missing-block"
    assert "write `training {" in str(one.help)
