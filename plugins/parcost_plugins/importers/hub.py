"""Models by their names on the Hugging Face Hub."""

from __future__ import annotations

from parcost_plugins.importers.tables import table


def catalogue_entry(name: str) -> str | None:
    """Return the entry of the catalogue that has the sizes of a model, if there is one.

    >>> catalogue_entry("meta-llama/Llama-3.1-8B-Instruct"), catalogue_entry("someone/else")
    ('llama31_8b', None)
    >>> catalogue_entry("NousResearch/Meta-Llama-3-8B")
    'llama3_8b'
    """
    names, plain = table("hub")["names"], name.lower()
    owner, _, model = plain.partition("/")
    if owner in table("hub")["mirrors"]:
        names = {one.partition("/")[2]: entry for one, entry in names.items()}
        plain = model
    endings = sorted(table("hub")["endings"], key=len, reverse=True)
    for ending in ("", *endings):
        found = names.get(plain.removesuffix(ending)) if plain.endswith(ending) else None
        if found is not None:
            return str(found)
    return None
