"""The page "Which rules apply?": a request that somebody might send, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_slidinglimit import addresses, clients
from django_slidinglimit._compat import BREADCRUMBS_ARE_A_LIST
from django_slidinglimit.explanation import Question, explain
from django_slidinglimit.models import METHODS, Override

from .people import people
from .rows import label

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.models import Rule

# An address of no real client (RFC 5737).
EXAMPLE = "192.0.2.1"


class QuestionForm(forms.Form):
    """What is asked. A client of another kind is given by kind and identity, as on other pages."""

    path = forms.CharField(label=_("Path"), initial="/", max_length=2000)
    method = forms.ChoiceField(label=_("Method"), choices=[(m, m) for m in METHODS])
    user = forms.CharField(
        label=_("User"),
        required=False,
        max_length=254,
        help_text=_("A name or a primary key; blank: not signed in."),
    )
    address = forms.CharField(
        label=_("IP address"),
        required=False,
        initial=EXAMPLE,
        max_length=100,
        help_text=_("Blank: none is known."),
    )
    kind = forms.CharField(
        label=_("Another kind"),
        required=False,
        max_length=200,
        help_text=_("If rules count by one, such as header:x-api-key."),
    )
    identity = forms.CharField(
        label=_("Its identity"),
        required=False,
        max_length=512,
        help_text=_("What stands in the header, or the digest that pages show."),
    )

    def clean_user(self) -> Any:
        """The user.

        Raises:
            ValidationError: there is none.
        """
        text = self.cleaned_data["user"]
        return _find_user(text) if text else None

    def clean_address(self) -> str:
        """The address, as it was typed.

        Raises:
            ValidationError: it is none.
        """
        text: str = self.cleaned_data["address"]
        if text and addresses.parse_address(text) is None:
            raise ValidationError(gettext("%(text)r is no address.") % {"text": text})
        return text

    def clean(self) -> dict[str, Any]:
        """Everything, with `client` if one of another kind is given.

        The kinds user and ip are what the fields before mean: links from other pages give a client
        by kind and identity.
        """
        data: dict[str, Any] = super().clean() or {}
        kind, identity = data.get("kind", "").strip(), data.get("identity", "").strip()
        data["client"] = None
        if not kind and not identity:
            return data
        try:
            client = clients.settled(kind, identity)
            if client.kind == "user":
                data["user"] = _find_user(client.identity)
            elif client.kind == "ip":
                data["address"] = client.identity.partition("/")[0]
            else:
                data["client"] = client
        except (ValueError, ValidationError) as exc:
            self.add_error("identity", exc if isinstance(exc, ValidationError) else str(exc))
        return data

    def question(self) -> Question:
        """The question of a valid form."""
        asked = ("path", "method", "user", "address", "client")
        return Question(*(self.cleaned_data[name] for name in asked))


def explain_view(admin: ModelAdmin[Rule], request: HttpRequest) -> HttpResponse:
    """Answer what the query asks; without one, show the form.

    Args:
        admin: the rules' admin.
        request: asked of by somebody who must be allowed to see rules.
    """
    if not admin.has_view_permission(request):
        raise PermissionDenied
    form = QuestionForm(request.GET if "path" in request.GET else None, label_suffix="")
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        told = explain(form.question())
        found = people(
            request, admin.admin_site, (line.client for line in told.applying if line.client)
        )
        overrides = Override.objects.in_bulk([o.override.pk for o in told.applying if o.override])
        context["told"] = told
        context["lines"] = [
            {
                "line": line,
                "client": label(line.client, found.get(line.client)) if line.client else "",
                "override": overrides.get(line.override.pk) if line.override else None,
            }
            for line in told.applying
        ]
    request.current_app = admin.admin_site.name
    response = TemplateResponse(
        request,
        "admin/django_slidinglimit/explain.html",
        {
            **admin.admin_site.each_context(request),
            "title": gettext("Which rules apply?"),
            "opts": admin.opts,
            "breadcrumbs_are_a_list": BREADCRUMBS_ARE_A_LIST,
            "may_see_overrides": request.user.has_perm("django_slidinglimit.view_override"),
            **context,
        },
    )
    add_never_cache_headers(response)
    return response


def _find_user(text: str) -> Any:
    """The user of a name, or of a primary key.

    Raises:
        ValidationError: there is none.
    """
    model = get_user_model()
    found = model._default_manager.filter(**{model.USERNAME_FIELD: text}).first()
    if found is None:
        try:
            key = model._meta.pk.clean(text, None)
            found = model._default_manager.filter(pk=key).first()
        except ValidationError:
            found = None
    if found is None:
        raise ValidationError(gettext("There is no user %(text)r.") % {"text": text})
    return found
