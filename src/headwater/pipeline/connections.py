"""A `Connection` in the words of Spark's Kafka connector: Java's names for what librdkafka calls otherwise.

Spark's workers read the certificates that librdkafka is given as files here, on the driver, once: Java takes a
certificate and its key only together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.client import Connection
from headwater.pipeline.errors import BadOption

__all__ = ["java_options"]

_PREFIX = "kafka."  # of an option that Spark hands on to the Kafka client
_SAME_NAME = frozenset({"security.protocol", "client.id", "client.rack", "ssl.key.password"})
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_HANDLED = frozenset(
    {
        *_SAME_NAME,
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)


def java_options(connection: Connection) -> dict[str, str]:
    """The options of `format("kafka")` that reach the same broker in the same way."""
    given = connection.options
    unknown = sorted(set(given) - _HANDLED)
    if unknown:
        raise BadOption(
            f"connection: {unknown[0]!r} cannot be said to Spark's Kafka connector; it understands "
            f"{', '.join(sorted(_HANDLED))}"
        )
    options = {name: value for name, value in given.items() if name in _SAME_NAME}
    options.update(_sasl(given))
    options.update(_trust(given))
    options.update(_identity(given))
    options["bootstrap.servers"] = connection.bootstrap_servers
    return {_PREFIX + name: value for name, value in options.items()}


def _sasl(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise BadOption(f"connection: sasl.mechanism is {mechanism!r}; say one of {', '.join(_LOGIN_MODULES)}")
    user, password = (_jaas_quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _trust(given: Mapping[str, str]) -> dict[str, str]:
    authority = _pem(given, "ssl.ca")
    return {} if authority is None else {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}


def _identity(given: Mapping[str, str]) -> dict[str, str]:
    certificate, key = _pem(given, "ssl.certificate"), _pem(given, "ssl.key")
    if certificate is None or key is None:
        return {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate,
        "ssl.keystore.key": key,
    }


def _pem(given: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in given:
        return given[f"{name}.pem"]
    location = given.get(f"{name}.location")
    if location is None:
        return None
    try:
        return Path(location).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"connection: {name}.location: cannot read {location}: {error}") from error


def _jaas_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
