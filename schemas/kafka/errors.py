"""Why a process cannot go on with Kafka."""

from schemas.process.errors import CannotRunError


class BrokerError(CannotRunError):
    """The broker or its topics are not as they must be; the message says what to do."""


class FatalProducerError(CannotRunError):
    """The producer cannot go on, for example because another process took over."""
