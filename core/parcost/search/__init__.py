"""Searching layouts: what a choice changes is priced once, and only sums meet all choices.

A space is cut into structures (stages and chunks, which decide what an order looks like),
a flat axis of legal degrees, and choices that are independent of one another, such as the
ZeRO stage or what is recomputed. Every contribution of a plugin is asked for once for each
combination of the choices that it *reads*, which is observed and not declared; its numbers
become arrays with one dimension for each choice, of length one where it was not read. The
reducer adds them up as it adds up everything else.
"""
