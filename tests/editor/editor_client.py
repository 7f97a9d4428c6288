"""An editor for tests: the client of pygls, which speaks to `parcost lsp` over stdin and stdout."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")

START = "import sys; from parcost_apps.cli import main; sys.exit(main())"
PATIENCE_SECONDS = 60.0
CAPABILITIES = lsp.ClientCapabilities(
    workspace=lsp.WorkspaceClientCapabilities(
        code_lens=lsp.CodeLensWorkspaceClientCapabilities(refresh_support=True)
    ),
    text_document=lsp.TextDocumentClientCapabilities(
        completion=lsp.CompletionClientCapabilities(
            completion_item=lsp.ClientCompletionItemOptions(snippet_support=True)
        )
    ),
)


class Editor:
    """One running server, and what it has published; every call waits for its answer."""

    def __init__(
        self, folder: Path, *arguments: str, start: str = START, encoding: str = "utf-16"
    ) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("tests", "1")
        self.published: dict[str, lsp.PublishDiagnosticsParams] = {}
        self.counts: Counter[tuple[str, int | None]] = Counter()
        self.messages: list[str] = []
        self.refreshes = 0
        self.versions: dict[str, int] = {}
        self._add_features()
        self.run(self.client.start_io(sys.executable, "-c", start, "lsp", *arguments))
        self.errors = self.loop.create_task(self._read_errors())
        self.initialized = self.run(
            self.client.initialize_async(
                lsp.InitializeParams(
                    capabilities=evolve(
                        CAPABILITIES,
                        general=lsp.GeneralClientCapabilities(
                            position_encodings=[lsp.PositionEncodingKind(encoding)]
                        ),
                    ),
                    process_id=None,
                    root_uri=folder.as_uri(),
                    workspace_folders=[lsp.WorkspaceFolder(folder.as_uri(), "tests")],
                )
            )
        )
        self.client.initialized(lsp.InitializedParams())

    async def _read_errors(self) -> bytes:
        server = self.client._server
        assert server is not None
        assert server.stderr is not None
        return await server.stderr.read()

    def _add_features(self) -> None:
        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: lsp.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params
            self.counts[params.uri, params.version] += 1

        @self.client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)
        def refresh(_: Any) -> None:
            self.refreshes += 1

        @self.client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def show(params: lsp.ShowMessageParams) -> None:
            self.messages.append(params.message)

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return what comes of *awaitable*."""
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, PATIENCE_SECONDS))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let the server answer until *condition* holds."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110  conditions are of several kinds
                await asyncio.sleep(0.002)

        self.run(wait())

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> str:
        """Open a document that need not be a file, and wait for all there is to say of it."""
        uri = self.uri(name)
        self.versions[uri] = 1
        item = lsp.TextDocumentItem(uri, "parcost", 1, text)
        self.counts = Counter({key: n for key, n in self.counts.items() if key[0] != uri})
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        self.wait_for_diagnostics(uri)
        return uri

    def change(self, uri: str, *changes: Any, wait: bool = True) -> None:
        """Change a document: texts, or pairs of a range and a text."""
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        made = [
            lsp.TextDocumentContentChangeWholeDocument(one)
            if isinstance(one, str)
            else lsp.TextDocumentContentChangePartial(one[0], one[1])
            for one in changes
        ]
        params = lsp.DidChangeTextDocumentParams(document, made)
        self.client.text_document_did_change(params)
        if wait:
            self.wait_for_diagnostics(uri)

    def wait_for_diagnostics(self, uri: str) -> None:
        """Wait until what the binder finds has come, and then what rules and studies give."""
        self.wait_for(lambda: self.counts[uri, self.versions[uri]] > 1)

    def close(self, uri: str) -> None:
        document = lsp.TextDocumentIdentifier(uri)
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(document))

    def problems(self, uri: str) -> list[tuple[str, str]]:
        """Return the id and the first line of every diagnostic of a document."""
        return [(str(d.code), d.message.splitlines()[0]) for d in self.published[uri].diagnostics]

    def request(self, name: str, uri: str, *rest: Any) -> Any:
        """Return the answer to a request about a document: ``request("hover", uri, (3, 4))``."""
        ask = getattr(self.client, f"text_document_{name}_async")
        params = {
            "hover": lsp.HoverParams,
            "definition": lsp.DefinitionParams,
            "completion": lsp.CompletionParams,
            "references": lsp.ReferenceParams,
            "rename": lsp.RenameParams,
            "prepare_rename": lsp.PrepareRenameParams,
            "code_lens": lsp.CodeLensParams,
            "document_symbol": lsp.DocumentSymbolParams,
            "folding_range": lsp.FoldingRangeParams,
            "formatting": lsp.DocumentFormattingParams,
            "code_action": lsp.CodeActionParams,
            "inlay_hint": lsp.InlayHintParams,
        }[name]
        document = lsp.TextDocumentIdentifier(uri)
        made: dict[str, Any] = {"text_document": document}
        if rest and isinstance(rest[0], tuple):
            made["position"] = lsp.Position(*rest[0])
        if name == "rename":
            made["new_name"] = rest[1]
        if name == "references":
            made["context"] = lsp.ReferenceContext(include_declaration=True)
        if name == "formatting":
            made["options"] = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
        if name == "inlay_hint":
            made["range"] = rest[0]
        if name == "code_action":
            made |= {"range": rest[0], "context": lsp.CodeActionContext([])}
        return self.run(ask(params(**made)))

    def stop(self) -> int:
        """End the server; return its exit code. What it wrote to stderr is a message too."""
        self.run(self.client.shutdown_async(None))
        self.client.exit(None)
        server = self.client._server
        assert server is not None
        code = self.run(server.wait())
        lines = self.run(self.errors).decode().splitlines()
        # a request that was under way when the server ended
        self.messages += [line for line in lines if line and "No more requests" not in line]
        self.run(self.client.stop())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        return code
