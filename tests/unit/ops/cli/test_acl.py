"""`acl plan`: what is wrong is said, and no resource is printed that Kubernetes would refuse."""

import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.cli.errors import CliError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--for", "wrker"], "no role 'wrker'"),
        (["--for", "worker=alice"], "write User:alice"),
        (["--for", "worker=User:"], "is no principal"),
        (["--for", "worker=User:*"], "User:* is everybody"),
        (["--for", "worker="], "such as worker=User:alice"),
        (["--strimzi", ""], "no name of a Kafka resource"),
        (["--strimzi", "a: b"], "no name of a Kafka resource"),
        (["--strimzi", "a" * 64], "at most 63"),
        (["--strimzi", "a", "--authentication", "none"], "must be scram-sha-512 or tls"),
        (["--principal", ""], "is no principal"),
        (["--principal", "User:*"], "User:* is everybody"),
        (
            ["--strimzi", "a", "--principal", "User:CN=ROLE"],
            "scram-sha-512 its principal is User:N",
        ),
        (
            ["--strimzi", "a", "--authentication", "tls", "--principal", "User:CN=ROLE,O=Example"],
            "with --authentication tls its principal is User:CN=NAME",
        ),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], said: str) -> None:
    """As wrong usage."""
    done = CliRunner().invoke(build(), ["acl", "plan", *arguments])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
    assert done.exception.exit_code == 2


def test_a_role_may_have_several_principals() -> None:
    """None of them is forgotten."""
    said = CliRunner().invoke(
        build(), ["acl", "plan", "--for", "reader=User:ann", "--for", "reader=User:bob"]
    )
    assert "User:ann" in said.output
    assert "User:bob" in said.output


def test_a_pattern_names_the_principals_of_all_roles() -> None:
    """As whole subjects of certificates, or with what all logins of a cluster begin with."""
    pattern = ["--principal", "User:CN=ROLE,O=Example"]
    said = CliRunner().invoke(build(), ["acl", "plan", *pattern, "--for", "web=User:ann"])
    assert "User:ann" in said.output
    assert "O=Example" not in said.output
    said = CliRunner().invoke(build(), ["acl", "plan", *pattern])
    assert "--allow-principal User:CN=worker,O=Example " in said.output
    assert "User:skeletonhunter" not in said.output
