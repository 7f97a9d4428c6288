"""What an editor shows of a spec: by functions over texts, without the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from spec_text import SPEC, offset_of

from parcost.binding.functions import functions
from parcost.engine.session import Session
from parcost_apps.editor.actions import quick_fixes
from parcost_apps.editor.analysis import MOST_STUDIES, analyze
from parcost_apps.editor.completion import Proposal, propose
from parcost_apps.editor.definitions import definition, references
from parcost_apps.editor.documents import Documents, DocumentState
from parcost_apps.editor.evaluations import StoppedEvaluationError, evaluate_file
from parcost_apps.editor.hover import hover
from parcost_apps.editor.inlay_hints import find_hints
from parcost_apps.editor.lenses import lenses
from parcost_apps.editor.problems import text_of
from parcost_apps.editor.rename import RenameError, rename
from parcost_apps.editor.symbols import folds, outline
from parcost_apps.editor.words import USAGES

Open = Callable[..., DocumentState]


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


@pytest.fixture
def documents(session: Session) -> Documents:
    session.loader.forget_files()
    return Documents(session)


@pytest.fixture
def open_text(documents: Documents, tmp_path: Path) -> Open:
    """Open a text under a name, or give it a new text; return what is known of it."""

    def do(text: str, name: str = "a.par") -> DocumentState:
        path = str(tmp_path / name)
        documents.texts.open(path, text)
        documents.mark_stale(path)
        state = documents.state(path)
        assert state is not None
        return state

    return do


def evaluate(documents: Documents, state: DocumentState) -> DocumentState:
    """Take what rules and studies give, as the thread does."""
    job = documents.job(state.analysis.path, lambda *_: None)
    assert job is not None
    found = evaluate_file(documents.session, job.path)
    assert documents.store_result(job, found) is state
    return state


def text_at(state: DocumentState, part: str, delta: int = 1) -> str:
    found = hover(state.analysis, offset_of(state.analysis.source.text, part, delta), state.good)
    return found.markdown if found else ""


def labels(open_text: Open, typed: str) -> dict[str, Proposal]:
    """Return what is proposed at the `|` of a text that was good before it was typed."""
    open_text(SPEC)
    text = typed.replace("|", "")
    found = propose(open_text(text).analysis, text, typed.index("|"), ["mfu"])
    return {proposal.label: proposal for proposal in found}


# --- hover --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "delta", "words"),
    [
        ("devices = nodes", 1, ["cluster.devices", "at least 1", "Value: `16` from", "a.par:7"]),
        ("zero = 1", 1, ["layout.zero", "Default: ", "Value: `1`"]),
        ("tp = 4", 1, ["layout.tp", "Value: `4`", "a.par:14"]),
        ("tp   = 2", 1, ["Value: `4`"]),  # of the first study, which overrides it
        ("cluster {", 1, ["**`cluster`** block"]),
        ("nodes * 8", 1, ["let nodes = 2"]),
        ("h100_sxm", 1, ["`device`", "NVIDIA H100", "989 TFLOPS"]),
        ("32 sequences", 5, ["unit: sequences"]),
        ("1 %", 2, ["`%` is 0.01"]),
    ],
)
def test_hover_has_the_facts(open_text: Open, part: str, delta: int, words: list[str]) -> None:
    shown = text_at(open_text(SPEC), part, delta)
    assert [word for word in words if word not in shown] == []


@pytest.mark.slow
def test_hover_of_an_attribute_has_its_rules_and_an_example(open_text: Open) -> None:
    shown = text_at(open_text(SPEC), "tp = 4")
    assert "- `heads-divide` (error): attention heads" in shown
    assert "Example: `tp = 2`" in shown
    assert "`parcost rule " in shown
    assert "`chunks-alone` (error)" not in shown  # of another attribute
    assert "cluster { devices = 64 }" in text_at(open_text(SPEC), "cluster {")


def test_inlay_hints_are_the_defaults_that_follow_from_others(open_text: Open) -> None:
    """Of the first study outside of a study: 16 devices of tp 4."""
    hints = {SPEC[: hint.offset][-8:]: hint.text for hint in find_hints(open_text(SPEC).analysis)}
    assert hints == {
        "layout {": "dp = 4",
        "uences }": "micro_batches = 8",
        "tp = 4 }": "dp = 4",
        "tp = 1 }": "dp = 16",
    }


@pytest.mark.slow
def test_a_given_value_has_no_hint_and_errors_keep_those_of_before(open_text: Open) -> None:
    given = open_text(SPEC.replace("zero = 1", "zero = 1, dp = 8"))
    end = SPEC.index("study")
    assert not any("dp =" in h.text for h in find_hints(given.analysis) if h.offset < end)
    open_text(SPEC)
    state = open_text(SPEC.replace("zero = 1", "zero = "))
    assert [h.text for h in find_hints(state.analysis)] == []
    assert any("dp = 4" in hint.text for hint in find_hints(state.analysis, state.good))


def test_hover_has_the_default_and_the_provenance(open_text: Open) -> None:
    text = (
        SPEC
        + 'fabric f { level n { size = 8 devices, bandwidth = 45 GiB/s per_direction @vendor("a <b> sheet") } }'
    )
    state = open_text(text)
    assert "45 GiB/s per\\_direction" not in text_at(state, "bandwidth =")  # values are code
    assert "@vendor" in text_at(state, "@vendor", 2)
    assert "a \\<b\\> sheet" in text_at(state, "@vendor", 2)
    assert text_at(state, "45 GiB/s", 4) == "`GiB/s` is 1,073,741,824 B/s"


def test_hover_keeps_the_last_values_of_a_text_with_errors(open_text: Open) -> None:
    open_text(SPEC)
    state = open_text(SPEC.replace("zero = 1", "zero = "))
    assert "Value: `16`" in (shown := text_at(state, "devices = nodes"))
    assert "of the last version without errors" in shown


def test_a_source_cannot_leave_its_block_of_code(open_text: Open) -> None:
    state = open_text('let a = "```<script>"\ncluster { devices = a }')
    shown = text_at(state, "devices = a", 10)
    assert shown.count("```") == 2


# --- completion ---------------------------------------------------------------------------


@pytest.mark.slow
def test_an_item_is_a_block_a_statement_or_an_attribute(open_text: Open) -> None:
    top = labels(open_text, SPEC + "|")
    assert {"cluster", "use", "study", "expect"} <= set(top)
    assert "level" not in top
    inside = labels(open_text, SPEC.replace("  zero = 1", "  zero = 1\n  |"))
    assert {"pp", "cp"} <= set(inside)
    assert not {"tp", "zero", "study", "cluster"} & set(inside)
    assert inside["pp"].text == "pp = "
    assert "whole number" in inside["pp"].detail
    assert "Default" in inside["pp"].doc
    assert "level" in labels(open_text, SPEC + "fabric f {\n  |\n}")
    assert set(labels(open_text, SPEC.replace("mfu >", "|mfu >").replace("mfu > 1 %", ""))) == {
        "mfu"
    }


@pytest.mark.parametrize(
    ("typed", "some", "none"),
    [
        ("training { recompute = | }", {"selective", "full"}, {"tp", "on"}),
        ("layout { sequence_parallel = o|", {"on", "off"}, {"min"}),
        ("cluster { device = | }", {"h100_sxm", "b200"}, {"hgx_h100", "llama3_8b"}),
        ("layout { pp = | }", {"nodes", "tp", "cluster", "min"}, {"pp"}),
        ("layout { pp = cluster.| }", {"devices", "fabric"}, {"tp"}),
        ("device d { memory = 80 G| }", {"GB", "GiB"}, {"GB/s", "ms", "GFLOP"}),
        ("device d { bf16 = 9 TFLOPS | }", {"dense", "sparse"}, {"TFLOPS"}),
        ("device d { memory = 80 GB @| }", {"vendor", "measured"}, {"dense"}),
        ("model m extends | { }", {"llama3_8b"}, {"h100_sxm"}),
        ("use catalog.devices.h100|", {"catalog.devices.h100_sxm"}, {"h100_sxm", "as"}),
        ("# cluster { |", set(), {"devices"}),
        ('let a = "clus|', set(), {"cluster"}),
    ],
)
def test_a_value_takes_what_its_declaration_allows(
    open_text: Open, typed: str, some: set[str], none: set[str]
) -> None:
    found = set(labels(open_text, SPEC + typed))
    assert some <= found
    assert not none & found


def test_an_entry_that_is_not_imported_brings_its_import(open_text: Open) -> None:
    entry = labels(open_text, SPEC + "cluster { device = | }")["b200"]
    assert entry.also is not None
    at, text = entry.also
    assert SPEC[:at].endswith("use catalog.precisions.bf16\n")
    assert text == "use catalog.devices.b200\n"


def test_files_beside_the_spec_are_proposed(open_text: Open, tmp_path: Path) -> None:
    (tmp_path / "site.par").write_text("", encoding="utf-8")
    (tmp_path / "more").mkdir()
    (tmp_path / "notes.txt").write_text("", encoding="utf-8")
    found = labels(open_text, 'use "|')
    assert set(found) == {"site.par", "more/"}
    assert labels(open_text, 'use "../|') == {}  # which no spec may import


@pytest.mark.slow
def test_what_is_proposed_gives_no_new_error(open_text: Open) -> None:
    """Taking a word of an attribute leaves the spec as good as it was."""
    for word in labels(open_text, SPEC + "training { recompute = | }"):
        state = open_text(SPEC.replace("micro_batch = 1", f"micro_batch = 1, recompute = {word}"))
        assert not [d.message for d in state.analysis.diagnostics if d.id == "wrong-word"]


def test_every_function_has_a_usage() -> None:
    assert sorted(USAGES) == functions()


# --- names --------------------------------------------------------------------------------

SITE = "fabric rail { level node { size = 8 devices, bandwidth = rate per_direction } }\nlet rate = 45 GB/s\n"
JOB = 'use "site.par" as site\nfabric mine extends site.rail { }\nlet mine_rate = site.rate\ncluster { fabric = site.rail }\n'


def test_a_definition_is_in_a_file_or_in_the_catalogue(open_text: Open) -> None:
    open_text(SITE, "site.par")
    state = open_text(JOB, "job.par")
    for part, delta, name, text in [
        ("extends site.rail", 14, "site.par", "rail"),
        ("fabric = site.rail", 15, "site.par", "rail"),
        ("fabric = site.rail", 10, "job.par", "site"),
        ("site.rate", 6, "site.par", "rate"),
        ('"site.par"', 3, "site.par", ""),
    ]:
        span = definition(state.analysis, offset_of(JOB, part, delta))
        assert span is not None, part
        assert span.source.name.endswith(name), part
        assert span.text == text, part
    state = open_text(SPEC)
    span = definition(state.analysis, offset_of(SPEC, "h100_sxm", 2))
    assert span is not None
    assert (span.source.name, span.text) == ("catalog/devices/h100_sxm.par", "h100_sxm")


def test_references_are_found_in_every_file(open_text: Open, tmp_path: Path) -> None:
    site = open_text(SITE, "site.par")
    (tmp_path / "job.par").write_text(JOB, encoding="utf-8")
    found = references(site.analysis, offset_of(SITE, "rail", 1), [str(tmp_path)])
    texts = sorted((Path(o.span.source.name).name, o.span.start) for o in found)
    assert texts == [
        ("job.par", JOB.index("site.rail") + 5),
        ("job.par", JOB.rindex("rail")),
        ("site.par", SITE.index("rail")),
    ]


def test_a_rename_changes_every_file(open_text: Open, tmp_path: Path) -> None:
    open_text(SITE, "site.par")
    state = open_text(JOB, "job.par")
    found = rename(
        state.analysis, offset_of(JOB, "extends site.rail", 14), "track", [str(tmp_path)]
    )
    made = {}
    for path, spans in found.items():
        text = {"site.par": SITE, "job.par": JOB}[Path(path).name]
        for span in sorted(spans, key=lambda one: -one.start):
            text = text[: span.start] + "track" + text[span.end :]
        made[Path(path).name] = text
    assert made == {
        n: t.replace("rail", "track") for n, t in (("site.par", SITE), ("job.par", JOB))
    }


def test_the_label_of_several_layers_is_renamed_whole(open_text: Open) -> None:
    text = "fabric net { }\nstudy a { fabric net { } }\nstudy b { cluster { fabric = net } }\n"
    state = open_text(text)
    (spans,) = rename(state.analysis, text.index("net"), "wires", []).values()
    assert sorted(span.start for span in spans) == [
        at for at in range(len(text)) if text.startswith("net", at)
    ]


@pytest.mark.parametrize(
    ("part", "delta", "new", "reason"),
    [
        ("h100_sxm", 2, "mine", "a name of the catalogue"),
        ("cluster {", 2, "mine", "a keyword of the language"),
        ("devices = nodes", 2, "mine", "a name of the language"),
        ("let nodes", 5, "8x", "is not a name"),
        ("let nodes", 5, "naïve", "is not a name"),
        ("let nodes", 5, "study", "a keyword of the language"),
        ("let nodes", 5, "devices", "is taken here"),
        ("study wide", 7, "narrow", "is taken"),
        ("tp = 4", 5, "a", "no name that can be renamed is at this position"),
    ],
)
def test_a_rename_is_refused(open_text: Open, part: str, delta: int, new: str, reason: str) -> None:
    state = open_text(SPEC)
    with pytest.raises(RenameError, match=reason):
        rename(state.analysis, offset_of(SPEC, part, delta), new, [])


# --- diagnostics, lenses, outline -----------------------------------------------------------


def test_unsaved_texts_count_for_imports(open_text: Open, documents: Documents) -> None:
    open_text("let rate = 45 GB/s", "site.par")
    job = open_text('use "site.par" as site\nlet a = site.rate\ncluster { devices = a }', "job.par")
    assert "wrong-dimension" in [d.id for d in job.analysis.diagnostics]
    open_text("let rate = 16", "site.par")
    after = documents.state(job.analysis.path)
    assert after is not None
    assert "wrong-dimension" not in [d.id for d in after.analysis.diagnostics]
    documents.texts.close(str(Path(job.analysis.path).parent / "site.par"))
    documents.mark_stale(str(Path(job.analysis.path).parent / "site.par"))
    closed = documents.state(job.analysis.path)
    assert closed is not None
    assert [d.id for d in closed.analysis.diagnostics] == ["missing-file"]


def test_an_import_in_a_circle_is_an_error_in_any_order(open_text: Open) -> None:
    open_text('use "b.par"\n', "a.par")
    second = open_text('use "a.par"\n', "b.par")
    first = open_text('use "b.par"\n', "a.par")
    for state in (first, second):
        found = [d for d in state.analysis.diagnostics if d.id == "circular-import"]
        assert len(found) == 1
        assert "a.par" in found[0].message
        assert "b.par" in found[0].message


def test_problems_of_rules_last_until_the_next_evaluation(
    open_text: Open, documents: Documents
) -> None:
    text = SPEC.replace("let nodes = 2", "let nodes = 3")
    state = evaluate(documents, open_text(text))
    rules = [d for d in state.diagnostics if d not in state.analysis.diagnostics]
    assert rules
    state = open_text("# a new line\n" + text)
    moved = [d.labels[0].span for d in state.diagnostics if d.labels]
    assert [s.text for s in moved] == [d.labels[0].span.text for d in rules if d.labels]
    state = open_text(text.replace("tp = 4", "tp = "))
    assert {d.id for d in state.diagnostics} == {"syntax"}


@pytest.mark.slow
def test_a_line_above_each_study(open_text: Open, documents: Documents) -> None:
    state = evaluate(documents, open_text(SPEC))
    report = documents.session.load_text(SPEC, state.analysis.path)[0].evaluate()
    step, mfu = report.result.figure("step_time"), report.result.figure("mfu")
    wide, narrow = lenses(state)
    assert (wide.span.text, SPEC.count("\n", 0, wide.span.start)) == ("study", 13)
    assert f"step time {step:.4g}"[:14] in wide.text  # more than a second, since rates follow power
    assert f"mfu {mfu * 100:.4g}"[:7] in wide.text
    assert "valid, fits in memory" in wide.text
    assert SPEC.count("\n", 0, narrow.span.start) == 14
    state = open_text(SPEC.replace("zero = 1", "zero ="))
    assert [lens.text.endswith("(of the last version without errors)") for lens in lenses(state)]


@pytest.mark.slow
def test_claims_tell_what_is_predicted(open_text: Open, documents: Documents) -> None:
    state = evaluate(documents, open_text(SPEC))
    assert state.evaluation is not None
    found = hover(state.analysis, offset_of(SPEC, "mfu", 1), claims=state.evaluation.claims)
    assert found is not None
    assert "Predicted:" in found.markdown
    assert "The claim holds" in found.markdown


def test_an_evaluation_stops_where_the_text_moves_on(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "a.par"
    path.write_text(SPEC, encoding="utf-8")
    calls = iter([False, False, True, True])
    with pytest.raises(StoppedEvaluationError):
        evaluate_file(session, str(path), lambda: next(calls, True))


def test_what_comes_late_is_dropped(open_text: Open, documents: Documents) -> None:
    state = open_text(SPEC)
    job = documents.job(state.analysis.path, lambda *_: None)
    assert job is not None
    found = evaluate_file(documents.session, job.path)
    open_text(SPEC.replace("tp = 4", "tp = 8"))
    assert documents.store_result(job, found) is None


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ("h100_sxm", "h100_sxn", "Replace by `catalog.devices.h100_sxm`"),
        ("zero = 1", "zeros = 1", "Replace by `zero`"),
        ("32 sequences", "32", "Write `32 sequences`"),
        ("tp   = 2", "tp   = 3", "Write `tp = "),
    ],
)
def test_the_nearest_legal_value_is_a_change(
    open_text: Open, documents: Documents, before: str, after: str, title: str
) -> None:
    text = SPEC.replace("study wide { layout { tp = 4 } }", "").replace("tp = 1 }", "}")
    state = evaluate(documents, open_text(text.replace(before, after)))
    found = [c for d in state.diagnostics for c in quick_fixes(state.analysis, d)]
    assert title in " | ".join(change.title for change in found)
    change = next(change for change in found if change.title.startswith(title))
    source = state.analysis.source.text
    fixed = source[: change.span.start] + change.text + source[change.span.end :]
    assert evaluate(documents, open_text(fixed)).diagnostics == []


def test_nothing_in_a_message_acts_on_a_screen(open_text: Open, documents: Documents) -> None:
    state = evaluate(documents, open_text('cluster { devices = "\x1b[31m\u202e" ?\x07 }'))
    texts = [*map(text_of, state.diagnostics), *(lens.text for lens in lenses(state))]
    assert texts
    assert all(line.isprintable() for text in texts for line in text.split("\n"))


def test_the_outline_is_that_of_the_file(open_text: Open) -> None:
    state = open_text(SPEC)
    items = outline(state.analysis.tree)
    assert [item.name for item in items] == [
        "nodes",
        "cluster",
        "layout",
        "training",
        "study wide",
        "study narrow",
    ]
    narrow = items[-1]
    assert [child.name for child in narrow.children] == ["layout", "expect"]
    assert {span.text.split()[0] for span in folds(state.analysis.tree)} >= {"layout", "study"}


def test_a_text_is_no_larger_than_a_file_may_be(open_text: Open) -> None:
    state = open_text("#" * (4 * 2**20 + 1))
    assert [d.id for d in state.analysis.diagnostics] == ["file-too-large"]


@pytest.mark.parametrize(
    ("library", "modules"),
    [("lsprotocol", {"server"}), ("pygls", {"server"}), ("pygments", {"highlight"})],
)
def test_one_module_knows_a_library(library: str, modules: set[str]) -> None:
    """The others run without the extra; importing that of the protocol takes a second."""
    root = Path(__file__).parents[2]
    modules_of_ours = [*(root / "core").rglob("*.py"), *(root / "plugins").rglob("*.py")]
    uses = re.compile(rf"^\s*(?:from|import) {library}\b", re.MULTILINE)
    found = {path.stem for path in modules_of_ours if uses.search(path.read_text("utf-8"))}
    assert found == modules


@pytest.mark.slow
def test_a_file_of_thousands_of_studies_is_shown_in_part(session: Session, tmp_path: Path) -> None:
    """The first 200 are bound, and a warning stands at the first of the others."""
    path = tmp_path / "many.par"
    names = range(MOST_STUDIES + 3)
    path.write_text("".join(f"study s{n} {{ layout {{ tp = 1 }} }}\n" for n in names))
    found = analyze(session, str(path))
    assert len(found.studies) == MOST_STUDIES
    (one,) = [d for d in found.diagnostics if d.id == "editor-studies"]
    assert one.message == f"the editor shows the first 200 of {MOST_STUDIES + 3} studies"
    assert one.labels[0].span.start == path.read_text().index(f"study s{MOST_STUDIES} ")
