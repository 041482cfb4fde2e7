from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tailrace.errors import SettingsError
from tailrace.origins import _section_in, leaves
from tailrace.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project folder with a settings file, and nothing of the machine's environment."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "tailrace.toml").write_text(text)
        return tmp_path

    return write


def load(environ=None, **flags):
    return Settings.load(overrides=flags.pop("flags", None), environ=environ or {}, **flags)


def test_defaults_stand_when_nothing_is_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load()
    assert settings.home == tmp_path / ".tailrace"
    assert settings.spark.master == "local[*]"
    assert settings.origin("spark.master").kind == "default"


def test_each_layer_wins_over_the_one_before(project):
    home = project('home = "state"\n[kafka]\nbootstrap = "file:1"\n') / "state"
    home.mkdir()
    (home / "endpoints.json").write_text(
        '{"kafka": {"bootstrap": "stack:1"}, "postgres": {"url": "postgresql://stack/x"}}'
    )
    environ = {"TAILRACE_KAFKA__BOOTSTRAP": "variable:1"}
    assert load().kafka.bootstrap == "file:1"
    assert load().postgres.url.get_secret_value() == "postgresql://stack/x"
    assert load(environ).kafka.bootstrap == "variable:1"
    flagged = load(environ, flags={"kafka.bootstrap": "flag:1", "spark.master": None})
    assert flagged.kafka.bootstrap == "flag:1"
    kinds = [settings.origin("kafka.bootstrap").kind for settings in (load(), load(environ), flagged)]
    assert kinds == ["file", "environment", "flag"]
    assert load().origin("postgres.url").kind == "embedded"


def test_the_file_is_found_from_a_folder_below(project, monkeypatch):
    root = project('[spark]\nmaster = "local[3]"\n')
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(root / "a" / "b")
    settings = load()
    assert settings.spark.master == "local[3]"
    assert settings.home == root / ".tailrace"


def test_the_file_may_be_named(project, tmp_path):
    project('[spark]\nmaster = "local[3]"\n')
    other = tmp_path / "other.toml"
    other.write_text('[spark]\nmaster = "local[5]"\n')
    assert load({"TAILRACE_CONFIG": str(other)}).spark.master == "local[5]"
    with pytest.raises(SettingsError, match="TAILRACE_CONFIG"):
        load({"TAILRACE_CONFIG": str(tmp_path / "none.toml")})


def test_a_wrong_key_names_file_line_and_the_nearest_key(project):
    root = project('[spark]\nui = true\n\n[kafka]\n# the log\nbootstap = "x:1"\n')
    with pytest.raises(SettingsError) as caught:
        load()
    assert "kafka.bootstap" in caught.value.what
    assert f"{root / 'tailrace.toml'}:6" in caught.value.what
    assert "kafka.bootstrap?" in caught.value.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "near"),
    [
        ("[kafak]\nbootstrap = 'x'\n", 2, "kafka"),
        ("kafka.tls.certificat = 'x'\n", 1, "kafka.tls.certificate"),
        ("kafka = { bootstrp = 'x' }\n", 1, "kafka.bootstrap"),
        ("[topics.events]\npartitons = 3\n", 2, "topics.events.partitions"),
    ],
)
def test_wrong_keys_of_every_shape(project, text, line, near):
    root = project(text)
    with pytest.raises(SettingsError) as caught:
        load()
    assert f"{root / 'tailrace.toml'}:{line}" in caught.value.what
    assert f"{near}?" in caught.value.remedy


def test_a_wrong_variable_is_named(project):
    project("")
    with pytest.raises(SettingsError, match="TAILRACE_KAFKA__BOOSTRAP") as caught:
        load({"TAILRACE_KAFKA__BOOSTRAP": "x:1"})
    assert "kafka.bootstrap?" in caught.value.remedy


def test_a_wrong_value_names_its_place_and_never_a_secret(project):
    root = project('[spark]\nshuffle_partitions = "many"\n')
    with pytest.raises(SettingsError) as caught:
        load({"TAILRACE_POSTGRES__URL": "[1, 2]", "TAILRACE_SPARK__UI": "perhaps"})
    assert f"{root / 'tailrace.toml'}:2" in caught.value.what
    assert "TAILRACE_SPARK__UI" in caught.value.what
    assert "TAILRACE_POSTGRES__URL" in caught.value.what
    assert "[1, 2]" not in str(caught.value)


def test_broken_toml_names_the_line(project):
    root = project("[kafka]\nbootstrap = \n")
    with pytest.raises(SettingsError, match="line 2") as caught:
        load()
    assert str(root / "tailrace.toml") in caught.value.what


def test_damaged_endpoints_say_what_to_do(project):
    home = project("") / ".tailrace"
    home.mkdir()
    (home / "endpoints.json").write_text("{")
    with pytest.raises(SettingsError, match="tailrace up"):
        load()


def test_variables_may_hold_lists_and_numbers(project):
    project("")
    settings = load({"TAILRACE_SPARK__SHUFFLE_PARTITIONS": "7", "TAILRACE_SPARK__CONF": '{"spark.a.b": "c"}'})
    assert settings.spark.shuffle_partitions == 7
    assert settings.spark.conf == {"spark.a.b": "c"}


def test_variables_that_are_no_settings_are_left_alone(project):
    project("")
    assert load({"TAILRACE_CHROMIUM": "/x", "TAILRACE_PROJECT": "/y"}).spark.ui is False


def test_home_and_cache_have_short_variables(project, tmp_path):
    project("")
    settings = load({"TAILRACE_HOME": "elsewhere", "TAILRACE_CACHE": str(tmp_path / "c")})
    assert (settings.home, settings.cache) == (tmp_path / "elsewhere", tmp_path / "c")


def test_derive_replaces_and_keeps_the_rest(project):
    project('[spark]\nmaster = "local[3]"\n')
    derived = load().derive({"postgres.url": "postgresql://a:hushhush@b/c"})
    assert derived.spark.master == "local[3]"
    assert derived.origin("spark.master").kind == "file"
    assert derived.postgres.url.get_secret_value().endswith("b/c")
    assert "hushhush" not in repr(derived)


def test_relative_paths_stand_beside_the_file(project, monkeypatch, tmp_path):
    root = project('[pipelines]\npath = "code"\n[outbox]\nspool = "/var/spool"\n')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    settings = load()
    assert settings.pipelines.path == root / "code"
    assert str(settings.outbox.spool) == "/var/spool"


def test_a_home_that_is_no_path(project):
    project("home = 3\n")
    with pytest.raises(SettingsError, match="setting home is wrong"):
        load()


def test_the_production_file_loads_and_names_every_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path(__file__).parents[3] / "docs" / "tailrace.production.toml"
    load({"TAILRACE_CONFIG": str(path)})
    everything = re.sub(r"^# (?=[a-z_]+ = )", "", path.read_text(), flags=re.MULTILINE)
    named = {key for key, _ in leaves(tomllib.loads(everything))}
    wildcards = {"events": "*", "page_views": "*"}
    known = {tuple(wildcards.get(part, part) for part in key) for key in named}
    assert _keys(Settings) - known == set()


def _keys(model, above=()):
    found = set()
    for name, field in model.model_fields.items():
        inner, kind = _section_in(field.annotation), str(field.annotation)
        if inner is not None:
            found |= _keys(inner, (*above, name, "*") if kind.startswith("dict") else (*above, name))
        elif not kind.startswith("dict"):
            found.add((*above, name))
    return found
