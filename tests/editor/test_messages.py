"""Messages that no editor should send: each gets an answer, or ends the server with a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("pygls")


def message(**content: Any) -> bytes:
    text = json.dumps({"jsonrpc": "2.0", **content}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(text), text)


START = message(
    id=1, method="initialize", params={"capabilities": {}, "processId": None, "rootUri": None}
)
END = message(id=9, method="shutdown", params=None) + message(method="exit")


def served(*messages: bytes) -> subprocess.CompletedProcess[bytes]:
    """Return what the server answers, and how it ends."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "parcost", "lsp"],
        input=START + b"".join(messages),
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("parameters", [[1], {"textDocument": 5, "position": "x"}, {}, 7])
def test_a_request_whose_parameters_do_not_fit_is_answered(parameters: Any) -> None:
    request = message(id=2, method="textDocument/hover", params=parameters)
    done = served(request, END)
    assert done.returncode == 0
    assert b'"id": 2' in done.stdout
    assert b"the parameters of `textDocument/hover` are invalid" in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("size", [b"99999999999999999999", b"9" * 5000, b"67108865"])
def test_a_message_over_the_limit_ends_the_server_with_a_reason(size: bytes) -> None:
    done = served(b"Content-Length: %s\r\n\r\n{}" % size)
    assert done.returncode == 2
    assert b"is larger than the 67,108,864 bytes allowed" in b" ".join(done.stderr.split())
    assert b"Traceback" not in done.stderr
