"""From a file to its reports, in one call.

    scenarios = parcost.load("specs/runs/llama3_405b.par")
    report = scenarios[0].evaluate()
    report.result.figure("mfu"), report.result.outcome.ledger

    sweep = scenarios[0].replace({"training.micro_batch": [1, 2, 4]}).evaluate()
"""
