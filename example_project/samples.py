"""What the demo starts with: a user to sign in as, items, rules, and who sends traffic."""

from decimal import Decimal

from django.contrib.auth import get_user_model
from rest_framework.authtoken.models import Token

from django_slidinglimit.models import Rule

from .models import Item
from .traffic import Caller

NAME = PASSWORD = "demo"
ATTACKER = "203.0.113.66"  # an address for documentation (RFC 5737)
PAUSE = 3.0  # seconds
ATTACKERS_SHARE = 6

ITEMS = {"Kettle": "24.90", "Lamp": "39.00", "Mug": "7.50", "Notebook": "3.20", "Teapot": "31.00"}


def rules() -> list[Rule]:
    """Rules of several kinds, unsaved."""
    return [
        Rule(
            name="Item list",
            description="Replaces the rate that the settings give the scope. Lower it and watch.",
            scope="items",
            methods="GET",
            rate="30/min",
        ),
        Rule(
            name="Search, tried out",
            description="Counts what it would refuse, and refuses nothing.",
            scope="search",
            rate="10/min",
            mode=Rule.Mode.OBSERVE,
        ),
        Rule(
            name="API, by the hour",
            description="On a path: all of the API together, besides what its places have.",
            path="api/*",
            key="user_or_ip",
            rate="2000/h",
        ),
    ]


def install() -> list[Caller]:
    """Fill an empty database; return who is to send traffic."""
    users = get_user_model()._default_manager
    users.create_superuser(NAME, password=PASSWORD)
    Item.objects.bulk_create(Item(name=n, price=Decimal(p)) for n, p in ITEMS.items())
    for rule in rules():
        rule.full_clean()
        rule.save()
    callers = []
    for name in ("alice", "bob"):
        token = Token.objects.create(user=users.create_user(name))
        callers.append(Caller({"Authorization": f"Token {token.key}"}, PAUSE))
    callers.append(Caller({"X-Forwarded-For": ATTACKER}, PAUSE / ATTACKERS_SHARE))
    return callers
