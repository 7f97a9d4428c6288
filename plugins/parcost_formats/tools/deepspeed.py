"""The JSON configuration of DeepSpeed: batch, ZeRO, precision, offload, recomputation.

It has no model, no sequence and no devices. Two of the three batch sizes determine the third. A
value ``auto`` stands for an argument of the trainer, and is listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from parcost import Importer, ImportFile, SettingsWriter, Translation, hookimpl
from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.deepspeed_keys import FRAMEWORK, DeepSpeedKeys
from parcost_formats.tools.deepspeed_writer import DeepSpeedWriter
from parcost_formats.tools.job_importer import JobImporter
from parcost_formats.tools.json_text import JsonEntry, read_object
from parcost_formats.tools.tables import table

TOOL = "deepspeed"
_MARKS = ('"zero_optimization"', '"train_batch_size"', '"train_micro_batch_size_per_gpu"')


class DeepSpeed(JobImporter):
    """Configurations of DeepSpeed."""

    name = TOOL

    def recognizes(self, name: str, text: str) -> bool:
        """Return whether the text is JSON with DeepSpeed's keys of the batch or of ZeRO."""
        return name.endswith(".json") and any(mark in text for mark in _MARKS)

    def read_file(self, file: ImportFile) -> Translation:
        """Return the settings of a configuration."""
        entries = read_object(file.text)
        found = SettingCollector(entries, table(TOOL))
        _compare_aliases(found, entries)
        found.use(FRAMEWORK)
        keys = DeepSpeedKeys(found)
        keys.batch()
        keys.zero()
        keys.precision()
        keys.checkpoints()
        keys.optimizer()
        keys.tensor_parallel()
        keys.experts()
        found.read_table()
        return found.translation()


def _compare_aliases(found: SettingCollector, entries: Mapping[str, JsonEntry]) -> None:
    """Report two names of one key with different values."""
    for one, other in table(TOOL)["aliases"].items():
        if one in entries and other in entries and entries[one].value != entries[other].value:
            for key, second in ((one, other), (other, one)):
                found.problem(key, f"`{second}` is the same key with another value")


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of configurations of DeepSpeed."""
    return [DeepSpeed()]


@hookimpl
def settings_writers() -> list[SettingsWriter]:
    """Return the writer of configurations of DeepSpeed."""
    return [DeepSpeedWriter()]
