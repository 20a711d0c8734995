"""The API: a list, a search and a write, each under a limit of its own.

The rates of the three scopes are in `settings.REST_FRAMEWORK`. Rules that are made in the admin for
one of these scopes replace its rate or add a limit; those for a path such as `api/*` add one (see
docs/rules.md).
"""

from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import IsAuthenticatedOrReadOnly
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import GenericViewSet

from django_slidinglimit.throttling import RuleThrottle, ScopedRateThrottle

from .models import Item


class ItemSerializer(ModelSerializer[Item]):
    class Meta:
        model = Item
        fields = ("id", "name", "price")


class ItemViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, GenericViewSet[Item]):
    """Anyone may read; who writes must say who they are."""

    queryset = Item.objects.all()
    serializer_class = ItemSerializer
    authentication_classes = (TokenAuthentication, SessionAuthentication)
    permission_classes = (IsAuthenticatedOrReadOnly,)
    throttle_classes = (ScopedRateThrottle, RuleThrottle)
    throttle_scope = "items"

    def get_throttles(self) -> list[BaseThrottle]:
        if self.action == "create":
            self.throttle_scope = "items.write"
        return super().get_throttles()

    @action(detail=False, throttle_scope="search")
    def search(self, request: Request) -> Response:
        """The items whose name holds the text `q`."""
        found = self.get_queryset().filter(name__icontains=request.query_params.get("q", ""))
        return Response(self.get_serializer(found, many=True).data)
