"""Tables of kernels as grids: matrix products, attention, element-wise passes.

A table has the fields of `specs/parcost_specs/measured`. Times are estimated by the model of the
catalogue over values of one constant, without power throttling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from parcost import ParcostError, Session, Study, block_name
from parcost_measured.calibration.constants import Constant, ConstantKind, kind_of, make_constant
from parcost_measured.calibration.grids import Measurement, TimeGrid, axes_of, set_text
from parcost_measured.calibration.inputs import (
    FieldError,
    TableRow,
    boolean,
    number,
    text,
)
from parcost_measured.validation.hardware import ENTRIES, device_names, entry_of
from parcost_measured.validation.records import is_number
from parcost_measured.validation.rows import Flaw, Hardware
from parcost_plugins.physics import elementwise
from parcost_plugins.physics.elementwise import Traffic
from parcost_plugins.vocabulary import Cluster, Gemm, KernelChoice, Training

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The recipe whose products run in a type, by the first words of a table's name for it.
RECIPES = {
    "fp16": "bf16",
    "bfloat16": "bf16",
    "float16": "bf16",
    "bf16": "bf16",
    "fp8 blockscale": "fp8_blockwise",
    "fp8 rowwise": "fp8_current",
    "fp8 current": "fp8_current",
    "fp8 e4m3": "fp8_current",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
    "mxfp4": "nvfp4",
}
#: Seconds below which launch time dominates a matrix product.
SHORTEST = 100e-6
KERNELS = {
    "flash1": "flash_1",
    "flash2": "flash_2",
    "sdpa-flash": "flash_2",
    "flash3": "flash_3",
    "flash4": "flash_4",
    "sdpa-cudnn": "cudnn",
    "cudnn": "cudnn",
    "triton": "triton",
    "xformers": "xformers",
    "sdpa-efficient": "xformers",
    "aiter": "aiter",
}
TYPES = {"bfloat16": "wide", "float16": "wide", "fp16/bf16": "wide", "fp8": "fp8", "mxfp8": "fp8"}
#: Minimum share of memory time in an element-wise pass, for a row to be used.
_MEMORY_PART = 0.8
_OPERATORS = ("norms", "gated", "rotary", "softmax", "loss")


class SkippedRowError(ValueError):
    """A row is valid, but measures no constant; the message has the reason."""


@define(eq=False)
class Tables:
    """Collects kernel rows into grids; *constants* grows with the rows."""

    session: Session
    table: Sequence[ConstantKind]
    device: str = ""  # where the user names one
    constants: list[Constant] = field(factory=list)
    rows: dict[tuple[int, ...], list[tuple[Measurement, NDArray[np.float64]]]] = field(factory=dict)
    passed: dict[str, int] = field(factory=dict)
    flaws: list[Flaw] = field(factory=list)
    _studies: dict[tuple[Any, ...], Study] = field(factory=dict)
    _seen: dict[str, str] = field(factory=dict)

    def add(self, placed: Iterable[TableRow | Flaw], content: str) -> None:
        """Add the rows of a table."""
        take: Mapping[str, Callable[[TableRow], None]] = {
            "products": self._product,
            "attention": self._attention,
            "streams": self._stream,
        }
        for one in placed:
            if isinstance(one, Flaw):
                self.flaws.append(one)
                continue
            id = one.value.get("id")
            if isinstance(id, str) and id in self._seen:
                reason = f"the id `{id}` is also used by {self._seen[id]}"
                self.flaws.append(one.flaw(reason, "duplicate"))
                continue
            if isinstance(id, str):
                self._seen[id] = f"{one.file}:{one.line}"
            try:
                take[content](one)
            except FieldError as error:
                self.flaws.append(one.flaw(str(error)))
            except SkippedRowError as error:
                self.passed[str(error)] = self.passed.get(str(error), 0) + 1
            except ParcostError as error:
                self.flaws.append(one.flaw(str(error).partition("\n")[0]))

    def grids(self) -> list[TimeGrid]:
        """Return the grids of all rows."""
        import numpy as np

        return [
            TimeGrid(
                rows=[row for row, _ in found],
                axes=axes,
                points=[np.log(p) for p in axes_of([self.constants[i] for i in axes])],
                logs=np.array([logs for _, logs in found]),
            )
            for axes, found in self.rows.items()
        ]

    # --- rows -------------------------------------------------------------------------------

    def _product(self, one: TableRow) -> None:
        import numpy as np

        row, device = one.value, self._device(one)
        seconds = number(row, "time_us") * 1e-6
        dtype = text(row, "dtype")
        recipe = next((r for word, r in RECIPES.items() if dtype.startswith(word)), None)
        shapes = row.get("products")
        if not isinstance(shapes, list) or not shapes or not all(map(_is_shape, shapes)):
            raise FieldError("`products` is not a list of [m, n, k, count], each above 0")
        if recipe is None:
            raise SkippedRowError(f"no precision recipe has GEMMs in `{dtype}`")
        if row.get("held"):
            raise SkippedRowError("timed at the power limit, so the best rate is unknown")
        plain = self._study(device, recipe, None)
        precision = plain[Training].precision
        for type_ in {precision.compute, precision.narrow} - {"none"}:
            if getattr(plain[Cluster].device, type_) is None:
                raise SkippedRowError(f"{device} multiplies nothing in {type_}")
        if seconds < SHORTEST * len(shapes):
            raise SkippedRowError("shorter than 100 us per product: the launch time dominates")
        kind = next(k for k in self.table if "products" in k.reads and recipe in k.recipes)
        place = self._constant(kind.attribute, device)
        (axis,) = axes_of([self.constants[place]])
        study = self._study(device, recipe, (f"cluster.device.{kind.attribute}", tuple(axis)))
        _, tiled = self.session.plugins.offers("kernels")["tiled"]
        predicted = np.zeros(len(axis))
        for m, n, k, batch in shapes:
            product = Gemm(
                name="p",
                m=float(m),
                n=float(n),
                k=float(k),
                batch=float(batch),
                pass_="F",
                count=(1.0,),
            )
            timed = tiled.price(product, study)
            predicted = predicted + np.asarray(timed.value, float)
        shape = repr(shapes)
        self._keep((place,), one, seconds, predicted, shape, (recipe, shape))

    def _stream(self, one: TableRow) -> None:
        import numpy as np

        row, device = one.value, self._device(one)
        seconds = number(row, "time_us") * 1e-6
        elements, element = number(row, "elements"), number(row, "element")
        study = self._study(device, "bf16", None)
        chosen = study[KernelChoice]
        moved, kernels = 0.0, 0.0
        runs = row.get("runs")
        if not isinstance(runs, list) or not runs:
            raise FieldError("`runs` is not a list of timed runs")
        for run in runs:
            traffic = _traffic(run)
            if traffic is None:
                raise FieldError(
                    f"`runs`: {run} is not an operator, an implementation and a direction"
                )
            share = 1.0
            if traffic.kind != "plain":
                share = float(getattr(chosen, f"{traffic.kind}_efficiency"))
            moved += float(traffic.bytes_(element)) * elements / share
            kernels += float(traffic.kernels)
        place = self._constant("memory_efficiency", device)
        constant = self.constants[place]
        rate = float(study[Cluster].device.memory_bandwidth)
        start = kernels * float(chosen.start)
        memory = moved / (rate * constant.start)
        if memory < _MEMORY_PART * (memory + start) or memory < start / (1 - _MEMORY_PART):
            raise SkippedRowError("so short that the launch time dominates")
        if row.get("clock") == "events" and seconds < 2 * SHORTEST:
            raise SkippedRowError("timed with events, but so short that the events dominate")
        (axis,) = axes_of([constant])
        predicted = moved / (rate * axis) + start
        shape = f"{text(row, 'shape') if 'shape' in row else elements} {runs}"
        self._keep((place,), one, seconds, np.asarray(predicted), shape, (shape,))

    def _attention(self, one: TableRow) -> None:
        import numpy as np

        row, device = one.value, self._device(one)
        name, dtype = text(row, "kernel"), text(row, "dtype")
        direction = text(row, "direction")
        if direction not in ("forward", "backward", "both"):
            raise FieldError(f"`direction` is `{direction}`; it is one of forward, backward, both")
        causal = boolean(row, "causal")
        kernel, type_ = KERNELS.get(name), TYPES.get(dtype)
        sizes = {f: number(row, f) for f in ("batch", "heads", "head_dim", "seq_q", "seq_k")}
        value_dim = number(row, "head_dim_v") if "head_dim_v" in row else sizes["head_dim"]
        if kernel is None or type_ is None:
            raise SkippedRowError(f"no fused kernel is called `{name}` in `{dtype}`")
        study = self._study(device, "bf16", None)
        found = study[Cluster].device
        rates = found.attention
        known = rates.find(kernel, type_) if rates is not None else None
        if rates is None or known is None:
            raise SkippedRowError(f"the catalogue has no `{kernel}` ({type_}) of `{device}`")
        width = (sizes["head_dim"] + value_dim) / 2
        head = next((head for head in known.heads if float(head.size) == width), None)
        if head is None:
            raise SkippedRowError(
                f"`{block_name(known)}` of `{device}` has no rate for heads of {width:g}"
            )
        if row.get("window") is not None:
            number(row, "window")
        keys = _keys(sizes["seq_k"], row.get("window"), causal=causal)
        pairs = 2.0 * sizes["batch"] * sizes["heads"] * sizes["seq_q"] * keys
        query = sizes["head_dim"]
        flops = {
            "forward": pairs * (query + value_dim),
            "backward": pairs * (3 * query + 2 * value_dim),
        }
        directions = ["forward", "backward"] if direction == "both" else [direction]
        if row.get("time_us") is None and row.get("tflops") is not None:
            seconds = sum(flops[d] for d in directions) / (number(row, "tflops") * 1e12)
        else:
            seconds = number(row, "time_us") * 1e-6
        peak = float((found.fp8 if type_ == "fp8" else found.bf16) or found.fp16 or 0.0)
        inside = f"{block_name(rates)}.{block_name(known)}"
        places = tuple(self._constant(d, device, head=head, inside=inside) for d in directions)
        parts = []
        axes = axes_of([self.constants[place] for place in places])
        for at, (d, axis) in enumerate(zip(directions, axes, strict=True)):
            fill = float(known.fill(backward=d == "backward"))
            part = flops[d] / (peak * axis) * (1 + fill / keys)
            parts.append(part.reshape([-1 if i == at else 1 for i in range(len(places))]))
        predicted = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        shape = repr((sorted(sizes.items()), causal, row.get("window")))
        self._keep(places, one, seconds, np.asarray(predicted), shape, (shape,))

    # --- parts ------------------------------------------------------------------------------

    def _keep(
        self,
        places: tuple[int, ...],
        one: TableRow,
        seconds: float,
        predicted: NDArray[np.float64],
        shape: str,
        layout: tuple[object, ...],
    ) -> None:
        import numpy as np

        constant = self.constants[places[0]]
        measured = Measurement(
            id=str(one.value.get("id") or f"{one.file}:{one.line}"),
            place=f"{one.file}:{one.line}",
            seconds=seconds,
            configuration=f"{constant.name} {shape}",
            model=shape,
            source=str(one.value.get("source", one.file)),
            device=constant.of[0],
            layout=layout,
        )
        self.rows.setdefault(places, []).append((measured, np.log(predicted)))

    def _device(self, one: TableRow) -> str:
        name = self.device or text(one.value, "device")
        if any(entry.device == name for entry in ENTRIES):
            return name
        entry = entry_of(Hardware(gpu=name, gpus=1))
        if entry is None:
            raise FieldError(
                f"the device `{name}` is not one of {device_names()}; choose one with --device"
            )
        return entry.device

    def _constant(
        self,
        attribute: str,
        device: str,
        *,
        head: Any = None,
        inside: str = "",
    ) -> int:
        """Return the index of a constant; a new one is added."""
        from attrs import evolve

        block = "device" if head is None else "head_rate"
        label = device if head is None else block_name(head)
        name = f"{inside}.{label}.{attribute}" if inside else f"{label}.{attribute}"
        for place, known in enumerate(self.constants):
            if known.name == name:
                if device not in known.of:
                    self.constants[place] = evolve(known, of=(*known.of, device))
                return place
        kind = kind_of(self.table, block, attribute, label)
        assert kind is not None
        value = head if head is not None else self._study(device, "bf16", None)[Cluster].device
        constant = make_constant(
            kind, label, float(getattr(value, attribute)), inside=inside, of=(device,)
        )
        self.constants.append(constant)
        return len(self.constants) - 1

    def _study(
        self, device: str, recipe: str, sweep: tuple[str, tuple[float, ...]] | None
    ) -> Study:
        """Return a study on a device without power throttling, over the values of one attribute."""
        key = (device, recipe, sweep)
        if key not in self._studies:
            values = {"cluster.device.sustained": "1", "cluster.device.narrow_sustained": "1"}
            if sweep is not None:
                attribute = sweep[0].rpartition(".")[2]
                kind = kind_of(self.table, "device", attribute, device)
                assert kind is not None
                values[sweep[0]] = set_text(make_constant(kind, device, 1.0), sweep[1])
            (scenario,) = self.session.load_text(
                f"use catalog.devices.{device}\nuse catalog.fabrics.hgx_h100\n"
                f"use catalog.precisions.{recipe}\nuse catalog.models.llama3_8b\n"
                "cluster { devices = 1 }\n"
                "training { sequence = 4096, global_batch = 8 sequences }\n",
                overrides=values,
            )
            self._studies[key] = scenario.studies()[0]
        return self._studies[key]


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 4 and all(is_number(n) and n > 0 for n in value)
    )


def _traffic(run: Any) -> Traffic | None:
    """Return the memory traffic of an entry of `runs`; None if it names no operator."""
    if not isinstance(run, list) or not run:
        return None
    if len(run) == 2 and run[0] == "kernel" and is_number(run[1]) and run[1] > 0:
        return Traffic(1, float(run[1]))
    if len(run) != 3 or not all(isinstance(word, str) for word in run):
        return None
    if run[0] not in _OPERATORS or run[2] not in ("forward", "backward"):
        return None
    found: Traffic | None = getattr(getattr(elementwise, run[0].upper()).get(run[1]), run[2], None)
    return found


def _keys(length: float, window: Any, *, causal: bool) -> float:
    """Return the average number of keys that a query attends to."""
    if not causal:
        return length
    width = min(float(window) if window else length, length)
    return width - width * (width - 1) / (2 * length)


def is_pattern(pattern: str, name: str) -> bool:
    """Return whether *name* contains *pattern*, ignoring case."""
    return re.search(pattern, name, re.IGNORECASE) is not None
