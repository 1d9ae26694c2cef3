"""`lab kinds`: the faults that a kind of lab has."""

import json
from typing import Annotated

import typer

from ops.cli import options
from ops.cli.lab_errors import Name, plain_errors


def kinds(
    name: Name = "default",
    *,
    kind: Annotated[
        str | None, typer.Option(help="Of which kind of lab [default: the one that is up]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the kinds of fault, with their targets and parameters.

    Example: skeletonhunter lab kinds --kind netns
    """
    with plain_errors():
        from ops.lab.fault_kinds import KINDS, LOOPBACK_LAB
        from ops.lab.folder import info, is_up, lab_path
        from ops.lab.kind import lab_kind

        path = lab_path(name)
        running = info(path).get("kind") if is_up(path) else None
        lab = lab_kind(kind or running or LOOPBACK_LAB)
    found = [k for k in KINDS.values() if lab.name in k.labs]
    if as_json:
        rows = [
            {
                "kind": k.name,
                "layer": k.layer.value,
                "target": k.target,
                "doc": k.doc,
                "labs": list(k.labs),
                "benign": k.benign,
                "params": [
                    {"name": p.name, "unit": p.unit, "default": p.default, "doc": p.doc}
                    for p in k.params
                ],
                "example": f"skeletonhunter lab fault {k.example}",
            }
            for k in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for k in found:
        benign = ", no fault of the network" if k.benign else ""
        typer.echo(f"{k.name}  ({k.layer.value.lower()}{benign}, on a {k.target}): {k.doc}")
        for p in k.params:
            flag = "--from" if p.name == "sender" else f"--{p.name.replace('_', '-')}"
            default = "" if p.default is None else f" [default: {p.default:g}]"
            typer.echo(f"    {flag}: {p.doc}{default}")
        typer.echo(f"    skeletonhunter lab fault {k.example}")
