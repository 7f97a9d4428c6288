"""Calibration: constants fitted to runs, logs of collectives and tables of kernels.

The modules, in the order in which a measurement passes them:

    inputs         the input files and their contents
    tables         logs of collectives: text, JSON, columns
    constants      the constants that may be fitted, with bounds
    grids          predictions on a grid of constants, and interpolation
    runs           rows of runs as grids
    kernels        rows of products, attention and element-wise passes as grids
    host           rows of host measurements: issue times
    solve          the fit, its uncertainty, and cross-validation
    links          latency and bandwidth of a link, from a collective
    least_squares  the fit of a latency and a bandwidth
    rates          line rates of systems, for comparison
    spec           the catalogue file
    report         fitted constants and errors, as tables, JSON and Markdown
"""
