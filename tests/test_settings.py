from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import SettingError
from headwater.settings import SETTINGS, load_settings


def test_later_sources_win_and_each_value_says_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text('[broker]\ndata = "a"\nlisten = "127.0.0.1:1"\n[views]\ndata = "v"\n')
    environment = {"HEADWATER_BROKER_DATA": "b", "HEADWATER_BROKER_LISTEN": "127.0.0.1:2", "UNRELATED": "x"}
    settings = load_settings({"broker.listen": "127.0.0.1:3", "broker.data": None}, file=file, environment=environment)
    assert (settings["broker.listen"], settings.values["broker.listen"].source) == ("127.0.0.1:3", "command line")
    assert (settings["broker.data"], settings.values["broker.data"].source) == ("b", "environment")
    assert (settings["views.data"], settings.values["views.data"].source) == ("v", str(file))
    assert settings.values["pipeline.master"].source == "default"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[broker]\nlisten = "9092"', "HOST:PORT"),
        ('[broker]\nlisten = "h:99999"', "HOST:PORT"),
        ('[broker]\nlistem = "h:1"', "did you mean 'broker.listen'"),
        ('data = "x"', "is a section"),
        ("[broker\n", "is not TOML"),
        ('[broker]\ndata = ""', "must not be empty"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_source_and_the_remedy(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as refused:
        load_settings(file=file, environment={})
    assert word in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not exist"):
        load_settings(file=tmp_path / "none.toml", environment={})


def test_every_default_is_itself_valid() -> None:
    load_settings({name: s.default for name, s in SETTINGS.items() if s.default}, environment={})
