"""The pages of rules: each id has one, and its examples fail and pass as they claim."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from click import UsageError
from click.testing import CliRunner

from parcost import Check, Rulebook, SpecError, hookimpl
from parcost.engine.session import Session
from parcost.plugins.discovery import load
from parcost_apps.documentation.rulebooks import RulePage, rule_pages
from parcost_apps.rule import command

from ..rows import try_each

ROOT = Path(__file__).parents[2]
PAGES = rule_pages(load()).pages
_MAKERS = {"Diagnostic", "problem", "error_at", "failure", "Check", "reject"}
_SERVER_MAKERS = {"error_response", "BodyError"}  # of answers to requests
_CALLS = re.compile(rf"\b(?:{'|'.join(_MAKERS | _SERVER_MAKERS)}|RULES\.check)\(")
#: Words of statements, of plugins and of other tools that pages quote.
ELSEWHERE = {"as", "use", "requires", "include", "import", "topology"}
ELSEWHERE |= {"bucket_cap_mb", "reduce_bucket_size", "replay", "extends", "c", "hgx_h100"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

#: Ids that a module puts together, or hands on from a table.
COMPUTED = {
    "plugins/parcost_plugins/vocabulary/plausibility.py": {
        f"implausible-{what}"
        for what in (
            "memory",
            "memory-bandwidth",
            "peak",
            "power",
            "sequence",
            "batch",
            "micro-batch",
            "bucket",
            "tokens",
            "tokens-per-parameter",
            "device-hour",
            "intensity",
            "pue",
        )
    },
    "core/parcost/expectations/claims.py": {"wrong-dimension", "mixed-dimensions"},
    "core/parcost/binding/conversion.py": {"missing-label", "duplicate"},
    "core/parcost/binding/names.py": {"unknown-name", "missing-block"},
    "core/parcost/system/files.py": {"missing-file", "not-utf8", "file-too-large"},
    "plugins/parcost_formats/imports/questions.py": {"import-question"},
    "plugins/parcost_plugins/model/adapters.py": {
        f"adapters-{what}"
        for what in (
            "targets",
            "nominal",
            "latent",
            "experts",
            "quantized-experts",
            "prediction",
            "tied-head",
            "tensor-parallel",
            "expert-parts",
            "shared-experts",
            "rank-divide",
            "chunks",
            "head-parallel",
            "quantized-parallel",
            "low-precision",
            "narrow-type",
            "compression",
            "local-updates",
            "serving",
        )
    },
    "plugins/parcost_plugins/model/shapes.py": {
        "experts-shared",
        "experts-dense-first",
        "experts-routed",
        "latent-queries",
        "window-full",
        "window-chunked",
        "qk-norm-whole",
        "recompute-layers",
        "recompute-latent",
        "recompute-experts",
    },
    "plugins/parcost_plugins/operations/rules.py": {
        "energy-unused",
        "price-unused",
        "run-devices-unknown",
        "reliability-devices-unknown",
    },
    "plugins/parcost_plugins/parallelism/context/rules.py": {"ulysses-heads", "ulysses-kv-heads"},
    "plugins/parcost_plugins/parallelism/expert/dispatch.py": {
        "dispatch-experts",
        "dispatch-visits",
        "dispatch-units",
    },
    "plugins/parcost_plugins/parallelism/tensor/rules.py": {
        "heads-divide",
        "kv-heads-divide",
        "ffn-divide",
    },
}
#: Modules that hand on the id of another diagnostic.
PASSING_ON = {
    "core/parcost/engine/point_diagnostics.py",
    "core/parcost/engine/rules.py",
    "core/parcost/language/diagnostics.py",
    "core/parcost/language/errors.py",
    "core/parcost/binding/modules.py",
    "plugins/parcost_apps/batch/files.py",
    "plugins/parcost_formats/rendering/rejection.py",
    "core/parcost/contract/offers.py",
    "core/parcost/contract/validation.py",  # `problem` is another function there
    "core/parcost/plugins/registry.py",
    "plugins/parcost_apps/server/access.py",
    "plugins/parcost_apps/server/application.py",
}


def emitted() -> tuple[set[str], set[str]]:
    """Return the ids in the code, and the modules that compute others."""
    ids: set[str] = set()
    computing: set[str] = set()
    for root in ("core", "plugins"):
        for path in (ROOT / root).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if "/tools/" in name or "/calibration/" in name:
                continue  # keys of other tools, which the core reports as `import`
            text = path.read_text(encoding="utf-8")
            if not _CALLS.search(text):
                continue
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                of_book = called == "check" and ast.unparse(node.func) == "RULES.check"
                of_server = "/server/" in name and called in _SERVER_MAKERS
                if called not in _MAKERS and not of_server and not of_book:
                    continue
                at = 1 if called == "reject" or of_server else 0
                positional = node.args[at] if len(node.args) > at else None
                given = next((k.value for k in node.keywords if k.arg == "id"), positional)
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    ids.add(given.value)
                elif given is not None:
                    computing.add(name)
    return ids, computing


@pytest.mark.slow
def test_every_id_in_the_code_has_a_page_and_every_page_an_id() -> None:
    ids, computing = emitted()
    assert computing <= {*COMPUTED, *PASSING_ON}
    known = ids.union(*COMPUTED.values())
    assert known - set(PAGES) == set()
    assert set(PAGES) - known == set()
    assert [id for id in PAGES if not _ID.fullmatch(id)] == []


def ids_of(text: str, page: RulePage, session: Session) -> tuple[set[str], set[str]]:
    """Return the ids and the severities of what a spec gets."""
    found = []
    try:
        for scenario in session.load_text(text, "example.par"):
            found += scenario.evaluate().diagnostics if page.outcome else scenario.check()
    except SpecError as error:
        found += error.diagnostics
    return {d.id for d in found}, {d.severity.value for d in found}


@pytest.mark.slow
def test_examples_fail_and_pass_as_their_pages_claim() -> None:
    session = Session()
    examples = [page for page in PAGES.values() if page.fails]
    failing = {page.id: ids_of(page.fails, page, session) for page in examples}
    assert failing == {page.id: ({page.id}, {page.severity}) for page in examples}
    passing = {page.id: ids_of(page.passes, page, session)[0] for page in examples}
    assert {id: found for id, found in passing.items() if found} == {}


def test_most_rules_have_examples() -> None:
    """What needs more than a spec says so: files, plugins, limits and commands."""
    without = [page.id for page in PAGES.values() if not page.fails]
    assert len(without) < len(PAGES) / 4
    assert {PAGES[id].book for id in without} >= {"files", "searches"}


def test_each_page_has_its_own_reason_and_remedy() -> None:
    """A text that fits two rules says nothing about either."""
    for texts in ([page.why for page in PAGES.values()], [page.fix for page in PAGES.values()]):
        assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_pages_quote_words_that_the_language_has() -> None:
    reference = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    known = {*re.findall(r"`([a-z_0-9]+)[`(]", reference), *ELSEWHERE}
    quoted = {
        word
        for page in PAGES.values()
        for text in (page.why, page.fix)
        for word in re.findall(r"`([a-z_0-9]+)`", text)
    }
    assert quoted - known == set()


# --- the command -----------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.stdout, result.stderr


def test_a_page_has_all_that_there_is_to_know() -> None:
    code, text, _ = run("heads-divide")
    assert code == 0
    for part in ("Why", "Remedy", "Source", "Fails", "Passes", "tp = 8", "Megatron-LM", "error"):
        assert part in text
    assert "only warnings can be switched off" in text


def test_a_warning_says_how_it_is_switched_off() -> None:
    _, text, _ = run("zero-alone", "--format", "md")
    assert "`# parcost: allow zero-alone, REASON`" in text
    assert text.startswith("# zero-alone\n")


def test_an_id_as_it_is_printed_is_understood() -> None:
    assert run("[heads-divide]")[1] == run("heads-divide")[1]


def test_an_unknown_id_gets_the_nearest() -> None:
    code, text, message = run("head-divide")
    assert (code, text) == (2, "")
    assert "there is no rule `head-divide`" in message
    assert "`heads-divide`" in message


@try_each(
    "name, hint",
    [
        ("batch-too-small", "did you mean `batch-small` or"),
        ("implausible", "`implausible-"),
        ("model", "`parcost rule --subject model` lists the rules of the subject"),
        ("qqq", "`parcost rule` lists all"),
    ],
)
def test_an_unknown_id_leads_to_rules_with_its_words(name: str, hint: str) -> None:
    code, _, message = run(name)
    assert code == 2
    assert hint in message


def test_examples_are_whole_lines_to_copy() -> None:
    _, text, _ = run("heads-divide")
    fails = PAGES["heads-divide"].fails
    (model,) = [line for line in fails.splitlines() if line.startswith("model")]
    assert f"    {model}\n" in text
    assert len(model) > 80


@pytest.mark.slow
def test_the_rules_of_a_subject() -> None:
    code, text, _ = run("--subject", "pipeline")
    assert code == 0
    listed = {line.split()[0] for line in text.splitlines() if line.split()}
    ids = {page.id for page in PAGES.values() if page.book == "pipeline"}
    assert listed & set(PAGES) == ids
    _, text, _ = run("--subject", "pipeline", "--format", "json")
    rules = json.loads(text)["rules"]
    assert {rule["id"] for rule in rules} == ids
    assert {rule["subject"] for rule in rules} == {"pipeline"}
    code, text, message = run("--subject", "pipelin")
    assert (code, text) == (2, "")
    assert "did you mean `pipeline`?" in message
    assert run("--subject", "")[0] == 2


def test_an_id_and_a_subject_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="an ID already selects one rule"):
        run("heads-divide", "--subject", "tensor")


def test_all_rules_are_listed_with_severity_and_title() -> None:
    code, text, _ = run()
    assert code == 0
    assert len([line for line in text.splitlines() if line.split()]) > len(PAGES)
    (line,) = [line for line in text.splitlines() if line.split()[:1] == ["sparse-peak"]]
    assert line.split()[1] == "plausibility"


def test_pages_as_json_have_every_rule() -> None:
    _, text, _ = run("--format", "json")
    rules = json.loads(text)["rules"]
    assert [rule["id"] for rule in rules] == list(PAGES)
    (one,) = [rule for rule in rules if rule["id"] == "zero-alone"]
    assert (one["severity"], one["allowable"], one["plugin"]) == ("warning", True, "rules")
    assert "devices = 2" in one["fails"]


# --- rulebooks of plugins ----------------------------------------------------------------------

OWN = """
[nap-long]
title = "a nap is short"
severity = "warning"
why = "Long naps are sleep."
fix = "Nap less."
fails = "link a { bandwidth = 1 GB/s per_direction }"
change = [["1 GB/s", "2 GB/s"]]
"""


def plugin(text: str) -> SimpleNamespace:
    def rulebooks() -> list[Rulebook]:
        return [Rulebook(name="naps", text=text)]

    def calculations() -> list[Check]:
        return [
            Check(
                id="nap-long",
                holds=False,
                subject="a.bandwidth",
                severity="warning",
                message="the nap is long",
            )
        ]

    return SimpleNamespace(rulebooks=hookimpl(rulebooks), calculations=hookimpl(calculations))


def test_a_plugin_declares_rules_as_the_shipped_ones_do() -> None:
    plugins = load(("naps", plugin(OWN)))
    page = rule_pages(plugins).pages["nap-long"]
    assert (page.title, page.plugin and page.plugin.name) == ("a nap is short", "naps")
    text = page.fails.rstrip() + "  # parcost: allow nap-long, we like it\n"
    (scenario,) = Session(plugins).load_text(text)
    assert scenario.check() == []
    (one,) = scenario.evaluate().suppressions
    assert (one.diagnostic.message, one.reason) == ("the nap is long", "we like it")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "is not TOML"),
        ("x = 3", "where a table is expected"),
        ("[x]\ntitle = 'a'", "no text as `severity`"),
        (OWN.replace("warning", "bad"), "which is not error or warning"),
        (OWN.replace('1 GB/s", "', '7 GB/s", "'), "does not contain exactly once"),
        (OWN.replace("2 GB/s", "1 GB/s"), "that no change fixes"),
        (OWN + "colour = 'red'", "which is not a key of a page"),
        (OWN.replace('change = [["1 GB/s", "2 GB/s"]]', "change = [3]"), "not a pair"),
        (OWN.replace("nap-long", "zero-alone"), "already has a page"),
    ],
)
def test_a_faulty_rulebook_is_named_and_harms_no_other(text: str, said: str) -> None:
    found = rule_pages(load(("naps", plugin(text))))
    (fault,) = found.faults
    assert fault.plugin.name == "naps"
    assert said in fault.message
    assert set(found.pages) >= set(PAGES)
    assert found.pages["zero-alone"].plugin is not None
    assert found.pages["zero-alone"].plugin.name == "rules"
