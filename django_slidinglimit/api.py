"""The caller's own limits for REST framework; who calls is whom it has authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_control
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import APIView

from . import allowances
from .core.stores import StoreError

if TYPE_CHECKING:
    from rest_framework.request import Request


class Unavailable(APIException):
    """Redis is away."""

    status_code = 503
    default_detail = allowances.AWAY
    default_code = "unavailable"

    def __init__(self) -> None:
        super().__init__()
        self.wait = allowances.again_in()  # for Retry-After


@method_decorator(cache_control(no_store=True), name="dispatch")
class OwnLimits(APIView):
    """The rules that the caller is under, and what is left; to ask counts nothing."""

    throttle_classes = ()

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # noqa: ARG002
        try:
            return Response(allowances.of(request).as_data())
        except StoreError as exc:
            raise Unavailable from exc
