"""DescribeAcls 1-3: there are no access lists, as on a Kafka without an authorizer."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

__all__ = ["API_KEY", "NO_AUTHORIZER", "handle"]

API_KEY = 29

NO_AUTHORIZER = "No Authorizer is configured."


def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
