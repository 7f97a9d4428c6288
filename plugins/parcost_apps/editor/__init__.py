"""Answers to an editor about the spec being edited; ``parcost lsp`` serves them.

    texts -> analysis -> cursor -> hover, completion, definitions, rename, symbols
                      -> studies (a thread) -> lenses, diagnostics of rules

All but ``server`` are functions over texts and bound specs that return plain records; only
``server`` imports the library of the protocol.
"""
