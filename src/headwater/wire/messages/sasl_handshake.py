"""SaslHandshake, Kafka's API 17, versions 0 to 1."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, string

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeRequest(Struct):
    mechanism: str = string()


class SaslHandshakeResponse(Struct):
    error_code: int = int16()
    mechanisms: tuple[str, ...] = array(string)
