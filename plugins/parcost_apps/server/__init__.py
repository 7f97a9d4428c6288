"""The live page: a server of one page for one study, and the process that evaluates it.

Starlette and uvicorn serve it; only ``parcost serve`` imports this package.
"""
