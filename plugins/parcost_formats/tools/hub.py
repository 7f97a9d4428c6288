"""Models by their names on the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.tables import table

_EXAMPLE = "--use catalog.models.llama31_8b"
#: Kernels of attention other than FlashAttention 2: flash_attention_3, fa3, vllm-flash-attn3.
_FLASH = re.compile(r"(?:flash[-_]att(?:entio)?n[-_]?|\bfa)([34])\b")
#: transformers 5.24, modeling_utils.py: AttentionInterface; and names of the tools that use it.
_FUSED_KINDS = (
    *(
        "sdpa",
        "flex_attention",
        "flash_attention_2",
        "flash_attention",
        "flash_attn",
        "fa2",
        "auto",
    ),
    *("flash_attn_2", "flash", "xformers", "te", "sage", "paged|sdpa", "paged|flash_attention_2"),
)
FUSED = "FlashAttention 2 or a similar kernel is assumed; write `kernels.attention` for another one"


def find_entry(name: str) -> tuple[str, str]:
    """Return the catalogue entry of a model, and a reason if the match is an assumption.

    The entry is empty for an unknown model. The name of a folder, or of a copy by another user, is
    an assumption.

    >>> find_entry("meta-llama/Llama-3.1-8B-Instruct"), find_entry("someone/else")
    (('llama31_8b', ''), ('', ''))
    >>> find_entry("NousResearch/Meta-Llama-3-8B")
    ('llama3_8b', '')
    >>> find_entry("/data/models/Qwen3-8B/")
    ('qwen3_8b', '`Qwen3-8B` is the name of qwen/qwen3-8b')
    """
    names = table("hub")["names"]
    owner, _, model = name.lower().partition("/")
    found = _match(name.lower(), names)
    if found:
        return names[found], ""
    full = {one.rpartition("/")[2]: one for one in names}
    if owner in table("hub")["mirrors"] and (found := _match(model, full)):
        return names[full[found]], ""
    folder = _last_part(name)
    found = _match(folder.lower(), full) if folder else ""
    if found:
        return names[full[found]], f"`{folder}` is the name of {full[found]}"
    return "", ""


def read_hub_model(found: SettingCollector, key: str, value: str) -> str:
    """Set the model that *value* names, or ask for it; return its catalogue entry."""
    entry, why = find_entry(value)
    if not entry:
        answers = ["--use config.json", f"--use catalog.models.{closest_entry(value)}"]
        found.ask("model", f"`{value}` is not in parcost's table", answers, key)
        return ""
    found.use(f"models.{entry}", key, why)
    found.set("training.model", entry, key)
    return entry


def ask_for_model(found: SettingCollector, key: str) -> None:
    """Ask for the model of a file without the key *key*."""
    found.ask("model", f"the file has no `{key}`", [_EXAMPLE])


def _last_part(name: str) -> str:
    """Return the last part of a path, or the model name of a cache folder.

    ModelScope writes dots as ``___``.

    >>> _last_part("models--Qwen--Qwen2.5-14B/snapshots/cf98f3"), _last_part("a/Qwen2___5-3B/")
    ('Qwen2.5-14B', 'Qwen2.5-3B')
    """
    cached = re.search(r"models--[\w.-]+?--([\w.-]+)/snapshots/", name)
    if cached is not None:
        return cached[1]
    return name.rstrip("/").rpartition("/")[2].replace("___", ".")


def _match(name: str, names: Mapping[str, str]) -> str:
    """Return *name*, as it is or without a known ending, if it is in *names*; else ""."""
    endings = sorted(table("hub")["endings"], key=len, reverse=True)
    for ending in ("", *endings):
        plain = name.removesuffix(ending)
        if name.endswith(ending) and plain in names:
            return plain
    return ""


def closest_entry(name: str) -> str:
    """Return the entry whose name is the longest prefix of the last part of *name*.

    >>> closest_entry("someone/Mistral-7B-v0.3-tuned"), closest_entry("someone/else")
    ('mistral_7b_v0_3', 'llama31_8b')
    """
    names, plain = table("hub")["names"], _last_part(name).lower()
    parts = {one.rpartition("/")[2]: entry for one, entry in names.items()}
    begins = [one for one in parts if re.match(rf"{re.escape(one)}(?![a-z0-9.])", plain)]
    return str(parts[max(begins, key=len)]) if begins else "llama31_8b"


def vocabulary_of(name: str) -> int | None:
    """Return the vocabulary size of a model's tokenizer in tokens, None if unknown.

    >>> vocabulary_of("meta-llama/Meta-Llama-3.1-8B"), vocabulary_of("someone/else")
    (128256, None)
    """
    found = table("megatron_tools")["vocabularies"].get(name)
    entry = "" if found is not None else find_entry(name)[0]
    families = table("hub")["vocabularies"]
    fitting = (families[one] for one in families if entry.startswith(one))
    found = found if found is not None else next(fitting, None)
    return None if found is None else int(found)


def read_attention(
    found: SettingCollector, key: str, unfused: Collection[str] = ("eager",)
) -> None:
    """Read the attention of a model of transformers; *unfused* kinds write scores to memory."""
    kind = str(found.value(key, "")).lower()
    version = _FLASH.search(kind)
    if kind in unfused:
        found.set("training.flash_attention", "off", key)
    elif version is not None:
        found.set("kernels.attention", f"flash_{version[1]}", key)
    elif kind in _FUSED_KINDS or "/" in kind:  # a repository of kernels
        found.ignore(key, FUSED)
    elif kind:
        answers = ("--set kernels.attention=flash_2", "--set kernels.attention=flash_3")
        found.ask("kernels.attention", f"the attention `{kind[:40]}` is not known", answers, key)
