"""Clients whose identities are hard to show, to link and to act upon."""

from django_slidinglimit.core.decisions import Client

ODD = [
    Client("ip", "2001:db8::/64"),
    Client("key", "a/b?c#d"),
    Client("key", "<script>alert(1)</script>"),
    Client("key", "x" * 400),
    Client("key", "🦊"),
    Client("key", ".."),
    Client("key", "new\nline\0"),
    Client("key", "\ud800"),
    Client("header:x-api-key", ""),
    Client("global", ""),
]
