"""Checks of the platform: broker, topics, schemas."""

from ops.doctor.snapshot import Check, Snapshot, Status
from ops.view.texts import counted, some


def broker(s: Snapshot) -> Check:
    """Check that the broker answers."""
    if s.refused is not None:
        return Check(
            name="access",
            status=Status.FAIL,
            found=s.refused,
            todo="let a super user run it, or use the login of a principal that may read",
        )
    if s.unreachable is not None:
        return Check(
            name="broker",
            status=Status.FAIL,
            found=s.unreachable,
            todo="start one (`broker run`), or correct --bootstrap and the [kafka] table",
        )
    return Check(name="broker", status=Status.OK, found=f"{s.bootstrap} answers")


def topics(s: Snapshot) -> Check:
    """Check that all topics of the contract are there, as they should be."""
    if s.missing_topics:
        return Check(
            name="topics",
            status=Status.FAIL,
            found=f"missing: {some(s.missing_topics)}",
            todo="run `topics apply`",
        )
    if s.topic_differences:
        return Check(
            name="topics",
            status=Status.WARN,
            found=f"{counted(len(s.topic_differences), 'difference')}: {some(s.topic_differences)}",
            todo="look at `topics plan`, then `topics apply`",
        )
    return Check(name="topics", status=Status.OK, found="all there, as the contract says")


def schemas(s: Snapshot) -> Check:
    """Check that a registry, if one is configured, knows all schemas."""
    name = "schemas"
    if s.registry_url is None:
        return Check(
            name=name, status=Status.OK, found="no registry configured: single-object encoding"
        )
    if s.registry_error is not None:
        return Check(
            name=name,
            status=Status.FAIL,
            found=s.registry_error,
            todo="start the registry, or correct schema.registry.url: nobody can decode without",
        )
    if s.unregistered:
        return Check(
            name=name,
            status=Status.FAIL,
            found=f"not registered: {some(s.unregistered)}",
            todo="run `schemas register`",
        )
    return Check(name=name, status=Status.OK, found=f"all registered at {s.registry_url}")


def dead_letters(s: Snapshot) -> Check:
    """Check that no reader met what it could not decode."""
    counts = dict(s.dead_letters)
    for topic, count in s.undecodable.items():
        counts[f"{topic} (met by doctor)"] = count
    if counts:
        lines = (f"{name} {count:,}" for name, count in sorted(counts.items()))
        return Check(
            name="dead letters",
            status=Status.WARN,
            found=some(lines),
            todo="look at them: `tail TOPIC.dlq --no-follow`; they say who wrote what",
        )
    return Check(name="dead letters", status=Status.OK, found="none")
