from __future__ import annotations
import json
from functools import cache
from importlib.resources import files
from itertools import islice
from parcost import syntax as s
from parcost.lalr import Machine, Tables
from parcost.diagnostics import problem
from parcost.text import Source, Span
from re import Match
from attrs import evolve

class Builder:
    def __init__(self, source): self.source = source; self.found=[]
    def start(self, c):
        return s.Block(s.Name("", Span(self.source,0,0)), (), (), tuple(c[0]), Span(self.source, 0, len(self.source.text)))
    def body(self, c): return c
    def block(self, c):
        *words, brace, body, close = c
        i = len(words)
        while type(words[i-1]) is s.Provenance: i -= 1
        kind = words[0].parts[0]
        return s.Block(kind, tuple(words[1:i]), tuple(words[i:]), tuple(body), Span(self.source, kind.span.start, close.end()))
    def attribute(self, c):
        at = 1
        while type(c[at]) is not Match: at += 1
        name = c[at-1]
        value = c[at+1]
        end = value.span.end
        words = tuple(w.parts[0] for w in c[:at-1])
        q, p = (), ()
        if len(c) > at+2:
            rest = c[at+2:]
            q = tuple(self.name(x) for x in rest if type(x) is Match)
            p = tuple(x for x in rest if type(x) is not Match)
            end = (p or q)[-1].span.end
        return s.Attribute(words, name, value, q, p, Span(self.source, c[0].span.start, end))
    def claim(self, c):
        name, rel, value, *tol = c
        tol = tol[-1] if tol else None
        return s.Claim(name, rel[0], value, tol, Span(self.source, name.span.start, (tol or value).span.end))
    def statement(self, c):
        return s.Statement(tuple(c), Span(self.source, c[0].span.start, c[-1].span.end))
    def name(self, t):
        return s.Name(t[0], Span(self.source, *t.span()))
    def path(self, c):
        if len(c) == 1:
            t = c[0]
            span = Span(self.source, *t.span())
            return s.Path((s.Name(t[0], span),), span)
        parts = tuple(map(self.name, c))
        return s.Path(parts, Span(self.source, c[0].start(), c[-1].end()))
    def text(self, c):
        return s.Text(c[0][0][1:-1], Span(self.source, *c[0].span()))
    def provenance(self, c):
        return s.Provenance(self.name(c[1]), self.text([c[3]]) if len(c) > 3 else None, Span(self.source, c[0].start(), c[-1].end()))
    def number(self, c):
        return s.Number(c[0][0], "", Span(self.source, *c[0].span()))
    def quantity(self, c):
        d, u = split_quantity(c[0][0])
        return s.Number(d, u, Span(self.source, *c[0].span()))
    def chain(self, c):
        return s.Chain(tuple(c[::2]), tuple([t[0] for t in c[1::2]]), Span(self.source, c[0].span.start, c[-1].span.end))
    disjunction = conjunction = comparison = sum = product = chain
    def conditional(self, c):
        return s.Conditional(*c, Span(self.source, c[0].span.start, c[-1].span.end))
    def unary(self, c):
        return s.Unary(c[0][0], c[1], Span(self.source, c[0].start(), c[1].span.end))
    def call(self, c):
        return s.Call(self.name(c[0]), tuple(c[2:-1]), Span(self.source, c[0].start(), c[-1].end()))
    def list(self, c):
        return s.List(tuple(c[1:-1]), Span(self.source, c[0].start(), c[-1].end()))
    def group(self, c):
        return c[1]

def split_quantity(text):
    unit = text.lstrip("0123456789_.")
    if unit[0] in "eE" and unit[1:2] and unit[1] in "+-0123456789":
        unit = unit[1:].lstrip("+-0123456789")
    return text[:len(text)-len(unit)], unit.lstrip(" \t")

_NEST = {"LPAR": 1, "LSQB": 1, "RPAR": -1, "RSQB": -1}
def lex(tables, text):
    depth = 0
    out = []
    add = out.append
    ignored = tables.ignored
    for m in tables.tokens.finditer(text):
        kind = m.lastgroup
        if kind in ignored: continue
        if kind in _NEST:
            depth = max(depth+_NEST[kind],0)
        elif depth:
            if kind == "_NL": continue
            if kind == "LBRACE" or kind == "RBRACE" or kind == "EQUAL": depth = 0
        add(m)
    return out

@cache
def tables():
    return Tables.link(json.loads(files("parcost_grammar").joinpath("par.json").read_text()), Builder)

def parse(source):
    t = tables()
    m = Machine(t, Builder(source))
    toks = lex(t, source.text)
    n = m.run(toks)
    if n < len(toks):
        span = Span(source, *toks[n].span())
        empty = s.Block(s.Name("", span), (), (), (), span)
        return empty, [problem("syntax", f"unexpected `{span.text}`", span)]
    return m.values[0], []
