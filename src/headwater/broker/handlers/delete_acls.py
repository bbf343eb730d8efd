"""DeleteAcls 1-3: refused, for there is no authorizer."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.handlers.describe_acls import NO_AUTHORIZER
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 31


def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
