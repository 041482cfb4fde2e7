"""A declaration becomes a DataFrame: source, entry, function. What is wrong with it is said here, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import MEND, DefinitionError, TailraceError, raised
from tailrace.pipeline import logical
from tailrace.pipeline.absent import is_absent
from tailrace.pipeline.entry import EVENT, EVENT_COLUMNS, Entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from tailrace.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pipeline over one DataFrame of raw records."""

    pipeline: Pipeline
    entry: Entry
    classified: DataFrame
    result: DataFrame

    @property
    def schema(self) -> StructType:
        return self.result.schema

    @property
    def stateful(self) -> list[Any]:
        """The JVM plan nodes that keep state, top down."""
        return logical.stateful_nodes(logical.analysed(self.result))


def build(pipeline: Pipeline, raw: DataFrame, store: str | None, *, observe: bool = False) -> Compiled:
    """The pipeline over raw records. Raises DefinitionError for rules, columns and keys that do not fit."""
    entry = Entry(pipeline, store)
    whole = _over(entry, raw, observe)
    if not observe:
        return whole
    # Parsing makes only the fields that the optimized plan reads; all of them are judged in any case.
    fields = logical.fields_read(whole.result, EVENT)
    lean = (
        _over(replace(entry, fields=tuple(n for n in EVENT_COLUMNS if n in fields)), raw, observe) if fields else whole
    )
    return Compiled(pipeline, entry, whole.classified, lean.result)


def _over(entry: Entry, raw: DataFrame, observe: bool) -> Compiled:
    with _explained(entry.pipeline, "a rule"):
        classified = entry.classify(raw)
        counted = entry.observed(classified) if observe else classified
        events = entry.events(counted)
    return Compiled(entry.pipeline, entry, classified, apply(entry.pipeline, events))


def apply(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """Call the function and check what it returns against the sinks."""
    from pyspark.sql import DataFrame

    with _explained(pipeline, "the function"):
        result = pipeline.function(events)
    if not isinstance(result, DataFrame):
        raise DefinitionError(
            f"Pipeline {pipeline.name!r} returned {type(result).__name__}, not a DataFrame.",
            "End the function with `return` and the DataFrame that the sinks should get.",
        )
    columns = result.columns
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice:
        raise DefinitionError(
            f"Pipeline {pipeline.name!r} returns two columns named {twice!r}.", "Close the function with a select()."
        )
    for sink in pipeline.sinks:
        missing = next((name for name in sink.key if name not in columns), None)
        if missing:
            raise DefinitionError(
                f"Pipeline {pipeline.name!r}: the key column {missing!r} of sink {sink.name} is not in its output "
                f"({', '.join(columns)}).",
                "Add the column to the function's output, or correct the key.",
            )
        odd = next((name for name in sink.key if _has_no_form(result.schema[name].dataType)), None)
        if odd:
            raise DefinitionError(
                f"Pipeline {pipeline.name!r}: the key column {odd!r} of sink {sink.name} is an interval or a variant.",
                "Cast it to a string or a number in the function.",
            )
    return result


def _has_no_form(kind: DataType) -> bool:
    """Whether the type can stand in no key."""
    return any(word in kind.simpleString() for word in ("interval", "variant"))


class _explained:  # noqa: N801 - used as a statement
    """Turns what Spark or Python has against a pipeline into one sentence that names it. A service that does not answer
    is not the pipeline's fault, and its failure stays as it is."""

    def __init__(self, pipeline: Pipeline, part: str) -> None:
        self.pipeline = pipeline
        self.part = part

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        from pyspark.errors import PySparkException

        if not isinstance(problem, Exception) or isinstance(problem, TailraceError) or is_absent(problem):
            return
        said = logical.first_sentence(problem)
        if isinstance(problem, PySparkException):
            raise DefinitionError(
                f"Pipeline {self.pipeline.name!r}: {self.part} does not fit the data: {said}",
                f"The events have the columns {', '.join(EVENT_COLUMNS)}.",
            ) from problem
        file = Path(self.pipeline.function.__code__.co_filename)
        raise DefinitionError(
            f"Pipeline {self.pipeline.name!r}: {self.part} raised {raised(problem, file, said)}", MEND
        ) from problem
