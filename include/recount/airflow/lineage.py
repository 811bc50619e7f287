"""Lineage of a stream for Airflow's OpenLineage provider: topics, Delta tables, and what each field is made of.

Nothing of OpenLineage is imported before the provider asks a running task, and it asks where a transport is configured
(docs/lineage.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recount.declare.columns import INTERNAL
from recount.declare.groups import Archive
from recount.declare.operators.keys_and_fields import Origins, Places, origins
from recount.declare.operators.nodes import KEY
from recount.declare.registry import Stream, declared
from recount.declare.schema import FieldType
from recount.declare.topics import Topic
from recount.declare.topology import Written
from recount.runtime.settings import Settings
from recount.tables.places import Tables

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""By the scheme of a URI the one by which OpenLineage calls it; names in these have no slash before them."""


@dataclass(frozen=True, kw_only=True)
class StreamLineage:
    """The datasets of ``streams`` in the installation with these ``settings``."""

    settings: Settings
    streams: Sequence[Stream]

    @classmethod
    def of(cls, *names: str) -> StreamLineage:
        settings = Settings.from_environment(os.environ)
        declarations = declared(settings.topologies)
        return cls(settings=settings, streams=[declarations.stream(name) for name in names])

    def running(self) -> OperatorLineage[Any, Any]:
        """From the source topics to the topics and tables that the streams write."""
        return _lineage(self.sources(), [made for stream in self.streams for made in self._written(stream)])

    def audited(self, certificate: str = "", match: bool | None = None) -> OperatorLineage[Any, Any]:
        """From source topics and outputs to the certificate, the path of whose page is empty before there is one.

        ``match`` is what it says of the outputs, None before it is known.
        """
        outputs = [self._judged(written, match) for written in self._sinks()]
        issued = Path(self.settings.reports, certificate).with_suffix(".json")
        return _lineage([*self.sources(), *outputs], [_output(*self._file(str(issued)))] if certificate else [])

    def corrected(self, *, only_shown: bool) -> OperatorLineage[Any, Any]:
        """From source topics and output tables to the topics and tables of corrections."""
        read = [_input(*self._file(self._tables.output(written.table))) for written in self._sinks()]
        made = [] if only_shown else [one for stream in self.streams for one in self._written(stream, corrected=True)]
        return _lineage([*self.sources(), *read], made)

    def sources(self) -> list[InputDataset]:
        """The topics that the streams read, each once."""
        topics: dict[str, Topic] = {}
        for stream in self.streams:
            read = [stream.topic] if isinstance(stream, Archive) else [source.topic for source in stream.sources]
            topics |= {topic.name: topic for topic in read}
        return [_input(*self._topic(one), facets=_schema(_columns(one))) for one in topics.values()]

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.data)

    def _sinks(self) -> list[Written]:
        return [written for stream in self.streams if not isinstance(stream, Archive) for written in stream.written]

    def _written(self, stream: Stream, *, corrected: bool = False) -> Iterable[OutputDataset]:
        if isinstance(stream, Archive):
            yield _output(*self._file(self._tables.archive(stream.topic.name)))
            return
        made = origins(stream)
        table_of = self._tables.corrections if corrected else self._tables.output
        for written in stream.written:
            facets = {**_schema(_fields(written)), **self._columns_of(written, made[written])}
            yield _output(*self._topic(written.topic), facets=facets)
            yield _output(*self._file(table_of(written.table)), facets=facets)

    def _judged(self, written: Written, match: bool | None) -> InputDataset:
        from openlineage.client.generated.data_quality_assertions_dataset import (
            Assertion,
            DataQualityAssertionsDatasetFacet,
        )

        place = self._file(self._tables.output(written.table))
        if match is None:
            return _input(*place)
        told = DataQualityAssertionsDatasetFacet(assertions=[Assertion(assertion="recount_audit", success=match)])
        return _input(*place, input_facets={"dataQualityAssertions": told})

    def _columns_of(self, written: Written, made: Origins) -> dict[str, Any]:
        """The facet with what each field is made of, and what decides about the rows."""
        from openlineage.client.generated import column_lineage_dataset as of_columns

        def places(found: Places, kind: str) -> list[of_columns.InputField]:
            namespace = self._brokers
            how = [of_columns.Transformation(type=kind)]
            return [
                of_columns.InputField(namespace=namespace, name=topic, field=field, transformations=how)
                for topic, field in sorted(found)
            ]

        fields = {
            shown: of_columns.Fields(inputFields=places(found, "DIRECT"))
            for shown, name in _names(written).items()
            if (found := made.fields.get(name))
        }
        facet = of_columns.ColumnLineageDatasetFacet(fields=fields, dataset=places(made.rows, "INDIRECT"))
        return {"columnLineage": facet}

    @property
    def _brokers(self) -> str:
        """The namespace of the topics: by OpenLineage's rule one broker stands for all."""
        return f"kafka://{self.settings.bootstrap_servers.split(',')[0].strip()}"

    def _topic(self, topic: Topic) -> tuple[str, str]:
        return self._brokers, topic.name

    @staticmethod
    def _file(path: str) -> tuple[str, str]:
        """Namespace and name of the folder or file at a path or URI."""
        uri = urlsplit(path)
        if uri.scheme in ("", "file"):
            return "file", str(Path(uri.path).absolute())
        if uri.scheme in _OBJECT_STORES:
            return f"{_OBJECT_STORES[uri.scheme]}://{uri.netloc}", uri.path.lstrip("/")
        return f"{uri.scheme}://{uri.netloc}", uri.path


def _names(written: Written) -> dict[str, str]:
    """Return for each field of an output record, the key included, its name in the topology."""
    named = {name: name for name in written.fields if not name.startswith(INTERNAL)}
    return named if written.key != KEY else {written.topic.key: KEY, **named}


def _fields(written: Written) -> dict[str, FieldType]:
    return {shown: written.fields[name] for shown, name in _names(written).items()}


def _columns(topic: Topic) -> dict[str, FieldType]:
    return dict(topic.value.fields) if topic.value else {}


def _schema(fields: dict[str, FieldType]) -> dict[str, Any]:
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

    if not fields:
        return {}
    told = [SchemaDatasetFacetFields(name=name, type=str(kind)) for name, kind in fields.items()]
    return {"schema": SchemaDatasetFacet(fields=told)}


def _input(
    namespace: str, name: str, facets: dict[str, Any] | None = None, input_facets: dict[str, Any] | None = None
) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(namespace=namespace, name=name, facets=facets or {}, inputFacets=input_facets or {})


def _output(namespace: str, name: str, facets: dict[str, Any] | None = None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset

    return OutputDataset(namespace=namespace, name=name, facets=facets or {})


def _lineage(inputs: list[Any], outputs: list[Any]) -> OperatorLineage[Any, Any]:
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(inputs=inputs, outputs=outputs)
