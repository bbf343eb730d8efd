"""CreateAcls 1-3: refused, for there is no authorizer that would keep to them."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.handlers.describe_acls import NO_AUTHORIZER
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 30


def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=(refused,) * len(request.creations))
