"""The web page of one study: its server, and its evaluation process.

Starlette and uvicorn serve it; only ``parcost serve`` imports this package.
"""
