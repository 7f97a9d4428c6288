"""Jobs that parcost cannot express: rejected by name, with the missing feature."""

from __future__ import annotations

import re
from collections.abc import Collection

from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.megatron.defaults import ToolOptions
from parcost_formats.tools.needs import NEEDS
from parcost_formats.tools.tables import table

_TABLE = table("megatron")


def reject(options: ToolOptions, entry: Option | None = None) -> None:
    """Report unsupported features of a job; *entry* is its training script."""
    if entry is not None:
        words = re.split(r"[^a-z0-9]+", entry.text.lower())
        if "sft" in re.split(r"[^a-z0-9]+", entry.text.lower().rpartition("/")[2]):
            words = [one for one in words if one != "rl"]  # a folder of both
        why = next((_TABLE["entries"][one] for one in words if one in _TABLE["entries"]), "")
        if why:
            options.problem(entry, why)
    for name, why in _TABLE["rejected"].items():
        option = options.get(name)
        if option is not None and option.text not in ("false", "None", "null", "0", "0.0"):
            options.problem(option, why)
    _spec(options)
    option = options.get("optimizer")
    if option is not None and option.text in _TABLE["optimizers"]:
        options.problem(option, _TABLE["optimizers"][option.text])


def reject_other_tool(draft: Draft, options: Collection[str], entry: Option | None) -> None:
    """Reject a script whose *options* have neither a model nor a parallel degree of Megatron-LM.

    Scripts of other tools have flags of the same names, such as ``--micro-batch-size``.
    """
    own = _TABLE["own_scripts"]
    if entry is None or re.search(own["pattern"], entry.key) or set(own["marks"]) & set(options):
        return
    needs = " ".join(NEEDS[one] for one in NEEDS if one != "training.model")
    draft.problem(
        entry,
        "it is not a script of Megatron-LM: it has flags of the same names, but neither "
        "--num-layers nor a degree of parallelism",
        f"evaluate the `config.json` of its model, and state the rest: `parcost eval config.json "
        f"{needs}`",
    )


def _spec(options: ToolOptions) -> None:
    """Reject ``--spec`` with layers other than Megatron-LM's."""
    option = options.get("spec")
    if option is None or option.text in ("None", "null"):
        return
    shown = " ".join(option.texts)
    rejected = _TABLE["specs"]["rejected"]
    why = next((rejected[word] for word in rejected if word in shown), "")
    if why:
        options.problem(option, why)
    elif option.text in _TABLE["specs"]["plain"]:
        options.ignore(option, "it selects the default layers of Megatron-LM")
    else:
        options.problem(
            option,
            f"`{shown[:60]}` selects layers of another module, which is not supported",
            "use a model of the catalogue, or write its `model` block by hand",
        )
