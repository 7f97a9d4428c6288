"""Inputs that a job needs besides a file of another tool, with options to copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parcost import Importer

NEEDS: Mapping[str, str] = {
    "cluster.device": "--use catalog.devices.h100_sxm",
    "cluster.fabric": "--use catalog.fabrics.hgx_h100",
    "cluster.devices": "--set cluster.devices=64",
    "training.model": "--use catalog.models.llama31_8b",
    "training.precision": "--use catalog.precisions.bf16",
    "training.sequence": "--set training.sequence=8192",
    "training.global_batch": "--set 'training.global_batch=512 sequences'",
}


class IncompleteJobImporter(Importer):
    """An importer of files that do not describe the machine."""

    needs = NEEDS

    def option_for(self, attribute: str, names: Collection[str]) -> str:
        """Return the option for an attribute; the fabric follows from the device of the job.

        If its device has none, or several have others, a placeholder stands for the name.
        """
        fabrics = [name.removeprefix("fabric.") for name in names if name.startswith("fabric.")]
        known = any(name.startswith("device.") for name in names)
        if attribute != "cluster.fabric" or not known:
            return super().option_for(attribute, names)
        return f"--use catalog.fabrics.{fabrics[0] if len(fabrics) == 1 else 'NAME'}"
