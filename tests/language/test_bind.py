"""What a spec means: names, units, defaults, imports, overrides, sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import (
    BYTES,
    ONE,
    RATE,
    SECONDS,
    Rate,
    Real,
    SpecError,
    Study,
    block,
    children,
    fraction,
    hookimpl,
    integer,
    integers,
    quantity,
    reference,
    string,
    switch,
    word,
)
from parcost.plugins.discovery import Plugins
from parcost.plugins.discovery import load as load_plugins

from ..rows import try_each


@block("part", inside="box", label="required")
class Part:
    """A nested block."""

    size: Real = quantity(BYTES, default=0.0, doc="how large")


@block("box", label="optional")
class Box:
    """A block with one attribute of every kind."""

    size: Real = quantity(BYTES, default=1.0, doc="how large")
    rate: Rate = quantity(RATE, default=1.0, curve=True, doc="how fast")
    time: Real = quantity(SECONDS, default="size / rate", doc="how long")
    link: Real = quantity(
        RATE,
        default=1.0,
        qualifiers={"per_direction": 1.0, "bidirectional": 0.5},
        must_qualify=True,
        doc="how fast, one way",
    )
    batch: Real = quantity(
        ONE,
        default=1.0,
        qualifiers={"sequences": 1.0, "tokens": "length"},
        must_qualify=True,
        doc="how many",
    )
    length: Real = integer(default=100, doc="tokens of one")
    share: Real = fraction(default=0.5, doc="how much")
    stages: int = integer(default=2, structural=True, doc="how many stages")
    layers: tuple[int, ...] = integers(default=(), doc="a list")
    mode: str = word("slow", "quick", default="slow", doc="which way")
    on: bool = switch(default=False, doc="whether")
    note: str = string(default="", doc="a remark")
    parts: tuple[Part, ...] = children("part", doc="what is inside")


@block("shelf", label="none")
class Shelf:
    """A block that refers to another."""

    box: Box = reference("box", default="box", doc="which box")
    boxes: Real = integer(default=3, doc="how many")
    total: Real = quantity(BYTES, default="boxes * box.size", doc="in all")


class Words:
    @hookimpl
    def blocks(self) -> list[type]:
        return [Box, Part, Shelf]


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(("words", Words()), installed=False)


@pytest.fixture
def study(plugins: Plugins) -> Any:
    def bind(text: str, **overrides: Any) -> Study:
        (scenario,) = parcost.load_text(text, plugins=plugins)
        dotted = {name.replace("__", "."): value for name, value in overrides.items()}
        return scenario.replace(dotted).studies()[0]

    return bind


def ids(text: str, plugins: Plugins) -> list[str]:
    try:
        for scenario in parcost.load_text(text, plugins=plugins):
            scenario.studies()
    except SpecError as error:
        return [d.id for d in error.diagnostics]
    return []


@pytest.mark.parametrize(
    ("written", "bytes_"),
    [
        ("80 GB", 80e9),
        ("80 GiB", 80 * 2**30),
        ("1_000 B", 1000.0),
        ("1.5e3 kB", 1.5e6),
        ("2 * 3 GB - 1 GB", 5e9),
        ("(1 GB / 1 s) * 2 s", 2e9),
        ("max(1 GB, 2 MB)", 1e9),
        ("1 GB > 2 MB ? 3 B : 4 B", 3.0),
        ("bytes(8 Gb)", 1e9),
        ("-(-1 B)", 1.0),
        ("1 GB * 50 %", 0.5e9),
        ("2 Ki * 1 B", 2048.0),
    ],
)
def test_a_size_is_bytes_however_it_is_written(study: Any, written: str, bytes_: float) -> None:
    assert study(f"box {{ size = {written} }}")[Box].size == bytes_


def test_link_rates_may_be_in_bits(study: Any) -> None:
    assert study("box { rate = 400 Gbps }")[Box].rate == 50e9
    assert study("box { rate = 400 Gb/s }")[Box].rate == 50e9


def test_a_qualifier_converts_to_what_the_formulas_use(study: Any) -> None:
    assert study("box { link = 900 GB/s bidirectional }")[Box].link == 450e9
    assert study("box { link = 450 GB/s per_direction }")[Box].link == 450e9


def test_a_batch_in_tokens_is_divided_by_the_sequence(study: Any) -> None:
    assert study("box { length = 8192, batch = 16 Mi tokens }")[Box].batch == 2048
    assert study("box { batch = 32 sequences }")[Box].batch == 32


def test_a_qualifier_may_stand_in_a_sweep_or_behind_it(plugins: Plugins) -> None:
    for spelled in ("[32 sequences, 64 sequences]", "[32, 64] sequences"):
        (scenario,) = parcost.load_text(f"box {{ batch = {spelled} }}", plugins=plugins)
        assert np.array_equal(scenario.studies()[0][Box].batch, [32, 64])
    assert ids("box { batch = [32 sequences, 64 tokens] }", plugins) == ["duplicate"]


def test_a_qualifier_may_not_be_left_out_nor_doubled(plugins: Plugins) -> None:
    assert ids("box { link = 450 GB/s }", plugins) == ["ambiguous-quantity"]
    assert ids("box { batch = 32 }", plugins) == ["ambiguous-quantity"]
    assert ids("box { link = 450 GB/s per_direction bidirectional }", plugins) == ["duplicate"]
    assert ids("box { link = 450 GB/s sideways }", plugins) == ["unknown-qualifier"]


def test_a_default_is_an_expression_in_the_scope_of_its_block(study: Any) -> None:
    made = study("box { size = 6 GB, rate = 2 GB/s }")
    assert made[Box].time == 3.0
    assert made[Shelf].total == 18e9
    assert made.origin(made[Box], "time").expression == "size / rate"


def test_blocks_may_stand_in_any_order(study: Any) -> None:
    parts = [
        "let n = m + 1",
        "let m = 1",
        "shelf { boxes = n }",
        "box { size = shelf.boxes * 1 B }",
    ]
    answers = set()
    for turn in range(4):
        text = "\n".join(parts[turn:] + parts[:turn])
        answers.add((study(text)[Shelf].boxes, study(text)[Box].size))
    assert answers == {(2.0, 2.0)}


def test_a_block_extends_another_and_overrides_part_of_it(study: Any) -> None:
    made = study(
        "box small { size = 1 GB, rate = 1 GB/s\n part lid { size = 1 B } }\n"
        "box large extends small { size = 5 GB\n part lid { size = 2 B }\n part base { size = 3 B } }\n"
        "shelf { box = large }"
    )
    large = made[Shelf].box
    assert (large.size, large.rate, large.time) == (5e9, 1e9, 5.0)
    assert [(p.label, p.size) for p in large.parts] == [("lid", 2.0), ("base", 3.0)]


def test_studies_share_a_file_and_override_it(plugins: Plugins) -> None:
    text = (
        "let n = 1\nbox { size = n * 1 GB, mode = quick }\n"
        "study a { box { size = 2 GB } }\nstudy b { let n = 7 }\n"
    )
    a, b = (s.studies()[0] for s in parcost.load_text(text, plugins=plugins))
    assert (a.name, a[Box].size, a[Box].mode) == ("a", 2e9, "quick")
    assert (b.name, b[Box].size) == ("b", 7e9)


def test_files_are_imported_with_and_without_a_name(tmp_path: Path, plugins: Plugins) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "boxes.par").write_text("let k = 3\nbox crate { size = k * 1 GB }\n")
    main = tmp_path / "main.par"
    main.write_text('use "site/boxes.par" as site\nshelf { box = site.crate, boxes = site.k }\n')
    (named,) = parcost.load(main, plugins=plugins)
    assert named.studies()[0][Shelf].total == 9e9
    main.write_text('use "site/boxes.par"\nbox crate { rate = 2 GB/s }\nshelf { box = crate }\n')
    (merged,) = parcost.load(main, plugins=plugins)
    assert merged.studies()[0][Shelf].box.time == 1.5


def test_an_import_is_read_again_when_it_changes(tmp_path: Path, plugins: Plugins) -> None:
    (tmp_path / "boxes.par").write_text("box crate { size = 1 GB }\n")
    main = tmp_path / "main.par"
    main.write_text('use "boxes.par"\n')
    session = parcost.Session(plugins)
    assert session.load(main)[0].studies()[0][Box].size == 1e9
    (tmp_path / "boxes.par").write_text("box crate { size = 20 GB }\n")
    assert session.load(main)[0].studies()[0][Box].size == 20e9


def test_provenance_is_kept_with_the_value(study: Any) -> None:
    made = study('box b @vendor("sheet") { size = 1 GB @measured("bench, 2024"), rate = 1 B/s }')
    size, rate = made.origin(made[Box], "size"), made.origin(made[Box], "rate")
    assert (size.kind, size.source) == ("measured", "bench, 2024")
    assert (rate.kind, rate.source) == ("vendor", "sheet")


def test_a_measured_curve_stands_for_a_bandwidth(study: Any) -> None:
    curve = study("box { rate = curve([1 MB, 2 ms], [1 GB, 50 GB/s]), time = 0 s }")[Box].rate
    assert np.allclose(curve.sizes, [1e6, 1e9])
    assert np.allclose(curve.seconds, [2e-3, 0.02])


def test_a_list_where_one_value_is_wanted_is_a_sweep(plugins: Plugins) -> None:
    (scenario,) = parcost.load_text("box { size = [1 GB, 2 GB], rate = 1 GB/s }", plugins=plugins)
    assert scenario.axes == [("box.size", [1e9, 2e9])]
    assert np.array_equal(scenario.studies()[0][Box].time, [1.0, 2.0])


def test_sweeps_multiply_and_structural_ones_split(plugins: Plugins) -> None:
    text = "box { size = [1 B, 2 B, 3 B], stages = [1, 4], mode = [slow, quick], rate = 1 B/s }"
    (scenario,) = parcost.load_text(text, plugins=plugins)
    studies = scenario.studies()
    assert [(s[Box].stages, s[Box].mode) for s in studies] == [
        (1, "slow"),
        (1, "quick"),
        (4, "slow"),
        (4, "quick"),
    ]
    assert all(np.array_equal(s[Box].time, [1.0, 2.0, 3.0]) for s in studies)


def test_one_sweep_used_twice_is_one_axis(plugins: Plugins) -> None:
    text = "let n = [1, 2]\nbox { size = n * 1 B, length = n }\n"
    (scenario,) = parcost.load_text(text, plugins=plugins)
    assert scenario.axes == [("n", [1.0, 2.0])]
    (made,) = scenario.studies()
    assert np.array_equal(made[Box].size, made[Box].length)


def test_values_are_set_from_outside(study: Any) -> None:
    assert study("box { size = 1 GB }", box__size="2 GiB")[Box].size == 2 * 2**30
    assert study("box { size = 1 GB }", box__size=5.0)[Box].size == 5.0
    swept = study("box { rate = 1 B/s }", box__size=np.array([1.0, 2.0]))
    assert np.array_equal(swept[Box].time, [1.0, 2.0])


def test_a_branch_that_is_not_taken_may_be_impossible(study: Any) -> None:
    assert study("let n = 0\nbox { size = n > 0 ? 1 B / n : 7 B }")[Box].size == 7.0
    swept = study("let n = [0, 2]\nbox { size = n > 0 ? 4 B / n : 7 B }")
    assert np.array_equal(swept[Box].size, [7.0, 2.0])


@try_each(
    "text, id",
    [
        ("box { size = 1 }", "missing-unit"),
        ("box { size = 1 s }", "wrong-dimension"),
        ("box { size = 8 Gb }", "bit-for-byte"),
        ("box { size = 1 GB + 1 Gb }", "mixed-dimensions"),
        ("box { size = 1 XB }", "unknown-unit"),
        ("box { length = 1.5 }", "not-whole"),
        ("box { share = 150 % }", "out-of-range"),
        ("box { size = -1 B }", "out-of-range"),
        ("box { mode = fast }", "wrong-word"),
        ("box { on = yes }", "wrong-word"),
        ('box { mode = "fast" }', "wrong-word"),
        ('box { on = "yes" }', "wrong-word"),
        ('let way = "fast"\nbox { mode = way }', "wrong-word"),
        ("box { note = hello }", "wrong-kind"),
        ("box { sise = 1 B }", "unknown-attribute"),
        ("bax { }", "unknown-block"),
        ("box { size = other.size }", "unknown-name"),
        ("box { size = size }", "circular"),
        ("let a = b\nlet b = a\nbox { length = a }", "circular"),
        ("box a extends b { }\nbox b extends a { }", "circular"),
        ("box { size = 1 B / 0 }", "division-by-zero"),
        ("box { size = 1e300 B * 1e300 }", "not-finite"),
        ("box { size = 1e999 B }", "not-finite"),
        ("box { size = log2(0) * 1 B }", "not-finite"),
        ("box { size = [] }", "empty-list"),
        ("box { size = [1 B, 1 s] }", "mixed-dimensions"),
        ("box { size = range(1 B, 1e12 B) }", "too-many-points"),
        ("box { size = wurst(1) }", "unknown-function"),
        ("box { size = max() }", "wrong-arguments"),
        ("box { size = 1 B ? 1 B : 2 B }", "not-a-condition"),
        ("box { size = 1 < 2 }", "not-a-number"),
        ("box { rate = curve([1 s, 1 s], [2 s, 2 s]) }", "malformed-curve"),
        ("box { rate = curve([2 B, 1 s], [1 B, 2 s]) }", "malformed-curve"),
        ("shelf { box = nothing }", "unknown-name"),
        ("shelf large { }", "unexpected-label"),
        ("box { part { } }", "missing-label"),
        ("part lid { }", "misplaced-block"),
        ("box { expect { } }", "misplaced-block"),
        ("box a { }\nbox a { }", "duplicate"),
        ("let a = 1\nlet a = 2\nbox { }", "duplicate"),
        ("size = 3 B\nbox { }", "misplaced-attribute"),
        ("mfu >= 3\nbox { }", "misplaced-claim"),
        ("use nowhere.at.all\nbox { }", "unknown-import"),
        ("use a b c\nbox { }", "malformed-use"),
        ("use\nbox { }", "syntax"),
        ("usse x\nbox { }", "unknown-statement"),
        ('requires plugin "none"\nbox { }', "missing-plugin"),
        ('requires parcost ">= 99"\nbox { }', "wrong-version"),
        ('requires parcost "what"\nbox { }', "malformed-requires"),
    ],
)
def test_bad_input_has_an_id(text: str, id: str, plugins: Plugins) -> None:
    assert id in ids(text, plugins)


@try_each(
    "text, hint",
    [
        ("box { length = 3 wagons }", "`length` is a plain number: remove the unit"),
        ("box { mode = 3 wagons }", None),
        ("box { size = 3 wagons }", None),
        ("zzzz { }", "docs/language.md lists the blocks"),
        ("box length = 3", "write `box { length = ... }`"),
        ("box a length = 3", "write `box a { length = ... }`"),
        ("length = 3", "write `let length = ...`, or move it into a block"),
        ("let box.length = 3", "write `let length = ...`, or move it into a block"),
        ("use catalog.big-box", "after `use`, write names of letters, digits, `_` and dots"),
    ],
)
def test_the_first_error_says_what_to_write(text: str, hint: str | None, plugins: Plugins) -> None:
    with pytest.raises(SpecError) as raised:
        [scenario.studies() for scenario in parcost.load_text(text + "\n", plugins=plugins)]
    assert raised.value.diagnostics[0].help == hint


def test_all_errors_of_a_file_come_out_in_one_run(plugins: Plugins) -> None:
    text = "box { size = 1, rate = 1 s, mode = fast, sise = 2 }\nbax { }\nshelf { boxes = 1.5 }\n"
    assert sorted(ids(text, plugins)) == [
        "missing-unit",
        "not-whole",
        "unknown-attribute",
        "unknown-block",
        "wrong-dimension",
        "wrong-word",
    ]


def test_dependents_of_an_error_are_not_reported_again(plugins: Plugins) -> None:
    assert ids("box { size = 1 XB, rate = 1 B/s }\nshelf { total = box.size }", plugins) == [
        "unknown-unit"
    ]


# --- What studies of a session share --------------------------------------------------

SHARED = "use catalog.devices.h100_sxm\nuse catalog.models.llama3_8b\n"


def _device(study: Study) -> Any:
    return next(b for (b, *_) in study.blocks.values() if type(b).__block__.kind == "device")


def test_studies_of_a_session_share_what_they_import_and_nothing_that_they_change() -> None:
    session = parcost.Session()

    def study_of(text: str, **overrides: float) -> Study:
        (scenario,) = session.load_text(text, overrides=overrides)
        return scenario.studies()[0]

    one, other = study_of(SHARED), study_of(f"{SHARED}let unused = 1\n")
    changed = study_of(f"{SHARED}device h100_sxm {{ memory_efficiency = 50 % }}\n")
    set_ = study_of(SHARED, **{"device.memory_efficiency": 0.25})
    again = study_of(SHARED)

    assert _device(one) is _device(other) is _device(again)
    assert _device(changed).memory_efficiency == 0.5
    assert _device(set_).memory_efficiency == 0.25
    assert _device(again).memory_efficiency not in (0.25, 0.5)
    assert _device(changed).bf16 == _device(again).bf16


def test_what_is_shared_says_where_it_comes_from_in_every_study() -> None:
    session = parcost.Session()
    texts = (SHARED, f"{SHARED}device h100_sxm {{ memory_efficiency = 50 % }}\n", SHARED)
    studies = [session.load_text(text)[0].studies()[0] for text in texts]
    found = [study.origin(_device(study), "memory_efficiency") for study in studies]
    assert [origin.how for origin in found if origin] == ["imported", "given", "imported"]
    peaks = [study.origin(_device(study), "bf16") for study in studies]
    assert all(origin and origin.how == "imported" and origin.source for origin in peaks)


def test_a_block_that_an_import_refers_to_may_be_changed() -> None:
    """The device is shared as long as its table of attention kernels is, and no longer."""
    session = parcost.Session()
    text = f"{SHARED}attention_table h100_kernels {{ auto = flash_2 }}\n"
    studies = [session.load_text(t)[0].studies()[0] for t in (SHARED, text, SHARED)]
    assert [_device(study).attention.auto for study in studies] == ["cudnn", "flash_2", "cudnn"]
    assert _device(studies[0]) is _device(studies[2])
    origins = [study.origin(_device(study).attention, "auto") for study in studies]
    assert [origin.how for origin in origins if origin] == ["imported", "given", "imported"]


def test_levels_of_an_imported_fabric_are_changed_in_one_study_alone() -> None:
    """Latencies by hand: 3.4 us and 14 us as the catalogue has them, each study its own change."""
    session = parcost.Session()
    use = "use catalog.fabrics.hgx_h100\n"

    def latencies(text: str, **overrides: float) -> dict[str, list[float]]:
        (study,) = session.load_text(use + text, overrides=overrides)[0].studies()
        (fabrics,) = [b for b in study.blocks.values() if type(b[0]).__block__.kind == "fabric"]
        return {f.label: [round(1e6 * level.latency, 9) for level in f.levels] for f in fabrics}

    own = {"hgx_h100": [3.4, 14.0]}
    changed = "fabric hgx_h100 { level node { latency = 5 us } }\n"
    two = "fabric a extends hgx_h100 { }\nfabric b extends hgx_h100 { }\n"
    assert latencies("") == own
    assert latencies(changed) == {"hgx_h100": [5.0, 14.0]}
    assert latencies("", **{"hgx_h100.network.latency": 7e-6}) == {"hgx_h100": [3.4, 7.0]}
    assert latencies(two, **{"a.node.latency": 1e-6}) == {
        **own,
        "a": [1.0, 14.0],
        "b": [3.4, 14.0],
    }
    assert latencies(two, **{"hgx_h100.node.latency": 2e-6}) == {
        "hgx_h100": [2.0, 14.0],
        "a": [3.4, 14.0],
        "b": [3.4, 14.0],
    }
    assert latencies("") == own


def test_a_unit_behind_a_list_is_moved_to_its_items() -> None:
    text = "overlap { bucket = [25, 100] MB }"
    with pytest.raises(SpecError) as caught:
        parcost.load_text(text)[0].evaluate()
    (found,) = caught.value.diagnostics
    assert found.id == "missing-unit"
    assert found.help == "write the unit of each item: `[25 MB, 100 MB]`"
