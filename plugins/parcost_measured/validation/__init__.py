"""Validation against published, measured runs: rows are evaluated as studies, and scored.

The modules, in the order in which a row meets them:

    records     an object of JSON as an object of a class, field by field
    rows        the schema of a file of runs, and what a row may not contradict
    hardware    the device and the fabric of the catalogue that a row means
    frameworks  which framework ran, and what it does where a row does not say
    stages      layers on the stages of a pipeline
    recipes     precision and recomputation
    study       a row as the text of a study, and what had to be assumed
    pricing     studies through the batch
    selection   which rows to take, and when to fail
    scores      errors, quantiles, baselines, ranking
    summary     groups of rows with their scores
    documents   the summary as JSON and CSV
    pages       the summary as tables, for terminals, Markdown and HTML
    collective_log  a log of nccl-tests beside its prediction
    picture     predicted over measured, in characters and in SVG
"""
