"""A request becomes an event: three forms of one interceptor, the rules, and the outbox behind them."""

from tailrace.intercept.asgi import Interceptor
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.wsgi import WsgiInterceptor

__all__ = ["Interceptor", "Outbox", "WsgiInterceptor"]
