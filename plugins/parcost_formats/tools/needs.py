"""Inputs that a job needs besides a file of another tool, with options to copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parcost import Importer

#: The fabric of the catalogue whose nodes usually hold each device.
FABRICS: Mapping[str, str] = {
    "gb300": "gb300_nvl72",
    "gb200": "nvl72",
    "gh200_144g": "gh200_nvl32",
    "gh200": "gh200_nvl32",
    "b300": "hgx_b300",
    "b200": "hgx_b200",
    "b100": "hgx_b200",
    "h200_nvl": "pcie5_roce_400g",
    "h200_sxm": "hgx_h200",
    "h100_nvl": "pcie5_roce_400g",
    "h100_pcie": "pcie5_roce_400g",
    "h100_sxm_96g": "hgx_h100",
    "h100_sxm": "hgx_h100",
    "h800_sxm": "hgx_h800",
    "h20": "hgx_h100",
    "a800_sxm_80g": "dgx_a100",
    "a100_pcie_40g": "pcie4_roce_200g",
    "a100_pcie_80g": "pcie4_roce_200g",
    "a100_sxm_40g": "dgx_a100",
    "a100_sxm_80g": "dgx_a100",
    "v100_pcie_16g": "pcie3_roce_100g",
    "v100_pcie_32g": "pcie3_roce_100g",
    "v100_sxm2_16g": "dgx_v100",
    "v100_sxm2_32g": "dgx_v100",
    "l40s": "pcie4_roce_200g",
    "l40": "pcie4_roce_200g",
    "l4": "pcie4_roce_200g",
    "a40": "pcie4_roce_200g",
    "a10": "pcie4_roce_200g",
    "t4": "pcie3_roce_100g",
    "rtx_6000_ada": "pcie4_roce_200g",
    "rtx_a6000": "pcie4_roce_200g",
    "rtx_5090": "pcie5_roce_400g",
    "rtx_4090": "pcie4_roce_200g",
    "rtx_3090": "pcie4_roce_200g",
    "mi355x": "mi300x_node",
    "mi350x": "mi300x_node",
    "mi325x": "mi300x_node",
    "mi300a": "mi300x_node",
    "mi300x": "mi300x_node",
    "mi250x_gcd": "frontier",
    "mi250_gcd": "frontier",
    "mi210": "pcie4_roce_200g",
    "mi100": "pcie4_roce_200g",
    "gaudi3": "gaudi3_node",
    "gaudi2": "gaudi2_node",
    "tpu_v6e": "tpu_v6e_pod",
    "tpu_v5p": "tpu_v5p_pod",
    "tpu_v5e": "tpu_v5e_pod",
    "tpu_v4": "tpu_v4_pod",
}

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
    """An importer of files that say nothing of the machine."""

    needs = NEEDS

    def option_for(self, attribute: str, names: Collection[str]) -> str:
        """Return the option for an attribute; the fabric is that of the nodes of a known device."""
        fabrics = {FABRICS[name] for name in names if name in FABRICS}
        if attribute == "cluster.fabric" and len(fabrics) == 1:
            return f"--use catalog.fabrics.{fabrics.pop()}"
        return super().option_for(attribute, names)
