"""The bridge's loop: topics in, the pager, targets out.

One process leads; the others stand by: their pager follows the same topics, and they keep what the
targets have not taken. A target cannot fence who led before, as Kafka does: so before each post
the leader asks whether it certainly leads.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from ops.bridge.config import (
    ALERTMANAGER,
    PAGERDUTY,
    BridgeConfig,
    TargetConfig,
)
from ops.bridge.delivery import Delivery, StateDelivery, StreamDelivery
from ops.bridge.http import Answer, Client, Outcome
from ops.bridge.inbox import INPUTS, Inbox, Received, Refused
from ops.bridge.paging.page import Notification, Page, Position
from ops.bridge.paging.pager import Pager
from ops.bridge.positions import TargetPosition
from ops.bridge.targets import alertmanager, alertmanager_silences, pagerduty, webhook
from ops.bridge.targets.text import Links
from schemas import topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leadership
from schemas.kafka.letters import LetterBox
from schemas.process.ending import ending
from schemas.process.eventlog import EventLog
from schemas.process.lag import LogLag
from schemas.records import Silence
from schemas.units import US_PER_S, ns_to_us

PROCESS: Final = "bridge"
STATUS_S: Final = 10.0
# Holds and silences end so much later: a record that the broker took before must not come after,
# also where its clock is behind ours.
EDGES_US: Final = 5 * US_PER_S
MASK: Final = "***"
# How often a standby asks what the targets have taken, and forgets it.
FORGET_S: Final = 10.0


# Silences, and all pages that are told or ended lately.
_Mirrored = tuple[list[Silence], list[Page]]


@dataclass(slots=True)
class _Stream:
    """A target that is told one thing after the other, and what it has taken before.

    `begun` is known once this process leads and has read all; None: it does not yet.
    """

    delivery: StreamDelivery
    kept: TargetPosition
    begun: Position | None = None


class Service:
    """Runs the pager between the topics and the targets until told to stop."""

    def __init__(self, settings: KafkaSettings, codec: Codec, config: BridgeConfig) -> None:
        self.pager = Pager(config.pager())
        self.lag = LogLag()
        self.records = Counter({topic.name: 0 for topic in INPUTS})
        self.dead_letters = Counter({topic.name: 0 for topic in INPUTS})
        self.deliveries: list[Delivery] = []
        self._settings = settings
        self._codec = codec
        self._config = config
        self._log = EventLog(PROCESS)
        self._links = Links(page=config.settings.page_url, runbook=config.settings.runbook_url)
        self._streams: list[_Stream] = []
        self._states: list[StateDelivery[Sequence[Page]]] = []
        self._mirrors: list[StateDelivery[_Mirrored]] = []
        self._silences_changed = False
        # For the thread of a scrape.
        self.leads = False
        self.open_pages = self.silenced = 0
        self.read_us = 0
        # What follows from the topics, until it is known what the targets have taken of it.
        self._history: list[Notification] = []
        self._leadership: Leadership | None = None
        self._begun = self._away = False
        self._next_offset = 0
        self._stopping = False
        self._ready = False

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Run until `stop`.

        Raises
        ------
        BrokerError
            If Kafka cannot be read.
        ConfigError
            If a target's certificates cannot be used.
        """
        for target in self._config.targets:
            self._add(target)
        inbox = Inbox(self._settings, self._codec, self.lag)
        letters = LetterBox(self._settings, PROCESS, self._log)
        try:
            inbox.start()
            for stream in self._streams:
                # Whether they may be read is to be known at the start.
                stream.kept.read()
            self._leadership = Leadership(self._settings, PROCESS, topics.FAULT_EVENT, self._log)
            self._loop(inbox, letters, self._leadership)
        finally:
            with ending():
                for delivery in self.deliveries:
                    delivery.stop()
                for stream in self._streams:
                    stream.kept.close()
                letters.close()
                if self._leadership is not None:
                    self._leadership.close()
                inbox.close()
            self._log.info("bridge.stopped", **self._status())

    def waits_for(self) -> str | None:
        """Return why it is not ready; None: it is. Any thread."""
        return None if self._ready else "reading transitions, silences and notes"

    def preview(self) -> list[dict[str, Any]]:
        """Return what would be sent now, without sending it; nothing secret is in it.

        Raises
        ------
        BrokerError
            If Kafka cannot be read.
        """
        begun: dict[str, Position | None] = {}
        for target in self._config.targets:
            with closing(TargetPosition(self._settings, target.name)) as kept:
                begun[target.name] = kept.read()
        told: list[Notification] = []
        inbox = Inbox(self._settings, self._codec, self.lag)
        # What the broker has just taken settles a moment after the rest.
        began_us = ns_to_us(time.time_ns())
        try:
            inbox.start()
            while not (self._stopping or (inbox.caught_up and inbox.settled_us >= began_us)):
                inbox.poll()
                for received in inbox.settled():
                    told += self._apply(received)
            told += self.pager.advance(inbox.settled_us - EDGES_US)
        finally:
            inbox.close()
        found: list[dict[str, Any]] = []
        for target in self._config.targets:
            if target.kind == ALERTMANAGER:
                bodies = list(self._alerts(self.pager.firing() + self.pager.ended()))
            else:
                position = begun[target.name] or self._first_position()
                due = [n for n in told if n.position > position]
                masked = TargetConfig(
                    name=target.name, kind=target.kind, url=target.url, mode=target.mode,
                    secret=MASK if target.kind == PAGERDUTY else None,
                )  # fmt: skip
                posts = (self._post_of(masked, notification) for notification in due)
                bodies = [post[0] for post in posts if post is not None]
            found += [
                {"target": target.name, "url": target.url, "body": json.loads(body)}
                for body in bodies
            ]
            if target.mirror_silences:
                pages = self.pager.firing() + self.pager.ended()
                found += [
                    {
                        "target": f"{target.name}-silences",
                        "url": target.url,
                        "body": alertmanager_silences.body(silence, pages),
                    }
                    for silence in self.pager.silences()
                ]
        return found

    def _loop(self, inbox: Inbox, letters: LetterBox, leadership: Leadership) -> None:
        next_status_s = time.monotonic() + STATUS_S
        next_forget_s = time.monotonic() + FORGET_S
        while not self._stopping:
            for refused in inbox.poll():
                self._refuse(refused, letters)
            self.leads, self._away = leadership.poll(), inbox.away
            if self.leads:
                letters.write()
            elif leadership.settled:
                letters.discard()
            told: list[Notification] = []
            for received in inbox.settled():
                told += self._apply(received)
            self.read_us = inbox.settled_us
            if inbox.caught_up:
                told += self.pager.advance(inbox.settled_us - EDGES_US)
            self._tell(told)
            if inbox.caught_up and self.leads and not self._begun:
                self._begin()
            elif not self._begun and time.monotonic() >= next_forget_s:
                next_forget_s = time.monotonic() + FORGET_S
                self._forget_taken()
            if inbox.caught_up and leadership.settled and not self._ready:
                self._ready = True
                self._log.info("bridge.ready", pages=len(self.pager.firing()), **self.records)
            if time.monotonic() >= next_status_s:
                next_status_s = time.monotonic() + STATUS_S
                self._log.info("bridge.metrics", **self._status())

    def _apply(self, received: Received) -> list[Notification]:
        self.records[received.topic] += 1
        record = received.record
        if received.topic == topics.SILENCE.name:
            self._silences_changed = True
            return self.pager.apply_silence(received.key, record, received.at_us)
        if record is None:
            return []
        if received.topic == topics.INCIDENT_NOTE.name:
            return self.pager.apply_note(record, received.at_us)
        self._next_offset = received.offset + 1
        return self.pager.apply_fault(record, received.at_us)

    def _tell(self, told: Sequence[Notification]) -> None:
        """Hand notifications to the targets that have not taken them before."""
        for notification in told:
            page, action = notification.page, notification.action
            if self._begun and page is not None and action is not None:
                self._log.info(
                    f"page.{action.value}",
                    page_id=page.page_id,
                    faults=len(page.faults),
                    severity=page.labels["severity"],
                    reason=page.end_reason,
                )
        for stream in self._streams:
            if stream.begun is not None:
                due = [n for n in told if n.position > stream.begun]
                if due:
                    stream.delivery.put(due)
        if self._streams and not self._begun:
            self._history += told
        if told:
            self.open_pages, self.silenced = len(self.pager.firing()), self.pager.silenced()
        if self._begun and (told or self._silences_changed):
            self._set_state(changed=any(n.page is not None for n in told))

    def _begin(self) -> None:
        """All is read: tell Alertmanager what is open, and each target what it has not taken."""
        self._begun = True
        for stream in self._streams:
            stream.begun = stream.kept.read()
            if stream.begun is None:
                stream.begun = self._first_position()
                # Before anything is sent: a crash must not make it new once more.
                stream.delivery.begin(stream.begun)
            stream.delivery.put([n for n in self._history if n.position > stream.begun])
        self._history.clear()
        self._set_state(changed=True)
        for delivery in self.deliveries:
            delivery.start()

    def _forget_taken(self) -> None:
        """Forget what all targets have taken from the leader."""
        taken = [stream.kept.read_now() for stream in self._streams]
        known = [position for position in taken if position is not None]
        if known and len(known) == len(taken):
            self._history = [n for n in self._history if n.position > min(known)]

    def _first_position(self) -> Position:
        """Return where a new target begins: before the oldest page that is open."""
        begun = [page.since_us for page in self.pager.firing()]
        return Position(min(begun, default=self.pager.now_us), 0)

    def _may_post(self) -> bool:
        return self._leadership is not None and self._leadership.holds

    def _may_repeat(self) -> bool:
        """Return whether pages may be told as they are.

        Alertmanager ends an alert that nobody repeats. While no broker answers nobody takes over,
        and nothing new is known: who led last repeats.
        """
        return self._may_post() or (self._begun and self._away)

    def _set_state(self, *, changed: bool) -> None:
        pages = self.pager.firing() + self.pager.ended()
        for state in self._states:
            state.put(pages, self.pager.now_us, changed=changed)
        mirrored = self.pager.silences(), pages
        changed |= self._silences_changed
        self._silences_changed = False
        for mirror in self._mirrors:
            mirror.put(mirrored, self.pager.now_us, changed=changed)

    def _add(self, target: TargetConfig) -> None:
        client = Client(timeout_s=self._config.settings.timeout_s, ca_file=target.ca_file)
        given = self._config.settings
        if target.kind == ALERTMANAGER:
            url, headers = alertmanager.endpoint(target.url), _headers(target)

            def post_all(pages: Sequence[Page]) -> Answer:
                answer = Answer(Outcome.DELIVERED)
                for body in self._alerts(pages):
                    answer = client.post(url, body, headers)
                    if answer.outcome is not Outcome.DELIVERED:
                        return answer
                return answer

            state = StateDelivery(
                target.name, self._log, post_all, given.resend_s, may=self._may_repeat
            )
            self._states.append(state)
            self.deliveries.append(state)
            if target.mirror_silences:
                self._add_mirror(target, client)
            return
        kept = TargetPosition(self._settings, target.name)
        stream = StreamDelivery(
            target.name,
            self._log,
            self._poster(client, target),
            lambda position: kept.write(position, max(0, self._next_offset - stream.pending)),
            may=self._may_post,
        )
        self._streams.append(_Stream(stream, kept))
        self.deliveries.append(stream)

    def _add_mirror(self, target: TargetConfig, client: Client) -> None:
        """Have Alertmanager's silences be ours; a delivery of its own, so that no page waits."""
        base, headers = target.url.rstrip("/"), _headers(target)

        def mirror(state: _Mirrored) -> Answer:
            answer = client.get(f"{base}{alertmanager_silences.PATH}", headers)
            if answer.outcome is not Outcome.DELIVERED:
                return answer
            try:
                there = json.loads(answer.body)
            except ValueError:
                return Answer(Outcome.FAILED, "its silences are no JSON")
            silences, pages = state
            now_us = ns_to_us(time.time_ns())
            made, ended = alertmanager_silences.changes(
                silences, pages, there, self._settings.cluster, now_us
            )
            for body in made:
                answer = client.post(f"{base}{alertmanager_silences.PATH}", body, headers)
                if answer.outcome is not Outcome.DELIVERED:
                    return answer
            for one in ended:
                answer = client.delete(f"{base}{alertmanager_silences.ONE}{one}", headers)
                if answer.outcome is not Outcome.DELIVERED:
                    return answer
            return answer

        name, resend_s = f"{target.name}-silences", self._config.settings.resend_s
        state = StateDelivery(name, self._log, mirror, resend_s, may=self._may_post)
        self._mirrors.append(state)
        self.deliveries.append(state)

    def _poster(
        self, client: Client, target: TargetConfig
    ) -> Callable[[Notification], Answer | None]:
        def post(notification: Notification) -> Answer | None:
            made = self._post_of(target, notification)
            if made is None:
                return None
            body, headers = made
            return client.post(target.url, body, {**_headers(target), **headers})

        return post

    def _post_of(
        self, target: TargetConfig, notification: Notification
    ) -> tuple[bytes, dict[str, str]] | None:
        """Return what a target is sent of a notification; None: nothing."""
        if target.kind == PAGERDUTY:
            body = pagerduty.body(notification, target.secret or "", self._links)
            return None if body is None else (body, {"content-type": "application/json"})
        now_s = int(time.time())
        return webhook.post_of(notification, target.mode, target.secret, now_s, self._links)

    def _alerts(self, pages: Sequence[Page]) -> list[bytes]:
        keep_us = round(alertmanager.KEPT * self._config.settings.resend_s * US_PER_S)
        now_us = time.time_ns() // 1_000
        return list(alertmanager.bodies(pages, now_us, keep_us, self._links))

    def _refuse(self, refused: Refused, letters: LetterBox) -> None:
        message, error = refused
        name = str(message.topic())
        self.dead_letters[name.removeprefix(self._settings.topic_prefix)] += 1
        self._log.warning("record.refused", place=str(error)[:300])
        letters.put(error, message)

    def _status(self) -> dict[str, int]:
        found = {"pages": self.open_pages, "silenced": self.silenced}
        for delivery in self.deliveries:
            found[f"{delivery.name}_pending"] = delivery.pending
            found |= {f"{delivery.name}_{o}": n for o, n in delivery.outcomes.items()}
        return found


def _headers(target: TargetConfig) -> dict[str, str]:
    found = {"content-type": "application/json"}
    return found | ({"authorization": f"Bearer {target.token}"} if target.token else {})
