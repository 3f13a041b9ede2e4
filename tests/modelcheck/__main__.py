"""`python tests/modelcheck [--all]`: the sizes, the times, and what each rule left out leads to."""

import sys

from left_out import KNOWN, LEFT_OUT, LeftOut, cells
from search import Result, Search
from sizes import LARGE, SMALL
from typer import echo
from world import HARMS


def main(arguments: list[str]) -> int:
    """Print all that was found; 1 where a scenario is not clean, or a rule is not missed."""
    if arguments not in ([], ["--all"]):
        echo("usage: python tests/modelcheck [--all]", err=True)
        return 2
    wrong = 0
    echo(f"{'scenario':58} {'states':>8} {'moves':>9} {'seconds':>8}  found")
    for scenario in [*SMALL, *(LARGE if arguments else [])]:
        result = Search(scenario).run()
        echo(f"{scenario.name:58} {numbers(result)}  {found(result)}")
        wrong += result.harm is not None or not result.complete
    for title, rules in (
        ("rule left out", LEFT_OUT),
        ("cell of the table left out", list(cells())),
        ("known limit", KNOWN),
    ):
        echo(f"\n{title:58} {'states':>8} {'moves':>9} {'seconds':>8}  found")
        wrong += sum(tell(rule) for rule in rules)
    echo("\n" + "\n".join(f"{harm}: {what}" for harm, what in HARMS.items()))
    return 1 if wrong else 0


def tell(rule: LeftOut) -> bool:
    """Print what comes of a rule left out; returns whether it is something else than expected."""
    result = rule.run()
    echo(f"{rule.rule:58} {numbers(result)}  {result.harm} ({rule.scenario.name})")
    return result.harm != rule.harm


def numbers(result: Result) -> str:
    """How much was looked at."""
    return f"{result.states:8,} {result.moves:9,} {result.seconds:8.2f}"


def found(result: Result) -> str:
    """The harm and the way to it, or that there is none."""
    if result.harm is None:
        return "nothing" if result.complete else "nothing, but it was cut off"
    steps = "".join(f"\n    {step}" for step in result.trace)
    return f"{result.harm}: {result.what}{steps}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
