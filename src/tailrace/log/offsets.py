"""Where a reader of the log starts: one type for Spark and for plain consumers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tailrace.errors import SettingsError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_EXPLICIT = re.compile(r"\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """earliest, latest, the first record at or after a moment, or an offset for each partition.

    With a moment later than every record of a partition, reading starts at that partition's end. A partition that
    explicit offsets do not name is read from its beginning.
    """

    at: str = "earliest"
    moment: datetime | None = None
    partitions: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def earliest(cls) -> StartingOffsets:
        return cls("earliest")

    @classmethod
    def latest(cls) -> StartingOffsets:
        return cls("latest")

    @classmethod
    def since(cls, moment: datetime) -> StartingOffsets:
        """`moment` without a time zone is UTC."""
        aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return cls("moment", moment=aware.astimezone(timezone.utc))

    @classmethod
    def explicit(cls, partitions: Mapping[int, int]) -> StartingOffsets:
        """Partition -> the first offset to read."""
        return cls("explicit", partitions=dict(sorted(partitions.items())))

    @classmethod
    def parse(cls, text: str) -> StartingOffsets:
        """`earliest`, `latest`, an ISO 8601 moment, or `0:120,1:88` (partition:offset)."""
        word = text.strip()
        if word in ("earliest", "latest"):
            return cls(word)
        if _EXPLICIT.fullmatch(word):
            return cls.explicit({int(p): int(o) for p, o in (pair.split(":") for pair in word.split(","))})
        try:
            return cls.since(datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", word)))
        except ValueError:
            raise SettingsError(
                f"Starting offsets {text!r} are not understood.",
                "Write earliest, latest, a moment such as 2026-11-15T21:00:00Z, or partition:offset pairs "
                "such as 0:120,1:88.",
            ) from None

    def __str__(self) -> str:
        """The text that `parse` reads back."""
        if self.moment:
            return self.moment.isoformat().replace("+00:00", "Z")
        if self.at == "explicit":
            return ",".join(f"{partition}:{offset}" for partition, offset in self.partitions.items())
        return self.at

    def spark_options(self, topic: str, partitions: int | None = None) -> dict[str, str]:
        """Options of Spark's Kafka source. Spark wants explicit offsets for every partition: say how many there are,
        and those not named start at their beginning."""
        if self.moment:
            return {
                "startingTimestamp": str(self._millis()),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        if self.at == "explicit":
            rest = {str(number): -2 for number in range(partitions or 0)}
            named = {str(number): offset for number, offset in self.partitions.items()}
            return {"startingOffsets": json.dumps({topic: {**rest, **named}})}
        return {"startingOffsets": self.at}

    def for_consumer(self, consumer: Consumer, topic: str, timeout: float = 10.0) -> list[TopicPartition]:
        """What to hand to `consumer.assign`: every partition of the topic with the offset to start at."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

        metadata = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if metadata.error is not None:
            raise SettingsError(
                f"Topic {topic!r} cannot be read: {metadata.error.str()}.", "Create it with `tailrace topics apply`."
            )
        numbers = sorted(metadata.partitions)
        if self.moment:
            asked = [TopicPartition(topic, number, self._millis()) for number in numbers]
            return list(consumer.offsets_for_times(asked, timeout=timeout))
        fixed = OFFSET_END if self.at == "latest" else OFFSET_BEGINNING
        return [TopicPartition(topic, number, self.partitions.get(number, fixed)) for number in numbers]

    def _millis(self) -> int:
        assert self.moment is not None
        return round(self.moment.timestamp() * 1000)
