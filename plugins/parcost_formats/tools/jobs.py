"""A study as input of settings writers: all values in use, explicit or default."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from parcost import Real, SettingsProblem, SettingsWriter, Study, ToolSettings, block_name
from parcost_formats.tools.tables import table
from parcost_plugins.physics.context import algorithm
from parcost_plugins.physics.partition import layers
from parcost_plugins.physics.routing import dispatcher_of
from parcost_plugins.physics.run_choices import saved_by_loss
from parcost_plugins.vocabulary import (
    Cluster,
    Context,
    KernelChoice,
    Layout,
    Offload,
    Overlap,
    Recompute,
    Routing,
    ScheduleChoice,
    Sharding,
    Training,
)

#: Blocks of the machine, of estimates, and of questions about a run.
OUTSIDE = (
    *("cluster", "collectives", "memory", "accuracy", "tuning", "device", "fabric"),
    *("datacenter", "energy", "price", "reliability", "checkpoint", "run", "data", "jitter"),
    *("plan", "plausible", "search", "targets"),
    *("offload.host_memory_bandwidth", "offload.host_memory", "offload.overlap"),
    # Questions that are answered beside a step.
    *("batch_scaling", "buckets", "dispatch", "equivalent", "estimate", "exchange", "flow", "fsdp"),
    *("grid", "link", "machine", "network", "pipeline", "placement", "rail_exchange", "resource"),
    *("roofline", "scaling_law", "serving", "sharing", "state", "transfer", "zero"),
)
#: Without these it is another job.
ESSENTIAL = (
    *("model", "layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.etp", "layout.dp"),
    *("layout.zero", "layout.sequence_parallel", "schedule.kind", "schedule.chunks"),
    *("schedule.stages", "training.sequence", "training.micro_batch", "training.global_batch"),
    *("training.recompute", "training.dropout", "precision.compute", "adapters"),
)
_MOST_RANKS = 16  # of a node; larger units of a fabric are racks


def reasons_of(*tools: str) -> Mapping[str, str]:
    """Return the reasons why a tool lacks a setting, by attribute, block or kind; later tools take
    precedence.
    """
    reasons = table("export_gaps")
    return {path: why for tool in ("common", *tools) for path, why in reasons[tool].items()}


class JobError(Exception):
    """A tool cannot run the job; *problem* has the reason."""

    def __init__(self, attribute: str, message: str, help: str = "") -> None:
        super().__init__(message)
        self.problem = SettingsProblem(attribute=attribute, message=message, help=help)


class Job:
    """The blocks of a study, and values derived from several of them."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.layout = study[Layout]
        self.schedule = study[ScheduleChoice]
        self.training = study[Training]
        self.model = self.training.model
        self.precision = self.training.precision
        self.framework = self.training.framework
        self.context = study[Context]
        self.sharding = study[Sharding]
        self.recompute = study[Recompute]
        self.overlap = study[Overlap]
        self.offload = study[Offload]
        self.routing = study[Routing]
        self.kernels = study[KernelChoice]
        self.tp, self.cp, self.pp = whole(self.layout.tp), whole(self.layout.cp), self.layout.pp
        self.ep, self.etp = whole(self.layout.ep), whole(self.layout.etp)
        self.dp = self.number("layout.dp", self.layout.dp)
        self.sequence = whole(self.training.sequence)
        self.micro_batch = whole(self.training.micro_batch)
        self.micro_batches = self.number("training.micro_batches", self.training.micro_batches)
        self.batch = self.number("training.global_batch", self.training.global_batch)
        self.context_algorithm = algorithm(study)
        self.dispatcher = dispatcher_of(study)
        self.graphs = self.kernels.cuda_graphs or self.framework.cuda_graphs
        self.mode = self.kernels.mode or self.framework.mode
        self.loss = saved_by_loss(study)
        if not self.training.flash_attention:
            self.attention = "unfused"
        else:
            self.attention = self.kernels.attention or "auto"
        if not whole(self.model.hidden) or not whole(self.model.heads):
            message = "a nominal model (of a stated size) has no layers to export"
            raise JobError("training.model", message, "use a model with its sizes")

    def number(self, path: str, value: Real) -> int:
        """Return a value as an integer; raise :class:`JobError` if it is not one."""
        if abs(float(value) - round(float(value))) > 1e-9:
            raise JobError(path, f"`{path}` is {float(value):g}, not a whole number")
        return round(float(value))

    @property
    def stages(self) -> Sequence[int]:
        """The number of transformer layers on each virtual stage, without MTP layers."""
        found = [whole(count) for count in layers(self.study)]
        found[-1] -= self.model.prediction_layers
        return found

    @property
    def state_ranks(self) -> int:
        """The number of ranks over which optimizer state is sharded."""
        return self.number("sharding.shard", self.sharding.shard)

    def states(self, block: Any, name: str) -> bool:
        """Return whether the spec itself states an attribute."""
        origin = self.study.origin(block, name)
        return origin is not None and origin.how in ("given", "set")

    def changes(self, block: Any) -> bool:
        """Return whether the spec itself states any attribute of a block."""
        origins = self.study.origins.get(id(block), {}).values()
        return any(one.how in ("given", "set") for one in origins)

    def recipe(self, known: Collection[str]) -> str | None:
        """Return the *known* precision that the job uses or extends; None for an unknown one."""
        if block_name(self.precision) in known:
            return block_name(self.precision)
        origins = self.study.origins.get(id(self.precision), {}).values()
        files = [PurePosixPath(one.span.source.name).stem for one in origins if one.span]
        found = [name for name in known if name in files]
        return found[-1] if found else None

    def nodes(self) -> tuple[int, int, bool]:
        """Return nodes, ranks per node, and whether the node size is known from the fabric."""
        cluster = self.study[Cluster]
        devices = whole(cluster.devices)
        size = whole(cluster.fabric.levels[0].size or devices)
        if size <= _MOST_RANKS and (devices % size == 0 or devices < size):
            each = min(size, devices)
            return devices // each, each, True
        each = next(n for n in (8, 4, 2, 1) if devices % n == 0)
        return devices // each, each, False

    def node_needs(self) -> list[str]:
        """Return the checks for the user if the fabric does not state the node size."""
        _, each, known = self.nodes()
        if known:
            return []
        return [f"the number of devices per node, {each} here: the fabric of the spec has no nodes"]

    def same(self) -> dict[str, str]:
        """Return the settings without effect in this layout, each with its reason."""
        found: dict[str, str] = {}
        if self.pp == 1:
            found["schedule"] = "there is only one pipeline stage"
        if self.cp == 1:
            found["context"] = "there is no context parallelism"
        if self.tp == 1:
            found["layout.sequence_parallel"] = "there is no tensor parallelism"
            found["overlap.tensor"] = "there is no tensor parallelism"
            found["overlap.chunks"] = "there is no tensor parallelism"
        if self.layout.zero == 0:
            found["sharding"] = "nothing is sharded"
            found["overlap.parameters"] = "no parameters are gathered"
        if not self.model.experts:
            found["routing"] = "the model has no experts"
            found["kernels.grouped_experts"] = "the model has no experts"
            found["layout.etp"] = "the model has no experts"
        return found


def whole(value: Real) -> int:
    """Return a quantity as an integer; it must be whole."""
    return round(float(value))


def word_of(words: Mapping[str, str], value: str, path: str, title: str) -> str:
    """Return the word of a tool for the *value* of the attribute *path*.

    Raises:
        JobError: The tool has no word for it.
    """
    for word, other in words.items():
        if other == value:
            return word
    known = ", ".join(dict.fromkeys(words.values()))
    raise JobError(path, f"{title} has no `{value}`", f"valid values: {known}")


class JobWriter(SettingsWriter):
    """A writer of settings of whole jobs."""

    outside: Collection[str] = OUTSIDE
    essential: Collection[str] = ESSENTIAL

    def write(self, study: Study) -> ToolSettings:
        """Return the settings of a study, or the reason why the tool cannot run it."""
        try:
            job = Job(study)
            return self.settings(job, job.same())
        except JobError as error:
            return ToolSettings(problems=[error.problem])

    @abstractmethod
    def settings(self, job: Job, same: dict[str, str]) -> ToolSettings:
        """Return the settings of a *job*; add the reasons for omitted settings to *same*.

        Raises:
            JobError: The tool cannot run it.
        """


def launcher(job: Job) -> list[str]:
    """Return the launcher command of a job, and the checks that it needs."""
    nodes, each, _ = job.nodes()
    return [
        f"the launcher: torchrun --nnodes {nodes} --nproc-per-node {each}",
        *job.node_needs(),
    ]
