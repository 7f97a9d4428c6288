"""What an editor asks of a spec while it is typed: `parcost lsp` answers with these modules.

    texts -> analysis -> cursor -> hover, completion, definitions, rename, symbols
                      -> studies (a thread) -> lenses, diagnostics of rules

All but ``server`` are functions over texts and bound specs that return plain records; only
``server`` imports the library of the protocol.
"""
