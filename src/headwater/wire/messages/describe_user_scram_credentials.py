"""DescribeUserScramCredentials, Kafka's API 50, version 0."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int8, int16, int32, string

__all__ = [
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "UserName",
]


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Struct):
    users: tuple[UserName, ...] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(DescribeUserScramCredentialsResult)
