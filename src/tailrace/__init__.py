"""Tailrace turns a website's requests into live data products, on Spark. These are its public names."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.intercept.asgi import Interceptor as Interceptor
    from tailrace.intercept.wsgi import WsgiInterceptor as WsgiInterceptor
    from tailrace.pipeline import enrich as enrich
    from tailrace.pipeline.definition import expect as expect
    from tailrace.pipeline.definition import iceberg as iceberg
    from tailrace.pipeline.definition import kafka as kafka
    from tailrace.pipeline.definition import log as log
    from tailrace.pipeline.definition import pipeline as pipeline
    from tailrace.pipeline.definition import postgres as postgres
    from tailrace.pipeline.dimension import dimension as dimension

__all__ = [
    "Interceptor",
    "WsgiInterceptor",
    "dimension",
    "enrich",
    "expect",
    "iceberg",
    "kafka",
    "log",
    "pipeline",
    "postgres",
]

# Loaded when first used: a site that only captures events must not load Spark.
_HOMES = {
    "Interceptor": "tailrace.intercept.asgi",
    "WsgiInterceptor": "tailrace.intercept.wsgi",
    "dimension": "tailrace.pipeline.dimension",
    "expect": "tailrace.pipeline.definition",
    "iceberg": "tailrace.pipeline.definition",
    "kafka": "tailrace.pipeline.definition",
    "log": "tailrace.pipeline.definition",
    "pipeline": "tailrace.pipeline.definition",
    "postgres": "tailrace.pipeline.definition",
}


def __getattr__(name: str) -> Any:
    if name == "enrich":
        return import_module("tailrace.pipeline.enrich")
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _Stage(ModuleType):
    """`log` and `pipeline` are stages of the data's way, and the words a user declares them with: the packages can be
    called."""

    def __call__(self, *values: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(_HOMES[name]), name)(*values, **options)


for _name in ("log", "pipeline"):
    import_module(f"tailrace.{_name}").__class__ = _Stage
