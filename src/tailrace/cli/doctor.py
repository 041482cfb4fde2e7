"""`tailrace doctor`: is everything here that Tailrace needs?"""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from tailrace.cli import console


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(output: str = typer.Option("text", help="text or json.")) -> None:
    """Try every part for real, fetching what is missing. Exit code 0 if all is well, 2 if not."""
    from tailrace.embedded.checks import examine
    from tailrace.settings import Settings

    findings = []
    with console.downloads():
        for finding in examine(Settings.load()):
            findings.append(finding)
            if output != "json":
                mark = "[green]✓[/]" if finding.ok else "[bold red]✗[/]"
                console.out.print(f"{mark} [bold]{finding.name:<9}[/] {escape(finding.detail)}")
                if not finding.ok and finding.remedy:
                    console.out.print(f"            [bold]→[/] {escape(finding.remedy)}")
    healthy = all(finding.ok for finding in findings)
    if output == "json":
        console.as_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    elif healthy:
        console.say("All is well. Next: `tailrace up`, or see it all at work with `tailrace demo`.")
    if not healthy:
        raise typer.Exit(2)
