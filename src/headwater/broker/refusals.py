"""Why one thing of a request is refused: the code and the words the client gets."""

from __future__ import annotations

from headwater.errors import BadInput
from headwater.wire.errors import ErrorCode

__all__ = ["Refusal"]


class Refusal(BadInput):
    """Answer this part of the request with `code` and `message`; the rest goes on."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
