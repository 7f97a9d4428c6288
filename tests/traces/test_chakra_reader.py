"""Chakra traces, read by the readers that MLCommons publishes (package ``mlc-chakra``).

The package is not in the extra `test`: its converters depend on JupyterLab, some 500 MB. What reads
traces needs protobuf, networkx and graphviz, and is installed without the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from parcost_apps.cli import main

pytestmark = pytest.mark.slow

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
model small {{
  layers = 4, hidden = 1024, heads = 8, kv_heads = 8, ffn = 4096, vocabulary = 32000{experts}
}}
cluster  {{ devices = 8 }}
layout   {{ pp = 2, {layout} }}
training {{ sequence = 1024, global_batch = 8 sequences }}
schedule {{ kind = {schedule} }}
"""
SPECS = {
    "dense": {"layout": "tp = 2, zero = 1, sequence_parallel = on", "schedule": "one_f_one_b"},
    "experts": {
        "layout": "tp = 2, ep = 2, sequence_parallel = on",
        "schedule": "zb_h1",
        "experts": ", experts = 4, top_k = 2",
    },
    "ring": {"layout": "cp = 4", "schedule": "gpipe"},
    "{a}<b>[x](y)": {"layout": "tp = 4, sequence_parallel = on", "schedule": "dualpipe"},
}
SHARDED = {"ALL_GATHER", "REDUCE_SCATTER", "ALL_REDUCE"}  # the last for the loss of a vocabulary
COLLECTIVES = {
    "dense": SHARDED,
    "experts": {*SHARDED, "ALL_TO_ALL"},
    "ring": {"ALL_REDUCE"},  # of gradients: keys and values go by messages
    "{a}<b>[x](y)": SHARDED,
}


@pytest.fixture(scope="module")
def readers() -> Any:
    """Return the modules of MLCommons, which a machine that says so must have."""
    try:
        from chakra.schema.protobuf import et_def_pb2
        from chakra.src.third_party.utils import protolib
    except ImportError:
        if os.environ.get("PARCOST_CHAKRA") == "required":
            pytest.fail("mlc-chakra is not installed")
        pytest.skip("mlc-chakra is not installed")
    return et_def_pb2, protolib


@pytest.fixture(params=SPECS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with the traces of a step, one file for each of 8 ranks."""
    parts = {"experts": "", **SPECS[request.param]}
    file, written = tmp_path / f"{request.param}.par", tmp_path / "traces"
    file.write_text(SPEC.format(**parts), encoding="utf-8")
    assert main(["timeline", str(file), "--format", "chakra", "--out", str(written)]) == 0
    return written


def read(path: Path, readers: Any) -> tuple[Any, list[Any]]:
    """Return the metadata and the nodes of a file, as the readers of MLCommons decode them."""
    schema, library = readers
    file, about, nodes = library.openFileRd(str(path)), schema.GlobalMetadata(), []
    assert library.decodeMessage(file, about)
    while library.decodeMessage(file, one := schema.Node()):
        nodes.append(one)
    assert not file.read()
    file.close()
    return about, nodes


def attributes(message: Any) -> dict[str, Any]:
    """Return the attributes of a message; each has one value, and no field is unknown."""
    assert not any(len(UnknownFieldSet(one)) for one in (message, *message.attr))
    return {one.name: getattr(one, one.WhichOneof("value")) for one in message.attr}


def test_the_published_schema_has_every_field(
    folder: Path, readers: Any, chakra_traces: ModuleType
) -> None:
    files = sorted(folder.glob("*.et"))
    assert len(files) == 8
    own, _ = chakra_traces.read(folder)
    for path in files:
        about, nodes = read(path, readers)
        assert about.version == "0.0.4"
        for node, ours in zip(nodes, own[attributes(about)["rank"]], strict=True):
            assert (node.id, node.name, node.type) == (ours.id, ours.name, ours.type)
            assert tuple(node.data_deps) == ours.deps
            assert (node.duration_micros, attributes(node)) == (ours.micros, ours.attrs)


def test_kinds_of_nodes_and_collectives_are_those_of_the_schema(
    folder: Path, readers: Any, request: pytest.FixtureRequest
) -> None:
    schema, _ = readers
    kinds, calls = set(), set()
    for path in folder.glob("*.et"):
        for node in read(path, readers)[1]:
            kinds.add(schema.NodeType.Name(node.type))
            if node.type == schema.NodeType.Value("COMM_COLL_NODE"):
                calls.add(schema.CollectiveCommType.Name(attributes(node)["comm_type"]))
    assert kinds == {"COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"}
    assert calls == COLLECTIVES[request.node.callspec.params["folder"]]


def test_the_commands_of_the_package_accept_a_trace(
    folder: Path, readers: Any, tmp_path: Path
) -> None:
    import networkx as nx

    path = max(folder.glob("*.et"))
    _, nodes = read(path, readers)
    text, graph = tmp_path / "trace.json", tmp_path / "trace.graphml"
    for module, output in (("jsonizer.jsonizer", text), ("visualizer.visualizer", graph)):
        names = ["--input_filename", str(path), "--output_filename", str(output)]
        subprocess.run([sys.executable, "-m", f"chakra.src.{module}", *names], check=True)
    assert text.read_text(encoding="utf-8").count('"id": ') == len(nodes)
    drawn = nx.read_graphml(graph)
    assert drawn.number_of_nodes() == len(nodes)
    assert drawn.number_of_edges() == sum(len(set(node.data_deps)) for node in nodes)
    assert nx.is_directed_acyclic_graph(drawn)
