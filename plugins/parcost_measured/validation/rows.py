"""The schema of a file of measured runs, with one JSON object per line, and consistency checks of a
row.

Conventions: `hardware.internode_gbps` is the total of a node in one direction, in Gb/s;
`batch.grad_accum` is micro-batches per data-parallel rank and step; the number of devices is tp *
pp * cp * dp; expert-parallel ranks lie inside the ranks of a stage.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from parcost import SpecError
from parcost.system.files import Kind, read_lines
from parcost_measured.validation.names import EXTRAS, find_schedule
from parcost_measured.validation.records import number_from, one_of, positive, read

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

RUNS = Kind("file of runs", 256 * 2**20, line=2**20)
#: Tolerance between a printed rate and the rate from the step time, as sources round.
_ROUNDING = 0.05


#: Classes of precision; longer names come before names that they contain.
PRECISIONS = ("mxfp8", "nvfp4", "mxfp4", "bf16", "fp16", "fp8", "tf32", "fp32")


#: Fields of `extra` that a study or a score is made from.
READ_EXTRAS = frozenset(EXTRAS["read"])
#: Fields of `extra` that describe the source or the transcription: they change no cost.
DESCRIPTIVE_EXTRAS = frozenset(EXTRAS["descriptive"])


#: The word LoRA, in any case, unless a text denies it; `kv_lora` is a part of latent attention.
_ADAPTERS = r"(?<!no )(?<!not )(?<!without )(?<!kv_)(?<!q_)(?<![a-z])q?lora(?![a-z])"


class UnmodelledError(ValueError):
    """A row cannot be written as a study; the message says why."""


@frozen(kw_only=True)
class RowModel:
    """Dimensions of the transformer."""

    name: str
    layers: int = number_from(1)
    hidden: int = number_from(1)
    heads: int = number_from(1)
    kv_heads: int | None = number_from(1, None)
    ffn: int | None = number_from(1, None)
    vocab: int = number_from(1)
    seq: int = number_from(1)
    params_b: float | None = positive(None)
    experts: int | None = number_from(0, None)
    topk: int | None = number_from(1, None)
    expert_ffn: int | None = number_from(1, None)
    shared_experts: int | None = number_from(0, None)
    gated: bool | None = None
    tied: bool | None = None
    pos_emb: int | None = number_from(0, None)
    head_dim: int | None = number_from(1, None)
    activation: str | None = None
    sliding_window: int | None = number_from(0, None)
    full_attention_layers: int | None = number_from(0, None)
    dense_layers: int | None = number_from(0, None)
    mtp_layers: int | None = number_from(0, None)
    attn_type: str | None = None
    q_lora_rank: int | None = number_from(0, None)
    kv_lora_rank: int | None = number_from(1, None)
    qk_nope_head_dim: int | None = number_from(1, None)
    qk_rope_head_dim: int | None = number_from(1, None)
    v_head_dim: int | None = number_from(1, None)
    attn_params_per_layer: float | None = positive(None)
    attn_score_dim: int | None = number_from(1, None)


@frozen(kw_only=True)
class Hardware:
    """Devices and the network between them."""

    gpu: str
    gpus: int = number_from(1)
    gpus_per_node: int | None = number_from(1, None)
    gpu_class: str | None = None
    intranode: str | None = None
    internode: str | None = None
    internode_gbps: float | None = positive(None)


@frozen(kw_only=True)
class Hybrid:
    """Hybrid sharding: ranks of a shard group, and groups."""

    shard: int = number_from(1)
    replicate: int = number_from(1)


@frozen(kw_only=True)
class Degrees:
    """Degrees of the layout."""

    tp: int = number_from(1)
    pp: int = number_from(1)
    dp: int = number_from(1)
    cp: int = number_from(1, 1)
    vp: int = number_from(1, 1)
    ep: int = number_from(1, 1)
    zero_stage_or_fsdp: str | None = None
    hsdp: Hybrid | bool | None = None
    sequence_parallel: bool | None = None


@frozen(kw_only=True)
class Batch:
    """Sequences of a step."""

    micro: int = number_from(1)
    global_: int = number_from(1)
    grad_accum: int | None = number_from(1, None)


@frozen(kw_only=True)
class FineTuning:
    """Fine-tuning: adapters on frozen weights, or `full` for the training of all weights."""

    kind: str | None = None
    rank: int | None = number_from(1, None)
    alpha: float | None = positive(None)
    targets: str | Sequence[str] | None = None
    dropout: float | None = number_from(0, None)
    base: str | None = None


@frozen(kw_only=True)
class Measurements:
    """The measured values of a source; the step time is required."""

    step_time_s: float = positive()
    tokens_per_s_per_gpu: float | None = positive(None)
    tflops_per_gpu: float | None = positive(None)
    tflops_kind: str | None = None
    mfu: float | None = positive(None)
    hfu: float | None = positive(None)
    memory_gb: float | None = positive(None)


@frozen(kw_only=True)
class RunRow:
    """One measured run."""

    id: str
    source: str
    source_key: str
    source_locator: str = ""
    year: int | None = number_from(2012, None)
    model: RowModel
    hardware: Hardware
    parallel: Degrees
    batch: Batch
    precision: str | None = None
    precision_class: str | None = one_of(*PRECISIONS, default=None)
    recompute: str | None = one_of("none", "selective", "full", "partial", "unknown", default=None)
    schedule: str | None = None
    attention: str | None = None
    tuning: FineTuning | None = None
    measured: Measurements
    peak_tflops_assumed: float | None = positive(None)
    notes: str = ""
    from_memory: bool | None = None
    synthetic: bool | None = None
    confidence: str | None = None
    complete: bool | None = None
    core: bool | None = None
    extra: Mapping[str, Any] = field(factory=dict)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a data-parallel rank in a step."""
        return self.batch.global_ // (self.batch.micro * self.parallel.dp)

    @property
    def nodes(self) -> int | None:
        """Nodes of the job; None if the row does not state the devices per node."""
        each = self.hardware.gpus_per_node
        return None if each is None else -(-self.hardware.gpus // each)

    @property
    def numbers(self) -> str | None:
        """The class of precision, stated in the row or derived from its text."""
        said = (self.precision or "").lower().replace("bfloat", "bf").replace("float", "fp")
        return self.precision_class or next((name for name in PRECISIONS if name in said), None)

    @property
    def is_sparse(self) -> bool:
        """Whether the model has experts."""
        return (self.model.experts or 0) > 1

    @property
    def adapter_text(self) -> str:
        """The texts in which a row states its fine-tuning."""
        places = (self.source, self.source_locator, self.model.name, self.extra.get("task"))
        return " ".join(str(one) for one in (*places, self.notes) if one)

    @property
    def has_adapters(self) -> bool:
        """Whether adapters were trained: by `tuning.kind`, or by the word LoRA in its texts."""
        if self.tuning is not None and self.tuning.kind:
            return self.tuning.kind.lower() not in ("full", "sft", "none")
        return re.search(_ADAPTERS, self.adapter_text, re.IGNORECASE) is not None

    @property
    def group_apart(self) -> str:
        """The group of a row that is excluded from other scores and from every fit; "" for most
        rows.
        """
        return "composed" if self.synthetic else "adapters" if self.has_adapters else ""

    @property
    def configuration(self) -> str:
        """The key of repeated runs of one configuration; the id if the row has no repeats."""
        return str(self.extra.get("dup_group") or self.id)

    @property
    def slowdown(self) -> tuple[float, float]:
        """The lower and upper bound of the slowdown by a fault, as shares of the step, from the
        source.

        Raises:
            UnmodelledError: The row has a slowdown without its range.
        """
        said = str(self.extra.get("nic_era") or "")
        if "slower" not in said:
            return 0.0, 0.0
        if (found := re.search(r"(\d+)-(\d+) ?% slower", said)) is None:
            raise UnmodelledError(f"`extra.nic_era` is `{said}`: write `1-5% slower`")
        least, most = sorted(int(percent) / 100 for percent in found.groups())
        return least, most


def count_unread(rows: Iterable[RunRow]) -> dict[str, int]:
    """Count the rows that have each unread field: a field of `extra`, or an unknown schedule of a
    stage.
    """
    counts: dict[str, int] = {}
    for row in rows:
        if row.parallel.pp == 1 and find_schedule(row.schedule) is None:
            name = f"schedule: {row.schedule}"
            counts[name] = counts.get(name, 0) + 1
        for name, value in row.extra.items():
            silent = value is None or value is False or value == ""
            if not silent and name not in READ_EXTRAS | DESCRIPTIVE_EXTRAS:
                counts[f"extra.{name}"] = counts.get(f"extra.{name}", 0) + 1
    return dict(sorted(counts.items()))


@frozen(kw_only=True)
class PlacedRow:
    """A row, and its line number."""

    row: RunRow
    file: str
    line: int


@frozen(kw_only=True)
class Flaw:
    """A reason why a row is not scored, or why a field is unread, with file, line and row."""

    file: str
    line: int
    id: str
    kind: str
    reason: str

    @property
    def text(self) -> str:
        """The flaw in one line."""
        named = f" (`{self.id}`)" if self.id else ""
        return f"{self.file}:{self.line}{named}: {self.reason}"


@frozen
class Rows:
    """The valid rows of a file, the flaws of the others, and unknown fields.

    Rows *apart* are valid, but excluded from other scores and from fits: their step time was not
    measured (`synthetic`), or they train adapters on frozen weights.
    """

    placed: Sequence[PlacedRow]
    flaws: Sequence[Flaw]
    unknown: Mapping[str, int]
    apart: Sequence[PlacedRow] = ()

    @property
    def flaws_apart(self) -> list[Flaw]:
        """The excluded rows (*apart*), each with the reason for the exclusion."""
        return [
            Flaw(
                file=one.file,
                line=one.line,
                id=one.row.id,
                kind="unmodelled",
                reason=_WHY_APART[one.row.group_apart],
            )
            for one in self.apart
        ]


_WHY_APART = {
    "composed": "its step time is composed from other measurements: no step was measured",
    "adapters": "it trains adapters (LoRA): such rows are in no fit, and are no anchors",
}


def shipped_runs(plugins: Plugins) -> tuple[str, Path] | None:
    """Return the file of runs in a catalogue, and its name in messages; None if none exists."""
    for _, catalogue in plugins.offers("catalogues").values():
        file = catalogue.root / "measured" / "runs.jsonl"
        if isinstance(file, Path) and file.is_file():
            return f"{catalogue.name}/measured/runs.jsonl", file
    return None


def read_files(files: Iterable[tuple[str, Path]]) -> Rows:
    """Return the rows of *files*, given by name in messages and path.

    Raises:
        SpecError: A file is missing, not a regular file, too large or not UTF-8.
    """
    return _read((name, read_lines(path, RUNS)) for name, path in files)


def read_text(name: str, text: str) -> Rows:
    """Return the rows in the *text* of a file; *name* is its name in messages."""
    return _read([(name, text.splitlines())])


def _read(files: Iterable[tuple[str, Iterable[str]]]) -> Rows:
    placed: list[PlacedRow] = []
    apart: list[PlacedRow] = []
    flaws: list[Flaw] = []
    unknown: dict[str, int] = {}
    seen: dict[str, str] = {}
    for name, lines in files:
        for number, value, reason in _objects(lines):
            if reason:
                flaws.append(Flaw(file=name, line=number, id="", kind="unreadable", reason=reason))
                continue
            found = _row(name, number, value, seen, unknown)
            if isinstance(found, PlacedRow):
                (apart if found.row.group_apart else placed).append(found)
            else:
                flaws += found
    return Rows(placed, flaws, unknown, apart)


def _objects(lines: Iterable[str]) -> Iterator[tuple[int, Any, str]]:
    """Yield the line number, the JSON value and an error for each line that is not empty."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, parse_constant=_reject), ""
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            what = "row" if line.lstrip().startswith("{") else "line"
            yield number, None, f"the {what} is not JSON: {reason}"


def _reject(text: str) -> float:
    message = f"`{text}` is not a number of JSON"
    raise ValueError(message)


def _row(
    name: str, number: int, value: Any, seen: dict[str, str], unknown: dict[str, int]
) -> PlacedRow | Sequence[Flaw]:
    reading = read(RunRow, _rename_keys(value))
    for field_ in reading.unknown:
        unknown[field_] = unknown.get(field_, 0) + 1
    id = str(value.get("id", "")) if isinstance(value, Mapping) else ""

    def flaw(kind: str, reason: str) -> Flaw:
        return Flaw(file=name, line=number, id=id, kind=kind, reason=reason)

    if reading.problems:
        return [
            flaw("malformed", reason.replace("global_", "global")) for reason in reading.problems
        ]
    row: RunRow = reading.made
    if row.id in seen:
        return [flaw("duplicate", f"the id `{row.id}` is also the id of {seen[row.id]}")]
    seen[row.id] = f"{name}:{number}"
    found = [flaw(kind, reason) for kind, check in _CHECKS for reason in check(row)]
    return found or PlacedRow(row=row, file=name, line=number)


def _rename_keys(value: Any) -> Any:
    """Return *value* with `batch.global` renamed, as it is a keyword of Python."""
    batch = value.get("batch") if isinstance(value, Mapping) else None
    if not isinstance(batch, Mapping) or "global" not in batch:
        return value
    renamed = {"global_" if name == "global" else name: v for name, v in batch.items()}
    return {**value, "batch": renamed}


def _layout(row: RunRow) -> Iterator[str]:
    p, devices = row.parallel, row.hardware.gpus
    product = p.tp * p.pp * p.cp * p.dp
    if product != devices:
        yield (
            f"tp {p.tp} x pp {p.pp} x cp {p.cp} x dp {p.dp} = {product} ranks, but there are "
            f"{devices} devices"
        )
    if (p.tp * p.cp * p.dp) % p.ep:
        yield f"ep {p.ep} does not divide the {p.tp * p.cp * p.dp} ranks of a stage"
    if p.ep > 1 and not row.is_sparse:
        yield f"ep {p.ep} needs experts, but the model has none"
    if isinstance(p.hsdp, Hybrid) and p.hsdp.shard * p.hsdp.replicate != p.dp * p.cp:
        yield (
            f"shards of {p.hsdp.shard} x {p.hsdp.replicate} replicas are not the "
            f"{p.dp * p.cp} data-parallel ranks"
        )


def _batch(row: RunRow) -> Iterator[str]:
    b, dp = row.batch, row.parallel.dp
    if b.global_ % (b.micro * dp):
        yield (
            f"{b.global_} sequences are not divisible by micro-batches of {b.micro} on {dp} "
            "replicas"
        )
    elif b.grad_accum is not None and b.micro * b.grad_accum * dp != b.global_:
        yield (
            f"micro-batches of {b.micro} x {b.grad_accum} x dp {dp} = {b.micro * b.grad_accum * dp}"
            f" sequences, but the global batch is {b.global_}"
        )


def _model(row: RunRow) -> Iterator[str]:
    m, p = row.model, row.parallel
    if m.kv_heads is not None and m.heads % m.kv_heads:
        yield f"{m.heads} heads are not divisible by {m.kv_heads} key-value heads"
    if m.head_dim is None and m.hidden % m.heads:
        yield f"a hidden size of {m.hidden} is not divisible by {m.heads} heads"
    if row.is_sparse and m.topk is None:
        yield "`model.topk` is missing, but the model has experts"
    if m.topk is not None and m.topk > (m.experts or 0):
        yield f"`model.topk` is {m.topk}, but the model has {m.experts or 0} experts"
    if p.pp * p.vp > m.layers + 2:
        yield f"{m.layers} layers are too few for {p.pp} stages of {p.vp} chunks"


def _measurements(row: RunRow) -> Iterator[str]:
    m = row.measured
    for name, value in (("mfu", m.mfu), ("hfu", m.hfu)):
        if value is not None and value > 1:
            yield f"`measured.{name}` is {value:g}: no device exceeds its peak"
    peak = row.peak_tflops_assumed
    if peak is not None and m.tflops_per_gpu is not None and m.tflops_per_gpu > peak:
        yield f"{m.tflops_per_gpu:g} TFLOP/s are beyond the peak of {peak:g}"
    if m.tokens_per_s_per_gpu is not None:
        tokens = row.batch.global_ * row.model.seq
        rate = tokens / (m.step_time_s * row.hardware.gpus)
        if abs(m.tokens_per_s_per_gpu / rate - 1) > _ROUNDING:
            yield (
                f"{tokens:,} tokens in {m.step_time_s:g} s are {rate:.4g} per second and device, "
                f"and `measured.tokens_per_s_per_gpu` is {m.tokens_per_s_per_gpu:g}"
            )


_CHECKS: tuple[tuple[str, Callable[[RunRow], Iterator[str]]], ...] = (
    ("contradictory", _layout),
    ("contradictory", _batch),
    ("contradictory", _model),
    ("absurd", _measurements),
)


def files_of(path: Path) -> list[tuple[str, Path]]:
    """Return the files of *path*: itself, or every `.jsonl` in a directory.

    Raises:
        SpecError: A directory has none.
    """
    from parcost.system.files import failure

    if not os.path.isdir(path):
        return [(str(path), path)]
    found = sorted(p for p in path.iterdir() if p.suffix == ".jsonl" and _has_runs(p))
    if not found:
        message = f"`{path}` has no file of runs: no `.jsonl` whose first line has `measured`"
        raise failure("missing-file", message, str(path))
    return [(str(p), p) for p in found]


def _has_runs(path: Path) -> bool:
    """Return whether *path* is a table of runs, and not of kernels or collectives."""
    try:
        first = next(iter(read_lines(path, RUNS)), "")
        value = json.loads(first)
    except (ValueError, RecursionError):
        return True  # reading it says what is wrong
    except SpecError:
        return True
    return isinstance(value, Mapping) and ("measured" in value or "parallel" in value)
