"""Many specs: what can be evaluated is, and what cannot is kept.

A batch never stops at a bad file. Each file gives its reports, or one
``Rejection`` that says why it has none.

There are two ways through. The module ``scenarios`` yields live objects, for commands that
look into a study. ``parcost eval`` takes the other: a file becomes entries of plain
data (:mod:`~parcost.contract.entries`), so that it does not matter whether they were made
here, in another process, on another machine or by an earlier run, and every format writes
the same bytes. The modules, in the order in which a file meets them:

    files         the files of the batch
    shards        the files of one machine
    fingerprints  what an answer depends on
    cache         answers of earlier runs
    run           the order of work: windows, chunks, workers that die
    executors     where work is done
    worker        from a file to its entries
    entries       from live reports to entries
"""
