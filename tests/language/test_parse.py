"""What a file says, and what is said of one that says nothing clear."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Token, Tree, UnexpectedToken

from parcost.language import syntax as s
from parcost.language.build import Builder, split_quantity
from parcost.language.diagnostics import Diagnostic
from parcost.language.parse import parse
from parcost.language.repair import InsertedToken
from parcost.language.text import Source, Span
from parcost_grammar import generate, tables

from ..rows import try_each

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.par"))


def tree_of(text: str) -> s.Block:
    tree, found = parse(Source("x.par", text))
    assert not found, found
    return tree


def item(text: str) -> Any:
    (only,) = tree_of(text).items
    return only


def value(text: str) -> Any:
    return item(f"a = {text}").value


def found_in(text: str) -> list[Diagnostic]:
    return parse(Source("x.par", text))[1]


def messages(text: str) -> list[str]:
    """Return each error as ``line:column message: what is underlined: label``."""
    out = []
    for diagnostic in found_in(text):
        span = diagnostic.labels[0].span
        line, column = span.source.position(span.start)
        label = diagnostic.labels[0].text
        out.append(f"{line}:{column} {diagnostic.message}: {span.text}: {label}")
    return out


def outline(block: s.Block) -> list[Any]:
    """Return the names of the items of a tree."""
    out: list[Any] = []
    for one in block.items:
        match one:
            case s.Block():
                out.append([one.kind.text, *outline(one)])
            case s.Attribute() | s.Claim():
                out.append(one.name.text)
            case s.Statement():
                out.append(
                    " ".join(w.text if isinstance(w, s.Path) else w.value for w in one.words)
                )
    return out


def name(text: str) -> s.Name:
    return s.Name(text, Span(Source("", ""), 0, 0))


def path(text: str) -> s.Path:
    return s.Path(tuple(map(name, text.split("."))), name("").span)


def number(text: str, unit: str = "") -> s.Number:
    return s.Number(text, unit, name("").span)


def chain(*parts: Any) -> s.Chain:
    return s.Chain(parts[::2], parts[1::2], name("").span)


# Items


def test_an_attribute_has_a_name_and_a_value() -> None:
    assert item("tp = 8") == s.Attribute((), path("tp"), number("8"), (), (), name("").span)


def test_words_before_a_name_are_kept_apart_from_it() -> None:
    got = item("let x = 3")
    assert (got.words, got.name) == ((name("let"),), path("x"))


def test_an_override_names_a_path() -> None:
    assert item("level.bandwidth = 3 GB/s").name == path("level.bandwidth")


def test_qualifiers_and_provenance_follow_a_value() -> None:
    got = item('bandwidth = 450 GB/s per_direction dense @vendor("H100") @assumed')
    assert got.value == number("450", "GB/s")
    assert got.qualifiers == (name("per_direction"), name("dense"))
    assert [(p.kind.text, p.source and p.source.value) for p in got.provenance] == [
        ("vendor", "H100"),
        ("assumed", None),
    ]


def test_a_word_after_a_number_is_its_unit_and_the_next_a_qualifier() -> None:
    got = item("global_batch = 16 Mi tokens")
    assert (got.value, got.qualifiers) == (number("16", "Mi"), (name("tokens"),))
    assert item("size = 8 devices").value == number("8", "devices")


@pytest.mark.parametrize("sign", ["+-", "±"])
def test_an_equals_sign_with_a_tolerance_is_a_claim(sign: str) -> None:
    got = item(f"mfu = 41 % {sign} 3 %")
    assert got == s.Claim(path("mfu"), "=", number("41", "%"), number("3", "%"), name("").span)


@try_each("relation", ["==", "!=", "<", "<=", ">", ">="])
def test_a_comparison_is_a_claim(relation: str) -> None:
    got = item(f"memory.total {relation} 80 GiB * 2 +- 1 GiB")
    assert (got.name, got.relation) == (path("memory.total"), relation)
    assert got.value == chain(number("80", "GiB"), "*", number("2"))
    assert got.tolerance == number("1", "GiB")


def test_a_statement_is_words_and_strings() -> None:
    got = item('requires plugin "x" ">= 1.2"')
    assert [type(word) for word in got.words] == [s.Path, s.Path, s.Text, s.Text]
    assert item("use catalog.devices.h100_sxm as h100").words[1] == path("catalog.devices.h100_sxm")


def test_a_block_has_a_kind_words_and_provenance() -> None:
    got = item('model big extends a.small "x" @published("paper") { layers = 96 }')
    assert got.kind == name("model")
    assert got.words[:3] == (name_path := (path("big"), path("extends"), path("a.small")))
    assert len(got.words) == len(name_path) + 1
    assert got.provenance[0].kind == name("published")
    assert outline(got) == ["layers"]


@try_each(
    "text",
    [
        "a {\n x = 1\n y { z = 2 }\n}\nb = 3",
        "a { x = 1, y { z = 2 } }, b = 3",
        "a { x = 1,\n y {\n\n z = 2, }\n },\n b = 3\n",
        "# c\r\na {\r\n  x = 1 # c\r\n\r\n  y { z = 2 }\r\n}\r\nb = 3\r\n",
        "\ufeffa { x = 1\n#\ny { z = 2 } # }\n}\nb = 3",
    ],
)
def test_a_newline_or_a_comma_ends_an_item(text: str) -> None:
    assert outline(tree_of(text)) == [["a", "x", ["y", "z"]], "b"]


def test_newlines_inside_brackets_end_nothing() -> None:
    assert value("[1,\n  2, # two\n  (3\n+ 4)\n]") == value("[1, 2, (3 + 4)]")


@try_each("text", ["", "\n\n", "# only this", "  \t", "\ufeff"])
def test_an_empty_file_is_an_empty_tree(text: str) -> None:
    assert tree_of(text).items == ()


# Expressions


@try_each(
    "text, number, unit",
    [
        ("400 Gbps", "400", "Gbps"),
        ("400Gbps", "400", "Gbps"),
        ("3.35 TB/s", "3.35", "TB/s"),
        ("3 USD/GPU/h", "3", "USD/GPU/h"),
        ("41 %", "41", "%"),
        ("5µs", "5", "µs"),
        ("5 μs", "5", "µs"),
        ("2e3", "2e3", ""),
        ("2e3 B", "2e3", "B"),
        ("2E+3B", "2E+3", "B"),
        ("2e", "2", "e"),
        ("1_000", "1_000", ""),
        ("1_000.5e-3k", "1_000.5e-3", "k"),
        ("1\tGiB", "1", "GiB"),
    ],
)
def test_a_number_and_its_unit_are_one(text: str, number: str, unit: str) -> None:
    assert value(text) == s.Number(number, unit, name("").span)
    float(number)


def test_a_slash_between_blanks_divides() -> None:
    assert value("80 GB / n") == chain(number("80", "GB"), "/", path("n"))
    assert value("80 GB/n") == number("80", "GB/n")


def test_a_unit_does_not_end_within_a_word() -> None:
    got = item("bandwidth = 450 per_direction")
    assert (got.value, got.qualifiers) == (number("450"), (name("per_direction"),))


def test_a_chain_is_flat_and_reads_from_left_to_right() -> None:
    assert value("a - b + c") == chain(path("a"), "-", path("b"), "+", path("c"))


def test_operators_bind_in_the_usual_order() -> None:
    got = value("a || b && c < d + e * -f")
    inner = chain(path("d"), "+", chain(path("e"), "*", s.Unary("-", path("f"), name("").span)))
    assert got == chain(path("a"), "||", chain(path("b"), "&&", chain(path("c"), "<", inner)))


def test_parentheses_come_first_and_leave_no_node() -> None:
    assert value("(a + b) * ((c))") == chain(chain(path("a"), "+", path("b")), "*", path("c"))


def test_conditionals_nest_to_the_right() -> None:
    got = value("a ? 1 : b ? 2 : 3")
    assert (got.condition, got.then) == (path("a"), number("1"))
    assert got.otherwise == value("b ? 2 : 3")


def test_calls_and_lists_hold_expressions() -> None:
    got = value('min([], [1, 2,], f(), "x", a.b,)')
    assert got.function == name("min")
    assert [type(part) for part in got.arguments] == [
        s.List,
        s.List,
        s.FunctionCall,
        s.Text,
        s.Path,
    ]
    assert len(got.arguments[1].items) == 2


def test_a_string_is_what_is_between_its_quotes() -> None:
    assert value(r'"a \ # { é"') == s.Text(r"a \ # { é", name("").span)


def test_only_one_comparison_stands_in_a_row() -> None:
    assert messages("a = b < c < d") == [
        "1:11 unexpected `<`: <: expected a comma or the end of the line"
    ]


def test_spans_cover_what_was_written() -> None:
    text = 'a {\n  let x = (1 + 2 GB) * -n @v("q")  # c\n}'
    (block,) = tree_of(text).items
    assert isinstance(block, s.Block)
    assert block.span.text == text
    (attribute,) = block.items
    assert isinstance(attribute, s.Attribute)
    assert attribute.span.text == 'let x = (1 + 2 GB) * -n @v("q")'
    assert attribute.value.span.text == "(1 + 2 GB) * -n"
    assert isinstance(attribute.value, s.Chain)
    assert [part.span.text for part in attribute.value.operands] == ["(1 + 2 GB)", "-n"]
    assert attribute.provenance[0].span.text == '@v("q")'
    assert attribute.span.source.position(attribute.span.start) == (2, 3)


def test_splitting_a_quantity() -> None:
    assert split_quantity("1e3 \t GB/s") == ("1e3", "GB/s")


# Errors: each is reported once, and the rest of the file is read


BRACE_BELOW = (
    "the `{` of a block must be on the line of its first words: {: "
    "this belongs at the end of the line above"
)


@try_each(
    "text, errors, rest",
    [
        ("a =\nb = 2", ["1:4 unexpected end of line: \n: expected a value"], ["b"]),
        ("a = ", ["1:4 unexpected end of file:  : expected a value"], []),
        (
            "f { a = }\nb = 2",
            ["1:9 unexpected `}`: }: expected a value"],
            [["f"], "b"],
        ),
        ("a = , b = 2", ["1:5 unexpected `,`: ,: expected a value"], ["b"]),
        (
            "bandwidth 400 Gbps\nb = 2",
            ["1:11 `=` is missing: 400 Gbps: expected `=` before the value"],
            ["bandwidth", "b"],
        ),
        (
            "a = 1 b = 2 c = x y d = 3\ne = 1",
            [
                "1:7 two items in a row: b: expected a comma or a new line before this",
                "1:13 two items in a row: c: expected a comma or a new line before this",
                "1:21 two items in a row: d: expected a comma or a new line before this",
            ],
            ["a", "b", "c", "d", "e"],
        ),
        (
            "a = 1 layout { b = 2 }\nc = x model l { d = 3 }",
            [
                "1:7 two items in a row: layout: expected a comma or a new line before this",
                "2:7 two items in a row: model: expected a comma or a new line before this",
            ],
            ["a", ["layout", "b"], "c", ["model", "d"]],
        ),
        (
            "a = [1, 2\nb = 3\nc = 4",
            ["1:5 `[` is never closed: [: opened here"],
            ["b", "c"],
        ),
        (
            "a = f(1,\n  2\nuse b.c\nuse d.e\nlayout { g = 4 }",
            ["1:6 `(` is never closed: (: opened here"],
            ["use b.c", "use d.e", ["layout", "g"]],
        ),
        ("f { a = [1, 2 }\nb = 1", ["1:9 `[` is never closed: [: opened here"], [["f"], "b"]),
        ("a = (1", ["1:5 `(` is never closed: (: opened here"], []),
        ("a = (1]\nb = 2", ["1:7 `]` does not close `(`: ]: expected `)`"], ["b"]),
        (
            "a = 1)\nb = 2",
            ["1:6 this `)` has no opening bracket: ): no bracket is open here"],
            ["b"],
        ),
        ("a = [1 2]\nb = 2", ["1:8 unexpected `2`: 2: expected `,` or `]`"], ["b"]),
        (
            'a = "x\nb = 2',
            ['1:5 this string is never closed: "x: expected `"` before the end of the line'],
            ["b"],
        ),
        (
            'level n @v("x) {\n b = 2\n}\nc = 3',
            ['1:12 this string is never closed: "x) {: expected `"` before the end of the line'],
            [["level", "b"], "c"],
        ),
        (
            "a = 1; \nb = 2",
            ["1:6 unexpected character `;`: ;: this character is not part of the language"],
            ["a", "b"],
        ),
        (
            "a = $x + 1\nb = 2",
            ["1:5 unexpected character `$`: $: this character is not part of the language"],
            ["b"],
        ),
        ("a: 1\nb = 2", ["1:2 unexpected `:`: :: expected `=`"], ["a", "b"]),
        (
            "layout = { a = 1 }\nb = 2",
            ["1:8 a block has no `=`: =: this makes it an attribute"],
            [["layout", "a"], "b"],
        ),
        (
            "layout\n{\n a = 1\n}\nmodel x # c\n{ b = 2 }",
            [
                f"2:1 {BRACE_BELOW}",
                f"6:1 {BRACE_BELOW}",
            ],
            [["layout", "a"], ["model", "b"]],
        ),
        ("layout\nb = 2", ["1:7 unexpected end of line: \n: expected `=` or `{`"], ["b"]),
        (
            "a = 1 }\nb = 2",
            ["1:7 this `}` has no opening bracket: }: no block is open here"],
            ["a", "b"],
        ),
        (
            "a = 1\n{ c = 2 }\nb = 2",
            ["2:1 unexpected `{`: {: expected an attribute or a block"],
            ["a", "b"],
        ),
        (
            "model 8b { a = 1 }\nuse catalog.70b",
            [
                "1:7 a name cannot begin with a digit: 8b: expected a name",
                "2:13 a name cannot begin with a digit: 70b: expected a name",
            ],
            [["model", "a"], "use catalog.70b"],
        ),
        (
            "level n @v(5) {\n a = @\n b = 1\n}\nc = 2",
            [
                "1:12 unexpected `5`: 5: expected a string",
                "2:6 unexpected `@`: @: expected a value",
            ],
            [["level", "b"], "c"],
        ),
        (
            'x = "s"y = 3\n8b = 4',
            [
                "1:8 two items in a row: y: expected a comma or a new line before this",
                "2:1 a name cannot begin with a digit: 8b: expected a name",
            ],
            ["x", "y", "8b"],
        ),
        ("a 400 = 3\nb = 2", ["1:3 unexpected `400`: 400: expected `=` or `{`"], ["b"]),
        ('"a" <= 3\nb = 1', ['1:1 write names without quotes: "a": expected a name'], ["b"]),
        ("a = 1 ? 2\nb = 2", ["1:10 unexpected end of line: \n: expected `:`"], ["b"]),
        (
            "a = b = c\nd = 1",
            ["1:7 unexpected `=`: =: expected a comma or the end of the line"],
            ["d"],
        ),
        ('"x" = 3\nb = 1', ['1:1 write names without quotes: "x": expected a name'], ["b"]),
        ("a.b { }\nb = 1", ["1:1 a block begins with its kind: a.b: this is a path"], ["b"]),
        (
            "let a.b c = 3\nb = 1",
            ["1:5 an attribute begins with plain words: a.b: this is a path"],
            ["b"],
        ),
        (
            "let x = 1 +- 2\nb = 1",
            ["1:5 a claim begins with one name: x: a second word is not allowed"],
            ["b"],
        ),
        (
            '"use" x\nb = 1',
            ['1:1 a statement begins with a plain word: "use": this is a quoted string'],
            ["b"],
        ),
    ],
)
def test_an_error_costs_no_more_than_its_item(
    text: str, errors: list[str], rest: list[Any]
) -> None:
    assert messages(text) == errors
    assert outline(parse(Source("x.par", text))[0]) == rest


@try_each(
    "text, help",
    [
        ("a = 1;", "items end with a new line or a comma"),
        ("a = 'x'", 'write strings in double quotes: "..."'),
        ("a = (b and c)", "write `&&` for and"),
        ("a = b & c", "write `&&` for and"),
        ("a = 5 % 3", "`%` is a unit, as in `41 %`, not the remainder of a division"),
        ("a = +1", "write positive numbers without a sign"),
        ("a = .5", "a number begins with a digit: `0.5`"),
        ("a = 2 ** 3", "the language has no power operator: write a product"),
        ("// c", "comments begin with `#`"),
        ("a => 3", "write `>=`"),
        ("a = b = 3", "comparisons are written `==`"),
        ("a = 3 ≤ 4", "write `<=`"),
        ("é = 4", "names are made of the letters a to z, digits and `_`"),
        ("a\u00a0= 4", "write a normal space"),
        ("a = 1\rb = 2", "lines end with a newline, with or without a carriage return before it"),
        ("a = (1+-2)", "`+-` gives a claim its tolerance; the sum with a negative number is `+ -`"),
    ],
)
def test_habits_from_elsewhere_are_met_with_help(text: str, help: str) -> None:
    (diagnostic,) = found_in(text)
    assert diagnostic.help == help


def test_an_unclosed_block_says_where_it_was_opened() -> None:
    (diagnostic,) = found_in("a {\n  b = 1\n")
    assert diagnostic.message == "this block is never closed"
    opened, end = diagnostic.labels
    assert (opened.span.start, opened.text) == (2, "opened here")
    assert (end.span.start, end.text) == (11, "expected `}` before the end")


def test_an_unclosed_block_says_where_the_indentation_closes_it() -> None:
    (diagnostic,) = found_in("a {\n  b = 1\n\nc { d = 2 }\n")
    assert diagnostic.labels[1].span.source.position(diagnostic.labels[1].span.start) == (4, 1)


@try_each(
    "text, errors, tree",
    [
        (
            "a {\n  b = 1\n\nc { d = 2 }\ne { f = 3 }\n",
            ["1:3"],
            [["a", "b"], ["c", "d"], ["e", "f"]],
        ),
        ("a {\n  b = 1\nc = 2\nd { e = 3 }\n", ["1:3"], [["a", "b"], "c", ["d", "e"]]),
        ("a {\nb = 1\nc { d = 2 }\n", ["1:3"], [["a", "b"], ["c", "d"]]),  # nothing is indented
        (
            "a {\n  b {\n  c = 1\n  d { e = 2 }\nf { g = 3 }\n",
            ["1:3", "2:5"],
            [["a", ["b", "c"], ["d", "e"]], ["f", "g"]],
        ),
        (
            "a {\n  b = 1\nc {\n  d = 2\ne { f = 3 }\n",
            ["1:3", "3:3"],
            [["a", "b"], ["c", "d"], ["e", "f"]],
        ),
    ],
)
def test_what_follows_an_unclosed_block_stands_outside_of_it(
    text: str, errors: list[str], tree: list[Any]
) -> None:
    """Else one missing brace is an error for each block below."""
    assert [line.split(" ")[0] for line in messages(text)] == errors
    assert all("never closed" in line for line in messages(text))
    assert outline(parse(Source("x.par", text))[0]) == tree


def test_all_errors_of_a_file_are_reported_in_order() -> None:
    text = "a = @\nf {\n b =\n c = 1\n}\n'\ng = (\nh = 1 i = 2\n"
    assert [line.split(" ")[0] for line in messages(text)] == ["1:5", "3:5", "6:1", "7:5", "8:7"]


# Limits


@try_each(
    "inner, outer, close",
    [
        ("1", "(", ")"),
        ("1", "[", "]"),
        ("1", "f(", ")"),
        ("1", "-", ""),
        ("1", "!", ""),
        ("1", "a ? b : ", ""),
    ],
)
def test_a_hundred_levels_are_enough(inner: str, outer: str, close: str) -> None:
    deep = outer * 98 + inner + close * 98
    assert not found_in(f"a = {deep}\nb = 1")
    too_deep = outer * 101 + inner + close * 101
    tree, found = parse(Source("x.par", f"a = {too_deep}\nb = 1"))
    assert [d.id for d in found] == ["nesting-too-deep"]
    assert outline(tree) == ["b"]


def test_depth_is_looked_for_in_every_kind_of_item() -> None:
    deep = "(" * 99 + "1" + ")" * 99
    assert not found_in(f"a = {deep} ? [f(-1)] : 2\nm = {deep} +- 2\nn <= 3\nuse b c")


def test_blocks_nest_a_hundred_deep() -> None:
    assert not found_in("a {" * 100 + "}" * 100)
    assert [d.id for d in found_in("a {" * 101 + "}" * 101)] == ["nesting-too-deep"]


def test_a_tree_is_never_deep_even_where_brackets_are_few() -> None:
    deep = "a || b && c == d + e * (" * 50 + "1" + ")" * 50
    assert [d.id for d in found_in(f"a = {deep}")] == ["nesting-too-deep"]


@pytest.mark.slow
def test_a_long_chain_is_not_deep() -> None:
    assert len(value(" + ".join(["1"] * 40_000)).operands) == 40_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("a = " + "(" * 90_000, "nesting-too-deep"),
        ("a = " + "[" * 90_000, "nesting-too-deep"),
        ("a = " + "-" * 90_000 + "1", "nesting-too-deep"),
        ("a = " + "f(a, " * 20_000, "nesting-too-deep"),
        ("a = " + "1 ? " * 40_000, "nesting-too-deep"),
        ("a {" * 40_000, "nesting-too-deep"),
        ("a = 1 + " * 50_000, "file-too-large"),
        ("\n#" * 1_000_000, "file-too-large"),
        ("@\n" * 40_000, "too-many-errors"),
        ("a = (\n" * 20_000, "too-many-errors"),
        ("a = {\n" * 20_000, "too-many-errors"),
        ("a = 1 b = 2 " * 10_000, "too-many-errors"),
        ('a { x = "\n' * 10_000, "too-many-errors"),
        ("a <= (\nuse b c\n" * 12_000, "too-many-errors"),
    ],
)
def test_no_file_takes_long(text: str, id: str) -> None:
    start = time.process_time()
    found = found_in(text)
    assert time.process_time() - start < 2
    assert id in {diagnostic.id for diagnostic in found}
    assert len(found) <= 102


# The tables


@pytest.mark.slow
def test_the_tables_are_those_of_the_grammar() -> None:
    made = json.loads(json.dumps(generate.tables()))
    assert tables() == made, "run python -m parcost_grammar.generate"


def folded(tree: Tree[Token] | Token, builder: Builder) -> Any:
    """Return what our nodes make of Lark's own tree."""
    if isinstance(tree, Token):
        return InsertedToken(tree.type, tree.start_pos or 0, str(tree))
    return getattr(builder, tree.data)([folded(child, builder) for child in tree.children])


def as_lark(text: str) -> s.Block | None:
    source = Source("x.par", text)
    try:
        tree = generate.lark().parse(source.text)
    except UnexpectedToken:
        return None
    builder = Builder(source)
    block: s.Block = folded(tree, builder)
    return None if builder.diagnostics else block


@pytest.mark.slow
@try_each("file", SPECS, ids=lambda file: file.stem)
def test_we_read_specs_as_lark_does(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert tree_of(text) == as_lark(text)


pieces = st.sampled_from(
    [
        *'(){}[]=,+-*/?:@!.<\n\n #"',
        "a",
        "b.c",
        "1",
        "2 GB",
        '"s"',
        "+-",
        "<=",
        "&&",
        "||",
        "f(",
        "a = ",
    ]
)


@settings(deadline=None)
@given(st.lists(pieces, max_size=25).map(" ".join))
def test_we_take_what_lark_takes_and_nothing_else(text: str) -> None:
    tree, found = parse(Source("x.par", text))
    assert as_lark(text) == (None if found else tree)


@settings(deadline=None)
@given(st.text(max_size=60) | st.lists(pieces, max_size=40).map("".join))
def test_any_text_has_a_tree(text: str) -> None:
    source = Source("x.par", text)
    tree, found = parse(source)
    assert tree.span.source is source
    for diagnostic in found:
        for label in diagnostic.labels:
            assert 0 <= label.span.start <= label.span.end
