"""The pipeline's public names: all there, all documented, none paid for before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

from headwater import pipeline


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in pipeline.__all__:
        found = getattr(pipeline, name)
        assert found.__doc__, f"headwater.pipeline.{name} has no documentation"
        assert isinstance(found, ModuleType) or name in import_module(found.__module__).__all__, name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(pipeline, "nothing_of_that_name")
    assert set(pipeline.__all__) <= set(dir(pipeline))


def test_importing_the_package_does_not_import_spark() -> None:
    program = "import headwater.pipeline, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
