"""The live page: a server of one page for one study, and its evaluation process.

Starlette and uvicorn serve it; only ``parcost serve`` imports this package.
"""
