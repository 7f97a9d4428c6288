"""Matrices of `nvidia-smi topo -m`, and files of Slurm: levels by hand, and wrong files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import parcost
from parcost_formats.tools.hostlist import HostListError, expand
from parcost_formats.tools.slurm import SlurmFile
from parcost_formats.tools.topology import TopologyMatrix

from ..rows import try_each
from .translations import names, problems, settings, uses

MATRIX, SLURM = TopologyMatrix(), SlurmFile()


def matrix(
    devices: int,
    code: Callable[[int, int], str],
    cards: Callable[[int, int], str] | None = None,
    count: int = 0,
    separator: str = "\t",
) -> str:
    """Return a matrix: *code* of two devices, *cards* of a device and a card."""
    nics = [f"NIC{i}" for i in range(count)]
    head = ["", *(f"GPU{i}" for i in range(devices)), *nics]
    tail = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = [separator.join([*head, *tail])]
    for i in range(devices):
        row = [f"GPU{i}", *("X" if i == j else code(i, j) for j in range(devices))]
        row += [cards(i, j) for j in range(count)] if cards else []
        lines.append(separator.join([*row, "0-47", "0", "N/A"]))
    for j in range(count):
        assert cards is not None
        row = [f"NIC{j}", *(cards(i, j) for i in range(devices))]
        lines.append(separator.join([*row, *("X" if j == k else "SYS" for k in range(count))]))
    legend = ["", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing # NVLinks"]
    return "\n".join([*lines, *legend, "", "NIC Legend:", "", "  NIC0: mlx5_0"]) + "\n"


def one_close(i: int, j: int) -> str:
    return "PIX" if i == j else "NODE"


DIGITS = "9" * 5000
HGX = matrix(8, lambda _i, _j: "NV18", one_close, 8)
PAIRS = matrix(4, lambda i, j: "NV4" if i // 2 == j // 2 else "SYS", separator="    ")
PCIE = matrix(4, lambda _i, _j: "PHB", lambda _i, _j: "SYS", 1)


def test_a_switched_node_is_a_fabric_of_the_catalogue() -> None:
    found = MATRIX.translate("topo.txt", HGX)
    assert uses(found) == ["fabrics.hgx_h100"]
    assert "NVLink 4" in found.uses[0].assumption
    assert settings(found) == {
        "fabric.node.size": "8 devices",
        "fabric.network.ports": "8",
        "cluster.fabric": "topology",
    }
    assert names(found.missing) == {"level network: bandwidth"}
    assert names(found.ignored) == {"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"}


def test_pairs_on_a_bridge_are_a_level_of_their_own() -> None:
    found = MATRIX.translate("topo.txt", PAIRS)
    assert uses(found) == ["fabrics.pcie4_nvlink_pairs"]
    assert settings(found) == {"fabric.node.size": "2 units", "cluster.fabric": "topology"}


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_rows_behind_the_end_of_a_text_are_assumed(rows: int) -> None:
    """All 28 pairs of a row or of a column that is there have NV18, and so have the others."""
    found = MATRIX.translate("topo.txt", "".join(HGX.splitlines(keepends=True)[: 1 + rows]))
    assert uses(found) == ["fabrics.hgx_h100"]
    assert "the text ends before the row" in found.uses[0].assumption
    assert "GPU7" in found.uses[0].assumption
    assert settings(found)["fabric.network.ports"] == "8"
    (level,) = [one for one in found.blocks[0].blocks if one.label == "network"]
    assert (
        level.settings[0].assumption
        == "rows of devices are missing, so all network cards are counted"
    )


def test_a_second_matrix_ends_the_first() -> None:
    """`topo -p2p` has other codes under the same names."""
    second = "\tGPU0\tGPU1\nGPU0\tX\tGNS\nGPU1\tGNS\tX\n"
    assert settings(MATRIX.translate("a", HGX + second)) == settings(MATRIX.translate("a", HGX))


def test_a_text_may_end_inside_of_a_row() -> None:
    """The codes of the last row are those of its column; a pair that no row has is asked for."""
    end = PAIRS.index("GPU3", PAIRS.index("GPU2", PAIRS.index("GPU1", 60))) + 12
    assert uses(MATRIX.translate("topo.txt", PAIRS[:end])) == ["fabrics.pcie4_nvlink_pairs"]
    two_rows = "".join(PAIRS.splitlines(keepends=True)[:3])
    (problem,) = MATRIX.translate("topo.txt", two_rows).problems
    assert problem.message == (
        "the text ends before the rows of GPU2, GPU3, and no other row has GPU2 to GPU3"
    )


def test_devices_without_nvlink_are_on_pcie() -> None:
    found = MATRIX.translate("topo.txt", PCIE)
    assert uses(found) == ["fabrics.pcie4_roce_200g"]
    assert "does not state the generation" in found.uses[0].assumption
    assert settings(found)["fabric.network.ports"] == "1"
    (level,) = [one for one in found.blocks[0].blocks if one.label == "network"]
    assert "no network card is close" in level.settings[0].assumption


@pytest.mark.parametrize(
    ("code", "devices", "fabric"),
    [("NV12", 8, "dgx_a100"), ("NV8", 8, "hgx_h800"), ("NV18", 4, "nvl72")],
)
def test_a_number_of_links_is_a_generation(code: str, devices: int, fabric: str) -> None:
    assert uses(MATRIX.translate("t", matrix(devices, lambda _i, _j: code))) == [
        f"fabrics.{fabric}"
    ]


def test_unequal_links_are_the_cube_mesh_of_a_dgx_1() -> None:
    """Four neighbours each: three in the half, by one or two links, and one across."""

    def code(i: int, j: int) -> str:
        if i // 4 == j // 4:
            return "NV2" if (i + j) % 4 == 3 else "NV1"
        return "NV2" if abs(i - j) == 4 else "SYS"

    assert uses(MATRIX.translate("t", matrix(8, code))) == ["fabrics.dgx_v100"]


def test_codes_of_a_terminal_are_passed_over() -> None:
    text = HGX.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1", 1).replace("ID\n", "ID\x1b[0m\n", 1)
    assert uses(MATRIX.translate("t", "$ nvidia-smi topo -m\n" + text)) == ["fabrics.hgx_h100"]


@try_each(
    "text, message",
    [
        (matrix(6, lambda _i, _j: "NV3"), "no fabric of the catalogue has 6 devices"),
        (
            matrix(8, lambda i, j: "NV4" if {i, j} == {0, 1} else "SYS"),
            "groups of 1 and 2 by NV4",
        ),
        ("GPU0  X  NV12\nGPU1  NV12  X\n", "the header of the matrix is missing"),
        ("   GPU0 GPU1\nLegend:\n", "no row with codes of connections"),
        ("   GPU0 GPU1\nGPU0  X\nGPU1 NV12 X\n", "the row of GPU0 has fewer codes"),
        (
            "   GPU0 GPU1\nGPU0 X NV12\nGPU1 NV4 X\n",
            "connected by NV12 in one direction and by NV4",
        ),
        ("nothing\n", "no header with GPU0"),
        ("", "no header with GPU0"),
    ],
)
def test_a_matrix_that_fits_nothing_is_an_error(text: str, message: str) -> None:
    (found,) = problems(MATRIX, text)
    assert message in found[0]


@pytest.mark.parametrize("text", [HGX, PAIRS, PCIE], ids=["switched", "pairs", "PCIe"])
def test_a_study_has_the_node_of_a_matrix(text: str, tmp_path: Any) -> None:
    (tmp_path / "topo.txt").write_text(text, encoding="utf-8")
    (scenario,) = parcost.load_text(
        'use "topo.txt"\nuse catalog.devices.a40\nuse catalog.models.gpt2_small\n'
        "use catalog.precisions.bf16\ncluster { devices = 8 }\n"
        "training { sequence = 1024, global_batch = 8 sequences }\n",
        str(tmp_path / "job.par"),
    )
    assert scenario.evaluate().result.outcome is not None


# Slurm ------------------------------------------------------------------------------------------

TREE = """\
# two leaves under a spine
SwitchName=leaf1 Nodes=gpu-a[01-16]
SwitchName=leaf2 Nodes=gpu-b[01-16] LinkSpeed=100
SwitchName=spine Switches=leaf[1-2]
"""
CORE = """\
switchname=l[1-2] nodes=x[1-4]
SwitchName=l3 Nodes=y[1-4]
SwitchName=l4 Nodes=z[1-2]
SwitchName=s1 Switches=l[1-2]
SwitchName=s2 Switches=l[3-4]
SwitchName=core Switches=s1,s2
"""
BLOCKS = """\
BlockName=b1 Nodes=gb-r1n[01-18]
BlockName=b2 Nodes=gb-r2n[01-18]
BlockName=b3 Nodes=gb-r3n[01-18]
BlockName=b4 Nodes=gb-r4n[01-18]
BlockSizes=18,36
"""
HOSTS = "# launcher\nn1 slots=8\nn2 slots=8 max_slots=8\nn3 slots=8\n"
JOB = """\
SLURM_JOB_NUM_NODES=4
SLURM_NTASKS=32
SLURM_NTASKS_PER_NODE=8
SLURM_GPUS_ON_NODE=8
SLURM_JOB_NODELIST=gpu-a[01-02],gpu-b[01-02]
SLURM_PROCID=0
SLURM_OUR_OWN=1
"""


def slurm(text: str) -> Any:
    return settings(SLURM.translate("topology.conf", text))


def test_a_script_is_no_environment_of_a_job() -> None:
    assert SLURM.recognizes("job.env", JOB)
    assert not SLURM.recognizes("job.sh", f"#!/bin/bash\n{JOB}")


def test_a_tree_is_levels_of_switches() -> None:
    found = SLURM.translate("topology.conf", TREE)
    assert settings(found) == {"fabric.leaf.size": "16 nodes", "fabric.spine.size": "2 units"}
    assert names(found.missing) == {
        "level node: size",
        "level node: bandwidth, latency",
        "level leaf: bandwidth, latency",
        "level spine: bandwidth, latency",
    }
    assert "write `level leaf { bandwidth = ... per_direction, latency = ... }`" in {
        one.reason for one in found.missing
    }
    assert [one.name for one in found.ignored] == ["LinkSpeed"]


def test_unequal_switches_have_the_size_of_most_of_them() -> None:
    found = SLURM.translate("topology.conf", CORE)
    assert settings(found) == {
        "fabric.leaf.size": "4 nodes",
        "fabric.spine.size": "2 units",
        "fabric.core.size": "2 units",
    }
    (leaf,) = [one for one in found.blocks[0].blocks if one.label == "leaf"]
    assert leaf.settings[0].assumption == "the most frequent number; switches connect 2 to 4"


def test_blocks_are_levels_by_their_sizes() -> None:
    """Four blocks of 18 nodes, planned in pairs: two pairs on a network."""
    assert slurm(BLOCKS) == {
        "fabric.block.size": "18 nodes",
        "fabric.aggregate.size": "2 units",
        "fabric.network.size": "2 units",
    }
    assert slurm(BLOCKS.replace("BlockSizes=18,36\n", "")) == {
        "fabric.block.size": "18 nodes",
        "fabric.network.size": "4 units",
    }


@pytest.mark.parametrize(
    "text", [HOSTS, "n1:8\nn2:8\nn3:8\n", "n1 slots=4\nn1 slots=4\nn2 slots=8\nn3 slots=8"]
)
def test_a_hostfile_has_the_devices_of_a_job(text: str) -> None:
    assert slurm(text) == {"fabric.node.size": "8 devices", "cluster.devices": "3 * 8"}


def test_the_environment_has_the_devices_of_a_job() -> None:
    found = SLURM.translate("env.txt", JOB)
    assert settings(found) == {"fabric.node.size": "8 devices", "cluster.devices": "4 * 8"}
    assert names(found.unknown) == {"SLURM_OUR_OWN"}
    assert "SLURM_PROCID" in names(found.ignored)
    found = SLURM.translate("env.txt", JOB.replace("SLURM_GPUS_ON_NODE=8\n", ""))
    assert found.blocks[1].settings[0].assumption == "a task for each device"


def test_a_hostfile_and_a_topology_are_one_fabric(run_command: Callable[..., Any]) -> None:
    files = {"hostfile": HOSTS, "topology.conf": TREE}
    done = run_command("import", "hostfile", "topology.conf", files=files)
    assert done.code == 0
    written = [line.strip() for line in done.out.splitlines()]
    levels = [line for line in written if line.startswith("level")]
    assert levels == ["level node {", "level leaf {", "level spine {"]
    assert "not set: level leaf: bandwidth, latency" in done.err


def test_a_network_is_a_tree_or_blocks(run_command: Callable[..., Any]) -> None:
    files = {"tree.conf": TREE, "blocks.conf": BLOCKS}
    for first, second in (("tree.conf", "blocks.conf"), ("blocks.conf", "tree.conf")):
        done = run_command("import", first, second, files=files)
        assert (done.code, done.out) == (2, "")
        assert "error[import-conflict]: `TopologyPlugin` is topology/" in done.err
        assert "tree.conf:" in done.err
        assert "blocks.conf:" in done.err


def test_a_study_says_which_line_of_the_topology_lacks_a_bandwidth(
    run_command: Callable[..., Any],
) -> None:
    files = {
        "topology.conf": TREE,
        "job.par": 'use "topology.conf"\nuse catalog.systems.dgx_h100\n',
    }
    done = run_command("check", "job.par", files=files)
    assert done.code != 0
    assert "`leaf` lacks `bandwidth`, `latency`" in done.out
    assert "SwitchName=leaf1 Nodes=gpu-a[01-16]" in done.out


@try_each(
    "text, message, part",
    [
        (TREE.replace("leaf[1-2]", "leaf[1-3]"), "`leaf3` is not in the file", None),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=a\n",
            "`a` is below itself",
            "SwitchName=a Switches=b",
        ),
        ("SwitchName=a\n", "neither nodes nor switches", "SwitchName=a"),
        ("SwitchName=a Nodes=x Switches=b\n", "both nodes and switches", None),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y\n", "defined twice", "SwitchName=a Nodes=y"),
        (
            "SwitchName=a Nodes=x\nSwitchName=b Switches=a\nSwitchName=c Switches=a,b\n",
            "on different levels",
            "SwitchName=c Switches=a,b",
        ),
        ("SwitchName=a Nodes=x[1-\n", "brackets", None),
        ("SwitchName=a Nodes=x[1-999999999]\n", "more than 100,000 names", None),
        ("SwitchName=a Nodes=x[1-300]y[1-999]\n", "more than 100,000 names", None),
        (BLOCKS.replace("18,36", "18,40"), "40 is not a larger multiple of 18", "BlockSizes=18,40"),
        (BLOCKS.replace("18,36", "many"), "not sizes of blocks", "BlockSizes=many"),
        ("BlockName=b\n", "no block has nodes", None),
        ("SwitchName=\n", "SwitchName has no name", "SwitchName="),
        ("SwitchName=a Switches=\n", "Switches has no name", None),
        ("BlockName=\nBlockName=b Nodes=n1\n", "BlockName has no name", "BlockName="),
        (f"SwitchName=s Nodes=a[1-{DIGITS}]\n", "neither a number nor a range", None),
        (f"BlockName=b Nodes=n1\nBlockSizes={DIGITS}\n", "not sizes of blocks", None),
        (f"h slots={DIGITS}\n", "the slots of `h` are not a number", None),
        (f"SLURM_NNODES={DIGITS}\nSLURM_GPUS_ON_NODE=8\n", "SLURM_NNODES is not a number", None),
        ("SLURM_NNODES=\u00b2\nSLURM_GPUS_ON_NODE=8\n", "SLURM_NNODES is not a number", None),
        (TREE + BLOCKS, "cannot be combined: a cluster uses one of them", None),
        (HOSTS.replace("n3 slots=8", "n3 slots=4"), "`n3` has 4 slots, and `n1` 8", "n3 slots=4"),
        (HOSTS + "n4 slots=0\n", "the slots of `n4` are not a number of at least 1", "n4 slots=0"),
        (HOSTS + "n4 : eight\n", "a host with its slots is expected", "n4 : eight"),
        (
            JOB.replace("NUM_NODES=4", "NUM_NODES=3"),
            "SLURM_JOB_NODELIST has 4 nodes, but the job has 3",
            "SLURM_JOB_NODELIST=gpu-a[01-02],gpu-b[01-02]",
        ),
        (JOB.replace("NTASKS=32", "NTASKS=31"), "4 nodes x 8 tasks = 32", "SLURM_NTASKS=31"),
        ("SLURM_NTASKS=8\n", "unknown without SLURM_JOB_NUM_NODES and", None),
        (JOB.replace("ON_NODE=8", "ON_NODE=all"), "not a number of at least 1", None),
        ("", "no switches, blocks", None),
    ],
)
def test_an_error_stands_at_its_line(text: str, message: str, part: str | None) -> None:
    found = problems(SLURM, text)
    assert message in found[0][0]
    if part is not None:
        assert found[0][1] == part


@try_each(
    "text, hosts",
    [
        ("a", ["a"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-11,20],b", ["a08", "a09", "a10", "a11", "a20", "b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: Sequence[str]) -> None:
    assert expand(text, 100) == hosts


@try_each("text", ["a[3-1]", "a[x]", "a]1[", "a[[1]]", "a[1-200]"])
def test_a_list_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(HostListError):
        expand(text, 100)
