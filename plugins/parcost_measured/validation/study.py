"""A row as the text of a study, with a comment for each assumption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from parcost.language.writer import block_lines
from parcost_measured.validation.attributes import (
    ATTRIBUTES,
    Assumption,
    Facts,
    fused_kernels,
    share_text,
)
from parcost_measured.validation.frameworks import GENERIC, lacks_links_between_nodes
from parcost_measured.validation.hardware import (
    HardwareEntry,
    device_names,
    domain_of,
    entry_of,
    inner_level,
)
from parcost_measured.validation.rows import RunRow, UnmodelledError

#: Kinds of attention that the language has; the last is known by its ranks.
_ATTENTION = ("mha", "gqa", "mqa", "mla")


@frozen(kw_only=True)
class StudyText:
    """A study as text, and its assumptions."""

    text: str
    assumptions: Sequence[str]
    framework: str


def write(row: RunRow) -> StudyText:
    """Return *row* as a study.

    Raises:
        UnmodelledError: The catalogue lacks the device, or the language cannot express the model.
    """
    entry = _require_entry(row)
    facts = Facts(row, entry)
    said = row.extra.get("assumed") or []
    assumptions = [_comment(str(one)) for one in (said if isinstance(said, list) else [said])]
    least, most = row.slowdown
    if most:
        slower = f"{share_text(least)} to {share_text(most)} slower"
        assumptions.append(f"the run was {slower} than this study, by its source")
    assumptions += facts.adapters.assumed
    blocks: dict[str, list[tuple[str, str]]] = {}
    for attribute in ATTRIBUTES:
        value = attribute.value(facts)
        if isinstance(value, Assumption):
            assumptions.append(value.why)
            value = value.value
        if value is not None:
            blocks.setdefault(attribute.block, []).append((attribute.name, value))
    fabric = [*_fabric(facts, assumptions)]
    recipe = [*_recipe(facts, assumptions)]
    blocks["cluster"].append(("fabric", "site" if fabric else facts.fabric))
    blocks["training"].append(("precision", "recipe" if recipe else facts.recipe.name))
    imports = [f"devices.{entry.device}", f"fabrics.{facts.fabric}"]
    if facts.profile is not GENERIC:
        imports.append(f"frameworks.{facts.profile.framework}")
        own = [("enforced", "off"), *fused_kernels(facts)]
        blocks[f"framework {facts.profile.framework}"] = own
    imports += [f"precisions.{name}" for name in (facts.recipe.name, facts.recipe.state) if name]
    if base := facts.adapters.quantization:
        imports.append(f"quantizations.{base}")
    assumptions.append(
        "the row has no framework"
        if facts.profile is GENERIC
        else f"software settings that the row does not state are those of {facts.profile.framework}"
    )
    lines = [
        f"# {_comment(row.id)}",
        f"# {_comment(row.source)}: {_comment(row.source_locator)}",
        *(f"# Assumed: {_comment(text)}." for text in assumptions),
        *(f"use catalog.{name}" for name in imports),
        *fabric,
        *recipe,
    ]
    for block, values in blocks.items():
        lines += ["", *block_lines("model run" if block == "model" else block, values)]
    return StudyText(
        text="\n".join(lines) + "\n", assumptions=assumptions, framework=facts.profile.framework
    )


def _require_entry(row: RunRow) -> HardwareEntry:
    """Return the device of a row, after checking that a spec can express its model.

    Raises:
        UnmodelledError: The device is not in the catalogue, or the model cannot be expressed.
    """
    entry = entry_of(row.hardware)
    if entry is None:
        message = f"the device `{row.hardware.gpu}` is not one of {device_names()}"
        raise UnmodelledError(message)
    kind = (row.model.attn_type or "mha").lower()
    if kind not in _ATTENTION or (kind == "mla" and row.model.kv_lora_rank is None):
        raise UnmodelledError(
            f"attention of the type `{row.model.attn_type}` cannot be expressed in a spec"
        )
    return entry


def _fabric(facts: Facts, assumptions: list[str]) -> Iterator[str]:
    """Yield the lines of a fabric block for the row, if it differs from the catalogue's."""
    hardware, inside = facts.row.hardware, inner_level(facts.fabric)
    size = domain_of(hardware) or (hardware.gpus_per_node if inside == "node" else None)
    if inside == "domain" and lacks_links_between_nodes(facts.row):
        size = hardware.gpus_per_node
        assumptions.append("NCCL 2.25.1 of the container does not use NVLink between nodes")
    network = facts.network
    if network is None:
        if facts.row.nodes != 1:
            assumptions.append(
                f"the network of {facts.fabric} is assumed: the row does not state it"
            )
        if size is None:
            return
    inner: list[str] = []
    if size is not None:
        inner += block_lines(f"level {inside}", [("size", f"{size} devices")])
    if network is not None:
        values = [("bandwidth", f"{network.gbps:g} Gbps per_direction")]
        if network.ports != hardware.gpus_per_node:
            values.append(("ports", str(network.ports)))
        if network.kind is not None:
            values.append(("kind", network.kind))
        inner += block_lines("level network", values)
    yield from ("", *block_lines(f"fabric site extends {facts.fabric}", inner=inner))


#: State attributes of a precision that may be taken from another precision.
_STATE = (
    *("weights", "wide_weights", "gradients", "optimizer"),
    *("reduction", "gather", "wide_gather", "update_traffic"),
)


def _recipe(facts: Facts, assumptions: list[str]) -> Iterator[str]:
    """Yield the lines of a precision block for the row, if the catalogue has no such precision."""
    found = facts.recipe
    if found.assumed:
        assumptions.append(found.assumed)
    values = {name: f"{found.state}.{name}" for name in _STATE} if found.state else {}
    if found.attention:
        values["narrow_attention"] = "on"
    if facts.profile.short_messages and facts.is_fsdp and facts.row.numbers in ("bf16", "fp16"):
        assumptions.append(f"FSDP of {facts.profile.title} reduces gradients in 16 bits")
        values |= {"reduction": "2 B", "whole_gradients": "2 B"}
    if not values:
        return
    yield from ("", *block_lines(f"precision recipe extends {found.name}", list(values.items())))


def _comment(text: str) -> str:
    """Return *text* as one line that cannot end a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
