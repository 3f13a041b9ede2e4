"""`batonbus bench`: without a subcommand it measures handoffs a second."""

import json

import pytest
from typer.testing import CliRunner

from batonbus.cli.commands import app


def test_bench_alone_measures_whole_handoffs_a_second() -> None:
    answer = CliRunner().invoke(app, ["bench", "--size", "64", "--handoffs", "20", "--json"])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert (report["handoffs"], report["size"]) == (20, 64)
    assert report["handoffs_per_s"] == pytest.approx(20 / report["seconds"], rel=0.05)
    assert 0 < report["receipt_ms_p50"] <= report["receipt_ms_p99"]


@pytest.mark.parametrize("option", [["--json"], ["--size", "64"]])
def test_an_option_before_a_subcommand_is_refused_for_it_would_count_for_nothing(
    option: list[str],
) -> None:
    answer = CliRunner().invoke(app, ["bench", *option, "dispatch"])
    assert answer.exit_code == 2
    assert option[0] in answer.stderr
    assert "dispatch" in answer.stderr
