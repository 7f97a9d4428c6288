"""Laying a file out changes nothing but its white space."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost.language.build import split_quantity
from parcost.language.format import WIDEST, format_text
from parcost.language.parse import parse, read_tokens, tables
from parcost.language.text import Source

from ..rows import try_each

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.par"))

names = st.from_regex(r"[a-z][a-z_0-9]{0,7}", fullmatch=True)
atoms = names | st.sampled_from(
    ["1", "2.5", "1e9", "1_000", "80 GB", "400Gbps", "1.5  us", "41%", '"# { }"', "a.b", "a . b"]
)
spaces = st.sampled_from(["", " ", "  ", "\t"])
remarks = st.sampled_from(["", "", " # why", "#", "  # a = 1 {  "])
breaks = st.sampled_from(["\n", "\n\n", "\n\n\n  ", " \n", "\r\n"])
wraps = st.sampled_from(["", "", "\n", "# x\n", " # y [\n\n"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0:
        return draw(atoms)
    part, gap = expressions(depth - 1), draw(spaces)
    match draw(st.integers(0, 9)):
        case 0:
            operator = draw(st.sampled_from(["*", "/", "-", "&&", "||", "+"]))
            return f"({draw(part)}{gap}){gap}{operator} {draw(part)}"
        case 1:
            return f"{draw(st.sampled_from('-!'))}{gap}({draw(part)})"
        case 2:
            return f"({draw(wraps)}{draw(part)}{draw(wraps)})"
        case 3:
            comma = draw(st.sampled_from(["", ","]))
            return f"[{gap}{draw(part)}{gap},{draw(wraps)}{draw(part)}{comma}{draw(wraps)}]"
        case 4:
            return f"[{draw(wraps)}]"
        case 5:
            return f"f{gap}({draw(part)},{draw(wraps)}{draw(part)}{gap})"
        case 6:
            return f"({draw(part)}){gap}?{gap}({draw(part)}){gap}:{gap}{draw(part)}"
        case 7:
            return f"({draw(part)}){gap}<={gap}({draw(part)})"
        case _:
            return draw(part)


@st.composite
def items(draw: st.DrawFn, depth: int = 2) -> str:
    name, gap = draw(names), draw(spaces)
    source = draw(st.sampled_from(["", ' @v("x")', ' @ v ( "x" )@w']))
    match draw(st.integers(0, 5 if depth else 3)):
        case 0:
            qualifier = draw(st.sampled_from(["", " dense"]))
            return f"{name}{gap}={gap}({draw(expressions())}){qualifier}{source}"
        case 1:
            return f"let {name}{gap}={gap}{draw(expressions())}"
        case 2:
            tolerance = draw(st.sampled_from(["", " +- 3%", "±1"]))
            return f"{name}{gap}<{gap}({draw(expressions())}){tolerance}"
        case 3:
            return f'use "{name}" {name}.b'
        case kind:
            words = draw(st.sampled_from(["", " x", ' "y z"', " x.y z"]))
            body = draw(bodies(depth - 1)) if kind == 4 else f"{gap}b=1{gap}, c = -x{gap}"
            return f"{name}{words}{source}{gap}{{{body}}}"


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> str:
    out = draw(spaces) + draw(st.sampled_from(["", "# first", "\n"])) + draw(breaks)
    for _ in range(draw(st.integers(0, 4))):
        out += draw(items(depth)) + draw(st.sampled_from([",", ""])) + draw(remarks) + draw(breaks)
    return out


def comments(text: str) -> list[str]:
    found = [m[0].rstrip() for m in tables().tokens.finditer(text) if m.lastgroup == "COMMENT"]
    return " ".join(found).split()


def spellings(text: str) -> list[str]:
    """Return the tokens that a layout may not touch."""
    return [
        " ".join(split_quantity(token[0])) if token.lastgroup == "QUANTITY" else token[0]
        for token in read_tokens(text)
        if token.lastgroup not in {"_NL", "_COMMA", "END"}
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(bodies())
def test_formatting_keeps_meaning_and_comments(text: str) -> None:
    tree, found = parse(Source("in.par", text))
    assert not found
    laid_out = format_text(text)
    assert parse(Source("out.par", laid_out)) == (tree, [])
    assert spellings(laid_out) == spellings(text)
    assert comments(laid_out) == comments(text)


@pytest.mark.slow
@settings(deadline=None)
@given(bodies())
def test_formatting_twice_changes_nothing(text: str) -> None:
    once = format_text(text)
    assert format_text(once) == once


@pytest.mark.slow
@settings(deadline=None)
@given(bodies())
def test_no_line_ends_in_a_blank_and_no_two_lines_are_empty(text: str) -> None:
    laid_out = format_text(text)
    assert all(line == line.rstrip() for line in laid_out.split("\n"))
    assert "\n\n\n" not in laid_out
    assert not laid_out.startswith("\n")
    assert not laid_out or laid_out.endswith("\n")
    assert not laid_out.endswith("\n\n")


@settings(deadline=None)
@given(st.text(alphabet='ab1 =,.{}[]()#"\n-*G@<+?:é', max_size=40) | st.text(max_size=40))
def test_any_text_is_laid_out_or_left_alone(text: str) -> None:
    once = format_text(text)
    assert once == text or not parse(Source("in.par", text))[1]
    assert format_text(once) == once


@pytest.mark.slow
@try_each("file", SPECS, ids=lambda file: file.stem)
def test_specs_keep_meaning_and_comments(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    laid_out = format_text(text)
    assert parse(Source("out.par", laid_out)) == parse(Source("in.par", text))
    assert comments(laid_out) == comments(text)
    assert format_text(laid_out) == laid_out


def test_the_canonical_form() -> None:
    text = """

# head

use   catalog.models.llama3_70b   as  m# hi
let x=3
let long_name = - 4GB/s # c


fabric my_net{
  level node @vendor ( "H100" ) { size=8devices,bandwidth=450GB/s per_direction, }   # t
  level net {

  bandwidth=400Gbps per_direction@measured("nccl") ,latency = [1, 2 , # one
    3, ] # two

     # own

  }
  empty {
  }
  noted { # c
  }
  study a { b { c = 1 } , d = 2 }
}
expect { mfu = 41%+-3%
 memory<=80GiB
 a = !b&&- c<3?min ( a,b )*(2+ -3):[ ]}
"""
    assert (
        format_text(text)
        == """\
# head

use catalog.models.llama3_70b as m  # hi
let x         = 3
let long_name = -4 GB/s  # c

fabric my_net {
  level node @vendor("H100") { size = 8 devices, bandwidth = 450 GB/s per_direction }  # t
  level net {
    bandwidth = 400 Gbps per_direction @measured("nccl")
    latency   = [1, 2, 3]  # one # two

    # own
  }
  empty {}
  noted {  # c
  }
  study a { b { c = 1 }, d = 2 }
}
expect {
  mfu    = 41 % +- 3 %
  memory <= 80 GiB
  a      = !b && -c < 3 ? min(a, b) * (2 + -3) : []
}
"""
    )


def test_a_block_stays_on_its_line_only_if_it_fits() -> None:
    fits = "block { a = " + "1" * (WIDEST - 14) + " }\n"
    assert len(fits) == WIDEST + 1
    assert format_text(fits) == fits
    longer = fits.replace("1 }", "11 }")
    assert format_text(longer) == longer.replace("{ ", "{\n  ").replace(" }", "\n}")


def test_a_block_over_several_lines_stays_so() -> None:
    assert format_text("a {\n  b = 1\n}\n") == "a {\n  b = 1\n}\n"


def test_a_comment_or_a_blank_line_ends_a_column() -> None:
    text = "a = 1\nlong = 2\n\nlonger = 3\nb = 4\n# c\nd = 5\n"
    assert format_text(text) == ("a    = 1\nlong = 2\n\nlonger = 3\nb      = 4\n# c\nd = 5\n")


def test_several_items_on_a_line_get_one_each() -> None:
    assert format_text("a = 1, bb = 2, # c\nf { x = 1\n }, g = 3") == (
        "a  = 1\nbb = 2  # c\nf {\n  x = 1\n}\ng = 3\n"
    )


def test_lines_of_other_systems_become_ours() -> None:
    assert format_text("\ufeffa = 1\r\n\r\n# c\r\nb = 2\r\n") == "a = 1\n\n# c\nb = 2\n"


def test_a_micro_sign_is_written_as_one() -> None:
    assert format_text("a = 5μs\n") == "a = 5 µs\n"


@try_each("text", ["a  =  1;\n", "a  =\n", "a  {\n", 'a  =  "x\n', "}  # c\n"])
def test_a_file_with_syntax_errors_is_left_alone(text: str) -> None:
    assert format_text(text) == text
