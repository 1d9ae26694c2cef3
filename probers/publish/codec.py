"""The codec of a process of a host."""

from schemas import avro, topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings


def make_codec(settings: KafkaSettings, process: str) -> Codec:
    """Return the codec, its schemas looked up already where a registry names them.

    The registry's client is imported only where one is configured: it brings urllib
    and ssl with it.

    Parameters
    ----------
    process
        As in the topic registry: the topics that it writes and reads are looked up.
    """
    if settings.registry_url is None:
        return Codec()
    from schemas.kafka.registry import Registry, framer_of  # noqa: PLC0415 - see above

    registry = Registry(settings.registry_url, settings.registry_user, settings.registry_password)
    for topic in topics.TOPICS:
        if process in topic.producers + topic.consumers:
            registry.id_of(avro.current(topic.name))
    return Codec(framer_of(settings, registry))
