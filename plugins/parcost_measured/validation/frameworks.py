"""The framework of a run, and its defaults for settings that a row lacks.

A profile has defaults from the documentation or the code of the framework; none was fitted to a
measured run.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from parcost import block_name, load_text
from parcost_measured.validation.rows import RunRow
from parcost_plugins.vocabulary import Framework

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from parcost.plugins.discovery import Plugins


@frozen(kw_only=True)
class Profile:
    """Defaults for settings that neither the row nor the catalogue's *framework* states.

    *sharding* is a pattern for the row's sharded state and source, tried before *pattern*. A
    profile applies to sources up to *latest*. *deals* is true if the framework has a rule for layer
    counts that do not divide by the stages. With *sharded_master*, the shard of a parameter is its
    fp32 master copy. With *short_messages*, FSDP reduces gradients in the type of the GEMMs. It
    keeps them in this type until the last micro-batch. With *writes_scores*, attention is not
    fused; without *sequence_parallel*, every tensor-parallel rank repeats the norms.
    *dropout* is a pattern for models without a gated MLP that are trained with dropout.
    *splits_products* is one for models whose recipes run GEMMs and tensor-parallel collectives in
    chunks. Its benchmarks set *gradient_check*.
    """

    framework: str
    title: str
    pattern: str = "(?!)"
    sharding: str = "(?!)"
    latest: int | None = None
    deals: bool = False
    vocabulary_multiple: int = 1
    dropout: str = "(?!)"
    sharded_master: bool = False
    short_messages: bool = False
    splits_products: str = "(?!)"
    gradient_check: bool | None = None
    writes_scores: bool = False
    sequence_parallel: bool = True


def _profiles() -> Sequence[Profile]:
    """Return the profiles of the table, in its order."""
    text = Path(__file__).with_name("frameworks.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)

    def values(name: str) -> Mapping[str, Any]:
        own = dict(tables[name])
        base = own.pop("extends", None)
        return {**(values(base) if base else {}), **own, "framework": name}

    return [Profile(**values(name)) for name in tables]


#: The first that a row names counts.
PROFILES = _profiles()

GENERIC = Profile(framework="generic", title="most frameworks")


def profile_of(row: RunRow) -> Profile:
    """Return the profile of the framework that ran *row*.

    Fields are tried in this order: sharded state, framework, source, notes, devices.
    """
    said = row.parallel.zero_stage_or_fsdp or ""
    known = [p for p in PROFILES if p.latest is None or (row.year or p.latest + 1) <= p.latest]
    for profile in known:
        if re.search(profile.sharding, f"{said} {row.source}"):
            return _of_release(profile, row)
    extra = row.extra.get("framework")
    own = extra if isinstance(extra, str) else ""
    for place in (own, row.source, said, row.notes, row.hardware.gpu):
        for profile in known:
            if re.search(profile.pattern, place, re.IGNORECASE):
                return _of_release(profile, row)
    return GENERIC


def _of_release(profile: Profile, row: RunRow) -> Profile:
    """Return *profile* for the release that *row* ran; containers are named by year and month.

    From 24.09 on, attention uses cuDNN. DGX Cloud's recipe of GPT-3, nemo_megatron, runs the
    scripts of NeMo 1 in containers of 2025, too. From 26.06 on, MoE recipes in MXFP8 on Blackwell
    run a fused grouped MLP. In MLPerf it runs from round 6.0 on (May 2026):
    NVTE_CUTEDSL_FUSED_GROUPED_MLP = 1.
    """
    if profile.framework == "nemo" and "nemo_megatron/" in row.source_locator:
        profile = next(one for one in PROFILES if one.framework == "nemo_2024")
    if profile.framework == "nemo_2024" and _is_from(row, "framework", (24, 9)):
        return evolve(profile, framework="nemo_2024_09")
    if profile.framework != "nemo" or not (
        _is_from(row, "release", (26, 6)) or _is_from(row, "mlperf_round", (6, 0))
    ):
        return profile
    fused = row.is_sparse and row.numbers == "mxfp8"
    if fused and re.search(r"\bG?B[23]00", row.hardware.gpu):
        return evolve(profile, framework="nemo_2026_06")
    return profile


def _is_from(row: RunRow, name: str, least: tuple[int, int]) -> bool:
    """Return whether the version in field *name* of the row, such as v6.0, is at least *least*."""
    found = re.match(r"(?:v|NeMo )?(\d+)\.(\d+)", str(row.extra.get(name) or ""))
    return found is not None and (int(found[1]), int(found[2])) >= least


def _files(folder: Traversable) -> Iterator[Traversable]:
    return folder.iterdir() if folder.is_dir() else iter(())


def lacks_links_between_nodes(row: RunRow) -> bool:
    """Return whether NCCL of the row's container uses NVLink only within a node.

    Containers of NeMo up to 25.04 are built on PyTorch 25.03, which has NCCL 2.25.1. NVLink between
    the nodes of a GB200 rack needs NCCL 2.25.2: NVIDIA, GB200 NVL Multi-Node Tuning Guide, NCCL.
    """
    places = (str(row.extra.get("framework") or ""), row.source_locator)
    found = next(filter(None, (re.search(r"NeMo (\d\d)\.(\d\d)", text) for text in places)), None)
    return found is not None and (int(found[1]), int(found[2])) <= (25, 4)


def year_of(row: RunRow) -> int | None:
    """Return the year of the row's software, from its container or else its source."""
    found = re.match(r"v?(\d\d)\.\d+", str(row.extra.get("release") or ""))
    return row.year if found is None else 2000 + int(found[1])


def all_frameworks(plugins: Plugins) -> Mapping[str, Framework]:
    """Return the frameworks of the catalogues by name."""
    text = "".join(
        f"use {catalogue.name}.frameworks.{name.removesuffix('.par')}\n"
        for _, catalogue in plugins.offers("catalogues").values()
        for name in sorted(one.name for one in _files(catalogue.root / "frameworks"))
        if name.endswith(".par")
    )
    if not text:
        return {}
    (scenario,) = load_text(text, plugins=plugins)
    return {block_name(one): one for one in scenario.first.all(Framework)}
