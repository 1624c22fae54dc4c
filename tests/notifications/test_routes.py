"""The file of routes: what goes where, and what is wrong with a file."""

import re
from pathlib import Path

import pytest

from nightjar.notifications.routes import Routes, load_routes
from nightjar.rules.errors import SettingsError
from tests.support.alert_records import alert

ROOT = Path(__file__).parents[2]
HOOK = '[targets.desk]\nkind = "webhook"\nurl = "https://desk.example/hook"\nsecret_file = "secret"\n'
MAIL = '[targets.mail]\nkind = "mail"\nhost = "smtp.example"\nfrom = "n@a.example"\nto = ["f@a.example"]\n'
ROUTE = '[[routes]]\nto = ["desk"]\n'


def routes(folder: Path, text: str) -> Routes:
    """Those of a file."""
    file = folder / "routes.toml"
    file.write_text(text)
    return load_routes(file)


def test_a_target_takes_the_first_route_that_matches(tmp_path: Path) -> None:
    """By rule, severity and tag, all of them; another target has a route of its own."""
    found = routes(
        tmp_path,
        HOOK + MAIL + '[[routes]]\nto = ["desk"]\nrules = ["card-*", "burst"]\nseverities = ["high"]\nwait = "1m"\n'
        '[[routes]]\nto = ["desk", "mail"]\ntags = ["geo", "night"]\nwait = "5m"\n',
    )
    minute = 60_000_000

    def waits(*tags: str, **more: str) -> dict[str, int]:
        return {name: route.wait for name, route in found.of(alert("t1", **more), frozenset(tags)).items()}

    assert waits() == {"desk": minute}
    assert waits("geo") == {"desk": minute, "mail": 5 * minute}
    assert waits("other", severity="low") == {}
    assert waits("night", severity="low") == {"desk": 5 * minute, "mail": 5 * minute}
    assert waits(rule_id="card-x") == {"desk": minute}
    assert waits(rule_id="Card-x") == {}


def test_alerts_are_grouped_by_what_the_route_says(tmp_path: Path) -> None:
    """By the rule unless it says otherwise; by nothing, all are together."""
    parts = 'group_by = ["severity", "group"]', "group_by = []", ""
    found = [routes(tmp_path, HOOK + ROUTE + part).routes[0].grouping(alert("t1")) for part in parts]
    assert found == ['{"severity":"high","group":{"customer_id":"c7"}}', "{}", '{"rule":"burst"}']


def test_the_example_in_the_docs_is_one(tmp_path: Path) -> None:
    """It can be copied."""
    page = (ROOT / "docs" / "how-to" / "notify.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    found = routes(tmp_path, example)
    assert {name: target.kind for name, target in found.targets.items()} == {
        "desk": "webhook",
        "channel": "slack",
        "on-call": "mail",
    }
    assert list(found.of(alert("t1"), frozenset())) == ["desk", "channel", "on-call"]


def test_days_may_be_quiet_as_a_whole(tmp_path: Path) -> None:
    """Beside hours, or alone."""
    quiet = 'quiet = {days = ["sunday", "saturday"], zone = "Europe/Berlin"}\n'
    found = routes(tmp_path, HOOK + quiet + ROUTE).targets["desk"].quiet
    assert found is not None
    assert (found.hours.hours, found.hours.days) == (None, {5, 6})


def test_files_of_secrets_are_beside_it(tmp_path: Path) -> None:
    """Unless their paths are absolute."""
    target = routes(tmp_path, HOOK + ROUTE).targets["desk"]
    assert target.model_dump()["secret_file"] == tmp_path / "secret"
    absolute = routes(tmp_path, HOOK.replace('"secret"', '"/run/secret"') + ROUTE).targets["desk"]
    assert absolute.model_dump()["secret_file"] == Path("/run/secret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "is not TOML"),
        ("", "targets: Field required"),
        (HOOK, "routes: Field required"),
        (HOOK + ROUTE + "color = 1", "route 1.color: unknown key"),
        (HOOK + '[[routes]]\nto = ["dsk"]', "route 1.to: 'dsk' is not a target. Did you mean desk?"),
        (HOOK + MAIL + ROUTE, "targets.mail: no route leads there"),
        (HOOK + ROUTE + 'severities = ["hihg"]', "route 1.severities.0: Input should be 'low'"),
        (HOOK + ROUTE + 'wait = "soon"', "route 1.wait: 'soon' is not a duration"),
        (HOOK + ROUTE + 'group_by = ["x"]', "route 1.group_by.0: Input should be 'rule'"),
        (HOOK.replace("webhook", "pager") + ROUTE, "targets.desk: Input tag 'pager' found using 'kind'"),
        (HOOK.replace("https:", "file:") + ROUTE, "targets.desk.url: an address begins with https:// or http://"),
        (HOOK.replace("desk.ex", "u:SECRET@ex") + ROUTE, "targets.desk.url: an address has no user or password"),
        (HOOK.replace("/hook", "/hook?token=SECRET") + ROUTE, "targets.desk.url: what follows \\? may be a secret"),
        (HOOK.replace("/hook", "/ho ok") + ROUTE, "targets.desk.url: an address has no spaces"),
        (HOOK + 'url_file = "url"\n' + ROUTE, "targets.desk: give either url or url_file"),
        (HOOK + 'password = "SECRET"\n' + ROUTE, "targets.desk.password: unknown key"),
        (HOOK + 'quiet = {from = "22:00", until = "7"}\n' + ROUTE, "quiet.until: write a time of day as in"),
        (HOOK + 'quiet = {from = "22:00", until = "22:00"}\n' + ROUTE, "quiet: from and until are the same"),
        (HOOK + 'quiet = {from = "22:00", days = ["sunday"]}\n' + ROUTE, "quiet: from and until belong together"),
        (HOOK + 'quiet = {zone = "UTC"}\n' + ROUTE, "quiet: give from and until, or days"),
        (HOOK + 'quiet = {days = ["sonntag"]}\n' + ROUTE, "quiet.days"),
        (HOOK + 'quiet = {from = "22:00", until = "7:00", zone = "Berlin"}\n' + ROUTE, "quiet.until"),
        (HOOK + 'quiet = {from = "22:00", until = "07:00", zone = "Berlin"}\n' + ROUTE, "'Berlin' is not a zone"),
        (MAIL + 'username = "u"\n[[routes]]\nto = ["mail"]', "a login needs username and password_file"),
        (
            MAIL + 'username = "u"\npassword_file = "p"\nsecurity = "none"\n[[routes]]\nto = ["mail"]',
            "a login is not sent unencrypted",
        ),
        (MAIL.replace("f@a.example", "f@a.example\\nBcc: x@y") + ROUTE, "targets.mail.to.0: write an address"),
        (MAIL.replace("f@a.example", "f@a, x@y") + ROUTE, "targets.mail.to.0: write an address"),
        (MAIL.replace("smtp.example", "smtp.example:25/x") + ROUTE, "targets.mail.host: write a name"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, message: str) -> None:
    """The error names the key and shows no value that may be a secret."""
    with pytest.raises(SettingsError, match=message) as caught:
        routes(tmp_path, text)
    assert "SECRET" not in str(caught.value)
    assert str(tmp_path / "routes.toml") in str(caught.value)
