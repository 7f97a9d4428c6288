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
    "lingua",
    "litgpt",
    "llm_foundry",
    "maxtext",
    "megatron",
    "mlperf",
    "nanotron",
    "nccl_tests",
    "nemo",
    "olmo",
    "olmo_core",
    "slurm",
    "topology",
    "torchtitan",
    "unread_tools",
)
#: Hooks of the modules; a job in a spec is evaluated without importing these modules.
OFFERS = ("importers", "settings_writers")
