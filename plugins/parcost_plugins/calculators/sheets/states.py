"""The state of a model from its parameter count alone: its bytes, and the devices for it."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Real, Section, Sheet, Study, block_name, formula
from parcost.numeric import is_array, sqrt
from parcost_plugins.calculators.sheets.links import all_ports
from parcost_plugins.vocabulary import StateSheet
from parcost_plugins.vocabulary.answers import section_note

_PER_LAYER = 12.0  # h^2 parameters of a layer: 4 of attention, 8 of an MLP that is 4 h wide
_ROUNDING = 1e-9
_WIDTHS = (1, 2, 4, 8)  # tensor-parallel ranks of a table, as many as a node usually has


def states(study: Study) -> Iterator[Figure]:
    """Yield the figures of every ``state`` block."""
    for sheet in study.all(StateSheet):
        yield from _total_figures(sheet)
        yield from _device_figures(sheet)
        yield from _traffic_figures(sheet)
        if sheet.capacity is not None:
            memory = formula("capacity usable", capacity=(sheet.capacity, "B"), usable=sheet.usable)
            yield from _memory_figures(sheet, memory)


def tables(study: Study) -> Iterator[Section]:
    """Yield the largest hidden size of a layer by tensor-parallel degree, per ``state`` block."""
    for sheet in study.all(StateSheet):
        if sheet.capacity is None:
            continue
        memory, each = sheet.capacity * sheet.usable, _bytes_per_parameter(sheet)
        if is_array(memory, each):
            yield section_note(block_name(sheet))
            continue
        rows = []
        for tp in _WIDTHS:
            widest = _widest_layer(tp * memory, each)
            elements = _PER_LAYER * widest * widest
            row = (tp, widest, (elements, "G"), (elements * each, "GB"), (memory, "GB"))
            rows.append(row)
        yield Section(
            title=f"Largest layer that fits, {block_name(sheet)}",
            columns=("tp", "hidden size", "parameters", "model state of the layer", "per rank"),
            rows=rows,
            notes=["a layer has 12 h^2 parameters; activations are not included"],
        )


def _widest_layer(memory: Real, each: Real) -> Real:
    return sqrt(memory / (_PER_LAYER * each))


def _bytes_per_parameter(sheet: StateSheet) -> Real:
    recipe = sheet.precision
    return recipe.weights + recipe.gradients + recipe.optimizer


def _sheet(state: StateSheet) -> Sheet:
    """Return the symbols of a ``state`` block: N parameters, and bytes of each."""
    recipe = state.precision
    return Sheet(
        block_name(state),
        N=state.parameters,
        w=(recipe.weights, "B"),
        g=(recipe.gradients, "B"),
        o=(recipe.optimizer, "B"),
        tp=state.tp,
        pp=state.pp,
        dp=state.dp,
        m=state.micro_batches,
    )


def _total_figures(state: StateSheet) -> Iterator[Figure]:
    sheet = _sheet(state)
    yield sheet("weights", "weights", "GB", "N w")
    yield sheet("gradients", "gradients", "GB", "N g")
    yield sheet("optimizer", "optimizer", "GB", "N o")
    yield sheet(
        "bytes_per_parameter", "bytes per parameter", "B", "w + g + o", note="of the recipe"
    )
    yield sheet("total", "model state", "GB", "weights + gradients + optimizer")
    if state.layers is not None:
        yield sheet(
            "gradients_per_layer", "gradients of one layer", "GB", "N g / L", L=state.layers
        )


def _device_figures(state: StateSheet) -> Iterator[Figure]:
    sheet = _sheet(state)
    yield sheet("parameters_per_stage", "parameters of a stage", "G", "N / pp")
    yield sheet("parameters_per_device", "parameters of a device", "G", "N / (tp pp)")
    for stage, name, symbol in ((3, "weights", "w"), (2, "gradients", "g"), (1, "optimizer", "o")):
        yield sheet(
            f"{name}_per_device",
            f"{name} of a device",
            "GB",
            f"N {symbol} / (tp pp{' dp' if state.zero >= stage else ''})",
            note=f"sharded from ZeRO {stage} on",
        )
    yield sheet(
        "per_device",
        "model state of a device",
        "GB",
        "weights_per_device + gradients_per_device + optimizer_per_device",
    )
    if state.device is not None:
        yield sheet(
            "read_time",
            "reading the weights of a device once",
            "s",
            "N w / (tp pp B)",
            note="lower bound of the time per token",
            B=(state.device.memory_bandwidth, "B/s"),
        )
    yield sheet(
        "gradients_per_stage",
        "gradients of a stage",
        "GB",
        "N g / pp",
        note="sum over all tp ranks",
    )
    yield sheet(
        "copies",
        "number of copies of the state over all replicas",
        "",
        "dp per_device / (N (w + g + o) / (tp pp))",
        note="1 if all state is sharded",
    )


def _traffic_figures(state: StateSheet) -> Iterator[Figure]:
    sheet, recipe = _sheet(state), state.precision
    sheet.symbols["g"] = sheet.formula("N r / (tp pp)", r=(recipe.reduction, "B")), "B"
    sheet.symbols["w"] = sheet.formula("N a / (tp pp)", a=(recipe.gather, "B")), "B"
    # Replicas all-reduce; sharded, they gather what they reduced only in parts. What no rank
    # holds whole cannot wait for the end of the step.
    text = ("2 g", "g + w", "m g + w", "m (g + 2 w)")[state.zero]
    yield sheet(
        "traffic",
        "sent by a device for its replica in a step, for many replicas",
        "GB",
        text,
        note="see `ring_traffic`" + ("; m micro-batches" if state.zero > 1 else ""),
    )
    yield sheet(
        "ring_traffic",
        "sent by a device for its replica in a step",
        "GB",
        "traffic (dp - 1) / dp",
    )
    yield sheet(
        "traffic_against_replicas",
        "traffic of a device / traffic of plain data parallelism",
        "",
        "traffic / (2 g)",
    )
    yield sheet(
        "traffic_in_parameters",
        "traffic of a device / bytes of its parameters",
        "",
        "traffic / w",
    )
    if state.link is not None and (rate := all_ports(state.link)) is not None:
        yield sheet(
            "traffic_time",
            "time of this traffic at the bandwidth of the link",
            "s",
            "traffic / B",
            B=(rate, "B/s"),
        )


def _memory_figures(state: StateSheet, memory: Formula) -> Iterator[Figure]:
    sheet = _sheet(state)
    sheet.symbols |= {
        "state": (sheet.formula("N (w + g + o)"), "B"),
        "M": (memory, "B"),
        "D": state.devices,
    }
    yield sheet(
        "devices_needed",
        "smallest number of devices whose memory holds the state",
        "",
        f"ceil(state / M - {_ROUNDING})",
        note="state only, without activations",
    )
    yield sheet("capacity", "memory of all devices", "GB", "D M")
    yield sheet("fits", "all devices together hold the state", "", "state <= D M")
    yield sheet("filled", "state / memory of all devices", "%", "state / (D M)")
    yield sheet(
        "largest",
        "largest model whose state fits on all devices",
        "G",
        "D M / (w + g + o)",
        note="parameters",
    )
    yield sheet("largest_weights", "weights of that model", "GB", "largest w")
    yield sheet(
        "beside_weights",
        "memory left on a device after the weights",
        "GB",
        "M - N w / (tp pp)",
    )
    yield sheet(
        "widest_layer",
        "hidden size at which the state of one layer fills a device",
        "",
        "sqrt(M / (12 (w + g + o)))",
        note="of 12 h^2 parameters",
    )
