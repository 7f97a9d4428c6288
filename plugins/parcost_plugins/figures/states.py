"""The state of a model by its number of parameters alone: what it weighs, and where it fits."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real, Section, Study, called
from parcost.numeric import ceil, is_array, sqrt
from parcost_plugins.figures.links import per_direction
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.vocabulary import StateSheet
from parcost_plugins.vocabulary.answers import section_note

_PER_LAYER = 12.0  # h^2 parameters of a layer: 4 of attention, 8 of an MLP that is 4 h wide
_ROUNDING = 1e-9
_WIDTHS = (1, 2, 4, 8)  # tensor-parallel ranks of a table, as many as a node usually has


def states(study: Study) -> Iterator[Figure]:
    """Yield the figures of every ``state`` block."""
    for sheet in study.all(StateSheet):
        yield from _whole(sheet)
        yield from _held(sheet)
        yield from _sent(sheet)
        if sheet.capacity is not None:
            yield from _room(sheet, sheet.capacity * sheet.usable)


def tables(study: Study) -> Iterator[Section]:
    """Yield how wide a layer may be on so many tensor-parallel ranks, for every ``state`` block."""
    for sheet in study.all(StateSheet):
        if sheet.capacity is None:
            continue
        room, each = sheet.capacity * sheet.usable, _each(sheet)
        if is_array(room, each):
            yield section_note(called(sheet))
            continue
        rows = []
        for tp in _WIDTHS:
            widest = _widest_layer(tp * room, each)
            elements = _PER_LAYER * widest * widest
            row = (tp, widest, (elements, "G"), (elements * each, "GB"), (room, "GB"))
            rows.append(row)
        yield Section(
            title=f"Widest layer, {called(sheet)}",
            columns=("tp", "hidden size", "parameters", "state of a layer", "on a rank"),
            rows=rows,
            notes=["12 h^2 parameters of a layer; its activations come on top"],
        )


def _widest_layer(room: Real, each: Real) -> Real:
    return sqrt(room / (_PER_LAYER * each))


def _each(sheet: StateSheet) -> Real:
    recipe = sheet.precision
    return recipe.weights + recipe.gradients + recipe.optimizer


def _whole(sheet: StateSheet) -> Iterator[Figure]:
    say, recipe, N = figures_of(sheet), sheet.precision, sheet.parameters
    for name in ("weights", "gradients", "optimizer"):
        each = getattr(recipe, name)
        yield say(name, name, N * each, "GB", "N e", N=(N, ""), e=(each, "B"))
    each = _each(sheet)
    yield say(
        "bytes_per_parameter",
        "bytes per parameter",
        each,
        "B",
        "weights + gradients + optimizer",
        note="of the recipe",
        weights=(recipe.weights, "B"),
        gradients=(recipe.gradients, "B"),
        optimizer=(recipe.optimizer, "B"),
    )
    yield say("total", "model state", N * each, "GB", "N e", N=(N, ""), e=(each, "B"))
    if sheet.layers is not None:
        yield say(
            "gradients_per_layer",
            "gradients of one layer",
            N * recipe.gradients / sheet.layers,
            "GB",
            "N e / L",
            N=(N, ""),
            e=(recipe.gradients, "B"),
            L=(sheet.layers, ""),
        )


def _held(sheet: StateSheet) -> Iterator[Figure]:
    say, recipe, shards = figures_of(sheet), sheet.precision, sheet.tp * sheet.pp
    rank = sheet.parameters / shards
    letters = {"N": (sheet.parameters, ""), "tp": (sheet.tp, ""), "pp": (sheet.pp, "")}
    yield say(
        "parameters_per_stage",
        "parameters of a stage",
        sheet.parameters / sheet.pp,
        "G",
        "N / pp",
        **letters,
    )
    yield say(
        "parameters_per_device", "parameters of a device", rank, "G", "N / (tp pp)", **letters
    )
    total: Real = 0.0
    for stage, name in ((3, "weights"), (2, "gradients"), (1, "optimizer")):
        over = sheet.dp if sheet.zero >= stage else 1.0
        part = rank * getattr(recipe, name) / over
        total = total + part
        yield say(
            f"{name}_per_device",
            f"{name} of a device",
            part,
            "GB",
            f"N e / (tp pp{' dp' if sheet.zero >= stage else ''})",
            note=f"shared out from ZeRO {stage} on",
            **letters,
        )
    yield say(
        "per_device", "model state of a device", total, "GB", "weights + gradients + optimizer"
    )
    if sheet.device is not None:
        yield say(
            "read_time",
            "reading the weights of a device once",
            rank * recipe.weights / sheet.device.memory_bandwidth,
            "s",
            "N e / (tp pp B)",
            note="no token takes less",
            e=(recipe.weights, "B"),
            B=(sheet.device.memory_bandwidth, "B/s"),
            **letters,
        )
    yield say(
        "gradients_per_stage",
        "gradients of a stage",
        sheet.parameters * recipe.gradients / sheet.pp,
        "GB",
        "N e / pp",
        note="of its tp ranks together",
        e=(recipe.gradients, "B"),
        **letters,
    )
    copies = sheet.dp * total / (rank * _each(sheet))
    yield say(
        "copies",
        "copies of the state that replicas hold together",
        copies,
        "",
        "dp x state of a device / (N e / (tp pp))",
        note="1 where everything is shared out",
        **letters,
    )


def _sent(sheet: StateSheet) -> Iterator[Figure]:
    say, recipe = figures_of(sheet), sheet.precision
    rank = sheet.parameters / (sheet.tp * sheet.pp)
    wire, back = rank * recipe.reduction, rank * recipe.gather
    m = sheet.micro_batches
    # Replicas all-reduce; sharded, they gather what they reduced only in parts. What no rank
    # holds whole cannot wait for the end of the step.
    text, often = (
        ("2 g", 2.0 * wire),
        ("g + w", wire + back),
        ("m g + w", m * wire + back),
        ("m (g + 2 w)", m * (wire + 2.0 * back)),
    )[sheet.zero]
    inputs = {"g": (wire, "B"), "w": (back, "B"), **({"m": (m, "")} if sheet.zero > 1 else {})}
    yield say(
        "traffic",
        "sent by a device for its replica in a step, for many replicas",
        often,
        "GB",
        text,
        note="see `ring_traffic`" + ("; m micro-batches" if sheet.zero > 1 else ""),
        **inputs,
    )
    yield say(
        "ring_traffic",
        "sent by a device for its replica in a step",
        often * (sheet.dp - 1.0) / sheet.dp,
        "GB",
        f"({text}) (dp - 1) / dp",
        dp=(sheet.dp, ""),
        **inputs,
    )
    yield say(
        "traffic_against_replicas",
        "the same over what plain replicas send",
        often / (2.0 * wire),
        "",
        f"({text}) / (2 g)",
        **inputs,
    )
    yield say(
        "traffic_in_parameters",
        "the same over the bytes of the parameters",
        often / back,
        "",
        f"({text}) / w",
        **inputs,
    )
    if sheet.link is not None and (rate := per_direction(sheet.link)) is not None:
        total = rate * sheet.link.ports
        yield say(
            "traffic_time",
            "time of that, at the bandwidth of the link",
            often / total,
            "s",
            f"({text}) / B",
            B=(total, "B/s"),
            **inputs,
        )


def _room(sheet: StateSheet, room: Real) -> Iterator[Figure]:
    say, each, state = figures_of(sheet), _each(sheet), sheet.parameters * _each(sheet)
    inputs = {"state": (state, "B"), "M": (room, "B")}
    yield say(
        "devices_needed",
        "fewest devices whose memory holds the state",
        ceil(state / room - _ROUNDING),
        "",
        "state / M, rounded up",
        note="with nothing else in it",
        **inputs,
    )
    all_ = room * sheet.devices
    yield say(
        "capacity", "memory of all devices", all_, "GB", "N M", N=(sheet.devices, ""), **inputs
    )
    yield say(
        "fits",
        "whether all devices together hold the state",
        1.0 * (state <= all_),
        "",
        "state <= N M",
        N=(sheet.devices, ""),
        **inputs,
    )
    yield say("filled", "state over the memory of all devices", state / all_, "%", "state / (N M)")
    largest = all_ / each
    yield say(
        "largest",
        "largest model whose state they hold",
        largest,
        "G",
        "N M / e",
        note="parameters",
        N=(sheet.devices, ""),
        M=(room, "B"),
        e=(each, "B"),
    )
    yield say(
        "largest_weights",
        "weights of that model",
        largest * sheet.precision.weights,
        "GB",
        "N M w / e",
        w=(sheet.precision.weights, "B"),
        e=(each, "B"),
    )
    yield say(
        "beside_weights",
        "left beside the weights on a device",
        room - sheet.parameters / (sheet.tp * sheet.pp) * sheet.precision.weights,
        "GB",
        "M - N w / (tp pp)",
        M=(room, "B"),
    )
    yield say(
        "widest_layer",
        "hidden size at which one layer's state fills a device",
        _widest_layer(room, each),
        "",
        "sqrt(M / (12 e))",
        note="of 12 h^2 parameters",
        M=(room, "B"),
        e=(each, "B"),
    )
