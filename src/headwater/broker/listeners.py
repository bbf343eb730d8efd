"""Where the broker listens, and what it tells clients to connect to: `PLAINTEXT://127.0.0.1:9092`.

Neither TLS nor SASL is spoken, so listeners that ask for them are refused instead of served in the clear. Host 0.0.0.0
or [::] listens everywhere; clients are then told the address they reached the broker at, unless `advertised.listeners`
says something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import SettingError

__all__ = ["Listener", "parse_listeners"]

PLAINTEXT = "PLAINTEXT"
EVERYWHERE = "0.0.0.0"  # what an empty host means, as in Kafka
CONTROLLER = "CONTROLLER://"  # what Kafka's own example file also listens on; there is no other controller to talk to


@dataclass(frozen=True, slots=True)
class Listener:
    security: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.security}://{host}:{self.port}"


def parse_listeners(setting: str, texts: tuple[str, ...]) -> tuple[Listener, ...]:
    """`PROTOCOL://HOST:PORT`, or `HOST:PORT` for PLAINTEXT, each."""
    found = tuple(_parse(setting, text) for text in texts if not text.upper().startswith(CONTROLLER))
    if len({listener.security for listener in found}) != len(found):
        raise SettingError(f"{setting}: one listener for each security protocol, not {', '.join(map(str, found))}")
    return found


def _parse(setting: str, text: str) -> Listener:
    security, separator, address = text.rpartition("://")
    security = security.upper() if separator else PLAINTEXT
    host, _, port = address.rpartition(":")
    if security != PLAINTEXT:
        raise SettingError(
            f"{setting}: {text!r} asks for {security}, but this broker speaks PLAINTEXT only; listen on loopback or a "
            "private network, or put a TLS proxy before it"
        )
    if not port.isdigit() or int(port) > 65535:
        raise SettingError(f"{setting}: {text!r} must be PROTOCOL://HOST:PORT")
    return Listener(security, host.strip("[]") or EVERYWHERE, int(port))
