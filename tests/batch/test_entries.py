"""Pages and entries as plain data."""

from __future__ import annotations

from parcost.contract.entries import Entry, Problem
from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.language.json_encoding import encode
from parcost_apps.batch.cache import pack, unpack
from parcost_apps.batch.entries import page_data
from parcost_apps.batch.fingerprints import Import


def test_a_page_survives_its_encoding() -> None:
    page: list[Item] = [
        Heading("one", 1, aside="a.par"),
        Line("fine", "good", 2),
        Table(
            (Column("term", flexible=True), Column("%", "right", optional=True)),
            [Row(("a", "1"), "strong", 1, rule=True), Row(("b", "2"))],
        ),
    ]
    entry = Entry(path="a.par", name="one", part="page", text=encode(page_data(page)))
    assert page_data(entry.page()) == page_data(page)
    assert entry.page()[:2] == page[:2]


def test_only_packed_answers_are_unpacked() -> None:
    needed = [Import("lib.par", "", "lib.par", "0" * 64)]
    entries = [
        Entry(
            path=f"{name}.par",
            name=None if name == "ü" else name,
            exit_code=1,
            reasons=("why",),
            problems=(Problem(text="\x1b[1mlong", line="short"),),
            part="data",
            text=encode({"say": text}),
        )
        for name, text in (("a", "ünï\udcff"), ("ü", ""))
    ]
    data = pack(needed, entries, "k")
    read = unpack(data, "k")
    assert read is not None
    assert read[0] == needed
    for entry, again in zip(entries, read[1], strict=True):
        for name in ("path", "name", "exit_code", "reasons", "problems", "part", "text"):
            assert getattr(entry, name) == getattr(again, name)
        assert again.remembered
    assert unpack(data, "another") is None
    for i in range(0, len(data), 7):
        assert unpack(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "k") is None
        assert unpack(data[:i], "k") is None
