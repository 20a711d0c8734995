import pytest

from django_slidinglimit.paths import PathPattern


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("api/items/", ["/api/items/"], ["/api/items", "/api/items/7", "/x/api/items/"]),
        ("/api/items/", ["/api/items/"], ["/api/items", "//api/items/"]),
        ("api/items/<int:pk>/", ["/api/items/7/"], ["/api/items/x/", "/api/items/7/more/"]),
        ("<slug:kind>/<path:rest>", ["/a/b/c", "/a/b"], ["/a", "/a/"]),
        ("api/*", ["/api/", "/api/items/7/"], ["/api", "/apiary", "/v1/api/"]),
        ("api*", ["/api", "/apiary", "/api/x"], ["/ap"]),
        ("*", ["/", "/anything/"], []),
        ("/", ["/"], ["/anything"]),
        ("a.c/", ["/a.c/"], ["/abc/"]),
        ("süß/<str:x>", ["/süß/日本"], ["/süß/"]),
    ],
)
def test_matches_paths_as_django_does_or_by_their_beginning(
    text: str, matching: list[str], other: list[str]
) -> None:
    pattern = PathPattern(text)
    assert [path for path in matching if not pattern.matches(path)] == []
    assert [path for path in other if pattern.matches(path)] == []


def test_a_number_of_thousands_of_digits_is_no_match_and_no_error() -> None:
    assert not PathPattern("<int:pk>/").matches(f"/{'9' * 5000}/")


@pytest.mark.parametrize(
    ("text", "literal"),
    [("/api/items/<int:pk>/", "api/items/"), ("api/*", "api/"), ("*", ""), ("<x>", ""), ("a", "a")],
)
def test_says_what_every_matching_path_begins_with(text: str, literal: str) -> None:
    assert PathPattern(text).literal == literal


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("api/*/items", "only at the end"),
        ("api/**", "only at the end"),
        ("<int:pk>/*", "only at the end"),
        ("<number:pk>/", "converter 'number'"),
        ("<int:1>/", "identifier"),
        ("<int: pk>/", "whitespace"),
        ("<int:pk/", "bracket"),
        ("int:pk>/", "bracket"),
        ("<int:a>/<int:a>/", "redefinition"),
        ("^api/", "begins with"),
        ("api/$", "ends with"),
        ("(?P<pk>[0-9]+)/", "contains"),
        ("//api/", "'/'"),
    ],
)
def test_refuses_what_would_never_match_and_says_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"path pattern|only at the end") as refusal:
        PathPattern(text)
    assert problem in str(refusal.value)
    assert repr(text) in str(refusal.value)
