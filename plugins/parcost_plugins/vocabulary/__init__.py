"""Blocks and records that plugins share.

Any plugin may import from here; a third-party plugin writes ``from parcost_plugins.vocabulary
import Layout, Training``.
"""

from parcost import hookimpl
from parcost_plugins.vocabulary.accuracy import Accuracy, Family, JobSpread, ObservedErrors
from parcost_plugins.vocabulary.adapters import Adapters, Quantization
from parcost_plugins.vocabulary.anchor import Anchor
from parcost_plugins.vocabulary.attention import (
    AttentionKernel,
    AttentionTable,
    HeadRate,
)
from parcost_plugins.vocabulary.compression import BucketSketch, Compression, ExchangeSketch
from parcost_plugins.vocabulary.context import Context
from parcost_plugins.vocabulary.custom_terms import CustomTerm
from parcost_plugins.vocabulary.estimates import Estimate, Grid, PipelineSketch
from parcost_plugins.vocabulary.framework import Framework, Offer
from parcost_plugins.vocabulary.hardware import Cluster, Device, Fabric, Level, PlausibleRange
from parcost_plugins.vocabulary.inference import Serving
from parcost_plugins.vocabulary.layout import Layout, ScheduleChoice
from parcost_plugins.vocabulary.model import Model
from parcost_plugins.vocabulary.networks import Flow, Network, RailExchange, Resource, Sharing
from parcost_plugins.vocabulary.operations import (
    Checkpoint,
    Data,
    Datacenter,
    Energy,
    Price,
    Reliability,
    Run,
)
from parcost_plugins.vocabulary.operators import (
    FusedAttention,
    Gemm,
    ModelFlops,
    Parameters,
    Stream,
)
from parcost_plugins.vocabulary.recompute import Recompute
from parcost_plugins.vocabulary.routing import Routing
from parcost_plugins.vocabulary.scaling import BatchScaling, EquivalentDevices, Jitter, ScalingLaw
from parcost_plugins.vocabulary.search import Search
from parcost_plugins.vocabulary.sharding import (
    FsdpSketch,
    LocalUpdates,
    Offload,
    Sharding,
    ZeroSketch,
)
from parcost_plugins.vocabulary.sheets import LinkSheet, MachineSheet, StateSheet
from parcost_plugins.vocabulary.targets import Plan, Roofline, Targets
from parcost_plugins.vocabulary.training import (
    CollectiveChoice,
    KernelChoice,
    MemoryBudget,
    Overlap,
    Precision,
    Streaming,
    Tile,
    Training,
)
from parcost_plugins.vocabulary.transfer import OPERATIONS, Transfer
from parcost_plugins.vocabulary.tuning import (
    GenerationTuning,
    HostTuning,
    ProtocolTuning,
    Tuning,
)

__all__ = [
    "OPERATIONS",
    "Accuracy",
    "Adapters",
    "Anchor",
    "AttentionKernel",
    "AttentionTable",
    "BatchScaling",
    "BucketSketch",
    "Checkpoint",
    "Cluster",
    "CollectiveChoice",
    "Compression",
    "Context",
    "CustomTerm",
    "Data",
    "Datacenter",
    "Device",
    "Energy",
    "EquivalentDevices",
    "Estimate",
    "ExchangeSketch",
    "Fabric",
    "Family",
    "Flow",
    "Framework",
    "FsdpSketch",
    "FusedAttention",
    "Gemm",
    "GenerationTuning",
    "Grid",
    "HeadRate",
    "HostTuning",
    "Jitter",
    "JobSpread",
    "KernelChoice",
    "Layout",
    "Level",
    "LinkSheet",
    "LocalUpdates",
    "MachineSheet",
    "MemoryBudget",
    "Model",
    "ModelFlops",
    "Network",
    "ObservedErrors",
    "Offer",
    "Offload",
    "Overlap",
    "Parameters",
    "PipelineSketch",
    "Plan",
    "PlausibleRange",
    "Precision",
    "Price",
    "ProtocolTuning",
    "Quantization",
    "RailExchange",
    "Recompute",
    "Reliability",
    "Resource",
    "Roofline",
    "Routing",
    "Run",
    "ScalingLaw",
    "ScheduleChoice",
    "Search",
    "Serving",
    "Sharding",
    "Sharing",
    "StateSheet",
    "Stream",
    "Streaming",
    "Targets",
    "Tile",
    "Training",
    "Transfer",
    "Tuning",
    "ZeroSketch",
]


@hookimpl
def blocks() -> list[type]:
    """Return the shared blocks, except `sharding`, which the ZeRO plugin provides."""
    public = (globals()[name] for name in __all__)
    return [one for one in public if hasattr(one, "__block__") and one is not Sharding]
