"""A recording as partitioned Parquet files, for DuckDB, polars, Spark and notebooks.

`OUT/<topic>/date=<day>/hour=<hour>/<number>.parquet`, by the Kafka timestamp in UTC: the layout
that these tools read as a partitioned table. The fields of a record are columns; where it stood in
Kafka is in columns that begin with an underscore.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from ops.recording import manifest as manifests
from ops.recording.container import ContainerReader, DamageError
from ops.recording.shape import shape_of
from ops.recording.writer import prepare_folder
from schemas.topics import BY_NAME

# Of a file's compressed blocks so many become one file in each hour that they touch: some hundred
# MB of memory, and Parquet files of the size that readers like.
CHUNK_BYTES: Final = 16 * 2**20
# As Hive and its readers call what has no value.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
PLACE: Final = {
    "partition": "_partition",
    "offset": "_offset",
    "timestamp_ms": "_timestamp",
    "key": "_key",
    "headers": "_headers",
    "key_bytes": "_key_bytes",
    "value_bytes": "_value_bytes",
    "decode_error": "_decode_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What became of a topic's file; `damage` says where it is broken, None: nowhere."""

    topic: str
    records: int
    files: int
    damage: DamageError | None = None


def export(
    folder: Path, out: Path, progress: Callable[[Exported], None] = lambda _: None
) -> list[Exported]:
    """Write all topics of a recording into a new folder; what stands before a damage is written.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    DamageError
        If the manifest cannot be read.
    NotEmptyError
        If there is something in the folder `out`.
    """
    manifest = manifests.load(folder)
    prepare_folder(out)
    done = []
    for name, told in manifest.topics.items():
        done.append(_export_topic(name, folder / told.file, out / name))
        progress(done[-1])
    return done


def _export_topic(name: str, path: Path, out: Path) -> Exported:
    records = files = 0
    damage: DamageError | None = None
    try:
        for number, chunk in enumerate(_chunks(name, path)):
            frame = _flat(chunk)
            files += _write(frame, out, number)
            records += len(frame)
    except DamageError as error:
        damage = error
    return Exported(topic=name, records=records, files=files, damage=damage)


def _chunks(name: str, path: Path) -> Iterator[pl.DataFrame]:
    """Yield the file's records in parts; what is whole before a damage, then the damage."""
    try:
        reader = ContainerReader(path, shape_of(BY_NAME[name]).plain)
    except OSError as error:
        raise DamageError(path, 0, error.strerror or str(error)) from error
    try:
        parts = [header := reader.header()]
        size = 0
        try:
            for span in reader.spans():
                reader.content(span)  # raises where the block is broken
                parts.append(reader.raw(span))
                size += span.size
                if size >= CHUNK_BYTES:
                    yield pl.read_avro(io.BytesIO(b"".join(parts)))
                    parts, size = [header], 0
        except DamageError:
            if size:
                yield pl.read_avro(io.BytesIO(b"".join(parts)))
            raise
        if size:
            yield pl.read_avro(io.BytesIO(b"".join(parts)))
    finally:
        reader.close()


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the records with their fields as columns, and all times in UTC."""
    value = frame.select("value").unnest("value") if _is_struct(frame) else pl.DataFrame()
    place = frame.select(
        pl.col("value").is_null().alias("_tombstone"),
        *(pl.col(name).alias(ours) for name, ours in PLACE.items() if name in frame.columns),
    )
    flat = pl.concat([value, place], how="horizontal")
    return flat.cast({name: _in_utc(dtype) for name, dtype in flat.schema.items()})


def _is_struct(frame: pl.DataFrame) -> bool:
    return isinstance(frame.schema["value"], pl.Struct)


def _in_utc(dtype: pl.DataType) -> pl.DataType:
    """Return the type with its times in UTC, as Avro means them; polars reads them as local."""
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime(dtype.time_unit, "UTC")
    if isinstance(dtype, pl.List):
        return pl.List(_in_utc(_instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: _in_utc(_instance(f.dtype)) for f in dtype.fields})
    return dtype


def _instance(dtype: Any) -> pl.DataType:
    """Return a type as polars' schemas hold it: as an instance, not as its class."""
    return cast(pl.DataType, dtype() if isinstance(dtype, type) else dtype)


def _write(frame: pl.DataFrame, out: Path, number: int) -> int:
    """Write a file for each hour; return how many."""
    at = pl.col("_timestamp")
    hours = frame.with_columns(
        date=at.dt.strftime("%Y-%m-%d").fill_null(NO_VALUE),
        hour=at.dt.strftime("%H").fill_null(NO_VALUE),
    ).partition_by("date", "hour", as_dict=True, include_key=False)
    for (date, hour), part in hours.items():
        folder = out / f"date={date}" / f"hour={hour}"
        folder.mkdir(parents=True, exist_ok=True)
        part.write_parquet(folder / f"{number:06}.parquet", compression="zstd")
    return len(hours)
