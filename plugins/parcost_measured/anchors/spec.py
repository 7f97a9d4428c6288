"""Specs with an `anchor`, as anchors of other specs, with the settings of the measured run.

The spec is bound, so that expressions and defaults have their values. Its predicted step time is
included. If another spec predicts another time for the same run, the two specs differ in more than
these settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost import (
    ImportedBlock,
    ImportedValue,
    ImportProblem,
    SpecError,
    Study,
    Translation,
    block_name,
    block_type,
    load_text,
)
from parcost_measured.anchors.labels import label_of
from parcost_plugins.vocabulary import Anchor, Cluster, Training
from parcost_plugins.vocabulary.anchor import read_settings, write_settings

#: Kinds of blocks with settings of a run: taken with all values, and with given values only.
_WHOLE = ("layout", "sharding", "schedule", "training", "recompute")
_GIVEN = ("kernels", "overlap", "routing", "offload", "optimizer", "collectives")
_CARRIED = ("quantity", "word", "switch")  # kinds of attributes
_DIMENSIONS = ("layers", "hidden", "heads", "kv_heads", "ffn", "experts", "top_k")


def read_spec(label: str, name: str, text: str) -> Translation:
    """Return the anchors of a spec, each with the attributes of its run."""

    def rejection(message: str) -> Translation:
        return Translation(problems=[ImportProblem(message=message, end=min(1, len(text)))])

    try:
        scenarios = load_text(text, name)
        if len(scenarios) != 1:
            return rejection(
                f"the spec has {len(scenarios)} studies, but an anchor needs exactly one"
            )
        study = scenarios[0].first
        anchors = study.all(Anchor)
        if not anchors:
            return rejection("the spec has no `anchor` block: add `anchor { step_time = 4.1 s }`")
        if not study.get(Training):
            return Translation(blocks=[_plain(one, len(text)) for one in anchors])
        blocks = []
        for one in anchors:
            own = block_name(one)
            full = label if own == "anchor" else label_of(f"{label}_{own}")
            blocks.append(_make_block(full, whole_anchor(study, one), len(text)))
    except SpecError as error:
        return rejection(error.first_message)
    except ValueError as error:
        return rejection(str(error))
    return Translation(blocks=blocks)


def whole_anchor(study: Study, anchor: Anchor) -> dict[str, str]:
    """Return all attributes of an anchor of *study*, by name, as text of a spec.

    Raises:
        SpecError: The spec with the anchor's settings is invalid.
        ValueError: The settings cannot be parsed.
    """
    run = study.replace(read_settings(anchor.settings))
    values = dict(_measurements(anchor))
    values["settings"] = f'"{write_settings(dict(_settings(run)))}"'
    values["job"] = f'"{write_settings({**_job(run), **read_settings(anchor.job)})}"'
    values["predicted"] = f"{float(run.evaluate().step_seconds):.9g} s"
    return values


def _plain(anchor: Anchor, end: int) -> ImportedBlock:
    """Return an anchor as written, from a file without a job."""
    values = dict(_measurements(anchor))
    values |= {
        name: f'"{getattr(anchor, name)}"' for name in ("settings", "job") if getattr(anchor, name)
    }
    if anchor.predicted is not None:
        values["predicted"] = f"{anchor.predicted:.9g} s"
    return _make_block(block_name(anchor), values, end)


def _make_block(label: str, values: Mapping[str, str], end: int) -> ImportedBlock:
    settings = [
        ImportedValue(name=name, value=value, key="anchor", start=0, end=min(1, end))
        for name, value in values.items()
    ]
    return ImportedBlock(kind="anchor", label=label, settings=settings)


_UNITS = {"step_time": " s", "allocated": " B", "reserved": " B"}


def _measurements(anchor: Anchor) -> Iterator[tuple[str, str]]:
    for name in ("step_time", "tokens_per_second_per_device", "allocated", "reserved", "steps"):
        value: Any = getattr(anchor, name)
        if value is not None:
            yield name, f"{float(value):.12g}{_UNITS.get(name, '')}"


def _settings(run: Study) -> Iterator[tuple[str, str]]:
    """Yield the settings of a run, by path."""
    from parcost_formats.rendering.resolved_spec import attributes

    yield "cluster.devices", f"{float(run[Cluster].devices):.12g}"
    blocks = {block_type(schema).kind: found[0] for schema, found in run.blocks.items() if found}
    for path, attribute in attributes(run).items():
        kind, _, name = path.rpartition(".")
        if kind not in (*_WHOLE, *_GIVEN):
            continue
        origin = run.origin(blocks[kind], name)
        stated = origin is not None and origin.how in ("given", "set")
        field = block_type(type(blocks[kind])).fields[name]
        if (stated or kind in _WHOLE) and field.kind in _CARRIED:
            yield path, attribute.text.removesuffix(attribute.provenance).strip()


def _job(run: Study) -> dict[str, str]:
    """Return the values that identify the job of a run, by path."""
    training = run[Training]
    model, precision = training.model, training.precision
    return {
        "device": block_name(run[Cluster].device),
        **{f"model.{name}": f"{float(getattr(model, name)):.12g}" for name in _DIMENSIONS},
        "precision.compute": precision.compute,
        "precision.narrow": precision.narrow,
    }
