"""The language server: it translates the protocol, and schedules analyses and evaluations.

    serve(make_session, reader, writer)

Diagnostics of the parser and the binder are published at once after a change. Rules and evaluations
run in a thread after a pause; their results are dropped if the text has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from lsprotocol import types as lsp
from pygls import uris
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

from parcost.binding.sources import SUFFIX
from parcost.engine.session import Session
from parcost.language.diagnostics import Diagnostic, Severity
from parcost.language.errors import SpecError
from parcost.language.escapes import escape_line
from parcost.language.format import format_text
from parcost.language.text import Span
from parcost.system.files import project_root
from parcost.version import __version__
from parcost_apps.editor import positions
from parcost_apps.editor.actions import quick_fixes
from parcost_apps.editor.analysis import Analysis
from parcost_apps.editor.completion import Proposal, propose
from parcost_apps.editor.definitions import definition, path_of, references
from parcost_apps.editor.documents import Documents, DocumentState, claims_of
from parcost_apps.editor.evaluations import EvaluationJob, Evaluator, FileEvaluation
from parcost_apps.editor.hover import hover
from parcost_apps.editor.inlay_hints import find_hints
from parcost_apps.editor.lenses import lenses
from parcost_apps.editor.positions import Lines
from parcost_apps.editor.problems import place_in, text_of
from parcost_apps.editor.rename import RenameError, name_at, rename
from parcost_apps.editor.streams import MessageStream, ReaderThread, copy
from parcost_apps.editor.symbols import OutlineItem, folds, outline

PAUSE_SECONDS = 0.2  # without a change, before rules and studies are evaluated
LIMIT_SECONDS = 20.0  # of one evaluation
_MOST_STUCK = 3  # threads that have passed the limit and run on
_LONGEST_WAIT = 1.0  # for further changes of a file that takes long to analyze

_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
}
_SYMBOLS = {
    "block": lsp.SymbolKind.Class,
    "let": lsp.SymbolKind.Variable,
    "attribute": lsp.SymbolKind.Property,
    "claim": lsp.SymbolKind.Boolean,
}
_ITEMS = {
    "block": lsp.CompletionItemKind.Class,
    "attribute": lsp.CompletionItemKind.Property,
    "choice": lsp.CompletionItemKind.EnumMember,
    "unit": lsp.CompletionItemKind.Unit,
    "function": lsp.CompletionItemKind.Function,
    "keyword": lsp.CompletionItemKind.Keyword,
    "entry": lsp.CompletionItemKind.Module,
    "file": lsp.CompletionItemKind.File,
    "folder": lsp.CompletionItemKind.Folder,
    "let": lsp.CompletionItemKind.Variable,
    "figure": lsp.CompletionItemKind.Value,
}


class _Protocol(LanguageServerProtocol):
    """The protocol, with the texts of documents kept in :class:`OpenTexts`."""

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> Any:
        """Pass a change of a document to the server."""
        handler = self.fm.features.get(lsp.TEXT_DOCUMENT_DID_CHANGE)
        if handler is not None:
            yield handler, (params,), None

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Parse a message; reject a request whose parameters are invalid."""
        try:
            return super().structure_message(data)
        except JsonRpcException:
            number, method = data.get("id"), data.get("method")
            if isinstance(number, int | str) and isinstance(method, str):
                error = JsonRpcInvalidParams(f"the parameters of `{method[:80]}` are invalid")
                self._send_response(number, None, error.to_response_error())
            raise


class Server(LanguageServer):
    """The server, its documents and its timers."""

    def __init__(self, make_session: Callable[[], Session]) -> None:
        super().__init__("parcost", __version__, protocol_cls=_Protocol)
        self._make_session = make_session
        self.documents = Documents(make_session())
        self._uris: dict[str, str] = {}  # of open documents, by path
        self._evaluator = Evaluator(make_session)
        self._stuck = 0
        self._analysis: asyncio.TimerHandle | None = None
        self._pauses: dict[str, asyncio.TimerHandle] = {}
        self._seconds = self._ended = 0.0  # that the last analysis took, and when it ended
        self._reader = ReaderThread()
        self.was_shut_down = False
        self.exit_code = 0

    @property
    def thread_pool(self) -> Any:
        """The thread that reads requests; handlers run in the event loop, not in threads."""
        return self._reader

    # --- documents ------------------------------------------------------------------------

    def path(self, uri: str) -> str:
        """Return the path of a document; one that was never saved lies in the first folder."""
        found = uris.to_fs_path(uri)
        if found:
            return found
        name = uri.rpartition("/")[2].rpartition(":")[2] or "untitled"
        home = next(iter(self.folders()), str(Path.cwd()))
        return str(Path(home, name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"))

    def uri(self, path: str) -> str:
        """Return the address of a file, as the editor spelled it if it is open."""
        return self._uris.get(path) or uris.from_fs_path(path) or path

    def folders(self) -> Sequence[str]:
        """Return the folders that the editor has open."""
        found = [uris.to_fs_path(uri) for uri in self.workspace.folders]
        return [folder for folder in found if folder]

    def open(self, document: lsp.TextDocumentItem) -> None:
        """Open a document."""
        path = self.path(document.uri)
        self._uris[path] = document.uri
        encoding = self.workspace.position_encoding or "utf-16"
        self.documents.texts.encoding = str(getattr(encoding, "value", encoding))
        self.documents.texts.open(path, document.text, document.version)
        self._analyze_later(path)

    def change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        """Apply changes of a document."""
        path = self.path(params.text_document.uri)
        made = [
            (_range(c.range), c.text)
            if isinstance(c, lsp.TextDocumentContentChangePartial)
            else (None, c.text)
            for c in params.content_changes
        ]
        try:
            self.documents.texts.change(path, made, params.text_document.version)
        except KeyError:
            return  # it was never opened
        self._analyze_later(path)

    def close(self, uri: str) -> None:
        """Close a document, and clear its diagnostics."""
        path = self.path(uri)
        self.documents.texts.close(path)
        self.documents.remove(path)
        self._uris.pop(path, None)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
        self._analyze_later(path)

    def mark_change(self, uri: str) -> None:
        """Mark a file, which need not be open, as changed on disk."""
        self._analyze_later(self.path(uri))

    def state(self, uri: str) -> DocumentState | None:
        """Return the state of an open document."""
        return self.documents.state(self.path(uri))

    # --- what is done when ----------------------------------------------------------------

    def _analyze_later(self, path: str) -> None:
        """Analyze a changed file now, or after a pause if another analysis was just made."""
        self.documents.mark_stale(path)
        if self._analysis is not None:
            self._analysis.cancel()
        wait = min(self._seconds, _LONGEST_WAIT)
        delay = 0.0 if perf_counter() - self._ended > wait else wait
        self._analysis = asyncio.get_running_loop().call_later(delay, self._analyze)

    def _analyze(self) -> None:
        began = perf_counter()
        for text in list(self.documents.texts_to_publish()):
            state = self.documents.state(text.path)
            if state is not None:
                self._publish(text.path, state)
                self._evaluate_later(text.path)
        self._ended = perf_counter()
        self._seconds = self._ended - began

    def _evaluate_later(self, path: str) -> None:
        if path in self._pauses:
            self._pauses.pop(path).cancel()
        loop = asyncio.get_running_loop()
        self._pauses[path] = loop.call_later(PAUSE_SECONDS, self._evaluate, path)

    def _evaluate(self, path: str) -> None:
        self._pauses.pop(path, None)
        loop = asyncio.get_running_loop()

        def done(job: EvaluationJob, found: FileEvaluation | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._store_result, job, found)

        job = self.documents.job(path, done)
        if job is not None:
            self._evaluator.submit(job)
            loop.call_later(LIMIT_SECONDS, self._give_up, job)

    def _store_result(self, job: EvaluationJob, found: FileEvaluation | None) -> None:
        state = self.documents.store_result(job, found)
        if state is not None:
            self._publish(job.path, state)
            self._refresh()

    def _give_up(self, job: EvaluationJob) -> None:
        """Stop a job that takes too long; a thread that does not stop is replaced."""
        state = self.documents.state(job.path)
        if job.stop.is_set() or state is None or state.job is not job or state.current:
            return
        job.stop.set()
        state.late = True
        if self._stuck < _MOST_STUCK:
            self._stuck += 1
            self._evaluator = Evaluator(self._make_session)
        self._refresh()

    def _refresh(self) -> None:
        """Ask the editor to redraw lenses, if it supports that."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.code_lens and workspace.code_lens.refresh_support:
            self.protocol.send_request(lsp.WORKSPACE_CODE_LENS_REFRESH)

    def _publish(self, path: str, state: DocumentState) -> None:
        text = self.documents.texts.get(path)
        if text is None:
            return
        found = [self.diagnostic(path, state.analysis, d) for d in state.diagnostics]
        params = lsp.PublishDiagnosticsParams(self.uri(path), found, text.version)
        self.text_document_publish_diagnostics(params)

    # --- translation ----------------------------------------------------------------------

    def diagnostic(self, path: str, analysis: Analysis, diagnostic: Diagnostic) -> lsp.Diagnostic:
        """Return a diagnostic as an LSP object."""
        also = [
            lsp.DiagnosticRelatedInformation(place, escape_line(label.text or diagnostic.message))
            for label in diagnostic.labels
            if (place := self.location(label.span)) is not None
        ]
        first = diagnostic.labels[0].span.source.name if diagnostic.labels else path
        return lsp.Diagnostic(
            range=self.range(place_in(analysis, diagnostic)),
            message=text_of(diagnostic),
            severity=_SEVERITIES[diagnostic.severity],
            code=diagnostic.id,
            source="parcost",
            related_information=also[int(first == analysis.source.name) :] or None,
        )

    def range(self, span: Span) -> lsp.Range:
        """Return a span as an LSP range in its document or file."""
        text = self.documents.texts.get(span.source.name)
        if text is not None and text.text == span.source.text:
            found = text.range(span.start, span.end)
        else:
            lines = Lines(span.source.text, self.documents.texts.encoding)
            found = lines.range(span.start, span.end)
        return lsp.Range(lsp.Position(*found.start), lsp.Position(*found.end))

    def location(self, span: Span) -> lsp.Location | None:
        """Return a span as an LSP location, None if it has no file."""
        path = path_of(self.documents.session, span.source.name)
        if path is None:
            return None
        return lsp.Location(self.uri(path), self.range(span))

    def offset(self, uri: str, position: lsp.Position) -> int:
        """Return the offset in the text of the spec that corresponds to an LSP position."""
        text = self.documents.texts.get(self.path(uri))
        if text is None:
            return 0
        found = text.lines.offset(positions.Position(position.line, position.character))
        return max(found - text.shift, 0)

    def item(self, proposal: Proposal, state: DocumentState, offset: int) -> lsp.CompletionItem:
        """Return a proposal as an LSP completion item."""
        source = state.analysis.source
        span = Span(source, proposal.start, offset)
        snippet = proposal.snippet and self._takes_snippets()
        plain = proposal.text.replace("$0", "").replace("$1", "NAME")
        also = []
        if proposal.also is not None:
            at, text = proposal.also
            also = [lsp.TextEdit(self.range(Span(source, at, at)), text)]
        doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, proposal.doc) if proposal.doc else None
        return lsp.CompletionItem(
            label=proposal.label,
            kind=_ITEMS.get(proposal.kind, lsp.CompletionItemKind.Text),
            detail=proposal.detail or None,
            documentation=doc,
            sort_text=f"{proposal.rank}{proposal.label}",
            filter_text=proposal.label,
            insert_text_format=lsp.InsertTextFormat.Snippet if snippet else None,
            text_edit=lsp.TextEdit(self.range(span), proposal.text if snippet else plain),
            additional_text_edits=also or None,
        )

    def symbol(self, item: OutlineItem) -> lsp.DocumentSymbol:
        """Return an item of the outline as an LSP symbol."""
        return lsp.DocumentSymbol(
            name=item.name or "?",
            kind=_SYMBOLS[item.kind],
            range=self.range(item.span),
            selection_range=self.range(item.name_span),
            children=[self.symbol(child) for child in item.children],
        )

    def roots(self, path: str) -> Sequence[str]:
        """Return the folders in which files may import the file at *path*."""
        try:
            return [*self.folders(), str(project_root(Path(path)))]
        except SpecError:  # the path leads nowhere
            return self.folders()

    def _takes_snippets(self) -> bool:
        document = self.client_capabilities.text_document
        item = document.completion.completion_item if document and document.completion else None
        return bool(item and item.snippet_support)


def _range(found: lsp.Range) -> positions.TextRange:
    start, end = found.start, found.end
    return positions.TextRange(
        positions.Position(start.line, start.character),
        positions.Position(end.line, end.character),
    )


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a log record is an unexpected error; rejected requests are shown by the
    editor.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_message = str(record.msg).startswith("Unable to deserialize message")
    return not (is_message or isinstance(error, JsonRpcInvalidParams | JsonRpcInternalError))


def make_server(make_session: Callable[[], Session]) -> Server:
    """Return a server with a handler for each request."""
    for name in ("pygls.protocol.json_rpc", "pygls.feature_manager", "pygls.server"):
        logging.getLogger(name).addFilter(_is_fault)
    server = Server(make_session)
    _add_documents(server)
    _add_annotations(server)
    _add_navigation(server)
    _add_text_edits(server)
    _add_rename(server)
    _add_quick_fixes(server)
    return server


def _add_documents(server: Server) -> None:
    @server.feature(lsp.SHUTDOWN)
    def shutdown(_: None) -> None:
        server.was_shut_down = True

    @server.feature(lsp.EXIT)
    def exit_server(_: None) -> None:
        server.exit_code = int(not server.was_shut_down)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.change(params)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_files(params: lsp.DidChangeWatchedFilesParams) -> None:
        for change in params.changes:
            server.mark_change(change.uri)


def _add_annotations(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def code_lens(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        state = server.state(params.text_document.uri)
        return [
            lsp.CodeLens(server.range(lens.span), lsp.Command(title=lens.text, command=""))
            for lens in (lenses(state) if state is not None else ())
        ]

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        state = server.state(params.text_document.uri)
        if state is None:
            return []
        source, wanted = state.analysis.source, params.range
        places = (
            (server.range(Span(source, hint.offset, hint.offset)).start, escape_line(hint.text))
            for hint in find_hints(state.analysis, state.good)
        )
        return [
            lsp.InlayHint(place, text, padding_left=True)
            for place, text in places
            if wanted.start.line <= place.line <= wanted.end.line
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        state = server.state(params.text_document.uri)
        return [server.symbol(one) for one in outline(state.analysis.tree)] if state else []

    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    def folding_ranges(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        state = server.state(params.text_document.uri)
        spans = folds(state.analysis.tree) if state is not None else ()
        ranges = map(server.range, spans)
        return [lsp.FoldingRange(r.start.line, r.end.line) for r in ranges]


def _add_navigation(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover_text(params: lsp.HoverParams) -> lsp.Hover | None:
        state = server.state(params.text_document.uri)
        if state is None:
            return None
        offset = server.offset(params.text_document.uri, params.position)
        found = hover(state.analysis, offset, state.good, claims_of(state))
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown)
        return lsp.Hover(content, server.range(found.span))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition_place(params: lsp.DefinitionParams) -> lsp.Location | None:
        state = server.state(params.text_document.uri)
        if state is None:
            return None
        offset = server.offset(params.text_document.uri, params.position)
        span = definition(state.analysis, offset)
        return server.location(span) if span is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def reference_places(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        state = server.state(uri)
        if state is None:
            return []
        roots = server.roots(state.analysis.path)
        found = references(state.analysis, server.offset(uri, params.position), roots)
        places = (server.location(occurrence.span) for occurrence in found)
        return [place for place in places if place is not None]


def _add_text_edits(server: Server) -> None:
    options = lsp.CompletionOptions(trigger_characters=[".", "@", '"', "/"])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    def completions(params: lsp.CompletionParams) -> lsp.CompletionList | None:
        uri = params.text_document.uri
        state = server.state(uri)
        if state is None:
            return None
        offset = server.offset(uri, params.position)
        figures = state.evaluation.figures if state.evaluation is not None else ()
        found = propose(state.analysis, state.analysis.source.text, offset, figures)
        items = [server.item(proposal, state, offset) for proposal in found]
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def format_document(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        state = server.state(params.text_document.uri)
        if state is None:
            return []
        source = state.analysis.source
        text = format_text(source.text)
        if text == source.text:
            return []
        return [lsp.TextEdit(server.range(Span(source, 0, len(source.text))), text)]


def _add_rename(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def name_range(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        uri = params.text_document.uri
        state = server.state(uri)
        if state is None:
            return None
        try:
            return server.range(name_at(state.analysis, server.offset(uri, params.position)))
        except RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from None

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def rename_edit(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        uri = params.text_document.uri
        state = server.state(uri)
        if state is None:
            return None
        offset = server.offset(uri, params.position)
        roots = server.roots(state.analysis.path)
        try:
            found = rename(state.analysis, offset, params.new_name, roots)
        except RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from None
        return lsp.WorkspaceEdit(
            changes={
                server.uri(path): [lsp.TextEdit(server.range(s), params.new_name) for s in spans]
                for path, spans in found.items()
            }
        )


def _add_quick_fixes(server: Server) -> None:
    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
    )
    def code_actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        state = server.state(uri)
        if state is None:
            return []
        first, last = params.range.start.line, params.range.end.line
        found = []
        for diagnostic in state.diagnostics:
            shown = server.diagnostic(state.analysis.path, state.analysis, diagnostic)
            if shown.range.end.line < first or shown.range.start.line > last:
                continue
            for fix in quick_fixes(state.analysis, diagnostic):
                edit = lsp.TextEdit(server.range(fix.span), fix.text)
                found.append(
                    lsp.CodeAction(
                        title=fix.title,
                        kind=lsp.CodeActionKind.QuickFix,
                        diagnostics=[shown],
                        edit=lsp.WorkspaceEdit(changes={uri: [edit]}),
                    )
                )
        return found


def serve(make_session: Callable[[], Session], reader: int, writer: int) -> int:
    """Serve an editor over two descriptors until it disconnects; return the exit code."""
    server = make_server(make_session)
    messages: Any = MessageStream(copy(reader, "rb"))
    server.start_io(messages, copy(writer, "wb"))
    return server.exit_code


def listen(make_session: Callable[[], Session], host: str, port: int) -> int:
    """Serve one editor over a connection until it disconnects; return the exit code."""
    server = make_server(make_session)
    server.start_tcp(host, port)
    return server.exit_code
