"""From measurements to constants: runs, logs of collectives and tables of kernels are fitted.

The modules, in the order in which a measurement meets them:

    inputs         which files there are, and what each holds
    tables         logs of collectives: text, JSON, columns
    constants      what may be fitted, with bounds
    grids          predictions over values of constants, and between them
    runs           rows of runs as grids
    kernels        rows of products, attention and element-wise passes as grids
    host           rows of what a host issues
    solve          the fit, its uncertainty, rows left out
    links          what a collective says of the link below
    least_squares  a start-up time and a bandwidth
    rates          line rates of systems, to compare with
    spec           the catalogue file
    report         what was fitted, as tables, JSON and Markdown
"""
