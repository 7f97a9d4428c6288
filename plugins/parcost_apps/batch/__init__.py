"""Batches: the evaluation of many specs, with a reason for each that fails.

A batch never stops at a bad file. Each file gives its reports, or one ``Rejection`` with the
reason.

There are two ways to evaluate. The module ``scenarios`` yields live objects, for commands that
inspect a study. ``parcost eval`` turns a file into entries of plain data
(:mod:`~parcost.contract.entries`). Entries of this process, another process, another machine or an
earlier run are equal. So every format writes the same bytes. The modules, in the order in which
they process a file:

    files         the files of the batch
    fingerprints  hashes of everything that a result depends on
    cache         results of earlier runs
    run           the order of work: windows, chunks, failed workers
    executors     where work is done
    worker        from a file to its entries
    entries       from live reports to entries
    formats       from entries to an exporter, with messages and progress
    pictures      the same for pictures of searches and timelines
"""
