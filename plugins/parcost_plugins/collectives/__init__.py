"""Algorithms of collective operations, one plugin each, under the alpha-beta model.

``seconds = rounds * alpha + bytes / B``: rounds one after another, and the bytes of the
busiest port in one direction, ports being full duplex. *n* is always the big buffer of
one rank: the output of an all-gather, the input of a reduce-scatter, all that one rank
sends in an all-to-all, the block that it keeps included. Additions cost nothing of
their own: on accelerators they are fused with the copy.

Every form is zero at one rank and has no bandwidth term at zero bytes, so that none
needs a branch. An algorithm that ignores the levels of the fabric says in its docstring
which link of the group it is priced on.
"""
