"""The open documents with their analysis and evaluation: the state of a language server.

A change is analyzed at once, and published; rules and evaluations follow from a thread:

    documents.change(path, ...)     # the text
    documents.analyze(path)         # its problems now, and those of files that import
    documents.job(path, done)       # the evaluation, for the thread
    documents.store_result(job, ...)  # its result, unless the text has changed since
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import Factory, define

from parcost.engine.session import Session
from parcost.language.diagnostics import Diagnostic
from parcost_apps.editor.analysis import Analysis, analyze
from parcost_apps.editor.evaluations import EvaluationJob, FileEvaluation
from parcost_apps.editor.problems import keep_valid
from parcost_apps.editor.texts import OpenText, OpenTexts, key_of


@define(eq=False)
class DocumentState:
    """The state of one document.

    *good* is the last analysis without errors, and *evaluation* the result of the last evaluation.
    *current* is true if the present text has been evaluated, and *late* if its evaluation takes too
    long.
    """

    analysis: Analysis
    good: Analysis | None = None
    evaluation: FileEvaluation | None = None
    current: bool = False
    late: bool = False
    job: EvaluationJob | None = None
    diagnostics: Sequence[Diagnostic] = ()


@define(eq=False)
class Documents:
    """All open documents of a session."""

    session: Session
    texts: OpenTexts = Factory(OpenTexts)
    _states: dict[str, DocumentState] = Factory(dict)
    _stale: set[str] = Factory(set)  # not analyzed as they are now
    _unpublished: set[str] = Factory(set)  # whose problems the editor has not seen

    def __attrs_post_init__(self) -> None:
        self.session.loader.buffers = self.texts.buffers

    def mark_stale(self, path: str) -> None:
        """Mark a file, and all documents that import it, as changed."""
        changed = key_of(path)
        self._stale.add(changed)
        self._unpublished.add(changed)
        for key, state in self._states.items():
            if key == changed or changed in state.analysis.imports:
                self._stale.add(key)
                self._unpublished.add(key)
                if state.job is not None:
                    state.job.stop.set()

    def texts_to_publish(self) -> Iterator[OpenText]:
        """Yield the open documents whose problems have to be published, each once."""
        for text in self.texts:
            if key_of(text.path) in self._unpublished:
                yield text
        self._unpublished.clear()

    def remove(self, path: str) -> None:
        """Drop a document that was closed."""
        state = self._states.pop(key_of(path), None)
        if state is not None and state.job is not None:
            state.job.stop.set()

    def state(self, path: str) -> DocumentState | None:
        """Return the state of an open document, with its present text analyzed."""
        text = self.texts.get(path)
        if text is None:
            return None
        key = key_of(path)
        known = self._states.get(key)
        if known is not None and key not in self._stale:
            return known
        self._stale.discard(key)
        made = analyze(self.session, text.path)
        if known is None:
            known = self._states[key] = DocumentState(made)
        else:
            if known.job is not None:
                known.job.stop.set()
            _continue(known, made)
        if made.is_good:
            known.good = made
        if not known.diagnostics:
            known.diagnostics = made.diagnostics
        return known

    def job(
        self, path: str, done: Callable[[EvaluationJob, FileEvaluation | None], None]
    ) -> EvaluationJob | None:
        """Return the job that evaluates a document, and stop the previous one."""
        state = self.state(path)
        text = self.texts.get(path)
        if state is None or text is None:
            return None
        if state.job is not None:
            state.job.stop.set()
        made = EvaluationJob(text.path, dict(self.texts.buffers), lambda found: done(made, found))
        state.job, state.late = made, False
        return made

    def store_result(
        self, job: EvaluationJob, found: FileEvaluation | None
    ) -> DocumentState | None:
        """Store the result of a job; return None without a result or if the text has changed."""
        state = self._states.get(key_of(job.path))
        if state is None or state.job is not job or job.stop.is_set() or found is None:
            return None
        if state.analysis.is_good or state.evaluation is None:
            state.evaluation = found
        state.current, state.late = True, False
        state.diagnostics = found.diagnostics
        return state


def _continue(state: DocumentState, made: Analysis) -> None:
    """Replace the analysis of a document; diagnostics of rules stay where the text is unchanged."""
    old = state.analysis.source
    rest: list[Diagnostic] = []
    if made.is_good:
        known = {id(d) for d in state.analysis.diagnostics}
        rest = list(keep_valid([d for d in state.diagnostics if id(d) not in known], made, old))
    state.analysis, state.current = made, False
    state.diagnostics = [*made.diagnostics, *rest]


def claims_of(state: DocumentState) -> Mapping[str, str]:
    """Return the results of `expect` claims, by the text of the claim."""
    return state.evaluation.claims if state.evaluation is not None else {}
