"""The YAML of Meta Lingua: a Llama-like model under FSDP2 of PyTorch.

It describes the whole run: the product of its degrees has to be the device count.
"""

from __future__ import annotations

import re

from parcost import Importer, ImportFile, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector, digits, read_configuration
from parcost_formats.tools.interpolation import resolve
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.tables import table

TOOL = "lingua"
_VERSION = "Lingua 1ac9ee4"
_MODEL = "model lingua"
_ANSWERS = ("--use catalog.precisions.bf16_fsdp", "--use catalog.precisions.fp32")
_SIGNS = (
    re.compile(r"^distributed\s*:", re.MULTILINE),
    re.compile(r"^[ \t]+fsdp_type\s*:", re.MULTILINE),
    re.compile(r"^[ \t]+(?:model_dtype|tp_size|dp_shard)\s*:", re.MULTILINE),
)


class Lingua(JobImporter):
    """Configurations of Meta Lingua."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is YAML with the degrees of Lingua."""
        return name.endswith((".yaml", ".yml")) and all(sign.search(text) for sign in _SIGNS)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration."""
        entries = resolve(read_configuration(file.name, file.text))
        stated = {key: entry for key, entry in entries.items() if entry.value is not None}
        found = SettingCollector(stated, table(TOOL))
        found.use("frameworks.pytorch_fsdp", why=f"{_VERSION}: FSDP2 of PyTorch")
        for key, why in table(TOOL)["rejected"].items():
            for one in found.keys_below(key):
                found.problem(one, why)
        _model(found)
        _batch(found)
        _sharding(found)
        _precision(found)
        found.read_table({"model": _MODEL})
        found.assume_table(table(TOOL)["defaults"], {"model": _MODEL}, _VERSION)
        return found.translation()


def _model(found: SettingCollector) -> None:
    """Read the sizes; the MLP is two thirds of 4 x dim, rounded up."""
    hidden = found.whole("model.dim") or 512
    width = int(2 * (4 * hidden) / 3)
    factor = found.number("model.ffn_dim_multiplier")
    if factor is not None:
        width = int(factor * width)
    multiple = found.whole("model.multiple_of") or 256
    why = f"{_VERSION}: two thirds of 4 x dim, a multiple of {multiple}"
    found.assume(f"{_MODEL}.ffn", digits(-(-width // multiple) * multiple), why)
    heads, size = found.whole("model.n_heads"), found.whole("model.head_dim")
    if heads is None and size is not None:
        why = f"{_VERSION}: n_heads is dim / head_dim"
        found.assume(f"{_MODEL}.heads", digits(hidden // size), why)
    elif heads is None:
        found.ask("model.heads", "the file has no `n_heads`", ["--set model.heads=16"])
    rows = found.whole("model.vocab_size") if found.value("model.vocab_size") != -1 else None
    if rows is not None:
        found.set(f"{_MODEL}.vocabulary", digits(rows), "model.vocab_size")
    else:
        answers = ["--set model.vocabulary=32000", "--set model.vocabulary=128256"]
        found.ask("model.vocabulary", "the vocabulary size is the size of the tokenizer", answers)


def _batch(found: SettingCollector) -> None:
    """Read the batch of a rank, and the number of its accumulation steps."""
    each, key = found.whole("data.batch_size"), "data.batch_size"
    parts = found.whole("grad_acc_steps") or 1
    if each is None:
        found.ask("training.micro_batch", f"no `{key}`", ["--set training.micro_batch=1"])
        answer = "--set 'training.global_batch=256 sequences'"
        found.ask("training.global_batch", f"no `{key}`", [answer])
    else:
        found.set("training.micro_batch", digits(each), key)
        found.set("training.global_batch", f"({each * parts} * layout.dp) sequences", key)
    if "data.seq_len" not in found:
        found.ask("training.sequence", "no `data.seq_len`", ["--set training.sequence=4096"])


def _sharding(found: SettingCollector) -> None:
    """Read FSDP, its shard group, and recomputation."""
    key, group = "distributed.fsdp_type", "distributed.dp_shard"
    copies = "distributed.dp_replicate"
    kind = found.word(key, table(TOOL)["strategies"])
    shard = found.whole(group) or 1
    if kind is not None:
        found.set("layout.zero", kind, key)
        if kind == "3" and shard > 1:
            found.set("sharding.shard", digits(shard), group)
    degree = found.whole("distributed.tp_size")
    if copies in found or group in found:
        count = (found.whole(copies) or 1) * shard * (degree or 1)
        found.set("cluster.devices", digits(count), copies if copies in found else group)
    if degree is not None and degree > 1:
        why = f"{_VERSION}: tensor parallelism shards norms (SequenceParallel)"
        found.assume("layout.sequence_parallel", "on", why)
    selective = "distributed.selective_activation_checkpointing"
    if found.switch(selective):
        why = "everything except matrix products and attention is recomputed, as one block"
        answers = [f"--set training.recompute={one}" for one in ("none", "selective", "full")]
        found.ask("training.recompute", why, answers, selective)
    else:
        found.assume("training.recompute", "none", f"{_VERSION}: activations are kept")
    if found.switch("distributed.compile"):
        found.set("kernels.mode", "compiled", "distributed.compile")


def _precision(found: SettingCollector) -> None:
    """Read the type of gathered weights; gradients are reduced in fp32."""
    key, narrow = "distributed.model_dtype", "distributed.float8_recipe"
    kind = str(found.value(key, "bf16"))
    if narrow in found:
        why = "matrix products in 8 bits, with a recipe that is not supported"
        found.ask("precision", why, ["--use catalog.precisions.fp8_torchao", *_ANSWERS], narrow)
    elif kind == "fp32":
        fast = "distributed.matmul_allow_tf32"
        is_fast = found.switch(fast)
        found.use(f"precisions.{'tf32' if is_fast else 'fp32'}", fast if is_fast else key)
    elif kind == "bf16":
        why = "" if key in found else f"{_VERSION}: model_dtype is bf16"
        found.use("precisions.bf16_fsdp", key if key in found else "", why)
    else:
        found.ask("precision", f"`{kind}` is not read", _ANSWERS, key)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of Meta Lingua."""
    return [Lingua()]
