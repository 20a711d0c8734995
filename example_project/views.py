"""The site's own pages."""

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponseBase

from django_slidinglimit.decorators import ratelimit


# Few tries from one address, and few for one name from wherever: both are asked in one round trip,
# and a try that one of them refuses uses up nothing of the other.
@ratelimit("login", key="ip", rate="5/min", method="POST")
@ratelimit("login", key="post:username", rate="20/h", method="POST")
def sign_in(request: HttpRequest) -> HttpResponseBase:
    return LoginView.as_view(template_name="example_project/login.html")(request)
