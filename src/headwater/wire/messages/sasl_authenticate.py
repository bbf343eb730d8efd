"""SaslAuthenticate, Kafka's API 36, versions 0 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, blob, int16, int64, string

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


class SaslAuthenticateRequest(Struct):
    auth_bytes: bytes = blob()


class SaslAuthenticateResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64("1+")
