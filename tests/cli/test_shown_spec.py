"""What `parcost show` prints of what no spec says: the value in use, and who decided it."""

from __future__ import annotations

import pytest

import parcost
from parcost_formats.rendering.resolved_spec import render_spec

SPEC = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
{use}
cluster  {{ devices = 8 }}
layout   {{ tp = 2, zero = {zero} }}
training {{ sequence = 8192, global_batch = 32 sequences }}
"""


FABRIC = "use catalog.fabrics.hgx_h100"


def spec_lines(use: str = FABRIC, zero: int = 1, more: str = "") -> list[str]:
    """Return the lines of a resolved spec, without their margins."""
    (scenario,) = parcost.load_text(SPEC.format(use=use, zero=zero) + more)
    lines = render_spec(scenario.studies()[0]).splitlines()
    return [" ".join(line.split()) for line in lines]


def test_what_the_framework_decides_has_the_value_in_use() -> None:
    lines = spec_lines()
    assert "# gradients = on # by framework generic" in lines
    assert "# tensor = off # by framework generic" in lines
    assert "# mode = eager # by framework generic" in lines
    assert "# cuda_graphs = none # by framework generic" in lines
    assert "# transfers = overlapped # by framework generic" in lines


def test_zero_3_hides_what_the_framework_does_not() -> None:
    use = f"{FABRIC}\nuse catalog.frameworks.deepspeed"
    assert "# gradients = off # by framework deepspeed" in spec_lines(use, zero=1)
    assert "# gradients = on # by zero = 3" in spec_lines(use, zero=3)


def test_what_a_spec_says_is_shown_as_it_says_it() -> None:
    assert "gradients = off # <text>:9" in spec_lines(more="overlap { gradients = off }\n")


@pytest.mark.parametrize("attribute", ["power_cap", "most_devices", "fp4"])
def test_what_has_no_value_has_none(attribute: str) -> None:
    assert f"# {attribute}: none" in spec_lines()


@pytest.mark.slow
def test_a_missing_reference_is_to_the_only_block() -> None:
    lines = spec_lines()
    assert "device = h100_sxm # the only device that is imported" in lines
    assert "framework = generic # default" in lines
    own = "fabric own { level node { bandwidth = 450 GB/s per_direction, latency = 3 us } }\n"
    assert "fabric = own # the only fabric" in spec_lines("", more=own)


def test_values_in_use_of_a_sweep_are_not_those_of_one_point() -> None:
    text = SPEC.format(use=FABRIC, zero=1).replace("tp = 2", "tp = [1, 2]")
    (study,) = parcost.load_text(text)[0].studies()
    assert "# gradients: none" in render_spec(study)
