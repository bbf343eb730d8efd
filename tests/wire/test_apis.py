"""What we advertise is what a Kafka 4.3 broker does, less what we leave out; errors have Kafka's numbers."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kio.schema.errors import ErrorCode as TheirErrorCode

from headwater.wire.apis import APIS, PRODUCE
from headwater.wire.errors import ErrorCode

# Delegation tokens, quorum and brokers among themselves, share and streams groups.
LEFT_OUT = {38, 39, 40, 41, 64, *range(76, 93)} - {82}


def test_versions_are_those_of_a_kafka_4_3_broker() -> None:
    theirs = {int(key): tuple(versions) for key, versions in BROKER_API_VERSIONS[4, 3].items()}
    ours = {api.key: (api.min_version, api.max_version) for api in APIS.values()}
    assert ours == {key: versions for key, versions in theirs.items() if key not in LEFT_OUT}


def test_produce_advertises_versions_that_it_does_not_support() -> None:
    produce = APIS[PRODUCE]
    assert produce.min_version == 0
    assert [version for version in range(20) if produce.supports(version)] == list(range(3, 14))


def test_keys_and_names_lead_to_messages() -> None:
    for api in APIS.values():
        module = import_module(f"headwater.wire.messages.{api.module}")
        assert api.request is getattr(module, f"{api.name}Request")
        assert api.response is getattr(module, f"{api.name}Response")


def test_messages_are_not_imported_until_used() -> None:
    program = (
        "import sys, headwater.wire.frames, headwater.wire.apis;"
        "print([name for name in sys.modules if name.startswith('headwater.wire.messages.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_error_codes_are_those_of_kio() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {code.name.upper(): int(code) for code in TheirErrorCode}
