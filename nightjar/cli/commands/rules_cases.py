"""`nightjar rules test`: runs case files with the rules of rule files."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.context import Context


def run_cases(
    files: Annotated[list[Path], typer.Argument(help="Files of rules, YAML or JSON.", show_default=False)],
    cases: Annotated[
        list[Path], typer.Option(help="Case file, or folder of them. May be repeated.", show_default=False)
    ],
) -> None:
    """Run case files with the rules of these files instead of those of the same ids in the cases.

    Exits with 1 and shows the differing rows if a result is not as expected, or if no case has one of the rules. Shows
    which events were late or no events, where a case expects nothing about them. A rule that a case publishes more than
    once stays as the case has it. Cases without any of the rules are not run, and rules without a case are listed.
    """
    from nightjar.cases import check, find_cases, load_case
    from nightjar.cases.simulate import simulate
    from nightjar.cases.substitution import with_rules
    from nightjar.cli.commands.simulate import show_case
    from nightjar.cli.rule_files import read_rules
    from nightjar.terminal.console import counted
    from nightjar.terminal.stages import announce_compiling

    announce_compiling()
    context = Context()
    rules = read_rules(files, context.streams)
    tested: set[str] = set()
    run = failed = 0
    for path in find_cases(cases):
        case, replaced = with_rules(load_case(path), rules)
        if not replaced:
            continue
        outcome = simulate(case)
        differences = check(case.expect, outcome)
        tested |= set(replaced)
        run += 1
        failed += bool(differences)
        show_case(context.console, case, outcome, differences, in_full=False)
    context.console.print(f"{run - failed} of {counted(run, 'case')} as expected" if run else "nothing was tested")
    if missing := [rule.id for rule in rules if rule.id not in tested]:
        context.console.print(f"no case has {', '.join(missing)}", soft_wrap=True)
    if failed or not run:
        raise typer.Exit(1)
