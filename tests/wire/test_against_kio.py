"""Every API in every version that we advertise, both directions, against an independent implementation."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.wire.apis import APIS, Api
from headwater.wire.codec import decode, encode
from wire.generate import every_version, random_message
from wire.oracle import Oracle, differences

SIDES = ("request", "response")
MESSAGES_A_VERSION = 12
SOAK_MESSAGES_A_VERSION = 400


@cache
def oracle(api_key: int, version: int, side: str) -> Oracle:
    return Oracle(api_key, version, side)


def check_one_message(api: Api, version: int, side: str, rng: random.Random) -> None:
    flexible = api.flexible(version)
    message = random_message(getattr(api, side), version, flexible, rng)
    judge = oracle(api.key, version, side)
    ours = encode(message, version=version, flexible=flexible)
    theirs, size = judge.decode(ours)
    assert size == len(ours)
    assert differences(message, theirs, version, flexible) == []
    assert judge.encode(theirs) == ours
    assert decode(type(message), ours, version=version, flexible=flexible) == (message, len(ours))


def check_all_versions(api: Api, messages: int) -> None:
    for version in range(api.max_version + 1):
        if api.supports(version):
            for side in SIDES:
                for seed in range(messages):
                    check_one_message(api, version, side, random.Random(f"{api.key} {version} {side} {seed}"))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_bytes_and_fields_are_those_of_kio_in_every_version(api: Api) -> None:
    check_all_versions(api, MESSAGES_A_VERSION)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(every_version()), st.sampled_from(SIDES), st.randoms(use_true_random=False))
def test_no_message_that_hypothesis_finds_is_read_differently(
    api_version: tuple[Api, int], side: str, rng: random.Random
) -> None:
    check_one_message(*api_version, side, rng)


@pytest.mark.soak
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_bytes_and_fields_are_those_of_kio_for_many_messages(api: Api) -> None:
    check_all_versions(api, SOAK_MESSAGES_A_VERSION)


def test_flexible_versions_and_headers_are_those_of_kio() -> None:
    for api, version in every_version():
        for side in SIDES:
            entity = oracle(api.key, version, side).entity
            assert entity.__flexible__ == api.flexible(version)
            header = {False: 1, True: 2}[api.flexible(version)]
            if side == "response":
                header = 0 if api.name == "ApiVersions" else header - 1
            assert entity.__header_schema__.__version__ == header
