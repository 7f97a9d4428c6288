"""The default page of a search, the order of its layouts, and the options that shape it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost_apps.cli import main
from parcost_plugins.physics import memory_limits
from parcost_plugins.vocabulary import Cluster

from ..rows import mark_most

DENSE = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 64 }
training { sequence = 8192, global_batch = 128 sequences }
"""
EXPERTS = """\
use catalog.devices.h800_sxm
use catalog.fabrics.hgx_h800
use catalog.models.deepseek_v3
use catalog.precisions.fp8_blockwise
cluster  { devices = 2048 }
training { sequence = 4096, global_batch = 15360 sequences }
layout   { tp = 4, ep = 16, zero = 1, sequence_parallel = on }
"""
NARROW = ("--axes", "tp,zero,recompute", "--over", "tp=1,2,4,8")
WIDE = ("--axes", "tp,cp,micro_batch", "--over", "tp=1,2,4,8", "--over", "cp=1,2,4")
TIGHT = "tight: may run out of memory; --headroom '5 %' leaves such layouts out."
PIPES = ("--axes", "pp,chunks,schedule", "--over", "pp=8,16", "--over", "chunks=1,2")

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Search a text, and return the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def go(text: str, *arguments: str) -> tuple[int, str, str]:
        Path("spec.par").write_text(text)
        code = main(["search", "spec.par", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return go


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (DENSE, NARROW),
        (EXPERTS, PIPES),
        pytest.param(DENSE, (), marks=pytest.mark.slow),
        pytest.param(EXPERTS, ("--budget", "5"), marks=pytest.mark.slow),
    ],
)
def test_the_default_page_fits_a_terminal(run: Run, text: str, flags: tuple[str, ...]) -> None:
    code, out, err = run(text, *flags)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) <= 40, out
    assert max(map(len, lines)) <= 80, out
    assert "Best layout: step time" in out
    assert "Reproduce #1" in out
    assert "Excluded: " in out


@pytest.mark.slow
def test_the_default_page_of_a_job_of_another_tool_fits_a_terminal(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes of the framework and a longer command leave room for fewer layouts."""
    monkeypatch.setenv("COLUMNS", "80")
    config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336}
    config |= {"num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256}
    script = (
        "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 "
        "--sequence-parallel --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
        "--num-attention-heads 32 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 "
        "--seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --vocab-size 128256 "
        "--untie-embeddings-and-output-weights --use-distributed-optimizer "
        "--attention-dropout 0 --hidden-dropout 0 --use-flash-attn\n"
    )
    files = {"config.json": json.dumps(config), "run.sh": script}
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("search", "config.json", "run.sh", *machine, files=files)
    assert done.code == 0, done.err
    assert "Reproduce #1" in done.out
    lines = done.out.splitlines()
    assert len(lines) <= 40, done.out
    assert sum(line.endswith(("  a", "  b", "  c", "  d")) for line in lines) >= 3


MEGATRON = DENSE.replace("training {", "training { framework = megatron_core,")
FEW = ("--axes", "tp,zero", "--over", "tp=1,2", "--over", "zero=1,2")


@pytest.mark.slow
@pytest.mark.parametrize("page", [(), ("--full",)])
def test_a_search_says_what_zero_2_needs_and_how_it_sorts(run: Run, page: tuple[str, ...]) -> None:
    """Megatron-Core shards gradients with Megatron-FSDP alone; without stages there is no cut."""
    code, out, err = run(f"use catalog.frameworks.megatron_core\n{MEGATRON}", *FEW, *page)
    assert code == 0, err
    assert "ZeRO 2 and 3 need Megatron-FSDP, ZeRO 1 the distributed optimizer" in out
    assert "stages\n" not in out
    assert ("is the fastest" in out) == ("Simpler layouts come first within 3 %" in out)
    _, other, _ = run(DENSE, *FEW, *page)
    assert "Megatron-FSDP" not in other


@pytest.mark.slow
def test_the_full_page_has_the_order_of_the_short_one(run: Run) -> None:
    """A layout with more chunks is the fastest, by less than the tolerance of 50 %."""
    options = (*PIPES, "--tolerance", "50 %")
    short, full = run(EXPERTS, *options)[1], run(EXPERTS, *options, "--full")[1]
    (order,) = [line for line in short.splitlines() if "Simpler layouts come first" in line]
    assert order in full.splitlines()


@pytest.mark.slow
def test_layers_that_do_not_divide_are_listed_with_their_cut(run: Run) -> None:
    """61 layers: 3 fewer than 8 x 8, 3 fewer than 16 x 4, and 3 fewer than 32 x 2."""
    code, out, err = run(EXPERTS, *PIPES, "--format", "json")
    assert code == 0, err
    found = {
        (layout["values"]["layout.pp"], layout["values"]["schedule.chunks"]): layout["follows"]
        for layout in json.loads(out)["best"]
    }
    cuts = {key: follows["schedule.stages"] for key, follows in found.items()}
    expected = {(8, 1): "7 6x8 6", (16, 1): "3 14x4 2", (8, 2): "3 14x4 2", (16, 2): "1 29x2 2x1"}
    assert cuts
    assert cuts == {key: expected[key] for key in cuts}
    _, page, _ = run(EXPERTS, *PIPES)
    assert "cut" in page
    assert "3 14x4 2" in page
    assert "cut: layers of each virtual stage" in page


@pytest.mark.slow
def test_the_printed_command_gives_the_printed_step(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(EXPERTS, *PIPES)
    text = out.partition("Reproduce #1\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    command = [word for word in shlex.split(text.split("No effect")[0]) if word != "parcost"]
    assert main([*command, "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    step = report["results"][0]["figures"]["step_time_seconds"]["value"]
    (shown,) = re.findall(r"Best layout: step time ([0-9.]+) s", out)
    assert f"{step:.4g}" == shown


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "noted"), [("1 %", True), ("99 %", False)])
def test_a_tight_layout_has_a_note(run: Run, limit: str, noted: bool) -> None:
    """Both layouts need more than 1 % of 80 GB, and less than 99 %."""
    text = f"{DENSE}memory {{ tight = {limit} }}\n"
    code, out, _ = run(text, "--axes", "tp,zero", "--over", "tp=4,8", "--over", "zero=1")
    assert code == 0
    assert (TIGHT in out) is noted


@pytest.mark.parametrize(
    ("batch", "flags", "noted"),
    mark_most(
        [
            ("(4 * layout.dp) sequences", (), True),
            ("128 sequences", (), False),
            ("128 sequences", ("--over", "training.global_batch=128,256"), True),
            ("1 Mi tokens", ("--over", "training.sequence=4096,8192"), False),
        ],
        4,
    ),
)
def test_steps_of_different_batches_have_a_note(
    run: Run, batch: str, flags: tuple[str, ...], noted: bool
) -> None:
    """64 devices have 64 replicas at tp 1, and 256 sequences: tp 8 is no cure for a slow step."""
    text = DENSE.replace("128 sequences", batch)
    code, out, _ = run(text, "--axes", "tp", "--over", "tp=4,8", *flags)
    assert code == 0
    text = " ".join(out.split())
    assert ("a step of fewer sequences is shorter" in text) == noted
    assert ("--objective tokens_per_second_per_device" in text) == noted


@pytest.mark.slow
def test_simpler_layouts_come_first_among_those_that_are_nearly_as_fast(run: Run) -> None:
    """Chunks of the same stages differ by little here; a tolerance of 50 % makes all alike."""
    data = {}
    for tolerance in ("0", "50 %"):
        _, out, _ = run(EXPERTS, *PIPES, "--tolerance", tolerance, "--format", "json")
        data[tolerance] = json.loads(out)["best"]
    by_time = [layout["step_seconds"] for layout in data["0"]]
    assert by_time == sorted(by_time)
    assert [layout["rank_by_time"] for layout in data["0"]] == [*range(1, len(by_time) + 1)]
    tight = [layout["verdict"] != "fits in memory" for layout in data["50 %"]]
    chunks = [layout["values"]["schedule.chunks"] for layout in data["50 %"]]
    assert [*zip(tight, chunks, strict=True)] == sorted(zip(tight, chunks, strict=True))
    assert sorted(layout["rank_by_time"] for layout in data["50 %"]) == [*range(1, len(chunks) + 1)]
    _, page, _ = run(EXPERTS, *PIPES, "--tolerance", "50 %")
    assert len(by_time) > 2
    assert data["50 %"][0]["step_seconds"] > by_time[0]
    (proven,) = re.findall(r"Proven: the lowest step time of all layouts is ([0-9.]+) s", page)
    assert proven == f"{by_time[0]:.4g}"  # of the fastest, which is not the first of the list


@pytest.mark.slow
def test_a_degree_of_one_is_simpler_than_a_lower_zero_stage(run: Run) -> None:
    axes = ("--axes", "cp,zero", "--over", "cp=1,2", "--over", "zero=1,2", "--tolerance", "90 %")
    _, out, _ = run(DENSE, *axes, "--format", "json")
    best = [layout["values"] for layout in json.loads(out)["best"]]
    order = [(layout["layout.cp"], layout["layout.zero"]) for layout in best]
    assert order == [(1, 2), (2, 1)]  # with the others the memory is too small


@pytest.mark.slow
def test_a_longer_list_begins_with_a_shorter_one(run: Run) -> None:
    """Otherwise the best layout depends on `--top`: a single one is always the fastest."""
    found = {}
    for top in (1, 3, 10, 12):
        axes = (*WIDE, "--tolerance", "50 %", "--top", str(top))
        code, out, err = run(DENSE, *axes, "--format", "json")
        assert code == 0, err
        found[top] = [(x["rank_by_time"], x["values"]) for x in json.loads(out)["best"]]
        assert len(found[top]) == top
    assert found[10][0][0] > 1  # a simpler layout than the fastest is first
    assert found[12][10:][0][0] == 11
    for top, layouts in found.items():
        assert layouts[:10] == found[10][:top]
    (fastest,) = (n for n, (rank, _) in enumerate(found[10], 1) if rank == 1)
    pages = {top: run(DENSE, *WIDE, "--tolerance", "50 %", "--top", top)[1] for top in ("1", "10")}
    assert "the fastest layout is not listed" in " ".join(pages["1"].split())
    assert f"#{fastest} is the fastest" in pages["10"]
    proven = {re.findall(r"Proven: .*", page)[0] for page in pages.values()}
    assert len(proven) == 1  # of the fastest of all, listed or not


@pytest.mark.slow
def test_the_order_is_that_of_the_objective_where_it_is_no_time() -> None:
    (scenario,) = parcost.load_text(DENSE)
    whole = space(scenario, {"cluster.devices": [32, 64]}, ["tp", "zero"])
    request = SearchRequest(objective="fewest_devices", tolerance=0.5)
    found = search(whole, request).best
    assert [layout.cost for layout in found] == sorted(layout.cost for layout in found)


@pytest.mark.slow
def test_headroom_keeps_memory_free(run: Run) -> None:
    _, out, _ = run(DENSE, *NARROW, "--headroom", "50 %", "--format", "json")
    data = json.loads(out)
    (scenario,) = parcost.load_text(DENSE)
    half = 0.5 * memory_limits(scenario.first).usable
    assert all(layout["memory_bytes"] <= half for layout in data["best"])
    assert any("memory headroom >= 50 %" in limit for limit in data["limits"])
    assert half < scenario.first[Cluster].device.memory


@pytest.mark.parametrize("text", ["10", "-1 %", "much"])
def test_a_share_is_written_with_its_sign_or_below_one(run: Run, text: str) -> None:
    code, _, err = run(DENSE, *NARROW, "--headroom", text)
    assert code == 2
    assert f"`--headroom {text}` is not a share" in err


@pytest.mark.slow
def test_the_first_word_of_an_objective_is_enough(run: Run) -> None:
    priced = f"{DENSE}price {{ device_hour = 2 USD/h }}\n"
    code, out, err = run(priced, *NARROW, "--objective", "cost", "--format", "json")
    assert code == 0, err
    assert json.loads(out)["objective"] == "cost_per_million_tokens"


@pytest.mark.slow
def test_an_objective_that_lacks_a_block_names_it(run: Run) -> None:
    code, _, err = run(DENSE, "--objective", "cost")
    assert code == 2
    assert (
        "`cost_per_million_tokens` is not available in this study: it needs `price { device_hour = 2.50 USD/h }`"
        in err
    )


@pytest.mark.slow
def test_claims_of_a_layout_do_not_hinder_a_search(run: Run) -> None:
    """A layout without a pipeline has no figure of one."""
    claims = "layout { tp = 8, pp = 2 }\nexpect { pp_units >= 1 }\n"
    code, out, err = run(DENSE + claims, "--axes", "pp", "--over", "pp=1,2")
    assert code == 0, err
    assert "Best layout: step time" in out
