import re
from pathlib import Path

import pytest

from sds.errors import ConfigurationError
from sds.home import Home
from sds.server.settings import Settings, load_settings

CONNECTOR = {"home", "trace", "disable", "redirect", "debug", "service_uid"}


@pytest.fixture
def home(tmp_path):
    found = Home(tmp_path)
    found.create()
    return found


def test_every_setting_is_documented_with_its_default():
    page = Path(__file__).parents[2].joinpath("docs/reference/settings.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", page, flags=re.MULTILINE))
    assert set(rows) == set(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "none" if default is None else str(default)
        if isinstance(default, tuple):
            shown = ", ".join(default)
        assert rows[name].strip() == shown, name


def test_no_setting_has_the_name_of_a_variable_of_the_connector():
    assert CONNECTOR.isdisjoint(Settings.model_fields)


def test_arguments_win_over_the_environment_and_it_over_the_file(home, monkeypatch):
    home.config.write_text("port = 1111\nstripe_count = 4\nlock_wait_s = 9\n")
    monkeypatch.setenv("SDS_STRIPE_COUNT", "8")
    monkeypatch.setenv("SDS_PORT", "2222")
    settings = load_settings(home, port=3333)
    assert (settings.port, settings.stripe_count, settings.lock_wait_s) == (3333, 8, 9.0)
    assert settings.host == "127.0.0.1"


def test_variables_of_the_connector_are_none_of_ours(home, monkeypatch):
    for name in CONNECTOR:
        monkeypatch.setenv(f"SDS_{name.upper()}", "1")
    assert load_settings(home) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ports = 1", "'ports'.*there are: database_url"),
        ("port = 99999", "port = 99999 in .*config.toml"),
        ("stripe_count = 0", "stripe_count = 0"),
        ("port = ", "no TOML"),
        (f"port = {'9' * 5000}", "no TOML"),
        pytest.param("port = " + "[" * 100_000, "nested too deeply", id="nested"),
    ],
)
def test_a_wrong_file_is_refused_by_name(home, text, message):
    home.config.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_settings(home)


def test_a_wrong_variable_is_refused_by_name(home, monkeypatch):
    monkeypatch.setenv("SDS_PORT", "http")
    with pytest.raises(ConfigurationError, match="port = 'http' in SDS_PORT"):
        load_settings(home)


def test_a_list_in_a_variable_is_json(home, monkeypatch):
    monkeypatch.setenv("SDS_ALLOWED_HOSTS", "a,b")
    with pytest.raises(ConfigurationError, match="JSON"):
        load_settings(home)
    monkeypatch.setenv("SDS_ALLOWED_HOSTS", '["login1"]')
    assert load_settings(home).allowed_hosts == ("login1",)
