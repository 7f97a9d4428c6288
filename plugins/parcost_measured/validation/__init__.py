"""Validation against published, measured runs: rows are evaluated as studies, and scored.

The modules, in the order in which a row passes them:

    records     a JSON object as an object of a class, field by field
    rows        the schema of a file of runs, and the consistency rules of a row
    hardware    the device and the fabric of the catalogue for a row
    frameworks  the framework of a run, and its defaults
    stages      layers on the stages of a pipeline
    recipes     precision and recomputation
    study       a row as the text of a study, with assumptions
    evaluation  batch evaluation of studies
    selection   conditions on rows, and limits on errors
    scores      errors, quantiles, baselines, ranking
    summary     groups of rows with their scores
    documents   the summary as JSON and CSV
    pages       the summary as tables, for terminals, Markdown and HTML
    collective_log  a log of nccl-tests compared with its prediction
    picture     predicted over measured, as text and as a chart
"""
