"""The meaning of the language's functions and kinds of provenance."""

#: How each function is called, and what it returns: for editors.
USAGES = {
    "min": ("min(a, b, ...)", "the smallest of several numbers"),
    "max": ("max(a, b, ...)", "the largest of several numbers"),
    "ceil": ("ceil(x)", "a plain number, rounded up"),
    "floor": ("floor(x)", "a plain number, rounded down"),
    "log2": ("log2(x)", "the logarithm of a plain number to base 2"),
    "sqrt": ("sqrt(x)", "the square root of a plain number"),
    "bytes": ("bytes(x)", "a size or a rate in bits, converted to bytes"),
    "range": (
        "range(first, last, step)",
        "a list of numbers from first to last, including last: a sweep",
    ),
    "divisors": ("divisors(n)", "the divisors of a whole number: a sweep"),
    "curve": ("curve([size, time], ...)", "measured points in place of a bandwidth"),
}

#: Kinds of provenance that the catalogue has; a spec may have others.
PROVENANCES = {
    "measured": "measured; the source is the device and the software",
    "published": "from a paper or the source code of a library",
    "vendor": "from a data sheet of the vendor",
    "fitted": "fitted; the source is the measurements",
    "assumed": "assumed, without a source; the text says why it is plausible",
}
