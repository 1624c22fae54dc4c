"""Kafka records to typed events inside the JVM, so that no event is a Python object.

How it works: `from_json` with a strict schema gives each stream's record a struct of its typed fields. Whatever the
JVM might read otherwise than `rules.events.parse_event` is `suspect`: only such a record keeps its raw bytes, and the
packer asks `parse_event` itself what it means. So the two agree by construction, and tests feed both the same records.

What it does not do: say why a record cannot be used.

Known limitation: a stream whose ordinary records are suspect (amounts below a thousandth or above ten million as JSON
numbers with a fraction, twelve-digit strings in place of times) is parsed in Python, at a tenth of the speed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses
from pyspark.sql import types as T  # noqa: N812

from rules.events import MAX_NESTING, MAX_STRING
from rules.streams import Stream
from rules.types import FieldType, Kind
from streaming.wire import SENT_AT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# No single quotes, no NaN: JSON, as parse_event reads it.
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}

# Patterns end in \z: to Java, $ is also the place before a final line break.
# A number with a fraction or exponent reaches a string field by way of a double: these texts may not be what was sent.
_RETOLD = r"^(?:[\[{\"]|0\z|-?[0-9]+\.[0-9])"
# A double holds every number of up to 15 digits; a longer one, or one with an exponent, may lose some on its way.
_LONG_NUMBER = r":\s*-?(?:[0-9.]{17}|[0-9.]+[eE])"
_SMALL_OR_LARGE = r"^-?[0-9]\.[0-9]{1,14}E(?:-[1-4]|[0-9]{1,2})\z"
_MILLISECONDS = r"^[1-9][0-9]{11,12}\z"
_ISO = (
    r"^(?:19|2[0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}"
    r"(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])\z"
)
_HALF_A_PAIR = r"\\u[dD][89a-fA-F]"
# What follows an object: a record that goes on after its own end may do so unseen inside the object it stands in.
_GOES_ON = r"\}\s*,"
# More brackets than a record may have levels; each part is taken as a whole, so that nothing is tried twice.
_DEEP = rf"^(?:[^\[{{]*+[\[{{]){{{MAX_NESTING + 1}}}"


def parsed(records: DataFrame, streams: Iterable[Stream]) -> DataFrame:
    """Kafka source rows (with headers) as topic, partition, offset, timestamp, sent_at, raw and one struct a stream.

    sent_at: bigint µs of the header, or NULL. raw: binary, for records of other topics and suspect ones; an event of a
    stream has either its struct (`column_of`) or its raw bytes.
    """
    streams = list(streams)
    of_a_topic = {stream.name: F.col("topic") == stream.topic for stream in streams}
    value = F.col("text")
    known = records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.expr(f"try_cast(cast(get(filter(headers, h -> h.key = '{SENT_AT}'), 0).value AS string) AS bigint)").alias(
            SENT_AT
        ),
        "value",
        F.col("value").cast("string").alias("text"),
    )
    # The record stands inside an object of ours that ends with a key nobody can guess: if that key is seen, and no
    # third one, the record was one whole JSON value without anything before or after it.
    end = uuid.uuid4().hex
    wrapped = F.concat(F.lit('{"record":'), value, F.lit(f',"{end}":true}}'))
    read = known.select(
        "*",
        *(
            F.when(of_a_topic[stream.name], F.from_json(wrapped, _schema(stream, end), _OPTIONS)).alias(
                _read_column(stream)
            )
            for stream in streams
        ),
    )
    typed = read.select(
        "*",
        *(F.struct(*(_typed(stream, name) for name in stream.fields)).alias(column_of(stream)) for stream in streams),
    )
    usable = {stream.name: of_a_topic[stream.name] & ~_suspect(stream, end, value, wrapped) for stream in streams}
    any_usable = F.coalesce(*(F.when(usable[stream.name], F.expr("true")) for stream in streams))
    return typed.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        SENT_AT,
        F.when(any_usable.isNull(), F.coalesce("value", F.lit(b""))).alias("raw"),
        *(F.when(usable[stream.name], F.col(column_of(stream))).alias(column_of(stream)) for stream in streams),
    )


def column_of(stream: Stream) -> str:
    """The name of the stream's struct column."""
    return f"event_{stream.name}"


def _read_column(stream: Stream) -> str:
    return f"read_{stream.name}"


def _schema(stream: Stream, end: str) -> T.StructType:
    record = T.StructType([T.StructField(name, _json_type(kind)) for name, kind in stream.fields.items()])
    return T.StructType(
        [
            T.StructField("record", record),
            T.StructField(end, T.BooleanType()),
            T.StructField("corrupt", T.StringType()),
        ]
    )


def _json_type(kind: FieldType) -> T.DataType:
    # Decimals and times are read as text: only that tells what was written.
    exact = {Kind.INT64: T.LongType(), Kind.DOUBLE: T.DoubleType(), Kind.BOOLEAN: T.BooleanType()}
    return exact.get(kind.kind, T.StringType())


def _field(stream: Stream, name: str) -> Column:
    return F.col(f"{_read_column(stream)}.record.`{name}`")


def _typed(stream: Stream, name: str) -> Column:
    field, kind = _field(stream, name), stream.fields[name]
    if kind.kind is Kind.DECIMAL:
        return field.try_cast(T.DecimalType(kind.precision, kind.scale)).alias(name)
    if kind.kind is Kind.TIMESTAMP:
        milliseconds = F.timestamp_millis(field.try_cast("bigint"))
        return F.when(field.rlike(_MILLISECONDS), milliseconds).otherwise(field.try_cast("timestamp")).alias(name)
    return field.alias(name)


def _suspect(stream: Stream, end: str, value: Column, wrapped: Column) -> Column:
    """Whether parse_event has to be asked; never NULL for a record of the stream."""
    read, kinds = _read_column(stream), stream.fields
    named = {name: _field(stream, name) for name in kinds}
    identity = named[stream.event_id]
    time = F.col(f"{column_of(stream)}.`{stream.event_time}`")
    latest = F.col("timestamp") + F.expr(f"make_dt_interval(0, 0, 0, {stream.max_future_skew / 1_000_000:.6f})")
    doubts = [
        F.col(f"{read}.corrupt").isNotNull(),
        F.col(f"{read}.`{end}`").isNull(),
        identity.isNull() | (identity == ""),
        time.isNull() | (time > latest),
        ~F.expr("is_valid_utf8(text)"),
        F.contains(value, F.lit("\\")) & value.rlike(_HALF_A_PAIR),
        *(_doubt(stream, name, value) for name in kinds),
        value.rlike(_DEEP),
        value.rlike(_GOES_ON) & (F.size(F.json_object_keys(wrapped)) > 2),
    ]
    if any(kind.kind is Kind.DECIMAL for kind in kinds.values()):
        doubts.append(value.rlike(_LONG_NUMBER))
    # Of a required field an explicit null is a value, and absence is missing_field: only the keys tell the two apart,
    # and most records have no nulls.
    required = [name for name in kinds if name not in stream.optional]
    nothing = _any([named[name].isNull() for name in required])
    absent = F.size(F.array_except(F.array(*(F.lit(name) for name in required)), F.json_object_keys(value))) > 0
    return F.coalesce(_any(doubts) | F.when(nothing, absent).otherwise(F.expr("false")), F.expr("true"))


def _doubt(stream: Stream, name: str, value: Column) -> Column:
    """Whether this field's text or number may stand for something else; False for NULL."""
    field, kind = _field(stream, name), stream.fields[name]
    match kind.kind:
        case Kind.STRING:
            doubt = field.rlike(_RETOLD) | (F.length(field) > MAX_STRING)
        case Kind.DOUBLE:
            doubt = F.isnan(field) | (F.abs(field) == F.lit(float("inf")))
        case Kind.DECIMAL:
            plain = rf"^-?[0-9]{{1,{max(1, kind.precision - kind.scale)}}}" + (
                rf"(?:\.[0-9]{{1,{kind.scale}}})?\z" if kind.scale else r"\z"
            )
            held = F.col(f"{column_of(stream)}.`{name}`")
            same = held.cast("decimal(38,18)") == field.try_cast("decimal(38,18)")
            doubt = held.isNull() | ~(
                field.rlike(plain) | (field.rlike(_SMALL_OR_LARGE) & F.coalesce(same, F.expr("false")))
            )
        case Kind.TIMESTAMP:
            digits = field.rlike(_MILLISECONDS)
            # A time in milliseconds is a number; the same digits between quotes are no time at all.
            quoted = F.contains(value, F.concat(F.lit('"'), field, F.lit('"'))) | F.contains(value, F.lit("\\"))
            doubt = F.when(digits, quoted).otherwise(
                ~field.rlike(_ISO) | F.col(f"{column_of(stream)}.`{name}`").isNull()
            )
        case _:
            return F.expr("false")
    return field.isNotNull() & F.coalesce(doubt, F.expr("true"))


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found |= condition
    return found
