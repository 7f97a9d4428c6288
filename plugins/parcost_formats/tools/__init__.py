"""Files of other tools, read as specs: configurations, launch scripts, logs.

Each tool has a table of its names, ``tables/TOOL.toml``, made for stated versions. Keys of a file
that are in no table are listed, and the rest is read.
"""

PARTS = (
    "accelerate",
    "automodel",
    "deepspeed",
    "finetuning",
    "gpt_neox",
    "huggingface",
    "levanter",
    "litgpt",
    "llm_foundry",
    "maxtext",
    "measured_runs",
    "megatron",
    "mlperf",
    "nanotron",
    "nccl_tests",
    "nemo",
    "olmo_core",
    "slurm",
    "topology",
    "torchtitan",
    "unread_tools",
)
#: What the parts offer, and all that they do: a job in a spec is evaluated without importing them.
OFFERS = ("importers", "settings_writers")
