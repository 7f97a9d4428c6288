"""Search over layouts: each term is computed once per combination of the choices that it reads.

A space has three parts: structures, degrees, and independent choices. Structures are stages and
chunks, which determine the order of passes. Degrees are numbers on array axes. Choices are, for
example, the ZeRO stage or the recomputation. A hook is called once for each combination of the
choices that it *reads*; reads are recorded automatically. Its numbers become arrays with one
dimension for each choice, of size 1 if the choice was not read. The reducer adds up these arrays.
"""
