"""librdkafka's names in Java's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client import Connection
from headwater.pipeline.connections import java_options
from headwater.pipeline.errors import BadOption


def test_a_plain_address_is_all_there_is() -> None:
    assert java_options(Connection("host:1")) == {"kafka.bootstrap.servers": "host:1"}


def test_a_password_is_quoted_as_jaas_wants_it() -> None:
    options = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-256"}
    login = {"sasl.username": "ann", "sasl.password": 'a"b\\c'}
    found = java_options(Connection("host:1", {**options, **login}))
    assert found["kafka.sasl.mechanism"] == "SCRAM-SHA-256"
    assert found["kafka.sasl.jaas.config"].endswith('ScramLoginModule required username="ann" password="a\\"b\\\\c";')


def test_certificates_are_read_where_the_query_is_started(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-- {name}")
    given = {f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    found = java_options(Connection("host:1", given))
    assert found["kafka.ssl.truststore.certificates"] == "-- ca"
    assert found["kafka.ssl.keystore.certificate.chain"] == "-- certificate"
    assert found["kafka.ssl.keystore.key"] == "-- key"


def test_what_java_has_no_word_for_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"'sasl.kerberos.keytab' cannot be said"):
        java_options(Connection("host:1", {"sasl.kerberos.keytab": "x"}))
    with pytest.raises(BadOption, match=r"sasl\.mechanism is 'GSSAPI'; say one of PLAIN"):
        java_options(Connection("host:1", {"sasl.mechanism": "GSSAPI"}))
    with pytest.raises(BadOption, match=r"ssl\.ca\.location: cannot read"):
        java_options(Connection("host:1", {"ssl.ca.location": str(tmp_path / "absent")}))
