"""Where the drivers of a test module run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.engine.drivers import Deployment

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, project: Project, kafka: EmbeddedKafka
) -> Iterator[Deployment]:
    """Tables, checkpoints and logs of its own, on the broker of the run; what still runs at the end is killed."""
    deployment = Deployment.below(
        tmp_path_factory.mktemp("drivers"), project, kafka.bootstrap_servers, "tests.integration.engine.streams"
    )
    yield deployment
    deployment.kill_all()
